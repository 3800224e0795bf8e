//! The schedule of the local edition, as the template's `DrainSchedule`: it has the shard-scaler go on with shrinking and settling.

use std::time::Duration;

use serde_json::json;
use shard_scaler::Scaler;
use sharding::{Deadline, TableConfig};
use tokio::time::{MissedTickBehavior, interval};

use crate::http_api::{SCALER_TIME, now_seconds};

/// By so much a wait is longer than what it waits for.
///
/// All writers and readers are in this process and go by one clock. A request of theirs is applied when its lease has been looked at, or never,
/// and nothing of it is under way once the process has ended. So leases and reads are all that there is to wait for, and any margin will do.
const MARGIN: Duration = Duration::from_secs(1);

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

/// The same table with drains that wait this long for requests, and again for reads: views are relied on, and reads last, for less.
pub(crate) fn with_wait(mut config: TableConfig, wait: Duration) -> TableConfig {
    let bound = wait.saturating_sub(MARGIN);
    config.append_lease = config.append_lease.min(bound);
    config.longest_read = config.longest_read.min(bound);
    config.drain.wait_for_requests = wait;
    config.drain.wait_for_reads = wait;
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_relied_on_for_as_long_as_a_drain_waits() {
        let usual = TableConfig::new("items", "items-metadata");
        for seconds in [5, 60, 61, 3_600] {
            let wait = Duration::from_secs(seconds);
            let config = with_wait(usual.clone(), wait);
            assert!(config.append_lease < wait && config.longest_read < wait, "{config:?}");
            assert!(config.append_lease <= usual.append_lease && config.longest_read <= usual.longest_read);
            assert_eq!((config.drain.wait_for_requests, config.drain.wait_for_reads), (wait, wait));
        }
    }
}
