//! Changing a key's width: a throttled writer gathers observations, pools them with those of the
//! key's other writers, and decides.

pub(crate) mod change;

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::{Instant, sleep};

use crate::config::width_history::WidthHistory;
use crate::engine::environment::{Backoff, millis};
use crate::engine::job::KeyJob;
use crate::engine::views::keys::{CHANGE_TIMEOUT, Quiet};
use crate::engine::{Deadline, Maintenance};
use crate::policy::decision::{RECHECK_PERIOD, ScalingDecision};
use crate::policy::pressure::{MAX_SAMPLING_PERIOD, OBSERVATION_PERIOD, Pressure, Seen};
use crate::protocol::growth::GrowthRecord;
use crate::protocol::layout::Layout;
use crate::protocol::metadata::{Change, ShardMetadata};
use crate::protocol::view::{CROWD_BACKOFF, Moment};
use crate::table::error::TableError;
use crate::table::{Pool, Together};
use crate::values::key::{PartitionKey, ShardCount};
use crate::values::throughput::WarmThroughput;

/// The events that are kept for a slow receiver. It misses older ones.
pub(in crate::engine) const MAX_KEPT_EVENTS: usize = 256;
/// The longest that one report of a shortage keeps other instances from deciding themselves.
const MAX_SHORTAGE_PERIOD: Duration = Duration::from_secs(5);

/// One step of a change, or a decision against a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalingEvent {
    /// The logical key.
    pub partition_key: PartitionKey,
    /// Its write width before.
    pub from: ShardCount,
    /// The step.
    pub step: ScalingStep,
    /// The reason for looking at the key.
    pub reason: ScalingReason,
}

/// The reason for looking at a key's shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScalingReason {
    /// Writes of this instance were throttled. These are its observations of all its writes of the
    /// key.
    Throttled(Pressure),
    /// A report names the key.
    Reported {
        /// Throttled requests in it.
        throttled: u64,
    },
    /// A caller asked for a number of shards.
    Asked,
    /// A closing lasted longer than it should.
    TakenOver,
}

/// A step of a key's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScalingStep {
    /// The next width is named, and writers wait for it.
    Closed(ShardCount),
    /// Writers use this number of shards from now on.
    Opened(ShardCount),
    /// A drain is done: readers query this number of shards from now on.
    Drained(ShardCount),
    /// The policy decided against it.
    Unchanged(ScalingDecision),
}

/// The result of a request to change a key's shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScaleOutcome {
    /// The key has this number of shards now.
    Scaled {
        /// The width before.
        from: ShardCount,
        /// The width now.
        to: ShardCount,
    },
    /// There was nothing to do, or the policy decided against it.
    Unchanged(ScalingDecision),
    /// Another actor changed the metadata first. Read it again.
    Superseded,
}

