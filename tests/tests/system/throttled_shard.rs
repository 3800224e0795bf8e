//! A shard whose partition others fill: a write whose sort key is made for it goes elsewhere.

use std::collections::BTreeSet;
use std::future::ready;
use std::iter::repeat_with;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use embedded_dynamodb::{Engine, InProcess};
use local::in_process_clients;
use sharding::internal::{Deadline, Environment, PartitionModel, SystemClock, TableEngine};
use sharding::{Attributes, Item, PartitionKey, ShardCount, WriteErrorKind, Writes};
use system_tests::config;
use system_tests::metadata::claimed_tables;

const APPENDS: u32 = 200;

/// The partition of the key's first shard throttles every write.
#[derive(Debug)]
struct FirstShardThrottled;

impl PartitionModel for FirstShardThrottled {
    fn write(&self, shard_key: String, _: u64) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(ready(shard_key != "hot"))
    }
}

async fn appends(writes: Writes) {
    let in_process = InProcess::new(Engine::in_memory().expect("an engine"));
    let client = in_process_clients(&in_process).dynamodb;
    let config = config().with(|config| config.writes = writes);
    claimed_tables(&client, &config).await;
    let environment = Environment::seeded(SystemClock::default(), 7);
    let model = Arc::new(FirstShardThrottled);
    let table = TableEngine::over_model(&client, config, environment, model);
    let key = PartitionKey::new("hot").expect("a key");
    let deadline = || Deadline::now() + Duration::from_secs(5);
    let eight = ShardCount::new(8).expect("a number of shards");
    table.set_shards(&key, eight, deadline()).await.expect("it grows");

    let (mut throttled, mut shards) = (0, BTreeSet::new());
    for _ in 0..APPENDS {
        let written = table.append(key.clone(), Attributes::new(), deadline()).await;
        let written = written.expect("another shard takes it");
        throttled += written.throttled;
        shards.insert(written.shard);
    }
    assert_eq!(shards, (2..=8).collect(), "all other shards are used");
    // The first append that finds it tells the others for a second.
    assert!(throttled < APPENDS / 20, "{throttled} attempts were throttled");

    // A sort key of the caller's stays on its shard.
    let first = repeat_with(|| table.make_sort_key());
    for sort_key in first.take(40) {
        let item = Item { partition_key: key.clone(), sort_key, attributes: Attributes::new() };
        if let Err(error) = table.put(&item, deadline()).await {
            assert!(matches!(error.kind, WriteErrorKind::Capacity { .. }), "{error}");
            assert_eq!(error.sort_key.as_deref(), Some(&item.sort_key));
            return;
        }
    }
    panic!("no item has its place on the first shard");
}

#[tokio::test]
async fn an_append_leaves_a_throttled_shard() {
    appends(Writes::Items).await;
    appends(Writes::Appends).await;
}
