//! Clients that read, change and write items back, and that add to counters.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::{Deadline, TableEngine};
use sharding::{
    Attributes, Conditions, ETags, IdempotencyKey, Patch, Updated, Value, WriteError,
    WriteErrorKind,
};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::ending::patiently;
use super::failure::Finding;
use super::linearizability::Kind;
use super::registers::Outcome;
use super::world::{Actor, World};
use super::writing::{PointWrite, outcome, write_point};
use super::{READ_DEADLINE, WRITE_DEADLINE, WRITERS, key, locked, soon, sort_key, value_of};
use crate::{OneItem, valued_item};

/// The first character of the sort keys of counters.
pub(super) const COUNTER: char = '+';

impl World {
    /// The name of a counter. If requests arrive minutes late, many additions are to one counter at
    /// a time, and another one follows: it has an attribute for each addition.
    fn counter(&self, number: u32) -> String {
        if self.plan.minutes_late {
            self.register("", 0).replace('~', &COUNTER.to_string())
        } else {
            format!("{COUNTER}{number}")
        }
    }
}
/// The beginning of the name of an addition.
const ADDITION: &str = "addition-";
/// The number of changed registers, and of counters, of each key.
const EACH: u32 = 3;
/// The number of times that a client sends an addition with an idempotency key.
const REQUESTS: u32 = 4;
/// The first value of changes. It is above every value that a writer stores by counting.
const CHANGED: u64 = 1 << 51;

/// An addition to a counter. It adds one to the value, and one to an attribute of its own.
struct Addition {
    counter: String,
    own: String,
    /// How long the client waits before it repeats the request under its idempotency key. `None` if
    /// it has none.
    pause: Option<Duration>,
}

/// Checks that no addition to a counter took effect twice, and that the counter is the sum of all.
fn check_sum(counter: &str, attributes: &Attributes) -> Result<(), Finding> {
    let additions = || attributes.iter().filter(|(name, _)| name.starts_with(ADDITION));
    let is_twice = |value: &Value| !matches!(value, Value::N(number) if number == "1");
    if let Some((name, value)) = additions().find(|(_, value)| is_twice(value)) {
        let what = format!("I6: {name} was added to {counter} twice: {value:?}");
        return Err(Finding::of(counter, what));
    }
    let (value, made) = (value_of(attributes).unwrap_or_default(), additions().count());
    if value == made as u64 {
        return Ok(());
    }
    Err(Finding::of(counter, format!("I6: {counter} is {value} after {made} additions")))
}

/// By key and counter, the additions with a certain outcome, and whether each was made. All others
/// are unknown, including those of dead instances.
pub(super) type Counters = BTreeMap<(usize, String), BTreeMap<String, bool>>;

fn note(world: &World, which: usize, addition: &Addition, is_made: bool) {
    let mut counters = locked(&world.counters);
    let of_counter = counters.entry((which, addition.counter.clone())).or_default();
    of_counter.insert(addition.own.clone(), is_made);
}

/// Runs several clients of one instance.
pub(super) async fn update(actor: Actor) {
    let (index, world) = (actor.index, &actor.world);
    let mut rng = StdRng::seed_from_u64(world.plan.seed ^ (0x5EED << 32) ^ index as u64);
    let (mut under_way, mut number) = (JoinSet::new(), 0u64);
    while actor.goes_on() {
        let pause = world.pause(&mut rng, 30..200);
        sleep(if world.is_calm_of_minutes() { pause / 3 } else { pause }).await;
        number += 1;
        let which = world.draw_key(&mut rng);
        let (client, of) = (actor.clone(), rng.random_range(0..EACH));
        let changes = if world.is_calm_of_minutes() { 1 } else { 2 };
        if rng.random_range(0..4) < changes {
            let value = CHANGED + number * WRITERS as u64 + index as u64;
            let name = world.register("changed", of);
            let is_deleted = world.plan.minutes_late && rng.random_range(0..4) == 0;
            under_way.spawn(async move {
                if is_deleted {
                    write_point(client, which, PointWrite::simple(name, Kind::Set(None))).await;
                } else {
                    change(&client, which, &name, value).await;
                }
            });
        } else {
            let is_keyed = rng.random_range(0..4) > 0;
            let pause = Duration::from_millis(rng.random_range(200..4_000));
            let addition = Addition {
                counter: world.counter(of),
                own: format!("{ADDITION}{index}-{number}"),
                pause: is_keyed.then_some(pause),
            };
            under_way.spawn(async move { add(&client, which, &addition).await });
        }
        while under_way.try_join_next().is_some() {}
    }
    actor.end(under_way).await;
}

