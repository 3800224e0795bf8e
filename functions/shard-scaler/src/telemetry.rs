//! The shard-scaler's metrics, in addition to the table's. No metric has a label, because a label
//! is one more dimension, and an alarm would have to name each of its values.

use metrics::{counter, histogram};

/// Outcomes `failed` of an event, or of one of its keys, indexes or alarms. [count]
const FAILURES: &str = "ShardScalerFailures";
/// Searches for throttled keys while Contributor Insights does not report them. [count]
const CONTRIBUTOR_INSIGHTS_OFF: &str = "ContributorInsightsOff";
/// The write units a second that the table would need, if it has too few partitions for its hot
/// keys. [count]
const SHORT_OF_PARTITIONS: &str = "ShardingShortOfPartitions";

pub(crate) fn failed() {
    counter!(FAILURES).increment(1);
}

pub(crate) fn contributor_insights_off() {
    counter!(CONTRIBUTOR_INSIGHTS_OFF).increment(1);
}

pub(crate) fn short_of_partitions(write_units: u64) {
    histogram!(SHORT_OF_PARTITIONS).record(write_units as f64);
}
