//! What a run measures: the load, the clients that send it, the table, and the policy.

use std::time::Duration;

use sharding::{PartitionKey, TableConfig};

use crate::cells::FIRST_SEED;

/// A run. Rates are in write units a second.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The load.
    pub load: Load,
    /// The processes that write.
    pub fleet: Fleet,
    /// The sizes of the items.
    pub items: Items,
    /// The sort keys of the items.
    pub sort_keys: SortKeys,
    /// The share of the load on each key. One key: `[1.0]`.
    pub keys: Vec<f64>,
    /// The table's partitions.
    pub partitions: u32,
    /// The instances know how many partitions the table has.
    pub is_known: bool,
    /// The share of a partition of a provisioned table, in units a second.
    pub provisioned: Option<f64>,
    /// One write stands for this many: partitions take as many times fewer units, rates are as many
    /// times lower, and a fleet has as many times fewer instances.
    pub scale: u32,
    /// Seconds of the run.
    pub seconds: u32,
    /// An open load ends when the key is relieved, and the run when all writes are decided.
    pub until_relieved: bool,
    /// Places the shards, and drives all chance.
    pub seed: u64,
    /// Who sets the number of shards.
    pub contender: Contender,
    /// How long a request repeats a throttled write.
    pub throttled_for: Duration,
    /// The metadata table answers writes of pages so much later than it applies them.
    pub late_pages: Duration,
}

impl Scenario {
    /// An open load on the first key of the tables, from 200 instances, for a minute.
    #[must_use]
    pub fn open(demand: f64, partitions: u32) -> Self {
        Self {
            load: Load::Open(demand, |_| 1.0),
            fleet: Fleet::Shared(200),
            items: Items::Kilobytes(1),
            sort_keys: SortKeys::Scattered,
            keys: vec![1.0],
            partitions,
            is_known: true,
            provisioned: None,
            scale: 1,
            seconds: 60,
            until_relieved: false,
            seed: FIRST_SEED,
            contender: Contender::Ours,
            throttled_for: TableConfig::new("items", "items-metadata").throttled_for,
            late_pages: Duration::ZERO,
        }
    }

    /// A key of the run.
    pub(crate) fn key(&self, number: usize) -> PartitionKey {
        let text = format!("key-{}-{number}", self.seed);
        PartitionKey::new(&text).expect("a short text is a key")
    }
}

/// A caller repeats a write for this long.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Where writes come from.
#[derive(Debug, Clone, Copy)]
pub enum Load {
    /// Independent arrivals: so many units a second, times a factor of the second of the run.
    Open(f64, fn(f64) -> f64),
    /// Clients that wait for each response, and then for the think time.
    Closed {
        /// Their number.
        clients: u32,
        /// From a response to the next write.
        think: Duration,
    },
}

/// The processes that write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fleet {
    /// This many services, each with any number of writes at a time.
    Shared(u32),
    /// Lambda: an instance serves one request at a time, and there are at most this many. A
    /// thousand start at once, and a hundred more each second.
    Lambda(u32),
}

/// The sizes of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Items {
    /// All have this many kilobytes.
    Kilobytes(u32),
    /// 1, 4, 20 and 100 KB, each a quarter of the units.
    Mixed,
}

/// The sort keys of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortKeys {
    /// Each write has its own.
    Scattered,
    /// All writes are of this many items.
    Few(u32),
}

/// Who sets the number of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// The product.
    Ours,
    /// This number, from the start on.
    Once(u32),
    /// A controller that sees all attempts, and doubles the shards while more than 2 % of them are
    /// throttled, two seconds after each change.
    Doubling,
}
