//! Writers: a steady stream of writes of all kinds, several under way at once.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::{
    Attributes, Deadline, IdempotencyKey, Item, TableEngine, Value, WriteError, WriteErrorKind, Written,
};
use tokio::time::{Instant, sleep};

use super::failure::Finding;
use super::linearizability::Kind;
use super::network::Instance;
use super::registers::{Outcome, Sent};
use super::world::World;
use super::{Plan, WRITE_DEADLINE, WRITERS, key, sort_key};

/// Registers that are only created, or stored once and put, are new ones after so many milliseconds.
pub(super) const WINDOW_MS: u128 = 3_000;
/// So many registers at a time are only created: few writers meet at one, some of them before and some after the key has grown.
pub(super) const ONLY_CREATED: u32 = 8;
/// Registers that see everything.
pub(super) const REGISTERS: u32 = 6;
/// How often a client sends a request with an idempotency key.
const REQUESTS: u32 = 3;
/// Of a request with an idempotency key, three times of four.
const IMPATIENT: Duration = Duration::from_millis(800);
/// Above every value that a writer makes by counting: a repetition under an idempotency key brings what the first request brought.
const ONCE: u64 = 1 << 50;

/// A writer: plain items, some of a sort key that was written before, and registers.
pub(super) async fn write(
    writer: usize,
    instance: Arc<Instance>,
    table: TableEngine,
    world: Arc<World>,
    plan: Plan,
    seed: u64,
) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut under_way = tokio::task::JoinSet::new();
    let mut number = 0u64;
    while world.goes_on() && !instance.is_dead() {
        sleep(world.pause(&mut rng, 10..70)).await;
        number += 1;
        let which = world.draw_key(&mut rng);
        let value = number * WRITERS as u64 + writer as u64;
        if !plan.appends && rng.random_range(0..4) == 0 {
            let deed = PointDeed::draw(&mut rng, &world, value);
            under_way.spawn(write_point(table.clone(), Arc::clone(&world), which, deed));
            continue;
        }
        let plain = Plain::draw(&mut rng, &world, (plan, writer), which, value);
        world.history(which).sent(&plain.text, plain.value);
        under_way.spawn(write_plain(table.clone(), Arc::clone(&world), which, plain));
        while under_way.try_join_next().is_some() {}
    }
    if !instance.is_dead() {
        under_way.join_all().await;
    }
}

/// A plain item: it is stored, perhaps again and again, and never deleted.
struct Plain {
    text: String,
    value: u64,
    /// Under an idempotency key.
    once: bool,
}

impl Plain {
    fn draw(rng: &mut StdRng, world: &World, (plan, writer): (Plan, usize), which: usize, value: u64) -> Self {
        if plan.appends && rng.random_range(0..8) == 0 {
            let window = world.age().as_millis() / WINDOW_MS;
            let value = ONCE + u64::try_from(window).unwrap_or_default();
            return Self { text: format!("once-{window}"), value, once: true };
        }
        let again = (rng.random_range(0..12) == 0)
            .then(|| world.history(which).some_acknowledged(Instant::now(), rng.random_range(0..1_000)));
        // What was stored under an idempotency key is only repeated.
        let again = again.flatten().filter(|text| !text.starts_with("once-"));
        let text = again.unwrap_or_else(|| format!("{:06}-{writer}", world.age().as_millis()));
        Self { text, value, once: false }
    }
}

async fn write_plain(table: TableEngine, world: Arc<World>, which: usize, plain: Plain) {
    let attributes = Attributes::from([("value".to_owned(), Value::N(plain.value.to_string()))]);
    let item = Item { partition_key: key(which), sort_key: sort_key(&plain.text), attributes };
    let deadline = Deadline::now() + WRITE_DEADLINE;
    let written = if plain.once { table.put_once(&item, deadline).await } else { table.put(&item, deadline).await };
    match written {
        Ok(_) => {
            world.history(which).acknowledged(&plain.text, Instant::now());
            world.count(|totals| totals.acknowledged += 1);
        }
        Err(error) => {
            let outcome = outcome(&world, which, &error);
            let is_unknown = outcome == Outcome::Unknown;
            world.count(|totals| if is_unknown { totals.unknown += 1 } else { totals.refused += 1 });
        }
    }
}

