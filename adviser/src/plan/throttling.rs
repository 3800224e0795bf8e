//! The share of the first attempts that is throttled, for a number of shards on a number of
//! partitions.
//!
//! Shards are hashed onto partitions, like balls into bins. Two shards on one partition share its
//! units. For one write, the number of other shards on its partition is binomial. So the
//! expectation over all placements is a sum and needs no draws: the mean of [`Admission::refused`]
//! over the demand of 1 + Binomial(other shards, 1 / partitions) shards.
//!
//! It is an expectation: a single key may be luckier or unluckier. It counts first attempts in the
//! long run, after partitions have spent their saved burst capacity, and without retries, which
//! compete with first attempts while an overload lasts (docs/adr/0004).

use serde::Serialize;
use sharding::internal::collisions::binomial;

use super::admission::Admission;
use super::demand::Demand;

/// [`sharding::internal::ScalingPolicy`] does not grow a key of which a smaller share is throttled.
pub(crate) const NEGLIGIBLE: f64 = 0.02;
/// The most shards that a deployment allows a key (`MaxShards` of template.yaml).
pub(super) const MOST_SHARDS: u32 = 1_000;
/// The most partitions of the search.
const MOST_PARTITIONS: u32 = 1_000_000;

/// The throttled share for one number of shards.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ThrottlingRow {
    /// Shards of each key.
    pub shards: u32,
    /// Write units per second of each shard.
    pub units_per_shard: f64,
    /// The expected share of the first attempts that is throttled on the table's partitions.
    pub throttled: f64,
    /// The same on the four partitions of a new on-demand table.
    pub throttled_on_a_new_table: f64,
}

/// The expected share of the first attempts that is throttled, if each key has this many shards.
pub(super) fn throttled(
    demand: &Demand,
    admission: &Admission,
    shards: u32,
    partitions: u32,
) -> f64 {
    let per_shard = demand.units_per_shard(shards);
    let others = u64::from(demand.keys) * u64::from(shards.max(1)) - 1;
    binomial(others, 1.0 / f64::from(partitions.max(1)))
        .into_iter()
        .map(|(count, probability)| probability * admission.refused((count + 1) as f64 * per_shard))
        .sum()
}

/// The fewest shards with which a negligible share is throttled; `None` if even the most shards are
/// not enough.
///
/// More shards never throttle more: smaller parts of the same demand spread more evenly, and the
/// units that a partition refuses are convex in its demand.
pub(super) fn fewest_shards(
    demand: &Demand,
    admission: &Admission,
    partitions: u32,
) -> Option<u32> {
    fewest(MOST_SHARDS, |shards| throttled(demand, admission, shards, partitions) < NEGLIGIBLE)
}

/// The fewest partitions on which this number of shards is enough.
pub(super) fn fewest_partitions(
    demand: &Demand,
    admission: &Admission,
    shards: u32,
) -> Option<u32> {
    fewest(MOST_PARTITIONS, |partitions| {
        throttled(demand, admission, shards, partitions) < NEGLIGIBLE
    })
}

/// The least number up to `most` that suffices, if every number above a sufficient one suffices.
fn fewest(most: u32, suffices: impl Fn(u32) -> bool) -> Option<u32> {
    if !suffices(most) {
        return None;
    }
    let (mut too_few, mut enough) = (0, most);
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if suffices(middle) {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    Some(enough)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn small() -> Admission {
        Admission::new(1_000.0, 1)
    }

    #[test]
    fn one_shard_is_accepted_up_to_its_partitions_rate() {
        for (rate, expected) in [(300, 0.0), (5_000, 0.8), (20_000, 0.95)] {
            let found = throttled(&Demand::new(rate, 100, 1), &small(), 1, 64);
            assert!((found - expected).abs() < 1e-6, "{rate}: {found}");
        }
    }

    #[test]
    fn two_full_shards_on_two_partitions_share_one_half_of_the_time() {
        // If they share one, half of the demand is refused.
        let found = throttled(&Demand::new(2_000, 1_024, 1), &small(), 2, 2);
        assert!((found - 0.25).abs() < 0.001, "{found}");
    }

    #[test]
    fn keys_of_one_shard_share_partitions_like_the_shards_of_one_key() {
        let (keys, shards) = (Demand::new(6_000, 1_024, 8), Demand::new(6_000, 1_024, 1));
        let (of_keys, of_shards) =
            (throttled(&keys, &small(), 1, 10), throttled(&shards, &small(), 8, 10));
        assert!((of_keys - of_shards).abs() < 1e-12 && of_keys > 0.05, "{of_keys} {of_shards}");
    }

    #[test]
    fn on_a_table_short_of_partitions_no_number_of_shards_suffices() {
        let demand = Demand::new(5_000, 1_024, 1);
        assert_eq!(fewest_shards(&demand, &small(), 4), None);
        let partitions = fewest_partitions(&demand, &small(), 20);
        assert!(partitions.is_some_and(|partitions| partitions > 5), "{partitions:?}");
        assert_eq!(fewest_partitions(&demand, &small(), 2), None);
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
            let admission = small();
            let found = throttled(&demand, &admission, shards, partitions);
            prop_assert!((0.0..=1.0).contains(&found));
            prop_assert!(throttled(&demand, &admission, shards + more, partitions) <= found + 1e-6);
            prop_assert!(throttled(&demand, &admission, shards, partitions + more) <= found + 1e-6);
        }

        #[test]
        fn the_fewest_shards_suffice_and_one_less_does_not(
            rate in 1u32..60_000, partitions in 1u32..300,
        ) {
            let demand = Demand::new(rate, 1_024, 1);
            let admission = small();
            if let Some(shards) = fewest_shards(&demand, &admission, partitions) {
                prop_assert!(throttled(&demand, &admission, shards, partitions) < NEGLIGIBLE);
                prop_assert!(
                    shards == 1
                        || throttled(&demand, &admission, shards - 1, partitions) >= NEGLIGIBLE
                );
            }
        }
    }
}
