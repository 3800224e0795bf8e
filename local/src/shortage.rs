//! Wakes the shard-scaler when a writer reports that the table is short of partitions. In an AWS
//! account the writer invokes the function; here this module calls it.

use serde_json::json;
use shard_scaler::Scaler;
use tokio::time::Instant as Deadline;
use writer::shortage;

use crate::http_api::SCALER_TIMEOUT;

/// Makes the shard-scaler raise the table's warm throughput whenever a writer reports a shortage of
/// partitions. It runs forever.
pub(crate) async fn warm(scaler: Scaler) {
    let events = scaler.table().maintenance().events();
    let report = move |write_units: u64| {
        let scaler = scaler.clone();
        async move {
            let event = json!({"action": "warm", "write_units": write_units});
            // The log contains a failure, and the next report repeats the request.
            let _ = scaler
                .handle(&event, api::since_epoch().as_secs(), Deadline::now() + SCALER_TIMEOUT)
                .await;
        }
    };
    shortage::watch(events, || api::since_epoch().as_secs(), report).await;
}
