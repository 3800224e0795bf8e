//! The capacity of a grown key: writes of each kind on partitions of 1,000 write units per
//! second, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use embedded_dynamodb::PartitionLimits;
use sharding::internal::TableEngine;
use sharding::maintenance::Drained;
use sharding::{Item, ScalingActors, WriteError, WriteErrorKind, Written};
use system_tests::{
    Call, Fate, OneItem, Tables, UNLIMITED, Wire, config, count, filled_item, large_or, soon,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::documented::documented;
use crate::one_key::key;

/// Enough partitions that no two shards share one.
const LIMITS: PartitionLimits = PartitionLimits {
    partitions: 65_536,
    write_units: 1_000.0,
    read_units: 3_000.0,
    provisioned_write_units: None,
    ..PartitionLimits::NEW_ON_DEMAND_TABLE
};

fn item(number: u64, units: u64) -> Item {
    let bytes = usize::try_from(units - 1).expect("few units") * 1_024 + 1;
    filled_item(key(), &format!("{number:012}"), bytes)
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A POST and a PUT are the same write.
    Put,
    Create,
    Delete,
}

async fn send(table: &TableEngine, kind: Kind, item: &Item) -> Result<Written, WriteError> {
    match kind {
        Kind::Put => table.put(item, soon()).await,
        Kind::Create => table.create(item, None, soon()).await,
        Kind::Delete => table.delete(&item.partition_key, &item.sort_key, soon()).await,
    }
}

#[derive(Debug, Clone, Copy)]
struct Load {
    kind: Kind,
    /// The write units of each item. Items of many units need few requests.
    units: u64,
    from: u64,
    /// The end of the items, exclusive.
    to: u64,
    lasts: Duration,
}

/// The write units per second, and the first item that was not written.
async fn units_a_second(table: &TableEngine, width: u32, load: Load) -> (f64, u64) {
    // The saved capacity of the partitions is used up first, and does not count.
    const WARM_UP: Duration = Duration::from_secs(1);
    let (stored, next) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(load.from)));
    let counts_from = Instant::now() + WARM_UP;
    let until = counts_from + load.lasts;
    let mut clients = JoinSet::new();
    for _ in 0..64 + 8 * width {
        let (table, stored, next) = (table.clone(), Arc::clone(&stored), Arc::clone(&next));
        clients.spawn(async move {
            while Instant::now() < until {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= load.to {
                    return;
                }
                // A client repeats a write that found no capacity for two seconds.
                while let Err(error) = send(&table, load.kind, &item(number, load.units)).await {
                    assert!(matches!(error.kind, WriteErrorKind::Capacity { .. }), "{error}");
                }
                let now = Instant::now();
                if now > counts_from && now <= until {
                    stored.fetch_add(load.units, Ordering::Relaxed);
                }
            }
        });
    }
    clients.join_all().await;
    let units = stored.load(Ordering::Relaxed) as f64 / load.lasts.as_secs_f64();
    (units, next.load(Ordering::Relaxed).min(load.to))
}

