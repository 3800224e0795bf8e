//! The errors of a plan.

use super::launch_time::LaunchTime;
use super::prices::PricesError;
use crate::advise::rfc3339;

/// No plan can be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The price file is invalid. Repair it.
    #[error(transparent)]
    Prices(#[from] PricesError),
    /// The launch is in the past. Name a later time.
    #[error("--launch {launch} is past: it is {now}, and a later date or date-time is allowed")]
    Past {
        /// The time of the launch, in RFC 3339.
        launch: String,
        /// The time of the plan.
        now: String,
    },
}

impl PlanError {
    pub(super) fn past(launch: LaunchTime, now_seconds: u64) -> Self {
        Self::Past {
            launch: launch.to_string(),
            now: rfc3339(i64::try_from(now_seconds).unwrap_or(i64::MAX)),
        }
    }
}
