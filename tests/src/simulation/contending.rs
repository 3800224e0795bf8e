//! Bursts of writes of one register by several instances. Meanwhile one instance is throttled, and
//! the connection of another one breaks.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::replaced_counters::burst;
use super::world::Actor;
use super::writing::{PointWrite, write_point};
use super::{HOT, KEYS};

/// The number of registers of each key that get bursts at the same time.
const REGISTERS: u32 = 4;
/// The first value of a burst. It is above every value that a writer stores by counting.
const FIRST_VALUE: u64 = 1 << 45;

/// More values than a burst has writes.
const MOST: u64 = 10;

/// Sends bursts until the run ends.
pub(super) async fn contend(writers: Vec<Actor>, seed: u64) {
    let (mut rng, world) = (StdRng::seed_from_u64(seed), &writers[0].world);
    let (mut under_way, mut value) = (JoinSet::new(), FIRST_VALUE);
    sleep(HOT).await;
    while world.goes_on() {
        sleep(Duration::from_millis(rng.random_range(3_000..15_000))).await;
        let alive: Vec<_> = writers.iter().filter(|writer| !writer.instance.is_dead()).collect();
        if rng.random_range(0..3) == 0 {
            burst(&alive, &mut rng, value).await;
            value += MOST;
            continue;
        }
        let which = rng.random_range(0..KEYS);
        let sort_key = world.register("contended", rng.random_range(0..REGISTERS));
        let throttled = alive[rng.random_range(0..alive.len())];
        throttled.instance.throttle(Duration::from_millis(rng.random_range(200..1_800)));
        let breaking = alive[rng.random_range(0..alive.len())];
        breaking.instance.break_connections(Duration::from_millis(1_500));
        for _ in 0..rng.random_range(4..8) {
            value += 1;
            let writer = alive[rng.random_range(0..alive.len())].clone();
            let write = PointWrite::of_register(&mut rng, &sort_key, value);
            // The throttled write begins first.
            let latest = if writer.index == throttled.index { 200 } else { 1_500 };
            let pause = Duration::from_millis(rng.random_range(0..latest));
            under_way.spawn(async move {
                sleep(pause).await;
                write_point(writer, which, write).await;
            });
        }
        while under_way.try_join_next().is_some() {}
    }
    // Writes of a dead instance do not end.
    under_way.abort_all();
}
