//! One write: its attempts, its input, and the loop that carries out the protocol's steps.

use std::borrow::Cow;
use std::iter::repeat_with;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use crate::engine::error::{WriteError, WriteErrorKind};
use crate::engine::job::{FailedWrite, KeyJob};
use crate::engine::write::Written;
use crate::protocol::applied::{Applied, Once};
use crate::protocol::copies::{Answer, Copy, Effect, Request};
use crate::protocol::merge::Stored;
use crate::protocol::tag::{Conditions, ETag};
use crate::protocol::version::Version;
use crate::protocol::view::{Moment, View};
use crate::protocol::write::{Kind, Next, Outcome, Write};
use crate::table::error::{Cause, TableError};
use crate::table::{Content, GetTarget, LeaseLasts, Place, RawItem};
use crate::values::key::{ShardCount, ShardNumber, SortKey};
use crate::values::patch::{Patch, PatchError};
use crate::values::value::{Item, MAX_ITEM_BYTES};

/// A repetition that the deadline would cut off is not sent: its outcome would be unknown, while
/// all earlier attempts were refused.
const MIN_TIME_LEFT: Duration = Duration::from_millis(250);

/// The sort keys that are drawn to find one of a calmer shard. If half of the shards are throttled,
/// one in sixteen such searches finds none.
const MAX_DRAWN_KEYS: usize = 4;

pub(super) struct WriteRun<'a> {
    attempts: Attempts<'a>,
    write: Write,
}

impl<'a> WriteRun<'a> {
    /// Returns the input, too, with what became of it.
    pub(super) fn run(
        attempts: Attempts<'a>,
        kind: Kind,
    ) -> BoxFuture<'a, Result<(Written, Input<'a>), WriteError>> {
        Box::pin(async move {
            let write = Write::new(kind, attempts.job.waits(), attempts.job.tie_breaker());
            let mut run = Self { attempts, write };
            let end = run.steps().await;
            // It may have been applied, and no newer view has confirmed it.
            run.attempts.job.in_doubt |= end.is_err() && run.write.is_over();
            run.attempts.version = run.write.stored;
            let written = run.attempts.end(end).await?;
            Ok((written, run.attempts.input))
        })
    }

    async fn steps(&mut self) -> Result<End, Option<TableError>> {
        let KeyJob { inner, key, .. } = self.attempts.job;
        let mut view = self.attempts.job.view().await?;
        let mut places = self.attempts.job.places(&self.attempts.sort_key, &view);
        let mut placed_by = view.identity();
        loop {
            let width = view.layout.number_of_shards;
            let is_moved = self.attempts.avoid_throttled_shards(width);
            if is_moved {
                // Under another sort key, it is another write.
                let job = &self.attempts.job;
                self.write = Write::new(Kind::Put, job.waits(), job.tie_breaker());
            }
            if is_moved || view.identity() != placed_by {
                places = self.attempts.job.places(&self.attempts.sort_key, &view);
                placed_by = view.identity();
            }
            match self.write.next((&view, &places, inner.environment.now())) {
                Next::Done(outcome) => return Ok((outcome, places.home, Some(view))),
                Next::Look(None) => view = self.attempts.job.view().await?,
                Next::Look(Some(since)) => view = self.attempts.job.view_since(since).await?,
                Next::Verify(since) => view = self.attempts.job.verify(since).await?,
                Next::Pause => {
                    self.attempts.job.wait_until_open().await?;
                    view = self.attempts.job.view().await?;
                }
                Next::Read => {
                    let Attempts { job, sort_key, .. } = &self.attempts;
                    let target = GetTarget { partition_key: key, sort_key, consistent: true };
                    let stored = job.read_every(target, places.all().into_iter().collect()).await?;
                    let copies =
                        stored.iter().map(|(shard, raw)| raw.copy().map(|copy| (*shard, copy)));
                    let copies = copies.collect::<Result<Vec<_>, TableError>>()?;
                    let now = inner.environment.now();
                    self.write.read(&copies, (&view, &places, now));
                    if self.write.examines() {
                        let newest = newest(&copies, stored, |raw| inner.tables.as_item(key, raw))?;
                        let own_bytes =
                            inner.tables.own_bytes(key) + self.attempts.sort_key.to_string().len();
                        let input = &mut self.attempts.input;
                        if let Err(declined) = input.derive(newest, own_bytes, now) {
                            self.attempts.declined = declined;
                            self.write.declined(&view, now);
                        }
                    }
                }
                Next::Send(request) => {
                    if !self.attempts.may_go_on() {
                        return Err(None);
                    }
                    // Not checked between signing and sending: a late write is acknowledged only
                    // under a newer view.
                    let place = (places.home, width);
                    let answer = self.attempts.send(place, &request, None).await?;
                    // After a refusal, the stored copy is known, and the next attempt is sent at
                    // once.
                    let waits = match &answer {
                        Answer::Applied => false,
                        Answer::Refused(_) => self.attempts.job.count > 2,
                        Answer::Rejected | Answer::Unanswered => true,
                    };
                    let (now, is_rejected) = (inner.environment.now(), answer == Answer::Rejected);
                    self.write.answered(&request, answer, (&view, &places, now));
                    if waits && !self.write.is_over() && !self.attempts.pause(width).await {
                        return Err(None);
                    }
                    // There may be new shards. What was found counts under its own view only.
                    if is_rejected {
                        view = self.attempts.job.view().await?;
                    }
                }
            }
        }
    }
}

