//! The alarm of the local edition: as the template's, on the throttle counts of the embedded engine.
//!
//! It acts as CloudWatch does: it is evaluated every period, acts on a transition to ALARM and never while the state lasts, and an
//! acting shard-scaler must set it back to OK.

use std::time::Duration;

use embedded_dynamodb::Engine;
use serde_json::{Value, json};
use shard_scaler::Scaler;
use sharding::internal::Deadline;
use tokio::time::{MissedTickBehavior, interval};

use crate::http_api::{SCALER_TIME, now_seconds};

/// The alarm's name.
const NAME: &str = "local-hot-partition";

/// Evaluates the alarm for ever.
pub(crate) async fn watch(engine: Engine, scaler: Scaler, period: Duration) {
    let table = scaler.table().config().table_name.clone();
    let mut before = engine.traffic(&table).throttled_writes;
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let now = engine.traffic(&table).throttled_writes;
        let throttled = now - before;
        before = now;
        let (old, new) = (engine.alarm_state(NAME), if throttled > 0 { "ALARM" } else { "OK" });
        if old == new {
            continue;
        }
        engine.set_alarm_state(NAME, new);
        tracing::info!(from = old, to = new, throttled, "the alarm changed its state");
        if new == "ALARM" {
            let at = now_seconds();
            let event = event(&table, &old, throttled, period);
            // In the background, as a Lambda function runs: the alarm is evaluated meanwhile. What became of it is in the log.
            let scaler = scaler.clone();
            tokio::spawn(async move { scaler.handle(&event, at, Deadline::now() + SCALER_TIME).await });
        }
    }
}

/// What CloudWatch sends to a Lambda function.
fn event(table: &str, old: &str, throttled: u64, period: Duration) -> Value {
    json!({
        "source": "aws.cloudwatch",
        "alarmArn": format!("arn:aws:cloudwatch:local:000000000000:alarm:{NAME}"),
        "alarmData": {
            "alarmName": NAME,
            "state": {"value": "ALARM", "reason": format!("{throttled} writes were throttled within {} s", period.as_secs_f64())},
            "previousState": {"value": old},
            "configuration": {"metrics": [{"id": "m1", "returnData": true, "metricStat": {
                "metric": {
                    "namespace": "AWS/DynamoDB",
                    "name": "WriteKeyRangeThroughputThrottleEvents",
                    "dimensions": {"TableName": table},
                },
                "period": period.as_secs(),
                "stat": "Sum",
            }}]},
        },
    })
}
