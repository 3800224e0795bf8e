//! The number of shards that this product's policy gives a key. Several keys count as one key with
//! the shards of all, as in [`throttled`].

use serde::Serialize;
use sharding::internal::{policy::rules::ScalingPolicy, policy::sizing::Sizing};
use sharding::{PARTITION_WRITE_UNITS, ShardCount};

use super::demand::Demand;
use super::partitions::{MOST_PARTITIONS, kept_partitions};
use super::throttling::{MOST_SHARDS, NEGLIGIBLE, fewest_shards, throttled};

/// The compared numbers of partitions, as multiples of those of a table that has served the demand
/// before.
const ROOMS: [f64; 3] = [1.0, 1.5, 2.0];

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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

/// The shards of each key, at most `most`, on a table with this many partitions.
pub(super) fn shards(demand: &Demand, partitions: u32, most: u32) -> PolicyShards {
    let throttled_with = |shards| throttled(demand, shards, partitions);
    if throttled_with(1) < NEGLIGIBLE {
        let throttled = throttled_with(1);
        return PolicyShards { shards: 1, throttled, is_short: false, needed_write_units: None };
    }
    let policy = ScalingPolicy {
        max_shards: ShardCount::new(most.saturating_mul(demand.keys)).unwrap_or(ShardCount::ONE),
        ..ScalingPolicy::default()
    };
    let units = demand.write_units_per_second;
    let sizing = policy.shards_for(units, Some(partitions));
    let fewest = fewest_shards(demand, partitions).unwrap_or(1);
    let shards = sizing.shards().get().div_ceil(demand.keys).max(fewest).min(most);
    let throttled = throttled_with(shards);
    let is_short = matches!(sizing, Sizing::Short(_)) || throttled >= NEGLIGIBLE;
    let has = u64::from(partitions) * PARTITION_WRITE_UNITS;
    let needed = is_short.then(|| policy.needed_write_units(units)).filter(|needed| *needed > has);
    PolicyShards { shards, throttled, is_short, needed_write_units: needed }
}

/// Partitions of a table, and shards of each key, that are enough for the demand.
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
    let tables = ROOMS.map(|room| ((kept * room).ceil() as u32).min(MOST_PARTITIONS).max(now));
    let (short, reserved): (Vec<_>, Vec<_>) = tables
        .into_iter()
        .map(|partitions| (partitions, shards(demand, partitions, MOST_SHARDS)))
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

    fn of(rate: u32, item_bytes: u32, keys: u32, partitions: u32) -> PolicyShards {
        shards(&Demand::new(rate, item_bytes, keys), partitions, 200)
    }

    #[test]
    fn a_key_gets_shards_only_if_it_is_throttled() {
        // Writes per second, bytes, keys, partitions, and a range of shards.
        let rows = [
            (300, 1_000, 1, 4, 1..=1),
            (1_015, 1_000, 1, 4, 1..=1),
            (5_000, 1_000, 1, 1_000, 7..=10),
            (5_000, 1_000, 1, 10, 40..=200),
            // Keys share partitions.
            (2_400, 1_000, 8, 5, 2..=20),
            (5_000, 1_000, 1_000, 10, 1..=1),
        ];
        for (rate, bytes, keys, partitions, shards) in rows {
            let found = of(rate, bytes, keys, partitions);
            assert!(shards.contains(&found.shards) && !found.is_short, "{rate} {keys}: {found:?}");
            assert_eq!(found.needed_write_units, None);
        }
    }

    #[test]
    fn a_table_that_is_short_needs_more_write_units() {
        for (rate, keys, partitions) in [(5_000, 1, 1), (5_000, 1, 4), (8_000, 8, 4)] {
            let found = of(rate, 1_000, keys, partitions);
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
            let found = enough(&Demand::new(rate, 1_000, 1), now).unwrap();
            assert_eq!(found.partitions, partitions, "{rate}: {found:?}");
            assert!(shards.contains(&found.shards), "{rate}: {found:?}");
        }
        assert_eq!(enough(&Demand::new(1_000_000, 2_000, 1), 4), None);
    }
}
