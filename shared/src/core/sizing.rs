//! The number of shards that relieve a demand, if the table's partitions are known.
//!
//! The expectation of [`collisions`] averages over all placements, but one key has one placement:
//! at a width that is enough on average, every third key may have one partition with a shard too
//! many. So a width is judged by the share of all placements that it relieves. The placements are
//! drawn with a fixed seed, so the same question has the same answer.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::collisions;
use super::key::ShardCount;

/// The number of placements that are drawn for each width...
const PLACEMENTS: u32 = 192;
/// ...and fewer for many shards, so that at most this number of shards is drawn: with more shards,
/// luck matters less.
const DRAWN_SHARDS: u32 = 40_000;
/// The least number of placements.
const FEWEST_PLACEMENTS: u32 = 8;
/// Any number works.
const SEED: u64 = 0x51_2A_12_D5;
/// A partition is filled at most to leave this much room, because the demand is an estimate,
/// arrives unevenly, and a backlog must drain.
const ROOM: f64 = 1.05;
/// A placement relieves a demand if it rejects less than this share of it.
const RELIEVED: f64 = 0.01;
/// A width with fewer shards may relieve this much less of the placements than the maximum.
const NEARLY_AS_MANY: f64 = 0.15;
/// If the maximum number of shards relieves fewer placements than this, the table is short of
/// partitions.
const HARDLY_ANY: f64 = 0.2;
/// If the table is short, repetitions make at least this number of attempts of one write.
const REPEATED: f64 = 4.0;
/// If more shards accept at most this share of the demand more, they are not worth their reads.
const USELESS: f64 = 0.0001;

/// The width for a demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sizing {
    /// The fewest shards that relieve nearly as many placements as the maximum would.
    Relieves(ShardCount),
    /// No width relieves the demand. More shards than this hardly accept more of it.
    Helps(ShardCount),
}

/// The width for a demand, in partitions, on a table with this number of partitions, if a key has
/// at most this number of shards.
///
/// A partition takes a whole number of shards, so the only candidates are the widths at which it
/// takes one more than before.
#[must_use]
pub(crate) fn size(demand: f64, partitions: u32, most: ShardCount) -> Sizing {
    let demand = demand * ROOM;
    let enough = likelihood(demand, most, partitions) - NEARLY_AS_MANY;
    if enough + NEARLY_AS_MANY < HARDLY_ANY {
        return Sizing::Helps(useful(demand, partitions, most));
    }
    let of = |together: u32| {
        let shards = (f64::from(together) * demand).ceil().min(most.get().into()) as u32;
        ShardCount::new(shards).unwrap_or(ShardCount::ONE)
    };
    // The largest number of shards of one partition, at the maximum number of shards.
    let last =
        ShardCount::new((f64::from(most.get()) / demand).ceil() as u32).unwrap_or(ShardCount::ONE);
    let fewest = collisions::fewest(last, |together| {
        likelihood(demand, of(together.get()), partitions) >= enough
    });
    Sizing::Relieves(fewest.map_or(most, |together| of(together.get())))
}

/// The fewest shards that finally accept nearly as much of a demand as the maximum would. Rejected
/// writes are repeated, and use the partitions with room left by first attempts.
#[must_use]
pub(crate) fn useful(demand: f64, partitions: u32, most: ShardCount) -> ShardCount {
    let in_the_end = |shards| collisions::throttled(demand * REPEATED, shards, Some(partitions));
    let best = in_the_end(most);
    collisions::fewest(most, |shards| in_the_end(shards) <= best + USELESS).unwrap_or(most)
}

/// The width at which the fullest partition of an unlucky key is relieved, if this share of a
/// demand is rejected with this number of shards: as if one partition rejected all of it.
#[must_use]
pub(crate) fn unlucky(demand: f64, rejected: f64, shards: ShardCount) -> f64 {
    f64::from(shards.get()) * (1.0 + rejected * demand)
}

/// The share of all placements of this number of shards that relieve a demand.
fn likelihood(demand: f64, shards: ShardCount, partitions: u32) -> f64 {
    let of_shard = demand / f64::from(shards.get());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let placements = (DRAWN_SHARDS / shards.get()).clamp(FEWEST_PLACEMENTS, PLACEMENTS);
    let mut relieved = 0;
    for _ in 0..placements {
        let mut places: Vec<u32> =
            (0..shards.get()).map(|_| rng.random_range(0..partitions.max(1))).collect();
        places.sort_unstable();
        let together = places.chunk_by(|one, other| one == other);
        let rejected: f64 =
            together.map(|shards| (shards.len() as f64 * of_shard - 1.0).max(0.0)).sum();
        relieved += u32::from(rejected < RELIEVED * demand);
    }
    f64::from(relieved) / f64::from(placements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::tests::count;
    use proptest::prelude::*;

    #[test]
    fn a_width_relieves_nearly_as_many_keys_as_the_most() {
        let rows = [
            // Demand and partitions; the approximate number of shards.
            (2.0, 4, 8..=15),
            (2.0, 1_000, 3..=4),
            (5.0, 1_000, 6..=8),
            (5.0, 64, 10..=20),
            (20.0, 1_000, 36..=64),
            (50.0, 1_000, 95..=155),
        ];
        for (demand, partitions, expected) in rows {
            let Sizing::Relieves(shards) = size(demand, partitions, count(200)) else {
                panic!("{demand} on {partitions}")
            };
            assert!(expected.contains(&shards.get()), "{demand} on {partitions}: {shards}");
        }
    }

    #[test]
    fn a_demand_that_no_width_relieves_gets_what_helps() {
        for (demand, partitions) in [(5.0, 4), (20.0, 4), (20.0, 20), (150.0, 100)] {
            let Sizing::Helps(shards) = size(demand, partitions, count(200)) else {
                panic!("{demand} on {partitions}")
            };
            assert!(
                (partitions.min(100)..=partitions * 9).contains(&shards.get()),
                "{demand} on {partitions}: {shards}"
            );
        }
    }

    #[test]
    fn an_unlucky_key_gets_what_its_fullest_partition_lacks() {
        // Of ten shards with a fifth of a partition's demand each, seven are on one partition: two
        // fifths too many.
        assert!((unlucky(2.0, 0.2, count(10)) - 14.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn a_width_is_one_that_a_key_may_have(
            demand in 0.01f64..500.0, partitions in 0u32..5_000, most in 1u32..250,
        ) {
            let (Sizing::Relieves(shards) | Sizing::Helps(shards)) =
                size(demand, partitions, count(most));
            prop_assert!(shards.get() <= most);
        }
    }
}
