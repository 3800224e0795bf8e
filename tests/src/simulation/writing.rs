//! Writers: a steady stream of writes of all kinds, several at the same time.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::{Deadline, TableEngine};
use sharding::{Attributes, IdempotencyKey, Item, Value, WriteError, WriteErrorKind, Written};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::failure::Finding;
use super::linearizability::Kind;
use super::registers::{Outcome, Sent};
use super::world::{Actor, World};
use super::{WRITE_DEADLINE, WRITERS, key, value_of};
use crate::{OneItem, valued_item};

/// The number of concurrent registers that are only created.
pub(super) const ONLY_CREATED: u32 = 8;
/// The number of registers with operations of all kinds.
pub(super) const REGISTERS: u32 = 6;
/// The number of times that a client sends a request with an idempotency key.
const REQUESTS: u32 = 3;
/// The deadline of three in four requests with an idempotency key.
const IMPATIENT: Duration = Duration::from_millis(800);
/// The first value of writes under an idempotency key, whose repetitions store the same value. It
/// is above every value that a writer stores by counting.
const ONCE: u64 = 1 << 50;

/// A writer: it writes plain items, some under an existing sort key, and registers.
pub(super) async fn write(actor: Actor, seed: u64) {
    let (mut rng, world) = (StdRng::seed_from_u64(seed), &actor.world);
    let (mut under_way, mut number) = (JoinSet::new(), 0u64);
    while actor.goes_on() {
        sleep(world.pause(&mut rng, 10..70)).await;
        number += 1;
        let which = world.draw_key(&mut rng);
        let value = number * WRITERS as u64 + actor.index as u64;
        let often = if world.is_calm_of_minutes() { 1 } else { 3 };
        if !world.plan.appends && rng.random_range(0..4) >= often {
            let point_write = PointWrite::draw(&mut rng, world, value);
            under_way.spawn(write_point(actor.clone(), which, point_write));
            continue;
        }
        if rng.random_range(0..6) == 0 {
            under_way.spawn(append(actor.clone(), which, value));
            continue;
        }
        let plain = draw_plain(&mut rng, &actor, which, value);
        under_way.spawn(write_plain(actor.clone(), which, plain));
        while under_way.try_join_next().is_some() {}
    }
    actor.end(under_way).await;
}

/// Draws a write of a plain item, which is stored once or more often, and never deleted.
fn draw_plain(rng: &mut StdRng, actor: &Actor, which: usize, value: u64) -> PointWrite {
    let Actor { index, world, .. } = actor;
    if world.plan.appends && rng.random_range(0..8) == 0 {
        let window = world.window();
        return PointWrite::simple(format!("once-{window}"), Kind::Once(ONCE + window));
    }
    let again = (rng.random_range(0..12) == 0).then(|| {
        world.history(which).some_acknowledged(Instant::now(), rng.random_range(0..1_000))
    });
    // An item stored under an idempotency key is only repeated.
    let again = again.flatten().filter(|text| !text.starts_with("once-"));
    let text = again.unwrap_or_else(|| format!("{:06}-{index}", world.age().as_millis()));
    PointWrite::simple(text, Kind::Set(Some(value)))
}

/// Appends a plain item under a sort key that the product makes.
async fn append(Actor { table, world, .. }: Actor, which: usize, value: u64) {
    world.history(which).append_sent(value);
    let deadline = Deadline::now() + WRITE_DEADLINE;
    let attributes = Attributes::from([("value", Value::N(value.to_string()))]);
    let appended = table.append(key(which), attributes, deadline).await;
    let sort_key = match &appended {
        Ok(written) => Some(written.sort_key.to_string()),
        Err(error) => {
            let is_unknown = outcome(&world, which, error) == Outcome::Unknown;
            error.sort_key.as_ref().filter(|_| is_unknown).map(|sort_key| sort_key.to_string())
        }
    };
    let mut history = world.history(which);
    history.append_ended(value, sort_key.as_deref());
    if let (Ok(_), Some(sort_key)) = (&appended, &sort_key) {
        history.acknowledged(sort_key);
        world.count(|totals| totals.appended += 1);
    }
}

async fn write_plain(Actor { table, world, .. }: Actor, which: usize, plain: PointWrite) {
    let (item, sort_key) = (plain.item(which), &plain.sort_key);
    world.history(which).sent(sort_key, value_of(&item.attributes).unwrap_or_default());
    match plain.send(&table, &item).await {
        Ok(_) => {
            world.history(which).acknowledged(sort_key);
            world.count(|totals| totals.acknowledged += 1);
        }
        Err(error) => _ = outcome(&world, which, &error),
    }
}

