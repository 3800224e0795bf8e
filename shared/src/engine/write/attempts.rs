//! The attempts of one write: what they share, and what comes of each.

use std::iter::repeat_with;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::config::Writes;
use crate::engine::error::{WriteError, WriteErrorKind};
use crate::engine::retry::Backoff;
use crate::engine::telemetry;
use crate::engine::views::keys::KeyJob;
use crate::engine::write::Written;
use crate::protocol::copies::{Answer, Effect, Request};
use crate::protocol::merge::Stored;
use crate::protocol::tag::ETag;
use crate::protocol::version::Version;
use crate::protocol::write::Outcome;
use crate::table::error::{Cause, TableError};
use crate::table::{Content, LeaseLasts, Place};
use crate::values::key::{ShardCount, ShardNumber, SortKey};
use crate::values::value::{Attributes, Item};

/// A repetition that the deadline would cut off is not sent. Its outcome would be unknown, while
/// all earlier attempts were refused.
const MIN_TIME_LEFT: Duration = Duration::from_millis(250);

/// The largest number of sort keys that are drawn to find one of a calmer shard. If half of the
/// shards are throttled, one in sixteen such searches finds none.
const MAX_DRAWN_KEYS: usize = 4;

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
    pub(super) count: u32,
    pub(super) throttled: u32,
    first_throttled: Option<Instant>,
    /// An attempt may have been applied, or may be applied later.
    pub(super) in_doubt: bool,
    last: Option<TableError>,
    backoff: Backoff,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(job: KeyJob<'a>, sort_key: &SortKey) -> Self {
        Self {
            job,
            sort_key: sort_key.clone(),
            makes_keys: false,
            version: None,
            declined: None,
            count: 0,
            throttled: 0,
            first_throttled: None,
            in_doubt: false,
            last: None,
            backoff: Backoff::default(),
        }
    }

    /// Whether enough time is left for one more attempt and its response.
    pub(super) fn may_go_on(&self) -> bool {
        let least = if self.count == 0 { Duration::ZERO } else { MIN_TIME_LEFT };
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
        let KeyJob { inner, key, state, .. } = &self.job;
        if !self.makes_keys || self.count > self.throttled || width == ShardCount::ONE {
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
        may_move && is_of_shard && (self.count, self.throttled) == (1, 1) && width > ShardCount::ONE
    }

    /// Counts an attempt of this many write units, and derives the answer from what came of it.
    async fn attempt(
        &mut self,
        at: (ShardNumber, ShardCount),
        request: &Request,
        units: u64,
        sent: impl Future<Output = Result<Answer, TableError>>,
    ) -> Result<Answer, TableError> {
        self.count += 1;
        Ok(match timeout_at(self.job.deadline, sent).await {
            // The lease was over before it was sent.
            Ok(Ok(Answer::Rejected)) => {
                self.count -= 1;
                Answer::Rejected
            }
            Ok(Ok(answer)) => {
                self.job.note_attempt(at, &self.sort_key, (self.count, units), None);
                if answer != Answer::Applied {
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
                self.throttled += 1;
                self.first_throttled.get_or_insert_with(Instant::now);
                self.job.note_attempt(at, &self.sort_key, (self.count, units), Some(scope));
                self.last = Some(TableError::Capacity(scope));
                // A throttled writer refreshes its view, so that it notices new shards. Without
                // metadata, the old view is used.
                if self.job.inner.config.writes() == Writes::Items
                    && let Err(error) = self.job.leased_or_new_view().await
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
                self.in_doubt = true;
                self.last = Some(error);
                Answer::Unanswered
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                self.in_doubt = true;
                Answer::Unanswered
            }
        })
    }

    /// Waits before the next attempt of a write that was placed under this width. `false` if the
    /// deadline comes first, or if the write has been throttled for too long. A write that may have
    /// been applied goes on until the deadline.
    pub(super) async fn pause(&mut self, width: ShardCount) -> bool {
        let throttled_for = self.first_throttled.filter(|_| !self.in_doubt);
        let until = throttled_for.map(|first| first + self.job.inner.config.throttled_for);
        let deadline = until.map_or(self.job.deadline, |until| until.min(self.job.deadline));
        if self.may_move_at_once(width) {
            return Instant::now() < deadline;
        }
        self.backoff.pause(&self.job.inner.environment, deadline).await
    }

    /// Counts the write, and returns its result: of an outcome, or of a final error; `None` at the
    /// deadline.
    pub(super) fn end(
        &mut self,
        end: Result<End, Option<TableError>>,
    ) -> Result<Written, WriteError> {
        let (attempts, throttled) = (self.count, self.throttled);
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
                reason if self.in_doubt => {
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
        telemetry::write(attempts, result.as_ref().err());
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
