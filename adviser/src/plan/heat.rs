//! DynamoDB's own split for heat, run in the partition model of the local edition.
//!
//! A partition that is overdrawn for minutes splits. The split helps several keys on the partition,
//! and a single key whose sort keys are scattered. If the sort keys only rise, all new items go to
//! the same end. The number of minutes is not documented; the model uses five, as others report. A
//! table with a local secondary index never splits a key. (DynamoDB developer guide, "Burst and
//! adaptive capacity".)

use std::collections::HashMap;
use std::time::Duration;

use clap::ValueEnum;
use embedded_dynamodb::{PartitionLimits, Partitions, StoredKey};
use serde::Serialize;

use super::admission::Admission;
use super::demand::Demand;
use super::throttling::NEGLIGIBLE;

/// The simulated time in seconds.
const SECONDS: u32 = 1_800;
/// Simulation steps per second. A bucket holds one second's units, so steps below a second even
/// out.
const STEPS_A_SECOND: u32 = 2;
/// The number of sort keys that represent those of one step.
const SORT_KEYS: u32 = 32;
/// The number of keys that represent a larger number of keys. The sample is larger if more keys
/// share one partition.
const SAMPLED_KEYS: u32 = 32;
/// The most names that are tried to find keys that share partitions as in the expectation.
const TRIED_NAMES: u32 = 20_000;
/// The relative difference from the expectation that is accepted.
const NEAR_ENOUGH: f64 = 0.1;

/// The order of the sort keys of new items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SortKeyOrder {
    /// Each sort key is higher than all earlier ones, as times and counters are.
    Rising,
    /// The sort keys have no order.
    Scattered,
}

/// The result of half an hour of the demand, with one shard and split for heat.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SplitForHeat {
    /// The order of the sort keys.
    pub sort_key_order: SortKeyOrder,
    /// The time that a partition is hot before it splits, as the model assumes.
    pub splits_after_seconds: u64,
    /// Whether a partition is overdrawn on average, which makes it split. Otherwise only single
    /// large writes coincide.
    pub overdrawn: bool,
    /// The refused share of the demand before the first split, in the long run.
    pub throttled_before: f64,
    /// The refused share of the demand at the end of the half hour.
    pub throttled_in_the_end: f64,
    /// The second from which on a negligible share was refused; `None` if that did not happen.
    pub relieved_after_seconds: Option<u32>,
    /// Partitions before.
    pub partitions_before: u32,
    /// Partitions after half an hour.
    pub partitions_after: u64,
}

/// Simulates half an hour of the demand on one shard of each key. `unsharded` is the share that is
/// refused before the first split.
///
/// The simulation treats the demand as a flow to find the time of the splits. A flow has no large
/// single writes, so their additional refusals are calculated.
pub(super) fn split_for_heat(
    demand: &Demand,
    admission: &Admission,
    unsharded: f64,
    order: SortKeyOrder,
    partitions: u32,
) -> SplitForHeat {
    let limits = PartitionLimits::default();
    let unchanged = SplitForHeat {
        sort_key_order: order,
        splits_after_seconds: limits.split_after.map_or(0, |after| after.as_secs()),
        overdrawn: false,
        throttled_before: unsharded,
        throttled_in_the_end: unsharded,
        relieved_after_seconds: (unsharded < NEGLIGIBLE).then_some(0),
        partitions_before: partitions,
        partitions_after: partitions.into(),
    };
    if unsharded < NEGLIGIBLE {
        return unchanged;
    }
    let (keys, of_them) = sample(demand.keys, partitions);
    let mut model =
        Partitions::new(PartitionLimits { partitions: of_them, ..limits }, Duration::ZERO);
    let Some(keys) = placed(&model, keys, demand.units_per_key(), limits.write_units, unsharded)
    else {
        return unchanged;
    };
    let refused = refused_by_second(&mut model, &keys, order, demand.units_per_key());
    let last_minute = refused.get(SECONDS as usize - 60..).unwrap_or_default();
    let flow = last_minute.iter().sum::<f64>() / last_minute.len().max(1) as f64;
    let new_of_key = (model.count() as f64 - f64::from(of_them)) / keys.len() as f64;
    let parts = match order {
        SortKeyOrder::Rising => 1.0,
        SortKeyOrder::Scattered => 1.0 + new_of_key,
    };
    let in_the_end = flow.max(admission.refused(demand.units_per_key() / parts));
    let relieved_after =
        refused.iter().rposition(|refused| *refused >= NEGLIGIBLE).map_or(0, |last| last + 1);
    let relieved_after = u32::try_from(relieved_after).ok();
    SplitForHeat {
        overdrawn: true,
        throttled_in_the_end: in_the_end,
        relieved_after_seconds: relieved_after
            .filter(|after| *after < SECONDS && in_the_end < NEGLIGIBLE),
        partitions_after: u64::from(partitions)
            + (new_of_key * f64::from(demand.keys)).round() as u64,
        ..unchanged
    }
}

