//! Adds copies of the directory's pages during the run. Some of the calls are interrupted.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::Deadline;
use tokio::time::{sleep, timeout};

use super::world::Actor;

/// The time limit of a call that is not interrupted.
const PATIENCE: Duration = Duration::from_secs(6);

/// Adds copies from time to time. Half of the calls are interrupted in the middle.
pub(super) async fn raise_copies(actor: Actor, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    for copies in [2, 3, 3, 4, 4] {
        sleep(Duration::from_millis(rng.random_range(300..2_500))).await;
        if !actor.goes_on() {
            return;
        }
        let lasts = if rng.random() { rng.random_range(1..120) } else { 60_000 };
        let raising = actor.table.raise_directory_copies(copies, Deadline::now() + PATIENCE);
        let raised = timeout(Duration::from_millis(lasts), Box::pin(raising)).await;
        if let Ok(Err(error)) = raised {
            actor.world.check_error(0, "raising the copies", &error);
        }
    }
}
