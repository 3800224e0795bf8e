//! Metadata that another program wrote, without a history: its width is not forgotten when the key grows.

use aws_sdk_dynamodb::types::AttributeValue;
use embedded_dynamodb::{Engine, InProcess};
use local::{create_tables, in_process_clients};
use sharding::{Attributes, Item, PartitionKey, ShardCount, ShardedTable, SortKey, SortKeyType};
use system_tests::{config, soon};

#[tokio::test(start_paused = true)]
async fn items_under_the_width_of_before_are_found_after_growth() {
    let client = in_process_clients(&InProcess::new(Engine::in_memory().expect("an engine"))).dynamodb;
    create_tables(&client, &config()).await.expect("tables");
    client
        .put_item()
        .table_name("items-metadata")
        .item("partition_key", AttributeValue::S("k".into()))
        .item("number_of_shards", AttributeValue::N("10".into()))
        .send()
        .await
        .expect("stored");
    let table = ShardedTable::new(&client, config());
    let key = PartitionKey::new("k").expect("a key");
    table.shards(&key, soon()).await.expect("read");
    let sort_keys: Vec<SortKey> =
        (0..60).map(|n| SortKey::parse(SortKeyType::String, &format!("{n:02}")).expect("a sort key")).collect();
    for sort_key in &sort_keys {
        let item = Item { partition_key: key.clone(), sort_key: sort_key.clone(), attributes: Attributes::new() };
        table.put(&item, soon()).await.expect("stored");
    }
    table.set_shards(&key, ShardCount::new(20).expect("a count"), soon()).await.expect("grown");
    for sort_key in &sort_keys {
        assert!(table.get(&key, sort_key, true, soon()).await.expect("read").is_some(), "{sort_key}");
    }
}