/// The outcome of a failed write. Errors that the simulation never causes are findings.
pub(super) fn outcome(world: &World, which: usize, error: &WriteError) -> Outcome {
    if matches!(error.kind, WriteErrorKind::Exists) {
        Outcome::Exists
    } else if matches!(error.kind, WriteErrorKind::Unknown(_)) {
        Outcome::Unknown
    } else if matches!(error.kind, WriteErrorKind::Precondition) {
        Outcome::Differs
    } else {
        if !error.is_retryable() {
            let why = format!("I6: a write fails for good: {}", error.kind);
            world.check(which, Err(Finding::new(why)));
        }
        Outcome::Refused
    }
}

/// One write of a register, or of a plain item.
pub(super) struct PointWrite {
    sort_key: String,
    /// A put, a deletion, a creation, or a put under an idempotency key, which every writer repeats.
    kind: Kind,
    /// The idempotency key, if the client repeats the request.
    idempotency_key: Option<IdempotencyKey>,
    deadline: Duration,
    /// How long the client waits before it repeats the request.
    pause: Duration,
}

impl PointWrite {
    /// Draws a write. Four in ten concern registers that are only created, and two in ten registers
    /// that are stored once and put. The other registers get all kinds of operations.
    fn draw(rng: &mut StdRng, world: &World, id: u64) -> Self {
        let window = world.window();
        let (sort_key, kind) = match rng.random_range(0..10) {
            0..4 => {
                let register = rng.random_range(0..ONLY_CREATED);
                (format!("~only-created-{window}-{register}"), Kind::Create(id))
            }
            4 | 5 => {
                let is_put = rng.random_range(0..3) == 0;
                let once = Kind::Once(ONCE + window);
                (format!("~once-{window}"), if is_put { Kind::Set(Some(id)) } else { once })
            }
            _ => {
                let kind = match rng.random_range(0..4) {
                    0 => Kind::Set(None),
                    1 => Kind::Create(id),
                    _ => Kind::Set(Some(id)),
                };
                (world.register("register", rng.random_range(0..REGISTERS)), kind)
            }
        };
        let is_keyed = matches!(kind, Kind::Create(_)) && rng.random();
        let key = is_keyed.then(|| IdempotencyKey::new(&format!("request-{id}")).expect("a key"));
        let deadline =
            if is_keyed && rng.random_range(0..4) > 0 { IMPATIENT } else { WRITE_DEADLINE };
        let pause = Duration::from_millis(rng.random_range(500..8_000));
        Self { sort_key, kind, idempotency_key: key, deadline, pause }
    }

    /// A write that its client does not repeat.
    pub(super) const fn simple(sort_key: String, kind: Kind) -> Self {
        Self {
            sort_key,
            kind,
            idempotency_key: None,
            deadline: WRITE_DEADLINE,
            pause: Duration::ZERO,
        }
    }

    /// The item that it stores or deletes.
    fn item(&self, which: usize) -> Item {
        let stored = self.kind.applied(None).flatten();
        valued_item(key(which), &self.sort_key, stored.unwrap_or_default())
    }

    async fn send(&self, table: &TableEngine, item: &Item) -> Result<Written, WriteError> {
        let deadline = Deadline::now() + self.deadline;
        if self.kind == Kind::Set(None) {
            table.delete(&item.partition_key, &item.sort_key, deadline).await
        } else if matches!(self.kind, Kind::Create(_)) {
            table.create(item, self.idempotency_key.as_ref(), deadline).await
        } else if matches!(self.kind, Kind::Once(_)) {
            table.put_once(item, deadline).await
        } else {
            table.put(item, deadline).await
        }
    }
}

/// Sends a write. It repeats the write if the outcome is unknown and it has an idempotency key.
pub(super) async fn write_point(
    Actor { table, world, .. }: Actor,
    which: usize,
    point_write: PointWrite,
) {
    let item = point_write.item(which);
    let requests = if point_write.idempotency_key.is_some() { REQUESTS } else { 1 };
    let mut first: Option<Sent> = None;
    for request in 0..requests {
        if request > 0 {
            sleep(point_write.pause).await;
        }
        let PointWrite { sort_key, kind, .. } = &point_write;
        let sent = world.registers(which).sent(sort_key, *kind, first.as_ref());
        let (outcome, attempts) = match point_write.send(&table, &item).await {
            Ok(written) => (Outcome::Done, written.attempts),
            Err(error) => (outcome(&world, which, &error), error.attempts),
        };
        world.registers(which).ended(&sent, outcome);
        if outcome == Outcome::Unknown && attempts > 1 {
            world.registers(which).several_attempts(&sent);
        }
        world.count(|totals| match outcome {
            Outcome::Done => {
                totals.point_writes += 1;
                totals.deleted += u64::from(*kind == Kind::Set(None));
            }
            Outcome::Exists => totals.existed += 1,
            Outcome::Refused | Outcome::Differs | Outcome::Unknown => {}
        });
        if outcome != Outcome::Unknown {
            return;
        }
        first.get_or_insert(sent);
    }
}