/// The input of a write, and what is derived from the stored item. A delete has neither an item nor
/// a patch.
#[derive(Default)]
pub(super) struct Input<'a> {
    /// The caller's, under another sort key, or derived from the stored one.
    pub(super) item: Option<Cow<'a, Item>>,
    pub(super) patch: Option<&'a Patch>,
    pub(super) conditions: Option<&'a Conditions>,
    pub(super) once: Option<Once>,
    /// Those that the derived item remembers.
    pub(super) applied: Option<Applied>,
    /// The version of the last put.
    pub(super) sent: Option<Version>,
    /// The item after an addition in place.
    pub(super) added: Option<Stored<Item>>,
    /// The tag of the copy that was read.
    pub(super) current: Option<ETag>,
}

impl<'a> Input<'a> {
    pub(super) fn put(item: &'a Item) -> Self {
        Self { item: Some(Cow::Borrowed(item)), ..Self::default() }
    }

    fn content(&self) -> Option<Content<'_>> {
        self.item.as_deref().map(|item| Content { item, applied: self.applied.as_ref() })
    }

    /// Without an item to put, the write is declined: for a reason, or because there is nothing to
    /// do.
    fn derive(
        &mut self,
        newest: Option<(Version, Item, Option<Applied>)>,
        own_bytes: usize,
        now: Moment,
    ) -> Result<(), Option<WriteErrorKind>> {
        self.current =
            newest.as_ref().map(|(version, item, _)| ETag::of(*version, &item.attributes));
        if newest.is_none() && self.patch.is_some() {
            return Err(Some(WriteErrorKind::Absent));
        }
        if self.conditions.is_some_and(|conditions| !conditions.hold(self.current.as_ref())) {
            return Err(Some(WriteErrorKind::Precondition));
        }
        let (Some(patch), Some((_, item, applied))) = (self.patch, newest) else {
            let is_needless = self.item.is_none() && self.current.is_none();
            return if is_needless { Err(None) } else { Ok(()) };
        };
        let attributes =
            patch.apply(item.attributes).map_err(|error| Some(WriteErrorKind::Mismatch(error)))?;
        self.applied = match self.once {
            Some(once) => Some(Applied::with(applied.as_ref(), once, now.epoch_millis())),
            None => applied,
        };
        let bytes = own_bytes + attributes.size();
        if bytes > MAX_ITEM_BYTES {
            return Err(Some(WriteErrorKind::Mismatch(PatchError::TooLarge { bytes })));
        }
        self.item = Some(Cow::Owned(Item { attributes, ..item }));
        Ok(())
    }
}

/// With the updates that it remembers.
fn newest(
    copies: &[(ShardNumber, Copy)],
    stored: Vec<(ShardNumber, RawItem)>,
    as_item: impl FnOnce(RawItem) -> Result<Stored<Item>, TableError>,
) -> Result<Option<(Version, Item, Option<Applied>)>, TableError> {
    let newest = copies.iter().zip(stored).max_by_key(|((_, copy), _)| copy.version);
    let Some(((_, copy), (_, raw))) = newest.filter(|((_, copy), _)| !copy.is_tombstone) else {
        return Ok(None);
    };
    let Stored { version, item, .. } = as_item(raw)?;
    Ok(item.map(|item| (version, item, copy.applied.as_deref().cloned())))
}

pub(super) type End = (Outcome, ShardNumber, Option<Arc<View>>);

