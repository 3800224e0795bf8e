//! The schedule of the local edition. Like the template's `DrainSchedule`, it makes the
//! shard-scaler continue with shrinking and settling.

use std::time::Duration;

use serde_json::json;
use shard_scaler::Scaler;
use tokio::time::Instant as Deadline;
use tokio::time::{MissedTickBehavior, interval};

use crate::http_api::SCALER_TIMEOUT;

/// Sends the schedule's event to the shard-scaler forever.
pub(crate) async fn carry_on(scaler: Scaler, period: Duration) {
    let event = json!({"action": "drain"});
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        // The log contains a failure, and the next run repeats the work.
        let _ = scaler
            .handle(&event, api::since_epoch().as_secs(), Deadline::now() + SCALER_TIMEOUT)
            .await;
    }
}
