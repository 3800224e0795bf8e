//! Changing a key's width: close, wait, open.
//!
//! *Close* names the next width, and writers pause. Then the actor waits until all earlier views
//! have expired, and *open* begins the next era. No clocks of different machines are compared: the
//! actor counts the wait on its own clock, from the response to the close, when every copy of the
//! key's page has the closing. So an actor may die at any point: another one that finds its closing
//! closes again and continues.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::events::{ScalingReason, ScalingStep};
use super::keys::{KeyJob, KeyState, Quiet};
use super::retry::{Backoff, retrying};
use super::views::Record;
use super::{Deadline, Inner, TableEngine};
use crate::core::growth::GrowthRecord;
use crate::core::key::{PartitionKey, ShardCount};
use crate::core::policy::{
    LONGEST_GATHERING, LOOK_AGAIN, ScalingDecision, ScalingPolicy, TOGETHER,
};
use crate::core::pressure::{Pressure, Seen};
use crate::core::throughput::WarmThroughput;
use crate::protocol::layout::Layout;
use crate::protocol::metadata::{Change, ShardMetadata};
use crate::protocol::view::{CROWD_BACKOFF, Moment, OBSERVER_PAUSE};
use crate::table::error::TableError;
use crate::table::{Evidence, RawMetadata, Shortage, Together};
use crate::telemetry;

/// The longest time for the whole change before its actor gives up and leaves it to others.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time that an actor allows for its requests between a close and its open.
const OPENING_TIME: Duration = Duration::from_millis(20);
/// How often writers that wait for an open check for it, and the longest random pause on top.
const POLL: Duration = Duration::from_millis(100);
/// Older observations do not count, because the process may have been suspended since.
const LONGEST_DECISION: Duration = Duration::from_secs(10);
/// The longest that one report of a shortage keeps other instances from deciding themselves.
const LONGEST_SHORTAGE: Duration = Duration::from_secs(5);
/// Pooled observations older than this are discarded.
pub const EVIDENCE_LASTS: Duration = Duration::from_secs(2);

/// The result of a request to change a key's shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    #[error("the key has {now} shards; a lower number is a shrink: begin one instead")]
    Lower {
        /// The present write width.
        now: ShardCount,
    },
    /// The tables could not be used.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl TableEngine {
    /// Raises a key to a number of shards ahead of a known peak. Returns when writers may use them.
    ///
    /// # Errors
    /// [`ScaleError`]. A number below the present one is refused.
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
        self.inner.claimed(None, deadline).await?;
        let mut from = None;
        loop {
            let record = job.record_from_now().await?;
            let now = record.metadata.number_of_shards;
            let from = *from.get_or_insert(now);
            if record.metadata.closing().is_some() {
                job.wait_out(&record).await?;
            } else if to > now {
                let growth = Change::Close { to, growth: GrowthRecord::default() };
                if let ScaleOutcome::Unchanged(full) =
                    job.change_width(&record, growth, ScalingReason::Asked).await?
                {
                    return Ok(ScaleOutcome::Unchanged(full));
                }
            } else if from < now {
                return Ok(ScaleOutcome::Scaled { from, to: now });
            } else if to < now {
                return Err(ScaleError::Lower { now });
            } else {
                return Ok(ScaleOutcome::Unchanged(ScalingDecision::Calm));
            }
        }
    }

    /// Applies the policy to observations of a key, and makes the change.
    ///
    /// # Errors
    /// [`ScaleError::Table`] if the tables could not be used.
    pub async fn scale_by_policy(
        &self,
        key: &PartitionKey,
        seen: Pressure,
        deadline: Deadline,
    ) -> Result<ScaleOutcome, ScaleError> {
        let scaled = self.scale_by_report(key, |_| Ok::<_, ScaleOutcome>(seen), deadline).await?;
        Ok(scaled.unwrap_or_else(|outcome| outcome))
    }

    /// As [`scale_by_policy`](Self::scale_by_policy), if the observations depend on the key's
    /// metadata, which is read once: `judge` converts it into a pressure, or into a reason to leave
    /// the key alone.
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
        self.inner.claimed(None, deadline).await?;
        // It has the table's warm throughput. This process's value may be hours old, or missing.
        job.view_from_now().await?;
        let record = job.record_from_now().await?;
        match judge(&record.metadata) {
            Ok(pressure) => {
                let seen = Seen { partitions: job.partitions(), ..pressure.into() };
                Ok(Ok(job.apply_policy(&record, seen, ScalingReason::Reported(pressure)).await?))
            }
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// A page of the keys that have metadata, in no order, and the key to continue after. One
    /// request. A key that is registered meanwhile may be missing. A key whose metadata is damaged
    /// is missing: the log names it, and a rebuild repairs it.
    ///
    /// # Errors
    /// [`TableError`] if the metadata could not be read.
    pub async fn list_keys(
        &self,
        after: Option<&PartitionKey>,
        deadline: Deadline,
    ) -> Result<(Vec<(PartitionKey, ShardMetadata)>, Option<PartitionKey>), TableError> {
        let inner = &self.inner;
        let (keys, next) =
            retrying(&inner.environment, deadline, || inner.tables.list_metadata(after)).await?;
        let readable = keys.into_iter().filter_map(|(key, raw)| match raw.parse() {
            Ok(metadata) => Some((key, metadata)),
            Err(error) => {
                tracing::error!(key = key.as_str(), %error, "the metadata of a key is left out; rebuild it");
                None
            }
        });
        Ok((readable.collect(), next))
    }

    /// Reads a key's metadata, not older than this call. `None` if the key has no item: it has
    /// never grown.
    ///
    /// # Errors
    /// [`TableError::Lost`] if the key's page of the directory lists it and the item is missing;
    /// another [`TableError`] if the metadata could not be read.
    pub async fn shards(
        &self,
        key: &PartitionKey,
        deadline: Deadline,
    ) -> Result<Option<ShardMetadata>, TableError> {
        let job = self.inner.job(key, deadline);
        let mut record = job.record_from_now().await?;
        // If the page lists the key, it has just grown, or its item is lost. The second read
        // decides.
        if !record.exists && job.leased_or_new_view().await?.layout.generation > 0 {
            record = job.record_from_now().await?;
        }
        Ok(record.seen().cloned())
    }
}

