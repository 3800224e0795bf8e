//! `SCALING=alarm`, end to end on the local edition: the alarm of its own throttle counts wakes the
//! shard-scaler. Only the hot keys grow, throttling ends, the alarm is armed again, and a key that
//! turns hot later is relieved, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use embedded_dynamodb::PartitionLimits;
use local::{ServeOptions, in_process_clients};
use serde_json::json;
use shard_scaler::ScalerConfig;
use sharding::internal::{Deadline, TableEngine};
use sharding::{Attributes, Item, ScalingActors, Value};
use system_tests::{Tables, TestEdition, config, event_of_now, partition_key, soon, sort_key};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::schedule::scaler;

/// Long enough for several alarms, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(240);
/// Throttling has ended after this time without a throttle.
const CALM: Duration = Duration::from_secs(3);

/// Writes a key's items, one every few milliseconds, until `stop` is set.
async fn load(url: String, key: &'static str, pause: Duration, stop: Arc<AtomicBool>) {
    let http = reqwest::Client::new();
    let filler = "x".repeat(9_000);
    let mut under_way = JoinSet::new();
    let mut ticks = tokio::time::interval(pause);
    let mut number = 0u64;
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        number += 1;
        let item = json!({"partition_key": key, "sort_key": format!("{number:09}"), "attributes": {"filler": filler}});
        let request = http.post(format!("{url}/items")).json(&item);
        under_way.spawn(async move {
            request.send().await.is_ok_and(|response| response.status() == 201)
        });
        while under_way.try_join_next().is_some() {}
    }
    under_way.abort_all();
}

async fn width(edition: &TestEdition, key: &str) -> u64 {
    let shards = edition.get(&format!("/shards?partition_key={key}")).await;
    shards.body["number_of_shards"].as_u64().unwrap_or(1)
}

/// Waits until the keys have grown and throttling has ended.
async fn until_relieved(edition: &TestEdition, keys: &[&str]) {
    let began = Instant::now();
    let (mut calm_since, mut throttled) =
        (Instant::now(), edition.engine().traffic("items").throttled_writes);
    loop {
        assert!(began.elapsed() < PATIENCE, "{keys:?} are not relieved");
        tokio::time::sleep(Duration::from_millis(250)).await;
        let now = edition.engine().traffic("items").throttled_writes;
        if now > throttled {
            (calm_since, throttled) = (Instant::now(), now);
        }
        let mut grown = true;
        for key in keys {
            grown &= width(edition, key).await > 1;
        }
        if grown && calm_since.elapsed() > CALM {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half a minute or more; .ci/run runs it"]
async fn the_alarm_relieves_three_hot_keys_and_later_a_fourth() {
    let config = config().with(|config| config.scaling = ScalingActors::Alarm);
    let options = ServeOptions {
        partitions: 256,
        partition_write_units: 100,
        alarm_period: 1,
        ..ServeOptions::default()
    };
    let edition = TestEdition::start(options, config).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut loads = JoinSet::new();
    let mut start = |key, millis| {
        loads.spawn(load(edition.url(), key, Duration::from_millis(millis), Arc::clone(&stop)))
    };
    // Nine units per write: hot keys of about 180 units per second on partitions of 100, and one
    // key of 20.
    for hot in ["hot-1", "hot-2", "hot-3"] {
        start(hot, 50);
    }
    start("cold", 450);
    until_relieved(&edition, &["hot-1", "hot-2", "hot-3"]).await;
    assert_eq!(width(&edition, "cold").await, 1, "only hot keys grow");
    let alarm = edition.engine().alarm_state("local-hot-partition");
    assert_eq!(alarm, "OK", "the alarm is armed again");

    start("late", 50);
    until_relieved(&edition, &["late"]).await;
    assert_eq!(width(&edition, "cold").await, 1, "only hot keys grow");
    stop.store(true, Ordering::Relaxed);
    loads.join_all().await;
    edition.stop().await;
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
    let attributes = Attributes::from([("filler".to_owned(), Value::S("x".repeat(30_000)))]);
    let mut writes = JoinSet::new();
    for (key, number) in (0..20).flat_map(|key| (0..40).map(move |number| (key, number))) {
        let (key, sort_key) = (format!("hot-{key}"), sort_key(&number.to_string()));
        let attributes = attributes.clone();
        let item = Item { partition_key: partition_key(&key), sort_key, attributes };
        let table = table.clone();
        writes.spawn(async move {
            table.put(&item, Deadline::now() + Duration::from_secs(2)).await.is_ok()
        });
    }
    writes.join_all().await;

    let scaler = scaler(&tables.connection(), table, ScalerConfig::default());
    let began = Instant::now();
    let event = event_of_now("shard-scaler-alarm-direct");
    let response = scaler.handle(&event, seconds(), soon()).await.expect("handled");
    let took = began.elapsed();
    let keys = response["keys"].as_array().expect("keys");
    let scaled = keys.iter().filter(|key| key["outcome"] == "scaled").count();
    println!("{scaled} keys activated {took:?} after the alarm");
    assert_eq!(scaled, 20, "{response}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[expect(clippy::disallowed_methods, reason = "the engine counts throttles by the wall clock")]
fn seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()
}