#[tokio::test(start_paused = true)]
async fn writes_of_every_kind_grow_with_the_shards() {
    const SECOND: Duration = Duration::from_secs(1);
    const NO_END: u64 = u64::MAX;
    for width in large_or(&[1, 4, 16, 64][..], &[1, 4]).iter().copied() {
        let tables = Tables::claimed(config().with(|config| {
            config.scaling = ScalingActors::Alarm;
            config.drain.units_per_second = 20_000;
        }))
        .await;
        let limits = [("items", LIMITS), ("items-metadata", UNLIMITED)];
        tables.engine.set_limits(limits.map(|(name, limits)| (name.to_owned(), limits)));
        let table = tables.instance(7);
        table.put(&item(0, 1), soon()).await.expect("stored");
        table.finish_background_work().await;
        table.until(soon()).grow(&key(), count(width)).await.expect("grown");
        let units = if width == 1 { 2 } else { 20 };
        let rest = || sleep(Duration::from_secs(5));

        rest().await;
        let of_puts = Load { kind: Kind::Put, units, from: 1, to: NO_END, lasts: 2 * SECOND };
        let (puts, end) = units_a_second(&table, width, of_puts).await;
        rest().await;
        let of_deletes = Load { kind: Kind::Delete, to: end, lasts: SECOND, ..of_puts };
        let (deletes, _) = units_a_second(&table, width, of_deletes).await;
        rest().await;
        // A creation reads the item's old places. Shard 1 is an old place of nearly all items, so
        // its reads are the limit.
        let of_creations =
            Load { kind: Kind::Create, units: 1, from: end, to: NO_END, lasts: SECOND };
        let (creations, end) = units_a_second(&table, width, of_creations).await;
        let settled = if width == 1 {
            creations
        } else {
            rest().await;
            table.until(soon()).settle(&key()).await.expect("it begins");
            while !matches!(
                table.until(soon()).drain(&key(), &[]).await.expect("a response"),
                Drained::Done { .. } | Drained::Nothing
            ) {
                sleep(Duration::from_secs(30)).await;
            }
            units_a_second(&table, width, Load { units, from: end, ..of_creations }).await.0
        };
        let row = format!("| {width} | {puts:.0} | {deletes:.0} | {creations:.0} | {settled:.0} |");
        let least = 900.0 * f64::from(width);
        assert!(
            puts >= least && deletes >= least && settled >= least,
            "{width}: {puts} {deletes} {settled}"
        );
        assert!(creations >= if width >= 4 { 2_500.0 } else { least }, "{width}: {creations}");
        documented(&row);
    }
}

/// Each instance sees too few writes to calculate the growth. Together they know the demand, and one
/// of them changes the key.
#[tokio::test(start_paused = true)]
async fn many_slow_instances_size_a_key_together_for_every_write() {
    for kind in [Kind::Put, Kind::Create] {
        let service_time = Duration::from_millis(5);
        let tables = Tables { service_time, ..Tables::claimed(config()).await };
        let limits = PartitionLimits { partitions: 1_000, ..PartitionLimits::default() };
        tables.engine.set_limits([("items".to_owned(), limits)]);
        let wire = Wire::new(tables.connection(), |_| Fate::Pass);
        let instances: Vec<TableEngine> =
            (0..200).map(|seed| tables.instance_over(wire.clone().into_shared(), seed)).collect();
        // 200 writes of 20 units every 125 ms are 32,000 units per second.
        let mut writes = JoinSet::new();
        for (index, table) in (0..).zip(&instances) {
            for round in 0..8 {
                let (table, item) = (table.clone(), item(8 * index + round, 20));
                writes.spawn(async move {
                    sleep(Duration::from_millis(125 * round + index % 125)).await;
                    send(&table, kind, &item).await.is_ok()
                });
            }
        }
        writes.join_all().await;
        let metadata = instances[0].until(soon()).metadata(&key()).await.expect("a response");
        let history = metadata.expect("it has grown").shard_history;
        let widths: Vec<_> = history.entries().map(|entry| entry.count.get()).collect();
        // Evidence is not part of the protocol.
        let is_change = |call: &&Call| {
            let is_evidence =
                call.key.as_ref().is_some_and(|key| key.starts_with("_sharding:evidence:"));
            !call.to_items && call.operation == "UpdateItem" && !is_evidence
        };
        let changes = wire.calls().iter().filter(is_change).count();
        // One instance alone would grow the key to at most 5 times its own load: four or five
        // writes, none of which was accepted.
        assert!(widths.get(1).is_some_and(|width| *width >= 32), "{kind:?}: {widths:?}");
        // A change is a close and an open, each of the metadata item and of its page. Of instances
        // that decide at the same moment, several try.
        assert!(changes <= 32 * (widths.len() - 1), "{kind:?}: {changes} for {widths:?}");
    }
}
