//! Point writes: put, create-only and delete.
//!
//! They go out only under a view within its lease, checked between signing and sending, and again when the answer is in: if the
//! lease has run out by then, somebody may have written under a newer width, and nothing can be claimed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, sleep, timeout_at};

use super::keys::KeyState;
use super::retry::{Backoff, may_send_again};
use super::write::{WriteError, WriteErrorKind, Written};
use super::{Deadline, Inner, ShardedTable};
use crate::core::capacity::CapacityScope;
use crate::core::idempotency::IdempotencyKey;
use crate::core::key::{PartitionKey, ShardNumber, SortKey};
use crate::core::placement::Placement;
use crate::core::point_write::{Copy, Effect, Part, PointKind, Refusal, Standing, plan};
use crate::core::pressure::Pressure;
use crate::core::value::Item;
use crate::core::version::{TIE_BREAKERS, Version};
use crate::core::view::View;
use crate::core::write_id::{WriteId, WriteRelation};
use crate::table::error::TableError;
use crate::table::{LeaseLasts, NewItem, PointAnswer, PointTarget};
use crate::telemetry;

/// How many seconds the note that a key takes point writes stands before it is renewed.
const NOTED_FOR: u64 = 3_600;
/// The part of the lease within which a point write is sent. The rest of it is the attempt's timeout.
const SEND_WITHIN: f64 = 0.5;
/// The part of the lease after which a view is renewed ahead of that, in the background.
const RENEW_AT: f64 = 0.3;
const REPETITION_REFUSED: &str = "a repetition was refused, and an attempt before it had no answer";

impl Inner {
    /// Lets the schedule know that settling the key would spare its point writes something; once an hour. Where appends go out without a view,
    /// no key can be settled.
    fn note_point_write(self: &Arc<Self>, key: &PartitionKey, state: &KeyState, view: &View) {
        let now = self.environment.now().epoch_seconds();
        let own = state.noted_at.load(Ordering::Relaxed);
        let Some(metadata) = &view.metadata else { return };
        let noted = metadata.point_written_at.max(own);
        let changed = metadata.last_change().unwrap_or_default();
        // By a clock that is behind, too, the note is of after the change.
        let now = now.max(changed);
        let stands = noted >= changed && now < noted.saturating_add(NOTED_FOR);
        if self.config.cold_append
            || stands
            || state.noted_at.compare_exchange(own, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let (inner, key) = (Arc::clone(self), key.clone());
        self.background.spawn(async move {
            if let Err(error) = inner.tables.note_point_write(&key, now).await {
                tracing::warn!(%error, "that a key takes point writes could not be noted; it is tried again in an hour");
            }
        });
    }
}

impl ShardedTable {
    /// Replaces an item, or stores it where none stands. Two puts of one item leave the later one that was answered.
    ///
    /// # Errors
    /// [`WriteError`]; [`AppendOnly`](WriteErrorKind::AppendOnly) on random placement. An unknown outcome may be resolved by repeating it.
    pub async fn put(&self, item: &Item, deadline: Deadline) -> Result<Written, WriteError> {
        let bringing = Bringing { item, write_id: None };
        PointRun::new(&self.inner, PointKind::Put, &item.partition_key, &item.sort_key, Some(bringing))
            .run(deadline)
            .await
    }

    /// Stores an item where none stands: of any number of concurrent calls for one item, exactly one succeeds.
    ///
    /// A call that repeats an earlier one, after an unknown outcome, knows that one's item by the idempotency key and succeeds again.
    ///
    /// # Errors
    /// [`WriteErrorKind::Exists`] where an item stands, [`WriteErrorKind::IdempotencyKeyReused`] where it was created by another content under
    /// this idempotency key, and the rest of [`WriteErrorKind`].
    pub async fn create(
        &self,
        item: &Item,
        idempotency_key: Option<&IdempotencyKey>,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        let write_id = match idempotency_key {
            Some(key) => WriteId::of_request(key, item),
            None => WriteId::random(self.inner.environment.bytes()),
        };
        let bringing = Bringing { item, write_id: Some(write_id) };
        PointRun::new(&self.inner, PointKind::CreateOnly, &item.partition_key, &item.sort_key, Some(bringing))
            .run(deadline)
            .await
    }

    /// Deletes an item. That none stands is no error.
    ///
    /// # Errors
    /// [`WriteError`]. After an unknown outcome, read before deleting again: somebody may have stored the item anew.
    pub async fn delete(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        PointRun::new(&self.inner, PointKind::Delete, key, sort_key, None).run(deadline).await
    }
}

/// What a put or a create-only write brings.
struct Bringing<'a> {
    item: &'a Item,
    write_id: Option<WriteId>,
}

