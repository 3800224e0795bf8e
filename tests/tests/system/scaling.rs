//! Scaling as a whole: many concurrent writers size a hot key together, by few changes of its
//! metadata.

use std::time::Duration;

use embedded_dynamodb::PartitionLimits;
use sharding::internal::{Deadline, TableEngine};
use sharding::{Attributes, Item, Value};
use system_tests::{Call, Fate, Tables, Wire, config, partition_key, soon, sort_key};
use tokio::task::JoinSet;

/// Each instance sees too few writes to calculate the growth. Together they know the demand.
#[tokio::test(start_paused = true)]
async fn many_slow_instances_size_a_key_together() {
    let tables = Tables::claimed(config()).await;
    let tables = Tables { service_time: Duration::from_millis(5), ..tables };
    let limits = PartitionLimits { partitions: 1_000, ..PartitionLimits::default() };
    tables.engine.set_limits([("items".to_owned(), limits)]);
    let wire = Wire::new(tables.connection(), |_| Fate::Pass);
    let writers: Vec<TableEngine> =
        (0..200).map(|seed| tables.instance_over(wire.clone().into_shared(), seed)).collect();
    let key = partition_key("hot");
    // 200 writes of 20 KB every 125 ms are 32,000 units per second.
    let attributes = Attributes::from([("filler".to_owned(), Value::S("x".repeat(20_000)))]);
    let mut under_way = JoinSet::new();
    for (index, writer) in writers.iter().enumerate() {
        for round in 0..8 {
            let item = Item {
                partition_key: key.clone(),
                sort_key: sort_key(&format!("{index}-{round}")),
                attributes: attributes.clone(),
            };
            let writer = writer.clone();
            under_way.spawn(async move {
                tokio::time::sleep(Duration::from_millis(round as u64 * 125 + index as u64 % 125))
                    .await;
                writer.put(&item, Deadline::now() + Duration::from_secs(9)).await.is_ok()
            });
        }
    }
    let stored = under_way.join_all().await.into_iter().filter(|stored| *stored).count();
    let after = writers[0].shards(&key, soon()).await.expect("read").expect("grown");
    let widths: Vec<_> = after.shard_history.entries().map(|entry| entry.count.get()).collect();
    // Evidence is not part of the protocol.
    let is_change = |call: &&Call| {
        let key = call.key.as_deref().unwrap_or_default();
        let is_evidence = key.starts_with("_sharding:evidence:");
        !call.to_items && call.operation == "UpdateItem" && !is_evidence
    };
    let changes = wire.calls().iter().filter(is_change).count();
    println!("{stored} of 1600 stored; widths {widths:?}; {changes} attempted changes");
    // One instance alone would grow the key to at most 5 times its own load: four or five writes,
    // none of which was accepted.
    assert!(widths.get(1).is_some_and(|width| *width >= 32), "{widths:?}");
    // A change is a close and an open, each of the metadata item and of its page.
    assert!(changes <= 24 * (widths.len() - 1), "{changes} for {widths:?}");
}