/// Reduces keys and partitions in proportion, because many keys take too long to simulate and all
/// behave alike.
fn sample(keys: u32, partitions: u32) -> (u32, u32) {
    let sampled = keys.div_ceil(partitions.max(1)).clamp(SAMPLED_KEYS.min(keys), keys);
    let part = f64::from(sampled) / f64::from(keys);
    (sampled, (f64::from(partitions) * part).round().max(1.0) as u32)
}

/// Finds names of keys that share partitions about as in the expectation; `None` if none of the
/// tried placements overdraws a partition on average.
fn placed(
    model: &Partitions,
    keys: u32,
    units_per_key: f64,
    rate: f64,
    expected: f64,
) -> Option<Vec<StoredKey>> {
    let one_key = keys == 1;
    let mut best: Option<(f64, Vec<StoredKey>)> = None;
    for placement in 0..=(TRIED_NAMES / keys) {
        let keys: Vec<StoredKey> =
            (1..=keys).map(|key| StoredKey::new(format!("hot-{placement}-{key}"))).collect();
        let mut loads: HashMap<usize, f64> = HashMap::new();
        for key in &keys {
            *loads.entry(model.index_of(key)).or_default() += units_per_key;
        }
        let over: f64 = loads.values().map(|load| (load - rate).max(0.0)).sum();
        let refused = over / (units_per_key * keys.len() as f64);
        let off = (refused / expected - 1.0).abs();
        if refused >= NEGLIGIBLE && best.as_ref().is_none_or(|(nearest, _)| off < *nearest) {
            best = Some((off, keys));
        }
        // A single key never shares a partition, so any name will do.
        if one_key || best.as_ref().is_some_and(|(off, _)| *off < NEAR_ENOUGH) {
            break;
        }
    }
    best.map(|(_, keys)| keys)
}

/// The refused share of the demand in each second.
fn refused_by_second(
    model: &mut Partitions,
    keys: &[StoredKey],
    order: SortKeyOrder,
    units_per_key: f64,
) -> Vec<f64> {
    let wanted_of_key = units_per_key / f64::from(STEPS_A_SECOND);
    let of_second = |second: u32| {
        let granted: f64 = (second * STEPS_A_SECOND..(second + 1) * STEPS_A_SECOND)
            .flat_map(|step| keys.iter().map(move |key| (step, key)))
            .map(|(step, key)| take(model, key, order, step, wanted_of_key))
            .sum();
        1.0 - granted / (units_per_key * keys.len() as f64)
    };
    (0..SECONDS).map(of_second).collect()
}

