//! Warm throughput: the units that a table or an index can serve at once. An index is partitioned
//! and warmed like a table.
//!
//! Warm throughput is nominal: 1,000 write and 3,000 read units per second for each partition,
//! whatever the configured limits are. Programs divide it by 1,000 to calculate the number of
//! partitions, which DynamoDB does not show. If 64 partitions of a laptop's 50 write units had a
//! warm throughput of 3,200, programs would count four. Everything else uses the configured limits.
//!
//! The model assumes, because AWS gives no number or does not document it:
//! - A table is warmed all at once, after a minute. Others have measured 390 to 510 seconds in
//!   October 2026, and two seconds for a second, small increase.
//! - DynamoDB reports the requested units. The model reports those of whole partitions, and so
//!   three read units for each write unit.
//!
//! Not modelled:
//! - The account's quota of units for a table.
//! - The share of a provisioned table's partitions, which should fall when they multiply.
//! - The warm throughput of a provisioned table. DynamoDB reports the most units that were ever
//!   provisioned; the model uses the number of partitions, as for every table.

use serde::Deserialize;

/// Write units per second that each partition adds to warm throughput, whatever its configured
/// limits are. A partition of DynamoDB serves as many (DynamoDB developer guide, "Burst and
/// adaptive capacity").
pub(crate) const NOMINAL_WRITE_UNITS: f64 = 1_000.0;
/// The same for read units, from the same page.
pub(crate) const NOMINAL_READ_UNITS: f64 = 3_000.0;
/// The most partitions that a request can make, so that it does not exhaust the memory.
pub(crate) const MAX_PARTITIONS: usize = 65_536;

/// The warm throughput of a table or an index, in nominal units per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WarmThroughput {
    pub(crate) write_units: f64,
    pub(crate) read_units: f64,
}

impl WarmThroughput {
    /// The warm throughput of this number of partitions.
    pub(crate) fn of(partitions: usize) -> Self {
        let count = partitions as f64;
        Self { write_units: count * NOMINAL_WRITE_UNITS, read_units: count * NOMINAL_READ_UNITS }
    }
}

/// A request to raise warm throughput to these nominal units per second. A member that is `None`
/// stays unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(crate) struct WarmRequest {
    #[serde(rename = "WriteUnitsPerSecond")]
    pub(crate) write_units: Option<f64>,
    #[serde(rename = "ReadUnitsPerSecond")]
    pub(crate) read_units: Option<f64>,
}

impl WarmRequest {
    /// Returns the number of partitions that provide both the write and the read units.
    pub(crate) fn partitions(self) -> usize {
        let of = |units: Option<f64>, nominal: f64| (units.unwrap_or(0.0) / nominal).ceil();
        of(self.write_units, NOMINAL_WRITE_UNITS).max(of(self.read_units, NOMINAL_READ_UNITS))
            as usize
    }
}
