//! One run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Poisson};
use sharding::internal::Deadline;
use sharding::maintenance::{ScalingDecision, ScalingEvent, ScalingStep};
use sharding::{Attributes, Item, PartitionKey, ShardCount, SortKey, SortKeyType, Value};
use tokio::sync::broadcast::Receiver;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::fleet::Instances;
use crate::outcome::{Outcome, Second};
use crate::scenario::{Contender, Items, Load, PATIENCE, Scenario, SortKeys};
use crate::table::Table;

/// Arrivals are drawn for this long at a time.
const TICK: Duration = Duration::from_millis(10);
/// A caller waits at most this long before it repeats a write that was answered 503, as its
/// `Retry-After` asks.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The sizes of mixed items, in kilobytes.
const MIXED: [u32; 4] = [1, 4, 20, 100];

/// Runs one scenario in paused time.
///
/// # Panics
/// If the embedded engine does not work.
#[must_use]
pub fn run(scenario: &Scenario) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime starts").block_on(World::run(scenario.clone()))
}

/// What all writes of a run share.
struct World {
    scenario: Scenario,
    instances: Arc<Instances>,
    keys: Vec<PartitionKey>,
    /// An item's attributes by its kilobytes.
    contents: Vec<(u32, Attributes)>,
    began: Instant,
    state: Mutex<State>,
}

struct State {
    rng: Xoshiro256PlusPlus,
    outcome: Outcome,
}

