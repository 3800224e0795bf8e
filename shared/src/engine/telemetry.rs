//! The metrics that several use cases count, through the `metrics` facade. They need a recorder;
//! without one they cost next to nothing. Names begin with `Sharding`, because a service has metrics
//! of its own. `docs/operations.md` describes each. A partition key is never a label, because the
//! number of its values is unbounded.

use metrics::counter;

use crate::engine::error::WriteErrorKind;
use crate::policy::capacity::CapacityScope;

/// Counts a write: its attempts beyond the first, and whether it succeeded in time.
pub(crate) fn write(attempts: u32, failure: Option<&WriteErrorKind>) {
    retried(attempts);
    let outcome = match failure {
        None => return written(),
        // A defined result is not a failure.
        Some(
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
        Some(WriteErrorKind::Table(_)) => return failed("failed"),
        Some(WriteErrorKind::Capacity { .. } | WriteErrorKind::Deadline(_)) => "no-capacity",
        Some(WriteErrorKind::Contended) => "contended",
        Some(WriteErrorKind::Unknown(_)) => "unknown",
    };
    failed(outcome);
    missed_deadline();
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
