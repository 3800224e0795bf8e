//! Storing one item, and the background work after a write.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::config::Writes;
use crate::engine::results::{WriteError, WriteErrorKind, Written};
use crate::engine::views::keys::KeyJob;
use crate::engine::write::input::{Deed, Payload};
use crate::engine::write::run::{Attempts, End, WriteRun};
use crate::engine::{Deadline, Inner, TableEngine};
use crate::protocol::append::{Append, AppendNext};
use crate::protocol::copies::Answer;
use crate::protocol::metadata::Change;
use crate::protocol::version::TIE_BREAKERS;
use crate::protocol::view::View;
use crate::protocol::write::{Kind, Outcome};
use crate::protocol::write_id::WriteId;
use crate::table::error::TableError;
use crate::table::{ATTEMPT_TIMEOUT, Content, LeaseLasts};
use crate::values::idempotency::IdempotencyKey;
use crate::values::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::values::value::Item;

/// In an adopted table, the number of random places to try: each may hold an item of another key.
const OCCUPIED_PLACES: u32 = 8;

impl TableEngine {
    /// Stores or replaces an item: the write of a plain POST and of a PUT. Of two writes of one
    /// item, the one that is acknowledged later wins. In an append-only table, the later one by its
    /// writer's clock wins.
    ///
    /// # Errors
    /// [`WriteError`] says whether the item may be stored and whether trying again helps.
    pub async fn put(&self, item: &Item, deadline: Deadline) -> Result<Written, WriteError> {
        self.inner.store(item, false, deadline).await
    }

    /// Stores an item whose sort key an idempotency key has generated
    /// ([`IdempotencyKey::sort_key`]). A repetition succeeds and changes nothing, even if the item
    /// was replaced in between. If the item was deleted, a repetition may store it again.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn put_once(&self, item: &Item, deadline: Deadline) -> Result<Written, WriteError> {
        self.inner.store(item, true, deadline).await
    }

    /// Creates an item. Of any number of concurrent calls for one item, exactly one succeeds.
    ///
    /// A call that repeats an earlier one after an unknown outcome recognises its item by the
    /// idempotency key, and succeeds again.
    ///
    /// # Errors
    /// [`WriteErrorKind::Exists`] if the item exists, [`WriteErrorKind::IdempotencyKeyReused`] if
    /// it was created with other content under this idempotency key, and the other kinds.
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
        self.inner.may_point_write(deadline).await?;
        let job = self.inner.job(&item.partition_key, deadline);
        WriteRun::new(job, Kind::Create(write_id), &item.sort_key, Deed::Put(item)).run().await
    }

    /// Deletes an item. It is no error if there is none.
    ///
    /// # Errors
    /// [`WriteError`]. After an unknown outcome, read before you delete again: another caller may
    /// have stored the item anew.
    pub async fn delete(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        self.inner.may_point_write(deadline).await?;
        let job = self.inner.job(key, deadline);
        let may_look = job.state.may_look(self.inner.environment.now());
        WriteRun::new(job, Kind::Delete { may_look }, sort_key, Deed::Delete).run().await
    }
}

impl Inner {
    async fn may_write(&self, deadline: Deadline) -> Result<(), WriteError> {
        self.claimed(None, deadline)
            .await
            .map_err(|error| WriteErrorKind::unchanged(error).after(0, 0))
    }

    pub(in crate::engine) async fn may_point_write(
        &self,
        deadline: Deadline,
    ) -> Result<(), WriteError> {
        match self.config.writes() {
            Writes::Items => self.may_write(deadline).await,
            Writes::Appends => Err(WriteErrorKind::AppendOnly.after(0, 0)),
        }
    }

    pub(in crate::engine) async fn store(
        self: &Arc<Self>,
        item: &Item,
        once: bool,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        self.may_write(deadline).await?;
        let job = self.job(&item.partition_key, deadline);
        match self.config.writes() {
            Writes::Items => {
                let kind = if once { Kind::CreateOnce } else { Kind::Put };
                WriteRun::new(job, kind, &item.sort_key, Deed::Put(item)).run().await
            }
            Writes::Appends => AppendRun::new(job, item, once).run().await,
        }
    }
}

impl KeyJob<'_> {
    /// With `REGISTER_KEYS`, the first write of a key creates its metadata item.
    pub(in crate::engine) fn after_write(&self) {
        if !self.inner.config.register_keys || self.state.known().registered {
            return;
        }
        self.beside(&self.state.registering, move |inner, key, state| async move {
            let job = KeyJob::new(&inner, &key, state, Instant::now() + ATTEMPT_TIMEOUT);
            if let Err(error) = job.register().await {
                tracing::warn!(%error, "could not register a key; the next write of it tries again");
            }
        });
    }

    /// Creates a key's metadata item. Another instance may be first.
    pub(in crate::engine) async fn register(&self) -> Result<(), TableError> {
        let record = self.record(|record, _| record.exists).await?;
        if !record.exists {
            self.is_certainly_new().await?;
            if self.step(&record, &Change::Register).await?.is_none() {
                self.record(|record, _| record.exists).await?;
            }
        }
        Ok(())
    }

    /// Counts a write of a key with several shards, and records the count once a minute. Shrinking
    /// is decided by these records.
    pub(in crate::engine) fn note_load(&self, view: Option<&View>, units: impl FnOnce() -> u64) {
        let state = &self.state;
        // Without a view, the number of shards is unknown. The next write that has a view counts.
        if view.is_some_and(|view| {
            view.layout.generation == 0 || view.layout.number_of_shards == ShardCount::ONE
        }) {
            state.units.store(0, Ordering::Relaxed);
            return;
        }
        state.units.fetch_add(units(), Ordering::Relaxed);
        let minute = self.inner.environment.now().epoch_seconds() / 60;
        let last = state.units_noted.load(Ordering::Relaxed);
        if view.is_none()
            || last >= minute
            || state
                .units_noted
                .compare_exchange(last, minute, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
            || last == 0
        {
            return;
        }
        let units = state.units.swap(0, Ordering::Relaxed);
        let (inner, key) = (Arc::clone(self.inner), self.key.clone());
        self.inner.background.spawn(async move {
            // The process may have been suspended until now.
            let minute = inner.environment.now().epoch_seconds() / 60;
            if let Err(error) = inner.tables.note_load(&key, minute, units).await {
                tracing::warn!(%error, units, "the load of a key could not be noted: it looks calmer than it is");
            }
        });
    }
}

