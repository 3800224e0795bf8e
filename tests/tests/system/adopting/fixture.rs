//! A table with items of another program, over the embedded engine.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use sharding::internal::TableEngine;
use sharding::maintenance::Survey;
use sharding::{Item, TableConfig, Value};
pub(super) use system_tests::partition_key as key;
use system_tests::{Tables, config, numbers, read_items, scan_stored, soon, sort_key, valued_item};

pub(super) fn item(partition_key: &str, text: &str, value: u64) -> Item {
    valued_item(key(partition_key), text, value)
}

pub(super) struct Fixture {
    tables: Tables,
    pub(super) client: Client,
    pub(super) table: TableEngine,
}

pub(super) async fn fixture(change: impl FnOnce(&mut TableConfig)) -> Fixture {
    let mut config = config();
    config.drain.units_per_second = 20_000;
    change(&mut config);
    let tables = Tables::unclaimed(config).await;
    let table = tables.instance(7);
    // Every key of a table that was empty is armed.
    table.claim_mode(soon()).await.expect("claimed");
    Fixture { client: tables.client.clone(), tables, table }
}

impl Fixture {
    /// Replaces all items of the main table.
    pub(super) async fn restore(&self, backup: Vec<HashMap<String, AttributeValue>>) {
        for mut item in scan_stored(&self.client).await {
            item.retain(|name, _| name == "partition_key" || name == "sort_key");
            let delete = self.client.delete_item().table_name("items").set_key(Some(item));
            delete.send().await.expect("deleted");
        }
        for item in backup {
            let put = self.client.put_item().table_name("items").set_item(Some(item));
            put.send().await.expect("stored");
        }
    }

    /// Reads every item of a key, with its value, by pages.
    pub(super) async fn all(&self, partition_key: &str) -> BTreeMap<String, u64> {
        let items = read_items(&self.table, &key(partition_key), 30).await;
        for item in &items {
            assert_eq!(
                item.attributes.len(),
                1,
                "only the caller's attributes are shown: {item:?}"
            );
        }
        numbers(&items)
    }

    pub(super) async fn get(&self, partition_key: &str, text: &str) -> Option<u64> {
        let found = self
            .table
            .get(&key(partition_key), &sort_key(text), true, soon())
            .await
            .expect("a response")?;
        match found.attributes.get("value") {
            Some(Value::N(value)) => value.parse().ok(),
            other => panic!("{other:?}"),
        }
    }

    /// The stored keys, with the number of items of each.
    pub(super) async fn stored(&self) -> BTreeMap<String, usize> {
        let mut stored = BTreeMap::new();
        for item in scan_stored(&self.client).await {
            let stored_key = item["partition_key"].as_s().expect("a text");
            *stored.entry(stored_key.clone()).or_default() += 1;
        }
        stored
    }

    pub(super) async fn survey(&self) -> Survey {
        let (mut survey, mut after) = (Survey::default(), None);
        assert_eq!(
            self.table.survey_metadata_page(&mut survey, None, soon()).await.expect("a page"),
            None
        );
        loop {
            let page =
                self.table.survey_page(&mut survey, after.as_ref(), soon()).await.expect("a page");
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        survey
    }

    /// A new instance without any state.
    pub(super) fn another_instance(&self) -> TableEngine {
        self.tables.instance(8)
    }
}
