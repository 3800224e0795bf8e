//! What one instance knows of each key: its view, the pressure on it, and which shards were throttled.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::drain::OwnDrain;
use super::retry::retrying;
use super::{Deadline, Inner};
use crate::core::key::{PartitionKey, ShardNumber, SortKey};
use crate::core::pressure::PressureTracker;
use crate::core::spacing::Spacing;
use crate::core::value::Item;
use crate::protocol::metadata::ShardMetadata;
use crate::protocol::view::{Moment, View};
use crate::table::error::TableError;
use crate::telemetry;

/// The most keys that an instance remembers. At most 2 KB of key and a history each, so some ten megabytes at worst.
pub(super) const REMEMBERED_KEYS: usize = 4_096;
/// How long a throttled shard is avoided by random placement.
const CALM_AFTER: Duration = Duration::from_secs(1);
/// How often a read that is older than what is known already is repeated.
const OLD_ANSWERS: u32 = 3;
/// Deletions of a key that look a second: enough for a queue, and too few to heat a shard with reads.
const LOOKS_PER_SECOND: u64 = 20;
/// Part of the lease after which a view is renewed ahead of its end.
const RENEW_AT: f64 = 0.6;
/// How long a request waits for the word on whether a key's metadata is lost.
const LOSS_PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(crate) struct KeyState {
    known: Mutex<Known>,
    /// Held while the metadata is read, so that a crowd of requests makes one read.
    flight: tokio::sync::Mutex<()>,
    /// A background task of that kind is running.
    pub(super) refreshing: Arc<AtomicBool>,
    pub(super) scaling: Arc<AtomicBool>,
    /// Held while a closing is waited out, so that a crowd of writers polls once.
    pub(super) opening: tokio::sync::Mutex<()>,
    /// What this instance remembers of a drain.
    pub(super) drain: tokio::sync::Mutex<Option<OwnDrain>>,
    /// Deletions that may look before they leave a tombstone, in this second of the monotonic clock.
    looks: AtomicU64,
    /// Write units that are not noted yet, and the minute of the last note: 0 before the first write of a key that has several shards.
    pub(super) units: AtomicU64,
    pub(super) units_noted: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    view: Option<Arc<View>>,
    /// The key had an item once: it may change, but never go.
    registered: bool,
    /// The key has no item, and was looked at: none is missing.
    pub(super) is_new: bool,
    pub(super) pressure: PressureTracker,
    /// Mean bytes of the items on the last pages.
    pub(super) item_bytes: Option<f64>,
    /// How far apart the items lie.
    pub(super) spacing: Spacing,
    throttled_at: HashMap<ShardNumber, Moment>,
    /// No scaling decision before this instant of the monotonic clock: a cooldown was read.
    pub(super) quiet_until: Option<Duration>,
}

impl KeyState {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn view(&self) -> Option<Arc<View>> {
        self.known().view.clone()
    }

    /// The view, if it may be relied on for this lease.
    pub(super) fn valid_view(&self, now: Moment, lease: Duration) -> Option<Arc<View>> {
        self.view().filter(|view| view.is_valid(now, lease))
    }

    /// Keeps a view unless a newer one is known; `false` where its generation is below the known one's.
    pub(super) fn learn(&self, view: &Arc<View>) -> bool {
        let mut known = self.known();
        let (metadata, asked_at) = (&view.metadata, view.asked_at.monotonic);
        if let Some(old) = &known.view {
            if metadata.generation < old.metadata.generation {
                return false;
            }
            if metadata.generation == old.metadata.generation && asked_at < old.asked_at.monotonic {
                return true;
            }
            if metadata.number_of_shards != old.metadata.number_of_shards {
                known.throttled_at.clear();
                known.quiet_until = None;
            }
        }
        known.pressure.observe_width(metadata.number_of_shards, asked_at);
        known.registered |= view.exists;
        known.view = Some(Arc::clone(view));
        true
    }

    /// Learns from a page how large the key's items are, and how far apart they lie.
    pub(super) fn learn_page(&self, bytes: usize, after: Option<&SortKey>, items: &[Item]) {
        let Some(last) = items.last() else { return };
        let (mean, mut known) = (bytes as f64 / items.len() as f64, self.known());
        known.item_bytes = Some(known.item_bytes.map_or(mean, |before| (before + mean) / 2.0));
        if let Some(after) = after {
            known.spacing.learn(after, &last.sort_key, items.len());
        }
    }

    pub(super) fn note_throttled(&self, shard: ShardNumber, now: Moment) {
        let mut known = self.known();
        known.throttled_at.retain(|_, at| now.since(*at).is_some_and(|age| age < CALM_AFTER));
        known.throttled_at.insert(shard, now);
    }

    /// Of two shards, the one that was not throttled a moment ago.
    pub(super) fn calmer(&self, one: ShardNumber, other: ShardNumber, now: Moment) -> ShardNumber {
        let known = self.known();
        let age = |shard: &ShardNumber| now.since(*known.throttled_at.get(shard)?);
        let heat = |shard| age(shard).map_or(Duration::ZERO, |age| CALM_AFTER.saturating_sub(age));
        if heat(&other) < heat(&one) { other } else { one }
    }

    /// Whether one more deletion may look this second.
    pub(super) fn may_look(&self, now: Moment) -> bool {
        let second = now.monotonic.as_secs() << 8;
        let count = |before: u64| {
            let counted = if before & !0xFF == second { before + 1 } else { second + 1 };
            (counted & 0xFF <= LOOKS_PER_SECOND).then_some(counted)
        };
        self.looks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }
}

