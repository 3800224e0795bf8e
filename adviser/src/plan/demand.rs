//! The demand in DynamoDB's units.

use serde::Serialize;
use sharding::internal::write_units;

/// The writes of all hot keys together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Demand {
    pub(crate) writes_per_second: f64,
    pub(crate) item_bytes: u32,
    /// Write units of one write: the started KBs of an item.
    pub(crate) units_per_write: u32,
    pub(crate) write_units_per_second: f64,
    /// The number of hot keys that share the demand evenly.
    pub(crate) keys: u32,
}

impl Demand {
    pub(crate) fn new(write_rate: u32, item_bytes: u32, keys: u32) -> Self {
        let units_per_write = write_units(item_bytes as usize) as u32;
        let writes_per_second = f64::from(write_rate);
        Self {
            writes_per_second,
            item_bytes,
            units_per_write,
            write_units_per_second: writes_per_second * f64::from(units_per_write),
            keys: keys.max(1),
        }
    }

    pub(crate) fn units_per_key(&self) -> f64 {
        self.write_units_per_second / f64::from(self.keys)
    }

    /// Returns the write units per second of one shard, if each key has this many. A hash spreads
    /// the items evenly.
    pub(crate) fn units_per_shard(&self, shards: u32) -> f64 {
        self.units_per_key() / f64::from(shards.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_takes_a_unit_for_every_started_kb() {
        for (bytes, units) in [(0, 1), (1, 1), (1_024, 1), (1_025, 2), (409_600, 400)] {
            assert_eq!(Demand::new(1, bytes, 1).units_per_write, units, "{bytes}");
        }
        let demand = Demand::new(300, 2_500, 3);
        assert!((demand.write_units_per_second - 900.0).abs() < 1e-9);
        assert!((demand.units_per_shard(4) - 75.0).abs() < 1e-9);
    }
}
