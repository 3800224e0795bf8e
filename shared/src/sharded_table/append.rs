//! Append: store an item under a sort key, the plain POST.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use super::keys::{KeyState, Running};
use super::retry::{Backoff, may_send_again};
use super::write::{WriteError, WriteErrorKind, Written};
use super::{Deadline, Inner, ShardedTable};
use crate::core::key::{PartitionKey, ShardCount, ShardNumber};
use crate::core::placement::Placement;
use crate::core::pressure::Pressure;
use crate::core::value::Item;
use crate::core::version::Version;
use crate::core::view::{THROTTLED_VIEW, View};
use crate::table::LeaseLasts;
use crate::table::error::TableError;
use crate::telemetry;

/// The most items of a batch that are on their way at once.
const BATCH_CONCURRENCY: usize = 64;
/// How many places that are another key's are tried.
const OCCUPIED_PLACES: u32 = 8;
/// A view is renewed in the background when this part of the append lease is used up.
const RENEW_AT: f64 = 0.75;

impl ShardedTable {
    /// Stores an item. A standing item with the same keys is replaced; of concurrent writes of one sort key the later by the
    /// writers' clocks wins.
    ///
    /// # Errors
    /// [`WriteError`] says whether the item may be stored and whether trying again helps.
    pub async fn append(&self, item: &Item, deadline: Deadline) -> Result<Written, WriteError> {
        self.inner.append(item, Repeatable::No, deadline).await
    }

    /// Stores an item whose sort key an idempotency key has made ([`IdempotencyKey::sort_key`]): a repetition, also one that comes after the
    /// item was replaced by a put, changes nothing and succeeds. After the item was deleted, a repetition stores it again.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    ///
    /// [`IdempotencyKey::sort_key`]: crate::IdempotencyKey::sort_key
    pub async fn append_once(&self, item: &Item, deadline: Deadline) -> Result<Written, WriteError> {
        self.inner.append(item, Repeatable::Yes, deadline).await
    }

    /// Stores items in parallel, each as [`append`](Self::append) does; the results are in the order of the items.
    pub async fn append_batch(&self, items: Vec<Item>, deadline: Deadline) -> Vec<Result<Written, WriteError>> {
        self.append_all(items, Repeatable::No, deadline).await
    }

    /// As [`append_batch`](Self::append_batch), each item as [`append_once`](Self::append_once) does.
    pub async fn append_batch_once(&self, items: Vec<Item>, deadline: Deadline) -> Vec<Result<Written, WriteError>> {
        self.append_all(items, Repeatable::Yes, deadline).await
    }

    async fn append_all(
        &self,
        items: Vec<Item>,
        repeatable: Repeatable,
        deadline: Deadline,
    ) -> Vec<Result<Written, WriteError>> {
        let slots = Arc::new(Semaphore::new(BATCH_CONCURRENCY));
        let mut tasks = tokio::task::JoinSet::new();
        let mut results: Vec<Option<Result<Written, WriteError>>> = items.iter().map(|_| None).collect();
        for (index, item) in items.into_iter().enumerate() {
            let (inner, slots) = (Arc::clone(&self.inner), Arc::clone(&slots));
            tasks.spawn(async move {
                let _slot = slots.acquire().await;
                (index, inner.append(&item, repeatable, deadline).await)
            });
        }
        while let Some(done) = tasks.join_next().await {
            if let Ok((index, result)) = done
                && let Some(slot) = results.get_mut(index)
            {
                *slot = Some(result);
            }
        }
        let lost = || Err(WriteErrorKind::Unknown("the task that stored it died".into()).after(1, 0));
        results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
    }
}

/// Whether the client may send the request again under its idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeatable {
    No,
    Yes,
}

impl Inner {
    async fn append(
        self: &Arc<Self>,
        item: &Item,
        repeatable: Repeatable,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        let version = match repeatable {
            Repeatable::No => self.environment.version(),
            // Nobody else uses the sort key but to replace the item: below every put, on whatever shard the repetition comes to lie.
            Repeatable::Yes => Version::LOWEST,
        };
        // Boxed: the SDK's futures nest so deeply that the compiler gives up on those which contain them.
        let written = Box::pin(AppendRun::new(self, item, version).run(deadline)).await;
        telemetry::write(&written);
        written
    }
}

