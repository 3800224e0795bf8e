//! The directory through the real SDK, over the embedded engine and in virtual time, with pages
//! that are missing, torn, behind, full or copied.

mod claiming;
mod copies;
mod crowded;
mod entries;
mod lost;
mod missing;
mod more_pages;
mod recorder;
mod registering;
mod renewing;
mod torn;
mod warm;

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use sharding::internal::TableEngine;
use sharding::maintenance::ShardMetadata;
use sharding::{Item, PartitionKey, TableConfig, Written};
use system_tests::{
    Call, Fate, Tables, Wire, config, count, metadata, numbered, numbers, partition_key,
    read_items, soon, sort_key, value_of, valued_item,
};

const KEY: &str = "hot";

fn key() -> PartitionKey {
    partition_key(KEY)
}

fn item(text: &str, value: u64) -> Item {
    valued_item(key(), text, value)
}

const REFUSED: &str =
    r#"{"__type":"com.amazon.coral.validate#ValidationException","message":"no"}"#;

/// The stored items of the key, by sort key.
type Expected = BTreeMap<String, u64>;

struct Fixture {
    tables: Tables,
    client: Client,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(config()).await
    }

    async fn with(config: TableConfig) -> Self {
        let tables = Tables::claimed(config).await;
        Self { client: tables.client.clone(), tables }
    }

    /// Tables with a key of this width, the instance that has stored its items, and the items.
    async fn grown(width: u32, items: u32) -> (Self, TableEngine, Expected) {
        let fixture = Self::new().await;
        let (table, mut expected) = (fixture.instance(1), Expected::new());
        table.set_shards(&key(), count(width), soon()).await.expect("grown");
        store(&table, numbered(0..items), 1, &mut expected).await;
        (fixture, table, expected)
    }

    fn instance(&self, seed: u64) -> TableEngine {
        self.tables.instance(seed)
    }

    fn wired(
        &self,
        seed: u64,
        decide: impl Fn(&Call) -> Fate + Send + Sync + 'static,
    ) -> (TableEngine, Wire) {
        self.tables.wired(seed, decide)
    }

    async fn entry(&self, copy: u32) -> Option<String> {
        metadata::entry(&self.client, KEY, copy).await
    }

    /// The entry that the key's page should have, from the metadata item.
    async fn entry_of_item(&self) -> String {
        shards(&self.instance(99)).await.layout().to_entry()
    }
}

async fn shards(table: &TableEngine) -> ShardMetadata {
    table.shards(&key(), soon()).await.expect("a response").expect("metadata")
}

async fn put(table: &TableEngine, text: &str, value: u64) -> Written {
    table.put(&item(text, value), soon()).await.expect("stored")
}

async fn store(
    table: &TableEngine,
    texts: impl Iterator<Item = String>,
    value: u64,
    expected: &mut Expected,
) {
    for text in texts {
        put(table, &text, value).await;
        expected.insert(text, value);
    }
}

/// Asserts that an instance finds exactly these items, by pages and one by one.
async fn assert_finds(table: &TableEngine, expected: &Expected, about: &str) {
    assert_eq!(&numbers(&read_items(table, &key(), 30).await), expected, "{about}");
    for (text, value) in expected {
        let found = table.get(&key(), &sort_key(text), true, soon()).await.expect("a response");
        let found = found.and_then(|item| value_of(&item.attributes));
        assert_eq!(found, Some(*value), "{about}: {text}");
    }
}

/// The number of reads of an item of the metadata table on this connection.
fn reads_of(wire: &Wire, key: &str) -> usize {
    let of_key = |call: &Call| {
        !call.to_items && call.operation == "GetItem" && call.key.as_deref() == Some(key)
    };
    wire.calls().iter().filter(|call| of_key(call)).count()
}