impl World {
    async fn run(scenario: Scenario) -> Outcome {
        let table = Table::new(&scenario).await;
        let instances = Instances::new(table, &scenario);
        let sizes = match scenario.items {
            Items::Kilobytes(size) => vec![size],
            Items::Mixed => MIXED.to_vec(),
        };
        let content = |size: u32| {
            // The keys need some bytes, too.
            let filler = "x".repeat((size as usize * 1_024).saturating_sub(300));
            (size, Attributes::from([("filler".to_owned(), Value::S(filler))]))
        };
        let outcome = Outcome {
            seconds: vec![Second::default(); scenario.seconds as usize],
            keys: vec![(0.0, 1); scenario.keys.len()],
            ..Outcome::default()
        };
        let state = State { rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed), outcome };
        let world = Arc::new(Self {
            keys: (0..scenario.keys.len()).map(|number| scenario.key(number)).collect(),
            contents: sizes.into_iter().map(content).collect(),
            began: Instant::now(),
            instances,
            state: Mutex::new(state),
            scenario,
        });
        let end = world.began + Duration::from_secs(world.scenario.seconds.into());
        let controller = tokio::spawn(Arc::clone(&world).control());
        let watcher = tokio::spawn(Arc::clone(&world).watch());
        match world.scenario.load {
            Load::Open(demand, shape) => world.open(demand, shape, end).await,
            Load::Closed { clients, think } => {
                for _ in 0..clients.div_ceil(world.scenario.scale) {
                    tokio::spawn(Arc::clone(&world).client(think, end));
                }
                sleep_until(end).await;
            }
        }
        controller.abort();
        watcher.abort();
        std::mem::take(&mut world.state().outcome)
    }

    async fn open(self: &Arc<Self>, demand: f64, shape: fn(f64) -> f64, end: Instant) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let writes = demand / self.mean_units() / f64::from(self.scenario.scale);
        loop {
            let tick = ticks.tick().await;
            if tick >= end {
                return;
            }
            let second = (tick - self.began).as_secs() as usize;
            if self.scenario.until_relieved && self.state().outcome.is_relieved_by(second) {
                break;
            }
            let rate = writes * shape((tick - self.began).as_secs_f64()) * TICK.as_secs_f64();
            for key in 0..self.keys.len() {
                let count = self.arrivals(rate * self.scenario.keys[key]);
                for _ in 0..count {
                    let within = TICK.mul_f64(self.state().rng.random());
                    tokio::spawn(Arc::clone(self).write(key, tick + within));
                }
            }
        }
        while self.state().outcome.has_undecided() {
            ticks.tick().await;
        }
    }

    /// Write units of an item on average.
    fn mean_units(&self) -> f64 {
        // Each size has an equal share of the units.
        let writes: f64 = self.contents.iter().map(|(size, _)| 1.0 / f64::from(*size)).sum();
        self.contents.len() as f64 / writes
    }

    fn arrivals(&self, mean: f64) -> u64 {
        Poisson::new(mean).map_or(0, |poisson| poisson.sample(&mut self.state().rng) as u64)
    }

    async fn client(self: Arc<Self>, think: Duration, end: Instant) {
        // Not all at the same instant.
        let first = self.state().rng.random::<f64>();
        sleep(think.mul_f64(first)).await;
        while Instant::now() < end {
            Arc::clone(&self).write(0, Instant::now()).await;
            sleep(think).await;
        }
    }

    /// A write, repeated by its caller while its patience lasts.
    async fn write(self: Arc<Self>, key: usize, comes: Instant) {
        sleep_until(comes).await;
        let (item, units) = self.item(key);
        let second = (comes - self.began).as_secs() as usize;
        {
            let mut state = self.state();
            state.outcome.keys[key].0 += units;
            if let Some(of) = state.outcome.seconds.get_mut(second) {
                of.came += 1;
            }
        }
        let patience = comes + PATIENCE;
        let is_stored = loop {
            let Some(instance) = self.instances.get(patience).await else { break false };
            let stored = instance.engine.put(&item, patience).await;
            drop(instance);
            if stored.is_ok() {
                break true;
            }
            let pause = RETRY_AFTER.mul_f64(0.5 + 0.5 * self.state().rng.random::<f64>());
            if Instant::now() + pause >= patience {
                break false;
            }
            sleep(pause).await;
        };
        self.state().outcome.record(second, comes.elapsed(), is_stored);
    }

    fn item(&self, key: usize) -> (Item, f64) {
        let mut state = self.state();
        let sort_key = match self.scenario.sort_keys {
            SortKeys::Scattered => format!("{:016x}", state.rng.random::<u64>()),
            SortKeys::Few(count) => format!("{:04}", state.rng.random_range(0..count)),
        };
        // Of each size as many as have an equal share of the units.
        let total: f64 = self.contents.iter().map(|(size, _)| 1.0 / f64::from(*size)).sum();
        let mut drawn = state.rng.random::<f64>() * total;
        let found = self.contents.iter().find(|(size, _)| {
            drawn -= 1.0 / f64::from(*size);
            drawn < 0.0
        });
        let (size, attributes) = found.or(self.contents.last()).expect("there is a size");
        let sort_key =
            SortKey::parse(SortKeyType::String, &sort_key).expect("a short text is a sort key");
        let item = Item {
            partition_key: self.keys[key].clone(),
            sort_key,
            attributes: attributes.clone(),
        };
        (item, f64::from(*size))
    }

    /// Sets the width of a contender that is not ours.
    async fn control(self: Arc<Self>) {
        let engine = self.instances.table().instance(u32::MAX - 1);
        let key = &self.keys[0];
        let set = async |width: u32| {
            let width = ShardCount::new(width.min(200)).unwrap_or(ShardCount::ONE);
            let deadline = Deadline::now() + Duration::from_secs(10);
            engine.until(deadline).grow(key, width).await.is_ok()
        };
        match self.scenario.contender {
            Contender::Ours => {}
            Contender::Once(width) => {
                if set(width).await {
                    self.changed(0, width);
                }
            }
            Contender::Doubling => {
                let (mut width, mut before) = (1, self.instances.table().model.attempts());
                loop {
                    sleep(Duration::from_secs(2)).await;
                    let now = self.instances.table().model.attempts();
                    let (accepted, throttled) = (now.0 - before.0, now.1 - before.1);
                    if throttled * 50 > accepted + throttled && width < 200 && set(width * 2).await
                    {
                        width = (width * 2).min(200);
                        self.changed(0, width);
                    }
                    before = self.instances.table().model.attempts();
                }
            }
        }
    }

    /// Follows what the instances report.
    async fn watch(self: Arc<Self>) {
        let mut receivers: Vec<Receiver<ScalingEvent>> = Vec::new();
        let mut ticks = interval(TICK * 5);
        loop {
            ticks.tick().await;
            let started = self.instances.started();
            for engine in started.get(receivers.len()..).unwrap_or_default() {
                receivers.push(engine.until(Deadline::now()).events());
            }
            for receiver in &mut receivers {
                while let Ok(event) = receiver.try_recv() {
                    self.observe(&event);
                }
            }
        }
    }

    fn observe(&self, event: &ScalingEvent) {
        let Some(key) = self.keys.iter().position(|key| *key == event.partition_key) else {
            return;
        };
        let now = self.began.elapsed().as_secs_f64();
        match event.step {
            ScalingStep::Opened(width) => self.changed(key, width.get()),
            ScalingStep::Unchanged(
                ScalingDecision::ShortOfPartitions { .. }
                | ScalingDecision::NoGain { .. }
                | ScalingDecision::AtMaximum,
            ) => {
                self.state().outcome.short_after.get_or_insert(now);
            }
            ScalingStep::Unchanged(ScalingDecision::HotItems { .. }) => {
                self.state().outcome.hot_items_after.get_or_insert(now);
            }
            ScalingStep::Unchanged(_) | ScalingStep::Closed(_) | ScalingStep::Drained(_) | _ => {}
        }
    }

    fn changed(&self, key: usize, width: u32) {
        let now = self.began.elapsed().as_secs_f64();
        let mut state = self.state();
        if key == 0 {
            state.outcome.changes.push((now, width));
        }
        if let Some(of) = state.outcome.keys.get_mut(key) {
            of.1 = of.1.max(width);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
