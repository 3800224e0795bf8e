//! What DynamoDB does by itself: split for heat, run in the partition model of the local edition.
//!
//! A partition that is overdrawn for minutes splits. That helps several keys on it, and one key whose sort keys are scattered; where the
//! sort keys only rise, all new items go to the same end. How many minutes it takes is not documented: the model's five are reports of
//! others. A table with a local secondary index never splits a key. (DynamoDB developer guide, "Burst and adaptive capacity".)

use std::time::Duration;

use clap::ValueEnum;
use embedded_dynamodb::{PartitionLimits, Partitions, StoredKey};
use serde::Serialize;

use super::demand::Demand;
use super::throttling::NEGLIGIBLE;

/// Simulated time.
const SECONDS: u32 = 1_800;
/// A bucket holds a second's units, so that steps below a second even out.
const STEPS_A_SECOND: u32 = 2;
/// Sort keys that stand for those of one step.
const SORT_KEYS: u32 = 32;

/// In which order the sort keys of new items come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SortKeyOrder {
    /// Each higher than those before, as times and counters are.
    Rising,
    /// In no order.
    Scattered,
}

/// What became of the demand in half an hour, with one shard and split for heat.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SplitForHeat {
    /// The order of the sort keys.
    pub sort_key_order: SortKeyOrder,
    /// How long a partition is hot before it splits, as the model has it.
    pub splits_after_seconds: u64,
    /// The refused part of the demand in the first five minutes.
    pub throttled_in_five_minutes: f64,
    /// The refused part of the demand in the last minute of the half hour.
    pub throttled_in_the_end: f64,
    /// From this second on a negligible part was refused; `None` where that did not come.
    pub relieved_after_seconds: Option<u32>,
    /// Partitions before.
    pub partitions_before: u32,
    /// Partitions after half an hour.
    pub partitions_after: usize,
}

/// Runs half an hour of the demand against one shard of each key.
pub(super) fn split_for_heat(demand: &Demand, order: SortKeyOrder, partitions: u32) -> SplitForHeat {
    let limits = PartitionLimits { partitions, ..PartitionLimits::default() };
    let mut model = Partitions::new(limits, Duration::ZERO);
    let keys: Vec<StoredKey> = (1..=demand.keys).map(|key| StoredKey::new(format!("hot-{key}"))).collect();
    let wanted_of_key = demand.units_per_key() / f64::from(STEPS_A_SECOND);
    let mut refused_by_second = Vec::with_capacity(SECONDS as usize);
    for second in 0..SECONDS {
        let granted: f64 = (second * STEPS_A_SECOND..(second + 1) * STEPS_A_SECOND)
            .flat_map(|step| keys.iter().map(move |key| (step, key)))
            .map(|(step, key)| take(&mut model, key, order, step, wanted_of_key))
            .sum();
        refused_by_second.push(1.0 - granted / demand.write_units_per_second);
    }
    let mean = |seconds: &[f64]| seconds.iter().sum::<f64>() / seconds.len().max(1) as f64;
    let hot_until = refused_by_second.iter().rposition(|refused| *refused >= NEGLIGIBLE);
    let relieved_after = hot_until.map_or(0, |last| last + 1);
    SplitForHeat {
        sort_key_order: order,
        splits_after_seconds: limits.split_after.map_or(0, |after| after.as_secs()),
        throttled_in_five_minutes: mean(refused_by_second.get(..300).unwrap_or_default()),
        throttled_in_the_end: mean(refused_by_second.get(SECONDS as usize - 60..).unwrap_or_default()),
        relieved_after_seconds: u32::try_from(relieved_after).ok().filter(|after| *after < SECONDS),
        partitions_before: partitions,
        partitions_after: model.count(),
    }
}

/// One step of one key, as a flow.
fn take(model: &mut Partitions, key: &StoredKey, order: SortKeyOrder, step: u32, units: f64) -> f64 {
    let now = Duration::from_secs(1).saturating_mul(step) / STEPS_A_SECOND;
    match order {
        SortKeyOrder::Rising => model.take(key, Some(&format!("{step:010}")), units, now),
        SortKeyOrder::Scattered if model.is_split(key) => (0..SORT_KEYS)
            .map(|part| model.take(key, Some(&scattered(step * SORT_KEYS + part)), units / f64::from(SORT_KEYS), now))
            .sum(),
        SortKeyOrder::Scattered => model.take(key, Some(&scattered(step)), units, now),
    }
}

fn scattered(number: u32) -> String {
    format!("{:010}", number.wrapping_mul(0x9E37_79B9))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rate: u32, order: SortKeyOrder) -> SplitForHeat {
        split_for_heat(&Demand::new(rate, 1_024, 1), order, 8)
    }

    #[test]
    fn rising_sort_keys_are_never_relieved() {
        let found = run(5_000, SortKeyOrder::Rising);
        assert_eq!((found.relieved_after_seconds, found.partitions_after), (None, 8));
        assert!(
            (found.throttled_in_five_minutes - 0.8).abs() < 0.01 && (found.throttled_in_the_end - 0.8).abs() < 0.01
        );
    }

    #[test]
    fn scattered_sort_keys_are_relieved_after_minutes() {
        let found = run(2_500, SortKeyOrder::Scattered);
        assert!(found.relieved_after_seconds.is_some_and(|after| (300..1_200).contains(&after)), "{found:?}");
        assert!(found.partitions_after > 8 && found.throttled_in_five_minutes > 0.5, "{found:?}");
    }

    #[test]
    fn what_a_partition_bears_needs_no_relief() {
        let found = run(900, SortKeyOrder::Rising);
        assert_eq!((found.relieved_after_seconds, found.partitions_after), (Some(0), 8));
    }
}
