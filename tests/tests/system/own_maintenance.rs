//! The example `own_maintenance` of the crate, over the embedded engine.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use embedded_dynamodb::Engine;
use sharding::{Attributes, PartitionKey, ShardCount, ShardedTable, TableConfig};

#[path = "../../../shared/examples/own_maintenance.rs"]
#[expect(dead_code, reason = "its main function needs a server")]
mod example;

#[tokio::test]
async fn a_program_of_ones_own_grows_shrinks_and_tidies_a_key() {
    let engine = Engine::in_memory().unwrap();
    let client = Client::new(&engine.sdk_config());
    let config = TableConfig::new("tickets", "tickets-metadata");
    let quick = config.clone().drain_wait(Duration::from_secs(5)).unwrap();
    example::run(&client, quick).await.unwrap();

    let table = ShardedTable::new(&client, config);
    let concert = PartitionKey::new("concert").unwrap();
    let metadata = table.maintenance().metadata(&concert).await.unwrap();
    assert_eq!(metadata.unwrap().number_of_shards, ShardCount::ONE);
    let seats = table.query::<Attributes>("concert").consistent(true);
    assert_eq!(seats.count().await.unwrap(), 39);
    let stored = client.scan().table_name("tickets").send().await.unwrap();
    assert_eq!(stored.count(), 39, "no tombstone is left");
}
