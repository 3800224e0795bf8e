//! One write: its attempts, its input, and the loop that carries out what the protocol says.

use std::borrow::Cow;
use std::iter::repeat_with;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::config::Writes;
use crate::engine::error::{WriteError, WriteErrorKind};
use crate::engine::job::{FailedWrite, KeyJob};
use crate::engine::write::Written;
use crate::protocol::applied::{Applied, Once};
use crate::protocol::copies::{Answer, Copy, Effect, Request};
use crate::protocol::layout::Places;
use crate::protocol::merge::Stored;
use crate::protocol::tag::{Conditions, ETag};
use crate::protocol::version::Version;
use crate::protocol::view::Moment;
use crate::protocol::write::{Kind, Next, Outcome, Write};
use crate::table::error::{Cause, TableError};
use crate::table::{Content, GetTarget, LeaseLasts, Place, RawItem};
use crate::values::key::{ShardCount, ShardNumber, SortKey};
use crate::values::patch::{Patch, PatchError};
use crate::values::value::{Attributes, Item, MAX_ITEM_BYTES};

/// A repetition that the deadline would cut off is not sent. Its outcome would be unknown, while
/// all earlier attempts were refused.
const MIN_TIME_LEFT: Duration = Duration::from_millis(250);

/// The largest number of sort keys that are drawn to find one of a calmer shard. If half of the
/// shards are throttled, one in sixteen such searches finds none.
const MAX_DRAWN_KEYS: usize = 4;

/// One write of an item, with its attempts.
pub(super) struct WriteRun<'a> {
    attempts: Attempts<'a>,
    write: Write,
    input: Input<'a>,
}

impl<'a> WriteRun<'a> {
    pub(super) fn new(attempts: Attempts<'a>, kind: Kind, input: Input<'a>) -> Self {
        let write = Write::new(kind, attempts.job.waits(), attempts.job.tie_breaker());
        Self { attempts, write, input }
    }

    /// Carries the write out. Returns its input, too, with what became of it.
    pub(super) async fn run(mut self) -> (Result<Written, WriteError>, Input<'a>) {
        let end = self.steps().await;
        self.attempts.job.end().await;
        // It may have been applied, and no newer view has confirmed it.
        self.attempts.job.in_doubt |= end.is_err() && self.write.is_over();
        self.attempts.version = self.write.stored;
        (self.attempts.end(end), self.input)
    }

