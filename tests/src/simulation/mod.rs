//! The seeded simulation of the real code: many instances, each with its own cache and clock, over one engine with partition limits and a
//! network that loses, delays and repeats. Time is paused, so that a seed is a run.

mod adopting;
mod drains;
mod history;
mod linearizability;
mod network;
mod registers;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use local::{clients_over, create_tables, in_process_clients};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::{
    Attributes, Deadline, Drained, Environment, IdempotencyKey, Item, Order, PageQuery, PartitionKey, Pressure,
    ShardedTable, SortKey, SortKeyType, Value, WriteError, WriteErrorKind, Written,
};
use tokio::time::{Instant, sleep};

pub use drains::Shrinking;

use drains::drain;
use history::KeyHistory;
use linearizability::Kind;
use network::{Connection, FaultRates, Injected, Instance, InstanceClock};
use registers::{Outcome, Registers};

/// What one seed runs.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Of everything random.
    pub seed: u64,
    /// A deliberately broken build: a width is activated without waiting for old views to run out.
    pub without_waiting: bool,
    /// Whether keys shrink again, and how.
    pub shrinking: Shrinking,
    /// Whether keys that may shrink are settled, too: then no append goes without a view.
    pub settling: bool,
    /// Whether another program has stored items under the bare keys before, which are migrated meanwhile.
    pub adopting: bool,
}

impl Plan {
    const fn sets_clocks_back(self) -> bool {
        self.seed % 2 == 1
    }
}

/// What a run did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Totals {
    /// Appends that were acknowledged.
    pub acknowledged: u64,
    /// Appends without an acknowledgement: refused, or unknown.
    pub unacknowledged: u64,
    /// Puts, deletions and create-only writes that were acknowledged.
    pub point_writes: u64,
    /// Requests that a client has repeated under their idempotency key.
    pub repeated: u64,
    /// Create-only writes that were told of an item.
    pub existed: u64,
    /// Point writes without an acknowledgement.
    pub unacknowledged_point_writes: u64,
    /// Scans and point reads that were checked.
    pub reads: u64,
    /// Reads that had no answer in time.
    pub unanswered_reads: u64,
    /// Changes of a width.
    pub scale_outs: u64,
    /// Shrinks that were carried through, and those that a hot key stopped.
    pub shrinks: u64,
    /// Settlings that were carried through.
    pub settlings: u64,
    /// Migrations that were carried through.
    pub migrations: u64,
    /// Runs of a drain that were cut off in the middle.
    pub cut_off: u64,
    /// The widest key at the end.
    pub widest: u32,
    /// Faults of all kinds.
    pub faults: u64,
}

