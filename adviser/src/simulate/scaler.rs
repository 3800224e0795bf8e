//! The shard-scaler's work on the main table's partitions: it reads their number, publishes it, and
//! raises the table's warm throughput within a budget.
//!
//! It follows `warming.rs` and `warm_throughput.rs` of `functions/shard-scaler`.

use std::time::Duration;

use embedded_dynamodb::{Partitions, WarmRequest};
use sharding::internal::PARTITION_WRITE_UNITS;

/// The time from the first invocation by a writer to the function's first request. Lambda has to
/// start the function.
const STARTING: Duration = Duration::from_secs(1);
/// The same time for a later invocation.
const WAKING: Duration = Duration::from_millis(200);
/// The interval of the schedule of every stack.
const SCHEDULED: Duration = Duration::from_secs(300);

/// An instance's report that the table is short of partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shortage {
    /// The warm throughput that the table needs, in write units per second; `None` if its
    /// partitions are unknown.
    pub(super) write_units: Option<u64>,
}

/// The state of the shard-scaler.
#[derive(Debug)]
pub(super) struct Scaler {
    /// The write units per second that it may raise the table to; 0 for never.
    budget: u32,
    /// The time of its next invocation by a writer, and the write units that the table needs.
    due: Option<(Duration, u64)>,
    next_schedule: Duration,
    has_started: bool,
}

impl Scaler {
    pub(super) const fn new(budget: u32) -> Self {
        Self { budget, due: None, next_schedule: SCHEDULED, has_started: false }
    }

    /// A writer reports that the table is short of partitions. It may invoke the shard-scaler only
    /// if there is a budget.
    pub(super) fn wake(&mut self, shortage: Shortage, now: Duration) {
        if let (Some(units), None, 1..) = (shortage.write_units, self.due, self.budget) {
            let waking =
                if std::mem::replace(&mut self.has_started, true) { WAKING } else { STARTING };
            self.due = Some((now + waking, units));
        }
    }

    /// Runs the due invocations. Returns the table's partitions if it reads them and no raise is in
    /// progress.
    pub(super) fn act(&mut self, table: &mut Partitions, now: Duration) -> Option<u32> {
        let needed = self.due.take_if(|(at, _)| now >= *at).map(|(_, units)| units);
        let is_scheduled = now >= self.next_schedule;
        if is_scheduled {
            self.next_schedule += SCHEDULED;
        }
        if needed.is_none() && !is_scheduled {
            return None;
        }
        let shown = table.warm_throughput(now);
        if shown.updating_until.is_some() {
            return None;
        }
        let wanted = needed.map_or(0, |units| units.min(self.budget.into())) as f64;
        if wanted > shown.write_units {
            // If the table refuses the raise, the next report repeats it.
            let _ = table.warm(WarmRequest { write_units: Some(wanted), read_units: None }, now);
        }
        Some((shown.write_units / PARTITION_WRITE_UNITS as f64) as u32)
    }
}
