//! The counts of a run, from which its outcome follows.

use std::time::Duration;

use sharding::internal::ShardCount;

use super::scaler::Shortage;

/// A key is relieved if a smaller share of its new writes is throttled or waits for an open.
const RELIEVED: f64 = 0.01;
/// The number of consecutive seconds of relief that count as lasting.
const STAYS_RELIEVED: usize = 5;

#[derive(Debug, Default)]
pub(super) struct Tally {
    offered: u64,
    accepted: u64,
    of_second: f64,
    throttled_of_second: f64,
    /// For each second the share of the new writes that was throttled or waited for an open, and
    /// the write width at the end.
    pub(super) by_second: Vec<(f64, u32)>,
    /// The sum over all steps of the share of the running instances without a view.
    pub(super) without_view: f64,
    /// The second at which an instance first reported a shortage of partitions, and the write units
    /// that it reported as enough.
    pub(super) short_after: Option<(f64, Option<u64>)>,
}

impl Tally {
    /// Counts the new writes of a step.
    pub(super) fn offer(&mut self, count: u64) {
        self.offered += count;
        self.of_second += count as f64;
        self.throttled_of_second += count as f64;
    }

    /// Counts accepted writes. `is_at_once` if they are new in this step.
    pub(super) fn accept(&mut self, count: u64, is_at_once: bool) {
        self.accepted += count;
        if is_at_once {
            self.throttled_of_second -= count as f64;
        }
    }

    /// Records a reported shortage of partitions.
    pub(super) fn be_short(&mut self, shortage: Shortage, now: Duration) {
        self.short_after.get_or_insert((now.as_secs_f64(), shortage.write_units));
    }

    /// Ends a second, with this write width at its end.
    pub(super) fn end_second(&mut self, width: ShardCount) {
        let share =
            if self.of_second > 0.0 { self.throttled_of_second / self.of_second } else { 0.0 };
        self.by_second.push((share, width.get()));
        (self.of_second, self.throttled_of_second) = (0.0, 0.0);
    }

    /// Returns the share of the writes that was accepted. Writes that are still pending have not
    /// failed.
    pub(super) fn accepted(&self, pending: u64) -> f64 {
        self.accepted as f64 / (self.offered - pending.min(self.offered)).max(1) as f64
    }

    /// Returns the first second of lasting relief.
    pub(super) fn relieved_after(&self) -> Option<f64> {
        let calm =
            |window: &[(f64, u32)]| window.iter().all(|(throttled, _)| *throttled < RELIEVED);
        self.by_second.windows(STAYS_RELIEVED).position(calm).map(|second| second as f64)
    }
}
