//! The metadata table. Every read of an instance takes one unit from the partition of the item that
//! it reads.
//!
//! An item that is read a lot gets its own partition over time. (DynamoDB developer guide, "Burst
//! and adaptive capacity".) Until then, items share partitions by their hashes; a new table has
//! four.

use std::time::Duration;

use embedded_dynamodb::{Access, PartitionLimits, Partitions, StoredKey};
use sharding::internal::protocol::directory::page_of;
use sharding::internal::{PAGES, PartitionKey};

/// The key that is simulated.
const KEY: &str = "hot";

/// An item of the metadata table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetadataItem {
    /// The item of the table.
    Table,
    /// The item of the key.
    Key,
    /// The shared evidence of all instances on the key.
    Evidence,
    /// A copy of the key's page, from 0.
    Page(u32),
}

impl MetadataItem {
    const fn index(self) -> usize {
        match self {
            Self::Table => 0,
            Self::Key => 1,
            Self::Evidence => 2,
            Self::Page(copy) => 3 + copy as usize,
        }
    }
}

/// The load on the metadata table in a run. Loads are shares of a partition's capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataLoad {
    /// Copies of the key's page.
    pub copies: u32,
    /// The load of the busiest partition over the whole run.
    pub mean: f64,
    /// The load in the worst second of any partition. It is above 1 if the partition spends saved
    /// burst capacity.
    pub worst: f64,
    /// The name of that partition.
    pub worst_partition: String,
    /// The number of throttled requests.
    pub throttled: u64,
    /// The load of the busiest partition in each second.
    pub by_second: Vec<f64>,
}

/// The metadata table of a run.
#[derive(Debug)]
pub(super) struct MetadataTable {
    limits: PartitionLimits,
    /// In the order of [`MetadataItem::index`].
    items: Vec<StoredItem>,
    /// The partitions of each item, or those of all items together.
    partitions: Vec<Partitions>,
    /// The load of the current second, by partition.
    of_second: Vec<Load>,
    of_run: Vec<Load>,
    by_second: Vec<f64>,
    worst: (f64, usize),
    throttled: u64,
}

#[derive(Debug)]
struct StoredItem {
    key: StoredKey,
    /// The indexes into `partitions`, and into `of_second` and `of_run`.
    at: (usize, usize),
}

/// The units that a partition served.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    read: f64,
    written: f64,
}

impl Load {
    /// The share of the partition's capacity in this number of seconds. Reads and writes are
    /// limited independently, so the larger share counts.
    fn share(self, limits: &PartitionLimits, seconds: f64) -> f64 {
        (self.read / limits.read_units).max(self.written / limits.write_units) / seconds
    }
}

impl MetadataTable {
    /// Creates the table with these copies of the key's page and these partitions; `None` for one
    /// partition for each item.
    pub(super) fn new(copies: u32, partitions: Option<u32>) -> Self {
        let page = PartitionKey::new(KEY).map_or(0, |key| page_of(&key, PAGES));
        let copies = (0..copies).map(|copy| format!("_sharding:page:{page}:{copy}"));
        let keys = ["_sharding:table", KEY, "_sharding:evidence"]
            .map(str::to_owned)
            .into_iter()
            .chain(copies)
            .map(StoredKey::new);
        let limits = PartitionLimits {
            partitions: partitions.unwrap_or(1),
            split_after: None,
            ..PartitionLimits::default()
        };
        let shared = Partitions::new(limits, Duration::ZERO);
        let at = |index: usize, key: &StoredKey| match partitions {
            Some(_) => (0, shared.index_of(key)),
            None => (index, index),
        };
        let items: Vec<StoredItem> =
            keys.enumerate().map(|(index, key)| StoredItem { at: at(index, &key), key }).collect();
        let count = partitions.map_or(items.len(), |partitions| partitions as usize);
        let partitions = match partitions {
            Some(_) => vec![shared],
            None => items.iter().map(|_| Partitions::new(limits, Duration::ZERO)).collect(),
        };
        Self {
            limits,
            items,
            partitions,
            of_second: vec![Load::default(); count],
            of_run: vec![Load::default(); count],
            by_second: Vec::new(),
            worst: (0.0, 0),
            throttled: 0,
        }
    }