/// Runs one step of one key, as a flow. Returns the granted units.
fn take(
    model: &mut Partitions,
    key: &StoredKey,
    order: SortKeyOrder,
    step: u32,
    units: f64,
) -> f64 {
    let now = Duration::from_secs(1).saturating_mul(step) / STEPS_A_SECOND;
    match order {
        SortKeyOrder::Rising => model.take(key, Some(&format!("{step:010}")), units, now),
        SortKeyOrder::Scattered if model.is_split(key) => (0..SORT_KEYS)
            .map(|part| {
                model.take(
                    key,
                    Some(&scattered(step * SORT_KEYS + part)),
                    units / f64::from(SORT_KEYS),
                    now,
                )
            })
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
    use crate::plan::throttling::throttled;

    fn run_of(
        rate: u32,
        item_bytes: u32,
        keys: u32,
        order: SortKeyOrder,
        partitions: u32,
    ) -> SplitForHeat {
        let demand = Demand::new(rate, item_bytes, keys);
        let admission = Admission::new(1_000.0, demand.units_per_write);
        split_for_heat(
            &demand,
            &admission,
            throttled(&demand, &admission, 1, partitions),
            order,
            partitions,
        )
    }

    fn run(rate: u32, order: SortKeyOrder) -> SplitForHeat {
        run_of(rate, 1_024, 1, order, 8)
    }

    #[test]
    fn rising_sort_keys_are_never_relieved() {
        let found = run(5_000, SortKeyOrder::Rising);
        assert_eq!((found.relieved_after_seconds, found.partitions_after), (None, 8));
        assert!(
            (found.throttled_before - 0.8).abs() < 0.01
                && (found.throttled_in_the_end - 0.8).abs() < 0.01
        );
    }

    #[test]
    fn scattered_sort_keys_are_relieved_after_minutes() {
        let found = run(2_500, SortKeyOrder::Scattered);
        assert!(
            found.relieved_after_seconds.is_some_and(|after| (300..1_200).contains(&after)),
            "{found:?}"
        );
        assert!(found.partitions_after > 8 && found.throttled_before > 0.5, "{found:?}");
    }

    #[test]
    fn a_demand_within_one_partition_needs_no_relief() {
        let found = run(900, SortKeyOrder::Rising);
        assert_eq!((found.relieved_after_seconds, found.partitions_after), (Some(0), 8));
    }

    #[test]
    fn large_writes_that_coincide_are_not_relieved() {
        for order in [SortKeyOrder::Rising, SortKeyOrder::Scattered] {
            // 800 write units per second fit as a flow.
            let found = run_of(2, 409_600, 1, order, 4);
            assert_eq!(
                (found.overdrawn, found.relieved_after_seconds, found.partitions_after),
                (false, None, 4)
            );
            assert!((found.throttled_before - 0.077).abs() < 0.001, "{found:?}");
            assert!(
                (found.throttled_before - found.throttled_in_the_end).abs() < 1e-12,
                "{found:?}"
            );
        }
        // Halves of 1,200 also fit as a flow.
        let found = run_of(3, 409_600, 1, SortKeyOrder::Scattered, 4);
        assert!(found.overdrawn && found.relieved_after_seconds.is_none(), "{found:?}");
        assert!(
            found.throttled_in_the_end > 0.01
                && found.throttled_in_the_end < found.throttled_before,
            "{found:?}"
        );
    }

    #[test]
    fn keys_run_on_a_placement_that_matches_the_expectation() {
        for (keys, partitions) in [(8, 5), (5, 50), (2, 15)] {
            let found = run_of(900 * keys, 1_024, keys, SortKeyOrder::Scattered, partitions);
            let after = found.relieved_after_seconds;
            assert!(
                found.overdrawn && after.is_none_or(|after| after >= 300),
                "{keys} {partitions}: {found:?}"
            );
        }
    }

    #[test]
    fn a_sample_represents_many_keys() {
        assert_eq!(
            [sample(32, 7), sample(1_000, 4_000), sample(1_000, 4)],
            [(32, 7), (32, 128), (250, 1)]
        );
        assert_eq!(sample(1_000, 1), (1_000, 1));
        // 128 keys with 2,000 units each on 512 partitions: the run of all matches the sample of
        // 32.
        let found = run_of(256_000, 1_024, 128, SortKeyOrder::Scattered, 512);
        let limits = PartitionLimits { partitions: 512, ..PartitionLimits::default() };
        let mut model = Partitions::new(limits, Duration::ZERO);
        let keys: Vec<StoredKey> =
            (0..128).map(|key| StoredKey::new(format!("hot-{key}"))).collect();
        let all = refused_by_second(&mut model, &keys, SortKeyOrder::Scattered, 2_000.0);
        let last = all.last().copied().unwrap_or(1.0);
        assert!((found.throttled_in_the_end - last).abs() < 0.05, "{found:?}, of all {last}");
        let after = model.count() as f64;
        assert!(
            (found.partitions_after as f64 / after - 1.0).abs() < 0.1,
            "{found:?}, of all {after}"
        );
    }
}
