//! Changing a key's width: close, wait, open.
//!
//! *Close* names the width to come, and writers pause. Then everybody is waited out who relies on a view from before, and *open*
//! begins the next era. No clocks are compared between machines: who opens counts the wait on its own clock, from the response to
//! the close or from having first seen it. So an actor may die at any point, and whoever finds its closing goes on with it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::events::{ScalingReason, ScalingStep};
use super::keys::{KeyJob, KeyState};
use super::retry::{Backoff, retrying};
use super::{Deadline, Inner, ShardedTable};
use crate::core::growth::GrowthRecord;
use crate::core::key::{PartitionKey, ShardCount};
use crate::core::policy::{LONGEST_GATHERING, ScalingDecision, ScalingPolicy};
use crate::core::pressure::{Pressure, Seen};
use crate::protocol::metadata::{Change, ShardMetadata};
use crate::protocol::view::{CROWD_BACKOFF, OBSERVER_PAUSE, View};
use crate::table::RawMetadata;
use crate::table::error::TableError;
use crate::telemetry;

/// How long the whole of a change may take before its actor gives up and leaves it to others.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often writers that wait for an open look for it, and the longest random pause on top.
const POLL: Duration = Duration::from_millis(100);

/// What became of a request to change a key's shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleOutcome {
    /// The key has this many shards now.
    Scaled {
        /// The width before.
        from: ShardCount,
        /// The width now.
        to: ShardCount,
    },
    /// Nothing was to do, or the policy said no.
    Unchanged(ScalingDecision),
    /// Another actor changed the metadata first; look again.
    Superseded,
}