/// One point write with its attempts.
struct PointRun<'a> {
    inner: &'a Arc<Inner>,
    state: Arc<KeyState>,
    kind: PointKind,
    partition_key: &'a PartitionKey,
    sort_key: &'a SortKey,
    bringing: Option<Bringing<'a>>,
    /// Taken once, at the first send; a put that meets a higher one goes above it.
    version: Option<Version>,
    /// Drawn once.
    tie_breaker: u32,
    /// The shards on which refusals have shown copies.
    standing: Standing,
    was_refused: bool,
    attempts: u32,
    throttled: u32,
    /// Attempts without an answer: after one, a refusal proves nothing.
    unanswered: u32,
    last: Option<TableError>,
}

/// How the run goes on after an attempt.
enum Next {
    Done(Written),
    Failed(WriteError),
    /// At once: something was learnt.
    Again,
    /// After a pause.
    Later,
}

impl<'a> PointRun<'a> {
    fn new(
        inner: &'a Arc<Inner>,
        kind: PointKind,
        partition_key: &'a PartitionKey,
        sort_key: &'a SortKey,
        bringing: Option<Bringing<'a>>,
    ) -> Self {
        Self {
            inner,
            state: inner.keys.state(partition_key),
            kind,
            partition_key,
            sort_key,
            bringing,
            version: None,
            tie_breaker: inner.environment.below(TIE_BREAKERS),
            standing: Standing::default(),
            was_refused: false,
            attempts: 0,
            throttled: 0,
            unanswered: 0,
            last: None,
        }
    }

    async fn run(self, deadline: Deadline) -> Result<Written, WriteError> {
        let written = self.attempts_until(deadline).await;
        telemetry::write(&written);
        written
    }

    async fn attempts_until(mut self, deadline: Deadline) -> Result<Written, WriteError> {
        if self.inner.config.placement == Placement::Random {
            return Err(WriteErrorKind::AppendOnly.after(0, 0));
        }
        let mut backoff = Backoff::default();
        loop {
            if Instant::now() >= deadline || (self.attempts > 0 && !may_send_again(deadline)) {
                return Err(self.give_up());
            }
            let view = match self.leased_or_fresh_view(deadline).await {
                Ok(view) => view,
                Err(error) => {
                    self.last = Some(error);
                    return Err(self.give_up());
                }
            };
            match self.attempt(&view, deadline).await {
                Next::Done(written) => return Ok(written),
                Next::Failed(error) => return Err(error),
                Next::Again => {}
                Next::Later => {
                    let pause = backoff.next(&self.inner.environment);
                    if Instant::now() + pause >= deadline {
                        return Err(self.give_up());
                    }
                    sleep(pause).await;
                }
            }
        }
    }

    /// The view of a point write: the one that is known, if enough of its lease is left, or a new one.
    async fn leased_or_fresh_view(&self, deadline: Deadline) -> Result<Arc<View>, TableError> {
        let lease = self.inner.config.lease;
        let send_within = lease.mul_f64(SEND_WITHIN);
        match self.inner.leased_view(self.partition_key, &self.state, send_within, lease.mul_f64(RENEW_AT)) {
            Some(view) => Ok(view),
            None => {
                let good = |view: &View, now| view.is_valid(now, send_within);
                self.inner.view(self.partition_key, &self.state, deadline, good).await
            }
        }
    }

