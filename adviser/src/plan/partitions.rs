//! The partitions that a plan reckons with.

use embedded_dynamodb::PartitionLimits;
use serde::Serialize;

use super::demand::Demand;
use super::options::PlanOptions;

/// What an on-demand table takes at once, over the highest demand that it has taken. (DynamoDB developer guide,
/// "On-demand capacity mode".)
pub(super) const KEPT_READY: f64 = 2.0;
/// The most partitions that are assumed, and that the command line takes.
pub(super) const MOST_PARTITIONS: u32 = 100_000;

/// The physical partitions that the plan reckons with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TablePartitions {
    /// How many.
    pub count: u32,
    /// They were not given, but follow from the demand.
    pub assumed: bool,
    /// They would be more, were there not a bound to what is assumed.
    pub capped: bool,
    /// Write units a second of each.
    pub write_units: f64,
    /// Read units a second of each.
    pub read_units: f64,
}

/// The partitions of an on-demand table that has taken so many write units a second before.
pub(crate) fn kept_partitions(write_units_per_second: f64) -> u32 {
    uncapped(write_units_per_second).min(MOST_PARTITIONS)
}

/// A float beyond the range of u32 saturates.
fn uncapped(write_units_per_second: f64) -> u32 {
    let PartitionLimits { partitions: new_table, write_units, .. } = PartitionLimits::default();
    ((KEPT_READY * write_units_per_second / write_units).ceil() as u32).max(new_table)
}

/// Those that were given, or those that a table keeps that has taken the demand before.
pub(super) fn partitions(options: &PlanOptions, demand: &Demand) -> TablePartitions {
    let PartitionLimits { write_units, read_units, .. } = PartitionLimits::default();
    let assumed = options.partitions.is_none();
    TablePartitions {
        count: options.partitions.unwrap_or_else(|| kept_partitions(demand.write_units_per_second)),
        assumed,
        capped: assumed && uncapped(demand.write_units_per_second) > MOST_PARTITIONS,
        write_units,
        read_units,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_twice_what_it_has_taken_and_no_fewer_than_a_new_one_has() {
        for (taken, kept) in [(0.0, 4), (2_000.0, 4), (2_001.0, 5), (5_000.0, 10), (1e9, MOST_PARTITIONS)] {
            assert_eq!(kept_partitions(taken), kept, "{taken}");
        }
    }
}
