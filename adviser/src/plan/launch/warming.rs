//! The warm throughput that the table and its indexes need, and its costs.

use serde::Serialize;
use sharding::internal::{PARTITION_READ_UNITS, PARTITION_WRITE_UNITS};

use crate::plan::partitions::KEPT_READY;
use crate::plan::prices::Prices;

/// The units per second that a table or an index can serve at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WarmUnits {
    /// Write units per second.
    pub write_units: u64,
    /// Read units per second.
    pub read_units: u64,
}

/// A raise of the warm throughput of the table, or of one of its indexes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Warming {
    /// The index; absent for the table itself.
    pub index: Option<String>,
    /// The current warm throughput.
    pub from: WarmUnits,
    /// The needed warm throughput; never less than the current one.
    pub to: WarmUnits,
    /// The one-time cost of the raise.
    pub usd: f64,
}

impl WarmUnits {
    /// The units of this number of partitions.
    pub(super) fn of_partitions(partitions: u32) -> Self {
        let partitions = u64::from(partitions);
        Self {
            write_units: partitions * PARTITION_WRITE_UNITS,
            read_units: partitions * PARTITION_READ_UNITS,
        }
    }

    /// The units that are needed for this number of partitions and these reads, and no less than
    /// the current units. Reads are spread unevenly over partitions, as writes are, so there is
    /// room for twice the reads, in whole partitions.
    pub(super) fn needed(partitions: u32, read_units_per_second: f64, now: Self) -> Self {
        // A float beyond the range of u64 saturates.
        let readers =
            (KEPT_READY * read_units_per_second / PARTITION_READ_UNITS as f64).ceil() as u64;
        Self {
            write_units: Self::of_partitions(partitions).write_units.max(now.write_units),
            read_units: readers.saturating_mul(PARTITION_READ_UNITS).max(now.read_units),
        }
    }

    /// The one-time cost of a raise from `from` to these units.
    pub(super) fn usd_from(self, from: Self, prices: &Prices) -> f64 {
        prices.dynamodb_warm_write_units.of((self.write_units - from.write_units) as f64)
            + prices.dynamodb_warm_read_units.of((self.read_units - from.read_units) as f64)
    }

    /// Returns the units that are above those of `from`, with their names in DynamoDB's API and in
    /// the events of the shard-scaler.
    pub(super) fn raised_from(self, from: Self) -> Vec<RaisedUnits> {
        let both = [
            RaisedUnits {
                sdk_name: "WriteUnitsPerSecond",
                event_name: "write_units",
                to: self.write_units,
            },
            RaisedUnits {
                sdk_name: "ReadUnitsPerSecond",
                event_name: "read_units",
                to: self.read_units,
            },
        ];
        both.into_iter()
            .zip([from.write_units, from.read_units])
            .filter(|(to, from)| to.to > *from)
            .map(|(to, _)| to)
            .collect()
    }
}

/// A number of units that rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RaisedUnits {
    pub(super) sdk_name: &'static str,
    pub(super) event_name: &'static str,
    pub(super) to: u64,
}

/// Returns the raise of the table, and then of each index. Indexes get the same units, because a
/// write to the table also goes to its indexes, and the shard-scaler warms them alike.
pub(super) fn warming(
    indexes: &[String],
    from: WarmUnits,
    to: WarmUnits,
    prices: &Prices,
) -> Vec<Warming> {
    let usd = to.usd_from(from, prices);
    let all = std::iter::once(None).chain(indexes.iter().cloned().map(Some));
    all.map(|index| Warming { index, from, to, usd }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NEW_TABLE: WarmUnits = WarmUnits { write_units: 4_000, read_units: 12_000 };

    #[test]
    fn the_needed_units_are_never_below_the_current_ones() {
        let rows = [
            (4, 0.0, (4_000, 12_000)),
            (10, 0.0, (10_000, 12_000)),
            (10, 6_000.0, (10_000, 12_000)),
            (10, 6_001.0, (10_000, 15_000)),
            (2, 100_000.0, (4_000, 201_000)),
        ];
        for (partitions, reads, (write_units, read_units)) in rows {
            let found = WarmUnits::needed(partitions, reads, NEW_TABLE);
            assert_eq!(found, WarmUnits { write_units, read_units }, "{partitions} {reads}");
        }
        assert_eq!(WarmUnits::of_partitions(4), NEW_TABLE);
    }

    #[test]
    fn added_units_are_paid_for_the_table_and_each_index() {
        let prices = Prices::published().unwrap();
        let to = WarmUnits { write_units: 10_000, read_units: 15_000 };
        let all = warming(&["read-replica-1".to_owned()], NEW_TABLE, to, &prices);
        assert_eq!(
            all.iter().map(|one| one.index.as_deref()).collect::<Vec<_>>(),
            [None, Some("read-replica-1")]
        );
        // 6,000 at 0.00065 and 3,000 at 0.00013.
        assert!(all.iter().all(|one| (one.usd - 4.29).abs() < 1e-9), "{all:?}");
        assert!(warming(&[], to, to, &prices).iter().all(|one| one.usd == 0.0));
    }

    proptest! {
        #[test]
        fn only_what_rises_is_raised(write_units in 0u64..100_000, read_units in 0u64..100_000) {
            let (write_units, read_units) = (write_units.max(4_000), read_units.max(12_000));
            let to = WarmUnits { write_units, read_units };
            let raised = to.raised_from(NEW_TABLE);
            let names: Vec<&str> = raised.iter().map(|units| units.event_name).collect();
            prop_assert_eq!(names.contains(&"write_units"), to.write_units > 4_000);
            prop_assert_eq!(names.contains(&"read_units"), to.read_units > 12_000);
        }
    }
}
