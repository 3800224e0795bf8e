//! Changing the width: docs/protocol.md, "Changing the width: close, wait, open"; and carrying out
//! what the policy decided.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use metrics::{counter, histogram};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::engine::Maintenance;
use crate::engine::environment::millis;
use crate::engine::job::KeyJob;
use crate::engine::views::keys::{CHANGE_TIMEOUT, Record};
use crate::engine::width::{
    MAX_SHORTAGE_PERIOD, ScaleOutcome, ScalingEvent, ScalingReason, ScalingStep,
};
use crate::policy::decision::ScalingDecision;
use crate::protocol::growth::GrowthRecord;
use crate::protocol::layout::Layout;
use crate::protocol::metadata::{Change, ShardMetadata};
use crate::table::error::{TableError, unless_refused};
use crate::table::{ATTEMPT_TIMEOUT, Pool, RawMetadata};
use crate::values::key::{PartitionKey, ShardCount};
use crate::values::throughput::WarmThroughput;

/// The time that an actor allows for its requests between a close and its open.
const OPENING_TIME: Duration = Duration::from_millis(20);
/// How often writers that wait for an open check for it, and the longest random pause on top.
const POLL_PERIOD: Duration = Duration::from_millis(100);

/// A key that a report names, and the policy's decision about it.
pub struct ReportedKey<'a> {
    job: KeyJob<'a>,
    record: Arc<Record>,
    decision: ScalingDecision,
    partitions: Option<u32>,
}

