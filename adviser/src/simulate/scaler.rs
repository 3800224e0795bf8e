//! The shard-scaler, as far as it deals with the main table's partitions: it looks, publishes what it sees, and raises the table's warm
//! throughput within a budget.
//!
//! It follows `functions/shard-scaler`: `warming.rs`, and `warm_throughput.rs`.

use std::time::Duration;

use embedded_dynamodb::{Partitions, WarmRequest};
use sharding::internal::PARTITION_WRITE_UNITS;

/// From the first invocation by a writer to the function's first request, for Lambda has to start it; and from a later one.
const STARTING: Duration = Duration::from_secs(1);
const WAKING: Duration = Duration::from_millis(200);
/// The schedule that every stack has looks so often.
const SCHEDULED: Duration = Duration::from_secs(300);

/// That the table is short of partitions, as an instance reports it for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shortage {
    /// Write units a second that the table would have to be able to serve; `None` where its partitions are not known.
    pub(super) write_units: Option<u64>,
}

/// What has become of the table's shortage.
#[derive(Debug)]
pub(super) struct Scaler {
    /// Write units a second that it may raise the table to; 0 for never.
    budget: u32,
    /// It runs then, for a table that has to be able to serve so much.
    due: Option<(Duration, u64)>,
    next_look: Duration,
    has_started: bool,
}

impl Scaler {
    pub(super) const fn new(budget: u32) -> Self {
        Self { budget, due: None, next_look: SCHEDULED, has_started: false }
    }

    /// A writer has found the table short. It may invoke the shard-scaler only where there is a budget.
    pub(super) fn wake(&mut self, shortage: Shortage, now: Duration) {
        if let (Some(units), None, 1..) = (shortage.write_units, self.due, self.budget) {
            let waking = if std::mem::replace(&mut self.has_started, true) { WAKING } else { STARTING };
            self.due = Some((now + waking, units));
        }
    }

    /// Does what is due. Returns the table's partitions where it looks and no raise is under way.
    pub(super) fn act(&mut self, table: &mut Partitions, now: Duration) -> Option<u32> {
        let needed = self.due.take_if(|(at, _)| now >= *at).map(|(_, units)| units);
        let is_scheduled = now >= self.next_look;
        if is_scheduled {
            self.next_look += SCHEDULED;
        }
        if needed.is_none() && !is_scheduled {
            return None;
        }
        let shown = table.warm_throughput(now);
        if shown.updating_until.is_some() {
            return None;
        }
        let asked = needed.map_or(0, |units| units.min(self.budget.into())) as f64;
        if asked > shown.write_units {
            // What it refuses, the next report asks for again.
            let _ = table.warm(WarmRequest { write_units: Some(asked), read_units: None }, now);
        }
        Some((shown.write_units / PARTITION_WRITE_UNITS as f64) as u32)
    }
}