/// The pooled observations of a key, and what follows from them at once.
enum SeenTogether {
    /// Decide from this.
    Pressure(Pressure),
    /// Another instance has closed the key.
    Closing,
    /// Another instance has reported that the table is short of partitions.
    Short {
        /// Epoch seconds.
        until: u64,
    },
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl KeyJob<'_> {
    /// Starts to relieve a throttled key in the background, unless this instance is doing so
    /// already.
    pub(super) fn relieve(&self) {
        let (warm, now) = (self.warm(), self.inner.environment.now());
        let is_quiet = {
            let mut known = self.state.known();
            known.observe_partitions(warm.map(WarmThroughput::partitions), now.monotonic);
            known.quiet.is_some_and(|quiet| quiet.holds(warm, now))
        };
        if is_quiet || !self.inner.config.scaling.includes_writer() {
            return;
        }
        self.in_background(&self.state.scaling, |inner, key, state| async move {
            inner.gather(&state).await;
            let job = KeyJob::new(&inner, &key, state, Instant::now() + PATIENCE);
            match job.relieve_now().await {
                Ok(ScaleOutcome::Scaled { from, to }) => tracing::info!(%from, %to, "scaled out"),
                Ok(ScaleOutcome::Unchanged(ScalingDecision::CoolingDown { until })) => job.be_quiet(until, false),
                Ok(ScaleOutcome::Unchanged(ScalingDecision::ShortOfPartitions { until, .. })) => {
                    job.be_quiet(until, true);
                }
                Ok(ScaleOutcome::Unchanged(ScalingDecision::AtMaximum | ScalingDecision::DirectoryFull)) => {
                    let again = inner.environment.now().wall + LOOK_AGAIN;
                    job.be_quiet(again.as_secs(), false);
                }
                Ok(ScaleOutcome::Unchanged(_) | ScaleOutcome::Superseded) => {}
                Err(error) => tracing::warn!(%error, "could not scale out; the next throttled write tries again"),
            }
        });
    }

