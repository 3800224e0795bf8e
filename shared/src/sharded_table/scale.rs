//! Growing: expand, wait, activate.
//!
//! A width is raised in two steps. *Expand* raises the read width; then nobody writes to the new shards until every reader's view
//! from before has run out; then *activate* raises the write width. No clocks are compared between machines: who activates counts
//! the wait on its own clock, from the acknowledgement of the expansion or from having first seen it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::events::{ScalingReason, ScalingStep};
use super::keys::{KeyState, Running};
use super::retry::retrying;
use super::{Deadline, Inner, ShardedTable};
use crate::core::growth::GrowthRecord;
use crate::core::key::{PartitionKey, ShardCount};
use crate::core::metadata::ShardMetadata;
use crate::core::policy::{LONGEST_GATHERING, ScalingDecision, ScalingPolicy};
use crate::core::pressure::{Pressure, Seen};
use crate::core::view::{CROWD_BACKOFF, Moment, OBSERVER_PAUSE, View};
use crate::table::MetadataUpdate;
use crate::table::error::TableError;
use crate::telemetry;

/// How long the whole of a scale-out may take before its actor gives up and leaves it to others.
const PATIENCE: Duration = Duration::from_secs(20);

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
    Outrun,
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
        let state = self.inner.keys.state(key);
        let mut from = None;
        loop {
            let view = self.inner.view_from_now(key, &state, deadline).await?;
            let metadata = view.widths().into_owned();
            let now = metadata.number_of_shards;
            let from = *from.get_or_insert(now);
            if to < now {
                // A drain that was stopped for this has given the key more than was asked for.
                return if from < to {
                    Ok(ScaleOutcome::Scaled { from, to: now })
                } else {
                    Err(ScaleError::Lower { now })
                };
            }
            if metadata.draining && to > now {
                self.inner.stop_drain(key, &state, &metadata, ScalingReason::Asked).await?;
                continue;
            }
            if metadata.draining {
                return Ok(ScaleOutcome::Unchanged(ScalingDecision::Draining));
            }
            if to == now && metadata.expansion().is_none() {
                let calm = ScaleOutcome::Unchanged(ScalingDecision::Calm);
                return Ok(if from == now { calm } else { ScaleOutcome::Scaled { from, to } });
            }
            if metadata.expansion().is_some() {
                self.inner.take_over(key, &state, &view, deadline).await?;
            } else {
                let growth = MetadataUpdate::Expand { to, growth: GrowthRecord::default() };
                self.inner.scale_out(key, &state, &view, growth, ScalingReason::Asked, deadline).await?;
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
        let state = self.inner.keys.state(key);
        let view = self.inner.view_from_now(key, &state, deadline).await?;
        Ok(self.inner.apply_policy(key, &state, &view, seen.into(), ScalingReason::Reported(seen), deadline).await?)
    }

    /// What the policy says to what was seen of a key; nothing is changed.
    ///
    /// # Errors
    /// [`ScaleError::Table`] where the metadata could not be read.
    pub async fn decide(
        &self,
        key: &PartitionKey,
        seen: Pressure,
        deadline: Deadline,
    ) -> Result<ScalingDecision, ScaleError> {
        let state = self.inner.keys.state(key);
        let view = self.inner.view_from_now(key, &state, deadline).await?;
        let now = self.inner.environment.now().epoch_seconds();
        Ok(self.inner.config.policy.decide(&view.widths(), seen, now))
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
        let state = self.inner.keys.state(key);
        Ok(self.inner.view_from_now(key, &state, deadline).await?.metadata.clone())
    }
}

impl Inner {
    /// A view that was asked for after this call began.
    pub(super) async fn view_from_now(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        deadline: Deadline,
    ) -> Result<Arc<View>, TableError> {
        let began = self.environment.now();
        self.view(key, state, deadline, |view, now| asked_since(view, began, now)).await
    }

    /// Starts to relieve a throttled key in the background, unless this instance is at it already.
    pub(crate) fn relieve(self: &Arc<Self>, key: &PartitionKey, state: &Arc<KeyState>) {
        if !self.config.scaling.includes_writer() || state.is_quiet(self.environment.now()) {
            return;
        }
        let Some(running) = Running::start(state, |state| &state.scaling) else { return };
        let (inner, key, state) = (Arc::clone(self), key.clone(), Arc::clone(state));
        self.background.spawn(async move {
            inner.gather(&state).await;
            let deadline = Instant::now() + PATIENCE;
            match inner.relieve_now(&key, &state, deadline).await {
                Ok(ScaleOutcome::Scaled { from, to }) => tracing::info!(%from, %to, "scaled out"),
                Ok(ScaleOutcome::Unchanged(
                    ScalingDecision::CoolingDown { until } | ScalingDecision::ShortOfPartitions { until },
                )) => {
                    let now = inner.environment.now();
                    let left = Duration::from_secs(until).saturating_sub(now.wall);
                    state.stay_quiet_until(now.monotonic + left);
                }
                Ok(ScaleOutcome::Unchanged(_) | ScaleOutcome::Outrun) => {}
                Err(error) => tracing::warn!(%error, "could not scale out; the next throttled write tries again"),
            }
            drop(running);
        });
    }

    /// Waits a random pause, and again until enough was seen to decide.
    async fn gather(&self, state: &KeyState) {
        let first_throttle = self.environment.now();
        loop {
            sleep(self.environment.jitter(CROWD_BACKOFF)).await;
            let now = self.environment.now();
            let waited = now.since(first_throttle).unwrap_or(LONGEST_GATHERING);
            if ScalingPolicy::is_sure(state.seen(now), waited) {
                return;
            }
        }
    }

