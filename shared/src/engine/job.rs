//! One request about a key. A program that sends its own requests to the table, as the endpoint
//! does, gets views and places here, and reports its attempts, so that the key is relieved.
//!
//! Metrics go through the `metrics` facade: without a recorder they cost next to nothing.
//! `docs/operations.md` describes each. A partition key is never a label, because the number of its
//! values is unbounded.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::counter;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::engine::environment::Backoff;
use crate::engine::views::keys::{CHANGE_TIMEOUT, KeyState, Running};
use crate::engine::{Deadline, Inner, TableEngine, locked};
use crate::policy::capacity::CapacityScope;
use crate::policy::pressure::Pressure;
use crate::protocol::directory::KeyDigest;
use crate::protocol::drain::Waits;
use crate::protocol::version::TIE_BREAKERS;
use crate::protocol::view::{Moment, View};
use crate::table::ATTEMPT_TIMEOUT;
use crate::table::error::TableError;
use crate::values::key::{KeyError, PartitionKey, ShardCount, ShardNumber, SortKey};

/// The longest that a response waits for a renewal beside it.
const RENEWAL_TIMEOUT: Duration = Duration::from_millis(100);

/// Why a write was not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedWrite {
    /// Nothing was stored, and the write may be repeated.
    NoCapacity,
    /// Other writes of the same item were under way.
    Contended,
    /// It may have been applied.
    Unknown,
    /// For example, the metadata is lost.
    Failed,
}

/// One request about a key, with its attempts.
pub struct KeyJob<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    pub(crate) key: &'a PartitionKey,
    pub(crate) state: Arc<KeyState>,
    pub(crate) deadline: Deadline,
    /// The attempts of a write so far.
    pub(crate) count: u32,
    pub(crate) throttled: u32,
    first_throttled: Option<Instant>,
    /// An attempt may have been applied, or may be applied later.
    pub(crate) in_doubt: bool,
    backoff: Backoff,
    /// The job waits for these before it ends, because a function is suspended after its response.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Inner {
    pub(crate) fn job<'a>(
        self: &'a Arc<Self>,
        key: &'a PartitionKey,
        deadline: Deadline,
    ) -> KeyJob<'a> {
        let Ok(state) = self.keys.get_or_insert_with(key, || Ok::<_, Infallible>(Arc::default()));
        KeyJob {
            inner: self,
            key,
            state,
            deadline,
            count: 0,
            throttled: 0,
            first_throttled: None,
            in_doubt: false,
            backoff: Backoff::default(),
            tasks: Mutex::default(),
        }
    }

    /// Repeats a request until it succeeds, fails permanently, or the deadline passes.
    pub(crate) async fn retrying<T, F: Future<Output = Result<T, TableError>>>(
        &self,
        deadline: Deadline,
        mut request: impl FnMut() -> F,
    ) -> Result<T, TableError> {
        let mut backoff = Backoff::default();
        let mut last = TableError::Transient("no response came before the deadline".into());
        loop {
            match timeout_at(deadline, request()).await {
                Err(_) => return Err(last),
                Ok(Err(error)) if error.is_retryable() => last = error,
                Ok(result) => return result,
            }
            if !backoff.pause(&self.environment, deadline).await {
                return Err(last);
            }
        }
    }
}

impl TableEngine {
    /// Begins a request about a key.
    pub fn job<'a>(&'a self, key: &'a PartitionKey, deadline: Deadline) -> KeyJob<'a> {
        self.inner.job(key, deadline)
    }

    /// The present instant.
    pub fn now(&self) -> Moment {
        self.inner.environment.now()
    }
}

