//! Writes: the attempts of one, and the loop that carries it out.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::config::Writes;
use crate::engine::results::{WriteError, WriteErrorKind, Written};
use crate::engine::retry::{Backoff, retrying};
use crate::engine::telemetry;
use crate::engine::views::keys::KeyJob;
use crate::engine::write::input::{Deed, Payload, newest};
use crate::policy::capacity::CapacityScope;
use crate::policy::pressure::Pressure;
use crate::protocol::copies::{Answer, Effect, Request};
use crate::protocol::layout::Places;
use crate::protocol::tag::ItemTag;
use crate::protocol::version::{TIE_BREAKERS, Version};
use crate::protocol::view::{Moment, View};
use crate::protocol::write::{Kind, Next, Outcome, Write};
use crate::table::error::{Cause, TableError};
use crate::table::{Place, RawCopy, Sent};
use crate::values::key::{ShardCount, ShardNumber, SortKey};

/// A repetition that the deadline would cut off is not sent. Its outcome would be unknown, while
/// all earlier attempts were refused.
const LEAST_TIME: Duration = Duration::from_millis(250);

/// The result of a write, with the shard of the item and the width under which it was placed.
pub(in crate::engine) type End = (Outcome, (ShardNumber, ShardCount));

/// The state that all attempts of one write share.
pub(in crate::engine) struct Attempts<'a> {
    pub(in crate::engine) job: KeyJob<'a>,
    pub(in crate::engine) sort_key: &'a SortKey,
    /// The version that a write has stored, or that refused it.
    pub(in crate::engine) version: Option<Version>,
    /// Why an update was declined. `None` if there is nothing to do.
    pub(in crate::engine) declined: Option<WriteErrorKind>,
    count: u32,
    pub(in crate::engine) throttled: u32,
    first_throttled: Option<Instant>,
    /// An attempt may have been applied, or may be applied later.
    in_doubt: bool,
    last: Option<TableError>,
    backoff: Backoff,
}

impl<'a> Attempts<'a> {
    pub(in crate::engine) fn new(job: KeyJob<'a>, sort_key: &'a SortKey) -> Self {
        let backoff = Backoff::default();
        Self {
            job,
            sort_key,
            version: None,
            declined: None,
            count: 0,
            throttled: 0,
            first_throttled: None,
            in_doubt: false,
            last: None,
            backoff,
        }
    }

    /// Whether enough time is left for one more attempt and its response.
    pub(in crate::engine) fn may_go_on(&self) -> bool {
        let least = if self.count == 0 { Duration::ZERO } else { LEAST_TIME };
        Instant::now() + least < self.job.deadline
    }

    /// One attempt on a shard, placed under this width. `None` if it was throttled.
    pub(in crate::engine) async fn send(
        &mut self,
        (shard, width): (ShardNumber, ShardCount),
        request: &Request,
        payload: Payload<'_>,
    ) -> Result<Option<Answer>, TableError> {
        let place = Place { partition_key: self.job.key, sort_key: self.sort_key, shard, width };
        self.count += 1;
        let units = match payload {
            Payload::Content(Some(content), _) => content.item.write_units(),
            Payload::Content(None, _) | Payload::Additions(..) => 1,
        };
        let tables = &self.job.inner.tables;
        let sent = async {
            match payload {
                Payload::Content(content, lasts) => {
                    tables.send(place, request, content, lasts).await
                }
                Payload::Additions(additions, added) => {
                    let once = if let Effect::Add { once } = request.effect { once } else { None };
                    let (sent, item) =
                        tables.add(place, (once, &request.condition), additions).await?;
                    *added = item;
                    Ok(sent)
                }
            }
        };
        Ok(Some(match timeout_at(self.job.deadline, sent).await {
            Ok(Ok(Sent::Applied)) => {
                self.record_pressure(width, units, false);
                Answer::Applied
            }
            Ok(Ok(Sent::Refused(copy))) => {
                self.record_pressure(width, units, false);
                // Another writer is changing the same item.
                self.last = Some(TableError::Conflict);
                Answer::Refused(copy)
            }
            Ok(Ok(Sent::LeaseOver)) => {
                self.count -= 1;
                Answer::Rejected
            }
            Ok(Ok(Sent::Conflict)) => {
                self.last = Some(TableError::Conflict);
                Answer::Rejected
            }
            Ok(Ok(Sent::Throttled(scope)) | Err(TableError::Capacity(scope))) => {
                self.throttled += 1;
                self.first_throttled.get_or_insert_with(Instant::now);
                telemetry::throttled(scope);
                if self.job.inner.config.is_cured_by_shards(scope) {
                    self.job.state.note_throttled(shard, self.job.inner.environment.now());
                    self.record_pressure(width, units, true);
                    self.job.relieve();
                }
                self.last = Some(TableError::Capacity(scope));
                if self.job.inner.config.writes() == Writes::Appends {
                    return Ok(None);
                }
                // A throttled writer refreshes its view, so that it notices new shards. Without
                // metadata, the old view is used.
                return match self.job.leased_or_new_view().await {
                    Err(error) if !error.is_retryable() => Err(error),
                    Ok(_) | Err(_) => Ok(None),
                };
            }
            // The addition does not fit the stored item. The item is read to report why.
            Ok(Err(TableError::Rejected(_))) if matches!(request.effect, Effect::Add { .. }) => {
                Answer::Refused(None)
            }
            Ok(Err(error @ TableError::Transient(_))) => {
                self.in_doubt = true;
                self.last = Some(error);
                Answer::Unanswered
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                self.in_doubt = true;
                Answer::Unanswered
            }
        }))
    }