/// What a write that failed has come to. Some errors are findings: nothing in the run may lead to them.
pub(super) fn outcome(world: &World, which: usize, error: &WriteError) -> Outcome {
    match &error.kind {
        WriteErrorKind::Exists => Outcome::Exists,
        WriteErrorKind::Unknown(_) => Outcome::Unknown,
        WriteErrorKind::Precondition => Outcome::Differs,
        WriteErrorKind::Capacity(_) | WriteErrorKind::Contended => Outcome::Refused,
        kind @ (WriteErrorKind::AppendOnly
        | WriteErrorKind::IdempotencyKeyReused
        | WriteErrorKind::Absent
        | WriteErrorKind::Patch(_)
        | WriteErrorKind::Table(_)) => {
            world.check(which, Err(Finding::new(format!("I6: a write fails for good: {kind}"))));
            Outcome::Refused
        }
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
    Put(u64),
    Create(u64),
    Delete,
    /// A put under an idempotency key, which everyone repeats.
    Once(u64),
}

impl PointDeed {
    /// Four of ten are of registers that are only ever created, and two of such as are stored once and put; the others see everything.
    fn draw(rng: &mut StdRng, world: &World, id: u64) -> Self {
        let window = world.age().as_millis() / WINDOW_MS;
        let (sort_key, kind) = match rng.random_range(0..10) {
            0..4 => {
                let register = rng.random_range(0..ONLY_CREATED);
                (format!("~only-created-{window}-{register}"), PointDeedKind::Create(id))
            }
            4 | 5 => {
                let once = PointDeedKind::Once(ONCE + u64::try_from(window).unwrap_or_default());
                (format!("~once-{window}"), if rng.random_range(0..3) == 0 { PointDeedKind::Put(id) } else { once })
            }
            _ => {
                let kind = match rng.random_range(0..4) {
                    0 => PointDeedKind::Delete,
                    1 => PointDeedKind::Create(id),
                    _ => PointDeedKind::Put(id),
                };
                (format!("~register-{}", rng.random_range(0..REGISTERS)), kind)
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
            PointDeedKind::Put(value) => Kind::Set(Some(value)),
            PointDeedKind::Create(value) => Kind::Create(value),
            PointDeedKind::Delete => Kind::Set(None),
            PointDeedKind::Once(value) => Kind::Once(value),
        }
    }

    fn item(&self, which: usize) -> Item {
        let value = match self.kind {
            PointDeedKind::Put(value) | PointDeedKind::Create(value) | PointDeedKind::Once(value) => {
                Value::N(value.to_string())
            }
            PointDeedKind::Delete => Value::Null,
        };
        let attributes = Attributes::from([("value".to_owned(), value)]);
        Item { partition_key: key(which), sort_key: sort_key(&self.sort_key), attributes }
    }

    async fn send(&self, table: &TableEngine, item: &Item) -> Result<Written, WriteError> {
        let deadline = Deadline::now() + self.deadline;
        match self.kind {
            PointDeedKind::Put(_) => table.put(item, deadline).await,
            PointDeedKind::Create(_) => table.create(item, self.idempotency_key.as_ref(), deadline).await,
            PointDeedKind::Delete => table.delete(&item.partition_key, &item.sort_key, deadline).await,
            PointDeedKind::Once(_) => table.put_once(item, deadline).await,
        }
    }
}

/// Sends a write, and repeats it where its outcome is unknown and it has an idempotency key.
async fn write_point(table: TableEngine, world: Arc<World>, which: usize, deed: PointDeed) {
    let item = deed.item(which);
    let requests = if deed.idempotency_key.is_some() { REQUESTS } else { 1 };
    let mut first: Option<Sent> = None;
    for request in 0..requests {
        if request > 0 {
            sleep(deed.pause).await;
            world.count(|totals| totals.repeated += 1);
        }
        let sent = world.registers(which).sent(&deed.sort_key, deed.as_operation(), first.as_ref());
        let (outcome, unanswered) = match deed.send(&table, &item).await {
            // A deletion that finds nothing sends nothing.
            Ok(done) => (Outcome::Done, done.attempts.saturating_sub(1 + done.throttled)),
            Err(error) => (outcome(&world, which, &error), error.attempts - error.throttled),
        };
        world.registers(which).ended(&sent, outcome, unanswered);
        world.count(|totals| match outcome {
            Outcome::Done => {
                totals.point_writes += 1;
                totals.deleted += u64::from(deed.kind == PointDeedKind::Delete);
            }
            Outcome::Exists => totals.existed += 1,
            Outcome::Refused | Outcome::Differs => totals.refused_point_writes += 1,
            Outcome::Unknown => totals.unknown_point_writes += 1,
        });
        if outcome != Outcome::Unknown {
            return;
        }
        if first.is_none() {
            first = Some(sent);
        }
    }
}
