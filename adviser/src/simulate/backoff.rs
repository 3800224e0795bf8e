//! The pauses between the attempts of a throttled request.

use std::time::Duration;

use sharding::internal::{FIRST_PAUSE, LONGEST_PAUSE};

/// Returns the longest pause before the next attempt, after this number of retries. The pause is
/// drawn between zero and it: exponential back-off with full jitter.
pub(super) fn longest_pause(retries: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << retries.min(10)).min(LONGEST_PAUSE)
}