    /// Reads an item of up to 4 KB, strongly consistent; `false` if it is throttled.
    pub(super) fn read(&mut self, item: MetadataItem, now: Duration) -> bool {
        self.take(item, Access::Read, now)
    }

    /// Writes an item of up to 1 KB; `false` if it is throttled. A write whose condition fails
    /// costs as much.
    pub(super) fn write(&mut self, item: MetadataItem, now: Duration) -> bool {
        self.take(item, Access::Write, now)
    }

    fn take(&mut self, item: MetadataItem, access: Access, now: Duration) -> bool {
        let Some(StoredItem { key, at }) = self.items.get(item.index()) else { return false };
        let (partitions, load) = (&mut self.partitions[at.0], &mut self.of_second[at.1]);
        if !partitions.is_open(key, None, access, now) {
            self.throttled += 1;
            return false;
        }
        partitions.charge(key, None, access, 1.0);
        match access {
            Access::Read => load.read += 1.0,
            Access::Write => load.written += 1.0,
        }
        true
    }

    /// Ends a second: adds its load to the run.
    pub(super) fn end_second(&mut self) {
        let mut busiest = 0.0f64;
        for (partition, (second, run)) in
            self.of_second.iter_mut().zip(&mut self.of_run).enumerate()
        {
            let share = second.share(&self.limits, 1.0);
            busiest = busiest.max(share);
            if share > self.worst.0 {
                self.worst = (share, partition);
            }
            run.read += second.read;
            run.written += second.written;
            *second = Load::default();
        }
        self.by_second.push(busiest);
    }

    /// Returns the load up to the end of the last second.
    pub(super) fn load(&self) -> MetadataLoad {
        let seconds = self.by_second.len().max(1) as f64;
        let means = self.of_run.iter().map(|load| load.share(&self.limits, seconds));
        let (worst, partition) = self.worst;
        let worst_partition = match (self.partitions.len(), partition) {
            (1, partition) => format!("partition {}", partition + 1),
            (_, 0) => "the table's item".to_owned(),
            (_, 1) => "the key's item".to_owned(),
            (_, 2) => "the shared evidence".to_owned(),
            (_, copy) => format!("copy {}", copy - 2),
        };
        MetadataLoad {
            copies: u32::try_from(self.items.len()).unwrap_or(u32::MAX) - 3,
            mean: means.fold(0.0, f64::max),
            worst,
            worst_partition,
            throttled: self.throttled,
            by_second: self.by_second.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of accepted reads of `reads` at once.
    fn served(table: &mut MetadataTable, item: MetadataItem, reads: u32, now: Duration) -> usize {
        (0..reads).filter(|_| table.read(item, now)).count()
    }

    #[test]
    fn each_item_has_a_partition_to_itself_unless_partitions_are_given() {
        let (copy, second) = (MetadataItem::Page(0), Duration::from_secs(1));
        let mut table = MetadataTable::new(2, None);
        assert_eq!(served(&mut table, copy, 5_000, Duration::ZERO), 3_000, "what it has saved up");
        assert_eq!(served(&mut table, copy, 5_000, second / 2), 1_500);
        assert_eq!(served(&mut table, MetadataItem::Page(1), 100, second / 2), 100);
        assert!(table.write(copy, second / 2), "writes are limited on their own");
        table.end_second();
        table.end_second();
        let load = table.load();
        assert_eq!((load.copies, load.throttled, load.by_second.len()), (2, 5_500, 2));
        assert!((load.worst - 1.5).abs() < 1e-9 && (load.mean - 0.75).abs() < 1e-9, "{load:?}");
        assert_eq!(load.worst_partition, "copy 1");
        let mut shared = MetadataTable::new(2, Some(1));
        assert_eq!(served(&mut shared, MetadataItem::Table, 5_000, Duration::ZERO), 3_000);
        assert_eq!(served(&mut shared, copy, 1, Duration::ZERO), 0);
    }
}
