//! The share of the first attempts that is throttled, for a number of shards on a number of
//! partitions, by the policy's own formula ([`collisions`]), and the number of shards that the
//! policy gives a key.
//!
//! The share is an expectation over all placements: a single key may be luckier or unluckier. The
//! demand is a flow, of which a partition refuses what exceeds its rate. Large writes that coincide
//! within a second are not counted. First attempts are counted in the long run, after partitions
//! have spent their saved burst capacity, and without retries, which compete with first attempts
//! while an overload lasts (docs/adr/0004).

use sharding::internal::policy::{collisions, rules::ScalingPolicy, sizing::Sizing};
use sharding::{PARTITION_WRITE_UNITS, ShardCount};

use super::demand::{Demand, MAX_PARTITIONS, PARTITION, kept_partitions};

/// A plan calls shards enough if a smaller share is throttled. The policy itself is stricter.
pub(super) const NEGLIGIBLE: f64 = 0.02;
/// The most shards that a deployment allows a key (`MaxShards` of template.yaml).
pub(super) const MAX_SHARDS: u32 = 1_000;
/// Above the limit of a deployment, so that a report names the number that a key needs.
const UNLIMITED: u32 = 1_000_000;
/// The compared numbers of partitions, as multiples of those of a table that has served the demand
/// before.
const ROOMS: [f64; 3] = [1.0, 1.5, 2.0];

/// The expected share of the first attempts that is throttled, if the key has this many shards.
pub(super) fn throttled(demand: &Demand, shards: u32, partitions: u32) -> f64 {
    let shards = ShardCount::new(shards).unwrap_or(ShardCount::ONE);
    collisions::throttled(demand.write_units_per_second / PARTITION, shards, Some(partitions))
}

/// The fewest shards with which a negligible share is throttled; `None` if even the most shards are
/// not enough. More shards never throttle more: smaller parts of a demand spread more evenly.
pub(super) fn fewest_shards(demand: &Demand, partitions: u32) -> Option<u32> {
    let is_enough = |shards: ShardCount| throttled(demand, shards.get(), partitions) < NEGLIGIBLE;
    collisions::fewest(ShardCount::new(MAX_SHARDS)?, is_enough).map(ShardCount::get)
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PolicyShards {
    pub(crate) shards: u32,
    pub(crate) throttled: f64,
    /// Whether the table has too few partitions: more shards hardly help, and unlucky placements
    /// are throttled.
    pub(crate) is_short: bool,
    /// The warm throughput that the policy asks for if the key is throttled all the same, in write
    /// units per second; absent if the table is not short, or has as much.
    pub(crate) needed_write_units: Option<u64>,
}

/// The shards of the key, at most `most`, on a table with this many partitions.
pub(super) fn shards(demand: &Demand, partitions: u32, most: u32) -> PolicyShards {
    let throttled_with = |shards| throttled(demand, shards, partitions);
    if throttled_with(1) < NEGLIGIBLE {
        let throttled = throttled_with(1);
        return PolicyShards { shards: 1, throttled, is_short: false, needed_write_units: None };
    }
    let policy = ScalingPolicy {
        max_shards: ShardCount::new(most).unwrap_or(ShardCount::ONE),
        ..ScalingPolicy::default()
    };
    let units = demand.write_units_per_second;
    let sizing = policy.shards_for(units, Some(partitions));
    let fewest = fewest_shards(demand, partitions).unwrap_or(1);
    let shards = sizing.shards().get().max(fewest).min(most);
    let throttled = throttled_with(shards);
    let is_short = matches!(sizing, Sizing::Short(_)) || throttled >= NEGLIGIBLE;
    let has = u64::from(partitions) * PARTITION_WRITE_UNITS;
    let needed = is_short.then(|| policy.needed_write_units(units)).filter(|needed| *needed > has);
    PolicyShards { shards, throttled, is_short, needed_write_units: needed }
}

/// The shards of a key with this rate on a table that has taken it before, at most `UNLIMITED`.
pub(crate) fn unlimited_shards(write_units_per_second: u64) -> u32 {
    let rate = u32::try_from(write_units_per_second).unwrap_or(u32::MAX);
    let demand = Demand::new(rate, 1);
    shards(&demand, kept_partitions(demand.write_units_per_second), UNLIMITED).shards
}

/// Partitions of a table, and shards of the key, that are enough for the demand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Enough {
    pub(super) partitions: u32,
    pub(super) shards: u32,
}