/// Work on one key, until a deadline.
pub(super) struct KeyJob<'a> {
    pub(super) inner: &'a Arc<Inner>,
    pub(super) key: &'a PartitionKey,
    pub(super) state: Arc<KeyState>,
    pub(super) deadline: Deadline,
}

impl Inner {
    pub(super) fn job<'a>(self: &'a Arc<Self>, key: &'a PartitionKey, deadline: Deadline) -> KeyJob<'a> {
        let Ok(state) = self.keys.get_or_insert_with(key, || Ok::<_, Infallible>(Arc::default()));
        KeyJob { inner: self, key, state, deadline }
    }
}

impl KeyJob<'_> {
    /// A view that `good` accepts: the one that is known, or one that is read now. Many callers at once make one read.
    pub(super) async fn view(&self, good: impl Fn(&View, Moment) -> bool) -> Result<Arc<View>, TableError> {
        let known = || self.state.view().filter(|view| good(view, self.inner.environment.now()));
        match known() {
            Some(view) => Ok(view),
            // Boxed: what is seldom needed must not make the futures large that hold it.
            None => Box::pin(self.new_view(known)).await,
        }
    }

    async fn new_view(&self, known: impl Fn() -> Option<Arc<View>>) -> Result<Arc<View>, TableError> {
        let Ok(_flight) = timeout_at(self.deadline, self.state.flight.lock()).await else {
            return Err(TableError::Transient("the metadata did not come before the deadline".into()));
        };
        if let Some(view) = known() {
            return Ok(view);
        }
        for _ in 0..OLD_ANSWERS {
            // Another request of this instance may register the key meanwhile.
            let was_registered = self.state.known().registered;
            let view = Arc::new(self.read_view_and_look_for_loss().await?);
            if !view.exists && was_registered {
                return Err(TableError::Lost("its item was there and is gone".into()));
            }
            // An answer can overtake another; one that is older than what is known says nothing.
            if self.state.learn(&view) {
                return Ok(view);
            }
        }
        Err(TableError::Lost("its generation went back".into()))
    }

    /// Of a key that was never seen here, the metadata and what only a key with metadata has are asked for at the same time: one round trip.
    async fn read_view_and_look_for_loss(&self) -> Result<View, TableError> {
        let is_known = {
            let known = self.state.known();
            known.is_new || known.registered
        };
        if is_known {
            return self.read_view().await;
        }
        let soon = self.deadline.min(Instant::now() + LOSS_PATIENCE.min(self.inner.config.lease() / 4));
        let (mut read, mut looked) = (pin!(self.read_view()), pin!(self.has_further_items(soon)));
        let mut found = None;
        let view = loop {
            tokio::select! {
                // In this order, so that a seed is a run.
                biased;
                view = &mut read => break view?,
                answer = &mut looked, if found.is_none() => found = Some(answer),
            }
        };
        if view.exists {
            return Ok(view);
        }
        let found = match found {
            Some(found) => found,
            None => looked.await,
        };
        match self.is_lost(found, soon).await {
            Ok(()) => self.state.known().is_new = true,
            // No verdict; the next view asks again.
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "whether the metadata of a key is lost is not known");
            }
            Err(error) => return Err(error),
        }
        Ok(view)
    }

    async fn read_view(&self) -> Result<View, TableError> {
        let inner = self.inner;
        retrying(&inner.environment, self.deadline, || async {
            let asked_at = inner.environment.now();
            telemetry::lease_refreshed();
            let found = inner.tables.get_metadata(self.key).await?;
            let exists = found.is_some();
            let metadata = found.unwrap_or_else(|| ShardMetadata::unregistered_with(inner.config.adopt_shards));
            Ok(View { metadata, exists, asked_at })
        })
        .await
    }

    /// A view that was requested after this call began.
    pub(super) async fn view_from_now(&self) -> Result<Arc<View>, TableError> {
        let began = self.inner.environment.now();
        self.view(|view, now| view.is_asked_since(began, now)).await
    }

    /// The view within its lease, or a new one.
    pub(super) async fn leased_or_new_view(&self) -> Result<Arc<View>, TableError> {
        match self.leased_view() {
            Some(view) => Ok(view),
            None => self.view(|view, now| view.is_valid(now, self.inner.config.lease())).await,
        }
    }

    /// The view, if its lease has not run out; renews it in the background when little of the lease is left.
    pub(super) fn leased_view(&self) -> Option<Arc<View>> {
        let (now, lease) = (self.inner.environment.now(), self.inner.config.lease());
        let view = self.state.valid_view(now, lease)?;
        let renew_at = lease.mul_f64(RENEW_AT);
        if !view.is_valid(now, renew_at) {
            self.in_background(&self.state.refreshing, move |inner, key, state| async move {
                let deadline = Instant::now() + Duration::from_secs(1);
                let job = KeyJob { inner: &inner, key: &key, state, deadline };
                // A failure is met again, and told, by the request that needs the view.
                let _ = job.view(|view, now| view.is_valid(now, renew_at)).await;
            });
        }
        Some(view)
    }

    /// Starts a task in the background, unless one with this flag is running.
    pub(super) fn in_background<F: Future<Output = ()> + Send + 'static>(
        &self,
        flag: &Arc<AtomicBool>,
        task: impl FnOnce(Arc<Inner>, PartitionKey, Arc<KeyState>) -> F,
    ) {
        if flag.swap(true, Ordering::AcqRel) {
            return;
        }
        let running = Running(Arc::clone(flag));
        let task = task(Arc::clone(self.inner), self.key.clone(), Arc::clone(&self.state));
        self.inner.background.spawn(async move {
            task.await;
            drop(running);
        });
    }
}

/// Marks a background task as running for as long as it lives.
struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
