//! Shorter waits of drains, for tables whose readers and writers all run in one process.

use std::time::Duration;

use sharding::TableConfig;

/// A drain waits longer than leases and reads last, by this margin.
///
/// All readers and writers in one process use one clock, and no request outlives the process. So
/// only leases and reads have to end, and any margin is enough.
const MARGIN: Duration = Duration::from_secs(1);

/// Sets the wait for requests and for reads. Leases and reads are shortened to end before the wait
/// does.
#[must_use]
pub fn with_drain_wait(mut config: TableConfig, wait: Duration) -> TableConfig {
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
    fn leases_and_reads_end_before_a_drain_stops_waiting() {
        let usual = TableConfig::new("items", "items-metadata");
        for seconds in [5, 60, 61, 3_600] {
            let wait = Duration::from_secs(seconds);
            let config = with_drain_wait(usual.clone(), wait);
            assert!(config.append_lease < wait && config.longest_read < wait, "{config:?}");
            assert!(
                config.append_lease <= usual.append_lease
                    && config.longest_read <= usual.longest_read
            );
            assert_eq!((config.drain.wait_for_requests, config.drain.wait_for_reads), (wait, wait));
        }
    }
}