    async fn relieve_now(&self) -> Result<ScaleOutcome, TableError> {
        let (mut seen, at) = (self.seen(), self.inner.environment.now());
        if ScalingPolicy::is_calm(seen) {
            return Ok(ScaleOutcome::Unchanged(ScalingDecision::Calm));
        }
        // The page first: of many instances, most find that another one has closed already, and
        // leave the key's items alone.
        let view = self.view_from_now().await?;
        if view.layout.closing.is_some() {
            return self.wait_for_open().await;
        }
        if self.is_out_of_date(seen, at) {
            return Ok(ScaleOutcome::Superseded);
        }
        if !ScalingPolicy::is_sure(seen.pressure) {
            seen.pressure = match self.seen_together(seen, view.layout.generation).await? {
                SeenTogether::Pressure(together) => together,
                SeenTogether::Closing => return self.wait_for_open().await,
                SeenTogether::Short { until } => {
                    let short = ScalingDecision::ShortOfPartitions { until, write_units: None };
                    return Ok(ScaleOutcome::Unchanged(short));
                }
            };
            if ScalingPolicy::is_calm(seen) {
                self.be_quiet(
                    self.inner.environment.now().epoch_seconds() + EVIDENCE_LASTS.as_secs(),
                    false,
                );
                return Ok(ScaleOutcome::Unchanged(ScalingDecision::Calm));
            }
        }
        let record = self.record_from_now().await?;
        if self.is_out_of_date(seen, at) {
            return Ok(ScaleOutcome::Superseded);
        }
        self.apply_policy(&record, seen, ScalingReason::Throttled(seen.pressure)).await
    }

    fn seen(&self) -> Seen {
        let (partitions, now) = (self.partitions(), self.inner.environment.now().monotonic);
        let mut known = self.state.known();
        known.observe_partitions(partitions, now);
        Seen { partitions, ..known.pressure.seen(now) }
    }

    /// Whether the observations of an instant are outdated: too old, or from a table with another
    /// number of partitions.
    fn is_out_of_date(&self, seen: Seen, at: Moment) -> bool {
        let is_late =
            self.inner.environment.now().since(at).is_none_or(|age| age > LONGEST_DECISION);
        is_late || self.partitions() != seen.partitions
    }

    /// The table's number of partitions, from the key's page of the directory.
    fn partitions(&self) -> Option<u32> {
        self.warm().map(WarmThroughput::partitions)
    }

    /// The table's warm throughput, from the key's page of the directory.
    fn warm(&self) -> Option<WarmThroughput> {
        self.inner.known_page(self.key)?.known()?.warm()
    }

    /// Makes no decision before that epoch second.
    fn be_quiet(&self, until: u64, is_short: bool) {
        let since = self.inner.environment.now();
        let lasts = Duration::from_secs(until).saturating_sub(since.wall);
        let quiet = Quiet { since, lasts, warm: self.warm(), is_short };
        self.state.known().quiet = Some(quiet);
    }

    fn now_millis(&self) -> u64 {
        millis(self.inner.environment.now().wall)
    }

    /// The pooled observations of the key. An instance with few attempts knows little by itself,
    /// but ten thousand such instances know the demand.
    async fn seen_together(&self, seen: Seen, generation: u64) -> Result<SeenTogether, TableError> {
        let (inner, now) = (self.inner, self.now_millis());
        let Seen { pressure: own, partitions, .. } = seen;
        let soon = || self.deadline.min(Instant::now() + TOGETHER);
        let read = || {
            retrying(&inner.environment, soon(), || {
                inner.tables.get_evidence(self.key, generation, partitions)
            })
        };
        let short = |together: Together| {
            // A report that is valid for longer than possible was written by a wrong clock.
            let latest = now + 2 * millis(LONGEST_SHORTAGE);
            let until = together.short_until.filter(|until| (now + 1..=latest).contains(until))?;
            Some(SeenTogether::Short { until: until.div_ceil(1_000) })
        };
        // If many instances find their table short again, each reads, but only one writes.
        let was_short = self.state.known().quiet.is_some_and(|quiet| quiet.is_short);
        if was_short && let Some(short) = read().await.ok().and_then(short) {
            return Ok(short);
        }
        let untold = self.state.known().pressure.take_untold(inner.environment.now().monotonic);
        let evidence = Evidence {
            seen: untold,
            generation,
            partitions,
            now,
            oldest: now.saturating_sub(millis(EVIDENCE_LASTS)),
        };
        let add =
            retrying(&inner.environment, soon(), || inner.tables.add_evidence(self.key, evidence))
                .await;
        match add {
            Ok(together) => {
                if let Some(short) = short(together) {
                    return Ok(short);
                }
                if ScalingPolicy::is_sure(together.seen) {
                    return Ok(SeenTogether::Pressure(together.seen));
                }
            }
            // Enough instances add their observations without this one.
            Err(error) if error.is_retryable() => {
                return Ok(SeenTogether::Pressure(Pressure::default()));
            }
            Err(error) => return Err(error),
        }
        // The other instances need a moment for theirs.
        sleep(TOGETHER).await;
        if self.view_from_now().await?.layout.closing.is_some() {
            return Ok(SeenTogether::Closing);
        }
        let together = read().await.unwrap_or_default();
        Ok(short(together).unwrap_or_else(|| {
            let is_more = together.seen.attempts > own.attempts;
            SeenTogether::Pressure(if is_more { together.seen } else { own })
        }))
    }

