//! The pace of a drain: its waits, and its share of the capacity.

use std::time::Duration;

use crate::protocol::view::{LONGEST_READ, SIGNATURE_VALIDITY};

/// The largest difference between the clocks of two actors. Waits are longer by this margin.
const CLOCK_MARGIN: Duration = Duration::from_secs(60);

/// The pace and the waits of a drain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DrainPace {
    /// How long a request may be applied after it was sent: the validity of a signature, and a
    /// margin for the clocks of two actors. Set a lower value only if requests cannot be in flight
    /// for so long, as with an embedded engine.
    pub wait_for_requests: Duration,
    /// The longest time for a read, and a margin.
    pub wait_for_reads: Duration,
    /// Write units a second that a drain may take of each shard. A move takes one unit for each KB
    /// to copy an item, and one to delete the original.
    pub units_per_second: u32,
}

impl Default for DrainPace {
    fn default() -> Self {
        Self {
            wait_for_requests: SIGNATURE_VALIDITY + CLOCK_MARGIN,
            wait_for_reads: LONGEST_READ + CLOCK_MARGIN,
            units_per_second: 300,
        }
    }
}
