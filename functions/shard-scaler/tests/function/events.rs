//! The shard-scaler's binary as a Lambda process: every sample event, against the local edition's
//! DynamoDB port.

use crate::assert_has;
use insta::assert_snapshot;
use local::ServeOptions;
use serde_json::json;
use system_tests::{Function, TestEdition, config, event, event_of_now};

const BINARY: &str = env!("CARGO_BIN_EXE_shard-scaler");

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
    (edition, Function::start(BINARY, &variables).await)
}

#[tokio::test]
async fn every_sample_event_has_its_answer() {
    let (_edition, mut scaler) = start().await;
    let (direct, again) = ("shard-scaler-alarm-direct", "shard-scaler-alarm-duplicate");
    assert_eq!(event(direct), event(again), "the same event, once more");
    let mut answers = String::new();
    let samples = "
        shard-scaler-set shard-scaler-schedule-set shard-scaler-set-zero shard-scaler-set-warm
        shard-scaler-warm shard-scaler-warm-by-writer shard-scaler-alarm-direct
        shard-scaler-alarm-duplicate shard-scaler-alarm-sns shard-scaler-alarm-eventbridge
        shard-scaler-alarm-metric-math shard-scaler-alarm-composite
        shard-scaler-alarm-null-description shard-scaler-alarm-ok-state
        shard-scaler-alarm-other-table shard-scaler-alarm-provisioned shard-scaler-alarm-hot-reads
        shard-scaler-alarm-index shard-scaler-unknown shard-scaler-drain shard-scaler-settle
        shard-scaler-rebuild shard-scaler-copies shard-scaler-rearm shard-scaler-status
    ";
    for name in samples.split_whitespace() {
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
}

#[tokio::test]
async fn a_shrink_is_begun_by_an_event_and_carried_on_by_the_schedule() {
    let (_edition, mut scaler) = start().await;
    assert_eq!(scaler.invoke(event("shard-scaler-schedule-set")).await["outcome"], "scaled");
    let begun = scaler.invoke(event("shard-scaler-shrink")).await;
    assert_has(&begun, json!({"outcome": "begun", "number_of_shards": 3, "read_shards": 6}));
    let again = scaler.invoke(event("shard-scaler-shrink")).await;
    assert_eq!(again["outcome"], "unchanged", "{again}");
    let run = scaler.invoke(event("shard-scaler-drain")).await;
    assert_has(&run, json!({"outcome": "handled", "looked_at": 1, "draining": 1}));
    let shown = scaler.invoke(event("shard-scaler-show")).await;
    let drain = json!({"draining": true, "drain": {"busy_until": null}});
    assert_has(&shown["metadata"], drain);
    // Requests of the previous era may be in flight.
    let began = shown["metadata"]["drain"]["began"].as_u64().expect("a time");
    assert_eq!(run["keys"][0]["outcome"], "waiting", "{run}");
    assert!(run["keys"][0]["until"].as_u64() > Some(began + 900), "{run}");
    // More shards than it has, ahead of a peak: this cancels the drain, and the key grows.
    assert_eq!(scaler.invoke(event("shard-scaler-schedule-set")).await["outcome"], "scaled");
    let shown = scaler.invoke(event("shard-scaler-show")).await;
    assert_has(&shown["metadata"], json!({"draining": false, "number_of_shards": 6}));
}