    async fn relieve_now(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        deadline: Deadline,
    ) -> Result<ScaleOutcome, TableError> {
        let view = self.view_from_now(key, state, deadline).await?;
        let seen = state.seen(self.environment.now());
        self.apply_policy(key, state, &view, seen, ScalingReason::Throttled(seen.pressure), deadline).await
    }

    async fn apply_policy(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        view: &View,
        seen: Seen,
        reason: ScalingReason,
        deadline: Deadline,
    ) -> Result<ScaleOutcome, TableError> {
        let widths = view.widths();
        let decision = self.config.policy.decide(&widths, seen, self.environment.now().epoch_seconds());
        if !matches!(
            decision,
            ScalingDecision::ScaleOut(_)
                | ScalingDecision::Expanding(_)
                | ScalingDecision::StopDraining
                | ScalingDecision::Calm
        ) {
            self.tell(key, widths.number_of_shards, ScalingStep::Unchanged(decision), reason);
        }
        match decision {
            ScalingDecision::ScaleOut(to) => {
                tracing::info!(attempts = seen.pressure.attempts, throttled = seen.pressure.throttled, %to, "scaling out");
                let growth = MetadataUpdate::Expand { to, growth: self.config.policy.record(&widths, seen) };
                self.scale_out(key, state, view, growth, reason, deadline).await
            }
            ScalingDecision::Expanding(_) => self.take_over(key, state, view, deadline).await,
            ScalingDecision::ShortOfPartitions { until } => {
                tracing::warn!(until, "growing did not help: the table is short of partitions, not this key of shards");
                Ok(ScaleOutcome::Unchanged(decision))
            }
            ScalingDecision::StopDraining => self.stop_drain(key, state, &widths, reason).await,
            ScalingDecision::AtMaximum => {
                telemetry::at_max_shards();
                Ok(ScaleOutcome::Unchanged(decision))
            }
            ScalingDecision::Calm | ScalingDecision::CoolingDown { .. } | ScalingDecision::Draining => {
                Ok(ScaleOutcome::Unchanged(decision))
            }
        }
    }

    /// Writers use every shard that readers look at, at once; nothing is to wait for.
    async fn stop_drain(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        draining: &ShardMetadata,
        reason: ScalingReason,
    ) -> Result<ScaleOutcome, TableError> {
        let (from, to) = (draining.number_of_shards, draining.read_shards);
        match self.step(key, state, Some(draining), MetadataUpdate::StopDrain { unmovable: false }).await? {
            Some(_) => {
                self.tell(key, from, ScalingStep::Activated(to), reason);
                telemetry::scaled_out(to);
                Ok(ScaleOutcome::Scaled { from, to })
            }
            None => Ok(ScaleOutcome::Outrun),
        }
    }

    /// Expand, wait, activate.
    async fn scale_out(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        view: &View,
        growth: MetadataUpdate,
        reason: ScalingReason,
        deadline: Deadline,
    ) -> Result<ScaleOutcome, TableError> {
        if view.metadata.is_none() {
            self.is_certainly_new(key, state, deadline).await?;
        }
        let Some(expanded) = self.step(key, state, view.metadata.as_ref(), growth).await? else {
            return Ok(ScaleOutcome::Outrun);
        };
        self.tell(key, expanded.number_of_shards, ScalingStep::Expanded(expanded.read_shards), reason);
        self.wait_out_views().await;
        self.activate(key, state, &expanded, reason, deadline).await
    }

    /// Watches an expansion that another actor made, and activates it where that actor does not.
    async fn take_over(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        view: &View,
        deadline: Deadline,
    ) -> Result<ScaleOutcome, TableError> {
        self.wait_out_views().await;
        sleep(OBSERVER_PAUSE + self.environment.jitter(CROWD_BACKOFF)).await;
        let now = self.view_from_now(key, state, deadline).await?;
        match (&view.metadata, &now.metadata) {
            (Some(seen), Some(now)) if seen.is_same_step(now) => {
                self.activate(key, state, now, ScalingReason::TakenOver, deadline).await
            }
            _ => Ok(ScaleOutcome::Outrun),
        }
    }

    pub(super) async fn activate(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        expanded: &ShardMetadata,
        reason: ScalingReason,
        deadline: Deadline,
    ) -> Result<ScaleOutcome, TableError> {
        let (from, to) = (expanded.number_of_shards, expanded.read_shards);
        let update = MetadataUpdate::Activate { to };
        let mut backoff = super::retry::Backoff::default();
        loop {
            match self.step(key, state, Some(expanded), update.clone()).await {
                Ok(Some(_)) => {
                    telemetry::scaled_out(to);
                    self.tell(key, from, ScalingStep::Activated(to), reason);
                    return Ok(ScaleOutcome::Scaled { from, to });
                }
                // Activated by another actor, or by an attempt of this one that had no answer.
                Ok(None) => return Ok(ScaleOutcome::Outrun),
                Err(error) if error.is_retryable() && Instant::now() < deadline => {
                    sleep(backoff.next(&self.environment)).await
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One conditional update. `None` where another actor was first.
    pub(super) async fn step(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        seen: Option<&ShardMetadata>,
        update: MetadataUpdate,
    ) -> Result<Option<ShardMetadata>, TableError> {
        let asked_at = self.environment.now();
        match self.tables.update_metadata(key, seen, update, asked_at.epoch_seconds()).await {
            Ok(metadata) => {
                self.learn_update(state, metadata.clone(), asked_at);
                Ok(Some(metadata))
            }
            Err(TableError::ConditionFailed) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn wait_out_views(&self) {
        sleep(self.environment.activation_wait()).await;
    }
}

/// Whether a view was asked for no earlier than `began`, on a clock that has not gone back.
fn asked_since(view: &View, began: Moment, now: Moment) -> bool {
    view.asked_at.monotonic >= began.monotonic && now.since(view.asked_at).is_some()
}