/// Where an attempt without an answer went, and by which view; `None` for shard 1, which every width contains.
struct Unanswered {
    shard: ShardNumber,
    placed_by: Option<Arc<View>>,
}

/// One append with its attempts.
struct AppendRun<'a> {
    inner: &'a Arc<Inner>,
    item: &'a Item,
    /// Taken once, and kept by every attempt.
    version: Version,
    state: Arc<KeyState>,
    attempts: u32,
    throttled: u32,
    /// Attempts that met an item of another key.
    occupied: u32,
    /// An attempt had no answer and may yet be applied: stay on its shard until one answers.
    unanswered: Option<Unanswered>,
    /// Some attempt had no answer: whatever comes later, the item may be stored.
    may_be_stored: bool,
    last: Option<TableError>,
}

impl<'a> AppendRun<'a> {
    fn new(inner: &'a Arc<Inner>, item: &'a Item, version: Version) -> Self {
        let state = inner.keys.state(&item.partition_key);
        Self {
            inner,
            item,
            version,
            state,
            attempts: 0,
            throttled: 0,
            occupied: 0,
            unanswered: None,
            may_be_stored: false,
            last: None,
        }
    }

    async fn run(mut self, deadline: Deadline) -> Result<Written, WriteError> {
        let mut backoff = Backoff::default();
        loop {
            if Instant::now() >= deadline || (self.attempts > 0 && !may_send_again(deadline)) {
                return Err(self.give_up(None));
            }
            let view = match self.usable_view(deadline).await {
                Ok(view) => view,
                Err(error) => return Err(self.give_up(Some(error))),
            };
            if !self.may_repeat() {
                return Err(self.give_up(None));
            }
            let (shard, width) = self.place(view.as_deref());
            self.attempts += 1;
            let put =
                self.inner.tables.put_item((shard, width), self.item, self.version, self.lease(shard, view.as_ref()));
            let answer = match timeout_at(deadline, put).await {
                Ok(answer) => answer,
                Err(_) => {
                    self.went_unanswered(shard, view);
                    return Err(self.give_up(None));
                }
            };
            match answer {
                // A version as high stands there: this very write, applied before, or a later one that has replaced it.
                Ok(true) | Err(TableError::ConditionFailed) => {
                    self.count(width, false);
                    self.inner
                        .note_load(&self.item.partition_key, &self.state, view.as_deref(), || self.item.write_units());
                    self.inner.after_append(&self.item.partition_key, &self.state, view.as_deref());
                    let (attempts, throttled) = (self.attempts, self.throttled);
                    return Ok(Written { shard, number_of_shards: width, attempts, throttled });
                }
                // Frozen between looking and sending: look again.
                Ok(false) => {
                    self.attempts -= 1;
                    continue;
                }
                Err(TableError::Capacity(scope)) => {
                    self.throttled += 1;
                    telemetry::throttled(scope);
                    self.unanswered = None;
                    if self.inner.config.is_cured_by_shards(scope) {
                        self.state.note_throttled(shard, self.inner.environment.now());
                        self.count(width, true);
                        self.inner.relieve(&self.item.partition_key, &self.state);
                    }
                    self.last = Some(TableError::Capacity(scope));
                    if let Err(error) = self.look_again(deadline).await {
                        return Err(self.give_up(Some(error)));
                    }
                    // A random write at once tries another shard; the first time, there is nothing to wait for.
                    if self.inner.config.placement == Placement::Random
                        && self.throttled == 1
                        && width > ShardCount::ONE
                    {
                        continue;
                    }
                }
                // Without a view it was on shard 1, which need not be its home; and a random place is as good as another.
                Err(TableError::Occupied)
                    if self.occupied < OCCUPIED_PLACES
                        && (view.is_none() || self.inner.config.placement == Placement::Random) =>
                {
                    self.occupied += 1;
                    self.unanswered = None;
                    continue;
                }
                // A single put that meets a transaction on its item.
                Err(error @ TableError::Conflict) => self.last = Some(error),
                Err(error @ TableError::Transient(_)) => {
                    self.went_unanswered(shard, view);
                    self.last = Some(error);
                }
                Err(error) => return Err(self.give_up(Some(error))),
            }
            let pause = backoff.next(&self.inner.environment);
            if Instant::now() + pause >= deadline {
                return Err(self.give_up(None));
            }
            sleep(pause).await;
        }
    }

