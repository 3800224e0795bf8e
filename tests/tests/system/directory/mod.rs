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
mod renewing;
mod torn;
mod warm;

use sharding::internal::TableEngine;
use sharding::{PartitionKey, Written};
use system_tests::metadata::{self, entry_name, page_key, text};
use system_tests::{Call, Tables, Wire, config, count, numbered, partition_key, soon};

use crate::one_key::{Expected, KEY, assert_finds, get, item, key, shards};

const REFUSED: &str =
    r#"{"__type":"com.amazon.coral.validate#ValidationException","message":"no"}"#;

/// Tables with a key of this width, the instance that has stored its items, and the items.
async fn grown(width: u32, items: u32) -> (Tables, TableEngine, Expected) {
    let tables = Tables::claimed(config()).await;
    let (table, mut expected) = (tables.instance(1), Expected::new());
    table.until(soon()).grow(&key(), count(width)).await.expect("grown");
    store(&table, numbered(0..items), 1, &mut expected).await;
    (tables, table, expected)
}

/// The key's entry in a copy of its page.
async fn entry_in(tables: &Tables, copy: u32) -> Option<String> {
    metadata::entry(&tables.client, KEY, copy).await
}

/// Sets the key's entry in a copy of its page.
async fn list(tables: &Tables, copy: u32, entry: &str) {
    let (page, name) = (page_key(KEY, copy), entry_name(KEY));
    metadata::set(&tables.client, &page, [(name.as_str(), text(entry))]).await;
}

/// The entry that the key's page should have, from the metadata item.
async fn entry_of_item(tables: &Tables) -> String {
    shards(&tables.instance(99)).await.layout().to_entry()
}

/// Asserts that this many copies of the key's page have what its item says.
async fn assert_copies(tables: &Tables, copies: u32, about: &str) {
    let entry = Some(entry_of_item(tables).await);
    for copy in 0..copies {
        assert_eq!(entry_in(tables, copy).await, entry, "{about}: copy {copy}");
    }
}

/// Other keys on the page of [`KEY`].
fn neighbours() -> impl Iterator<Item = PartitionKey> {
    let names = (0..).map(|number| format!("neighbour-{number}"));
    let names = names.filter(|name| page_key(name, 0) == page_key(KEY, 0));
    names.map(|name| partition_key(&name))
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

/// The number of updates of items of the metadata table on this connection.
fn updates(wire: &Wire) -> usize {
    wire.calls().iter().filter(|call| !call.to_items && call.operation == "UpdateItem").count()
}

/// The number of reads of an item of the metadata table on this connection.
fn reads_of(wire: &Wire, key: &str) -> usize {
    let of_key = |call: &Call| {
        !call.to_items && call.operation == "GetItem" && call.key.as_deref() == Some(key)
    };
    wire.calls().iter().filter(|call| of_key(call)).count()
}