    async fn steps(&mut self) -> Result<End, Option<TableError>> {
        let KeyJob { inner, key, .. } = self.attempts.job;
        let mut view = self.attempts.job.view().await?;
        let mut places = self.attempts.job.places(&self.attempts.sort_key, &view);
        let mut placed_by = view.identity();
        loop {
            let is_moved = self.avoid_throttled_shards(view.layout.number_of_shards);
            if is_moved || view.identity() != placed_by {
                places = self.attempts.job.places(&self.attempts.sort_key, &view);
                placed_by = view.identity();
            }
            let place = (places.home, view.layout.number_of_shards);
            match self.write.next((&view, &places, inner.environment.now())) {
                Next::Done(outcome) => {
                    let job = &self.attempts.job;
                    if outcome == Outcome::Done {
                        let content = self.input.content();
                        job.note_load(Some(&view), || {
                            content.map_or(1, |content| content.item.write_units())
                        });
                        if content.is_some() {
                            job.after_write();
                        }
                    }
                    return Ok((outcome, place));
                }
                Next::Look(None) => view = self.attempts.job.view().await?,
                Next::Look(Some(since)) => view = self.attempts.job.view_since(since).await?,
                Next::Verify(since) => view = self.attempts.job.verify(since).await?,
                Next::Pause => {
                    self.attempts.job.wait_until_open().await?;
                    view = self.attempts.job.view().await?;
                }
                Next::Read => {
                    let stored = self.read(&places).await?;
                    let copies =
                        stored.iter().map(|(shard, raw)| raw.copy().map(|copy| (*shard, copy)));
                    let copies = copies.collect::<Result<Vec<_>, TableError>>()?;
                    let now = inner.environment.now();
                    self.write.read(&copies, (&view, &places, now));
                    if self.write.examines() {
                        let newest = newest(&copies, stored, |raw| inner.tables.as_item(key, raw))?;
                        let own_bytes =
                            inner.tables.own_bytes(key) + self.attempts.sort_key.to_string().len();
                        if let Err(declined) = self.input.derive(newest, own_bytes, now) {
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
                    let sent = match (&request.effect, self.input.additions()) {
                        (Effect::Add { .. }, Some(additions)) => {
                            let added = &mut self.input.added;
                            self.attempts.add(place, &request, additions, added).await
                        }
                        (effect, _) => {
                            if let Effect::Put { version, .. } = effect {
                                self.input.sent = Some(*version);
                            }
                            let content = self.input.content();
                            self.attempts.send(place, &request, content, None).await
                        }
                    };
                    let answer = sent?;
                    // A throttled attempt has renewed the view.
                    let may_be_newer = answer == Answer::Rejected;
                    let newer = if may_be_newer { self.attempts.job.state.view() } else { None };
                    // After a refusal, the stored copy is known, and the next attempt is sent at
                    // once. All other attempts wait a little.
                    let waits = match &answer {
                        Answer::Applied => false,
                        Answer::Refused(_) => self.attempts.job.count > 2,
                        Answer::Rejected | Answer::Unanswered => true,
                    };
                    let under = (&*view, &places, inner.environment.now());
                    self.write.answered(&request, answer, under);
                    let waits = waits && !self.write.is_over();
                    if waits && !self.attempts.pause(place.1).await {
                        return Err(None);
                    }
                    view = newer.unwrap_or(view);
                }
            }
        }
    }

    /// Begins the write again under another sort key if the home of the present one is throttled.
    fn avoid_throttled_shards(&mut self, width: ShardCount) -> bool {
        let Some(sort_key) = self.attempts.calmer_key(width) else { return false };
        let Some(item) = &mut self.input.item else { return false };
        item.to_mut().sort_key = sort_key.clone();
        self.attempts.sort_key = sort_key;
        let job = &self.attempts.job;
        self.write = Write::new(Kind::Put, job.waits(), job.tie_breaker());
        true
    }

    async fn read(&self, places: &Places) -> Result<Vec<(ShardNumber, RawItem)>, TableError> {
        let Attempts { job, sort_key, .. } = &self.attempts;
        let target = GetTarget { partition_key: job.key, sort_key, consistent: true };
        job.read_every(target, places.all().into_iter().collect()).await
    }
}

/// The input of a write, and what is derived from the stored item. A delete has neither an item nor
/// a patch.
#[derive(Default)]
pub(super) struct Input<'a> {
    /// The item to put: the caller's, under another sort key, or derived from the stored one.
    pub(super) item: Option<Cow<'a, Item>>,
    pub(super) patch: Option<&'a Patch>,
    pub(super) conditions: Option<&'a Conditions>,
    pub(super) once: Option<Once>,
    /// The updates that the derived item remembers.
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

    /// What DynamoDB may add in place.
    fn additions(&self) -> Option<&'a Attributes> {
        self.patch.filter(|patch| patch.only_adds()).map(|patch| &patch.add)
    }