/// Why a key's shards could not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScaleError {
    /// More than `MAX_SHARDS`.
    #[error("number_of_shards {asked} is over MAX_SHARDS, {allowed}")]
    TooMany {
        /// The requested number.
        asked: ShardCount,
        /// The configured maximum.
        allowed: ShardCount,
    },
    /// Fewer than the key has. That would be a shrink, which moves items.
    #[error(
        "number_of_shards {asked} is under the present {now}: a shrink, which is begun instead"
    )]
    Lower {
        /// The requested number.
        asked: ShardCount,
        /// The present write width.
        now: ShardCount,
    },
    /// The tables could not be used.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl Maintenance {
    /// Reads the metadata of a key, strongly consistent. `None` if it has never grown: it has
    /// [`TableConfig::adopt_shards`](method@crate::TableConfig::adopt_shards) shards.
    ///
    /// # Errors
    /// [`TableError::Lost`] if the directory lists the key and its metadata is gone.
    pub async fn metadata(&self, key: &PartitionKey) -> Result<Option<ShardMetadata>, TableError> {
        let job = self.engine.inner.job(key, self.until());
        let mut record = job.record_from_now().await?;
        // If the page lists the key, it has just grown, or its item is lost. The second read
        // decides.
        if !record.exists && job.view().await?.layout.generation > 0 {
            record = job.record_from_now().await?;
        }
        Ok(record.stored_metadata().cloned())
    }

    /// Reads the widths that a key has had, strongly consistent, for
    /// `dynamodb-write-sharding-stream`: the decoder distinguishes the changes of users from the
    /// product's by them.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata).
    pub async fn width_history(&self, key: &PartitionKey) -> Result<WidthHistory, TableError> {
        let read_at = self.engine.now().epoch_seconds();
        Ok(match self.metadata(key).await? {
            Some(metadata) => WidthHistory::of(&metadata, read_at),
            None => WidthHistory::never_grown(self.engine.config(), read_at),
        })
    }

    /// Raises a key to this number of shards ahead of a known peak. This takes about a second and a
    /// half. Any outcome but [`Scaled`](ScaleOutcome::Scaled) and `Unchanged(Calm)` says why the
    /// key did not grow. Check a user's key with
    /// [`TableConfig::partition_key`](crate::TableConfig::partition_key) first.
    ///
    /// # Errors
    /// [`ScaleError`]. A number below the present one is refused.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use dynamodb_write_sharding::{PartitionKey, ShardCount};
    ///
    /// let key: PartitionKey = "black-friday".try_into()?;
    /// let to = ShardCount::new(16).expect("it is not 0");
    /// table.maintenance().grow(&key, to).await?;
    /// let metadata = table.maintenance().metadata(&key).await?;
    /// assert_eq!(metadata.map(|of| of.number_of_shards), Some(to));
    /// # Ok(()) });
    /// ```
    pub async fn grow(
        &self,
        key: &PartitionKey,
        to: ShardCount,
    ) -> Result<ScaleOutcome, ScaleError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        let allowed = inner.config.policy.max_shards;
        if to > allowed {
            return Err(ScaleError::TooMany { asked: to, allowed });
        }
        let job = inner.job(key, deadline);
        inner.claim_once(deadline).await?;
        let (mut from, mut backoff) = (None, Backoff::default());
        loop {
            let record = job.record_from_now().await?;
            let now = record.metadata.number_of_shards;
            let from = *from.get_or_insert(now);
            if record.metadata.closing().is_some() {
                job.wait_out(&record).await?;
            } else if to > now {
                let growth = Change::Close { to, growth: GrowthRecord::default() };
                let changed = job.change_width(&record, growth, ScalingReason::Asked).await;
                if let Ok(unchanged @ ScaleOutcome::Unchanged(_)) = changed {
                    return Ok(unchanged);
                }
                // After a failure, the next round reads how far it came.
                if let Err(error) = changed
                    && !(error.is_retryable() && backoff.pause(&inner.environment, deadline).await)
                {
                    return Err(error.into());
                }
            } else if from < now {
                return Ok(ScaleOutcome::Scaled { from, to: now });
            } else if to < now {
                return Err(ScaleError::Lower { asked: to, now });
            } else {
                return Ok(ScaleOutcome::Unchanged(ScalingDecision::Calm));
            }
        }
    }

    /// The events of this process's changes of shards from now on, in order. A slow receiver misses
    /// old ones.
    pub fn events(&self) -> broadcast::Receiver<ScalingEvent> {
        self.engine.inner.scaling_events.subscribe()
    }

    /// Finishes a change of a key's shards whose process stopped halfway.
    pub async fn finish_change(&self, key: &PartitionKey) -> Result<ScaleOutcome, TableError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        let job = inner.job(key, deadline);
        inner.claim_once(deadline).await?;
        let record = job.record_from_now().await?;
        Ok(match record.metadata.closing() {
            Some(_) => job.wait_out(&record).await?,
            None => ScaleOutcome::Unchanged(ScalingDecision::Calm),
        })
    }

    /// A page of the keys that have metadata, in no order, and the key to continue after. One
    /// request. A key that is registered meanwhile may be missing, and one whose metadata is
    /// damaged is: the log names it, and a rebuild repairs it.
    pub async fn list(
        &self,
        after: Option<&PartitionKey>,
    ) -> Result<(Vec<(PartitionKey, ShardMetadata)>, Option<PartitionKey>), TableError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        let (keys, next) = inner.retrying(deadline, || inner.tables.list_metadata(after)).await?;
        let readable = keys.into_iter().filter_map(|(key, raw)| {
            let metadata = raw.parse().inspect_err(|error| {
                tracing::error!(key = key.as_str(), %error, "the metadata of a key is left out; rebuild it");
            });
            Some((key, metadata.ok()?))
        });
        Ok((readable.collect(), next))
    }
}