    async fn attempt(&mut self, view: &Arc<View>, deadline: Deadline) -> Next {
        let parts = self.plan(view);
        let (inner, lease) = (self.inner, self.inner.config.lease);
        let lasts: LeaseLasts = {
            let (inner, view, send_within) = (Arc::clone(inner), Arc::clone(view), lease.mul_f64(SEND_WITHIN));
            Arc::new(move || view.is_valid(inner.environment.now(), send_within))
        };
        let age = inner.environment.now().since(view.asked_at).unwrap_or(lease);
        let answer_by = deadline.min(Instant::now() + lease.saturating_sub(age));
        self.attempts += 1;
        let target = self.target(view);
        let sent = timeout_at(answer_by, inner.tables.write_point(target, &parts, lasts)).await;
        match sent {
            Ok(Ok(PointAnswer::NotSent)) => {
                self.attempts -= 1;
                Next::Later
            }
            Ok(Ok(PointAnswer::Applied | PointAnswer::Refused(_)))
                if !view.is_valid(inner.environment.now(), lease) =>
            {
                self.unknown("the answer came after the view's lease had run out")
            }
            Ok(Ok(PointAnswer::Applied)) => Next::Done(self.written(view, &parts)),
            Ok(Ok(PointAnswer::Refused(refusal))) => self.refused(view, &parts, &refusal),
            Ok(Ok(PointAnswer::Conflict)) => {
                self.last = Some(TableError::Conflict);
                Next::Later
            }
            Ok(Ok(PointAnswer::Throttled(shard, scope))) => {
                self.met_throttle(view, &parts, shard, scope, answer_by).await
            }
            Ok(Err(error @ TableError::Transient(_))) => self.unanswered(error),
            Ok(Err(error)) => self.failed(error),
            Err(_) => self.unanswered(TableError::Transient("an attempt had no answer in time".into())),
        }
    }

    fn plan(&mut self, view: &View) -> Vec<Part> {
        let (key, sort_key, placement) = (self.partition_key, self.sort_key, self.inner.config.placement);
        self.version = match self.kind {
            PointKind::Put => self.version.or_else(|| Some(self.inner.environment.version())),
            PointKind::CreateOnly => Some(Version::create_only(view.generation(), self.tie_breaker)),
            PointKind::Delete => None,
        };
        let candidates = self.inner.candidates(key, sort_key, view);
        let home = placement.home(key, sort_key, view.width()).unwrap_or(ShardNumber::FIRST);
        plan(self.kind, &candidates, home, &self.standing)
    }