    /// Derives the item to put from the stored one. If there is none to put, the write is declined:
    /// for a reason, or because there is nothing to do.
    fn derive(
        &mut self,
        newest: Option<Newest>,
        own_bytes: usize,
        now: Moment,
    ) -> Result<(), Option<WriteErrorKind>> {
        let newest =
            newest.and_then(|(stored, applied)| Some((stored.version, stored.item?, applied)));
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

/// The newest copy of an item, with the updates that it remembers.
type Newest = (Stored<Item>, Option<Applied>);

/// The newest item among the copies at its places, with the updates that it remembers.
fn newest(
    copies: &[(ShardNumber, Copy)],
    stored: Vec<(ShardNumber, RawItem)>,
    as_item: impl FnOnce(RawItem) -> Result<Stored<Item>, TableError>,
) -> Result<Option<Newest>, TableError> {
    let newest = copies.iter().zip(stored).max_by_key(|((_, copy), _)| copy.version);
    let Some(((_, copy), (_, raw))) = newest.filter(|((_, copy), _)| !copy.is_tombstone) else {
        return Ok(None);
    };
    let applied = copy.applied.as_deref().cloned();
    Ok(Some((as_item(raw)?, applied)))
}

/// The result of a write, with the shard of the item and the width under which it was placed.
pub(super) type End = (Outcome, (ShardNumber, ShardCount));

/// The state that all attempts of one write share.
pub(super) struct Attempts<'a> {
    pub(super) job: KeyJob<'a>,
    pub(super) sort_key: SortKey,
    /// The engine made the sort key, and may make another one.
    pub(super) makes_keys: bool,
    /// The version that a write has stored, or that refused it.
    pub(super) version: Option<Version>,
    /// Why an update was declined. `None` if there is nothing to do.
    pub(super) declined: Option<WriteErrorKind>,
    last: Option<TableError>,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(job: KeyJob<'a>, sort_key: &SortKey) -> Self {
        Self {
            job,
            sort_key: sort_key.clone(),
            makes_keys: false,
            version: None,
            declined: None,
            last: None,
        }
    }

    /// Whether enough time is left for one more attempt and its response.
    pub(super) fn may_go_on(&self) -> bool {
        let least = if self.job.count == 0 { Duration::ZERO } else { MIN_TIME_LEFT };
        Instant::now() + least < self.job.deadline
    }

    /// One attempt to store or remove a copy on a shard, placed under this width. With a lease, the
    /// request is sent only while the lease is valid.
    pub(super) async fn send(
        &mut self,
        at: (ShardNumber, ShardCount),
        request: &Request,
        content: Option<Content<'_>>,
        lasts: Option<LeaseLasts>,
    ) -> Result<Answer, TableError> {
        let units = content.map_or(1, |content| content.item.write_units());
        let (tables, sort_key, (shard, width)) =
            (&self.job.inner.tables, self.sort_key.clone(), at);
        let place = Place { partition_key: self.job.key, sort_key: &sort_key, shard, width };
        let sent = tables.send(place, request, content, lasts);
        self.attempt(at, request, units, sent).await
    }

    /// One attempt to add to the copy on a shard in place. Notes the resulting item.
    pub(super) async fn add(
        &mut self,
        at: (ShardNumber, ShardCount),
        request: &Request,
        additions: &Attributes,
        added: &mut Option<Stored<Item>>,
    ) -> Result<Answer, TableError> {
        let (tables, sort_key, (shard, width)) =
            (&self.job.inner.tables, self.sort_key.clone(), at);
        let place = Place { partition_key: self.job.key, sort_key: &sort_key, shard, width };
        let sent = async {
            let (sent, item) = tables.add(place, request, additions).await?;
            *added = item;
            Ok(sent)
        };
        self.attempt(at, request, 1, sent).await
    }

    /// Another sort key for the item, of a calmer shard, if the home of the present one was
    /// throttled a moment ago. Until an attempt had another end than a throttle, nothing is stored
    /// under the present one.
    pub(super) fn calmer_key(&self, width: ShardCount) -> Option<SortKey> {
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

    /// Whether the first repetition may go to another shard than the one that was throttled. Then
    /// there is no reason to wait.
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

    /// Counts an attempt of this many write units, and derives the answer from what came of it.
    async fn attempt(
        &mut self,
        at: (ShardNumber, ShardCount),
        request: &Request,
        units: u64,
        sent: impl Future<Output = Result<Answer, TableError>>,
    ) -> Result<Answer, TableError> {
        let sent = timeout_at(self.job.deadline, sent).await;
        match &sent {
            // The lease was over before it was sent.
            Ok(Ok(Answer::Rejected)) => {}
            Ok(Ok(_)) => self.job.attempted(at, &self.sort_key, units, None),
            Ok(Err(TableError::Capacity(scope))) => {
                self.job.attempted(at, &self.sort_key, units, Some(*scope));
            }
            Ok(Err(_)) | Err(_) => self.job.count += 1,
        }
        Ok(match sent {
            Ok(Ok(answer)) => {
                if !matches!(answer, Answer::Applied | Answer::Rejected) {
                    // Another writer is changing the same item.
                    self.last = Some(TableError::Conflict);
                }
                answer
            }
            Ok(Err(TableError::Conflict)) => {
                self.last = Some(TableError::Conflict);
                Answer::Rejected
            }
            Ok(Err(TableError::Capacity(scope))) => {
                self.last = Some(TableError::Capacity(scope));
                // A throttled writer refreshes its view, so that it notices new shards. Without
                // metadata, the old view is used.
                if self.job.inner.config.writes() == Writes::Items
                    && let Err(error) = self.job.view().await
                    && !error.is_retryable()
                {
                    return Err(error);
                }
                Answer::Rejected
            }
            // The addition does not fit the stored item. The item is read to report why.
            Ok(Err(TableError::Rejected(_))) if matches!(request.effect, Effect::Add { .. }) => {
                Answer::Refused(None)
            }
            Ok(Err(error @ TableError::Transient(_))) => {
                self.job.in_doubt = true;
                self.last = Some(error);
                Answer::Unanswered
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                self.job.in_doubt = true;
                Answer::Unanswered
            }
        })
    }

    /// Waits before the next attempt of a write that was placed under this width. `false` if there
    /// is none.
    pub(super) async fn pause(&mut self, width: ShardCount) -> bool {
        if self.may_move_at_once(width) {
            return Instant::now() < self.job.gives_up_at();
        }
        self.job.pause().await
    }

    /// Counts the write, and returns its result: of an outcome, or of a final error; `None` at the
    /// deadline.
    pub(super) fn end(
        &mut self,
        end: Result<End, Option<TableError>>,
    ) -> Result<Written, WriteError> {
        let (attempts, throttled) = (self.job.count, self.job.throttled);
        // What a write waited for after a throttle is not the reason.
        let (end, last) = match (end, self.last.take()) {
            (Err(Some(TableError::Transient(_))), last @ Some(TableError::Capacity(_))) => {
                (Err(None), last)
            }
            ended => ended,
        };
        let written =
            |(shard, width): (ShardNumber, ShardCount), version: Option<Version>| Written {
                sort_key: self.sort_key.clone(),
                tag: version.and_then(ETag::of_version),
                shard: shard.get(),
                number_of_shards: width.get(),
                attempts,
                throttled,
                version,
            };
        let result = match end {
            Ok((Outcome::Done, place)) => {
                self.job.note_written(&self.sort_key);
                Ok(written(place, self.version))
            }
            Ok((Outcome::Declined, place)) => {
                self.declined.take().map_or_else(|| Ok(written(place, None)), Err)
            }
            Ok((Outcome::Exists, _)) => Err(WriteErrorKind::Exists),
            Ok((Outcome::KeyReused, _)) => Err(WriteErrorKind::IdempotencyKeyReused),
            Ok((Outcome::Unknown(why), _)) => Err(WriteErrorKind::Unknown(why.into())),
            Ok((Outcome::Lost, _)) => {
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
        result.map_err(|kind| WriteError {
            sort_key: Some(Box::new(self.sort_key.clone())),
            current: self
                .version
                .filter(|_| matches!(kind, WriteErrorKind::Exists))
                .and_then(ETag::of_version),
            ..kind.after(attempts, throttled)
        })
    }
}

/// What kind of failure it is. `None` for a defined result.
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
