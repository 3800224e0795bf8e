//! Faults of instances: freezes, clocks set back, lost metadata and deaths.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use super::slow_metadata::{Slow, Stretch};
use super::world::Actor;
use super::{DRAINERS, HOT, READERS, WRITERS, locked};

pub(super) async fn disturb(actors: Vec<Actor>, seed: u64) {
    let (mut rng, world) = (StdRng::seed_from_u64(seed), &actors[0].world);
    let plan = world.plan;
    let mut writer_died = false;
    // The last of the draining instances dies, and another one survives; or else an endpoint.
    let mut dying = match (plan.shrinking, plan.endpoints) {
        (true, _) => actors.get(WRITERS + READERS + DRAINERS - 1),
        (false, true) => actors.last(),
        (false, false) => None,
    };
    dying = dying.filter(|_| plan.loses_a_second_actor());
    while world.goes_on() {
        sleep(world.pause(&mut rng, 100..900)).await;
        let instance = &actors[rng.random_range(0..actors.len())].instance;
        let length = Duration::from_millis(rng.random_range(200..4_000));
        match rng.random_range(0..10) {
            0..6 => instance.freeze(length),
            6 | 7 if plan.sets_clocks_back() => instance.set_clock_back(length),
            8 if plan.has_slow_metadata() && rng.random() => {
                let slow = [Slow::All, Slow::PageWrites, Slow::Copy(rng.random_range(0..2))];
                let slow = slow[rng.random_range(0..slow.len())];
                world.count(|totals| totals.faults += 1);
                *locked(&world.stretch) = Some(Stretch::draw(&mut rng, slow, length * 2));
            }
            8 => instance.lose_metadata(length),
            _ if !writer_died => {
                writer_died = true;
                actors[rng.random_range(0..WRITERS)].instance.die();
            }
            _ if world.age() > HOT + Duration::from_secs(10) => {
                if let Some(dying) = dying.take() {
                    dying.instance.die();
                }
            }
            _ => {}
        }
    }
}