impl KeyJob<'_> {
    /// Works in the background, unless this instance is doing so already.
    pub(in crate::engine) fn relieve(&self) {
        let (warm, now) = (self.warm(), self.inner.environment.now());
        let is_quiet = {
            let mut known = self.state.known();
            known.observe_partitions(warm.map(WarmThroughput::partitions), now.monotonic);
            known.quiet.is_some_and(|quiet| quiet.holds(warm, now))
        };
        if is_quiet || !self.inner.config.scaling.includes_writer() {
            return;
        }
        self.in_background(&self.state.is_scaling, |inner, key| async move {
            let mut job = inner.job(&key, Instant::now());
            job.gather().await;
            job.deadline = Instant::now() + CHANGE_TIMEOUT;
            match job.relieve_now().await {
                Ok(ScaleOutcome::Scaled { from, to }) => tracing::info!(%from, %to, "scaled out"),
                Ok(ScaleOutcome::Unchanged(
                    ScalingDecision::AtMaximum
                    | ScalingDecision::DirectoryFull
                    | ScalingDecision::NotArmed { .. },
                )) => {
                    let again = inner.environment.now().wall + RECHECK_PERIOD;
                    job.be_quiet(again.as_secs(), false);
                }
                Ok(ScaleOutcome::Unchanged(decision)) => {
                    let is_short = matches!(decision, ScalingDecision::ShortOfPartitions { .. });
                    if let Some(until) = decision.until() {
                        job.be_quiet(until, is_short);
                    }
                }
                Ok(ScaleOutcome::Superseded) => {}
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "could not scale out; the next throttled write tries again"
                    );
                }
            }
        });
    }

    /// Waits a random pause, and again until there are enough observations to decide.
    async fn gather(&self) {
        let environment = &self.inner.environment;
        let first_throttle = environment.now();
        // About this long, at random, and nearly at once for all: a pool is complete with the last.
        let lasts = MAX_SAMPLING_PERIOD * 4 / 5 + environment.jitter(MAX_SAMPLING_PERIOD * 2 / 5);
        let mut waited = Duration::ZERO;
        loop {
            sleep(environment.jitter(CROWD_BACKOFF).min(lasts.saturating_sub(waited))).await;
            let now = environment.now();
            waited = now.since(first_throttle).unwrap_or(lasts);
            if waited >= lasts || self.state.known().pressure.seen(now.monotonic).pressure.is_sure()
            {
                return;
            }
        }
    }

    async fn relieve_now(&self) -> Result<ScaleOutcome, TableError> {
        let (partitions, at) = (self.partitions(), self.inner.environment.now());
        let mut seen = {
            let mut known = self.state.known();
            known.observe_partitions(partitions, at.monotonic);
            Seen { partitions, ..known.pressure.seen(at.monotonic) }
        };
        if seen.pressure.is_calm() {
            return Ok(ScaleOutcome::Unchanged(ScalingDecision::Calm));
        }
        // The page first: most of many instances find that another one has closed already, and
        // leave the key's items alone.
        let view = self.view_from_now().await?;
        if view.layout.closing.is_some() {
            self.wait_until_open().await?;
            return Ok(ScaleOutcome::Superseded);
        }
        if self.is_out_of_date(seen, at) {
            return Ok(ScaleOutcome::Superseded);
        }
        // The rate of one instance may be a small part of the key's.
        if !self.is_sure(&view.layout, seen) {
            seen = match self.seen_together(seen, &view.layout).await? {
                ControlFlow::Continue(together) => together,
                ControlFlow::Break(outcome) => return Ok(outcome),
            };
            if seen.pressure.is_calm() {
                self.be_quiet(
                    self.inner.environment.now().epoch_seconds() + OBSERVATION_PERIOD.as_secs(),
                    false,
                );
                return Ok(ScaleOutcome::Unchanged(ScalingDecision::Calm));
            }
        }
        let record = self.record_from_now().await?;
        if self.is_out_of_date(seen, at) {
            return Ok(ScaleOutcome::Superseded);
        }
        let (policy, now) = (&self.inner.config.policy, self.inner.environment.now());
        seen = seen.completed(self.state.known().largest_rate(seen.rate, now));
        let seconds = now.epoch_seconds();
        let mut decision = policy.decide(&record.metadata, seen, seconds);
        if let ScalingDecision::Crowded { until, write_units } = decision {
            // A neighbour may be relieved soon. If not, the table is short.
            let since = *self.state.known().crowded_since.get_or_insert(now);
            if now.since(since).is_some_and(|time| time >= RECHECK_PERIOD) {
                decision = ScalingDecision::ShortOfPartitions { until, write_units };
            }
        } else {
            self.state.known().crowded_since = None;
        }
        let growth = policy.record(&record.metadata, seen, seconds);
        let (partitions, reason) = (seen.partitions, ScalingReason::Throttled(seen.pressure));
        if matches!(decision, ScalingDecision::ScaleOut(_))
            && let Some(short) = policy.lacking(record.metadata.number_of_shards, seen, seconds)
        {
            self.carry_out(&record, (short, partitions), growth, reason).await?;
        }
        self.carry_out(&record, (decision, partitions), growth, reason).await
    }

    /// More observations would hardly change the decision.
    fn is_sure(&self, layout: &Layout, seen: Seen) -> bool {
        let now = self.inner.environment.now();
        let largest = self.state.known().largest_rate(seen.rate, now);
        seen.is_of(largest) && self.inner.config.policy.is_sure(layout.number_of_shards, seen)
    }

    /// Too old, because the process was suspended since, or from a table with another number of
    /// partitions.
    fn is_out_of_date(&self, seen: Seen, at: Moment) -> bool {
        let is_late = self.inner.environment.now().since(at).is_none_or(|age| age > RECHECK_PERIOD);
        is_late || self.partitions() != seen.partitions
    }

    fn be_quiet(&self, until: u64, is_short: bool) {
        let since = self.inner.environment.now();
        let lasts = Duration::from_secs(until).saturating_sub(since.wall);
        let quiet = Quiet { since, lasts, warm: self.warm(), is_short };
        self.state.known().quiet = Some(quiet);
    }

    /// An instance with few attempts knows little by itself, but ten thousand such instances know
    /// the demand. Stops early if another instance has closed the key, or has reported that the
    /// table is short of partitions.
    async fn seen_together(
        &self,
        seen: Seen,
        layout: &Layout,
    ) -> Result<ControlFlow<ScaleOutcome, Seen>, TableError> {
        let now = self.inner.environment.now().epoch_millis();
        let (generation, partitions) = (layout.generation, seen.partitions);
        let pool = Pool { key: self.key, generation, partitions };
        // A report that is valid for longer than possible was written by a wrong clock.
        let possible = now + 1..=now + 2 * millis(MAX_SHORTAGE_PERIOD);
        let pooled = |together: &Together| {
            let short_until = together.short_until.filter(|until| possible.contains(until));
            match short_until.map(|until| until.div_ceil(1_000)) {
                Some(until) => ControlFlow::Break(ScaleOutcome::Unchanged(
                    ScalingDecision::ShortOfPartitions { until, write_units: None },
                )),
                None => ControlFlow::Continue(seen.with(together)),
            }
        };
        // If many instances find their table short again, each reads, but only one writes.
        let was_short = self.state.known().quiet.is_some_and(|quiet| quiet.is_short);
        if was_short
            && let Ok(together) = self.read_evidence(pool).await
            && let short @ ControlFlow::Break(_) = pooled(&together)
        {
            return Ok(short);
        }
        match self.add_evidence(pool, now).await {
            Ok(together) => {
                let found = pooled(&together);
                if found.continue_value().is_none_or(|seen| self.is_sure(layout, seen)) {
                    return Ok(found);
                }
            }
            // Enough instances add their observations without this one.
            Err(error) if error.is_retryable() => {
                return Ok(ControlFlow::Continue(Seen::default()));
            }
            Err(error) => return Err(error),
        }
        // The other instances need a moment for theirs.
        sleep(MAX_SAMPLING_PERIOD / 2).await;
        if self.view_from_now().await?.layout.closing.is_some() {
            self.wait_until_open().await?;
            return Ok(ControlFlow::Break(ScaleOutcome::Superseded));
        }
        Ok(pooled(&self.read_evidence(pool).await.unwrap_or_default()))
    }

    async fn read_evidence(&self, pool: Pool<'_>) -> Result<Together, TableError> {
        let read = || self.inner.tables.get_evidence(pool);
        self.inner.retrying(self.soon(), read).await
    }

    /// Adds this instance's unreported observations to the pool.
    async fn add_evidence(&self, pool: Pool<'_>, now: u64) -> Result<Together, TableError> {
        let at = self.inner.environment.now().monotonic;
        let oldest = now.saturating_sub(millis(OBSERVATION_PERIOD));
        let (seen, rate) = {
            let mut known = self.state.known();
            let rate = known.pressure.seen(at).rate as u64;
            // Each instance counts once.
            let (generation, began) = known.pool;
            let has_rate = generation == pool.generation && began >= oldest;
            let rate = if has_rate { 0 } else { rate };
            (known.pressure.take_unreported(at), rate)
        };
        let add = || self.inner.tables.add_evidence(pool, seen, rate, (now, oldest));
        let together = self.inner.retrying(self.soon(), add).await?;
        self.state.known().pool = (pool.generation, together.begun);
        Ok(together)
    }

    fn soon(&self) -> Deadline {
        self.deadline.min(Instant::now() + MAX_SAMPLING_PERIOD / 2)
    }
}

impl Seen {
    fn with(self, together: &Together) -> Self {
        let is_more = together.seen.writes > self.pressure.writes;
        Self {
            pressure: if is_more { together.seen } else { self.pressure },
            rate: self.rate.max(together.rate as f64),
            partitions: self.partitions,
            hot_items: self.hot_items.or(together.hot_items),
        }
    }
}
