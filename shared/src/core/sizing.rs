//! The number of shards that a demand needs, on a table's partitions.
//!
//! A write stays on its shard, however often it is repeated. So a shard whose partition is full
//! loses writes even while other partitions have room, and the mean loss over all placements of the
//! shards follows from how many shards share a partition ([`collisions`]).
//!
//! Demand is in partitions: the largest throughput of that many.

use super::collisions::{self, throttled};
use super::key::ShardCount;

/// A key gets room for this multiple of its demand, because a backlog has to drain.
const HEADROOM: f64 = 1.3;
/// Less than this share of a demand is lost if a key has enough shards.
const LOST: f64 = 0.002;
/// A table whose partitions are not known counts as one with this many times the partitions that
/// the demand fills.
const ROOMY: f64 = 4.0;
/// A table should have so many times the partitions on which the most shards would just suffice.
/// Then fewer shards suffice, and a page is read from fewer.
const SPARE_PARTITIONS: f64 = 3.0;
/// More than this many times the partitions that a demand fills hardly help.
const MOST_FOR_A_DEMAND: f64 = 4.0;

/// The shards for a demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizing {
    /// They lose nearly nothing.
    Enough(ShardCount),
    /// No number is enough. More shards than this lose hardly less.
    Short(ShardCount),
}

impl Sizing {
    /// Their number.
    #[must_use]
    pub const fn shards(self) -> ShardCount {
        match self {
            Self::Enough(shards) | Self::Short(shards) => shards,
        }
    }
}

/// The fewest shards for a demand, of at most this many.
#[must_use]
pub(crate) fn size(demand: f64, partitions: Option<u32>, most: ShardCount) -> Sizing {
    let partitions = Some(partitions.unwrap_or_else(|| (demand * ROOMY).ceil() as u32));
    let fewest = |demand: f64, goal: f64| {
        let is_enough = |shards| throttled(demand, shards, partitions) <= goal;
        collisions::fewest(most, is_enough).unwrap_or(most)
    };
    if throttled(demand * HEADROOM, most, partitions) <= LOST {
        return Sizing::Enough(fewest(demand * HEADROOM, LOST));
    }
    // No number of shards makes room: the fewest that lose hardly more than the most would.
    Sizing::Short(fewest(demand, throttled(demand, most, partitions) + LOST))
}

/// The partitions that a table should have for a demand of one key of at most this many shards.
#[must_use]
pub(crate) fn needed_partitions(demand: f64, most: ShardCount) -> u32 {
    let suffices = |partitions| throttled(demand * HEADROOM, most, Some(partitions)) <= LOST;
    let needed = f64::from(collisions::fewest_partitions(suffices)) * SPARE_PARTITIONS;
    needed.min(demand * MOST_FOR_A_DEMAND).ceil() as u32
}
