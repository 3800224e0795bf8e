//! The settings of the partition model.

use std::time::Duration;

use crate::warm_units::{NOMINAL_READ_UNITS, NOMINAL_WRITE_UNITS};

/// The number of partitions of a table or an index, their limits, and their warming.
///
/// The limits may be below those of DynamoDB, so that a laptop shows a hot partition sooner. They
/// do not change warm throughput: each partition counts as 1,000 write and 3,000 read units per
/// second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartitionLimits {
    /// The number of partitions of a new table.
    pub partitions: u32,
    /// The ceiling of each partition, in write units per second.
    pub write_units: f64,
    /// The ceiling of each partition, in read units per second.
    pub read_units: f64,
    /// The share of each partition of a provisioned table in write units per second, if it is below
    /// the ceiling.
    #[doc(hidden)]
    pub provisioned_write_units: Option<f64>,
    /// The time that a requested increase of warm throughput takes.
    #[doc(hidden)]
    pub warming: Duration,
    /// The treatment of a request for more warm throughput during an earlier increase.
    #[doc(hidden)]
    pub while_warming: WhileWarming,
}

/// The treatment of a request for more warm throughput during an earlier increase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhileWarming {
    /// The request is refused. The API reference of `UpdateTable` documents this for every table
    /// that is being updated.
    Refuses,
    /// The request is accepted, and the current increase ends with the higher of both values, as
    /// others have measured.
    Joins,
}

impl PartitionLimits {
    /// A new on-demand table: four partitions of 1,000 write and 3,000 read units per second, which
    /// are warmed within a minute.
    pub const NEW_ON_DEMAND_TABLE: Self = Self {
        partitions: 4,
        write_units: NOMINAL_WRITE_UNITS,
        read_units: NOMINAL_READ_UNITS,
        provisioned_write_units: None,
        warming: Duration::from_secs(60),
        while_warming: WhileWarming::Refuses,
    };
}

impl Default for PartitionLimits {
    /// [`Self::NEW_ON_DEMAND_TABLE`].
    fn default() -> Self {
        Self::NEW_ON_DEMAND_TABLE
    }
}