    /// The view to place by; `None` to append without one, on shard 1.
    async fn usable_view(&self, deadline: Deadline) -> Result<Option<Arc<View>>, TableError> {
        let lease = self.inner.config.append_lease();
        if let Some(view) = self.state.valid_view(self.inner.environment.now(), lease) {
            return Ok(Some(view));
        }
        if self.inner.config.cold_append && self.throttled == 0 && self.occupied == 0 {
            return Ok(None);
        }
        self.inner
            .view(&self.item.partition_key, &self.state, deadline, |view, now| view.is_valid(now, lease))
            .await
            .map(Some)
    }

    /// What a put on this shard is sent under: a drain waits for no longer lease. `None` on shard 1, which every width contains, and which is a
    /// candidate for ever where writers without a view may store there.
    fn lease(&self, shard: ShardNumber, view: Option<&Arc<View>>) -> Option<LeaseLasts> {
        let placed_by = self.unanswered.as_ref().map_or(view, |unanswered| unanswered.placed_by.as_ref());
        let free = shard == ShardNumber::FIRST && self.inner.config.cold_append;
        let view = Arc::clone(placed_by.filter(|_| !free)?);
        let inner = Arc::clone(self.inner);
        Some(Arc::new(move || view.is_valid(inner.environment.now(), inner.config.append_lease())))
    }

    fn unanswered_shard(&self) -> Option<ShardNumber> {
        self.unanswered.as_ref().map(|unanswered| unanswered.shard)
    }

    /// A repetition goes where the first attempt went, so it stands under the same lease: a shrink waits for no longer one.
    fn may_repeat(&self) -> bool {
        let placed_by = self.unanswered.as_ref().and_then(|unanswered| unanswered.placed_by.as_ref());
        placed_by.is_none_or(|view| view.is_valid(self.inner.environment.now(), self.inner.config.append_lease()))
    }

    fn went_unanswered(&mut self, shard: ShardNumber, view: Option<Arc<View>>) {
        self.may_be_stored = true;
        self.unanswered.get_or_insert(Unanswered { shard, placed_by: view });
    }

    fn place(&self, view: Option<&View>) -> (ShardNumber, ShardCount) {
        let Some(view) = view else {
            return (self.unanswered_shard().unwrap_or(ShardNumber::FIRST), ShardCount::ONE);
        };
        let width = view.width();
        let placed = || {
            let home = self.inner.config.placement.home(&self.item.partition_key, &self.item.sort_key, width);
            home.unwrap_or_else(|| self.inner.random_shard(&self.state, width))
        };
        (self.unanswered_shard().unwrap_or_else(placed), width)
    }

    /// First attempts are the demand; a repetition counts only where it succeeds.
    fn count(&self, width: ShardCount, throttled: bool) {
        let attempt = match (self.attempts, throttled) {
            (1, throttled) => Pressure::first_attempt(throttled),
            (_, false) => Pressure::late_success(),
            (_, true) => return,
        };
        self.state.record(width, attempt, self.inner.environment.now());
    }

