//! Changing a key's width: docs/protocol.md, "Changing the width: close, wait, open". Each change
//! of this instance is an event, for programs that show them.

pub(crate) mod by_policy;

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, histogram};
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::config::width_history::WidthHistory;
use crate::engine::environment::Backoff;
use crate::engine::job::KeyJob;
use crate::engine::maintenance::Maintenance;
use crate::engine::views::Record;
use crate::engine::views::keys::CHANGE_TIMEOUT;
use crate::policy::decision::ScalingDecision;
use crate::policy::pressure::Pressure;
use crate::protocol::growth::GrowthRecord;
use crate::protocol::layout::Layout;
use crate::protocol::metadata::{Change, ShardMetadata};
use crate::table::error::{TableError, unless_refused};
use crate::table::{ATTEMPT_TIMEOUT, RawMetadata};
use crate::values::key::{PartitionKey, ShardCount};

/// The time that an actor allows for its requests between a close and its open.
const OPENING_TIME: Duration = Duration::from_millis(20);
/// How often writers that wait for an open check for it, and the longest random pause on top.
const POLL_PERIOD: Duration = Duration::from_millis(100);
/// The number of events that are kept for a slow receiver. It misses older ones.
pub(in crate::engine) const MAX_KEPT_EVENTS: usize = 256;

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
        /// The number of throttled requests in it.
        throttled: u64,
    },
    /// A caller asked for a number of shards.
    Asked,
    /// A closing was found that lasted longer than it should.
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

    /// Reads the widths that a key has had. The decoder of the table's stream,
    /// `dynamodb-write-sharding-stream`, needs them to distinguish the changes of users from the
    /// product's own. Strongly consistent.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata).
    pub async fn width_history(&self, key: &PartitionKey) -> Result<WidthHistory, TableError> {
        let read_at = self.engine.now().epoch_seconds();
        let metadata = self.metadata(key).await?;
        Ok(WidthHistory::of(metadata.as_ref(), self.engine.config(), read_at))
    }

    /// Raises a key to this number of shards ahead of a known peak, and says what was done. Writers
    /// use them then. This takes about a second and a half. Any outcome but
    /// [`Scaled`](ScaleOutcome::Scaled) and `Unchanged(Calm)` says why the key did not grow. Check
    /// a user's key with [`TableConfig::partition_key`](crate::TableConfig::partition_key) first.
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
                match job.change_width(&record, growth, ScalingReason::Asked).await {
                    Ok(ScaleOutcome::Unchanged(decision)) => {
                        return Ok(ScaleOutcome::Unchanged(decision));
                    }
                    Ok(_) => {}
                    // The next round reads how far it came.
                    Err(error) if error.is_retryable() => {
                        if !backoff.pause(&inner.environment, deadline).await {
                            return Err(error.into());
                        }
                    }
                    Err(error) => return Err(error.into()),
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
    /// request. A key that is registered meanwhile may be missing. One whose metadata is damaged is
    /// missing: the log names it, and a rebuild repairs it.
    pub async fn list(
        &self,
        after: Option<&PartitionKey>,
    ) -> Result<(Vec<(PartitionKey, ShardMetadata)>, Option<PartitionKey>), TableError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        let (keys, next) = inner.retrying(deadline, || inner.tables.list_metadata(after)).await?;
        let readable = keys.into_iter().filter_map(|(key, raw)| match raw.parse() {
            Ok(metadata) => Some((key, metadata)),
            Err(error) => {
                tracing::error!(key = key.as_str(), %error, "the metadata of a key is left out; rebuild it");
                None
            }
        });
        Ok((readable.collect(), next))
    }
}

fn still_changing() -> TableError {
    TableError::Transient("the key's width was changing until the deadline".into())
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl KeyJob<'_> {
    pub(crate) async fn change_width(
        &self,
        record: &Record,
        close: Change,
        reason: ScalingReason,
    ) -> Result<ScaleOutcome, TableError> {
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
    }

    pub(crate) fn report(&self, from: ShardCount, step: ScalingStep, reason: ScalingReason) {
        let events = &self.inner.scaling_events;
        if events.receiver_count() > 0 {
            let partition_key = self.key.clone();
            // The last receiver may be gone meanwhile.
            let _ = events.send(ScalingEvent { partition_key, from, step, reason });
        }
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

    /// Waits until a key's next era has begun and this job has a view of it. If that takes too
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
                    // If the key's item is further on, its actor may have died before it wrote the
                    // page.
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

    /// As [`wait_until_open`](Self::wait_until_open), for a closing that was read in the key's item
    /// and may be missing in its page.
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

    /// The instant from which on an observer of this closing, by its era and generation, takes it
    /// over.
    fn patience(&self, (era, generation): (u64, u64)) -> Instant {
        let environment = &self.inner.environment;
        let pause = self.state.known().conflicts.observe(era, generation);
        Instant::now() + environment.opening_wait + pause + environment.jitter(pause)
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
        self.open(&closed, ScalingReason::TakenOver).await
    }

    /// Before a change that uses the key's item: whether the key's page is not ahead of the item.
    /// `false` if another actor is changing the key. [`TableError::Lost`] if the item is missing,
    /// or older than the page's entry.
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

    /// Opens a key, once all views from before its closing have expired. Every copy of its page has
    /// the closing.
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

    /// One change of a key's item, if it is unchanged since it was read. `None` if another actor
    /// was first.
    pub(crate) async fn step(
        &self,
        record: &Record,
        change: &Change,
    ) -> Result<Option<ShardMetadata>, TableError> {
        self.change_from(&record.metadata, (record.stored_metadata(), None), change).await
    }

    /// As [`step`](Self::step), from metadata that may differ from the stored one. On return every
    /// copy of the key's page has the new layout.
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
        self.state.learn(self.view_of(&record));
        let opens_at = asked_at.wall + self.inner.environment.opening_wait + OPENING_TIME;
        let opens_at = next.closing().map(|_| millis(opens_at));
        let layout = Layout { opens_at, ..next.layout() };
        self.publish(layout).await?;
        Ok(Some(next))
    }
}