/// One append in an append-only table, with its attempts.
struct AppendRun<'a> {
    attempts: Attempts<'a>,
    item: &'a Item,
    append: Append,
    /// Attempts that found an item of another key.
    occupied: u32,
}

impl<'a> AppendRun<'a> {
    fn new(job: KeyJob<'a>, item: &'a Item, once: bool) -> Self {
        let (inner, tie_breaker) = (job.inner, job.inner.environment.below(TIE_BREAKERS));
        let append =
            Append::new(inner.config.write_lease(), tie_breaker, once, inner.environment.now());
        Self { attempts: Attempts::new(job, &item.sort_key), item, append, occupied: 0 }
    }

    async fn run(mut self) -> Result<Written, WriteError> {
        // Boxed, because the SDK's futures nest so deeply that the compiler fails on futures that
        // contain them.
        let end = Box::pin(self.until_the_end()).await;
        self.attempts.job.end().await;
        self.attempts.ended(end)
    }

    async fn until_the_end(&mut self) -> Result<End, Option<TableError>> {
        let inner = self.attempts.job.inner;
        let is_random = inner.config.placement.is_append_only();
        loop {
            let view = self.usable_view().await?;
            let view = view.as_deref();
            let width = view.map_or(ShardCount::ONE, |view| view.layout.number_of_shards);
            let home = if view.is_none() { ShardNumber::FIRST } else { self.home(width) };
            let (shard, request) = match self.append.next(view, home, inner.environment.now()) {
                AppendNext::Done(outcome) => return Ok((outcome, (home, width))),
                AppendNext::Send(shard, request) => (shard, request),
            };
            if !self.attempts.may_go_on() {
                return Err(None);
            }
            let content = Content { item: self.item, applied: None };
            let payload = Payload::Content(Some(content), self.lease(shard, view));
            let answer = self.attempts.send((shard, width), &request, payload).await?;
            if let Some(Answer::Refused(Some(copy))) = &answer
                && !copy.is_ours
            {
                // Without a view the append was on shard 1, which need not be its home. With random
                // placement any other place is as good.
                self.occupied += 1;
                let may_move = view.is_none() || is_random;
                if self.append.is_in_doubt() || !may_move || self.occupied > OCCUPIED_PLACES {
                    return Err(Some(TableError::Occupied));
                }
                continue;
            }
            // A throttled random write tries another shard at once. The first time, there is no
            // reason to wait.
            let at_once = answer.is_none()
                && is_random
                && self.attempts.throttled == 1
                && width > ShardCount::ONE;
            let answer = answer.unwrap_or(Answer::Rejected);
            self.append.answered(shard, view, &answer);
            if matches!(answer, Answer::Applied | Answer::Refused(_)) {
                self.attempts.version = (answer == Answer::Applied).then(|| self.append.version());
                self.attempts.job.note_load(view, || self.item.write_units());
                self.attempts.job.after_write();
                return Ok((Outcome::Done, (shard, width)));
            }
            if !at_once && !self.attempts.pause().await {
                return Err(None);
            }
        }
    }

    /// The view to place by. `None` to append on shard 1 without one.
    async fn usable_view(&self) -> Result<Option<Arc<View>>, TableError> {
        let Attempts { job, throttled, .. } = &self.attempts;
        let lease = job.inner.config.write_lease();
        let now = job.inner.environment.now();
        let known = job.known_view().filter(|view| view.is_valid(now, lease));
        if known.is_some() || self.occupied == 0 {
            // A throttled append requests a new view in the background, and does not wait for it.
            let renewed = if *throttled > 0 { job.inner.config.lease() } else { lease };
            job.renew_or_get(known.as_deref(), renewed, now);
            return Ok(known);
        }
        job.view(|view, now| view.is_valid(now, lease)).await.map(Some)
    }

    /// The view of a put on this shard. `None` on shard 1, which remains a place of every item.
    fn lease(&self, shard: ShardNumber, view: Option<&View>) -> Option<LeaseLasts> {
        let asked_at = self.append.placed_by(view).filter(|_| shard != ShardNumber::FIRST)?;
        let inner = Arc::clone(self.attempts.job.inner);
        Some(Arc::new(move || {
            let age = inner.environment.now().since(asked_at);
            age.is_some_and(|age| age < inner.config.write_lease())
        }))
    }

    fn home(&self, width: ShardCount) -> ShardNumber {
        let Attempts { job: KeyJob { inner, key, state, .. }, sort_key, .. } = &self.attempts;
        inner.config.placement.home(key, sort_key, width).unwrap_or_else(|| {
            // Pick two shards, and take the calmer one.
            let draw = || ShardNumber::from_index(inner.environment.below(width.get()));
            state.calmer(draw(), draw(), inner.environment.now())
        })
    }
}
