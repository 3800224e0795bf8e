//! Keys with items from before they were sharded.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use embedded_dynamodb::{Engine, InProcess};
use local::in_process_clients;
use sharding::internal::TableEngine;
use tokio::time::{Instant, sleep};

use super::ending::{check_scan, drain, newcomer_of, patiently, soon};
use super::failure::Failure;
use super::linearizability::Kind;
use super::registers::Outcome;
use super::world::World;
use super::{KEYS, Plan, key};

/// The number of bare items of each key, besides registers.
const BARE_ITEMS: u64 = 40;
/// The first value of bare items. It is above every value that a writer of the run stores.
const FIRST_VALUE: u64 = 1 << 40;

/// Stores the items that another program stored before the run.
pub(super) async fn store_bare(engine: &Engine, world: &World) {
    // These writes do not count towards the load, so they run without limits.
    let limits = engine.limits("items");
    engine.set_limits([]);
    let client = in_process_clients(&InProcess::new(engine.clone())).dynamodb;
    for which in 0..KEYS {
        let plain = (0..BARE_ITEMS).map(|number| format!("bare-{number:02}"));
        let registers = (0..4).map(|number| format!("~register-{number}"));
        for (number, text) in plain.chain(registers).enumerate() {
            let value = FIRST_VALUE + number as u64;
            let stored = HashMap::from([
                ("partition_key".to_owned(), AttributeValue::S(key(which).to_string())),
                ("sort_key".to_owned(), AttributeValue::S(text.clone())),
                ("value".to_owned(), AttributeValue::N(value.to_string())),
            ]);
            client
                .put_item()
                .table_name("items")
                .set_item(Some(stored))
                .send()
                .await
                .expect("the engine responds");
            if text.starts_with('~') {
                let sent = world.registers(which).sent(&text, Kind::Set(Some(value)), None);
                world.registers(which).ended(&sent, Outcome::Done);
            } else {
                world.history(which).sent(&text, value);
                world.history(which).acknowledged(&text, Instant::now());
            }
        }
    }
    engine.set_limits([("items".to_owned(), limits)]);
    sleep(Duration::from_millis(1)).await;
}

/// Migrates the remaining bare items. Afterwards no bare key has items, and reads that skip the
/// bare key find every item.
pub(super) async fn finish(fresh: &TableEngine, world: &World) -> Result<(), Failure> {
    let without_the_flag = newcomer_of(world, Plan { adopting: false, ..world.plan }, 1);
    for which in 0..KEYS {
        let begin = async || fresh.begin_migration(&key(which), soon()).await;
        patiently(world, which, "beginning a migration", begin).await?;
        drain(fresh, world, which).await?;
        check_scan(&without_the_flag, world, which, "without the flag").await?;
    }
    Ok(())
}