impl Totals {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            acknowledged: self.acknowledged + other.acknowledged,
            unacknowledged: self.unacknowledged + other.unacknowledged,
            point_writes: self.point_writes + other.point_writes,
            repeated: self.repeated + other.repeated,
            existed: self.existed + other.existed,
            unacknowledged_point_writes: self.unacknowledged_point_writes + other.unacknowledged_point_writes,
            reads: self.reads + other.reads,
            unanswered_reads: self.unanswered_reads + other.unanswered_reads,
            scale_outs: self.scale_outs + other.scale_outs,
            shrinks: self.shrinks + other.shrinks,
            settlings: self.settlings + other.settlings,
            migrations: self.migrations + other.migrations,
            cut_off: self.cut_off + other.cut_off,
            widest: self.widest.max(other.widest),
            faults: self.faults + other.faults,
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
const SHRINKERS: usize = 2;
const WRITE_DEADLINE: Duration = Duration::from_secs(5);
const READ_DEADLINE: Duration = Duration::from_secs(6);

struct World {
    histories: [Mutex<KeyHistory>; KEYS],
    registers: [Mutex<Registers>; KEYS],
    totals: Mutex<Totals>,
    violation: Mutex<Option<String>>,
    began: Instant,
    ends: Instant,
    /// Until then, items are moved: a good time to read them.
    moving_until: Mutex<Instant>,
}

impl World {
    fn history(&self, key: usize) -> MutexGuard<'_, KeyHistory> {
        self.histories[key % KEYS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registers(&self, key: usize) -> MutexGuard<'_, Registers> {
        self.registers[key % KEYS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut self.totals.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn check(&self, checked: Result<(), String>, of: &str) {
        if let Err(violation) = checked {
            self.violation.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(format!("{of}: {violation}"));
        }
    }

    fn age(&self) -> Duration {
        Instant::now().saturating_duration_since(self.began)
    }

    fn note_moving(&self, until: Instant) {
        let mut moving_until = self.moving_until.lock().unwrap_or_else(PoisonError::into_inner);
        *moving_until = until.max(*moving_until);
    }

    fn is_moving(&self) -> bool {
        Instant::now() < *self.moving_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pause between two deeds: as given while the load is high, forty times as long in the calm after it, and less where items are moved.
    fn pause(&self, rng: &mut StdRng, ms: std::ops::Range<u64>) -> Duration {
        let calm = match (self.age() < HOT, self.is_moving()) {
            (true, _) => 1,
            (false, true) => 4,
            (false, false) => 40,
        };
        Duration::from_millis(rng.random_range(ms) * calm).min(Duration::from_secs(5))
    }

    /// The first key is the hot one. In the calm, the others, which have few items and so move them fast, are used as much.
    fn draw_key(&self, rng: &mut StdRng) -> usize {
        if self.age() >= HOT {
            return rng.random_range(0..KEYS);
        }
        match rng.random_range(0..50) {
            0..44 => 0,
            44..49 => 1,
            _ => 2,
        }
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.ends && self.violation.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

/// Runs one seed to its end in a runtime of its own.
///
/// # Errors
/// The first violation of an invariant, in words.
///
/// # Panics
/// Where the simulation itself cannot run.
pub fn run(plan: Plan) -> Result<Totals, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(simulate(plan))
}

fn key(index: usize) -> PartitionKey {
    PartitionKey::new(&format!("hot/{index}")).expect("a key")
}

fn sort_key(text: &str) -> SortKey {
    SortKey::parse(SortKeyType::String, text).expect("a sort key")
}

fn table(instance: &Arc<Instance>, plan: Plan, seed: u64) -> ShardedTable {
    let client = clients_over(Connection(Arc::clone(instance)).into_shared()).dynamodb;
    let mut environment = Environment::seeded(InstanceClock(Arc::clone(instance)), seed);
    if plan.without_waiting {
        environment = environment.without_waiting_for_views();
    }
    let mut of_table = crate::config();
    of_table.policy.cooldown_seconds = COOLDOWN_SECONDS;
    of_table.append_lease = plan.shrinking.append_lease(plan.seed);
    of_table.drain = plan.shrinking.pace(plan.seed);
    of_table.cold_append = !plan.settling;
    of_table.adopt_unsharded = plan.adopting;
    ShardedTable::with_environment(&client, of_table, environment)
}

async fn simulate(plan: Plan) -> Result<Totals, String> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let engine = Engine::in_memory().map_err(|error| error.to_string())?;
    let partitions = [4, 16, 64][rng.random_range(0..3)];
    let limits = PartitionLimits { partitions, write_units: 15.0, read_units: 2_000.0, ..PartitionLimits::default() };
    engine.set_limits([("items".to_owned(), limits)]);
    create_tables(&in_process_clients(&InProcess::new(engine.clone())).dynamodb, &crate::config()).await?;
    let injected = Arc::new(Injected::default());
    let origin = Instant::now();
    let world = Arc::new(World {
        histories: Default::default(),
        registers: Default::default(),
        totals: Mutex::default(),
        violation: Mutex::default(),
        began: origin,
        moving_until: Mutex::new(origin),
        ends: origin
            + match plan.shrinking {
                Shrinking::Never => HOT,
                Shrinking::AsBuilt | Shrinking::WithoutWaitingForReads => HOT + CALM,
                Shrinking::WithoutWaitingForWriters => HOT + CALM / 3,
            },
    });
    if plan.adopting {
        adopting::store_bare(&engine, &world).await;
    }
    let shrinkers = if plan.shrinking == Shrinking::Never { 0 } else { SHRINKERS };
    let instances: Vec<_> = (0..WRITERS + READERS + shrinkers)
        .map(|index| {
            let rates = match index {
                _ if index >= WRITERS + READERS => FaultRates::DRAINING,
                0 => FaultRates::LATE,
                _ if index >= WRITERS && shrinkers > 0 => FaultRates::READING,
                _ => FaultRates::SERVING,
            };
            Instance::new(engine.clone(), rng.random(), origin, rates, Arc::clone(&injected))
        })
        .collect();
    let tables: Vec<_> = instances.iter().map(|instance| table(instance, plan, rng.random())).collect();
    let mut work = tokio::task::JoinSet::new();
    for (index, (instance, table)) in instances.iter().zip(&tables).enumerate() {
        let (instance, table, world, seed) = (Arc::clone(instance), table.clone(), Arc::clone(&world), rng.random());
        if index < WRITERS {
            work.spawn(write(index, instance, table, world, seed));
        } else if index < WRITERS + READERS {
            work.spawn(read(instance, table, world, seed));
        } else {
            work.spawn(drain(instance, table, world, plan, seed));
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
    work.spawn(disturb(instances.clone(), Arc::clone(&world), plan, rng.random()));
    work.join_all().await;
    finish(&engine, &instances, &tables, &world, plan).await?;
    let mut totals = world.totals.lock().unwrap_or_else(PoisonError::into_inner).clone();
    totals.faults = injected.total();
    match world.violation.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(violation) => Err(violation),
        None => Ok(totals),
    }
}

/// A writer: a steady stream of appends, several under way at once, some of a sort key that was written before.
async fn write(writer: usize, instance: Arc<Instance>, table: ShardedTable, world: Arc<World>, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut under_way = tokio::task::JoinSet::new();
    let mut number = 0u64;
    while world.goes_on() && !instance.is_dead() {
        sleep(world.pause(&mut rng, 10..70)).await;
        number += 1;
        let which = world.draw_key(&mut rng);
        let value = number * WRITERS as u64 + writer as u64;
        // A point write renews the view that appends go by: half of the writers do without in the calm, so that their views grow old.
        let renews = writer.is_multiple_of(2) || world.age() < HOT;
        if renews && rng.random_range(0..5) == 0 {
            let deed = PointDeed::draw(&mut rng, &world, which, value);
            under_way.spawn(write_point(table.clone(), Arc::clone(&world), which, deed));
            continue;
        }
        let again = (rng.random_range(0..12) == 0)
            .then(|| world.history(which).some_acknowledged(Instant::now(), rng.random_range(0..1_000)));
        let text = again.flatten().unwrap_or_else(|| format!("{:06}-{writer}", world.age().as_millis()));
        world.history(which).sent(&text, value);
        let (table, world) = (table.clone(), Arc::clone(&world));
        under_way.spawn(async move {
            let attributes = Attributes::from([("value".to_owned(), Value::N(value.to_string()))]);
            let item = Item { partition_key: key(which), sort_key: sort_key(&text), attributes };
            match table.append(&item, Deadline::now() + WRITE_DEADLINE).await {
                Ok(_) => {
                    world.history(which).acknowledged(&text, Instant::now());
                    world.count(|totals| totals.acknowledged += 1);
                }
                Err(_) => world.count(|totals| totals.unacknowledged += 1),
            }
        });
        while under_way.try_join_next().is_some() {}
    }
    if !instance.is_dead() {
        under_way.join_all().await;
    }
}

/// One write of a register.
struct PointDeed {
    sort_key: String,
    kind: PointDeedKind,
    /// Of requests that their client repeats.
    idempotency_key: Option<IdempotencyKey>,
    deadline: Duration,
    /// What the client waits before it repeats the request.
    pause: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PointDeedKind {
    /// A register's first write may be a plain append, wherever that puts it.
    Append(u64),
    Put(u64),
    Create(u64),
    Delete,
    /// An append under an idempotency key, which everyone repeats.
    Once(u64),
}

/// Registers that are only created, or appended once and put, are new ones after so many milliseconds.
const WINDOW_MS: u128 = 3_000;
/// So many registers at a time are only created: few writers meet at one, some of them before and some after the key has grown.
const ONLY_CREATED: u32 = 8;
/// How often a client sends a request with an idempotency key.
const REQUESTS: u32 = 3;
/// Of a request with an idempotency key, three times of four.
const IMPATIENT: Duration = Duration::from_millis(800);

impl PointDeed {
    /// Four of ten are of registers that are only ever created, and two of such as are appended once and put; the others see everything.
    fn draw(rng: &mut StdRng, world: &World, which: usize, id: u64) -> Self {
        let window = world.age().as_millis() / WINDOW_MS;
        let (sort_key, kind) = match rng.random_range(0..10) {
            0..4 => {
                let register = rng.random_range(0..ONLY_CREATED);
                (format!("~only-created-{window}-{register}"), PointDeedKind::Create(id))
            }
            4 | 5 => {
                // A repetition brings what the first request brought.
                let once = PointDeedKind::Once((1 << 50) + u64::try_from(window).unwrap_or(u64::MAX));
                (format!("~once-{window}"), if rng.random_range(0..3) == 0 { PointDeedKind::Put(id) } else { once })
            }
            _ => {
                let register = rng.random_range(0..6);
                let sort_key = format!("~register-{register}");
                // A read beside the deletion of an item with two copies may see the older one (docs/protocol.md, "What is not promised"), and
                // an append beside another write of its sort key leaves two.
                let appended = register < 2;
                let kind = match rng.random_range(0..4) {
                    _ if appended && !world.registers(which).contains(&sort_key) => PointDeedKind::Append(id),
                    0 if !appended => PointDeedKind::Delete,
                    1 => PointDeedKind::Create(id),
                    _ => PointDeedKind::Put(id),
                };
                (sort_key, kind)
            }
        };
        let is_keyed = matches!(kind, PointDeedKind::Create(_)) && rng.random();
        let key = is_keyed.then(|| IdempotencyKey::new(&format!("request-{id}")).expect("a key"));
        let deadline = if is_keyed && rng.random_range(0..4) > 0 { IMPATIENT } else { WRITE_DEADLINE };
        let pause = Duration::from_millis(rng.random_range(500..8_000));
        Self { sort_key, kind, idempotency_key: key, deadline, pause }
    }

    fn as_operation(&self) -> Kind {
        match self.kind {
            PointDeedKind::Append(value) | PointDeedKind::Put(value) => Kind::Set(Some(value)),
            PointDeedKind::Create(value) => Kind::Create(value),
            PointDeedKind::Delete => Kind::Set(None),
            PointDeedKind::Once(value) => Kind::Once(value),
        }
    }

    fn item(&self, which: usize) -> Item {
        let value = match self.kind {
            PointDeedKind::Append(value)
            | PointDeedKind::Put(value)
            | PointDeedKind::Create(value)
            | PointDeedKind::Once(value) => Value::N(value.to_string()),
            PointDeedKind::Delete => Value::Null,
        };
        let attributes = Attributes::from([("value".to_owned(), value)]);
        Item { partition_key: key(which), sort_key: sort_key(&self.sort_key), attributes }
    }

    async fn send(&self, table: &ShardedTable, item: &Item) -> Result<Written, WriteError> {
        let deadline = Deadline::now() + self.deadline;
        match self.kind {
            PointDeedKind::Append(_) => table.append(item, deadline).await,
            PointDeedKind::Put(_) => table.put(item, deadline).await,
            PointDeedKind::Create(_) => table.create(item, self.idempotency_key.as_ref(), deadline).await,
            PointDeedKind::Delete => table.delete(&item.partition_key, &item.sort_key, deadline).await,
            PointDeedKind::Once(_) => table.append_once(item, deadline).await,
        }
    }
}

/// Sends a write, and repeats it where its outcome is unknown and it has an idempotency key.
async fn write_point(table: ShardedTable, world: Arc<World>, which: usize, deed: PointDeed) {
    let item = deed.item(which);
    let requests = if deed.idempotency_key.is_some() { REQUESTS } else { 1 };
    for request in 0..requests {
        if request > 0 {
            sleep(deed.pause).await;
            world.count(|totals| totals.repeated += 1);
        }
        let sent = world.registers(which).sent(&deed.sort_key, deed.as_operation());
        let (outcome, unanswered) = match deed.send(&table, &item).await {
            Ok(done) => (Outcome::Done, done.attempts - 1 - done.throttled),
            Err(error) => {
                let outcome = match error.kind {
                    WriteErrorKind::Exists => Outcome::Exists,
                    WriteErrorKind::Unknown(_) => Outcome::Unknown,
                    WriteErrorKind::Capacity(_) | WriteErrorKind::Contended => Outcome::Refused,
                    kind @ (WriteErrorKind::AppendOnly
                    | WriteErrorKind::IdempotencyKeyReused
                    | WriteErrorKind::Table(_)) => {
                        // A key whose metadata cannot be read for long is told so; anything else is a finding.
                        world.check(Err(kind.to_string()), "a point write failed for good");
                        Outcome::Refused
                    }
                };
                (outcome, error.attempts - error.throttled)
            }
        };
        world.registers(which).ended(&sent, outcome, unanswered);
        world.count(|totals| match outcome {
            Outcome::Done => totals.point_writes += 1,
            Outcome::Exists => totals.existed += 1,
            Outcome::Refused | Outcome::Unknown => totals.unacknowledged_point_writes += 1,
        });
        if outcome != Outcome::Unknown {
            return;
        }
    }
}

/// A reader: scans by cursor, with any limit and order, and point reads.
async fn read(instance: Arc<Instance>, table: ShardedTable, world: Arc<World>, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    while world.goes_on() && !instance.is_dead() {
        sleep(world.pause(&mut rng, 20..250)).await;
        let which = world.draw_key(&mut rng);
        let (began, tick) = (Instant::now(), world.registers(which).now());
        let answered = if rng.random_range(0..6) == 0 {
            let window = world.age().as_millis() / WINDOW_MS;
            let wanted = match rng.random_range(0..4) {
                0 => format!("~only-created-{window}-{}", rng.random_range(0..ONLY_CREATED)),
                1 => format!("~once-{window}"),
                _ => format!("~register-{}", rng.random_range(0..6)),
            };
            let got = table.get(&key(which), &sort_key(&wanted), true, Deadline::now() + READ_DEADLINE).await;
            got.is_ok_and(|item| {
                let value = item.as_ref().and_then(|item| value_of(&item.attributes));
                world.registers(which).read(&wanted, value, tick);
                true
            })
        } else if rng.random_range(0..3) == 0 {
            let Some(wanted) = world.history(which).some_acknowledged(began, rng.random_range(0..10_000)) else {
                continue;
            };
            let got = table.get(&key(which), &sort_key(&wanted), true, Deadline::now() + READ_DEADLINE).await;
            got.is_ok_and(|item| {
                let value = item.as_ref().and_then(|item| value_of(&item.attributes));
                world.check(world.history(which).check_get(&wanted, value), "get");
                true
            })
        } else {
            let descending = rng.random();
            // Many small pages of a key that has grown cost too much to make them all the time.
            let limits = if world.age() < HOT { [7, 60, 1_000] } else { [200, 1_000, 1_000] };
            let limit = limits[rng.random_range(0..3)];
            scan(&table, which, limit, descending).await.is_some_and(|seen| {
                let (appended, registers) = apart(seen.clone());
                world.check(world.history(which).check_scan(&appended, began, descending), "scan");
                world.registers(which).read_all(&registers, tick);
                world.check(in_order(&seen, descending), "scan");
                true
            })
        };
        world.count(|totals| if answered { totals.reads += 1 } else { totals.unanswered_reads += 1 });
    }
}

/// What was appended, and the registers.
fn apart(seen: Vec<(String, u64)>) -> (Vec<(String, u64)>, std::collections::BTreeMap<String, u64>) {
    let (registers, appended): (Vec<_>, Vec<_>) = seen.into_iter().partition(|(sort_key, _)| sort_key.starts_with('~'));
    (appended, registers.into_iter().collect())
}

fn in_order(seen: &[(String, u64)], descending: bool) -> Result<(), String> {
    let fine = seen.windows(2).all(|pair| if descending { pair[0].0 > pair[1].0 } else { pair[0].0 < pair[1].0 });
    if fine { Ok(()) } else { Err("I2 or I4: a scan is out of order, or has an item twice".into()) }
}

fn value_of(attributes: &Attributes) -> Option<u64> {
    match attributes.get("value") {
        Some(Value::N(number)) => number.parse().ok(),
        _ => None,
    }
}

async fn scan(table: &ShardedTable, which: usize, limit: usize, descending: bool) -> Option<Vec<(String, u64)>> {
    let mut query = PageQuery { limit, consistent: true, ..PageQuery::new(key(which)) };
    query.order = if descending { Order::Descending } else { Order::Ascending };
    let mut seen = Vec::new();
    // A long scan in small pages outlasts the run; its first pages tell as much.
    for _ in 0..30 {
        let page = table.query(&query, Deadline::now() + READ_DEADLINE).await.ok()?;
        seen.extend(
            page.items.iter().map(|item| (item.sort_key.to_string(), value_of(&item.attributes).unwrap_or(u64::MAX))),
        );
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Some(seen),
        }
    }
    None
}

/// Freezes, set-back clocks, lost metadata and deaths.
async fn disturb(instances: Vec<Arc<Instance>>, world: Arc<World>, plan: Plan, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut deaths = 0;
    while world.goes_on() {
        sleep(world.pause(&mut rng, 100..900)).await;
        let instance = &instances[rng.random_range(0..instances.len())];
        let length = Duration::from_millis(rng.random_range(200..4_000));
        match rng.random_range(0..10) {
            0..6 => instance.freeze(length),
            6 | 7 if plan.sets_clocks_back() => instance.set_clock_back(length),
            8 => instance.lose_metadata(length),
            _ if deaths < 1 => {
                deaths += 1;
                instances[rng.random_range(0..WRITERS)].die();
            }
            _ => {}
        }
    }
}

/// When all is calm again: nothing acknowledged is lost, no key is stuck, and no two changes of a width came within a cooldown.
async fn finish(
    engine: &Engine,
    instances: &[Arc<Instance>],
    tables: &[ShardedTable],
    world: &World,
    plan: Plan,
) -> Result<(), String> {
    instances.iter().for_each(|instance| instance.heal());
    sleep(Duration::from_secs(15)).await;
    let Some((_, table)) = instances.iter().zip(tables).find(|(instance, _)| !instance.is_dead()) else {
        return Err("every instance died".into());
    };
    let newcomer = Instance::new(engine.clone(), 1, world.began, FaultRates::NONE, Arc::default());
    newcomer.heal();
    let fresh = self::table(&newcomer, plan, 1);
    for (which, reader) in (0..KEYS).flat_map(|which| [(which, table), (which, &fresh)]) {
        let (began, tick) = (Instant::now(), world.registers(which).now());
        let seen = scan(reader, which, 1_000, false).await.ok_or("a read fails though nothing is wrong any more")?;
        let (appended, registers) = apart(seen);
        let checked = world.history(which).check_scan(&appended, began, false);
        world.registers(which).read_all(&registers, tick);
        checked.map_err(|violation| format!("I6, at the end: {violation}"))?;
    }
    for which in 0..KEYS {
        // What was begun can be finished by anyone; and then all of it is still there.
        for _ in 0..100 {
            let drained = fresh.drain(&key(which), Deadline::now() + Duration::from_secs(30)).await;
            match drained.map_err(|error| error.to_string())? {
                Drained::Nothing | Drained::Done { .. } => break,
                Drained::Waiting { .. } | Drained::Working { .. } => sleep(Duration::from_secs(5)).await,
            }
        }
        let (began, tick) = (Instant::now(), world.registers(which).now());
        let seen = scan(&fresh, which, 1_000, false).await.ok_or("a read fails though nothing is wrong any more")?;
        let (appended, registers) = apart(seen);
        let checked = world.history(which).check_scan(&appended, began, false);
        world.registers(which).read_all(&registers, tick);
        checked.map_err(|violation| format!("I6, after the last drain: {violation}"))?;
        if plan.settling || plan.adopting {
            // A scan asks every shard; whether items are where one is looked for, only point reads say.
            let stored = world.history(which).all_acknowledged();
            for wanted in stored {
                let got = fresh.get(&key(which), &sort_key(&wanted), true, Deadline::now() + READ_DEADLINE).await;
                let value = got.map_err(|error| error.to_string())?.and_then(|item| value_of(&item.attributes));
                let checked = world.history(which).check_get(&wanted, value);
                checked.map_err(|violation| format!("after the last drain: {violation}"))?;
            }
        }
        let soon = Deadline::now() + Duration::from_secs(30);
        let calm = Pressure::default();
        // Anyone may finish what a dead actor has begun.
        fresh.scale_by_policy(&key(which), calm, soon).await.map_err(|error| error.to_string())?;
        let Some(metadata) = fresh.shards(&key(which), soon).await.map_err(|error| error.to_string())? else {
            continue;
        };
        if metadata.number_of_shards != metadata.read_shards || metadata.draining {
            return Err(format!("I6: the key is stuck at {} of {}", metadata.number_of_shards, metadata.read_shards));
        }
        let entries: Vec<_> = metadata.shard_history.entries().collect();
        // The first entry is the registration. A cooldown is counted on wall clocks, so it holds where those are right. A shrink announces its
        // width in the history before it changes anything, and may be outrun then.
        let hasty = entries.windows(2).skip(1).any(|pair| pair[1].at < pair[0].at + COOLDOWN_SECONDS);
        if hasty && !plan.sets_clocks_back() && plan.shrinking == Shrinking::Never {
            return Err(format!("I5: two changes within a cooldown: {:?}", metadata.shard_history.to_strings()));
        }
        world.count(|totals| {
            totals.scale_outs += entries.len() as u64 - 1;
            totals.widest = totals.widest.max(metadata.read_shards.get());
        });
        let stored = world.history(which).acknowledged_count();
        world.count(|totals| totals.acknowledged = totals.acknowledged.max(stored));
    }
    if plan.adopting {
        adopting::finish(engine, &fresh, world, plan).await?;
    }
    (0..KEYS).try_for_each(|which| world.registers(which).check())
}
