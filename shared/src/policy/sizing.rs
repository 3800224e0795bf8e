//! The number of shards that a demand needs, on a table's partitions.
//!
//! A write stays on its shard, however often it is repeated. So a shard whose partition is full
//! loses writes even while other partitions have room, and the mean loss over all placements of the
//! shards follows from how many shards share a partition ([`collisions`]).
//!
//! Demand is in partitions: the largest throughput of that many.

use super::collisions::{self, throttled};
use crate::values::key::ShardCount;

/// A key gets room for this multiple of its demand, because a backlog has to drain.
pub(super) const HEADROOM: f64 = 1.4;
/// Other keys may fill this part of a partition: a key that fills less of one does not grow. A shard
/// leaves as much of its own, so that the backlog of the key's first shard drains.
pub(super) const SHARE_OF_OTHERS: f64 = 0.4;
/// Less than this share of a demand is lost if a key has enough shards.
const MAX_LOST_SHARE: f64 = 0.004;
/// A table should have this many times the partitions that a demand fills, so that few shards meet
/// on one. A table whose partitions are not known counts as one that does.
const PARTITION_HEADROOM: f64 = 4.0;
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
    if demand <= 1.0 {
        return Sizing::Enough(ShardCount::ONE);
    }
    let partitions = Some(partitions.unwrap_or_else(|| needed_partitions(demand)));
    let fewest = |demand: f64, goal: f64| {
        let is_enough = |shards| throttled(demand, shards, partitions) <= goal;
        collisions::fewest(most, is_enough).unwrap_or(most)
    };
    if throttled(demand * HEADROOM, most, partitions) <= MAX_LOST_SHARE {
        let roomy = ShardCount::new((demand / (1.0 - SHARE_OF_OTHERS)).ceil() as u32);
        let enough = fewest(demand * HEADROOM, MAX_LOST_SHARE);
        return Sizing::Enough(roomy.map_or(enough, |roomy| roomy.min(most).max(enough)));
    }
    // No number of shards makes room: the fewest that lose hardly more than the most would.
    let useful =
        |demand: f64| fewest(demand, throttled(demand, most, partitions) + MAX_LOST_SHARE / 2.0);
    Sizing::Short(useful(demand).max(useful(demand * HEADROOM)))
}

/// The share of a demand that a growth saves.
#[must_use]
pub(crate) fn gain(
    demand: f64,
    partitions: Option<u32>,
    (from, to): (ShardCount, ShardCount),
) -> f64 {
    let partitions = Some(partitions.unwrap_or_else(|| needed_partitions(demand)));
    throttled(demand, from, partitions) - throttled(demand, to, partitions)
}

/// The partitions that a table should have for a demand of one key.
#[must_use]
pub(crate) fn needed_partitions(demand: f64) -> u32 {
    (demand * PARTITION_HEADROOM).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::count;
    use proptest::prelude::*;

    #[test]
    fn a_demand_gets_the_fewest_shards_that_lose_hardly_any_of_it() {
        let rows = [
            // Demand, partitions, and about the shards.
            (0.7, Some(4), 1..=1),
            (2.0, Some(1_000), 4..=4),
            (5.0, Some(1_000), 7..=10),
            (5.0, Some(64), 15..=25),
            (20.0, Some(1_000), 45..=70),
            (20.0, Some(200), 60..=120),
            (5.0, None, 12..=60),
        ];
        for (demand, partitions, expected) in rows {
            let sizing = size(demand, partitions, count(200));
            let is_expected =
                matches!(sizing, Sizing::Enough(shards) if expected.contains(&shards.get()));
            assert!(is_expected, "{demand} on {partitions:?}: {sizing:?}");
        }
    }

    #[test]
    fn a_short_table_gets_the_shards_that_still_help() {
        for (demand, partitions) in [(5.0, 4), (20.0, 4), (20.0, 20)] {
            let Sizing::Short(shards) = size(demand, Some(partitions), count(200)) else {
                panic!("{demand} on {partitions}")
            };
            let best = throttled(demand, count(200), Some(partitions));
            let lost = throttled(demand, shards, Some(partitions));
            assert!(lost <= best + MAX_LOST_SHARE / 2.0, "{demand} on {partitions}: {shards}");
            let needed = needed_partitions(demand);
            assert!(
                matches!(size(demand, Some(needed), count(200)), Sizing::Enough(_)),
                "{demand}: {needed} partitions are enough"
            );
        }
    }

    proptest! {
        #[test]
        fn shards_are_within_the_limit_and_needs_are_positive(
            demand in 0.01f64..500.0, partitions in 0u32..5_000, most in 1u32..250,
        ) {
            let sizing = size(demand, Some(partitions), count(most));
            prop_assert!(sizing.shards().get() <= most);
            prop_assert!(needed_partitions(demand) >= 1);
        }
    }
}
