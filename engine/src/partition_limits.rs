//! The settings of the partition model.

use std::time::Duration;

/// Write units a second that each partition counts for in warm throughput, whatever it is configured to give. It is
/// what a partition of DynamoDB gives (DynamoDB developer guide, "Burst and adaptive capacity").
pub(crate) const NOMINAL_WRITE_UNITS: f64 = 1_000.0;
/// The same for read units, from the same page.
pub(crate) const NOMINAL_READ_UNITS: f64 = 3_000.0;

/// How a table or an index is partitioned, what each partition gives, and how partitions multiply.
///
/// Partitions may give less than those of DynamoDB, so that a laptop shows a hot one sooner. Warm throughput does not
/// show this: each partition counts as 1,000 write and 3,000 read units a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartitionLimits {
    /// How many partitions the table begins with.
    pub partitions: u32,
    /// Write units a second of each: the ceiling.
    pub write_units: f64,
    /// Read units a second of each: the ceiling.
    pub read_units: f64,
    /// A provisioned table's write units a second for each partition, where that is below the ceiling.
    pub provisioned_write_units: Option<f64>,
    /// How long a partition is overdrawn before it splits; `None` for never.
    pub split_after: Option<Duration>,
    /// The number of partitions doubles so long after the served traffic has come to half of what they are configured
    /// to give; `None` for never. Where `provisioned_write_units` is set, it never does.
    pub doubles_after: Option<Duration>,
    /// How long a requested increase of warm throughput takes.
    pub warming: Duration,
    /// What becomes of a request for more warm throughput while an earlier one is carried out.
    pub while_warming: WhileWarming,
}

/// What becomes of a request for more warm throughput while an earlier one is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhileWarming {
    /// It is refused, as the API reference of `UpdateTable` says of every table that is being updated.
    Refuses,
    /// It is accepted, and the increase under way ends with the higher of both, as others have measured.
    Joins,
}

/// Units a second that warm throughput is asked to be raised to. A member that is left out stays as it is. The units
/// are nominal: 1,000 write and 3,000 read units for each partition, whatever the partitions are configured to give.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WarmRequest {
    /// Write units a second.
    pub write_units: Option<f64>,
    /// Read units a second.
    pub read_units: Option<f64>,
}

impl WarmRequest {
    /// How many partitions have so many units: as many as the scarcer of the two takes.
    ///
    /// ```
    /// use embedded_dynamodb::WarmRequest;
    ///
    /// let wanted = WarmRequest { write_units: Some(24_000.0), read_units: Some(12_000.0) };
    /// assert_eq!(wanted.partitions(), 24);
    /// ```
    #[must_use]
    pub fn partitions(self) -> usize {
        let of = |units: Option<f64>, nominal: f64| (units.unwrap_or(0.0) / nominal).ceil();
        of(self.write_units, NOMINAL_WRITE_UNITS).max(of(self.read_units, NOMINAL_READ_UNITS)) as usize
    }
}

impl PartitionLimits {
    /// A new on-demand table: four partitions of 1,000 write and 3,000 read units a second, which split after five
    /// minutes of heat, double 30 minutes after a new peak, and are warmed within a minute.
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