    fn record_pressure(&self, width: ShardCount, units: u64, throttled: bool) {
        let attempt = match self.count {
            1 => Pressure::first_attempt(units, throttled),
            _ => Pressure::repetition(units, throttled),
        };
        let now = self.job.inner.environment.now().monotonic;
        let mut known = self.job.state.known();
        known.pressure.record(width, attempt, now);
        if self.count == 1 && throttled {
            known.pressure.record_item(self.sort_key);
        }
    }

    /// Waits before the next attempt. `false` if the deadline comes first, or if the write has been
    /// throttled for too long. A write that may have been applied goes on until the deadline.
    pub(in crate::engine) async fn pause(&mut self) -> bool {
        let throttled_for = self.first_throttled.filter(|_| !self.in_doubt);
        let until = throttled_for.map(|first| first + self.job.inner.config.throttled_for);
        let deadline = until.map_or(self.job.deadline, |until| until.min(self.job.deadline));
        self.backoff.pause(&self.job.inner.environment, deadline).await
    }

    /// The reason why a write failed. If the last attempt was throttled, that is the reason, and
    /// not what the write waited for afterwards.
    fn why(&mut self, error: Option<TableError>) -> Option<TableError> {
        match (error, self.last.take()) {
            (Some(TableError::Transient(_)), Some(throttled @ TableError::Capacity(_))) => {
                Some(throttled)
            }
            (error, last) => error.or(last),
        }
    }

