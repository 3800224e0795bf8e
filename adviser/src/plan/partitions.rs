//! The partitions of the table that a plan assumes.

use embedded_dynamodb::PartitionLimits;
use serde::Serialize;

use super::demand::Demand;
use super::options::PlanOptions;

/// The demand that an on-demand table can serve at once, as a multiple of its highest demand so
/// far. (DynamoDB developer guide, "On-demand capacity mode".)
pub(super) const KEPT_READY: f64 = 2.0;
/// Write units per second that a table serves unless its quota is raised, and as many read units.
/// (DynamoDB developer guide, "Quotas".)
pub(super) const TABLE_QUOTA: f64 = 40_000.0;
/// The most partitions that a plan assumes, and that the command line accepts.
pub(super) const MOST_PARTITIONS: u32 = 100_000;

/// The physical partitions of a table.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TablePartitions {
    /// The number of partitions.
    pub count: u32,
    /// Whether the number is calculated from the demand. Otherwise the user gave it.
    pub assumed: bool,
    /// Whether the calculated number was limited to the maximum.
    pub capped: bool,
    /// Write units per second of each.
    pub write_units: f64,
    /// Read units per second of each.
    pub read_units: f64,
}

/// The partitions of an on-demand table that has served this demand before.
pub(crate) fn kept_partitions(write_units_per_second: f64) -> u32 {
    uncapped(write_units_per_second).min(MOST_PARTITIONS)
}

/// The same without a maximum. A float beyond the range of u32 saturates.
fn uncapped(write_units_per_second: f64) -> u32 {
    let PartitionLimits { partitions: new_table, write_units, .. } = PartitionLimits::default();
    ((KEPT_READY * write_units_per_second / write_units).ceil() as u32).max(new_table)
}

/// The given partitions, or those of a table that has served the demand before.
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
        for (taken, kept) in
            [(0.0, 4), (2_000.0, 4), (2_001.0, 5), (5_000.0, 10), (1e9, MOST_PARTITIONS)]
        {
            assert_eq!(kept_partitions(taken), kept, "{taken}");
        }
    }
}
