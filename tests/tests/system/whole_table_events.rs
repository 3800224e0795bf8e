//! `rebuild` as an event of the shard-scaler, from the event to the final reads: in virtual time, over
//! the embedded engine.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use embedded_dynamodb::{Engine, InProcess};
use local::in_process_clients;
use serde_json::{Value, json};
use shard_scaler::{Clients, Failed, Scaler, ScalerConfig};
use sharding::internal::{Clock, Deadline, Environment, PageQuery, TableEngine};
use sharding::{Attributes, Item, PartitionKey, TableConfig};
use system_tests::metadata::{self, claimed_tables};
use system_tests::{TestClock, config, count, soon, sort_key};
use tokio::time::sleep;

fn key(text: &str) -> PartitionKey {
    PartitionKey::new(text).expect("a key")
}

fn item(partition_key: &str, text: &str) -> Item {
    let attributes = Attributes::from([("value".to_owned(), sharding::Value::Bool(true))]);
    Item { partition_key: key(partition_key), sort_key: sort_key(text), attributes }
}

struct Fixture {
    client: Client,
    table: TableEngine,
    scaler: Scaler,
    clock: TestClock,
}

async fn fixture(change: impl FnOnce(&mut TableConfig)) -> Fixture {
    let engine = Engine::in_memory().expect("an engine");
    let clients = in_process_clients(&InProcess::new(engine));
    claimed_tables(&clients.dynamodb, &config()).await;
    let (mut of_table, clock) = (config(), TestClock::default());
    change(&mut of_table);
    let client = clients.dynamodb.clone();
    let table =
        TableEngine::with_environment(&client, of_table, Environment::seeded(clock.clone(), 7));
    let clients = Clients { dynamodb: clients.dynamodb, cloudwatch: clients.cloudwatch };
    let scaler =
        Scaler::new(sharding::ShardedTable::over(table.clone()), clients, ScalerConfig::default());
    Fixture { client, table, scaler, clock }
}

impl Fixture {
    async fn send(&self, event: Value) -> Value {
        let now = self.clock.now().epoch_seconds();
        let handled =
            self.scaler.handle(&event, now, Deadline::now() + Duration::from_secs(59)).await;
        handled.unwrap_or_else(Failed::into_response)
    }

    async fn page(&self, partition_key: &str) -> Vec<String> {
        let query =
            PageQuery { limit: 1_000, consistent: true, ..PageQuery::new(key(partition_key)) };
        let page = self.table.query(&query, soon()).await.expect("a page");
        page.items.iter().map(|item| item.sort_key.to_string()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_event_restores_lost_metadata() {
    let fixture = fixture(|_| {}).await;
    let widths = BTreeMap::from([("one", 1), ("five", 5), ("twelve", 12)]);
    for (name, width) in &widths {
        if *width > 1 {
            let width = count(*width);
            fixture.table.set_shards(&key(name), width, soon()).await.expect("grown");
            sleep(Duration::from_secs(5)).await;
        }
        for number in 0..80 {
            fixture
                .table
                .put(&item(name, &format!("order-{number:02}")), soon())
                .await
                .expect("stored");
        }
    }
    fixture.table.finish_background_work().await;
    let mut before = BTreeMap::new();
    for name in widths.keys() {
        before.insert(*name, fixture.page(name).await);
        if *name == "one" {
            continue;
        }
        metadata::lose(&fixture.client, name).await;
        metadata::lose(&fixture.client, &metadata::page_key(name, 0)).await;
    }
    sleep(Duration::from_secs(70)).await;
    for name in ["five", "twelve"] {
        let read = fixture.table.query(&PageQuery::new(key(name)), soon()).await;
        assert!(read.is_err_and(|error| error.to_string().contains("lost")), "{name}");
    }
    let report = fixture.send(json!({"action": "rebuild"})).await;
    assert_eq!((&report["keys"]["created"], &report["astray"]), (&json!(2), &json!(0)), "{report}");
    for (name, width) in &widths {
        assert_eq!(&fixture.page(name).await, &before[name], "{name}");
        if *width > 1 {
            let metadata = fixture
                .table
                .shards(&key(name), soon())
                .await
                .expect("a response")
                .expect("metadata");
            assert_eq!(
                (metadata.number_of_shards.get(), metadata.read_shards.get()),
                (*width, *width),
                "{name}"
            );
            let listed = metadata::entry(&fixture.client, name, 0).await;
            assert_eq!(listed, Some(metadata.layout().to_entry()), "{name}");
        }
    }
}
