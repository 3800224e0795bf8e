//! Counters that are also put: bursts of additions under idempotency keys, with puts between them.
//!
//! A put removes the item's record of the additions. An addition that was acknowledged before the
//! put was sent must not take effect after it, even if another attempt of it arrives then.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::Deadline;
use sharding::{Attributes, WriteErrorKind};
use tokio::time::{Instant, sleep};

use super::failure::Finding;
use super::updating::{COUNTER, add_one};
use super::world::{Actor, World};
use super::writing::outcome;
use super::{HOT, KEYS, READ_DEADLINE, WRITE_DEADLINE, key, locked, sort_key, value_of};
use crate::{OneItem, valued_item};

/// The number of such counters of each key.
const COUNTERS: u32 = 2;
/// The first value of a burst. It is above every value that a writer stores by counting.
const FIRST_VALUE: u64 = 1 << 45;
/// More than a burst has writes.
const MAX_WRITES: usize = 10;
/// The beginning of the name of an addition.
const ADDITION: &str = "burst-";

/// When additions were acknowledged, by name, and when puts were sent, by value.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    acknowledged: BTreeMap<String, Instant>,
    put_at: BTreeMap<u64, Instant>,
}

/// Sends bursts until the run ends.
pub(super) async fn add_and_replace(writers: Vec<Actor>, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    sleep(HOT).await;
    for first in (FIRST_VALUE..).step_by(MAX_WRITES) {
        sleep(Duration::from_millis(rng.random_range(9_000..45_000))).await;
        if !writers[0].world.goes_on() {
            return;
        }
        let alive: Vec<_> = writers.iter().filter(|writer| !writer.instance.is_dead()).collect();
        burst(&alive, &mut rng, first).await;
    }
}

/// Reads a counter, and then sends a burst of additions and puts to it.
async fn burst(alive: &[&Actor], rng: &mut StdRng, first: u64) {
    let world = &alive[0].world;
    let (which, number) = (rng.random_range(0..KEYS), rng.random_range(0..COUNTERS));
    let name = format!("{COUNTER}{}", &world.register("replaced", number)[1..]);
    // Late attempts of earlier bursts may have arrived.
    let deadline = Deadline::now() + READ_DEADLINE;
    if let Ok(Some(item)) = alive[0].table.get(&key(which), &sort_key(&name), true, deadline).await
    {
        check(world, which, &name, &item.attributes);
    }
    for value in first..first + rng.random_range(5..9) {
        let (actor, name) = (alive[rng.random_range(0..alive.len())].clone(), name.clone());
        let pause = Duration::from_millis(rng.random_range(0..1_500));
        // The first write may find no item.
        let is_put = rng.random_range(0..if value == first { 2 } else { 4 }) == 0;
        tokio::spawn(async move {
            sleep(if value == first { Duration::ZERO } else { pause }).await;
            if is_put {
                put(&actor, which, &name, value).await;
            } else {
                add(&actor, which, &name, value).await;
            }
        });
    }
}

async fn put(Actor { table, world, .. }: &Actor, which: usize, name: &str, value: u64) {
    locked(&world.replaced).put_at.insert(value, Instant::now());
    let item = valued_item(key(which), name, value);
    if let Err(error) = table.put(&item, Deadline::now() + WRITE_DEADLINE).await {
        outcome(world, which, &error);
    }
}

async fn add(Actor { table, world, .. }: &Actor, which: usize, name: &str, value: u64) {
    let own = format!("{ADDITION}{value}");
    // An addition with an unknown outcome is not repeated: after a put, it may be made again.
    let added = add_one(table, (which, name), &[&own], Some(&own)).await;
    match added {
        Ok(updated) => {
            check(world, which, name, &updated.attributes);
            locked(&world.replaced).acknowledged.insert(own, Instant::now());
        }
        Err(error) if matches!(error.kind, WriteErrorKind::Absent) => {}
        Err(error) => drop(outcome(world, which, &error)),
    }
}

/// Checks that no addition that was acknowledged before the item's put was sent is in the item.
fn check(world: &World, which: usize, name: &str, attributes: &Attributes) {
    let put = value_of(attributes).unwrap_or_default();
    let replaced = locked(&world.replaced);
    let Some(put_at) = replaced.put_at.get(&put) else { return };
    let is_before = |addition: &&String| {
        replaced.acknowledged.get(*addition).is_some_and(|acknowledged| acknowledged < put_at)
    };
    if let Some(twice) = attributes.keys().find(is_before) {
        let what =
            format!("I6: {twice} was added to {name} twice: before {put} was put, and after it");
        world.check(which, Err(Finding::of(name, what)));
    }
}
