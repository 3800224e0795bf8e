//! The cost of a page of a key with many items on several shards, with prior knowledge and by this
//! product.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sharding::internal::{PageQuery, TableEngine};
use sharding::{PartitionKey, Placement, SortKey, Version};

use crate::metadata::Stored;
use crate::{Tables, config, count, partition_key, soon, sort_key};

const ITEMS: usize = 3_000;
/// The number of items of a page.
const PAGE: usize = 100;
/// The size of an item in bytes, including all attributes and their names.
const ITEM_BYTES: usize = 1_024;
/// The number of bytes that half a read unit pays for.
const UNIT_BYTES: usize = 4_096;
/// The numbers of shards to compare.
pub const WIDTHS: [u32; 3] = [4, 16, 64];

/// The key.
#[derive(Debug)]
pub struct PageBench {
    tables: Tables,
    keys: Keys,
    width: u32,
}

/// The distribution of the items in sort-key order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Even, as counters and regular times: the end of a page is predictable.
    Even,
    /// In bursts, with gaps between 1 and some thousands, from a heavy-tailed distribution.
    Uneven,
}

/// One divided by a number that is evenly distributed below one.
fn gap(number: usize) -> usize {
    let spread = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11;
    let below_one = (spread.wrapping_mul(0xD129_0D3F_2B5C_6A17) >> 11) as f64 / (1u64 << 53) as f64;
    (1.0 / (below_one + 0.0001)) as usize
}

/// The positions of the uneven keys.
static UNEVEN: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let next = |place: &mut usize, number| Some(std::mem::replace(place, *place + gap(number)));
    (0..=ITEMS).scan(0, next).collect()
});

impl Keys {
    fn sort_key(self, number: usize) -> SortKey {
        let place = match self {
            Self::Even => number,
            Self::Uneven => UNEVEN[number],
        };
        sort_key(&format!("{place:012}"))
    }

    fn home(self, number: usize, width: u32) -> u32 {
        let home = Placement::Calculated.home(&key(), &self.sort_key(number), count(width));
        home.expect("a home").get()
    }
}

fn key() -> PartitionKey {
    partition_key("hot")
}

impl PageBench {
    /// A key of this width, with items in this product's format. Each request of an instance takes
    /// this time.
    pub async fn new(width: u32, keys: Keys, service_time: Duration) -> Self {
        let tables = Tables { service_time, ..Tables::unclaimed(config()).await };
        tables.set_unlimited();
        let table = TableEngine::new(&tables.client, config());
        table.until(soon()).grow(&key(), count(width)).await.expect("scaled");
        let bench = Self { tables, keys, width };
        for number in 0..ITEMS {
            let put = bench.tables.client.put_item().table_name("items");
            put.set_item(Some(bench.item(number))).send().await.expect("stored");
        }
        bench
    }

    /// A new instance without any state.
    pub fn instance(&self) -> TableEngine {
        self.tables.instance(1)
    }

    fn shard_key(&self, shard: u32) -> String {
        let shard = count(shard).shards().last().expect("a shard");
        self.tables.config.shard_keys.build(&key(), shard).expect("a shard key")
    }

    fn item(&self, number: usize) -> Stored {
        let mut texts = BTreeMap::from([
            ("partition_key", self.shard_key(self.keys.home(number, self.width))),
            ("sort_key", self.keys.sort_key(number).to_string()),
        ]);
        if self.keys.home(number, self.width) > 1 {
            texts.insert("_sh:k", "hot".to_owned());
        }
        let version = Version::new(2, 1_764_000_000_000_000, 123_456_789 + number as u32);
        // A number of 28 digits takes 15 bytes.
        let own: usize = texts.iter().map(|(name, text)| name.len() + text.len()).sum();
        let fixed = "_sh:v".len() + 15 + "filler".len();
        texts.insert("filler", "x".repeat(ITEM_BYTES - own - fixed));
        let stored = |(name, text): (&str, _)| (name.to_owned(), AttributeValue::S(text));
        let mut item: Stored = texts.into_iter().map(stored).collect();
        item.insert("_sh:v".into(), AttributeValue::N(version.to_string()));
        item
    }

    /// The units of the page as this product reads it.
    pub async fn ours(&self, table: &TableEngine, after: usize) -> f64 {
        let query = PageQuery { after: Some(self.keys.sort_key(after)), ..PageQuery::new(key()) };
        let page = table.query(&query, soon()).await.expect("a page");
        let first = page.items.first().map(|item| item.sort_key.clone());
        assert_eq!((page.items.len(), first), (PAGE, Some(self.keys.sort_key(after + 1))));
        page.consumed_capacity
    }

    /// The units of the page with prior knowledge of the number of items on each shard.
    pub fn oracle(&self, after: usize) -> f64 {
        let mut contributes = vec![0usize; self.width as usize];
        for number in after + 1..=after + PAGE {
            contributes[self.keys.home(number, self.width) as usize - 1] += 1;
        }
        let units = |items: usize| (items * ITEM_BYTES).div_ceil(UNIT_BYTES).max(1) as f64 * 0.5;
        contributes.into_iter().map(units).sum()
    }
}

/// The positions at which pages start, all over the key, in no order.
pub fn starts() -> impl Iterator<Item = usize> {
    (0..150).map(|i| (i * 67) % 150 * 18)
}
