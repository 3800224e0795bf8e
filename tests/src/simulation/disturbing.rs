//! Faults of instances: freezes, clocks set back, lost metadata and deaths.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use super::network::Instance;
use super::slow_metadata::Slow;
use super::world::World;
use super::{HOT, Plan, READERS, WRITERS};

/// Disturbs the instances until the run ends.
pub(super) async fn disturb(
    instances: Vec<Arc<Instance>>,
    world: Arc<World>,
    plan: Plan,
    seed: u64,
) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut deaths = 0;
    // The last of the draining instances dies; another one survives.
    let mut drainer =
        instances.last().filter(|_| plan.loses_a_drainer() && instances.len() > WRITERS + READERS);
    while world.goes_on() {
        sleep(world.pause(&mut rng, 100..900)).await;
        let instance = &instances[rng.random_range(0..instances.len())];
        let length = Duration::from_millis(rng.random_range(200..4_000));
        match rng.random_range(0..10) {
            0..6 => instance.freeze(length),
            6 | 7 if plan.sets_clocks_back() => instance.set_clock_back(length),
            8 if plan.has_slow_metadata() && rng.random() => {
                let slow = [Slow::All, Slow::PageWrites, Slow::Copy(rng.random_range(0..2))];
                let slow = slow[rng.random_range(0..slow.len())];
                world.network.slow_down(&mut rng, slow, length * 2);
            }
            8 => instance.lose_metadata(length),
            _ if deaths < 1 => {
                deaths += 1;
                instances[rng.random_range(0..WRITERS)].die();
            }
            _ if world.age() > HOT + Duration::from_secs(10) => {
                if let Some(drainer) = drainer.take() {
                    drainer.die();
                }
            }
            _ => {}
        }
    }
}
