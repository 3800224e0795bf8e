//! The shard-scaler's binary as a Lambda process: every sample event, against the local edition's
//! DynamoDB port.

use crate::assert_has;
use insta::assert_snapshot;
use local::ServeOptions;
use serde_json::{Value, json};
use system_tests::{Function, TestEdition, config, event, event_of_now};

const BINARY: &str = env!("CARGO_BIN_EXE_shard-scaler");
const KEY: &str = "/shared/firetvGen2.txt";

/// Runs of ten digits are times.
fn without_times(text: &str) -> String {
    let mut shown = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        shown += if digits == 10 { "TIME" } else { part.get(..digits).unwrap_or_default() };
        shown += part.get(digits..).unwrap_or_default();
    }
    shown
}

async fn start() -> (TestEdition, Function) {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let mut variables = Function::variables(&edition.dynamodb_url());
    // A key that was scaled may be settled, however fast the machine is.
    variables.push(("COOLDOWN_SECONDS", "0".to_owned()));
    // A variable of the shard-scaler alone.
    variables.push(("MAX_EVENT_AGE_SECONDS", "601".to_owned()));
    let scaler = Function::start(BINARY, &variables).await;
    (edition, scaler)
}

#[tokio::test]
async fn every_sample_event_has_its_answer() {
    let (edition, mut scaler) = start().await;
    let (direct, again) = ("shard-scaler-alarm-direct", "shard-scaler-alarm-duplicate");
    assert_eq!(event(direct), event(again), "the same event, once more");
    let mut answers = String::new();
    for name in [
        "shard-scaler-set",
        "shard-scaler-schedule-set",
        "shard-scaler-set-zero",
        "shard-scaler-set-warm",
        "shard-scaler-warm",
        "shard-scaler-warm-by-writer",
        "shard-scaler-alarm-direct",
        "shard-scaler-alarm-duplicate",
        "shard-scaler-alarm-sns",
        "shard-scaler-alarm-eventbridge",
        "shard-scaler-alarm-metric-math",
        "shard-scaler-alarm-composite",
        "shard-scaler-alarm-null-description",
        "shard-scaler-alarm-ok-state",
        "shard-scaler-alarm-other-table",
        "shard-scaler-alarm-provisioned",
        "shard-scaler-alarm-hot-reads",
        "shard-scaler-alarm-index",
        "shard-scaler-unknown",
        "shard-scaler-drain",
        "shard-scaler-settle",
        "shard-scaler-rebuild",
        "shard-scaler-copies",
        "shard-scaler-rearm",
        "shard-scaler-status",
    ] {
        answers += &format!("{name}: {}\n", scaler.invoke(event_of_now(name)).await);
    }
    // Each event as it is, and a second time: an old event does nothing, and neither does a list.
    for name in ["shard-scaler-alarm-stale", "shard-scaler-list"] {
        let answer = scaler.invoke(event(name)).await.to_string();
        answers += &format!("{name}: {}\n", without_times(&answer));
    }
    assert_snapshot!(answers);
    let shown = scaler.invoke(event("shard-scaler-show")).await;
    assert_has(&shown["metadata"], json!({"number_of_shards": 6, "era": 3, "generation": 5}));
    drop(scaler);
    edition.stop().await;
}

#[expect(clippy::disallowed_methods, reason = "the function goes by the wall clock")]
fn seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[tokio::test]
async fn a_shrink_is_begun_by_an_event_and_carried_on_by_the_schedule() {
    let (edition, mut scaler) = start().await;
    assert_eq!(scaler.invoke(event("shard-scaler-schedule-set")).await["outcome"], "scaled");
    let begun = scaler.invoke(event("shard-scaler-shrink")).await;
    assert_has(&begun, json!({"outcome": "begun", "number_of_shards": 3, "read_shards": 6}));
    let again = scaler.invoke(event("shard-scaler-shrink")).await;
    assert_eq!(again["outcome"], "unchanged", "{again}");
    let run = scaler.invoke(event("shard-scaler-drain")).await;
    assert_has(&run, json!({"outcome": "handled", "looked_at": 1, "draining": 1}));
    // Requests of the previous era may be in flight.
    let (key, begun_at) = (&run["keys"][0], seconds());
    assert_eq!(key["outcome"], "waiting", "{run}");
    assert!(key["until"].as_u64() > Some(begun_at + 900), "{run}");
    let shown = scaler.invoke(event("shard-scaler-show")).await;
    assert_eq!(shown["metadata"]["draining"], true, "{shown}");
    assert!(shown["metadata"]["drain"]["busy_until"].is_null(), "nobody has begun: {shown}");
    // More shards than it has, ahead of a peak: this cancels the drain, and the key grows.
    assert_eq!(scaler.invoke(event("shard-scaler-schedule-set")).await["outcome"], "scaled");
    let shown = scaler.invoke(event("shard-scaler-show")).await;
    assert_has(&shown["metadata"], json!({"draining": false, "number_of_shards": 6}));
    drop(scaler);
    edition.stop().await;
}

#[tokio::test]
async fn an_alarm_scales_the_keys_that_were_throttled_and_no_other() {
    // Writers that do not scale, on partitions that are soon overloaded.
    let mut alarm_only = config();
    alarm_only.scaling = sharding::ScalingActors::Alarm;
    let options =
        ServeOptions { partitions: 64, partition_write_units: 5, ..ServeOptions::default() };
    let edition = TestEdition::start(options, alarm_only).await;
    let cold = json!({"partition_key": "cold", "sort_key": "1", "attributes": {}});
    assert_eq!(edition.post("/items", &cold).await.status, 201);
    let burst: Vec<Value> = (0..60)
        .map(|i| json!({"partition_key": KEY, "sort_key": format!("{i:03}"), "attributes": {}}))
        .collect();
    let written = edition.post("/items/batch", &json!({ "items": burst })).await.body;
    let throttled = edition.engine().traffic("items").throttled_writes;
    assert!(throttled > 0, "the burst must be throttled: {written}");

    let mut scaler = Function::start(BINARY, &Function::variables(&edition.dynamodb_url())).await;
    let answer = scaler.invoke(event_of_now("shard-scaler-alarm-direct")).await;
    let keys = answer["keys"].as_array().expect("the keys that were acted on");
    assert_eq!(keys.len(), 1, "{answer}");
    assert_has(&keys[0], json!({"partition_key": KEY, "outcome": "scaled"}));
    let grown = edition.get("/shards?partition_key=%2Fshared%2FfiretvGen2.txt").await;
    assert!(grown.body["number_of_shards"].as_u64() > Some(1), "{:?}", grown.body);
    assert_eq!(edition.get("/shards?partition_key=cold").await.body["number_of_shards"], 1);

    // The same event again, within the cooldown or after the change: harmless.
    let again = scaler.invoke(event_of_now("shard-scaler-alarm-direct")).await;
    assert_eq!(again["outcome"], "handled", "{again}");
    drop(scaler);
    edition.stop().await;
}
