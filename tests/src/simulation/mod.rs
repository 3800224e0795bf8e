//! The seeded simulation of the real code: many instances, each with its own cache and clock, over
//! one engine with partition limits and a network that loses, delays and repeats requests. Time is
//! paused, so a seed determines the run.

mod copying;
mod disturbing;
mod drains;
mod ending;
mod endpoint;
mod failure;
mod faults;
mod history;
mod linearizability;
mod native;
mod native_write;
mod network;
mod reading;
mod record;
mod registers;
mod replaced_counters;
mod slow_metadata;
mod totals;
mod updating;
mod world;
mod writing;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use embedded_dynamodb::{Engine, InProcess, PartitionLimits, http_client};
use local::{clients_over, in_process_clients};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::{Environment, TableEngine};
use sharding::{PartitionKey, ShardCount, Writes, create_tables};
use tokio::task::JoinSet;
use tokio::time::sleep;

pub use totals::Totals;

use copying::raise_copies;
use disturbing::disturb;
use drains::drain;
use ending::{finish, newcomer};
use endpoint::ENDPOINTS;
use faults::FaultRates;
use network::{Instance, Process};
use reading::read;
use replaced_counters::add_and_replace;
use updating::{check_counters, update};
use world::{Actor, World};
use writing::write;

use crate::{partition_key, soon, sort_key, value_of};

/// The configuration of one run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// The seed of all random numbers.
    pub seed: u64,
    /// A deliberately broken build: it opens immediately after a close, while others use earlier
    /// views.
    pub without_waiting: bool,
    /// Whether keys shrink again once the load has gone down. The waits of the build are only as
    /// long as the faults here require.
    pub shrinking: bool,
    /// Whether keys that may shrink are also settled.
    pub settling: bool,
    /// Whether the table is append-only: instances without a view write to shard 1, and no item is
    /// put, deleted, created or settled.
    pub appends: bool,
    /// Whether there are also conditional changes and additions.
    pub updates: bool,
    /// Whether requests arrive late by up to 14 minutes, in a run of an hour with the waits of the
    /// product.
    pub minutes_late: bool,
    /// Whether there are also clients of endpoints.
    pub endpoints: bool,
    /// A deliberately broken build: an endpoint's write accepts an item of any era at its home as
    /// the newest copy.
    pub without_eras: bool,
}

impl Plan {
    const fn sets_clocks_back(self) -> bool {
        self.seed % 2 == 1
    }

    /// In two thirds of the runs, clocks differ by up to 5 s, in addition to set-backs.
    const fn has_wrong_clocks(self) -> bool {
        !self.seed.is_multiple_of(3)
    }

    /// In half of the runs, there are stretches in which the metadata table answers late.
    const fn has_slow_metadata(self) -> bool {
        self.seed / 4 % 2 == 1
    }

    const fn most_shards(self) -> u32 {
        if self.minutes_late { MOST_SHARDS_OF_MINUTES } else { MAX_SHARDS }
    }

    /// In some runs, a draining instance dies, and another takes over; or else an endpoint dies.
    const fn loses_a_second_actor(self) -> bool {
        self.seed % 4 == 3
    }

    /// In half of the runs, each page of the directory has two copies from the beginning. In the
    /// others, the first writer creates the page.
    const fn begins_with_copies(self) -> bool {
        self.seed / 2 % 2 == 1
    }

    /// In a third of the runs, copies are added during the run.
    const fn raises_copies(self) -> bool {
        self.seed.is_multiple_of(3)
    }

    fn lasts(self) -> Duration {
        let calm = if self.minutes_late { CALM_OF_MINUTES } else { CALM };
        if self.shrinking { HOT + calm } else { HOT }
    }
}

const WRITERS: usize = 4;
const READERS: usize = 3;
const KEYS: usize = 3;
const COOLDOWN_SECONDS: u64 = 2;
/// Throttles that are injected at random make keys grow. Wider ones make a run longer, and show
/// nothing else.
const MAX_SHARDS: u32 = 60;
/// The same in a run in which requests arrive minutes late.
const MOST_SHARDS_OF_MINUTES: u32 = 8;
/// The duration of the load that makes keys grow.
const HOT: Duration = Duration::from_secs(8);
/// The duration of the calm in which they shrink again.
const CALM: Duration = Duration::from_secs(170);
/// The same in a run in which requests arrive minutes late.
const CALM_OF_MINUTES: Duration = Duration::from_secs(60 * 60);
/// The number of instances that drain concurrently.
const DRAINERS: usize = 2;
const WRITE_DEADLINE: Duration = Duration::from_secs(5);
/// The deadline of a read, and of an operator's call.
const READ_DEADLINE: Duration = Duration::from_secs(6);

/// Runs one seed to its end in its own runtime.
///
/// # Errors
/// The first broken promise: the product is wrong, or a broken build was simulated. The first line
/// names the promise; the others list the writes that reached the table of that item.
///
/// # Panics
/// If the simulation itself cannot go on. Then the run proves nothing about the product.
pub fn run(plan: Plan) -> Result<Totals, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(simulate(plan))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(index: usize) -> PartitionKey {
    partition_key(&format!("hot/{index}"))
}