impl Maintenance {
    /// Decides by the policy about a key that a report names as throttled: twice the shards, if
    /// that can help. Changes nothing. `warm` is the table's warm throughput if the caller knows
    /// it; otherwise the [published](Self::publish_warm_throughput) one counts.
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
        let partitions = warm.map(WarmThroughput::partitions).or_else(|| job.partitions());
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

fn still_changing() -> TableError {
    TableError::Transient("the key's width was changing until the deadline".into())
}

impl KeyJob<'_> {
    pub(crate) fn change_width<'a>(
        &'a self,
        record: &'a Record,
        close: Change,
        reason: ScalingReason,
    ) -> BoxFuture<'a, Result<ScaleOutcome, TableError>> {
        Box::pin(async move {
            if !record.exists {
                self.check_is_new(self.deadline).await?;
            }
            if let Some(from) = self.not_armed_before().await? {
                return Ok(self.unchanged(record, ScalingDecision::NotArmed { from }, reason));
            }
            if !self.is_in_step(record).await? {
                return Ok(ScaleOutcome::Superseded);
            }
            let is_listed = record.metadata.layout().is_listed(self.inner.config.adopt_shards);
            let known_page = || self.inner.known_page(self.digest())?.known();
            if known_page().is_some_and(|page| !page.has_room(is_listed)) {
                tracing::error!(
                    key = self.key.as_str(),
                    "the key's page of the directory is full: the key cannot grow"
                );
                return Ok(self.unchanged(record, ScalingDecision::DirectoryFull, reason));
            }
            let Some(closed) = self.step(record, &close).await? else {
                return Ok(ScaleOutcome::Superseded);
            };
            if let Some(to) = closed.closing() {
                self.report(closed.number_of_shards, ScalingStep::Closed(to), reason);
            }
            self.open(&closed, reason).await
        })
    }

    pub(crate) fn report(&self, from: ShardCount, step: ScalingStep, reason: ScalingReason) {
        let partition_key = self.key.clone();
        // Often there is no receiver.
        let _ = self.inner.scaling_events.send(ScalingEvent { partition_key, from, step, reason });
    }

    fn unchanged(
        &self,
        record: &Record,
        decision: ScalingDecision,
        reason: ScalingReason,
    ) -> ScaleOutcome {
        let from = record.metadata.number_of_shards;
        self.report(from, ScalingStep::Unchanged(decision), reason);
        ScaleOutcome::Unchanged(decision)
    }

    /// Waits until the key's next era has begun and this job has a view of it. If that takes too
    /// long, a background task takes the closing over. Concurrent jobs share one check.
    pub(crate) async fn wait_until_open(&self) -> Result<(), TableError> {
        let Ok(_turn) = timeout_at(self.deadline, self.state.opening_turn.lock()).await else {
            return Err(still_changing());
        };
        let environment = &self.inner.environment;
        let mut watched: Option<(u64, Instant)> = None;
        loop {
            let view = match self.known_view() {
                // Another request may have observed the open while this one waited for its turn.
                Some(view) if watched.is_none() => view,
                _ => self.view_from_now().await?,
            };
            let layout = &view.layout;
            if layout.closing.is_none() {
                return Ok(());
            }
            // The wait counts from when this closing was first observed.
            watched.take_if(|(generation, _)| *generation != layout.generation);
            let seen = (layout.era, layout.generation);
            let (_, ends) =
                *watched.get_or_insert_with(|| (layout.generation, self.patience(seen)));
            if Instant::now() >= ends {
                // If the item is lost, the waiting request must fail.
                let record = self.record_from_now().await?;
                let is_ahead = record.metadata.generation > layout.generation;
                // Not within this request, which may end before the wait does.
                self.in_background(&self.state.is_taking_over, move |inner, key| async move {
                    let job = inner.job(&key, Instant::now() + CHANGE_TIMEOUT);
                    // If the item is further on, its actor may have died before it wrote the page.
                    let done = if is_ahead {
                        job.repair_later().await
                    } else {
                        job.take_over(&record).await.map(drop)
                    };
                    if let Err(error) = done {
                        tracing::warn!(%error, "could not take over the closing; a waiting writer tries again");
                    }
                });
                watched = Some((layout.generation, self.patience(seen)));
                continue;
            }
            // The closing does not open before that. A wrong clock must not make this wait long.
            let now = environment.now().epoch_millis();
            let left = layout.opens_at.map_or(0, |at| at.saturating_sub(now));
            let left = Duration::from_millis(left).min(environment.opening_wait);
            let next =
                ends.min(Instant::now() + left.max(POLL_PERIOD) + environment.jitter(POLL_PERIOD));
            if next >= self.deadline {
                return Err(still_changing());
            }
            sleep_until(next).await;
        }
    }

    /// As [`wait_until_open`](Self::wait_until_open), for a closing in the key's item that its page
    /// may not have.
    pub(crate) async fn wait_out(&self, record: &Record) -> Result<ScaleOutcome, TableError> {
        let ends = self.patience((record.metadata.era, record.metadata.generation));
        if ends >= self.deadline {
            return Err(still_changing());
        }
        sleep_until(ends).await;
        let now = self.record_from_now().await?;
        if now.metadata.generation == record.metadata.generation {
            return self.take_over(&now).await;
        }
        Ok(ScaleOutcome::Superseded)
    }

    /// When an observer of this closing, by its era and generation, takes it over.
    fn patience(&self, (era, generation): (u64, u64)) -> Instant {
        let environment = &self.inner.environment;
        let pause = self.state.known().conflicts.observe(era, generation);
        Instant::now() + environment.opening_wait + pause + environment.jitter(pause)
    }

    /// Takes over a closing whose actor may have died: closes again, so that only one actor opens.
    async fn take_over(&self, record: &Record) -> Result<ScaleOutcome, TableError> {
        if !self.is_in_step(record).await? {
            return Ok(ScaleOutcome::Superseded);
        }
        let Some(closed) = self.step(record, &Change::CloseAgain).await? else {
            return Ok(ScaleOutcome::Superseded);
        };
        self.open(&closed, ScalingReason::TakenOver).await
    }

    /// Before a change: whether the page is not ahead of the item. `false` if another actor is
    /// changing the key. [`TableError::Lost`] if the item is missing, or older than the page's
    /// entry.
    pub(crate) async fn is_in_step(&self, record: &Record) -> Result<bool, TableError> {
        let listed = self.view_from_now().await?.layout.generation;
        if listed <= record.metadata.generation {
            return Ok(true);
        }
        if self.record_from_now().await?.metadata.generation < listed {
            let why = "its item is gone, or older than its page of the directory";
            return Err(TableError::Lost(why.to_owned()));
        }
        Ok(false)
    }

    /// Once all views from before the closing have expired. Every copy of the page has the closing.
    pub(crate) async fn open(
        &self,
        closed: &ShardMetadata,
        reason: ScalingReason,
    ) -> Result<ScaleOutcome, TableError> {
        sleep(self.inner.environment.opening_wait).await;
        let (from, open) = (closed.number_of_shards, Change::Open);
        let change = || self.change_from(closed, (Some(closed), None), &open);
        // The actor that closed it tries to open it, even if its time is over.
        let deadline = self.deadline.max(Instant::now() + ATTEMPT_TIMEOUT);
        if let Some(opened) = self.inner.retrying(deadline, change).await? {
            let to = opened.number_of_shards;
            if to > from {
                counter!("ShardingScaleOuts").increment(1);
                histogram!("ShardingWidth").record(f64::from(to.get()));
            }
            self.report(from, ScalingStep::Opened(to), reason);
            return Ok(ScaleOutcome::Scaled { from, to });
        }
        // Another actor opened it, or an earlier attempt of this one that got no response.
        let now = &self.record_from_now().await?.metadata;
        let to = now.number_of_shards;
        let is_opened = now.era == closed.era + 1 && closed.closing() == Some(to);
        self.publish_if_behind(now.layout()).await?;
        Ok(if is_opened { ScaleOutcome::Scaled { from, to } } else { ScaleOutcome::Superseded })
    }

    /// One change of a key's item. `None` if another actor has changed it since it was read.
    pub(crate) async fn step(
        &self,
        record: &Record,
        change: &Change,
    ) -> Result<Option<ShardMetadata>, TableError> {
        self.change_from(&record.metadata, (record.stored_metadata(), None), change).await
    }

    /// From metadata that may differ from the stored one. On return every copy of the key's page
    /// has the new layout.
    pub(crate) async fn change_from(
        &self,
        before: &ShardMetadata,
        (seen, damaged): (Option<&ShardMetadata>, Option<&RawMetadata>),
        change: &Change,
    ) -> Result<Option<ShardMetadata>, TableError> {
        let asked_at = self.inner.environment.now();
        let Some(next) = before.apply(change, asked_at.epoch_seconds()) else { return Ok(None) };
        let written = self.inner.tables.write_metadata(self.key, seen, damaged, &next).await;
        if unless_refused(written)?.is_none() {
            return Ok(None);
        }
        // The result is newer than the instant before the request was sent.
        let record = Arc::new(Record { metadata: next.clone(), exists: true, asked_at });
        self.learn_record(&record);
        self.learn(self.view_of(&record));
        let opens_at = asked_at.wall + self.inner.environment.opening_wait + OPENING_TIME;
        let opens_at = next.closing().map(|_| millis(opens_at));
        let layout = Layout { opens_at, ..next.layout() };
        self.publish(layout).await?;
        Ok(Some(next))
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

    pub(super) async fn carry_out(
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