    /// Reports that the table is short of partitions, unless another instance has just done so.
    async fn report_shortage(
        &self,
        record: &Record,
        partitions: Option<u32>,
        until: u64,
        write_units: Option<u64>,
    ) -> Result<bool, TableError> {
        let (inner, now) = (self.inner, self.now_millis());
        // The generation as instances see it: a key that is not listed has none.
        let generation = self.view_of(record).layout.generation;
        // If the partitions are not known, an instance decides nothing for minutes. Others may have
        // observed that the last growth helped.
        let stands_until = until.saturating_mul(1_000).min(now + millis(LONGEST_SHORTAGE));
        let latest = now + 2 * millis(LONGEST_SHORTAGE);
        let shortage = Shortage { generation, partitions, now, until: stands_until, latest };
        let claim = || inner.tables.claim_shortage(self.key, shortage);
        let is_first = retrying(&inner.environment, self.deadline, claim).await?;
        if is_first {
            tracing::warn!(
                until,
                write_units,
                "the table is short of partitions, not this key of shards"
            );
            telemetry::short_of_partitions(write_units);
        }
        Ok(is_first)
    }

    async fn apply_policy(
        &self,
        record: &Record,
        seen: Seen,
        reason: ScalingReason,
    ) -> Result<ScaleOutcome, TableError> {
        let (metadata, policy) = (&record.metadata, &self.inner.config.policy);
        let decision = policy.decide(metadata, seen, self.inner.environment.now().epoch_seconds());
        match decision {
            ScalingDecision::ScaleOut(to) => {
                tracing::info!(attempts = seen.pressure.attempts, throttled = seen.pressure.throttled, %to, "scaling out");
                let growth = Change::Close { to, growth: policy.record(metadata, seen) };
                return self.change_width(record, growth, reason).await;
            }
            ScalingDecision::Closing(_) => return self.wait_out(record).await,
            ScalingDecision::Calm => return Ok(ScaleOutcome::Unchanged(decision)),
            ScalingDecision::ShortOfPartitions { until, write_units } => {
                if !self.report_shortage(record, seen.partitions, until, write_units).await? {
                    return Ok(ScaleOutcome::Unchanged(decision));
                }
            }
            ScalingDecision::AtMaximum => telemetry::at_max_shards(),
            ScalingDecision::CoolingDown { .. } | ScalingDecision::DirectoryFull => {}
        }
        self.inner.tell(
            self.key,
            metadata.number_of_shards,
            ScalingStep::Unchanged(decision),
            reason,
        );
        Ok(ScaleOutcome::Unchanged(decision))
    }

    /// Close, wait, open.
    pub(super) async fn change_width(
        &self,
        record: &Record,
        close: Change,
        reason: ScalingReason,
    ) -> Result<ScaleOutcome, TableError> {
        if !record.exists {
            self.is_certainly_new().await?;
        }
        if !self.is_in_step(record).await? {
            return Ok(ScaleOutcome::Superseded);
        }
        let is_listed = record.metadata.layout().is_listed(self.inner.config.adopt_shards);
        let known_page = || self.inner.known_page(self.key)?.known();
        if known_page().is_some_and(|page| !page.has_room(is_listed)) {
            tracing::error!(
                key = self.key.as_str(),
                "the key's page of the directory is full: the key cannot grow"
            );
            let full = ScalingDecision::DirectoryFull;
            self.inner.tell(
                self.key,
                record.metadata.number_of_shards,
                ScalingStep::Unchanged(full),
                reason,
            );
            return Ok(ScaleOutcome::Unchanged(full));
        }
        let Some(closed) = self.step(record, &close).await? else {
            return Ok(ScaleOutcome::Superseded);
        };
        if let Some(to) = closed.closing() {
            self.inner.tell(self.key, closed.number_of_shards, ScalingStep::Closed(to), reason);
        }
        // Every copy of the page has the closing. Now the wait for all earlier views begins.
        sleep(self.inner.environment.opening_wait()).await;
        self.open(&closed, reason).await
    }

