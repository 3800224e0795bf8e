//! The share of the first attempts that is throttled, for a number of shards on a number of
//! partitions: the policy's own formula ([`collisions`]).
//!
//! It is an expectation over all placements: a single key may be luckier or unluckier. The demand
//! is a flow, of which a partition refuses what exceeds its rate. Large writes that coincide within
//! a second are not counted. First attempts are counted in the long run, after partitions have
//! spent their saved burst capacity, and without retries, which compete with first attempts while
//! an overload lasts (docs/adr/0004).

use serde::Serialize;
use sharding::internal::policy::collisions;
use sharding::{PARTITION_WRITE_UNITS, ShardCount};

use super::demand::Demand;

/// A plan calls shards enough if a smaller share is throttled. The policy itself is stricter.
pub(crate) const NEGLIGIBLE: f64 = 0.02;
/// The most shards that a deployment allows a key (`MaxShards` of template.yaml).
pub(super) const MOST_SHARDS: u32 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct ThrottlingRow {
    pub(crate) shards: u32,
    pub(crate) units_per_shard: f64,
    /// The expected share of the first attempts that is throttled on the table's partitions.
    pub(crate) throttled: f64,
    /// The same on the four partitions of a new on-demand table.
    pub(crate) throttled_on_a_new_table: f64,
}

/// The expected share of the first attempts that is throttled, if each key has this many shards.
///
/// Several keys share partitions as the shards of one key do, so they count as one key with the
/// shards of all.
pub(super) fn throttled(demand: &Demand, shards: u32, partitions: u32) -> f64 {
    let shards = ShardCount::new(demand.keys.saturating_mul(shards)).unwrap_or(ShardCount::ONE);
    let filled = demand.write_units_per_second / PARTITION_WRITE_UNITS as f64;
    collisions::throttled(filled, shards, Some(partitions))
}

/// The fewest shards with which a negligible share is throttled; `None` if even the most shards are
/// not enough. More shards never throttle more: smaller parts of a demand spread more evenly.
pub(super) fn fewest_shards(demand: &Demand, partitions: u32) -> Option<u32> {
    let is_enough = |shards: ShardCount| throttled(demand, shards.get(), partitions) < NEGLIGIBLE;
    collisions::fewest(ShardCount::new(MOST_SHARDS)?, is_enough).map(ShardCount::get)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn it_is_the_mean_over_drawn_placements() {
        let mut rng = StdRng::seed_from_u64(1);
        for (rate, keys, shards, partitions) in
            [(5_000, 1, 5, 8), (20_000, 1, 24, 64), (3_000, 1, 12, 4), (9_000, 3, 4, 16)]
        {
            let demand = Demand::new(rate, 1_024, keys);
            let mut drawn = || {
                let mut loads = vec![0.0; partitions as usize];
                for _ in 0..keys * shards {
                    loads[rng.random_range(0..partitions as usize)] +=
                        demand.units_per_shard(shards);
                }
                let over = loads.iter().map(|load| f64::max(load - 1_000.0, 0.0));
                over.sum::<f64>() / demand.write_units_per_second
            };
            let mean = (0..10_000).map(|_| drawn()).sum::<f64>() / 10_000.0;
            let found = throttled(&demand, shards, partitions);
            assert!((found / mean - 1.0).abs() < 0.03, "{rate} {shards}: {found}, drawn {mean}");
        }
    }

    proptest! {
        #[test]
        fn the_fewest_shards_suffice_and_one_less_does_not(
            rate in 1u32..60_000, partitions in 1u32..300,
        ) {
            let demand = Demand::new(rate, 1_024, 1);
            let fewest = fewest_shards(&demand, partitions);
            prop_assert!(fewest.is_some() || rate >= partitions * 500);
            if let Some(shards) = fewest {
                prop_assert!(throttled(&demand, shards, partitions) < NEGLIGIBLE);
                let fewer = (shards > 1).then(|| throttled(&demand, shards - 1, partitions));
                prop_assert!(fewer.is_none_or(|throttled| throttled >= NEGLIGIBLE));
            }
        }
    }
}
