//! A writer that finds the table short of partitions wakes the shard-scaler: in an account by an invocation, here by a call.

use serde_json::json;
use shard_scaler::Scaler;
use sharding::internal::Deadline;
use writer::shortage;

use crate::http_api::{SCALER_TIME, now_seconds};

/// Has the shard-scaler warm the table whenever a writer has to report that it is short of partitions, for ever.
pub(crate) async fn warm(scaler: Scaler) {
    let events = scaler.table().scaling_events();
    let report = move |write_units: u64| {
        let scaler = scaler.clone();
        async move {
            let event = json!({"action": "warm", "write_units": write_units});
            // A failure is in the log, and the next report is its repetition.
            let _ = scaler.handle(&event, now_seconds(), Deadline::now() + SCALER_TIME).await;
        }
    };
    shortage::watch(events, now_seconds, report).await;
}