fn table(instance: &Arc<Instance>, plan: Plan, seed: u64) -> TableEngine {
    let process = Process(Arc::clone(instance));
    let client = clients_over(http_client(process.clone())).dynamodb;
    let mut environment = Environment::seeded(process, seed);
    if plan.without_waiting {
        environment = environment.without_waiting_for_views();
    }
    let mut of_table = crate::config();
    of_table.policy.cooldown_seconds = COOLDOWN_SECONDS;
    of_table.policy.max_shards = ShardCount::new(plan.most_shards()).expect("at least one");
    drains::configure(&mut of_table, plan);
    of_table.writes = if plan.appends { Writes::Appends } else { Writes::Items };
    TableEngine::with_environment(&client, of_table, environment)
}

async fn simulate(plan: Plan) -> Result<Totals, String> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let engine = Engine::in_memory().expect("an engine");
    let partitions = [4, 16, 64][rng.random_range(0..3)];
    let limits = PartitionLimits {
        partitions,
        write_units: 15.0,
        read_units: 2_000.0,
        ..PartitionLimits::default()
    };
    engine.set_limits([("items".to_owned(), limits)]);
    let client = in_process_clients(&InProcess::new(engine.clone())).dynamodb;
    create_tables(&client, &crate::config()).await.expect("tables");
    let world = Arc::new(World::new(engine.clone(), plan));
    if plan.endpoints {
        // An endpoint claims its table when it starts.
        newcomer(&world, 3).until(soon()).claim().await.expect("claimed");
    }
    if plan.begins_with_copies() {
        let raised = newcomer(&world, 2).until(soon()).raise_directory_copies(2).await;
        raised.expect("copies");
    }
    let drainers = if plan.shrinking { DRAINERS } else { 0 };
    let instances = instances(drainers, &world, &mut rng);
    let actors: Vec<Actor> = (0..)
        .zip(instances)
        .map(|(index, instance)| {
            let table = table(&instance, plan, rng.random());
            Actor { index, instance, table, world: Arc::clone(&world) }
        })
        .collect();
    let mut work = start_actors((&engine, limits), &actors, &mut rng);
    if plan.endpoints {
        for (index, actor) in actors[actors.len() - ENDPOINTS..].iter().enumerate() {
            let service = endpoint::start(actor).await;
            work.spawn(native::ask(index, actor.clone(), service, rng.random()));
        }
    }
    work.spawn(disturb(actors.clone(), rng.random()));
    work.join_all().await;
    // Findings of the run come before findings at its end.
    world.verdict()?;
    finish(&actors, &world).await?;
    if plan.updates {
        check_counters(&newcomer(&world, 1), &world).await?;
    }
    world.verdict()
}

/// The instances: writers, readers, drainers and endpoints, in this order.
fn instances(drainers: usize, world: &Arc<World>, rng: &mut StdRng) -> Vec<Arc<Instance>> {
    let plan = world.plan;
    let of_run = (0..WRITERS + READERS + drainers).map(|index| match index {
        _ if index >= WRITERS + READERS && plan.minutes_late => FaultRates::DRAINING_MINUTES_LATE,
        _ if index >= WRITERS + READERS => FaultRates::DRAINING,
        _ if plan.minutes_late => FaultRates::MINUTES_LATE,
        0 => FaultRates::LATE,
        _ if index >= WRITERS && drainers > 0 => FaultRates::READING,
        _ => FaultRates::SERVING,
    });
    let endpoints = if plan.endpoints { ENDPOINTS } else { 0 };
    let of_endpoints = [FaultRates::LATE, FaultRates::SERVING, FaultRates::SERVING];
    of_run
        .chain(of_endpoints.into_iter().take(endpoints))
        .enumerate()
        .map(|(index, rates)| Instance::new((index, rng.random()), world, rates))
        .collect()
}

/// Starts the work of all instances: writes, reads and drains, and what the plan adds.
fn start_actors(
    (engine, limits): (&Engine, PartitionLimits),
    actors: &[Actor],
    rng: &mut StdRng,
) -> JoinSet<()> {
    let (mut work, plan) = (JoinSet::new(), actors[0].world.plan);
    for (index, actor) in actors.iter().cloned().enumerate() {
        let seed = rng.random();
        if index < WRITERS {
            work.spawn(write(actor, seed));
        } else if index < WRITERS + READERS {
            work.spawn(read(actor, seed));
        } else if !plan.endpoints || index + ENDPOINTS < actors.len() {
            // The others are endpoints, which have clients of their own.
            work.spawn(drain(actor, seed));
        }
    }
    if plan.minutes_late {
        work.spawn(add_and_replace(actors[..WRITERS].to_vec(), rng.random()));
    }
    if plan.updates {
        for actor in &actors[..WRITERS] {
            work.spawn(update(actor.clone()));
        }
    }
    if plan.shrinking && rng.random_range(0..4) > 0 {
        // With partitions as small as these, the heat of most drains would stop them.
        let (engine, limits) = (engine.clone(), PartitionLimits { write_units: 500.0, ..limits });
        work.spawn(async move {
            sleep(HOT).await;
            engine.set_limits([("items".to_owned(), limits)]);
        });
    }
    if plan.raises_copies() {
        work.spawn(raise_copies(actors[1].clone(), rng.random()));
    }
    work
}
