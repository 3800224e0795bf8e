//! What a table tells of its work, through the `metrics` facade: whoever installs a recorder receives it, and without one it costs next
//! to nothing. A partition key is never a label: its values have no end.

use metrics::{counter, histogram};

use crate::core::capacity::CapacityScope;
use crate::core::key::ShardCount;
use crate::sharded_table::write::{WriteError, WriteErrorKind, Written};

/// Writes that were carried out. [count]
const WRITES: &str = "Writes";
/// Attempts beyond the first. [count]
const RETRIES: &str = "Retries";
/// Writes that were not, or not certainly, carried out, by `Outcome`. [count]
const FAILED_WRITES: &str = "FailedWrites";
/// Throttled requests, by `Scope`. [count]
const THROTTLES: &str = "Throttles";
/// Requests that ran into their deadline. [count]
const DEADLINE_MISSES: &str = "DeadlineMisses";
/// Reads of the metadata table: a view's lease had run out, or nearly. [count]
const LEASE_REFRESHES: &str = "LeaseRefreshes";
/// Shards that a page asked. [count]
const FAN_OUT: &str = "FanOut";
/// Read units that a page cost. [units]
const CONSUMED_READ_UNITS: &str = "ConsumedReadUnits";
/// Changes of a key's shards that this instance made. [count]
const SCALE_OUTS: &str = "ScaleOuts";
/// The width after such a change. [shards]
const WIDTH: &str = "Width";
/// Decisions that would have grown a key beyond `MAX_SHARDS`. [count]
const KEYS_AT_MAX_SHARDS: &str = "KeysAtMaxShards";

pub(crate) fn write(result: &Result<Written, WriteError>) {
    let (attempts, failure) = match result {
        Ok(written) => {
            counter!(WRITES).increment(1);
            (written.attempts, None)
        }
        Err(error) => (error.attempts, Some(&error.kind)),
    };
    counter!(RETRIES).increment(u64::from(attempts.saturating_sub(1)));
    let (outcome, in_time) = match failure {
        // An answer is no failure.
        None | Some(WriteErrorKind::Exists | WriteErrorKind::IdempotencyKeyReused | WriteErrorKind::AppendOnly) => {
            return;
        }
        Some(WriteErrorKind::Capacity(_)) => ("no-capacity", false),
        Some(WriteErrorKind::Contended) => ("contended", false),
        Some(WriteErrorKind::Unknown(_)) => ("unknown", false),
        Some(WriteErrorKind::Table(_)) => ("failed", true),
    };
    counter!(FAILED_WRITES, "Outcome" => outcome).increment(1);
    if !in_time {
        counter!(DEADLINE_MISSES).increment(1);
    }
}

pub(crate) fn throttled(scope: CapacityScope) {
    counter!(THROTTLES, "Scope" => scope.name()).increment(1);
}

pub(crate) fn missed_deadline() {
    counter!(DEADLINE_MISSES).increment(1);
}

pub(crate) fn lease_refreshed() {
    counter!(LEASE_REFRESHES).increment(1);
}

pub(crate) fn page(shards: usize, consumed_capacity: f64) {
    histogram!(FAN_OUT).record(shards as f64);
    histogram!(CONSUMED_READ_UNITS).record(consumed_capacity);
}

pub(crate) fn scaled_out(to: ShardCount) {
    counter!(SCALE_OUTS).increment(1);
    histogram!(WIDTH).record(f64::from(to.get()));
}

pub(crate) fn at_max_shards() {
    counter!(KEYS_AT_MAX_SHARDS).increment(1);
}
