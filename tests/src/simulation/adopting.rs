//! Keys with items of another program.

use std::time::Duration;

use embedded_dynamodb::{Engine, InProcess};
use local::in_process_clients;
use sharding::maintenance::KeyPattern;
use tokio::time::sleep;

use super::ending::{newcomer, soon};
use super::failure::Failure;
use super::linearizability::Kind;
use super::registers::Outcome;
use super::world::World;
use super::{KEYS, key};
use crate::store_plainly;

/// The number of these items of each key, besides registers.
const ADOPTED_ITEMS: u64 = 40;
/// More than the largest difference of two instances' clocks.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(30);
/// The first value of these items. It is above every value that a writer of the run stores.
const FIRST_VALUE: u64 = 1 << 40;

/// Another program stores items, and writes them again until the keys are armed.
pub(super) async fn store_and_arm(engine: &Engine, world: &World) -> Result<(), Failure> {
    store_items(engine, world, 0).await;
    let operator = newcomer(world, 3);
    operator.arm(&KeyPattern::All, soon()).await.map_err(Failure::harness)?;
    store_items(engine, world, 1).await;
    while operator.not_armed_before(&key(0), soon()).await.map_err(Failure::harness)?.is_some() {
        sleep(Duration::from_secs(1)).await;
    }
    // Until the pattern counts by the slowest clock, too.
    sleep(CLOCK_DIFFERENCE).await;
    Ok(())
}

async fn store_items(engine: &Engine, world: &World, round: u64) {
    // These writes do not count towards the load, so they run without limits.
    let limits = engine.limits("items");
    engine.set_limits([]);
    let client = in_process_clients(&InProcess::new(engine.clone())).dynamodb;
    for which in 0..KEYS {
        let plain = (0..ADOPTED_ITEMS).map(|number| format!("adopted-{number:02}"));
        let registers = (0..4).map(|number| format!("~register-{number}"));
        for (number, text) in plain.chain(registers).enumerate() {
            let value = FIRST_VALUE + 1_000 * round + number as u64;
            store_plainly(&client, key(which).as_str(), &text, value).await;
            if text.starts_with('~') {
                let sent = world.registers(which).sent(&text, Kind::Set(Some(value)), None);
                world.registers(which).ended(&sent, Outcome::Done);
            } else {
                world.history(which).sent(&text, value);
                world.history(which).acknowledged(&text);
            }
        }
    }
    engine.set_limits([("items".to_owned(), limits)]);
    sleep(Duration::from_millis(1)).await;
}