    fn target(&self, view: &View) -> PointTarget<'_> {
        let version = self.version.unwrap_or_else(|| Version::create_only(view.generation(), self.tie_breaker));
        let new = self.bringing.as_ref().map(|bringing| NewItem {
            item: bringing.item,
            version,
            width: view.width(),
            write_id: bringing.write_id.as_ref().map(WriteId::as_str),
        });
        PointTarget { partition_key: self.partition_key, sort_key: self.sort_key, new }
    }

    fn refused(&mut self, view: &Arc<View>, parts: &[Part], refusal: &Refusal) -> Next {
        let write_id = self.bringing.as_ref().and_then(|bringing| bringing.write_id.as_ref());
        let is_foreign = |copy: &Option<Copy>| copy.as_ref().is_some_and(|copy| !copy.is_ours);
        let is_put = |shard: ShardNumber| parts.iter().any(|part| part.shard == shard && part.effect == Effect::Put);
        // Where a copy of this item stands, that one counts: a put replaces it there, and does not need the taken place.
        let stands = refusal.copies().any(|copy| copy.is_ours);
        if !stands && refusal.0.iter().any(|(shard, copy)| is_put(*shard) && is_foreign(copy)) {
            return self.failed(TableError::Occupied);
        }
        let relation = |copy: &Copy| match (self.kind, write_id) {
            (PointKind::CreateOnly, Some(id)) => id.relation(copy.write_id.as_deref()),
            _ if Some(copy.version) == self.version => WriteRelation::Same,
            _ => WriteRelation::Other,
        };
        let ours =
            || refusal.0.iter().filter_map(|(shard, copy)| Some((*shard, copy.as_ref().filter(|copy| copy.is_ours)?)));
        let highest = ours().max_by_key(|(_, copy)| copy.version);
        // A lower copy of this write's own is an attempt that arrived late: what stands above it is the item.
        if let Some((shard, _)) = highest.filter(|(_, copy)| relation(copy) == WriteRelation::Same) {
            return Next::Done(Written { shard, ..self.written(view, parts) });
        }
        if self.kind == PointKind::CreateOnly {
            let own_is_below = ours().any(|(_, copy)| relation(copy) == WriteRelation::Same);
            let kind = match highest {
                Some((_, above)) if relation(above) == WriteRelation::OtherContent => {
                    WriteErrorKind::IdempotencyKeyReused
                }
                // It was placed where nothing stood, so nobody has seen the copy below it; of other attempts nothing is known.
                Some((_, above)) if own_is_below && above.version.is_of_creation() && self.unanswered <= 1 => {
                    WriteErrorKind::Exists
                }
                _ if own_is_below => return self.unknown("an attempt arrived late, below a later write of the item"),
                _ if self.unanswered > 0 => return self.unknown(REPETITION_REFUSED),
                _ => WriteErrorKind::Exists,
            };
            return self.ended(kind);
        }
        if let Some((_, above)) = highest.filter(|(_, copy)| Some(copy.version) > self.version) {
            if self.unanswered > 0 {
                return self.unknown(REPETITION_REFUSED);
            }
            self.version = Some(above.version.raised(self.tie_breaker));
        }
        // The first refusal teaches what stands; another one means that somebody else is at the same item.
        let first = !std::mem::replace(&mut self.was_refused, true);
        refusal.correct(&mut self.standing);
        self.last = Some(TableError::Conflict);
        if first { Next::Again } else { Next::Later }
    }

    /// A throttle counts towards more shards only where they would help: shard 1, until the key is settled, and the bare key of an adopted
    /// table are every item's candidates under every width.
    async fn met_throttle(
        &mut self,
        view: &View,
        parts: &[Part],
        shard: ShardNumber,
        scope: CapacityScope,
        answer_by: Deadline,
    ) -> Next {
        self.throttled += 1;
        let mut scope = scope;
        if scope == CapacityScope::Unknown && parts.len() > 1 {
            let target = self.target(view);
            match timeout_at(answer_by, self.inner.tables.learn_limit(target, shard)).await {
                Ok(Ok(Some(learnt))) => scope = learnt,
                // Not throttled any more, or no answer in time.
                Ok(Ok(None)) | Err(_) => {}
                Ok(Err(error)) if error.is_retryable() => {}
                Ok(Err(error)) => return self.failed(error),
            }
        }
        telemetry::throttled(scope);
        // Where the key is settled, shard 1 is a candidate as any other.
        let settled = view.metadata.as_ref().is_some_and(|metadata| metadata.settled);
        let is_special = shard < ShardNumber::FIRST || (shard == ShardNumber::FIRST && !settled);
        if self.inner.config.is_cured_by_shards(scope) && !is_special {
            let now = self.inner.environment.now();
            self.state.note_throttled(shard, now);
            if self.attempts == 1 {
                self.state.record(view.width(), Pressure::first_attempt(true), now);
            }
            self.inner.relieve(self.partition_key, &self.state);
        }
        self.last = Some(TableError::Capacity(scope));
        Next::Later
    }

    fn failed(&mut self, error: TableError) -> Next {
        self.last = Some(error);
        Next::Failed(self.give_up())
    }

    fn unanswered(&mut self, error: TableError) -> Next {
        self.unanswered += 1;
        self.last = Some(error);
        // Between two deletions somebody may store the item anew, and be answered: the second would remove what stands by right.
        if self.kind == PointKind::Delete { Next::Failed(self.give_up()) } else { Next::Later }
    }

    fn written(&self, view: &Arc<View>, parts: &[Part]) -> Written {
        let home = self.inner.config.placement.home(self.partition_key, self.sort_key, view.width());
        let put = parts.iter().find(|part| part.effect == Effect::Put).map(|part| part.shard);
        if self.attempts == 1 {
            self.state.record(view.width(), Pressure::first_attempt(false), self.inner.environment.now());
        }
        // A transaction takes twice the units, on each of its shards.
        let units = || {
            let of_item = self.bringing.as_ref().map_or(1, |bringing| bringing.item.write_units());
            if parts.len() > 1 { of_item * 2 * parts.len() as u64 } else { of_item }
        };
        self.inner.note_load(self.partition_key, &self.state, Some(view), units);
        if parts.len() > 1 {
            self.inner.note_point_write(self.partition_key, &self.state, view);
        }
        if self.kind != PointKind::Delete {
            self.inner.after_append(self.partition_key, &self.state, Some(view));
        }
        Written {
            shard: put.or(home).unwrap_or(ShardNumber::FIRST),
            number_of_shards: view.width(),
            attempts: self.attempts,
            throttled: self.throttled,
        }
    }

    fn give_up(&mut self) -> WriteError {
        let last = self.last.take();
        let kind = if self.unanswered > 0 {
            let cause = last.map_or_else(String::new, |error| format!("; then: {error}"));
            WriteErrorKind::Unknown(format!("an attempt had no answer in time{cause}"))
        } else {
            WriteErrorKind::of_last(last)
        };
        kind.after(self.attempts, self.throttled)
    }

    fn unknown(&self, why: &str) -> Next {
        self.ended(WriteErrorKind::Unknown(why.to_owned()))
    }

    fn ended(&self, kind: WriteErrorKind) -> Next {
        Next::Failed(kind.after(self.attempts, self.throttled))
    }
}
