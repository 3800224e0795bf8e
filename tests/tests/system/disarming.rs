//! Disarming of keys that are armed already: their items are as another program stores them.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sharding::TableError;
use sharding::internal::TableEngine;
use sharding::maintenance::{Disarming, PlainPage};
use system_tests::{config, count, soon};
use tokio::time::sleep;

use crate::arming::{ARMING, Fixture, key, pattern, put, refused};

/// A table with the keys of `prefix:a/` armed: one of their items is new, and one is deleted.
async fn armed() -> (Fixture, TableEngine) {
    let fixture = Fixture::new().await;
    let (table, _) = fixture.instance(1, config());
    table.arm(&pattern("prefix:a/"), soon()).await.expect("armed");
    sleep(Duration::from_secs(ARMING + 1)).await;
    put(&table, "a/1", "order-0001").await.expect("stored");
    // As the deletion of an item that its creation may still repeat.
    let tombstone = [
        ("partition_key", AttributeValue::S("a/1".to_owned())),
        ("sort_key", AttributeValue::S("order-0002".to_owned())),
        ("_sh:v", AttributeValue::N("1001700000000000000000000000".to_owned())),
        ("_sh:d", AttributeValue::Bool(true)),
    ];
    let tombstone = tombstone.map(|(name, value)| (name.to_owned(), value)).into();
    let put = fixture.tables.client.put_item().table_name("items").set_item(Some(tombstone));
    put.send().await.expect("stored");
    (fixture, table)
}

async fn begun(tool: &TableEngine) -> Disarming {
    let disarming = tool.begin_disarming(&pattern("prefix:a/"), soon()).await.expect("begun");
    sleep(Duration::from_secs(ARMING + 1)).await;
    disarming
}

async fn pass(tool: &TableEngine, disarming: &Disarming) -> PlainPage {
    let (page, next) = tool.disarm_page(disarming, None, soon()).await.expect("a page");
    assert_eq!(next, None);
    page
}

#[tokio::test(start_paused = true)]
async fn disarmed_keys_have_the_items_of_a_plain_table() {
    let (fixture, _) = armed().await;
    let (tool, _) = fixture.instance(2, config());
    let disarming = tool.begin_disarming(&pattern("prefix:a/"), soon()).await.expect("begun");
    let early = tool.disarm_page(&disarming, None, soon()).await;
    assert!(matches!(early, Err(TableError::Rejected(_))), "{early:?}");
    sleep(Duration::from_secs(ARMING + 1)).await;
    let page = pass(&tool, &disarming).await;
    assert_eq!((page.changed, page.tombstones), (1, 1), "{page:?}");
    assert_eq!(pass(&tool, &disarming).await.changed, 0);
    tool.end_disarming(disarming, soon()).await.expect("ended");

    let scanned = fixture.tables.client.scan().table_name("items").send().await.expect("a scan");
    let items = scanned.items.expect("items");
    assert_eq!(items.len(), 39);
    for item in &items {
        let names: Vec<_> = item.keys().filter(|name| name.starts_with("_sh:")).collect();
        assert_eq!(names, Vec::<&String>::new());
    }
    let stored = |item: &&std::collections::HashMap<String, AttributeValue>| {
        AttributeValue::as_s(&item["sort_key"]) == Ok(&"order-0001".to_owned())
    };
    let values: Vec<_> = items.iter().filter(stored).map(|item| item["value"].as_n()).collect();
    assert!(values.contains(&Ok(&"2".to_owned())), "{values:?}");
    let (new, _) = fixture.instance(3, config());
    assert_eq!(refused(put(&new, "a/1", "order-0001").await), None);
    assert!(new.armed(soon()).await.expect("patterns").patterns().next().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_still_writes_is_seen() {
    let (fixture, running) = armed().await;
    let (tool, _) = fixture.instance(2, config());
    let disarming = begun(&tool).await;
    assert_eq!(pass(&tool, &disarming).await.changed, 1);
    put(&running, "a/1", "order-0003").await.expect("it has read that the pattern counts");
    assert_eq!(pass(&tool, &disarming).await.changed, 1, "the second pass finds its item");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_has_grown_stays_armed() {
    let (fixture, table) = armed().await;
    table.set_shards(&key("a/1"), count(4), soon()).await.expect("grown");
    let (tool, _) = fixture.instance(2, config());
    let refused = tool.begin_disarming(&pattern("prefix:a/"), soon()).await;
    let why = refused.expect_err("it has grown").to_string();
    assert!(why.contains("a/1 has grown"), "{why}");
    let absent = tool.begin_disarming(&pattern("*"), soon()).await;
    assert!(matches!(absent, Err(TableError::ConditionFailed)), "{absent:?}");
}
