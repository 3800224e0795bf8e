//! The shard-scaler's metrics, in addition to the table's. No metric has a label, because a label
//! is one more dimension, and an alarm would have to name each of its values.

use metrics::{counter, histogram};

/// Counts an outcome `failed` of an event, or of one of its keys, indexes or alarms.
pub(crate) fn failed() {
    counter!("ShardScalerFailures").increment(1);
}

/// Counts a search for throttled keys while Contributor Insights does not report them.
pub(crate) fn contributor_insights_off() {
    counter!("ContributorInsightsOff").increment(1);
}

/// Records the write units a second that the table would need, if it has too few partitions for its
/// hot keys.
pub(crate) fn short_of_partitions(write_units: u64) {
    histogram!("ShardingShortOfPartitions").record(write_units as f64);
}