impl KeyJob<'_> {
    pub(crate) fn digest(&self) -> KeyDigest {
        *self.state.digest.get_or_init(|| KeyDigest::of(self.key))
    }

    /// Waits until the key's width has changed. `false` if it has not by this instant.
    pub async fn wait_for_open(&self, until: Deadline) -> Result<bool, TableError> {
        if let Ok(opened) = timeout_at(until, self.wait_until_open()).await {
            return opened.map(|()| true);
        }
        // If its actor is dead, somebody must watch it long enough to take it over.
        self.in_background(&self.state.is_watching, |inner, key| async move {
            let job = inner.job(&key, Instant::now() + CHANGE_TIMEOUT);
            if let Err(error) = job.wait_until_open().await {
                tracing::warn!(%error, "a closing was not seen to open");
            }
        });
        Ok(false)
    }

    /// The waits of the table's drains.
    pub fn waits(&self) -> Waits {
        self.inner.config.waits()
    }

    /// A random tie-breaker for the versions of one write.
    pub fn tie_breaker(&self) -> u32 {
        self.inner.environment.below(TIE_BREAKERS)
    }

    /// The stored partition key of a shard.
    ///
    /// # Errors
    /// [`KeyError`] if the key is too long for it.
    pub fn shard_key(&self, shard: ShardNumber) -> Result<String, KeyError> {
        self.inner.config.shard_keys.build(self.key, shard)
    }

    /// Whether a view may still be used.
    pub fn lasts(&self, view: &Arc<View>) -> impl Fn() -> bool + Send + Sync + 'static {
        let (inner, view) = (Arc::clone(self.inner), Arc::clone(view));
        move || view.is_valid(inner.environment.now(), inner.config.lease())
    }

    /// Counts an attempt of a write, of this many write units, that has a response. If it was
    /// throttled and more shards help, the key is relieved.
    pub fn attempted(
        &mut self,
        (shard, width): (ShardNumber, ShardCount),
        sort_key: &SortKey,
        units: u64,
        throttled: Option<CapacityScope>,
    ) {
        self.count += 1;
        let now = self.inner.environment.now();
        let is_cured = throttled.is_none_or(|scope| self.inner.config.is_cured_by_shards(scope));
        if is_cured {
            let attempt = match self.count {
                1 => Pressure::first_attempt(units, throttled.is_some()),
                _ => Pressure::repetition(units, throttled.is_some()),
            };
            let mut known = self.state.known();
            known.pressure.record(width, attempt, now.monotonic);
            if self.count == 1 && throttled.is_some() {
                known.pressure.record_item(sort_key);
            }
        }
        let Some(scope) = throttled else { return };
        self.throttled += 1;
        self.first_throttled.get_or_insert_with(Instant::now);
        counter!("ShardingThrottles", "Scope" => scope.name()).increment(1);
        if is_cured {
            self.state.note_throttled(shard, now);
            self.relieve();
        }
    }

    /// A write that may have been applied is repeated until the deadline.
    pub(crate) fn gives_up_at(&self) -> Deadline {
        let first = self.first_throttled.filter(|_| !self.in_doubt);
        let until = first.map(|first| first + self.inner.config.throttled_for);
        until.map_or(self.deadline, |until| until.min(self.deadline))
    }

    /// Waits before the next attempt. `false` if the write has been throttled for too long, or if
    /// the deadline comes first.
    pub async fn pause(&mut self) -> bool {
        let until = self.gives_up_at();
        self.backoff.pause(&self.inner.environment, until).await
    }

    /// Notes that a write of this many write units was applied.
    pub fn wrote(&self, view: &View, sort_key: &SortKey, units: u64) {
        self.count_write(Ok(()));
        self.note_applied(Some(view), sort_key, true, || units);
    }

    pub(crate) fn note_applied(
        &self,
        view: Option<&View>,
        sort_key: &SortKey,
        is_put: bool,
        units: impl FnOnce() -> u64,
    ) {
        self.note_load(view, units);
        self.note_written(sort_key);
        if is_put && self.inner.config.register_keys && !self.state.known().was_registered {
            self.beside(&self.state.is_registering, move |inner, key| async move {
                let job = inner.job(&key, Instant::now() + ATTEMPT_TIMEOUT);
                if let Err(error) = job.register().await {
                    tracing::warn!(%error, "could not register a key; the next write of it tries again");
                }
            });
        }
    }

    /// Records write units of a key with several shards once a minute. Shrinking is decided by
    /// these records.
    fn note_load(&self, view: Option<&View>, units: impl FnOnce() -> u64) {
        let state = &self.state;
        // Without a view, the number of shards is unknown. The next write that has one counts.
        if view.is_some_and(|view| {
            view.layout.generation == 0 || view.layout.number_of_shards == ShardCount::ONE
        }) {
            state.units.store(0, Ordering::Relaxed);
            return;
        }
        state.units.fetch_add(units(), Ordering::Relaxed);
        let minute = self.inner.environment.now().epoch_seconds() / 60;
        let last = state.units_noted.load(Ordering::Relaxed);
        let may_note = || {
            let noted = &state.units_noted;
            noted.compare_exchange(last, minute, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if view.is_none() || last >= minute || !may_note() || last == 0 {
            return;
        }
        let units = state.units.swap(0, Ordering::Relaxed);
        let (inner, key) = (Arc::clone(self.inner), self.key.clone());
        self.inner.background.spawn(async move {
            // The process may have been suspended until now.
            let minute = inner.environment.now().epoch_seconds() / 60;
            if let Err(error) = inner.tables.note_load(&key, minute, units).await {
                tracing::warn!(%error, units, "the load of a key could not be noted: it looks calmer than it is");
            }
        });
    }

    /// Notes that a write was not acknowledged.
    pub fn failed(&self, outcome: FailedWrite) {
        self.count_write(Err(Some(outcome)));
    }

    /// A defined result is not a failure.
    pub(crate) fn count_write(&self, end: Result<(), Option<FailedWrite>>) {
        counter!("ShardingRetries").increment(u64::from(self.count.saturating_sub(1)));
        let failed = match end {
            Ok(()) => return counter!("ShardingWrites").increment(1),
            Err(None) => return,
            Err(Some(failed)) => failed,
        };
        let outcome = match failed {
            FailedWrite::NoCapacity => "no-capacity",
            FailedWrite::Contended => "contended",
            FailedWrite::Unknown => "unknown",
            FailedWrite::Failed => "failed",
        };
        counter!("ShardingFailedWrites", "Outcome" => outcome).increment(1);
        if failed != FailedWrite::Failed {
            counter!("ShardingDeadlineMisses").increment(1);
        }
    }

    /// Starts a task in the background, unless one of its kind is running.
    pub(crate) fn in_background<F: Future<Output = ()> + Send + 'static>(
        &self,
        running: &Running,
        task: impl FnOnce(Arc<Inner>, PartitionKey) -> F,
    ) -> Option<JoinHandle<()>> {
        let running = Arc::clone(running).try_lock_owned().ok()?;
        let task = task(Arc::clone(self.inner), self.key.clone());
        Some(self.inner.background.spawn(async move {
            task.await;
            drop(running);
        }))
    }

    /// As [`in_background`](Self::in_background), but the job waits for it.
    pub(crate) fn beside<F: Future<Output = ()> + Send + 'static>(
        &self,
        running: &Running,
        task: impl FnOnce(Arc<Inner>, PartitionKey) -> F,
    ) {
        if let Some(begun) = self.in_background(running, task) {
            locked(&self.tasks).push(begun);
        }
    }

    /// Waits for work beside the request, but not for long: the next request can do it as well.
    pub async fn end(&self) {
        let begun = std::mem::take(&mut *locked(&self.tasks));
        let until = Instant::now() + RENEWAL_TIMEOUT;
        for begun in begun {
            let _ = timeout_at(until, begun).await;
        }
    }
}
