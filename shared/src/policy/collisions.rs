//! The demand that a key's shards accept, on a table with a given number of partitions.
//!
//! Shards are hashed onto partitions, like balls into bins. Shards on the same partition share its
//! capacity. From the view of one write, the number of other shards on its partition is binomial.
//! So the expectation over all placements is a sum and needs no random draws. It is an expectation:
//! a single key may do better or worse.
//!
//! Demand is given in partitions: the largest throughput of that many partitions.

use crate::values::key::ShardCount;

/// The share of a demand that is throttled with this number of shards and of partitions. Without a
/// number of partitions, each shard has its own.
#[must_use]
pub fn throttled(demand: f64, shards: ShardCount, partitions: Option<u32>) -> f64 {
    let of_shard = demand / f64::from(shards.get());
    let refused = |together: f64| (1.0 - 1.0 / (together * of_shard)).max(0.0);
    let Some(partitions) = partitions else { return refused(1.0) };
    let others = binomial(u64::from(shards.get()) - 1, 1.0 / f64::from(partitions.max(1)));
    others.into_iter().map(|(others, likelihood)| likelihood * refused(others as f64 + 1.0)).sum()
}

/// The demand of which this share is throttled, 0 for none. This is the inverse of [`throttled`].
#[must_use]
pub(crate) fn demand(throttled_part: f64, shards: ShardCount, partitions: Option<u32>) -> f64 {
    if throttled_part <= 0.0 {
        return 0.0;
    }
    // At least all shards are on one full partition, and at most each has one of its own.
    let accepted_part = (1.0 - throttled_part).max(f64::EPSILON);
    let (mut low, mut high) = (1.0, f64::from(shards.get()) / accepted_part);
    loop {
        let middle = f64::sqrt(low * high);
        if middle <= low || middle >= high {
            return high;
        }
        if throttled(middle, shards, partitions) < throttled_part {
            low = middle
        } else {
            high = middle
        }
    }
}

/// The smallest number of shards, up to a maximum, that satisfies a test. All larger numbers must
/// satisfy it, too. `None` if even the maximum does not.
#[must_use]
pub fn fewest(most: ShardCount, suffices: impl Fn(ShardCount) -> bool) -> Option<ShardCount> {
    let at = |shards| ShardCount::new(shards).unwrap_or(ShardCount::ONE);
    if !suffices(most) {
        return None;
    }
    let (mut too_few, mut enough) = (0, most.get());
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if suffices(at(middle)) { enough = middle } else { too_few = middle }
    }
    Some(at(enough))
}

/// The distribution of balls in a set of bins, if each ball falls there with this chance: all
/// counts that a sum of them can show, with their probabilities, which add up to 1.
///
/// The loop starts at the most likely count and multiplies by the ratio of neighbours in both
/// directions, so nothing under- or overflows.
#[must_use]
pub fn binomial(trials: u64, chance: f64) -> Vec<(u64, f64)> {
    if trials == 0 || chance <= 0.0 {
        return vec![(0, 1.0)];
    }
    if chance >= 1.0 {
        return vec![(trials, 1.0)];
    }
    let odds = chance / (1.0 - chance);
    let mode = (((trials + 1) as f64 * chance) as u64).min(trials);
    let mut counts = vec![(mode, 1.0)];
    let mut likelihood = 1.0;
    for count in (0..mode).rev() {
        likelihood *= (count + 1) as f64 / ((trials - count) as f64 * odds);
        if likelihood < f64::EPSILON {
            break;
        }
        counts.push((count, likelihood));
    }
    likelihood = 1.0;
    for count in mode..trials {
        likelihood *= (trials - count) as f64 * odds / (count + 1) as f64;
        if likelihood < f64::EPSILON {
            break;
        }
        counts.push((count + 1, likelihood));
    }
    let whole: f64 = counts.iter().map(|(_, likelihood)| likelihood).sum();
    for (_, likelihood) in &mut counts {
        *likelihood /= whole;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::count;
    use proptest::prelude::*;

    #[test]
    fn shards_that_meet_share_a_partition() {
        let rows = [
            (5.0, 1, None, 0.8),
            (5.0, 5, None, 0.0),
            (5.0, 1, Some(64), 0.8),
            // Two full shards on two partitions collide half of the time, and then half of the
            // demand is rejected.
            (2.0, 2, Some(2), 0.25),
            (8.0, 200, Some(4), 0.5),
        ];
        for (demand, shards, partitions, expected) in rows {
            let found = throttled(demand, count(shards), partitions);
            assert!((found - expected).abs() < 1e-3, "{demand} {shards} {partitions:?}: {found}");
        }
    }

    #[test]
    fn the_fewest_shards_that_suffice_are_found() {
        assert_eq!(fewest(count(200), |shards| shards.get() > 9), Some(count(10)));
        assert_eq!(fewest(count(200), |_| false), None);
    }

    proptest! {
        #[test]
        fn a_binomial_has_its_mean_and_variance(trials in 0u64..20_000, chance in 0.0f64..=1.0) {
            let counts = binomial(trials, chance);
            let mean: f64 = counts.iter().map(|(count, p)| *count as f64 * p).sum();
            let variance: f64 =
                counts.iter().map(|(count, p)| (*count as f64 - mean).powi(2) * p).sum();
            let n = trials as f64;
            prop_assert!((mean - n * chance).abs() < 1e-6 * (1.0 + n));
            prop_assert!((variance - n * chance * (1.0 - chance)).abs() < 1e-6 * (1.0 + n));
        }

        #[test]
        fn more_shards_and_more_partitions_never_throttle_more(
            demand in 0.1f64..100.0,
            shards in 1u32..200,
            more in 1u32..100,
            partitions in 1u32..2_000,
        ) {
            let found = throttled(demand, count(shards), Some(partitions));
            prop_assert!((0.0..=1.0).contains(&found));
            prop_assert!(throttled(demand, count(shards + more), Some(partitions)) <= found + 1e-6);
            prop_assert!(throttled(demand, count(shards), Some(partitions + more)) <= found + 1e-6);
            prop_assert!(throttled(demand, count(shards), None) <= found + 1e-6);
        }

        #[test]
        fn a_demand_is_found_again(
            wanted in 0.1f64..1_000.0, shards in 1u32..200, partitions in 1u32..2_000,
        ) {
            for partitions in [Some(partitions), None] {
                let part = throttled(wanted, count(shards), partitions);
                if part > 0.001 {
                    let found = super::demand(part, count(shards), partitions);
                    prop_assert!((found / wanted - 1.0).abs() < 0.001, "{found}");
                }
            }
        }
    }
}
