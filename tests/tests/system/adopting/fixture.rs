//! A table with items of another program, over the embedded engine.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use sharding::internal::TableEngine;
use sharding::maintenance::Survey;
use sharding::{Item, TableConfig};
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
        for Item { attributes, .. } in &items {
            assert_eq!(attributes.len(), 1, "only the caller's attributes: {attributes:?}");
        }
        numbers(&items)
    }

    pub(super) async fn get(&self, partition_key: &str, text: &str) -> Option<u64> {
        let found = self.table.get(&key(partition_key), &sort_key(text), true, soon()).await;
        numbers(&[found.expect("a response")?]).remove(text)
    }

    pub(super) async fn survey(&self) -> Survey {
        let (mut survey, mut after) = (Survey::default(), None);
        let next = self.table.survey_metadata_page(&mut survey, None, soon()).await;
        assert_eq!(next.expect("a page"), None);
        loop {
            let page = self.table.survey_page(&mut survey, after.as_ref(), soon()).await;
            after = page.expect("a page").next;
            if after.is_none() {
                return survey;
            }
        }
    }

    /// A new instance without any state.
    pub(super) fn another_instance(&self) -> TableEngine {
        self.tables.instance(8)
    }
}
