//! `SCALING=alarm`, end to end on the local edition: the alarm of its own throttle counts wakes the
//! shard-scaler. The hot key grows, throttling ends, the alarm is armed again, and a key that turns
//! hot later is relieved, too.

use std::time::Duration;

use embedded_dynamodb::PartitionLimits;
use local::{ServeOptions, in_process_clients};
use serde_json::json;
use shard_scaler::ScalerConfig;
use sharding::ScalingActors;
use sharding::internal::{Deadline, TableEngine};
use system_tests::{
    Tables, TestEdition, config, event_of_now, filled_item, partition_key, soon, wall_clock,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::schedule::scaler;

/// Long enough for several alarms, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(240);
/// Throttling has ended after this time without a throttle.
const CALM: Duration = Duration::from_secs(3);

async fn width(edition: &TestEdition, key: &str) -> u64 {
    let shards = edition.get(&format!("/shards?partition_key={key}")).await;
    shards.body["number_of_shards"].as_u64().unwrap_or(1)
}

async fn until_relieved(edition: &TestEdition, key: &str) {
    let began = Instant::now();
    let (mut calm_since, mut throttled) = (Instant::now(), 0);
    while width(edition, key).await == 1 || calm_since.elapsed() < CALM {
        assert!(began.elapsed() < PATIENCE, "{key} is not relieved");
        tokio::time::sleep(Duration::from_millis(250)).await;
        let now = edition.engine().traffic("items").throttled_writes;
        if now > throttled {
            (calm_since, throttled) = (Instant::now(), now);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half a minute or more; .ci/run runs it"]
async fn the_alarm_relieves_a_hot_key_and_later_another() {
    let config = config().with(|config| config.scaling = ScalingActors::Alarm);
    let options = ServeOptions {
        partitions: 256,
        partition_write_units: 100,
        alarm_period: 1,
        ..ServeOptions::default()
    };
    let edition = TestEdition::start(options, config).await;
    let cold = json!({"partition_key": "cold", "sort_key": "0", "attributes": {}});
    assert_eq!(edition.post("/items", &cold).await.status, 201);
    for key in ["hot", "late"] {
        let load = json!({"partition_key": key, "writes": 180, "item_size": 500});
        assert_eq!(edition.post("/console/load", &load).await.status, 202);
        until_relieved(&edition, key).await;
        let alarm = edition.engine().alarm_state("local-hot-partition");
        assert_eq!(alarm, "OK", "{key}: the alarm is armed again");
        assert_eq!(edition.send("DELETE", "/console/load", &[], None).await.status, 204);
    }
    assert_eq!(width(&edition, "cold").await, 1, "only hot keys grow");
}

/// The time from the alarm to the activated width of twenty hot keys, on the simulated service's
/// clock.
#[tokio::test(start_paused = true)]
async fn an_alarm_relieves_twenty_hot_keys_within_five_seconds() {
    let alarm_only = config().with(|config| config.scaling = ScalingActors::Alarm);
    let tables = Tables::unclaimed(alarm_only).await;
    let tables = Tables { service_time: Duration::from_millis(5), ..tables };
    let limits =
        PartitionLimits { partitions: 512, write_units: 1.0, ..PartitionLimits::default() };
    tables.engine.set_limits([("items".to_owned(), limits)]);
    let client = in_process_clients(&tables.connection()).dynamodb;
    let table = TableEngine::new(&client, tables.config.clone());
    table.put(&filled_item(partition_key("cold"), "0", 10), soon()).await.expect("stored");
    let mut writes = JoinSet::new();
    for (key, number) in (0..20).flat_map(|key| (0..40).map(move |number| (key, number))) {
        let key = partition_key(&format!("hot-{key}"));
        let item = filled_item(key, &number.to_string(), 30_000);
        let table = table.clone();
        writes.spawn(async move {
            table.put(&item, Deadline::now() + Duration::from_secs(2)).await.is_ok()
        });
    }
    writes.join_all().await;

    let scaler = scaler(&tables.connection(), table, ScalerConfig::default());
    let began = Instant::now();
    let event = event_of_now("shard-scaler-alarm-direct");
    // The engine counts throttles by the wall clock.
    let response = scaler.handle(&event, wall_clock().as_secs(), soon()).await.expect("handled");
    let took = began.elapsed();
    let keys = response["keys"].as_array().expect("keys");
    let scaled = keys.iter().filter(|key| key["outcome"] == "scaled").count();
    println!("{scaled} keys activated {took:?} after the alarm");
    assert_eq!((scaled, keys.len()), (20, 20), "and no cold key: {response}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}
