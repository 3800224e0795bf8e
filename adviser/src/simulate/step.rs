//! Simulated time, which passes in steps.

use std::time::Duration;

/// The duration of a step.
pub(super) const STEP: Duration = Duration::from_millis(10);
pub(super) const STEPS_A_SECOND: u64 = 100;