/// Returns the partitions to warm a table for, which has `now`; `None` if no number of shards is
/// enough.
///
/// More partitions are better than more shards: partitions are paid for once, and shards with each
/// page that is read. So the table gets twice the demand, and up to four times the demand if a key
/// would need more shards than the default maximum.
pub(super) fn enough(demand: &Demand, now: u32) -> Option<Enough> {
    let kept = f64::from(kept_partitions(demand.write_units_per_second));
    let tables = ROOMS.map(|room| ((kept * room).ceil() as u32).min(MAX_PARTITIONS).max(now));
    let (short, reserved): (Vec<_>, Vec<_>) = tables
        .into_iter()
        .map(|partitions| (partitions, shards(demand, partitions, MAX_SHARDS)))
        .filter(|(_, policy)| policy.throttled < NEGLIGIBLE)
        .partition(|(_, policy)| policy.is_short);
    let by_default = ScalingPolicy::default().max_shards.get();
    // If no table leaves a reserve for unlucky placements, the most partitions are best.
    let best = reserved.iter().find(|(_, policy)| policy.shards <= by_default);
    let (partitions, policy) = best.or(reserved.last()).or(short.last())?;
    Some(Enough { partitions: *partitions, shards: policy.shards })
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
        for (rate, shards, partitions) in
            [(5_000, 5, 8), (20_000, 24, 64), (3_000, 12, 4), (9_000, 12, 16)]
        {
            let demand = Demand::new(rate, 1_024);
            let mut drawn = || {
                let mut loads = vec![0.0; partitions as usize];
                for _ in 0..shards {
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

    fn of(rate: u32, partitions: u32) -> PolicyShards {
        shards(&Demand::new(rate, 1_000), partitions, 200)
    }

    #[test]
    fn a_key_gets_shards_only_if_it_is_throttled() {
        // Writes per second, partitions, and a range of shards.
        let rows =
            [(300, 4, 1..=1), (1_015, 4, 1..=1), (5_000, 1_000, 7..=10), (5_000, 10, 40..=200)];
        for (rate, partitions, shards) in rows {
            let found = of(rate, partitions);
            assert!(shards.contains(&found.shards) && !found.is_short, "{rate}: {found:?}");
            assert_eq!(found.needed_write_units, None);
        }
    }

    #[test]
    fn a_table_that_is_short_needs_more_write_units() {
        for (rate, partitions) in [(5_000, 1), (5_000, 4), (8_000, 4)] {
            let found = of(rate, partitions);
            let units = found.needed_write_units.unwrap_or(0);
            assert!(found.is_short && found.shards <= 200, "{partitions}: {found:?}");
            assert!((u64::from(rate)..=4 * u64::from(rate)).contains(&units), "{found:?}");
            assert!(units.is_multiple_of(1_000), "{found:?}");
        }
    }

    #[test]
    fn enough_is_twice_the_demand_or_more() {
        // The demand, the partitions before and after, and a range of shards.
        let rows = [
            (5_000, 4, 10, 36..=200),
            (5_000, 100, 100, 8..=20),
            (20_000, 4, 80, 100..=200),
            // More shards than the default maximum, even on partitions for four times the demand.
            (100_000, 4, 400, 400..=1_000),
        ];
        for (rate, now, partitions, shards) in rows {
            let found = enough(&Demand::new(rate, 1_000), now).unwrap();
            assert_eq!(found.partitions, partitions, "{rate}: {found:?}");
            assert!(shards.contains(&found.shards), "{rate}: {found:?}");
        }
        assert_eq!(enough(&Demand::new(1_000_000, 2_000), 4), None);
    }

    proptest! {
        #[test]
        fn no_shard_of_a_key_exceeds_a_partition(rate in 1_021u64..10_000_000) {
            prop_assert!(u64::from(unlimited_shards(rate)) >= rate.div_ceil(PARTITION_WRITE_UNITS));
        }
    }
}