    /// Waits until a key's next era has begun and this job has a view of it. If that takes too
    /// long, a background task takes the closing over. Concurrent jobs share one check.
    pub(super) async fn wait_for_open(&self) -> Result<ScaleOutcome, TableError> {
        let late =
            || TableError::Transient("the key's width was changing until the deadline".into());
        let Ok(_turn) = timeout_at(self.deadline, self.state.opening.lock()).await else {
            return Err(late());
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
                return Ok(ScaleOutcome::Superseded);
            }
            // The wait counts from when this closing was first observed.
            watched.take_if(|(generation, _)| *generation != layout.generation);
            let (_, ends) = *watched.get_or_insert_with(|| (layout.generation, self.patience()));
            if Instant::now() >= ends {
                // If the item is lost, the waiting request must fail.
                let (record, watched_generation) =
                    (self.record_from_now().await?, layout.generation);
                // Not within this request, which may end before the wait does.
                self.in_background(&self.state.taking_over, move |inner, key, state| async move {
                    let job = KeyJob::new(&inner, &key, state, Instant::now() + PATIENCE);
                    if let Err(error) = job.take_over_or_repair(&record, watched_generation).await {
                        tracing::warn!(%error, "could not take a closing over; who waits for it longest tries again");
                    }
                });
                watched = Some((layout.generation, self.patience()));
                continue;
            }
            // The closing does not open before that. A wrong clock must not make this wait long.
            let now = millis(environment.now().wall);
            let left = layout.opens_at.map_or(0, |at| at.saturating_sub(now));
            let left = Duration::from_millis(left).min(environment.opening_wait());
            let next = ends.min(Instant::now() + left.max(POLL) + environment.jitter(POLL));
            if next >= self.deadline {
                return Err(late());
            }
            sleep_until(next).await;
        }
    }

    /// As [`wait_for_open`](Self::wait_for_open), for a closing that was read in the key's item and
    /// may be missing in its page.
    async fn wait_out(&self, record: &Record) -> Result<ScaleOutcome, TableError> {
        let ends = self.patience();
        if ends >= self.deadline {
            return Err(TableError::Transient(
                "the key's width was changing until the deadline".into(),
            ));
        }
        sleep_until(ends).await;
        let now = self.record_from_now().await?;
        if now.metadata.generation == record.metadata.generation {
            return self.take_over(&now).await;
        }
        Ok(ScaleOutcome::Superseded)
    }

    /// The instant from which on an observer of a closing takes it over.
    fn patience(&self) -> Instant {
        let environment = &self.inner.environment;
        Instant::now()
            + environment.opening_wait()
            + OBSERVER_PAUSE
            + environment.jitter(OBSERVER_PAUSE)
    }

    /// Takes over the observed closing. If the key's item is further on, its actor may have died
    /// before it wrote the page: then this writes the item's layout to the page.
    async fn take_over_or_repair(&self, record: &Record, watched: u64) -> Result<(), TableError> {
        if record.metadata.generation > watched {
            return self.repair().await;
        }
        self.take_over(record).await.map(drop)
    }

    /// Takes over a closing whose actor may have died: closes again, so that only one actor opens,
    /// waits and opens.
    async fn take_over(&self, record: &Record) -> Result<ScaleOutcome, TableError> {
        if !self.is_in_step(record).await? {
            return Ok(ScaleOutcome::Superseded);
        }
        let Some(closed) = self.step(record, &Change::CloseAgain).await? else {
            return Ok(ScaleOutcome::Superseded);
        };
        sleep(self.inner.environment.opening_wait()).await;
        self.open(&closed, ScalingReason::TakenOver).await
    }

    /// Before a change that uses the key's item: whether the key's page is not ahead of the item.
    /// `false` if another actor is changing the key.
    ///
    /// # Errors
    /// [`TableError::Lost`] if the item is missing, or older than the page's entry.
    pub(super) async fn is_in_step(&self, record: &Record) -> Result<bool, TableError> {
        let told = self.view_from_now().await?.layout.generation;
        if told <= record.metadata.generation {
            return Ok(true);
        }
        if self.record_from_now().await?.metadata.generation < told {
            return Err(TableError::Lost(
                "its item is gone, or older than its page of the directory".into(),
            ));
        }
        Ok(false)
    }

    pub(super) async fn open(
        &self,
        closed: &ShardMetadata,
        reason: ScalingReason,
    ) -> Result<ScaleOutcome, TableError> {
        let from = closed.number_of_shards;
        let mut backoff = Backoff::default();
        loop {
            match self.change(Some(closed), &Change::Open).await {
                Ok(Some(opened)) => {
                    let to = opened.number_of_shards;
                    if to > from {
                        telemetry::scaled_out(to);
                    }
                    self.inner.tell(self.key, from, ScalingStep::Opened(to), reason);
                    return Ok(ScaleOutcome::Scaled { from, to });
                }
                // Another actor opened it, or an earlier attempt of this one that got no response.
                Ok(None) => {
                    let now = &self.record_from_now().await?.metadata;
                    let to = now.number_of_shards;
                    let is_opened = now.era == closed.era + 1 && closed.closing() == Some(to);
                    self.inner.publish(self.key, now.layout(), self.deadline).await?;
                    return Ok(if is_opened {
                        ScaleOutcome::Scaled { from, to }
                    } else {
                        ScaleOutcome::Superseded
                    });
                }
                Err(error) if error.is_retryable() && Instant::now() < self.deadline => {
                    sleep(backoff.next(&self.inner.environment)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One change of a key's item, if it is unchanged since it was read. `None` if another actor
    /// was first.
    pub(super) async fn step(
        &self,
        record: &Record,
        change: &Change,
    ) -> Result<Option<ShardMetadata>, TableError> {
        self.change(record.seen(), change).await
    }

    /// As [`step`](Self::step), from metadata that is known to be stored.
    pub(super) async fn change(
        &self,
        seen: Option<&ShardMetadata>,
        change: &Change,
    ) -> Result<Option<ShardMetadata>, TableError> {
        let nothing = ShardMetadata::unregistered_with(self.inner.config.adopt_shards);
        self.change_from(seen.unwrap_or(&nothing), (seen, None), change).await
    }

    /// As [`change`](Self::change), from metadata that may differ from the stored one. On return
    /// every copy of the key's page has the new layout.
    pub(super) async fn change_from(
        &self,
        before: &ShardMetadata,
        (seen, damaged): (Option<&ShardMetadata>, Option<&RawMetadata>),
        change: &Change,
    ) -> Result<Option<ShardMetadata>, TableError> {
        let asked_at = self.inner.environment.now();
        let Some(next) = before.apply(change, asked_at.epoch_seconds()) else { return Ok(None) };
        match self.inner.tables.write_metadata(self.key, seen, damaged, &next).await {
            Ok(()) => {
                // The result is newer than the instant before the request was sent.
                let record = Arc::new(Record { metadata: next.clone(), exists: true, asked_at });
                self.learn_record(&record);
                self.state.learn(self.view_of(&record));
                let opens_at = asked_at.wall + self.inner.environment.opening_wait() + OPENING_TIME;
                let opens_at = next.closing().map(|_| millis(opens_at));
                let layout = Layout { opens_at, ..next.layout() };
                self.inner.publish(self.key, layout, self.deadline).await?;
                Ok(Some(next))
            }
            Err(TableError::ConditionFailed) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Inner {
    /// Waits a random pause, and again until there are enough observations to decide.
    async fn gather(&self, state: &KeyState) {
        let first_throttle = self.environment.now();
        loop {
            sleep(self.environment.jitter(CROWD_BACKOFF)).await;
            let now = self.environment.now();
            let waited = now.since(first_throttle).unwrap_or(LONGEST_GATHERING);
            if waited >= LONGEST_GATHERING
                || ScalingPolicy::is_sure(state.known().pressure.seen(now.monotonic).pressure)
            {
                return;
            }
        }
    }
}
