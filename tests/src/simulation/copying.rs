//! Adds copies of the directory's pages during the run. Some of the calls are interrupted.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::Deadline;
use tokio::time::{sleep, timeout};

use super::READ_DEADLINE;
use super::world::Actor;

/// Adds copies from time to time. Half of the calls are interrupted in the middle.
pub(super) async fn raise_copies(actor: Actor, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    for copies in [2, 3, 3, 4, 4] {
        sleep(Duration::from_millis(rng.random_range(300..2_500))).await;
        if !actor.goes_on() {
            return;
        }
        let lasts = if rng.random() { rng.random_range(1..120) } else { 60_000 };
        let table = actor.table.until(Deadline::now() + READ_DEADLINE);
        let raising = Box::pin(table.raise_directory_copies(copies));
        let raised = timeout(Duration::from_millis(lasts), raising).await;
        if let Ok(Err(error)) = raised {
            actor.world.check_error(0, "raising the copies", &error);
        }
    }
}
