//! The seeded simulation of the real code: many instances, each with its own cache and clock, over one engine with partition limits and a
//! network that loses, delays and repeats. Time is paused, so that a seed is a run.

mod adopting;
mod copying;
mod disturbing;
mod drains;
mod ending;
mod failure;
mod history;
mod linearizability;
mod network;
mod reading;
mod record;
mod registers;
mod totals;
mod updating;
mod world;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use local::{clients_over, create_tables, in_process_clients};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::{Attributes, Environment, PartitionKey, SortKey, SortKeyType, TableEngine, Value, Writes};
use tokio::time::{Instant, sleep};

pub use drains::Shrinking;
pub use failure::Failure;
pub use totals::Totals;

use copying::raise_copies;
use disturbing::disturb;
use drains::drain;
use ending::{finish, newcomer, soon};
use network::{Connection, FaultRates, Instance, InstanceClock};
use reading::read;
use updating::{check_counters, update};
use world::World;
use writing::write;

/// What one seed runs.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Of everything random.
    pub seed: u64,
    /// A deliberately broken build: a closing opens at once, while others rely on views from before.
    pub without_waiting: bool,
    /// Whether keys shrink again, and how.
    pub shrinking: Shrinking,
    /// Whether keys that may shrink are settled, too.
    pub settling: bool,
    /// Whether another program has stored items under the bare keys before, which are migrated meanwhile.
    pub adopting: bool,
    /// Whether the table takes appends only: instances without a view write to shard 1, and nothing is put, deleted, created or settled.
    pub appends: bool,
    /// Whether items are changed under conditions, and added to, besides.
    pub updates: bool,
}

impl Plan {
    const fn sets_clocks_back(self) -> bool {
        self.seed % 2 == 1
    }

    /// In some runs, one of the instances that drain dies, and another takes over.
    const fn loses_a_drainer(self) -> bool {
        self.seed % 4 == 3
    }

    /// In half of the runs, each page of the directory has two copies from the beginning; in the others, whoever writes first makes it.
    const fn begins_with_copies(self) -> bool {
        self.seed / 2 % 2 == 1
    }

    /// In a third of the runs, copies are added while it goes on.
    const fn raises_copies(self) -> bool {
        self.seed.is_multiple_of(3)
    }

    fn lasts(self) -> Duration {
        match self.shrinking {
            Shrinking::Never => HOT,
            Shrinking::AsBuilt => HOT + CALM,
            Shrinking::WithoutWaitingForReads | Shrinking::WithoutWaitingForRequests => HOT + CALM / 2,
        }
    }
}

const WRITERS: usize = 4;
const READERS: usize = 3;
const KEYS: usize = 3;
const COOLDOWN_SECONDS: u64 = 2;
/// Of the load that makes keys grow.
const HOT: Duration = Duration::from_secs(8);
/// Of the calm in which they shrink again.
const CALM: Duration = Duration::from_secs(170);
/// Instances that carry on with drains, beside each other.
const DRAINERS: usize = 2;
const WRITE_DEADLINE: Duration = Duration::from_secs(5);
const READ_DEADLINE: Duration = Duration::from_secs(6);

/// Runs one seed to its end in a runtime of its own.
///
/// # Errors
/// [`Failure::Violation`] with the first broken promise, and [`Failure::Harness`] where the simulation itself cannot go on.
///
/// # Panics
/// Where there is no runtime, or a task of the simulation panics.
pub fn run(plan: Plan) -> Result<Totals, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(simulate(plan))
}

fn key(index: usize) -> PartitionKey {
    PartitionKey::new(&format!("hot/{index}")).expect("a key")
}

fn sort_key(text: &str) -> SortKey {
    SortKey::parse(SortKeyType::String, text).expect("a sort key")
}

fn value_of(attributes: &Attributes) -> Option<u64> {
    match attributes.get("value") {
        Some(Value::N(number)) => number.parse().ok(),
        _ => None,
    }
}

