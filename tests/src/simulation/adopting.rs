//! Keys that have items from before they were sharded.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use embedded_dynamodb::{Engine, InProcess};
use local::in_process_clients;
use sharding::{Deadline, DrainGoal, Drained, ShardedTable};
use tokio::time::{Instant, sleep};

use super::linearizability::Kind;
use super::network::{FaultRates, Instance};
use super::registers::Outcome;
use super::{KEYS, Plan, World, apart, key, scan, table};

/// Bare items of each key, besides registers.
const BARE_ITEMS: u64 = 40;
/// Above every value that a writer of the run makes.
const FIRST_VALUE: u64 = 1 << 40;

/// What another program stored before.
pub(super) async fn store_bare(engine: &Engine, world: &World) {
    // Its writes are no part of the load.
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
            client.put_item().table_name("items").set_item(Some(stored)).send().await.expect("the engine answers");
            if text.starts_with('~') {
                let sent = world.registers(which).sent(&text, Kind::Set(Some(value)));
                world.registers(which).ended(&sent, Outcome::Done, 0);
            } else {
                world.history(which).sent(&text, value);
                world.history(which).acknowledged(&text, Instant::now());
            }
        }
    }
    engine.set_limits([("items".to_owned(), limits)]);
    sleep(Duration::from_millis(1)).await;
}

/// Migrates what is left; then nothing stands under a bare key, and nothing is missing without looking there.
pub(super) async fn finish(engine: &Engine, fresh: &ShardedTable, world: &World, plan: Plan) -> Result<(), String> {
    let soon = || Deadline::now() + Duration::from_secs(30);
    let newcomer = Instance::new(engine.clone(), 2, world.began, FaultRates::NONE, Arc::default());
    newcomer.heal();
    let without_the_flag = table(&newcomer, Plan { adopting: false, ..plan }, 2);
    for which in 0..KEYS {
        fresh.begin_migration(&key(which), soon()).await.map_err(|error| error.to_string())?;
        loop {
            match fresh.drain(&key(which), soon()).await.map_err(|error| error.to_string())? {
                Drained::Done { goal: DrainGoal::Migrate, .. } => break,
                Drained::Done { .. } | Drained::Nothing => return Err("I6: a migration ended before its time".into()),
                Drained::Waiting { .. } | Drained::Working { .. } => sleep(Duration::from_secs(5)).await,
            }
        }
        let (began, tick) = (Instant::now(), world.registers(which).now());
        let seen = scan(&without_the_flag, which, 1_000, false).await.ok_or("a read fails at the end")?;
        let (appended, registers) = apart(seen);
        let checked = world.history(which).check_scan(&appended, began, false);
        world.registers(which).read_all(&registers, tick);
        checked.map_err(|violation| format!("I6, without the flag: {violation}"))?;
    }
    Ok(())
}
