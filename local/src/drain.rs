//! The schedule of the local edition, as the template's `DrainSchedule`: it has the shard-scaler go on with shrinking and settling.

use std::time::Duration;

use serde_json::json;
use shard_scaler::Scaler;
use sharding::internal::Deadline;
use tokio::time::{MissedTickBehavior, interval};

use crate::http_api::{SCALER_TIME, now_seconds};

/// Sends the shard-scaler the event of the schedule, for ever.
pub(crate) async fn carry_on(scaler: Scaler, period: Duration) {
    let event = json!({"action": "drain"});
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        // A failure is in the log, and the next run is its repetition.
        let _ = scaler.handle(&event, now_seconds(), Deadline::now() + SCALER_TIME).await;
    }
}
