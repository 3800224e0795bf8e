//! Scaling as a whole: many concurrent writers cause one change, a hot key is relieved within
//! seconds, and reads are exact throughout.

use std::time::Duration;

use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use local::{clients_over, in_process_clients};
use sharding::internal::{Clock, Deadline, Environment, TableEngine, protocol::view::Moment};
use sharding::{Attributes, Item, PartitionKey, SortKey, SortKeyType};
use system_tests::metadata::claimed_tables;
use system_tests::{CountingMetadata, config};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The paused clock of the runtime, for both clocks of an instance.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Moment {
        let elapsed = self.0.elapsed();
        Moment { monotonic: elapsed, wall: Duration::from_secs(1_700_000_000) + elapsed }
    }
}

fn item(key: &PartitionKey, number: usize) -> Item {
    let sort_key =
        SortKey::parse(SortKeyType::String, &format!("{number:08}")).expect("a sort key");
    Item { partition_key: key.clone(), sort_key, attributes: Attributes::new() }
}

#[tokio::test(start_paused = true)]
#[ignore = "half a minute or more; .ci/run runs it"]
async fn two_hundred_throttled_writers_make_one_change() {
    let engine = Engine::in_memory().expect("an engine");
    let limits =
        PartitionLimits { partitions: 1_000, write_units: 1_000.0, ..PartitionLimits::default() };
    engine.set_limits([("items".to_owned(), limits)]);
    let metadata = CountingMetadata::new(
        InProcess::new(engine.clone()).with_service_time(Duration::from_millis(5)),
    );
    let client = clients_over(metadata.clone().into_shared()).dynamodb;
    claimed_tables(&in_process_clients(&InProcess::new(engine.clone())).dynamodb, &config()).await;
    let origin = Instant::now();
    let writers: Vec<_> = (0..200)
        .map(|seed| {
            TableEngine::with_environment(
                &client,
                config(),
                Environment::seeded(PausedClock(origin), seed),
            )
        })
        .collect();
    let key = PartitionKey::new("hot").expect("a key");
    // Ten kilobytes per write: 3,000 units at once, and 3,000 more every half second, against one
    // partition of 1,000 per second.
    let heavy = Attributes::from([("filler".to_owned(), sharding::Value::S("x".repeat(10_000)))]);
    let mut under_way = JoinSet::new();
    for (index, writer) in writers.iter().enumerate() {
        for round in 0..8 {
            let (writer, mut item) = (writer.clone(), item(&key, index * 100 + round));
            item.attributes = heavy.clone();
            let begins = Duration::from_millis(round as u64 * 125 + index as u64 % 100);
            under_way.spawn(async move {
                tokio::time::sleep(begins).await;
                writer.put(&item, Deadline::now() + Duration::from_secs(9)).await.is_ok()
            });
        }
    }
    let stored = under_way.join_all().await.into_iter().filter(|stored| *stored).count();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = writers[0]
        .shards(&key, Deadline::now() + Duration::from_secs(5))
        .await
        .expect("read")
        .expect("grown");
    let scale_outs = after.shard_history.entries().len() - 1;
    let (tried, made) = metadata.updates();
    println!(
        "{stored} of 1600 stored; {scale_outs} scale-out(s) to {}; \
         {made} conditional updates succeeded, {tried} tried",
        after.number_of_shards
    );
    assert!(scale_outs >= 1 && after.number_of_shards.get() > 4, "{after:?}");
    // A close and an open, each of the metadata item and of its page.
    assert!(made <= 4 * scale_outs as u64, "{made} of {tried} for {scale_outs}");
    assert!(tried <= 24 * scale_outs as u64, "{made} of {tried} for {scale_outs}");
}

/// Each instance sees too few writes to calculate the growth. Together they know the demand.
#[tokio::test(start_paused = true)]
async fn many_slow_instances_size_a_key_together() {
    let engine = Engine::in_memory().expect("an engine");
    let limits = PartitionLimits { partitions: 1_000, ..PartitionLimits::default() };
    engine.set_limits([("items".to_owned(), limits)]);
    let client = clients_over(
        InProcess::new(engine.clone()).with_service_time(Duration::from_millis(5)).into_shared(),
    );
    claimed_tables(&in_process_clients(&InProcess::new(engine.clone())).dynamodb, &config()).await;
    let origin = Instant::now();
    let writers: Vec<_> = (0..200)
        .map(|seed| {
            let environment = Environment::seeded(PausedClock(origin), seed);
            TableEngine::with_environment(&client.dynamodb, config(), environment)
        })
        .collect();
    let key = PartitionKey::new("hot").expect("a key");
    // 200 writes of 20 KB every 125 ms are 32,000 units per second.
    let heavy = Attributes::from([("filler".to_owned(), sharding::Value::S("x".repeat(20_000)))]);
    let mut under_way = JoinSet::new();
    for (index, writer) in writers.iter().enumerate() {
        for round in 0..8 {
            let (writer, mut item) = (writer.clone(), item(&key, index * 100 + round));
            item.attributes = heavy.clone();
            under_way.spawn(async move {
                tokio::time::sleep(Duration::from_millis(round as u64 * 125 + index as u64 % 125))
                    .await;
                writer.put(&item, Deadline::now() + Duration::from_secs(9)).await.is_ok()
            });
        }
    }
    let stored = under_way.join_all().await.into_iter().filter(|stored| *stored).count();
    let after = writers[0]
        .shards(&key, Deadline::now() + Duration::from_secs(5))
        .await
        .expect("read")
        .expect("grown");
    let widths: Vec<_> = after.shard_history.entries().map(|entry| entry.count.get()).collect();
    println!("{stored} of 1600 stored; widths {widths:?}");
    // One instance alone would grow the key to at most 5 times its own load: four or five writes,
    // none of which was accepted.
    assert!(widths.get(1).is_some_and(|width| *width >= 32), "{widths:?}");
}
