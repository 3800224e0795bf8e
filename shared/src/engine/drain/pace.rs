//! The share of the capacity that drains may take.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::locked;

/// Write units per second that several drains share, for a table with provisioned capacity.
#[derive(Debug)]
pub struct DrainBudget {
    units_per_second: f64,
    /// When the next units may be taken.
    next: Mutex<Instant>,
}

impl DrainBudget {
    /// This number of units a second, at least one.
    #[must_use]
    pub fn new(units_per_second: f64) -> Self {
        Self { units_per_second: units_per_second.max(1.0), next: Mutex::new(Instant::now()) }
    }

    pub(crate) fn next(&self) -> MutexGuard<'_, Instant> {
        locked(&self.next)
    }

    /// Takes units, and returns when they may be used.
    pub(crate) fn take(&self, units: u64) -> Instant {
        let mut next = self.next();
        let at = (*next).max(Instant::now());
        *next = at + Duration::from_secs_f64(units as f64 / self.units_per_second);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_budget_is_shared_and_what_was_not_used_is_not_saved() {
        let budget = DrainBudget::new(20.0);
        let began = Instant::now();
        let at = |budget: &DrainBudget, units| (budget.take(units) - began).as_millis();
        // A turn comes before its units, not after them.
        assert_eq!([at(&budget, 4), at(&budget, 40), at(&budget, 4)], [0, 200, 2_200]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!([at(&budget, 4), at(&budget, 4)], [60_000, 60_200]);
        let least = DrainBudget::new(0.01);
        assert_eq!(at(&least, 1), 60_000, "a table of five units is drained, too");
    }
}
