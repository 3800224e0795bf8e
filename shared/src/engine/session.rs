//! One key for a program that sends its own requests to the table, as the endpoint does. It gets
//! views and places here, and tells what came of its requests, so that the key is relieved.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use crate::engine::error::ReadError;
use crate::engine::retry::Backoff;
use crate::engine::views::keys::{CHANGE_TIMEOUT, KeyJob};

use crate::engine::{Deadline, TableEngine, telemetry};
use crate::policy::capacity::CapacityScope;
use crate::protocol::armed::ArmedView;
use crate::protocol::drain::Waits;
use crate::protocol::layout::Places;
use crate::protocol::version::TIE_BREAKERS;
use crate::protocol::view::{Moment, View};
use crate::table::error::TableError;
use crate::values::key::{KeyError, PartitionKey, ShardCount, ShardNumber, SortKey};

/// Why a write of an expression was not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedWrite {
    /// Nothing was stored, and the write may be repeated.
    NoCapacity,
    /// It may have been applied.
    Unknown,
    /// Another error, for example that the metadata is lost.
    Failed,
}

/// The table's patterns of armed keys, under their lease.
#[derive(Debug, Clone)]
pub struct Patterns {
    view: Arc<ArmedView>,
    engine: TableEngine,
}

impl Patterns {
    /// Whether a pattern matches the key.
    pub fn matches(&self, key: &PartitionKey) -> bool {
        self.view.armed.matches(key)
    }

    /// Whether no key is armed.
    pub fn are_none(&self) -> bool {
        self.view.armed.patterns().len() == 0
    }

    /// Whether they may still be relied on. A request about a key that none matches is sent only
    /// then.
    pub fn last(&self) -> bool {
        let inner = &self.engine.inner;
        self.view.is_valid(inner.environment.now(), inner.config.pattern_lease)
    }
}

impl TableEngine {
    /// The table's patterns of armed keys, within their lease.
    ///
    /// # Errors
    /// [`TableError`] if they cannot be read, or if this process is configured for another table.
    pub async fn patterns(&self, deadline: Deadline) -> Result<Patterns, TableError> {
        self.inner.check_agreement()?;
        let view = self.inner.leased_patterns(deadline).await?;
        Ok(Patterns { view, engine: self.clone() })
    }

    /// Begins a request about a key.
    pub fn session<'a>(&'a self, key: &'a PartitionKey, deadline: Deadline) -> KeySession<'a> {
        let job = self.inner.job(key, deadline);
        KeySession { job, backoff: Backoff::default(), count: 0, first_throttled: None }
    }

    /// The present instant.
    pub fn now(&self) -> Moment {
        self.inner.environment.now()
    }
}

/// One request about a key, with its attempts.
pub struct KeySession<'a> {
    job: KeyJob<'a>,
    backoff: Backoff,
    /// The attempts of a write so far.
    count: u32,
    /// When one was throttled for the first time.
    first_throttled: Option<Instant>,
}