    /// Counts the write, and returns its result: of an outcome, or of a final error; `None` at the
    /// deadline.
    pub(in crate::engine) fn ended(
        &mut self,
        end: Result<End, Option<TableError>>,
    ) -> Result<Written, WriteError> {
        let (attempts, throttled) = (self.count, self.throttled);
        let ended = match end {
            Ok((Outcome::Done, (shard, number_of_shards))) => {
                Ok(Written { shard, number_of_shards, attempts, throttled, version: self.version })
            }
            Ok((Outcome::Declined, (shard, number_of_shards))) => match self.declined.take() {
                Some(kind) => Err(kind),
                None => Ok(Written { shard, number_of_shards, attempts, throttled, version: None }),
            },
            Ok((Outcome::Exists, _)) => Err(WriteErrorKind::Exists),
            Ok((Outcome::KeyReused, _)) => Err(WriteErrorKind::IdempotencyKeyReused),
            Ok((Outcome::Unknown(why), _)) => Err(WriteErrorKind::Unknown(why.into())),
            Ok((Outcome::Occupied, _)) => Err(WriteErrorKind::Table(TableError::Occupied)),
            Ok((Outcome::Lost, _)) => {
                Err(WriteErrorKind::Table(TableError::Lost("an item is of a later era".into())))
            }
            Err(error) => Err(match self.why(error) {
                last if self.in_doubt => {
                    let why = "an attempt had no response in time";
                    WriteErrorKind::Unknown(
                        last.map_or_else(|| why.into(), |last| Cause::by(why, last)),
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
        let written = ended.map_err(|kind| WriteError {
            current: self
                .version
                .filter(|_| matches!(kind, WriteErrorKind::Exists))
                .and_then(ItemTag::of_version),
            ..kind.after(attempts, throttled)
        });
        telemetry::write(&written);
        written
    }
}

/// One write of an item, with its attempts.
pub(in crate::engine) struct WriteRun<'a> {
    attempts: Attempts<'a>,
    write: Write,
    deed: Deed<'a>,
}

impl<'a> WriteRun<'a> {
    pub(in crate::engine) fn new(
        job: KeyJob<'a>,
        kind: Kind,
        sort_key: &'a SortKey,
        deed: Deed<'a>,
    ) -> Self {
        let tie_breaker = job.inner.environment.below(TIE_BREAKERS);
        let write = Write::new(kind, job.inner.config.waits(), tie_breaker);
        Self { attempts: Attempts::new(job, sort_key), write, deed }
    }

    pub(in crate::engine) async fn run(self) -> Result<Written, WriteError> {
        self.run_to_the_end().await.0
    }

    /// As [`run`](Self::run), and returns the input of the write.
    pub(in crate::engine) async fn run_to_the_end(
        mut self,
    ) -> (Result<Written, WriteError>, Deed<'a>) {
        // Boxed, because the SDK's futures nest so deeply that the compiler fails on futures that
        // contain them.
        let end = Box::pin(self.until_the_end()).await;
        self.attempts.job.end().await;
        // It may have been applied, and no newer view has confirmed it.
        self.attempts.in_doubt |= end.is_err() && self.write.is_over();
        self.attempts.version = self.write.stored();
        (self.attempts.ended(end), self.deed)
    }

    async fn until_the_end(&mut self) -> Result<End, Option<TableError>> {
        let (inner, key, sort_key) =
            (self.attempts.job.inner, self.attempts.job.key, self.attempts.sort_key);
        let mut view = self.look(None).await?;
        let (mut places, mut placed_by) = (inner.places(key, sort_key, &view), view.identity());
        loop {
            if view.identity() != placed_by {
                (places, placed_by) = (inner.places(key, sort_key, &view), view.identity());
            }
            let place = (places.home, view.layout.number_of_shards);
            match self.write.next(&view, &places, inner.environment.now()) {
                Next::Done(outcome) => {
                    let job = &self.attempts.job;
                    if outcome == Outcome::Done {
                        let content = self.deed.content();
                        job.note_load(Some(&view), || {
                            content.map_or(1, |content| content.item.write_units())
                        });
                        if content.is_some() {
                            job.after_write();
                        }
                    }
                    return Ok((outcome, place));
                }
                Next::Look(since) => view = self.look(since).await?,
                Next::Verify(since) => view = self.verify(since).await?,
                Next::Pause => {
                    Box::pin(self.attempts.job.wait_for_open()).await?;
                    view = self.look(None).await?;
                }
                Next::Read => {
                    let stored = Box::pin(self.read(&places)).await?;
                    let copies: Vec<_> =
                        stored.iter().map(|(shard, raw)| (*shard, raw.copy.clone())).collect();
                    let now = inner.environment.now();
                    self.write.read(&copies, &places, &view, now);
                    if let Deed::Change(changing) = &mut self.deed
                        && self.write.has_read()
                        && !self.write.is_over()
                    {
                        let newest = newest(stored, |raw| inner.tables.as_item(key, raw))?;
                        self.attempts.declined = changing
                            .judge(newest, inner.own_bytes(key, sort_key), now)
                            .err()
                            .flatten();
                        if changing.is_declined() {
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
                    if let (Deed::Change(changing), Effect::Put { version, .. }) =
                        (&mut self.deed, &request.effect)
                    {
                        changing.sent = Some(*version);
                    }
                    let adds = matches!(request.effect, Effect::Add { .. });
                    let payload = if let (true, Deed::Change(changing)) = (adds, &mut self.deed) {
                        changing.additions()
                    } else {
                        Payload::Content(self.deed.content(), None)
                    };
                    let answer = self.attempts.send(place, &request, payload).await?;
                    let newer =
                        if answer.is_none() { self.attempts.job.state.view() } else { None };
                    let answer = answer.unwrap_or(Answer::Rejected);
                    // After a refusal, the stored copy is known, and the next attempt is sent at
                    // once. All other attempts wait a little.
                    let waits = match &answer {
                        Answer::Applied => false,
                        Answer::Refused(_) => self.attempts.count > 2,
                        Answer::Rejected | Answer::Unanswered => true,
                    };
                    self.write.answered(&request, answer, &places, &view, inner.environment.now());
                    if waits && !self.write.is_over() && !self.attempts.pause().await {
                        return Err(None);
                    }
                    view = newer.unwrap_or(view);
                }
            }
        }
    }

    async fn look(&self, since: Option<Moment>) -> Result<Arc<View>, TableError> {
        match since {
            None => self.attempts.job.leased_or_new_view().await,
            Some(since) => {
                self.attempts.job.view(|view, now| view.is_asked_since(since, now)).await
            }
        }
    }

    /// A view from the key's item, because a copy is of a later era than the page knows. If the
    /// item knows it, the page is repaired.
    async fn verify(&self, since: Moment) -> Result<Arc<View>, TableError> {
        let job = &self.attempts.job;
        Box::pin(job.repair()).await?;
        job.view(|view, now| view.is_asked_since(since, now)).await
    }

    async fn read(&self, places: &Places) -> Result<Vec<(ShardNumber, RawCopy)>, TableError> {
        let Attempts { job: KeyJob { inner, key, deadline, .. }, sort_key, .. } = &self.attempts;
        let mut missing: Vec<ShardNumber> = places.all().into_iter().collect();
        let (mut found, mut backoff) = (Vec::new(), Backoff::default());
        loop {
            let look = || inner.tables.get_raw_copies(key, sort_key, &missing);
            let (copies, unprocessed) = retrying(&inner.environment, *deadline, look).await?;
            found.extend(copies);
            missing = unprocessed;
            if missing.is_empty() {
                return Ok(found);
            }
            if !backoff.pause(&inner.environment, *deadline).await {
                return Err(TableError::Capacity(CapacityScope::Unknown));
            }
        }
    }
}
