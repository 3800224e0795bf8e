//! A crowd: many instances write to one key, and wait for each change of its width, while the
//! metadata table answers late.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::ShardCount;
use sharding::internal::Deadline;
use tokio::time::{Instant, sleep};

use super::failure::Finding;
use super::slow_metadata::Slow;
use super::world::Actor;
use super::writing::outcome;
use super::{KEYS, WRITE_DEADLINE, key};
use crate::valued_item;

/// The number of instances.
pub(super) const CROWD: usize = 64;
/// The key to which they write.
const CROWDED: usize = 0;
/// The first value of their items. It is above every value that a writer stores by counting.
const FIRST_VALUE: u64 = 1 << 46;
/// How long a stretch lasts, and the pause before the next one.
const STRETCH: Duration = Duration::from_secs(25);
const PAUSE: Duration = Duration::from_secs(4);
/// The duration of a run after the load: two stretches.
pub(super) const LASTS: Duration = Duration::from_secs(50);
/// The longest time without a write while the metadata is slow but can be used.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// The copies of pages in these runs, of which one may be slow.
const COPIES: u32 = 2;

pub(super) async fn write(Actor { index, table, world, .. }: Actor, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut count = 0;
    while world.goes_on() {
        sleep(Duration::from_millis(rng.random_range(500..2_500))).await;
        count += 1;
        let (text, value) = (format!("crowd-{index}-{count}"), FIRST_VALUE + count);
        world.history(CROWDED).sent(&text, value);
        let item = valued_item(key(CROWDED), &text, value);
        match table.put(&item, Deadline::now() + WRITE_DEADLINE).await {
            Ok(_) => {
                world.history(CROWDED).acknowledged(&text);
                world.count(|totals| totals.crowd_writes += 1);
            }
            Err(error) => drop(outcome(&world, CROWDED, &error)),
        }
    }
}

/// Changes the width of the crowded key in stretches of slow metadata, and checks that its writes
/// do not stop.
pub(super) async fn change(actor: Actor, seed: u64) {
    let (mut rng, world) = (StdRng::seed_from_u64(seed), &actor.world);
    while world.goes_on() {
        sleep(PAUSE).await;
        // With all requests that slow, no view is valid when it arrives, and nobody writes.
        let (slow, is_usable) = match rng.random_range(0..4) {
            0 => (Slow::All, false),
            1 => (Slow::Copy(rng.random_range(0..COPIES)), true),
            _ => (Slow::PageWrites, true),
        };
        let delay = world.network.slow_down(&mut rng, slow, STRETCH);
        let changing = tokio::spawn(grow(actor.clone()));
        let (began, mut last, mut written) = (Instant::now(), Instant::now(), 0);
        while began.elapsed() < STRETCH && world.goes_on() {
            sleep(Duration::from_millis(500)).await;
            let now = world.count(|totals| totals.crowd_writes);
            if now > written {
                (written, last) = (now, Instant::now());
            }
            if is_usable && last.elapsed() > LONGEST_PAUSE {
                let what = format!(
                    "I6: no write for {} s while {CROWD} instances write, and {slow:?} answers \
                     after {delay:?}",
                    last.elapsed().as_secs()
                );
                world.check(CROWDED, Err(Finding::new(what)));
            }
        }
        changing.abort();
    }
}

/// Adds a shard. Other instances may take the change over.
async fn grow(Actor { table, world, .. }: Actor) {
    let deadline = Deadline::now() + STRETCH;
    let width = match table.shards(&key(CROWDED), deadline).await {
        Ok(metadata) => metadata.map_or(1, |metadata| metadata.number_of_shards.get()),
        Err(error) => return world.check_error(CROWDED, "reading metadata", &error),
    };
    let to = ShardCount::new(width + 1).expect("at least one");
    match table.set_shards(&key(CROWDED), to, deadline).await {
        Ok(_) => world.count(|totals| totals.slow_changes += 1),
        Err(error) => world.check_error(CROWDED, "a growth", &error),
    }
}

const _: () = assert!(CROWDED < KEYS, "the crowd writes to a key of the run");
