//! A table's *warm throughput*, what it can serve at once, and the number of partitions that
//! follows from it.
//!
//! DynamoDB reports a table's and an index's warm throughput, but not the partitions. A partition
//! serves 1,000 write units and 3,000 read units a second. A new on-demand table has 4,000 and
//! 12,000: four partitions. (DynamoDB developer guide, "Understanding DynamoDB warm throughput" and
//! "Burst and adaptive capacity".)

/// Write units a second that one partition serves.
pub const PARTITION_WRITE_UNITS: u64 = 1_000;
/// Read units a second that one partition serves.
pub const PARTITION_READ_UNITS: u64 = 3_000;
/// What a table or an index can serve at once, as a floor. It rises with the load and by request,
/// and never falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct WarmThroughput {
    /// Write units a second.
    pub write_units: u64,
    /// Read units a second.
    pub read_units: u64,
}

impl WarmThroughput {
    /// The approximate number of partitions, by the write units; at least one.
    pub fn partitions(self) -> u32 {
        u32::try_from(self.write_units.div_ceil(PARTITION_WRITE_UNITS)).unwrap_or(u32::MAX).max(1)
    }

    /// The lower number of each. (A write to a table is also a write to its indexes.)
    pub fn lowest(self, other: Self) -> Self {
        Self {
            write_units: self.write_units.min(other.write_units),
            read_units: self.read_units.min(other.read_units),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_of_table_and_indexes_is_taken_of_each_kind() {
        let table = WarmThroughput { write_units: 40_000, read_units: 12_000 };
        let index = WarmThroughput { write_units: 4_000, read_units: 30_000 };
        assert_eq!(table.lowest(index), WarmThroughput { write_units: 4_000, read_units: 12_000 });
        let partitions = |write_units| WarmThroughput { write_units, ..table }.partitions();
        assert_eq!([0, 4_000, 4_001].map(partitions), [1, 4, 5]);
    }
}