pub(super) struct Attempts<'a> {
    pub(super) job: KeyJob<'a>,
    pub(super) sort_key: SortKey,
    pub(super) input: Input<'a>,
    /// The engine made the sort key, and may make another one.
    pub(super) makes_keys: bool,
    /// The version that a write has stored, or that refused it.
    pub(super) version: Option<Version>,
    /// Why an update was declined. `None` if there is nothing to do.
    pub(super) declined: Option<WriteErrorKind>,
    last: Option<TableError>,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(job: KeyJob<'a>, sort_key: &SortKey, input: Input<'a>) -> Self {
        Self {
            job,
            sort_key: sort_key.clone(),
            input,
            makes_keys: false,
            version: None,
            declined: None,
            last: None,
        }
    }

    pub(super) fn may_go_on(&self) -> bool {
        let least = if self.job.count == 0 { Duration::ZERO } else { MIN_TIME_LEFT };
        Instant::now() + least < self.job.deadline
    }

    /// One attempt, placed under this width. With a lease, the request is sent only while it is
    /// valid.
    pub(super) async fn send(
        &mut self,
        at: (ShardNumber, ShardCount),
        request: &Request,
        lasts: Option<LeaseLasts>,
    ) -> Result<Answer, TableError> {
        let (tables, (shard, width)) = (&self.job.inner.tables, at);
        let place = Place { partition_key: self.job.key, sort_key: &self.sort_key, shard, width };
        let is_addition = matches!(request.effect, Effect::Add { .. });
        let additions = self.input.patch.filter(|_| is_addition).map(|patch| &patch.add);
        let content = self.input.content();
        let sent = async {
            match additions {
                Some(additions) => tables.add(place, request, additions).await,
                None => {
                    let sent = tables.send(place, request, content, lasts).await;
                    sent.map(|answer| (answer, None))
                }
            }
        };
        let sent = timeout_at(self.job.deadline, sent).await;
        let mut units = 1;
        if let Effect::Put { version, .. } = request.effect {
            self.input.sent = Some(version);
            units = self.units();
        }
        let failed = match sent {
            // The lease was over before it was sent.
            Ok(Ok((Answer::Rejected, _))) => return Ok(Answer::Rejected),
            Ok(Ok((answer, added))) => {
                self.job.attempted(at, &self.sort_key, units, None);
                self.input.added = added;
                if answer != Answer::Applied {
                    // Another writer is changing the same item.
                    self.last = Some(TableError::Conflict);
                }
                return Ok(answer);
            }
            Ok(Err(TableError::Capacity(scope))) => {
                self.job.attempted(at, &self.sort_key, units, Some(scope));
                self.last = Some(TableError::Capacity(scope));
                return Ok(Answer::Rejected);
            }
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        self.job.count += 1;
        match failed {
            Some(TableError::Conflict) => {
                self.last = failed;
                Ok(Answer::Rejected)
            }
            // The addition does not fit the stored item. The item is read to report why.
            Some(TableError::Rejected(_)) if is_addition => Ok(Answer::Refused(None)),
            None | Some(TableError::Transient(_)) => {
                self.job.in_doubt = true;
                self.last = failed.or(self.last.take());
                Ok(Answer::Unanswered)
            }
            Some(error) => Err(error),
        }
    }

    fn units(&self) -> u64 {
        self.input.item.as_deref().map_or(1, Item::write_units)
    }

    /// Takes a sort key of a calmer shard, if the home of the present one was throttled a moment
    /// ago. Returns whether it has.
    pub(super) fn avoid_throttled_shards(&mut self, width: ShardCount) -> bool {
        let Some(sort_key) = self.calmer_key(width) else { return false };
        let Some(item) = &mut self.input.item else { return false };
        item.to_mut().sort_key = sort_key.clone();
        self.sort_key = sort_key;
        true
    }

    /// Until an attempt had another end than a throttle, nothing is stored under the present sort
    /// key.
    fn calmer_key(&self, width: ShardCount) -> Option<SortKey> {
        let KeyJob { inner, key, state, count, throttled, .. } = &self.job;
        if !self.makes_keys || count > throttled || width == ShardCount::ONE {
            return None;
        }
        let now = inner.environment.now();
        let heat = |sort_key: &SortKey| {
            let home = inner.config.placement.home(key, sort_key, width)?;
            Some(state.heat(home, now))
        };
        let present = heat(&self.sort_key).filter(|heat| !heat.is_zero())?;
        let is_calmer = |other: &SortKey| heat(other).is_some_and(|heat| heat < present);
        repeat_with(|| inner.make_sort_key()).take(MAX_DRAWN_KEYS).find(is_calmer)
    }

    /// Whether the first repetition may go to another shard than the throttled one, so that there
    /// is no reason to wait.
    fn may_move_at_once(&self, width: ShardCount) -> bool {
        let config = &self.job.inner.config;
        let may_move = self.makes_keys || config.placement.is_append_only();
        let is_of_shard = match &self.last {
            Some(TableError::Capacity(scope)) => config.is_cured_by_shards(*scope),
            _ => false,
        };
        may_move
            && is_of_shard
            && (self.job.count, self.job.throttled) == (1, 1)
            && width > ShardCount::ONE
    }

    /// Waits before the next attempt of a write that was placed under this width. `false` if there
    /// is none.
    pub(super) async fn pause(&mut self, width: ShardCount) -> bool {
        if self.may_move_at_once(width) {
            return Instant::now() < self.job.gives_up_at();
        }
        self.job.pause().await
    }

    /// Ends the job with the result of an outcome, or of a final error; `None` at the deadline.
    pub(super) async fn end(
        &mut self,
        end: Result<End, Option<TableError>>,
    ) -> Result<Written, WriteError> {
        if let Ok((Outcome::Done, _, view)) = &end {
            let (view, is_put) = (view.as_deref(), self.input.item.is_some());
            self.job.note_applied(view, &self.sort_key, is_put, || self.units());
        }
        self.job.end().await;
        let (attempts, throttled) = (self.job.count, self.job.throttled);
        // What a write waited for after a throttle is not the reason.
        let (end, last) = match (end, self.last.take()) {
            (Err(Some(TableError::Transient(_))), last @ Some(TableError::Capacity(_))) => {
                (Err(None), last)
            }
            ended => ended,
        };
        let written = |shard: ShardNumber, view: Option<Arc<View>>, version: Option<Version>| {
            let width = view.map_or(ShardCount::ONE, |view| view.layout.number_of_shards);
            Written {
                sort_key: self.sort_key.clone(),
                tag: version.and_then(ETag::of_version),
                shard: shard.get(),
                number_of_shards: width.get(),
                attempts,
                throttled,
                version,
            }
        };
        let result = match end {
            Ok((Outcome::Done, shard, view)) => Ok(written(shard, view, self.version)),
            Ok((Outcome::Declined, shard, view)) => {
                self.declined.take().map_or_else(|| Ok(written(shard, view, None)), Err)
            }
            Ok((Outcome::Exists, ..)) => Err(WriteErrorKind::Exists),
            Ok((Outcome::KeyReused, ..)) => Err(WriteErrorKind::IdempotencyKeyReused),
            Ok((Outcome::Unknown(why), ..)) => Err(WriteErrorKind::Unknown(why.into())),
            Ok((Outcome::Lost, ..)) => {
                Err(WriteErrorKind::Table(TableError::Lost("an item is of a later era".into())))
            }
            Err(error) => Err(match error.or(last) {
                reason if self.job.in_doubt => {
                    let why = "an attempt had no response in time";
                    WriteErrorKind::Unknown(
                        reason.map_or_else(|| why.into(), |reason| Cause::by(why, reason).into()),
                    )
                }
                Some(TableError::Conflict) => WriteErrorKind::Contended,
                Some(error) => WriteErrorKind::unchanged(error),
                None if attempts == 0 => {
                    WriteErrorKind::Deadline("there was no time to send the write".into())
                }
                None => WriteErrorKind::Deadline("no attempt succeeded in time".into()),
            }),
        };
        self.job.count_write(result.as_ref().map(|_| ()).map_err(failed_write));
        result.map_err(|kind| {
            let found = self.version.filter(|_| matches!(kind, WriteErrorKind::Exists));
            WriteError {
                sort_key: Some(Box::new(self.sort_key.clone())),
                current: found.and_then(ETag::of_version).or(self.input.current.take()),
                ..kind.after(attempts, throttled)
            }
        })
    }
}

/// `None` for a defined result.
const fn failed_write(kind: &WriteErrorKind) -> Option<FailedWrite> {
    Some(match kind {
        WriteErrorKind::Exists
        | WriteErrorKind::IdempotencyKeyReused
        | WriteErrorKind::AppendOnly
        | WriteErrorKind::Precondition
        | WriteErrorKind::Absent
        | WriteErrorKind::Mismatch(_)
        | WriteErrorKind::NotArmed { .. }
        | WriteErrorKind::Invalid(_) => return None,
        WriteErrorKind::Table(_) => FailedWrite::Failed,
        WriteErrorKind::Capacity { .. } | WriteErrorKind::Deadline(_) => FailedWrite::NoCapacity,
        WriteErrorKind::Contended => FailedWrite::Contended,
        WriteErrorKind::Unknown(_) => FailedWrite::Unknown,
    })
}
