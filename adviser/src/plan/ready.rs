//! The partitions and shards that serve a demand from its first second.
//!
//! More partitions are better than more shards. Shards on one partition share its units, so a key
//! needs many shards on few partitions. Partitions are paid for once, and shards are paid for with
//! each page that is read. So a table is made ready for twice the demand, as DynamoDB itself keeps
//! a table that has served the demand. If a key would need more shards than the default maximum,
//! the table is made ready for up to four times the demand.

use sharding::internal::{ScalingPolicy, WarmThroughput};

use super::admission::Admission;
use super::demand::Demand;
use super::options::PlanOptions;
use super::partitions::{MOST_PARTITIONS, kept_partitions};
use super::policy::{self, PolicyShards};
use super::throttling::{MOST_SHARDS, NEGLIGIBLE, throttled};

/// The compared numbers of partitions, as multiples of those of a table that has served the demand
/// before.
const ROOMS: [f64; 3] = [1.0, 1.5, 2.0];

/// Partitions and shards that are enough for the demand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ready {
    /// Partitions of the table.
    pub(super) partitions: u32,
    /// Shards of each key.
    pub(super) shards: u32,
    /// The expected share of the first attempts that is throttled.
    pub(super) throttled: f64,
}

/// Returns the choices that are enough, fewest partitions first: with the requested shards if they
/// are enough, or else with the policy's number. Empty if no number of shards is enough.
pub(super) fn ready(options: &PlanOptions, demand: &Demand, admission: &Admission) -> Vec<Ready> {
    let tables = tables(options, demand);
    let requested: Vec<Ready> = tables
        .iter()
        .filter_map(|partitions| {
            let (partitions, shards) = (*partitions, options.shards?);
            let throttled = throttled(demand, admission, shards, partitions);
            (throttled < NEGLIGIBLE).then_some(Ready { partitions, shards, throttled })
        })
        .collect();
    if !requested.is_empty() {
        return requested;
    }
    let (short, enough): (Vec<_>, Vec<_>) = tables
        .into_iter()
        .map(|partitions| {
            let policy = policy::shards(demand, admission, partitions, MOST_SHARDS);
            let PolicyShards { shards, throttled, is_short, .. } = policy;
            (is_short, Ready { partitions, shards, throttled })
        })
        .filter(|(_, ready)| ready.throttled < NEGLIGIBLE)
        .partition(|(is_short, _)| *is_short);
    // If no table leaves a reserve for unlucky placements, the most partitions are best.
    let best = if enough.is_empty() {
        short.into_iter().next_back().into_iter().collect()
    } else {
        enough
    };
    best.into_iter().map(|(_, ready)| ready).collect()
}

/// Chooses the fewest partitions on which no key needs more shards than the default maximum, or
/// else the most partitions.
pub(super) fn chosen(ready: &[Ready]) -> Option<Ready> {
    let by_default = ScalingPolicy::default().max_shards.get();
    ready.iter().find(|ready| ready.shards <= by_default).or(ready.last()).copied()
}

/// The compared numbers of partitions: the requested one, or those that serve the demand with room
/// to spare. None is below the table's current number.
fn tables(options: &PlanOptions, demand: &Demand) -> Vec<u32> {
    let now = options.partitions.unwrap_or(1);
    if let Some(units) = options.warm_write_units {
        let requested = WarmThroughput { write_units: units.into(), read_units: 0 };
        return vec![requested.partitions().max(now)];
    }
    let kept = f64::from(kept_partitions(demand.write_units_per_second));
    let mut tables =
        ROOMS.map(|room| ((kept * room).ceil() as u32).min(MOST_PARTITIONS).max(now)).to_vec();
    tables.dedup();
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::options::tests::options;
    use proptest::prelude::*;

    fn of(options: &PlanOptions) -> Vec<Ready> {
        let demand = Demand::new(options.write_rate, options.item_size, options.keys);
        ready(options, &demand, &Admission::new(1_000.0, demand.units_per_write))
    }

    #[test]
    fn a_table_is_made_ready_for_twice_the_demand_or_more() {
        // The demand, the chosen partitions, and a range of shards.
        let rows = [
            (options(300, None), 4, 1..=1),
            (options(5_000, None), 10, 36..=200),
            (options(5_000, Some(4)), 10, 36..=200),
            (options(5_000, Some(100)), 100, 8..=20),
            (options(20_000, None), 80, 100..=200),
            // More shards than the default maximum, even on partitions for four times the demand.
            (options(100_000, None), 400, 400..=1_000),
            (PlanOptions { shards: Some(100), ..options(5_000, None) }, 10, 100..=100),
            // Five shards are not enough on any table.
            (PlanOptions { shards: Some(5), ..options(5_000, None) }, 10, 36..=200),
            (PlanOptions { warm_write_units: Some(15_500), ..options(5_000, None) }, 16, 20..=60),
        ];
        for (options, partitions, shards) in rows {
            let found = chosen(&of(&options)).unwrap();
            assert_eq!(found.partitions, partitions, "{options:?}: {found:?}");
            assert!(shards.contains(&found.shards), "{options:?}: {found:?}");
        }
    }

    #[test]
    fn nothing_is_ready_if_no_number_of_shards_serves_the_demand() {
        assert!(of(&PlanOptions { item_size: 2_000, ..options(1_000_000, None) }).is_empty());
        assert!(
            of(&PlanOptions { warm_write_units: Some(4_000), ..options(5_000, None) }).is_empty()
        );
    }

    proptest! {
        #[test]
        fn whatever_is_ready_suffices_and_more_partitions_need_no_more_shards(
            rate in 1u32..150_000, keys in 1u32..5,
        ) {
            let ready = of(&PlanOptions { keys, ..options(rate, None) });
            prop_assert!(ready.iter().all(|ready| ready.throttled < NEGLIGIBLE));
            prop_assert!(ready.iter().all(|ready| ready.shards <= MOST_SHARDS));
            prop_assert!(ready.windows(2).all(|pair| pair[0].partitions < pair[1].partitions));
            prop_assert!(ready.windows(2).all(|pair| pair[0].shards >= pair[1].shards));
        }
    }
}
