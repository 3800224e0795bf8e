//! Scaling by the policy. A throttled writer gathers observations, pools them with those of the
//! other writers of the key, and decides. The shard-scaler decides by what an alarm reports.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, histogram};
use tokio::time::{Instant, sleep};

use crate::engine::Deadline;
use crate::engine::job::KeyJob;
use crate::engine::maintenance::Maintenance;
use crate::engine::views::Record;
use crate::engine::views::keys::{CHANGE_TIMEOUT, Quiet};
use crate::engine::width::{ScaleOutcome, ScalingReason, millis};
use crate::policy::decision::{RECHECK_PERIOD, ScalingDecision};
use crate::policy::pressure::{MAX_SAMPLING_PERIOD, OBSERVATION_PERIOD, Seen};
use crate::protocol::growth::GrowthRecord;
use crate::protocol::layout::Layout;
use crate::protocol::metadata::{Change, ShardMetadata};
use crate::protocol::view::{CROWD_BACKOFF, Moment};
use crate::table::error::TableError;
use crate::table::{Evidence, Pool, Together};
use crate::values::key::PartitionKey;
use crate::values::throughput::WarmThroughput;

/// The longest that one report of a shortage keeps other instances from deciding themselves.
const MAX_SHORTAGE_PERIOD: Duration = Duration::from_secs(5);

/// A key that a report names, and the policy's decision about it.
pub struct ReportedKey<'a> {
    job: KeyJob<'a>,
    record: Arc<Record>,
    decision: ScalingDecision,
    partitions: Option<u32>,
}

impl Maintenance {
    /// Decides by the policy about a key that a report names as throttled, such as an alarm's: twice
    /// the shards, if that can help. Changes nothing. `warm` is the table's warm throughput if the
    /// caller knows it; otherwise the [published](Self::publish_warm_throughput) one counts.
    pub async fn reported<'a>(
        &'a self,
        key: &'a PartitionKey,
        warm: Option<WarmThroughput>,
    ) -> Result<ReportedKey<'a>, TableError> {
        let inner = &self.engine.inner;
        let (job, policy) = (inner.job(key, self.until()), &inner.config.policy);
        // It has the table's warm throughput. This process's value may be hours old, or missing.
        job.view_from_now().await?;
        let record = job.record_from_now().await?;
        let partitions = warm.map(WarmThroughput::partitions).or(job.partitions());
        let now = inner.environment.now().epoch_seconds();
        let decision = policy.decide_reported(&record.metadata, partitions, now);
        Ok(ReportedKey { job, record, decision, partitions })
    }
}

impl ReportedKey<'_> {
    /// The metadata of which the policy decided.
    #[must_use]
    pub fn metadata(&self) -> &ShardMetadata {
        &self.record.metadata
    }

    /// The decision.
    #[must_use]
    pub const fn decision(&self) -> ScalingDecision {
        self.decision
    }

    /// Carries the decision out. `throttled` is the number of reported throttles.
    ///
    /// # Errors
    /// [`TableError`] if the tables could not be used.
    pub async fn carry_out(self, throttled: u64) -> Result<ScaleOutcome, TableError> {
        self.job.inner.claim_once(self.job.deadline).await?;
        let (growth, reason) = (GrowthRecord::default(), ScalingReason::Reported { throttled });
        self.job.carry_out(&self.record, (self.decision, self.partitions), growth, reason).await
    }
}