fn table(instance: &Arc<Instance>, plan: Plan, seed: u64) -> TableEngine {
    let client = clients_over(Connection(Arc::clone(instance)).into_shared()).dynamodb;
    let mut environment = Environment::seeded(InstanceClock(Arc::clone(instance)), seed);
    if plan.without_waiting {
        environment = environment.without_waiting_for_views();
    }
    let mut of_table = crate::config();
    of_table.policy.cooldown_seconds = COOLDOWN_SECONDS;
    plan.shrinking.configure(&mut of_table, plan.seed);
    of_table.writes = if plan.appends { Writes::Appends } else { Writes::Items };
    of_table.adopt_unsharded = plan.adopting;
    TableEngine::with_environment(&client, of_table, environment)
}

async fn simulate(plan: Plan) -> Result<Totals, Failure> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let engine = Engine::in_memory().map_err(|error| Failure::Harness(error.to_string()))?;
    let partitions = [4, 16, 64][rng.random_range(0..3)];
    let limits = PartitionLimits { partitions, write_units: 15.0, read_units: 2_000.0, ..PartitionLimits::default() };
    engine.set_limits([("items".to_owned(), limits)]);
    let created = create_tables(&in_process_clients(&InProcess::new(engine.clone())).dynamodb, &crate::config()).await;
    created.map_err(Failure::Harness)?;
    let origin = Instant::now();
    let world = Arc::new(World::new(origin, plan));
    if plan.adopting {
        adopting::store_bare(&engine, &world).await;
    }
    if plan.begins_with_copies() {
        let raised = newcomer(&engine, &world, plan, 2).raise_directory_copies(2, soon()).await;
        raised.map_err(|error| Failure::Harness(error.to_string()))?;
    }
    let drainers = if plan.shrinking == Shrinking::Never { 0 } else { DRAINERS };
    let instances: Vec<_> = (0..WRITERS + READERS + drainers)
        .map(|index| {
            let rates = match index {
                _ if index >= WRITERS + READERS => plan.shrinking.rates_of_drainers(),
                0 => FaultRates::LATE,
                _ if index >= WRITERS && drainers > 0 => plan.shrinking.rates_of_readers(),
                _ => FaultRates::SERVING,
            };
            Instance::new((index, rng.random()), engine.clone(), origin, rates, Arc::clone(&world.record))
        })
        .collect();
    let tables: Vec<_> = instances.iter().map(|instance| table(instance, plan, rng.random())).collect();
    let mut work = tokio::task::JoinSet::new();
    for (index, (instance, table)) in instances.iter().zip(&tables).enumerate() {
        let (instance, table, world, seed) = (Arc::clone(instance), table.clone(), Arc::clone(&world), rng.random());
        if index < WRITERS {
            work.spawn(write(index, instance, table, world, plan, seed));
        } else if index < WRITERS + READERS {
            work.spawn(read(instance, table, world, plan, seed));
        } else {
            work.spawn(drain(instance, table, world, plan, seed));
        }
    }
    if plan.updates {
        for (index, (instance, table)) in instances.iter().zip(&tables).take(WRITERS).enumerate() {
            let (instance, table, world) = (Arc::clone(instance), table.clone(), Arc::clone(&world));
            work.spawn(update(index, instance, table, world, plan.seed));
        }
    }
    if plan.shrinking != Shrinking::Never && !rng.random_range(0..4).eq(&0) {
        // Where partitions stay as small as this, most drains are stopped by the heat that they make themselves.
        let (engine, limits) = (engine.clone(), PartitionLimits { write_units: 500.0, ..limits });
        work.spawn(async move {
            sleep(HOT).await;
            engine.set_limits([("items".to_owned(), limits)]);
        });
    }
    if plan.raises_copies() {
        let (instance, table) = (Arc::clone(&instances[1]), tables[1].clone());
        work.spawn(raise_copies(instance, table, Arc::clone(&world), rng.random()));
    }
    work.spawn(disturb(instances.clone(), Arc::clone(&world), plan, rng.random()));
    work.join_all().await;
    // What the run has found is told before what would be found at its end.
    world.verdict()?;
    finish(&engine, &instances, &tables, &world, plan).await?;
    if plan.updates {
        check_counters(&newcomer(&engine, &world, plan, 1), &world).await?;
    }
    world.verdict()
}
