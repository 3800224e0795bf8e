//! The alarm of the local edition. It corresponds to the template's alarm, and reads the throttle
//! counts of the embedded engine.
//!
//! It behaves like a CloudWatch alarm: it is evaluated every period, and it acts only on a
//! transition to ALARM. The shard-scaler must set it back to OK after it acts.

use std::time::Duration;

use embedded_dynamodb::Engine;
use serde_json::{Value, json};
use shard_scaler::Scaler;
use tokio::time::Instant as Deadline;
use tokio::time::{MissedTickBehavior, interval};

use crate::http_api::SCALER_TIMEOUT;

const NAME: &str = "local-hot-partition";

/// Evaluates the alarm forever.
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
            let at = api::since_epoch().as_secs();
            let event = event(&table, &old, throttled, period);
            // The event is handled in the background, as a Lambda function does. Its outcome is in
            // the log.
            let scaler = scaler.clone();
            tokio::spawn(async move {
                scaler.handle(&event, at, Deadline::now() + SCALER_TIMEOUT).await
            });
        }
    }
}

/// The event that CloudWatch sends to a Lambda function.
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
