//! The partitions of the table that a plan assumes.

use serde::Serialize;
use sharding::{PARTITION_READ_UNITS, PARTITION_WRITE_UNITS};

use super::demand::Demand;
use super::options::PlanOptions;

/// The demand that an on-demand table can serve at once, as a multiple of its highest demand so
/// far. (DynamoDB developer guide, "On-demand capacity mode".)
const KEPT_READY: f64 = 2.0;
/// Partitions of a new on-demand table, which serves 4,000 write units per second.
pub(super) const NEW_TABLE: u32 = 4;
/// Write units per second that a table serves unless its quota is raised, and as many read units.
/// (DynamoDB developer guide, "Quotas".)
pub(super) const TABLE_QUOTA: f64 = 40_000.0;
/// The most partitions that a plan assumes, and that the command line accepts.
pub(super) const MOST_PARTITIONS: u32 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct TablePartitions {
    pub(crate) count: u32,
    /// Whether the number is calculated from the demand. Otherwise the user gave it.
    pub(crate) assumed: bool,
    pub(crate) write_units: f64,
    pub(crate) read_units: f64,
}

/// The partitions of an on-demand table that has served this demand before.
pub(crate) fn kept_partitions(write_units_per_second: f64) -> u32 {
    // A float beyond the range of u32 saturates.
    let partitions = KEPT_READY * write_units_per_second / PARTITION_WRITE_UNITS as f64;
    (partitions.ceil() as u32).clamp(NEW_TABLE, MOST_PARTITIONS)
}

/// The given partitions, or those of a table that has served the demand before.
pub(super) fn partitions(options: &PlanOptions, demand: &Demand) -> TablePartitions {
    TablePartitions {
        count: options.partitions.unwrap_or_else(|| kept_partitions(demand.write_units_per_second)),
        assumed: options.partitions.is_none(),
        write_units: PARTITION_WRITE_UNITS as f64,
        read_units: PARTITION_READ_UNITS as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_twice_what_it_took_or_what_a_new_one_has() {
        for (taken, kept) in
            [(0.0, 4), (2_000.0, 4), (2_001.0, 5), (5_000.0, 10), (1e9, MOST_PARTITIONS)]
        {
            assert_eq!(kept_partitions(taken), kept, "{taken}");
        }
    }
}
