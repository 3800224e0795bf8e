//! What one instance knows of each key: its view, the pressure on it, and which shards were throttled.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::time::timeout_at;

use super::retry::retrying;
use super::{Deadline, Inner};
use crate::core::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::core::metadata::ShardMetadata;
use crate::core::pressure::{Pressure, PressureTracker, Seen};
use crate::core::spacing::Spacing;
use crate::core::view::{Moment, View};
use crate::table::error::TableError;
use crate::telemetry;

/// The most keys that an instance remembers. At most 2 KB of key and a history each, so some ten megabytes at worst.
const REMEMBERED_KEYS: usize = 4_096;
/// How long a throttled shard is avoided by random placement.
const CALM_AFTER: Duration = Duration::from_secs(1);
/// How often a read that is older than what is known already is repeated.
const OLD_ANSWERS: u32 = 3;

/// How long a request waits for the word on whether a key's metadata is lost.
const LOSS_PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct KeyCache(Cache<PartitionKey, Arc<KeyState>>);

impl Default for KeyCache {
    fn default() -> Self {
        Self(Cache::new(REMEMBERED_KEYS))
    }
}

impl KeyCache {
    /// What is known of a key; nothing yet, where it is new here.
    pub(crate) fn state(&self, key: &PartitionKey) -> Arc<KeyState> {
        match self.0.get_or_insert_with(key, || Ok::<_, std::convert::Infallible>(Arc::default())) {
            Ok(state) => state,
            Err(impossible) => match impossible {},
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct KeyState {
    known: Mutex<Known>,
    /// Held while the metadata is read, so that a crowd of requests makes one read.
    flight: tokio::sync::Mutex<()>,
    /// A background task of that kind is running.
    pub(crate) refreshing: AtomicBool,
    pub(crate) scaling: AtomicBool,
    /// Epoch seconds of the last note that the key takes point writes; 0 for none by this instance.
    pub(crate) noted_at: AtomicU64,
    /// Write units that are not noted yet, and the minute of the last note: 0 before the first write of a key that has several shards.
    pub(crate) units: AtomicU64,
    pub(crate) units_noted: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    view: Option<Arc<View>>,
    /// The key had an item once: it may change, but never go.
    registered: bool,
    /// The key has no item, and was looked at: none is missing.
    is_new: bool,
    pressure: PressureTracker,
    /// Mean bytes of the items on the last pages.
    item_bytes: Option<f64>,
    spacing: Spacing,
    throttled_at: HashMap<ShardNumber, Moment>,
    /// No decision before this instant of the monotonic clock: a cooldown was read.
    quiet_until: Option<Duration>,
}

impl KeyState {
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        self.lock().view.clone()
    }

    /// The view, if it may be relied on for this lease.
    pub(crate) fn valid_view(&self, now: Moment, lease: Duration) -> Option<Arc<View>> {
        self.view().filter(|view| view.is_valid(now, lease))
    }

    /// Keeps a view unless a newer one is known; says whether it was kept.
    pub(crate) fn learn(&self, view: View) -> bool {
        let mut known = self.lock();
        if let Some(old) = &known.view {
            if view.generation() < old.generation() {
                return false;
            }
            let new_width = view.width() != old.width();
            if view.generation() == old.generation() && view.asked_at.monotonic < old.asked_at.monotonic {
                return true;
            }
            if new_width {
                known.throttled_at.clear();
                known.quiet_until = None;
            }
        }
        known.pressure.observe_width(view.width(), view.asked_at.monotonic);
        known.registered |= view.metadata.is_some();
        known.view = Some(Arc::new(view));
        true
    }

    /// Counts attempts that were placed under this write width.
    pub(crate) fn record(&self, width: ShardCount, attempts: Pressure, now: Moment) {
        self.lock().pressure.record(width, attempts, now.monotonic);
    }

    /// What a scaling decision is made from.
    pub(crate) fn seen(&self, now: Moment) -> Seen {
        self.lock().pressure.seen(now.monotonic)
    }

    /// Learns from a page how large the key's items are.
    pub(crate) fn learn_item_bytes(&self, bytes: usize, items: usize) {
        if items > 0 {
            let mean = bytes as f64 / items as f64;
            let mut known = self.lock();
            known.item_bytes = Some(known.item_bytes.map_or(mean, |before| (before + mean) / 2.0));
        }
    }

    /// Mean bytes of the key's items, as far as pages of it were read here.
    pub(crate) fn item_bytes(&self) -> Option<f64> {
        self.lock().item_bytes
    }

    /// Learns from a page how far apart the key's items lie.
    pub(crate) fn learn_spacing(&self, after: &SortKey, last: &SortKey, items: usize) {
        self.lock().spacing.learn(after, last, items);
    }

    pub(crate) fn spacing(&self) -> Spacing {
        self.lock().spacing.clone()
    }

    pub(crate) fn note_throttled(&self, shard: ShardNumber, now: Moment) {
        let mut known = self.lock();
        known.throttled_at.retain(|_, at| now.since(*at).is_some_and(|age| age < CALM_AFTER));
        known.throttled_at.insert(shard, now);
    }

    /// Of two shards, the one that was not throttled a moment ago.
    pub(crate) fn calmer(&self, one: ShardNumber, other: ShardNumber, now: Moment) -> ShardNumber {
        let known = self.lock();
        let heat = |shard: ShardNumber| {
            let age = known.throttled_at.get(&shard).and_then(|at| now.since(*at)).filter(|age| *age < CALM_AFTER);
            age.map_or(Duration::ZERO, |age| CALM_AFTER - age)
        };
        if heat(other) < heat(one) { other } else { one }
    }

    pub(crate) fn stay_quiet_until(&self, monotonic: Duration) {
        self.lock().quiet_until = Some(monotonic);
    }

    pub(crate) fn is_quiet(&self, now: Moment) -> bool {
        self.lock().quiet_until.is_some_and(|until| now.monotonic < until)
    }

    pub(super) fn is_new(&self) -> bool {
        self.lock().is_new
    }

    pub(super) fn note_new(&self) {
        self.lock().is_new = true;
    }

    fn registered(&self) -> bool {
        self.lock().registered
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// A view that `good` accepts: the one that is known, or one that is read now. Many callers at once make one read.
    pub(crate) async fn view(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        deadline: Deadline,
        good: impl Fn(&View, Moment) -> bool,
    ) -> Result<Arc<View>, TableError> {
        let known = |state: &KeyState| state.view().filter(|view| good(view, self.environment.now()));
        if let Some(view) = known(state) {
            return Ok(view);
        }
        let Ok(_flight) = timeout_at(deadline, state.flight.lock()).await else {
            return Err(TableError::Transient("the metadata did not come before the deadline".into()));
        };
        if let Some(view) = known(state) {
            return Ok(view);
        }
        for _ in 0..OLD_ANSWERS {
            // Another request of this instance may register the key meanwhile.
            let was_registered = state.registered();
            let view = self.read_view_and_look_for_loss(key, state, deadline).await?;
            if view.metadata.is_none() && was_registered {
                return Err(TableError::Lost("its item was there and is gone".into()));
            }
            let read = Arc::new(view.clone());
            // An answer can overtake another; one that is older than what is known says nothing.
            if state.learn(view) {
                return Ok(read);
            }
        }
        Err(TableError::Lost("its generation went back".into()))
    }

    /// Of a key that was never seen here, the metadata and what only a key with metadata has are asked for at the same time: one round trip.
    async fn read_view_and_look_for_loss(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        deadline: Deadline,
    ) -> Result<View, TableError> {
        if state.is_new() || state.registered() {
            return self.read_view(key, deadline).await;
        }
        let patience = LOSS_PATIENCE.min(self.config.lease / 4);
        let soon = deadline.min(tokio::time::Instant::now() + patience);
        let (mut read, mut looked) = (pin!(self.read_view(key, deadline)), pin!(self.has_further_items(key, soon)));
        let mut found = None;
        let view = loop {
            tokio::select! {
                // In this order, so that a seed is a run.
                biased;
                view = &mut read => break view?,
                answer = &mut looked, if found.is_none() => found = Some(answer),
            }
        };
        if view.metadata.is_some() {
            return Ok(view);
        }
        let found = match found {
            Some(found) => found,
            None => looked.await,
        };
        let verdict = match found {
            Ok(found) => self.is_lost(key, found, soon).await,
            Err(error) => Err(error),
        };
        match verdict {
            Ok(()) => state.note_new(),
            // No verdict; the next view asks again.
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "whether the metadata of a key is lost is not known");
            }
            Err(error) => return Err(error),
        }
        Ok(view)
    }

    async fn read_view(&self, key: &PartitionKey, deadline: Deadline) -> Result<View, TableError> {
        retrying(&self.environment, deadline, || async {
            let asked_at = self.environment.now();
            telemetry::lease_refreshed();
            let metadata = self.tables.get_metadata(key).await?;
            Ok(View { metadata, asked_at, unregistered: self.config.adopt_shards })
        })
        .await
    }

    /// Learns what an update of the metadata left behind. The answer is newer than the instant before the update was sent.
    pub(crate) fn learn_update(&self, state: &KeyState, metadata: ShardMetadata, asked_at: Moment) {
        state.learn(View { metadata: Some(metadata), asked_at, unregistered: self.config.adopt_shards });
    }
}

/// Marks a background task as running for as long as it lives; `None` where one runs already.
pub(crate) struct Running {
    state: Arc<KeyState>,
    flag: fn(&KeyState) -> &AtomicBool,
}

impl Running {
    pub(crate) fn start(state: &Arc<KeyState>, flag: fn(&KeyState) -> &AtomicBool) -> Option<Self> {
        let was_running = flag(state).swap(true, Ordering::AcqRel);
        (!was_running).then(|| Self { state: Arc::clone(state), flag })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        (self.flag)(&self.state).store(false, Ordering::Release);
    }
}
