//! The throughput of a grown key: writes of each kind on partitions of 1,000 write units per
//! second, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use embedded_dynamodb::PartitionLimits;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use sharding::internal::TableEngine;
use sharding::maintenance::Drained;
use sharding::{
    Attributes, Item, PartitionKey, ScalingActors, Value, WriteError, WriteErrorKind, Written,
};
use system_tests::{Tables, UNLIMITED, config, count, large_or, partition_key, soon, sort_key};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::documented::documented;

const COSTS: &str = include_str!("../../../docs/costs.md");

/// Enough partitions that no two shards share one. They never split.
const LIMITS: PartitionLimits = PartitionLimits {
    partitions: 65_536,
    write_units: 1_000.0,
    read_units: 3_000.0,
    provisioned_write_units: None,
    split_after: None,
    doubles_after: None,
    ..PartitionLimits::NEW_ON_DEMAND_TABLE
};

fn key() -> PartitionKey {
    partition_key("hot")
}

/// An item with this number of write units.
fn item(number: u64, units: u64) -> Item {
    let filler = "x".repeat(usize::try_from(units - 1).expect("few units") * 1_024 + 1);
    let attributes = Attributes::from([("filler".to_owned(), Value::S(filler))]);
    Item { partition_key: key(), sort_key: sort_key(&format!("{number:012}")), attributes }
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

/// The writes to measure.
#[derive(Debug, Clone, Copy)]
struct Load {
    kind: Kind,
    /// The write units of each item. Items of many units need few requests.
    units: u64,
    /// The first item.
    from: u64,
    /// The end of the items, exclusive.
    to: u64,
    /// The duration of the measurement.
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
    let mut rows = Vec::new();
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
        table.set_shards(&key(), count(width), soon()).await.expect("grown");
        let units = if width <= 4 { 2 } else { 20 };
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
            table.begin_settle(&key(), soon()).await.expect("it begins");
            while !matches!(
                table.drain(&key(), soon()).await.expect("a response"),
                Drained::Done { .. } | Drained::Nothing
            ) {
                sleep(Duration::from_secs(30)).await;
            }
            units_a_second(&table, width, Load { units, from: end, ..of_creations }).await.0
        };
        let row = format!("| {width} | {puts:.0} | {deletes:.0} | {creations:.0} | {settled:.0} |");
        println!("{row}");
        rows.push(row);
        let least = 900.0 * f64::from(width);
        assert!(
            puts >= least && deletes >= least && settled >= least,
            "{width}: {puts} {deletes} {settled}"
        );
        assert!(creations >= if width >= 4 { 2_500.0 } else { least }, "{width}: {creations}");
    }
    for row in &rows {
        documented(COSTS, row);
    }
}

/// A demand of 20,000 write units per second, on a key of one shard and 1,000 partitions.
struct Relief {
    /// The seconds until permanently fewer than 1 % of a second's first attempts are throttled.
    after: u64,
    accepted: f64,
    width: u32,
}

async fn relieved(kind: Kind, sort_keys: u64) -> Relief {
    /// The units of an item. Large items need few requests.
    const UNITS: u64 = 40;
    const DEMAND: u64 = 20_000 / UNITS;
    const SECONDS: u64 = 12;
    let tables = Tables::claimed(config()).await;
    let tables = Tables { service_time: Duration::from_millis(3), ..tables };
    let limits = PartitionLimits { partitions: 1_000, ..LIMITS };
    tables.engine.set_limits([("items".to_owned(), limits)]);
    let instances: Vec<TableEngine> = (0..20).map(|seed| tables.instance(seed)).collect();
    let began = Instant::now();
    let mut writes = JoinSet::new();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    for number in 0..DEMAND * SECONDS {
        // By chance, or one instance would get all that a partition accepts.
        let table = instances[rng.random_range(0..instances.len())].clone();
        let at = (number as f64 + rng.random::<f64>()) / DEMAND as f64;
        writes.spawn(async move {
            sleep_until(began + Duration::from_secs_f64(at)).await;
            let written = send(&table, kind, &item(number % sort_keys, UNITS)).await;
            let at_once = written.as_ref().is_ok_and(|written| written.throttled == 0);
            (number / DEMAND, at_once, written.is_ok())
        });
    }
    let written = writes.join_all().await;
    let is_calm = |second: &u64| {
        let of_second = || written.iter().filter(|(at, _, _)| at == second);
        of_second().filter(|(_, at_once, _)| !at_once).count() * 100 < of_second().count()
    };
    let after = (0..SECONDS).rev().take_while(is_calm).last().unwrap_or(SECONDS);
    let accepted =
        written.iter().filter(|(_, _, accepted)| *accepted).count() as f64 / written.len() as f64;
    let metadata =
        instances[0].shards(&key(), soon()).await.expect("a response").expect("metadata");
    Relief { after, accepted, width: metadata.number_of_shards.get() }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_relieved_whatever_its_writes_are() {
    let rows = [
        ("POST of new items", Kind::Put, u64::MAX),
        ("PUT of a thousand items", Kind::Put, 1_000),
        ("create-only POST", Kind::Create, u64::MAX),
    ];
    for (name, kind, sort_keys) in rows {
        let Relief { after, accepted, width } = relieved(kind, sort_keys).await;
        println!("| {name} | {after} s | {:.1} % | {width} |", accepted * 100.0);
        assert!(after <= 5, "{name}: {after} s");
        assert!(
            accepted >= 0.99 && (20..=160).contains(&width),
            "{name}: {accepted} of all, {width} shards"
        );
    }
}