/// Reads an item, and replaces it if it has not changed since.
async fn change(Actor { table, world, .. }: &Actor, which: usize, name: &str, value: u64) {
    let tick = world.registers(which).now();
    let Ok(found) =
        table.get_tagged(&key(which), &sort_key(name), true, Deadline::now() + READ_DEADLINE).await
    else {
        return;
    };
    let from = found.as_ref().and_then(|(item, _)| value_of(&item.attributes));
    world.registers(which).read(name, from, tick);
    let (kind, conditions) = match (from, found) {
        (Some(from), Some((_, tag))) => (
            Kind::Swap(Some(from), Some(value)),
            Conditions { matches: Some(ETags::Of(vec![tag])), differs: None },
        ),
        _ => (Kind::Create(value), Conditions { matches: None, differs: Some(ETags::Any) }),
    };
    let sent = world.registers(which).sent(name, kind, None);
    let item = valued_item(key(which), name, value);
    let written = table.put_if(&item, &conditions, Deadline::now() + WRITE_DEADLINE).await;
    let outcome = match &written {
        Ok(_) => Outcome::Done,
        Err(error) => match (outcome(world, which, error), from) {
            (Outcome::Differs, None) => Outcome::Exists,
            (outcome, _) => outcome,
        },
    };
    world.registers(which).ended(&sent, outcome);
    if outcome == Outcome::Unknown && written.is_err_and(|error| error.attempts > 1) {
        world.registers(which).several_attempts(&sent);
    }
    world.count(|totals| match outcome {
        Outcome::Done => totals.changed += 1,
        Outcome::Differs | Outcome::Exists => totals.differed += 1,
        Outcome::Refused | Outcome::Unknown => {}
    });
}

/// Adds one to each of these attributes, with this idempotency key if any.
pub(super) async fn add_one(
    table: &TableEngine,
    (which, counter): (usize, &str),
    attributes: &[&str],
    once: Option<&str>,
) -> Result<Updated, WriteError> {
    let add = attributes.iter().map(|name| (*name, Value::N("1".into()))).collect();
    let patch = Patch { add, ..Patch::default() };
    let once = once.map(|once| IdempotencyKey::new(once).expect("a key"));
    let (key, sort_key) = (key(which), sort_key(counter));
    let deadline = Deadline::now() + WRITE_DEADLINE;
    table.update((&key, &sort_key), &patch, &Conditions::default(), once.as_ref(), deadline).await
}

/// Adds one to a counter. With an idempotency key, the client repeats the request while its outcome
/// is unknown.
async fn add(Actor { table, world, .. }: &Actor, which: usize, addition: &Addition) {
    let Addition { counter, own, pause } = addition;
    let mut is_unknown = false;
    let requests = if pause.is_some() { REQUESTS } else { 1 };
    for request in 0..requests {
        if request > 0 {
            sleep(pause.unwrap_or_default()).await;
            world.count(|totals| totals.repeated_additions += 1);
        }
        let once = pause.map(|_| own.as_str());
        match add_one(table, (which, counter), &["value", own], once).await {
            Ok(updated) => {
                note(world, which, addition, true);
                world.check(which, check_sum(counter, &updated.attributes));
                world.count(|totals| totals.added += 1);
                return;
            }
            Err(error) if matches!(error.kind, WriteErrorKind::Absent) => {
                // The first addition creates the counter. A late attempt creates no second one.
                let first = valued_item(key(which), counter, 0);
                let made = table.create(&first, None, Deadline::now() + WRITE_DEADLINE).await;
                if let Err(error) = made {
                    outcome(world, which, &error);
                }
                if !is_unknown {
                    break;
                }
            }
            Err(error) => match outcome(world, which, &error) {
                Outcome::Unknown => is_unknown = true,
                // The item proves that no earlier request was applied, and none will be.
                _ if !is_unknown => break,
                Outcome::Done | Outcome::Refused | Outcome::Exists | Outcome::Differs => {}
            },
        }
    }
    if !is_unknown {
        note(world, which, addition, false);
    }
}

/// Checks that each counter has the additions that were made, and none that was rejected.
pub(super) async fn check_counters(fresh: &TableEngine, world: &World) -> Result<(), String> {
    let counters = locked(&world.counters).clone();
    for ((which, name), additions) in counters {
        let get = async || fresh.get(&key(which), &sort_key(&name), true, soon()).await;
        let found = patiently(world, which, "reading a counter", get).await?;
        let attributes = found.map(|item| item.attributes).unwrap_or_default();
        check_sum(&name, &attributes).map_err(|finding| world.violation(which, finding))?;
        for (own, is_made) in additions {
            if attributes.get(own.as_str()).is_some() != is_made {
                let what = format!("I6: {own} was made: {is_made}. {name} shows the opposite");
                return Err(world.violation(which, Finding::of(&name, what)));
            }
        }
    }
    Ok(())
}
