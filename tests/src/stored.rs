//! Everything that tables store.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use embedded_dynamodb::Engine;
use serde_json::Value as Json;
use sharding::internal::{Deadline, PageQuery, TableEngine};
use sharding::maintenance::Survey;
use sharding::{Conditions, Item, PartitionKey, ReadError, SortKey, WriteError, Written};

use crate::{metadata, soon, value_of};

/// Sends a request of a service of this version to the engine, past all connections.
pub fn ask(engine: &Engine, service: &str, operation: &str, request: &Json) -> Json {
    let target = format!("{service}.{operation}");
    let response = engine.respond("/", Some(&target), request.to_string().as_bytes());
    let body = serde_json::from_slice(&response.body).expect("JSON");
    assert_eq!(response.status, 200, "{target}: {body}");
    body
}

/// Stores an item as another program does.
pub async fn store_plainly(client: &Client, stored_key: &str, text: &str, value: u64) {
    let put = client.put_item().table_name("items").item("value", metadata::number(value));
    let put = put.item("partition_key", metadata::text(stored_key));
    put.item("sort_key", metadata::text(text)).send().await.expect("stored");
}

/// Requests for one item, without its tag.
pub trait OneItem {
    /// Deletes an item.
    fn delete(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Written, WriteError>> + Send;

    /// Reads an item.
    fn get(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        consistent: bool,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Option<Item>, ReadError>> + Send;
}

impl OneItem for TableEngine {
    async fn delete(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        self.delete_if(key, sort_key, &Conditions::default(), deadline).await
    }

    async fn get(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        consistent: bool,
        deadline: Deadline,
    ) -> Result<Option<Item>, ReadError> {
        let found = self.get_tagged(key, sort_key, consistent, deadline).await?;
        Ok(found.map(|(item, _)| item))
    }
}

/// Reads every item of a key, by pages of this size.
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
pub fn numbers(items: &[Item]) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for item in items {
        let number = value_of(&item.attributes).unwrap_or_else(|| panic!("{item:?}"));
        let before = found.insert(item.sort_key.to_string(), number);
        assert_eq!(before, None, "{} came twice", item.sort_key);
    }
    found
}

/// Reads the whole main table as it is stored.
pub async fn scan_stored(client: &Client) -> Vec<HashMap<String, AttributeValue>> {
    let items = client.scan().table_name("items").into_paginator().items().send();
    items.collect::<Result<_, _>>().await.expect("every page")
}

/// All that the two tables store, as a rebuild finds it.
pub async fn survey(table: &TableEngine) -> Survey {
    let mut survey = Survey::default();
    table.until(soon()).survey(&mut survey, 0, |_| {}).await.expect("every page");
    survey
}