    /// A throttled writer keeps its view fresh, so that it notices new shards at once.
    async fn look_again(&self, deadline: Deadline) -> Result<(), TableError> {
        let look = self
            .inner
            .view(&self.item.partition_key, &self.state, deadline, |view, now| view.is_valid(now, THROTTLED_VIEW));
        match look.await {
            Ok(_) => Ok(()),
            // Without metadata the old view serves for as long as it is valid.
            Err(error) if error.is_retryable() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn give_up(&mut self, error: Option<TableError>) -> WriteError {
        if self.may_be_stored {
            let cause = error.map_or_else(|| "no answer before the deadline".to_owned(), |error| error.to_string());
            return WriteErrorKind::Unknown(format!("an attempt had no answer; then: {cause}"))
                .after(self.attempts, self.throttled);
        }
        WriteErrorKind::of_last(error.or_else(|| self.last.take())).after(self.attempts, self.throttled)
    }
}

impl Inner {
    /// Pick two, take the calmer.
    fn random_shard(&self, state: &KeyState, width: ShardCount) -> ShardNumber {
        let draw = || ShardNumber::from_index(self.environment.below(width.get()));
        state.calmer(draw(), draw(), self.environment.now())
    }

    /// What must follow a write but not delay its answer: registration of a new key, and renewal of an ageing view.
    pub(super) fn after_append(self: &Arc<Self>, key: &PartitionKey, state: &Arc<KeyState>, view: Option<&View>) {
        let fresh = view.is_some_and(|view| view.is_valid(self.environment.now(), self.renew_after()));
        if fresh && view.is_some_and(|view| view.metadata.is_some()) {
            return;
        }
        let Some(running) = Running::start(state, |state| &state.refreshing) else { return };
        let (inner, key, state) = (Arc::clone(self), key.clone(), Arc::clone(state));
        self.background.spawn(async move {
            if let Err(error) = inner.renew(&key, &state).await {
                tracing::warn!(%error, "could not renew the view of a key; the next write of it tries again");
            }
            drop(running);
        });
    }

    /// Counts a write of a key that has several shards, and once a minute notes what was counted: by that a shrink is decided.
    pub(super) fn note_load(
        self: &Arc<Self>,
        key: &PartitionKey,
        state: &Arc<KeyState>,
        view: Option<&View>,
        units: impl FnOnce() -> u64,
    ) {
        // Without a view, the next write that has one tells whether there are several shards.
        let is_single = view.is_some_and(|view| view.metadata.is_none() || view.width() == ShardCount::ONE);
        if is_single {
            state.units.store(0, Ordering::Relaxed);
            return;
        }
        state.units.fetch_add(units(), Ordering::Relaxed);
        let minute = self.environment.now().epoch_seconds() / 60;
        let last = state.units_noted.load(Ordering::Relaxed);
        if view.is_none()
            || last >= minute
            || state.units_noted.compare_exchange(last, minute, Ordering::Relaxed, Ordering::Relaxed).is_err()
            || last == 0
        {
            return;
        }
        let units = state.units.swap(0, Ordering::Relaxed);
        let (inner, key) = (Arc::clone(self), key.clone());
        self.background.spawn(async move {
            // It may have been frozen until now.
            let minute = inner.environment.now().epoch_seconds() / 60;
            if let Err(error) = inner.tables.note_load(&key, minute, units).await {
                tracing::warn!(%error, units, "the load of a key could not be noted: it looks calmer than it is");
            }
        });
    }

    fn renew_after(&self) -> Duration {
        self.config.append_lease().mul_f64(RENEW_AT)
    }

    async fn renew(&self, key: &PartitionKey, state: &KeyState) -> Result<(), TableError> {
        let deadline = Instant::now() + crate::table::ATTEMPT_TIMEOUT;
        let view = self.view(key, state, deadline, |view, now| view.is_valid(now, self.renew_after())).await?;
        if view.metadata.is_none() {
            self.register(key, state, deadline).await?;
        }
        Ok(())
    }

    /// Gives a key that has none its metadata; another instance may be first.
    pub(super) async fn register(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        self.is_certainly_new(key, state, deadline).await?;
        let asked_at = self.environment.now();
        match self.tables.register(key, asked_at.epoch_seconds()).await {
            Ok(metadata) => self.learn_update(state, metadata, asked_at),
            Err(TableError::ConditionFailed) => {
                self.view(key, state, deadline, |view, _| view.metadata.is_some()).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
