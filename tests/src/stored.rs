//! Tables in an embedded engine, and everything that they store.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use embedded_dynamodb::{Engine, InProcess};
use local::in_process_clients;
use sharding::internal::{PageQuery, TableEngine};
use sharding::{Item, PartitionKey, Value, create_tables};

use crate::{config, soon};

/// A new engine with the two tables of [`config`].
///
/// # Panics
/// If the tables cannot be created.
pub async fn engine_with_tables() -> Engine {
    let engine = Engine::in_memory().expect("an engine");
    let client = in_process_clients(&InProcess::new(engine.clone())).dynamodb;
    create_tables(&client, &config()).await.expect("tables");
    engine
}

/// Reads every item of a key, by pages of this size.
///
/// # Panics
/// If a page cannot be read.
pub async fn read_items(table: &TableEngine, key: &PartitionKey, limit: usize) -> Vec<Item> {
    let mut query = PageQuery { limit, consistent: true, ..PageQuery::new(key.clone()) };
    let mut items = Vec::new();
    loop {
        let page = table.query(&query, soon()).await.expect("a page");
        items.extend(page.items);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return items,
        }
    }
}

/// The numbers of items ([`valued_item`](crate::valued_item)) by sort key.
///
/// # Panics
/// If an item has no number, or came twice.
#[must_use]
pub fn numbers(items: &[Item]) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for item in items {
        let Some(Value::N(number)) = item.attributes.get("value") else { panic!("{item:?}") };
        let before = found.insert(item.sort_key.to_string(), number.parse().expect("a number"));
        assert_eq!(before, None, "{} came twice", item.sort_key);
    }
    found
}

/// Reads the whole main table as it is stored.
///
/// # Panics
/// If a page cannot be read.
pub async fn scan_stored(client: &Client) -> Vec<HashMap<String, AttributeValue>> {
    let (mut start, mut stored) = (None, Vec::new());
    loop {
        let scan = client.scan().table_name("items").set_exclusive_start_key(start);
        let page = scan.send().await.expect("a page");
        stored.extend(page.items.unwrap_or_default());
        start = page.last_evaluated_key;
        if start.is_none() {
            return stored;
        }
    }
}
