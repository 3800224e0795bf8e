//! The share of the first attempts that is throttled, for a number of shards on a number of
//! partitions.
//!
//! Shards are hashed onto partitions, like balls into bins. Two shards on one partition share its
//! units. For one write, the number of other shards on its partition is binomial. So the
//! expectation over all placements is a sum and needs no draws: the mean of what a partition
//! refuses of the demand of 1 + Binomial(other shards, 1 / partitions) shards. The demand is a flow,
//! of which a partition refuses what exceeds its rate. Large writes that coincide within a second
//! are not counted.
//!
//! It is an expectation: a single key may be luckier or unluckier. It counts first attempts in the
//! long run, after partitions have spent their saved burst capacity, and without retries, which
//! compete with first attempts while an overload lasts (docs/adr/0004).

use serde::Serialize;
use sharding::PARTITION_WRITE_UNITS;
use sharding::internal::policy::collisions::binomial;

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
pub(super) fn throttled(demand: &Demand, shards: u32, partitions: u32) -> f64 {
    let per_shard = demand.units_per_shard(shards);
    let others = u64::from(demand.keys) * u64::from(shards.max(1)) - 1;
    binomial(others, 1.0 / f64::from(partitions.max(1)))
        .into_iter()
        .map(|(count, probability)| probability * refused((count + 1) as f64 * per_shard))
        .sum()
}

/// The share of its demand that a partition refuses.
fn refused(units_per_second: f64) -> f64 {
    (1.0 - PARTITION_WRITE_UNITS as f64 / units_per_second).max(0.0)
}

/// The fewest shards with which a negligible share is throttled; `None` if even the most shards are
/// not enough.
///
/// More shards never throttle more: smaller parts of the same demand spread more evenly, and the
/// units that a partition refuses are convex in its demand.
pub(super) fn fewest_shards(demand: &Demand, partitions: u32) -> Option<u32> {
    let numbers: Vec<u32> = (1..=MOST_SHARDS).collect();
    let too_few =
        numbers.partition_point(|shards| throttled(demand, *shards, partitions) >= NEGLIGIBLE);
    numbers.get(too_few).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn one_shard_is_accepted_up_to_its_partitions_rate() {
        for (rate, expected) in [(300, 0.0), (5_000, 0.8), (20_000, 0.95)] {
            let found = throttled(&Demand::new(rate, 100, 1), 1, 64);
            assert!((found - expected).abs() < 1e-6, "{rate}: {found}");
        }
    }

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
        fn it_is_a_part_and_falls_with_shards_and_with_partitions(
            rate in 1u32..60_000,
            keys in 1u32..5,
            shards in 1u32..200,
            more in 1u32..100,
            partitions in 1u32..300,
        ) {
            let demand = Demand::new(rate, 1_024, keys);
            let found = throttled(&demand, shards, partitions);
            prop_assert!((0.0..=1.0).contains(&found));
            prop_assert!(throttled(&demand, shards + more, partitions) <= found + 1e-6);
            prop_assert!(throttled(&demand, shards, partitions + more) <= found + 1e-6);
        }

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
