//! The table's metrics, through the `metrics` facade. They need a recorder; without one they cost
//! next to nothing. Names begin with `Sharding`, because a service has metrics of its own.
//! `docs/operations.md` describes each. A partition key is never a label, because the number of its
//! values is unbounded.

use metrics::{counter, histogram};

use crate::engine::error::{WriteError, WriteErrorKind};
use crate::engine::results::Written;
use crate::policy::capacity::CapacityScope;
use crate::values::key::ShardCount;

/// Counts a write: its attempts beyond the first, and whether it succeeded in time.
pub(crate) fn write(result: &Result<Written, WriteError>) {
    let attempts = result.as_ref().map_or_else(|error| error.attempts, |written| written.attempts);
    retried(attempts);
    let (outcome, in_time) = match result.as_ref().map_err(|error| &error.kind) {
        Ok(_) => return written(),
        // A defined result is not a failure.
        Err(
            WriteErrorKind::Exists
            | WriteErrorKind::IdempotencyKeyReused
            | WriteErrorKind::AppendOnly
            | WriteErrorKind::Precondition
            | WriteErrorKind::Absent
            | WriteErrorKind::Mismatch(_)
            | WriteErrorKind::DirectoryFull
            | WriteErrorKind::NotArmed { .. }
            | WriteErrorKind::Invalid(_),
        ) => return,
        Err(WriteErrorKind::Capacity { .. } | WriteErrorKind::Deadline(_)) => {
            ("no-capacity", false)
        }
        Err(WriteErrorKind::Contended) => ("contended", false),
        Err(WriteErrorKind::Unknown(_)) => ("unknown", false),
        Err(WriteErrorKind::Table(_)) => ("failed", true),
    };
    failed(outcome);
    if !in_time {
        missed_deadline();
    }
}

pub(crate) fn retried(attempts: u32) {
    counter!("ShardingRetries").increment(u64::from(attempts.saturating_sub(1)));
}

pub(crate) fn written() {
    counter!("ShardingWrites").increment(1);
}

pub(crate) fn failed(outcome: &'static str) {
    counter!("ShardingFailedWrites", "Outcome" => outcome).increment(1);
}

pub(crate) fn throttled(scope: CapacityScope) {
    counter!("ShardingThrottles", "Scope" => scope.name()).increment(1);
}

pub(crate) fn missed_deadline() {
    counter!("ShardingDeadlineMisses").increment(1);
}

/// Counts a read of the metadata table: the lease of a view had expired, or nearly.
pub(crate) fn lease_refreshed() {
    counter!("ShardingLeaseRefreshes").increment(1);
}

pub(crate) fn page(shards: usize, consumed_capacity: f64) {
    histogram!("ShardingFanOut").record(shards as f64);
    histogram!("ShardingConsumedReadUnits").record(consumed_capacity);
}

/// Counts a change of a key's shards by this instance, and records the new width.
pub(crate) fn scaled_out(to: ShardCount) {
    counter!("ShardingScaleOuts").increment(1);
    histogram!("ShardingWidth").record(f64::from(to.get()));
}

/// Counts a decision that would have grown a key beyond `MAX_SHARDS`.
pub(crate) fn at_max_shards() {
    counter!("ShardingKeysAtMaxShards").increment(1);
}

/// Counts a decision that more shards do not help, because few items are throttled.
pub(crate) fn hot_items() {
    counter!("ShardingKeysWithHotItems").increment(1);
}

/// Records the write units a second that the table would need, if more shards do not help a key; 1
/// if the number is unknown.
pub(crate) fn short_of_partitions(write_units: Option<u64>) {
    histogram!("ShardingShortOfPartitions").record(write_units.unwrap_or(1) as f64);
}

/// Records how full a page of the directory is, as a percentage, once a warning is due.
pub(crate) fn directory_fill(fill: f64) {
    histogram!("ShardingDirectoryFill").record(fill * 100.0);
}

/// Counts an item that another program has stored in the place of an item of the product.
pub(crate) fn foreign_item() {
    counter!("ShardingForeignItems").increment(1);
}

/// Counts a read of a page of the directory that found no complete copy.
pub(crate) fn directory_incomplete() {
    counter!("ShardingDirectoryIncomplete").increment(1);
}