impl KeyJob<'_> {
    /// Starts to relieve a throttled key in the background, unless this instance is doing so
    /// already.
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
        loop {
            sleep(environment.jitter(CROWD_BACKOFF)).await;
            let now = environment.now();
            let waited = now.since(first_throttle).unwrap_or(MAX_SAMPLING_PERIOD);
            if waited >= MAX_SAMPLING_PERIOD
                || self.state.known().pressure.seen(now.monotonic).pressure.is_sure()
            {
                return;
            }
        }
    }

    async fn relieve_now(&self) -> Result<ScaleOutcome, TableError> {
        let (mut seen, at) = (self.observation(), self.inner.environment.now());
        if seen.pressure.is_calm() {
            return Ok(ScaleOutcome::Unchanged(ScalingDecision::Calm));
        }
        // The page first: of many instances, most find that another one has closed already, and
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
        if !self.inner.config.policy.is_sure(view.layout.number_of_shards, seen) {
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

    fn observation(&self) -> Seen {
        let (partitions, now) = (self.partitions(), self.inner.environment.now().monotonic);
        let mut known = self.state.known();
        known.observe_partitions(partitions, now);
        Seen { partitions, ..known.pressure.seen(now) }
    }

    /// Whether the observations of an instant are outdated: too old, because the process was
    /// suspended since, or from a table with another number of partitions.
    fn is_out_of_date(&self, seen: Seen, at: Moment) -> bool {
        let is_late = self.inner.environment.now().since(at).is_none_or(|age| age > RECHECK_PERIOD);
        is_late || self.partitions() != seen.partitions
    }

    fn partitions(&self) -> Option<u32> {
        self.warm().map(WarmThroughput::partitions)
    }

    /// The table's warm throughput, from the key's page of the directory.
    fn warm(&self) -> Option<WarmThroughput> {
        self.inner.known_page(self.digest())?.known()?.warm
    }

    fn be_quiet(&self, until: u64, is_short: bool) {
        let since = self.inner.environment.now();
        let lasts = Duration::from_secs(until).saturating_sub(since.wall);
        let quiet = Quiet { since, lasts, warm: self.warm(), is_short };
        self.state.known().quiet = Some(quiet);
    }

    /// The pooled observations of the key. An instance with few attempts knows little by itself,
    /// but ten thousand such instances know the demand. It breaks off if another instance has
    /// closed the key, or has reported that the table is short of partitions.
    async fn seen_together(
        &self,
        seen: Seen,
        layout: &Layout,
    ) -> Result<ControlFlow<ScaleOutcome, Seen>, TableError> {
        let now = self.inner.environment.now().epoch_millis();
        let (generation, partitions) = (layout.generation, seen.partitions);
        let pool = Pool { key: self.key, generation, partitions };
        // If many instances find their table short again, each reads, but only one writes.
        let was_short = self.state.known().quiet.is_some_and(|quiet| quiet.is_short);
        if was_short
            && let Ok(together) = self.read_evidence(pool).await
            && let Some(short) = reported_shortage(&together, now)
        {
            return Ok(ControlFlow::Break(short));
        }
        match self.add_evidence(pool, now).await {
            Ok(together) => {
                if let Some(short) = reported_shortage(&together, now) {
                    return Ok(ControlFlow::Break(short));
                }
                let seen = seen.with(&together);
                if self.inner.config.policy.is_sure(layout.number_of_shards, seen) {
                    return Ok(ControlFlow::Continue(seen));
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
        let together = self.read_evidence(pool).await.unwrap_or_default();
        Ok(match reported_shortage(&together, now) {
            Some(short) => ControlFlow::Break(short),
            None => ControlFlow::Continue(seen.with(&together)),
        })
    }

    async fn read_evidence(&self, pool: Pool<'_>) -> Result<Together, TableError> {
        let read = || self.inner.tables.get_evidence(pool);
        self.inner.retrying(self.soon(), read).await
    }

    /// Adds this instance's unreported observations to the pool, and reads it.
    async fn add_evidence(&self, pool: Pool<'_>, now: u64) -> Result<Together, TableError> {
        let at = self.inner.environment.now().monotonic;
        let oldest = now.saturating_sub(millis(OBSERVATION_PERIOD));
        let evidence = {
            let mut known = self.state.known();
            let is_new = known.pool < oldest;
            let rate = known.pressure.seen(at).rate;
            let (seen, items) = known.pressure.take_unreported(at);
            // Each instance counts once.
            Evidence { seen, rate: if is_new { rate as u64 } else { 0 }, items }
        };
        let add = || self.inner.tables.add_evidence(pool, evidence, (now, oldest));
        let together = self.inner.retrying(self.soon(), add).await?;
        self.state.known().pool = together.begun;
        Ok(together)
    }

    fn soon(&self) -> Deadline {
        self.deadline.min(Instant::now() + MAX_SAMPLING_PERIOD / 2)
    }

    /// Reports that the table is short of partitions, unless another instance has just done so.
    async fn report_shortage(
        &self,
        record: &Record,
        partitions: Option<u32>,
        until: u64,
        write_units: Option<u64>,
    ) -> Result<bool, TableError> {
        let (inner, now) = (self.inner, self.inner.environment.now().epoch_millis());
        // The generation as instances see it: a key that is not listed has none.
        let generation = self.view_of(record).layout.generation;
        let pool = Pool { key: self.key, generation, partitions };
        // If the partitions are not known, an instance decides nothing for minutes. Others may have
        // observed that the last growth helped.
        let stands_until = until.saturating_mul(1_000).min(now + millis(MAX_SHORTAGE_PERIOD));
        let latest = now + 2 * millis(MAX_SHORTAGE_PERIOD);
        let claim = || inner.tables.claim_shortage(pool, (now, stands_until, latest));
        let is_first = inner.retrying(self.deadline, claim).await?;
        if is_first {
            tracing::warn!(
                until,
                write_units,
                "the table is short of partitions, not this key of shards"
            );
            // 1 if the number is unknown.
            let needed = write_units.unwrap_or(1);
            histogram!("ShardingShortOfPartitions").record(needed as f64);
        }
        Ok(is_first)
    }

    async fn carry_out(
        &self,
        record: &Record,
        (decision, partitions): (ScalingDecision, Option<u32>),
        growth: GrowthRecord,
        reason: ScalingReason,
    ) -> Result<ScaleOutcome, TableError> {
        match decision {
            ScalingDecision::ScaleOut(to) => {
                tracing::info!(?reason, %to, "scaling out");
                return self.change_width(record, Change::Close { to, growth }, reason).await;
            }
            ScalingDecision::Closing(_) => return self.wait_out(record).await,
            ScalingDecision::Calm => return Ok(ScaleOutcome::Unchanged(decision)),
            ScalingDecision::ShortOfPartitions { until, write_units } => {
                if !self.report_shortage(record, partitions, until, write_units).await? {
                    return Ok(ScaleOutcome::Unchanged(decision));
                }
            }
            ScalingDecision::AtMaximum => counter!("ShardingKeysAtMaxShards").increment(1),
            ScalingDecision::HotItems { items, .. } => {
                tracing::warn!(items, "the throttled writes are of few items: shards do not help");
                counter!("ShardingKeysWithHotItems").increment(1);
            }
            ScalingDecision::CoolingDown { .. }
            | ScalingDecision::NoGain { .. }
            | ScalingDecision::Crowded { .. }
            | ScalingDecision::NotArmed { .. }
            | ScalingDecision::DirectoryFull => {}
        }
        Ok(self.unchanged(record, decision, reason))
    }
}

impl Seen {
    /// These observations of one instance, or those of all if they are more.
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

/// The report of another instance that the table is short of partitions, if it is valid now. `now`
/// is in epoch milliseconds.
fn reported_shortage(together: &Together, now: u64) -> Option<ScaleOutcome> {
    // A report that is valid for longer than possible was written by a wrong clock.
    let latest = now + 2 * millis(MAX_SHORTAGE_PERIOD);
    let until = together.short_until.filter(|until| (now + 1..=latest).contains(until))?;
    let until = until.div_ceil(1_000);
    Some(ScaleOutcome::Unchanged(ScalingDecision::ShortOfPartitions { until, write_units: None }))
}