impl KeySession<'_> {
    /// Whether a pattern that counts arms the key, or the directory lists it. Otherwise other
    /// programs may write it.
    pub async fn counts(&self) -> Result<bool, TableError> {
        Ok(self.job.not_armed_before().await?.is_none())
    }

    /// The view within its lease, or a new one.
    pub async fn view(&self) -> Result<Arc<View>, TableError> {
        self.job.leased_or_new_view().await
    }

    /// A view that was requested at or after this instant.
    pub async fn view_since(&self, since: Moment) -> Result<Arc<View>, TableError> {
        self.job.view_since(since).await
    }

    /// A view from the key's item, because a copy is of a later era than the page knows.
    pub async fn verify(&self, since: Moment) -> Result<Arc<View>, TableError> {
        self.job.verified_view(since).await
    }

    /// Waits until the key's width has changed, at most until this instant. `false` if it has not.
    pub async fn wait_for_open(&self, until: Deadline) -> Result<bool, TableError> {
        match timeout_at(until, self.job.wait_for_open()).await {
            Ok(opened) => opened.map(|_| true),
            Err(_) => {
                // If its actor is dead, somebody must watch it long enough to take it over.
                let flag = &self.job.state.is_watching;
                self.job.in_background(flag, |inner, key, state| async move {
                    let job = KeyJob::new(&inner, &key, state, Instant::now() + CHANGE_TIMEOUT);
                    if let Err(error) = job.wait_for_open().await {
                        tracing::warn!(%error, "a closing was not seen to open");
                    }
                });
                Ok(false)
            }
        }
    }

    /// The waits of the table's drains.
    pub fn waits(&self) -> Waits {
        self.job.inner.config.waits()
    }

    /// A random tie-breaker for the versions of one write.
    pub fn tie_breaker(&self) -> u32 {
        self.job.inner.environment.below(TIE_BREAKERS)
    }

    /// The places of an item.
    pub fn places(&self, sort_key: &SortKey, view: &View) -> Places {
        self.job.places(sort_key, view)
    }

    /// The stored partition key of a shard.
    ///
    /// # Errors
    /// [`KeyError`] if the key is too long for it.
    pub fn shard_key(&self, shard: ShardNumber) -> Result<String, KeyError> {
        self.job.inner.config.shard_keys.build(self.job.key, shard)
    }

    /// Whether a view may still be used.
    pub fn lasts(&self, view: &Arc<View>) -> impl Fn() -> bool + Send + Sync + 'static {
        let (inner, view) = (Arc::clone(self.job.inner), Arc::clone(view));
        move || view.is_valid(inner.environment.now(), inner.config.lease())
    }

    /// Counts an attempt of a write of this many write units.
    pub fn attempted(
        &mut self,
        at: (ShardNumber, ShardCount),
        sort_key: &SortKey,
        units: u64,
        throttled: Option<CapacityScope>,
    ) {
        self.count += 1;
        if throttled.is_some() {
            self.first_throttled.get_or_insert_with(Instant::now);
        }
        self.job.note_attempt(at, sort_key, (self.count, units), throttled);
    }

    /// Waits before the next attempt. `false` if the write has been throttled for too long, or if
    /// the deadline comes first.
    pub async fn pause(&mut self) -> bool {
        let patience = self.job.inner.config.throttled_for;
        let until = self.first_throttled.map(|first| first + patience);
        let deadline = until.map_or(self.job.deadline, |until| until.min(self.job.deadline));
        self.backoff.pause(&self.job.inner.environment, deadline).await
    }

    /// Notes that a write of this many write units was applied.
    pub fn wrote(&self, view: &View, sort_key: &SortKey, units: u64) {
        telemetry::retried(self.count);
        telemetry::written();
        self.job.note_load(Some(view), || units);
        self.job.note_written(sort_key);
        self.job.after_write();
    }

    /// Notes that a write was not acknowledged.
    pub fn failed(&self, outcome: FailedWrite) {
        telemetry::retried(self.count);
        telemetry::failed(match outcome {
            FailedWrite::NoCapacity => "no-capacity",
            FailedWrite::Unknown => "unknown",
            FailedWrite::Failed => "failed",
        });
        if outcome != FailedWrite::Failed {
            telemetry::missed_deadline();
        }
    }

    /// Whether the result of a read that began then is correct. It has copies up to this era. If it
    /// is not, the read repeats.
    ///
    /// # Errors
    /// [`ReadError`] if the read took too long, or if the metadata is lost.
    pub async fn is_correct(
        &self,
        began: Moment,
        era: u64,
        view: &View,
    ) -> Result<bool, ReadError> {
        self.job.is_correct(began, era, view).await
    }

    /// Waits for work that runs beside the request, but not for long.
    pub async fn end(&self) {
        self.job.end().await;
    }
}