/// Why a key's shards could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// More than `MAX_SHARDS`.
    #[error("number_of_shards {asked} is over MAX_SHARDS, {allowed}")]
    TooMany {
        /// What was asked for.
        asked: ShardCount,
        /// The maximum in force.
        allowed: ShardCount,
    },
    /// Fewer than the key has: that is a shrink, which moves items.
    #[error("the key has {now} shards; a lower number is a shrink: begin one instead")]
    Lower {
        /// The present write width.
        now: ShardCount,
    },
    /// The tables could not be used.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl ShardedTable {
    /// Raises a key to a number of shards ahead of a known peak; returns when writers may use them.
    ///
    /// # Errors
    /// [`ScaleError`]; a number below the present one is refused.
    pub async fn set_shards(
        &self,
        key: &PartitionKey,
        to: ShardCount,
        deadline: Deadline,
    ) -> Result<ScaleOutcome, ScaleError> {
        let allowed = self.inner.config.policy.max_shards;
        if to > allowed {
            return Err(ScaleError::TooMany { asked: to, allowed });
        }
        let job = self.inner.job(key, deadline);
        let mut from = None;
        loop {
            let view = job.view_from_now().await?;
            let now = view.metadata.number_of_shards;
            let from = *from.get_or_insert(now);
            if view.metadata.closing().is_some() {
                job.wait_for_open().await?;
            } else if to > now {
                let growth = Change::Close { to, growth: GrowthRecord::default() };
                job.change_width(&view, growth, ScalingReason::Asked).await?;
            } else if from < now {
                return Ok(ScaleOutcome::Scaled { from, to: now });
            } else if to < now {
                return Err(ScaleError::Lower { now });
            } else {
                return Ok(ScaleOutcome::Unchanged(ScalingDecision::Calm));
            }
        }
    }

    /// Applies the policy to what was seen of a key, and makes the change.
    ///
    /// # Errors
    /// [`ScaleError::Table`] where the tables could not be used.
    pub async fn scale_by_policy(
        &self,
        key: &PartitionKey,
        seen: Pressure,
        deadline: Deadline,
    ) -> Result<ScaleOutcome, ScaleError> {
        let scaled = self.scale_by_report(key, |_| Ok::<_, ScaleOutcome>(seen), deadline).await?;
        Ok(scaled.unwrap_or_else(|outcome| outcome))
    }

    /// As [`scale_by_policy`](Self::scale_by_policy), where what was seen depends on the key's metadata, which is read once: `judge` turns it
    /// into a pressure, or into a reason to leave the key alone.
    ///
    /// # Errors
    /// As [`scale_by_policy`](Self::scale_by_policy).
    pub async fn scale_by_report<T>(
        &self,
        key: &PartitionKey,
        judge: impl FnOnce(&ShardMetadata) -> Result<Pressure, T>,
        deadline: Deadline,
    ) -> Result<Result<ScaleOutcome, T>, ScaleError> {
        let job = self.inner.job(key, deadline);
        let view = job.view_from_now().await?;
        match judge(&view.metadata) {
            Ok(seen) => Ok(Ok(job.apply_policy(&view, seen.into(), ScalingReason::Reported(seen)).await?)),
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// A page of the keys that have metadata, in no order, and the key to go on after. One request; a key that is registered
    /// meanwhile may be missing, and one whose metadata is damaged is: the log names it, and a rebuild mends it.
    ///
    /// # Errors
    /// [`TableError`] where the metadata could not be read.
    pub async fn list_keys(
        &self,
        after: Option<&PartitionKey>,
        deadline: Deadline,
    ) -> Result<(Vec<(PartitionKey, ShardMetadata)>, Option<PartitionKey>), TableError> {
        let inner = &self.inner;
        let (keys, next) = retrying(&inner.environment, deadline, || inner.tables.list_metadata(after)).await?;
        let readable = keys.into_iter().filter_map(|(key, raw)| match raw.parse() {
            Ok(metadata) => Some((key, metadata)),
            Err(error) => {
                tracing::error!(key = key.as_str(), %error, "the metadata of a key is left out; rebuild it");
                None
            }
        });
        Ok((readable.collect(), next))
    }

    /// Reads a key's metadata, not older than this call. `None` where the key has no item.
    ///
    /// # Errors
    /// [`TableError`] where the metadata could not be read.
    pub async fn shards(&self, key: &PartitionKey, deadline: Deadline) -> Result<Option<ShardMetadata>, TableError> {
        let view = self.inner.job(key, deadline).view_from_now().await?;
        Ok(view.exists.then(|| view.metadata.clone()))
    }
}

impl KeyJob<'_> {
    /// Starts to relieve a throttled key in the background, unless this instance is at it already.
    pub(super) fn relieve(&self) {
        let now = self.inner.environment.now().monotonic;
        let is_quiet = self.state.known().quiet_until.is_some_and(|until| now < until);
        if is_quiet || !self.inner.config.scaling.includes_writer() {
            return;
        }
        self.in_background(&self.state.scaling, |inner, key, state| async move {
            inner.gather(&state).await;
            let job = KeyJob { inner: &inner, key: &key, state, deadline: Instant::now() + PATIENCE };
            match job.relieve_now().await {
                Ok(ScaleOutcome::Scaled { from, to }) => tracing::info!(%from, %to, "scaled out"),
                Ok(ScaleOutcome::Unchanged(
                    ScalingDecision::CoolingDown { until } | ScalingDecision::ShortOfPartitions { until },
                )) => {
                    let now = inner.environment.now();
                    let left = Duration::from_secs(until).saturating_sub(now.wall);
                    job.state.known().quiet_until = Some(now.monotonic + left);
                }
                Ok(ScaleOutcome::Unchanged(_) | ScaleOutcome::Superseded) => {}
                Err(error) => tracing::warn!(%error, "could not scale out; the next throttled write tries again"),
            }
        });
    }

    async fn relieve_now(&self) -> Result<ScaleOutcome, TableError> {
        let view = self.view_from_now().await?;
        let seen = self.state.known().pressure.seen(self.inner.environment.now().monotonic);
        self.apply_policy(&view, seen, ScalingReason::Throttled(seen.pressure)).await
    }

    async fn apply_policy(&self, view: &View, seen: Seen, reason: ScalingReason) -> Result<ScaleOutcome, TableError> {
        let (metadata, policy) = (&view.metadata, &self.inner.config.policy);
        let decision = policy.decide(metadata, seen, self.inner.environment.now().epoch_seconds());
        match decision {
            ScalingDecision::ScaleOut(to) => {
                tracing::info!(attempts = seen.pressure.attempts, throttled = seen.pressure.throttled, %to, "scaling out");
                let growth = Change::Close { to, growth: policy.record(metadata, seen) };
                return self.change_width(view, growth, reason).await;
            }
            ScalingDecision::Closing(_) => return self.wait_for_open().await,
            ScalingDecision::Calm => return Ok(ScaleOutcome::Unchanged(decision)),
            ScalingDecision::ShortOfPartitions { until } => {
                tracing::warn!(until, "growing did not help: the table is short of partitions, not this key of shards");
            }
            ScalingDecision::AtMaximum => telemetry::at_max_shards(),
            ScalingDecision::CoolingDown { .. } => {}
        }
        self.inner.tell(self.key, metadata.number_of_shards, ScalingStep::Unchanged(decision), reason);
        Ok(ScaleOutcome::Unchanged(decision))
    }

    /// Close, wait, open.
    pub(super) async fn change_width(
        &self,
        view: &View,
        close: Change,
        reason: ScalingReason,
    ) -> Result<ScaleOutcome, TableError> {
        if !view.exists {
            self.is_certainly_new().await?;
        }
        let seen = view.exists.then_some(&view.metadata);
        let Some(closed) = self.step(seen, &close).await? else { return Ok(ScaleOutcome::Superseded) };
        if let Some(to) = closed.closing() {
            self.inner.tell(self.key, closed.number_of_shards, ScalingStep::Closed(to), reason);
        }
        // Everybody who relies on a view from before is waited out.
        sleep(self.inner.environment.opening_wait()).await;
        self.open(&closed, reason).await
    }

    /// Watches a closing that another actor has made, and opens where nobody else has by the end of the wait. Of a crowd, one looks.
    pub(super) async fn wait_for_open(&self) -> Result<ScaleOutcome, TableError> {
        let late = || TableError::Transient("the key's width was changing until the deadline".into());
        let Ok(_turn) = timeout_at(self.deadline, self.state.opening.lock()).await else { return Err(late()) };
        let mut watched: Option<(u64, Instant)> = None;
        loop {
            let view = match self.state.view() {
                // Another request may have seen the open while this one waited for its turn.
                Some(view) if watched.is_none() => view,
                _ => self.view_from_now().await?,
            };
            if view.metadata.closing().is_none() {
                return Ok(ScaleOutcome::Superseded);
            }
            // The wait counts from when this very closing was first seen.
            watched.take_if(|(generation, _)| *generation != view.metadata.generation);
            let (_, since) = *watched.get_or_insert((view.metadata.generation, Instant::now()));
            let ends = since + self.inner.environment.opening_wait() + OBSERVER_PAUSE;
            if Instant::now() >= ends {
                return self.open(&view.metadata, ScalingReason::TakenOver).await;
            }
            let next = ends.min(Instant::now() + POLL + self.inner.environment.jitter(POLL));
            if next >= self.deadline {
                return Err(late());
            }
            sleep_until(next).await;
        }
    }

    pub(super) async fn open(&self, closed: &ShardMetadata, reason: ScalingReason) -> Result<ScaleOutcome, TableError> {
        let from = closed.number_of_shards;
        let mut backoff = Backoff::default();
        loop {
            match self.step(Some(closed), &Change::Open).await {
                Ok(Some(opened)) => {
                    let to = opened.number_of_shards;
                    if to > from {
                        telemetry::scaled_out(to);
                    }
                    self.inner.tell(self.key, from, ScalingStep::Opened(to), reason);
                    return Ok(ScaleOutcome::Scaled { from, to });
                }
                // Opened by another actor, or by an attempt of this one that got no response.
                Ok(None) => {
                    let now = &self.view_from_now().await?.metadata;
                    let to = now.number_of_shards;
                    let is_opened = now.era == closed.era + 1 && closed.closing() == Some(to);
                    return Ok(if is_opened { ScaleOutcome::Scaled { from, to } } else { ScaleOutcome::Superseded });
                }
                Err(error) if error.is_retryable() && Instant::now() < self.deadline => {
                    sleep(backoff.next(&self.inner.environment)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One change of the metadata, if it is still as it was seen; `None` where another actor was first.
    pub(super) async fn step(
        &self,
        seen: Option<&ShardMetadata>,
        change: &Change,
    ) -> Result<Option<ShardMetadata>, TableError> {
        let nothing = ShardMetadata::unregistered_with(self.inner.config.adopt_shards);
        self.step_from(seen.unwrap_or(&nothing), (seen, None), change).await
    }

    /// As [`step`](Self::step), from metadata that need not be as it is stored.
    pub(super) async fn step_from(
        &self,
        before: &ShardMetadata,
        (seen, damaged): (Option<&ShardMetadata>, Option<&RawMetadata>),
        change: &Change,
    ) -> Result<Option<ShardMetadata>, TableError> {
        let asked_at = self.inner.environment.now();
        let Some(next) = before.apply(change, asked_at.epoch_seconds()) else { return Ok(None) };
        match self.inner.tables.write_metadata(self.key, seen, damaged, &next).await {
            Ok(()) => {
                // What it left behind is newer than the instant before it was sent.
                self.state.learn(&Arc::new(View { metadata: next.clone(), exists: true, asked_at }));
                Ok(Some(next))
            }
            Err(TableError::ConditionFailed) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Inner {
    /// Waits a random pause, and again until enough was seen to decide.
    async fn gather(&self, state: &KeyState) {
        let first_throttle = self.environment.now();
        loop {
            sleep(self.environment.jitter(CROWD_BACKOFF)).await;
            let now = self.environment.now();
            let waited = now.since(first_throttle).unwrap_or(LONGEST_GATHERING);
            if ScalingPolicy::is_sure(state.known().pressure.seen(now.monotonic), waited) {
                return;
            }
        }
    }
}
