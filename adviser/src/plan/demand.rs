//! The demand in DynamoDB's units, and the partitions of a table that has served it.

use sharding::PARTITION_WRITE_UNITS;
use sharding::internal::write_units;

/// The demand that an on-demand table can serve at once, as a multiple of its highest demand so
/// far. (DynamoDB developer guide, "On-demand capacity mode".)
const KEPT_READY: f64 = 2.0;
/// Partitions of a new on-demand table, which serves 4,000 write units per second.
pub(super) const NEW_TABLE: u32 = 4;
/// The most partitions that a plan assumes, and that the command line accepts.
pub(super) const MAX_PARTITIONS: u32 = 100_000;
/// The write units per second of a partition.
pub(super) const PARTITION: f64 = PARTITION_WRITE_UNITS as f64;

/// The writes of the hot key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Demand {
    pub(crate) writes_per_second: f64,
    pub(crate) item_bytes: u32,
    /// Write units of one write: the started KBs of an item.
    pub(crate) units_per_write: u32,
    pub(crate) write_units_per_second: f64,
}

impl Demand {
    pub(crate) fn new(write_rate: u32, item_bytes: u32) -> Self {
        let units_per_write = write_units(item_bytes as usize) as u32;
        let writes_per_second = f64::from(write_rate);
        Self {
            writes_per_second,
            item_bytes,
            units_per_write,
            write_units_per_second: writes_per_second * f64::from(units_per_write),
        }
    }

    /// Returns the write units per second of one shard, if the key has this many. A hash spreads the
    /// items evenly.
    pub(crate) fn units_per_shard(&self, shards: u32) -> f64 {
        self.write_units_per_second / f64::from(shards.max(1))
    }

    /// The shards that would be enough if each had its own partition.
    pub(super) fn shards_on_paper(&self) -> u32 {
        (self.write_units_per_second / PARTITION).ceil().max(1.0) as u32
    }
}

/// The partitions of an on-demand table that has served this demand before.
pub(super) fn kept_partitions(write_units_per_second: f64) -> u32 {
    // A float beyond the range of u32 saturates.
    let partitions = KEPT_READY * write_units_per_second / PARTITION;
    (partitions.ceil() as u32).clamp(NEW_TABLE, MAX_PARTITIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_takes_a_unit_for_every_started_kb() {
        for (bytes, units) in [(0, 1), (1, 1), (1_024, 1), (1_025, 2), (409_600, 400)] {
            assert_eq!(Demand::new(1, bytes).units_per_write, units, "{bytes}");
        }
        let demand = Demand::new(300, 2_500);
        assert!((demand.write_units_per_second - 900.0).abs() < 1e-9);
        assert!((demand.units_per_shard(4) - 225.0).abs() < 1e-9);
    }

    #[test]
    fn a_table_keeps_twice_what_it_took_or_what_a_new_one_has() {
        for (taken, kept) in
            [(0.0, 4), (2_000.0, 4), (2_001.0, 5), (5_000.0, 10), (1e9, MAX_PARTITIONS)]
        {
            assert_eq!(kept_partitions(taken), kept, "{taken}");
        }
    }
}
