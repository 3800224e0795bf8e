//! The settings of the partition model.

use std::time::Duration;

/// Write units per second that each partition adds to warm throughput, whatever its configured
/// limits are. A partition of DynamoDB serves as many (DynamoDB developer guide, "Burst and
/// adaptive capacity").
pub(crate) const NOMINAL_WRITE_UNITS: f64 = 1_000.0;
/// The same for read units, from the same page.
pub(crate) const NOMINAL_READ_UNITS: f64 = 3_000.0;

/// The number of partitions of a table or an index, their limits, and their growth.
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
    /// A partition splits after it was overdrawn for this long; `None` for never.
    #[doc(hidden)]
    pub split_after: Option<Duration>,
    /// The number of partitions doubles this long after the served traffic has reached half of
    /// their configured limits; `None` for never. It never doubles if `provisioned_write_units` is
    /// set.
    #[doc(hidden)]
    pub doubles_after: Option<Duration>,
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

/// A request to raise warm throughput to these nominal units per second. A member that is `None`
/// stays unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct WarmRequest {
    pub(crate) write_units: Option<f64>,
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

impl PartitionLimits {
    /// A new on-demand table: four partitions of 1,000 write and 3,000 read units per second. They
    /// split after five minutes of heat, double 30 minutes after a new peak, and are warmed within
    /// a minute.
    pub const NEW_ON_DEMAND_TABLE: Self = Self {
        partitions: 4,
        write_units: NOMINAL_WRITE_UNITS,
        read_units: NOMINAL_READ_UNITS,
        provisioned_write_units: None,
        split_after: Some(Duration::from_secs(300)),
        doubles_after: Some(Duration::from_secs(30 * 60)),
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
