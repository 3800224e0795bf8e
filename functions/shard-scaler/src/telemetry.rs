//! What the shard-scaler counts, beside what the table counts. No metric has a label: a label is one more dimension, and an alarm would then have
//! to name each of its values.

use metrics::{counter, histogram};

/// Outcomes `failed`, of an event or of one of its keys, indexes or alarms. [count]
const FAILURES: &str = "ShardScalerFailures";
/// Looks for throttled keys where Contributor Insights does not report them. [count]
const CONTRIBUTOR_INSIGHTS_OFF: &str = "ContributorInsightsOff";
/// Where the table has too few partitions for its hot keys: the write units a second that it would have to be
/// able to serve. [count]
const SHORT_OF_PARTITIONS: &str = "ShortOfPartitions";

pub(crate) fn failed() {
    counter!(FAILURES).increment(1);
}

pub(crate) fn contributor_insights_off() {
    counter!(CONTRIBUTOR_INSIGHTS_OFF).increment(1);
}

pub(crate) fn short_of_partitions(write_units: u64) {
    histogram!(SHORT_OF_PARTITIONS).record(write_units as f64);
}
