//! The partitions and shards with which a demand is taken from its first second on.
//!
//! Why more partitions rather than more shards? Shards that meet share what one partition gives, so on few partitions
//! a key needs many shards. Partitions are paid for once; shards are paid for with each page that is read. So a table
//! is made ready for twice the demand, as DynamoDB itself keeps one that has taken it, and for up to four times where
//! a key would need more shards than it is given by default.

use sharding::internal::{ScalingPolicy, WarmThroughput};

use super::admission::Admission;
use super::demand::Demand;
use super::options::PlanOptions;
use super::partitions::{MOST_PARTITIONS, kept_partitions};
use super::throttling::{MOST_SHARDS, NEGLIGIBLE, fewest_shards, throttled};

/// The tables that are compared, over what a table keeps that has taken the demand before.
const ROOMS: [f64; 3] = [1.0, 1.5, 2.0];

/// A key gets so many times the shards that the expectation asks for: it is one draw, and may be less lucky.
const SPARE_SHARDS: f64 = 1.25;

/// Partitions and shards that suffice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ready {
    /// Partitions of the table.
    pub(super) partitions: u32,
    /// Shards of each key.
    pub(super) shards: u32,
    /// The expected part of the first attempts that is throttled.
    pub(super) throttled: f64,
}

/// What suffices, by the table's partitions, fewest first: with the shards that were asked for where they suffice, and
/// else with as many as it takes. Empty where no number of shards does.
pub(super) fn ready(options: &PlanOptions, demand: &Demand, admission: &Admission) -> Vec<Ready> {
    let tables = tables(options, demand);
    let with = |asked: Option<u32>| {
        let all = tables.iter().filter_map(|partitions| on(*partitions, asked, demand, admission));
        all.collect::<Vec<_>>()
    };
    let as_asked = options.shards.map(|_| with(options.shards)).unwrap_or_default();
    if as_asked.is_empty() { with(None) } else { as_asked }
}

/// The table with the fewest partitions on which no key needs more shards than it is given by default, or else the one
/// with the most.
pub(super) fn chosen(ready: &[Ready]) -> Option<Ready> {
    let by_default = ScalingPolicy::default().max_shards.get();
    ready.iter().find(|ready| ready.shards <= by_default).or(ready.last()).copied()
}

/// The numbers of partitions that are compared: those that were asked for, or those that take the demand with room to
/// spare. A table has at least as many as it has now.
fn tables(options: &PlanOptions, demand: &Demand) -> Vec<u32> {
    let now = options.partitions.unwrap_or(1);
    if let Some(units) = options.warm_write_units {
        let asked = WarmThroughput { write_units: units.into(), read_units: 0 };
        return vec![asked.partitions().max(now)];
    }
    let kept = f64::from(kept_partitions(demand.write_units_per_second));
    let mut tables = ROOMS.map(|room| ((kept * room).ceil() as u32).min(MOST_PARTITIONS).max(now)).to_vec();
    tables.dedup();
    tables
}

fn on(partitions: u32, asked: Option<u32>, demand: &Demand, admission: &Admission) -> Option<Ready> {
    let shards = match asked {
        Some(asked) => asked,
        None => match fewest_shards(demand, admission, partitions)? {
            // What one partition bears needs no second one.
            1 => 1,
            fewest => ((f64::from(fewest) * SPARE_SHARDS).ceil() as u32).min(MOST_SHARDS),
        },
    };
    let throttled = throttled(demand, admission, shards, partitions);
    (throttled < NEGLIGIBLE).then_some(Ready { partitions, shards, throttled })
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
        // The demand; the partitions that are chosen, and about how many shards.
        let rows = [
            (options(300, None), 4, 1..=1),
            (options(5_000, None), 10, 36..=60),
            (options(5_000, Some(4)), 10, 36..=60),
            (options(5_000, Some(100)), 100, 8..=20),
            (options(20_000, None), 40, 150..=200),
            // Nowhere up to four times the demand.
            (options(100_000, None), 400, 400..=600),
            (PlanOptions { shards: Some(100), ..options(5_000, None) }, 10, 100..=100),
            // Five do not suffice anywhere.
            (PlanOptions { shards: Some(5), ..options(5_000, None) }, 10, 36..=60),
            (PlanOptions { warm_write_units: Some(15_500), ..options(5_000, None) }, 16, 20..=40),
        ];
        for (options, partitions, shards) in rows {
            let found = chosen(&of(&options)).unwrap();
            assert_eq!(found.partitions, partitions, "{options:?}: {found:?}");
            assert!(shards.contains(&found.shards), "{options:?}: {found:?}");
        }
    }

    #[test]
    fn nothing_is_ready_for_what_no_number_of_shards_takes() {
        assert!(of(&PlanOptions { item_size: 2_000, ..options(1_000_000, None) }).is_empty());
        assert!(of(&PlanOptions { warm_write_units: Some(4_000), ..options(5_000, None) }).is_empty());
    }

    proptest! {
        #[test]
        fn whatever_is_ready_suffices_and_more_partitions_need_no_more_shards(rate in 1u32..150_000, keys in 1u32..5) {
            let ready = of(&PlanOptions { keys, ..options(rate, None) });
            prop_assert!(ready.iter().all(|ready| ready.throttled < NEGLIGIBLE && ready.shards <= MOST_SHARDS));
            prop_assert!(ready.windows(2).all(|pair| pair[0].partitions < pair[1].partitions));
            prop_assert!(ready.windows(2).all(|pair| pair[0].shards >= pair[1].shards));
        }
    }
}
