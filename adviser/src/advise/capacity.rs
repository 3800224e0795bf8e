//! The shards that a rate needs.

use sharding::internal::policy::rules::ScalingPolicy;
use sharding::{PARTITION_WRITE_UNITS, ShardCount};

use crate::plan::{NEGLIGIBLE, kept_partitions};

/// The most shards of the calculation. It is above the limit of a deployment, so that the report
/// names the number that a key needs.
const MOST_SHARDS: u32 = 1_000_000;

/// The fewest shards for a rate, if it is spread evenly and each shard has its own partition.
pub(super) fn fewest_shards(units_a_second: u64) -> u64 {
    units_a_second.div_ceil(PARTITION_WRITE_UNITS).max(1)
}

/// The shards that the product's policy gives a key with this rate, on a table that has taken the
/// rate before. The policy knows the number of partitions, and gives fewer shards on more
/// partitions.
pub(super) fn shards_by_policy(units_a_second: u64) -> u64 {
    let units = units_a_second as f64;
    if units * (1.0 - NEGLIGIBLE) < PARTITION_WRITE_UNITS as f64 {
        return 1;
    }
    let max_shards = ShardCount::new(MOST_SHARDS).unwrap_or(ShardCount::ONE);
    let policy = ScalingPolicy { max_shards, ..ScalingPolicy::default() };
    policy.shards_for(units, Some(kept_partitions(units))).shards().get().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_policy_gives_more_than_the_fewest_as_shards_may_meet() {
        let rows = [
            // A rate that is 2 % too high is hardly throttled.
            (1_000, 1..=1),
            (1_020, 1..=1),
            (1_600, 6..=30),
            (20_300, 150..=900),
        ];
        for (rate, shards) in rows {
            let found = shards_by_policy(rate);
            assert!(shards.contains(&found), "{rate}: {found}");
        }
        assert_eq!(fewest_shards(1_001), 2);
    }

    proptest! {
        #[test]
        fn the_policy_gives_enough(rate in 1_021u64..10_000_000) {
            prop_assert!(shards_by_policy(rate) >= fewest_shards(rate));
        }
    }
}
