//! What wakes the shard-scaler of the local edition, as in an AWS account: an alarm, a schedule,
//! and writers that report a shortage of partitions.

use std::time::Duration;

use embedded_dynamodb::Engine;
use serde_json::{Value, json};
use shard_scaler::{Failed, Scaler};
use tokio::time::{Instant as Deadline, Interval, MissedTickBehavior, interval};
use writer::shortage;

/// The template's timeout of the shard-scaler.
const TIMEOUT: Duration = Duration::from_secs(59);
const ALARM: &str = "local-hot-partition";

/// Sends an event to the shard-scaler. The log contains a failure.
pub(crate) async fn send(scaler: &Scaler, event: &Value) -> Result<Value, Failed> {
    scaler.handle(event, api::since_epoch().as_secs(), Deadline::now() + TIMEOUT).await
}

/// Evaluates the alarm forever. It corresponds to the template's alarm, and reads the throttle
/// counts of the embedded engine.
///
/// It behaves like a CloudWatch alarm: it is evaluated every period, and it acts only on a
/// transition to ALARM. The shard-scaler must set it back to OK after it acts.
pub(crate) async fn by_alarm(engine: Engine, scaler: Scaler, period: Duration) {
    let table = scaler.table().config().table_name.clone();
    let mut before = engine.traffic(&table).throttled_writes;
    let mut ticks = ticks(period).await;
    loop {
        ticks.tick().await;
        let now = engine.traffic(&table).throttled_writes;
        let throttled = now - before;
        before = now;
        let (old, new) = (engine.alarm_state(ALARM), if throttled > 0 { "ALARM" } else { "OK" });
        if old == new {
            continue;
        }
        engine.set_alarm_state(ALARM, new);
        tracing::info!(from = old, to = new, throttled, "the alarm changed its state");
        if new == "ALARM" {
            let (scaler, event) = (scaler.clone(), alarm_event(&table));
            // The event is handled in the background, as a Lambda function does.
            tokio::spawn(async move { send(&scaler, &event).await });
        }
    }
}

/// The part that the shard-scaler reads of the event that CloudWatch sends to a Lambda function.
fn alarm_event(table: &str) -> Value {
    let metric = json!({
        "name": "WriteKeyRangeThroughputThrottleEvents",
        "dimensions": {"TableName": table},
    });
    json!({"alarmData": {
        "alarmName": ALARM,
        "state": {"value": "ALARM"},
        "configuration": {"metrics": [{"metricStat": {"metric": metric}}]},
    }})
}

/// Like the template's `DrainSchedule`, makes the shard-scaler continue with shrinking and settling
/// forever.
pub(crate) async fn by_schedule(scaler: Scaler, period: Duration) {
    let mut ticks = ticks(period).await;
    loop {
        ticks.tick().await;
        // The next run repeats the work after a failure.
        let _ = send(&scaler, &json!({"action": "drain"})).await;
    }
}

/// Makes the shard-scaler raise the table's warm throughput whenever a writer reports a shortage of
/// partitions, forever. In an AWS account the writer invokes the function.
pub(crate) async fn by_shortage(scaler: Scaler) {
    let events = scaler.table().maintenance().events();
    let report = move |write_units: u64| {
        let scaler = scaler.clone();
        async move {
            // The next report repeats the request after a failure.
            let _ = send(&scaler, &json!({"action": "warm", "write_units": write_units})).await;
        }
    };
    shortage::watch(events, || api::since_epoch().as_secs(), report).await;
}

/// The first tick is a period from now.
pub(crate) async fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    ticks
}
