//! What a key costs once it has shrunk, and what it takes once it is settled: measured in virtual time, and printed as tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use local::{clients_over, create_tables, in_process_clients};
use sharding::{
    Attributes, Deadline, Drained, Environment, Item, PageQuery, PartitionKey, ScalingActors, ShardCount, ShardedTable,
    SortKey, SortKeyType, TableConfig, Value,
};
use system_tests::{Fate, TestClock, Wire, config, large_or};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::documented::documented;

const COSTS: &str = include_str!("../../../docs/costs.md");

const ITEMS: usize = 3_000;
const PAGE: usize = 100;
/// Bytes of an item as it is stored, names included.
const ITEM_BYTES: usize = 1_024;

fn soon() -> Deadline {
    Deadline::now() + Duration::from_secs(30)
}

fn key() -> PartitionKey {
    PartitionKey::new("hot").expect("a key")
}

fn item(number: usize, filler: usize) -> Item {
    let sort_key = SortKey::parse(SortKeyType::String, &format!("{number:012}")).expect("a sort key");
    let attributes = Attributes::from([("filler".to_owned(), Value::S("x".repeat(filler)))]);
    Item { partition_key: key(), sort_key, attributes }
}

struct Fixture {
    engine: Engine,
    /// Counts requests, and takes longer the more there were.
    wire: Wire,
    config: TableConfig,
    clock: TestClock,
}

impl Fixture {
    async fn new(limits: PartitionLimits, change: impl FnOnce(&mut TableConfig)) -> Self {
        let engine = Engine::in_memory().expect("an engine");
        engine.set_limits([("items".to_owned(), limits)]);
        create_tables(&in_process_clients(&InProcess::new(engine.clone())).dynamodb, &config()).await.expect("tables");
        let mut of_table = config();
        of_table.drain.units_per_second = 20_000;
        change(&mut of_table);
        let wire = Wire::new(InProcess::new(engine.clone()), |_| Fate::Pass);
        Self { engine, wire, config: of_table, clock: TestClock::default() }
    }

    /// An instance that knows nothing yet.
    fn instance(&self) -> ShardedTable {
        let client = clients_over(self.wire.clone().into_shared()).dynamodb;
        ShardedTable::with_environment(&client, self.config.clone(), Environment::seeded(self.clock.clone(), 7))
    }

    /// As `instance`, without the wire.
    fn plain_instance(&self) -> ShardedTable {
        let client = in_process_clients(&InProcess::new(self.engine.clone())).dynamodb;
        ShardedTable::with_environment(&client, self.config.clone(), Environment::seeded(self.clock.clone(), 7))
    }

    async fn grow(&self, to: u32) {
        let to = ShardCount::new(to).expect("a count");
        self.instance().set_shards(&key(), to, soon()).await.expect("scaled");
        sleep(Duration::from_secs(5)).await;
    }

    async fn drain(&self, table: &ShardedTable) {
        for _ in 0..100 {
            if let Drained::Done { .. } = table.drain(&key(), soon()).await.expect("the tables answer") {
                return;
            }
            sleep(Duration::from_secs(60)).await;
        }
        panic!("the drain does not end");
    }

    fn read_units(&self) -> f64 {
        self.engine.heat("items").iter().map(|partition| partition.read_units).sum()
    }

    /// Requests for so many reads, and the read units of them, each as a mean.
    async fn cost(&self, reads: usize, read: impl AsyncFnOnce()) -> (f64, f64) {
        let (requests, units) = (self.wire.operations().len(), self.read_units());
        read().await;
        let requests = self.wire.operations().len() - requests;
        (requests as f64 / reads as f64, (self.read_units() - units) / reads as f64)
    }

    /// Requests and units, of a page by cursor and of one item, on a new instance.
    async fn read_costs(&self) -> [(f64, f64); 2] {
        let table = self.instance();
        // The first read of an instance does not know how many shards there are.
        table.get(&key(), &item(0, 0).sort_key, false, soon()).await.expect("an answer");
        let pages = self
            .cost(ITEMS / PAGE, async || {
                let mut query = PageQuery { limit: PAGE, ..PageQuery::new(key()) };
                for first in (0..ITEMS).step_by(PAGE) {
                    let page = table.query(&query, soon()).await.expect("a page");
                    assert_eq!((page.items.len(), &page.items[0].sort_key), (PAGE, &item(first, 0).sort_key));
                    query.after = page.items.last().map(|item| item.sort_key.clone());
                }
            })
            .await;
        let gets = self
            .cost(ITEMS, async || {
                for number in 0..ITEMS {
                    let found = table.get(&key(), &item(number, 0).sort_key, false, soon()).await.expect("an answer");
                    assert!(found.is_some(), "{number}");
                }
            })
            .await;
        [pages, gets]
    }
}

/// What an item takes besides its filler.
fn own_bytes() -> usize {
    let named = ["partition_key", "sort_key", "_partition_key", "_version", "filler"].iter().map(|name| name.len());
    // A version of 25 digits takes 14 bytes.
    named.sum::<usize>() + "hot.1".len() + 12 + "hot".len() + 14
}

#[tokio::test(start_paused = true)]
async fn a_key_that_has_shrunk_costs_its_readers_what_one_that_never_grew_does() {
    let unlimited = PartitionLimits { partitions: 1, write_units: 1e9, read_units: 1e9, ..PartitionLimits::default() };
    let filler = ITEM_BYTES - own_bytes();
    let plain = Fixture::new(unlimited, |_| {}).await;
    let table = plain.instance();
    for number in 0..ITEMS {
        table.append(&item(number, filler), soon()).await.expect("stored");
    }
    table.finish_background_work().await;
    let never_grew = plain.read_costs().await;

    let fixture = Fixture::new(unlimited, |_| {}).await;
    fixture.grow(64).await;
    let table = fixture.instance();
    // The first write of an instance may go to shard 1.
    table.shards(&key(), soon()).await.expect("an answer");
    table.get(&key(), &item(0, 0).sort_key, true, soon()).await.expect("an answer");
    for number in 0..ITEMS {
        table.append(&item(number, filler), soon()).await.expect("stored");
    }
    let wide = fixture.read_costs().await;
    table.begin_shrink(&key(), ShardCount::ONE, soon()).await.expect("it begins");
    fixture.drain(&table).await;
    let shrunk = fixture.read_costs().await;

    for (name, [page, get]) in [("64 shards", wide), ("shrunk from 64 to 1", shrunk), ("never grown", never_grew)] {
        let row = format!("| {name} | {:.2} | {:.2} | {:.2} | {:.2} |", page.0, page.1, get.0, get.1);
        documented(COSTS, &row);
    }
    let ([shrunk_page, shrunk_get], [page, get]) = (shrunk, never_grew);
    assert_eq!((shrunk_page.0, shrunk_get), (page.0, get));
    // An item that was at home all along still says that it was placed under 64 shards, in 8 bytes.
    assert!(shrunk_page.1 <= 1.03 * page.1, "{shrunk:?} {never_grew:?}");
    assert!(wide[0].1 > 2.0 * shrunk[0].1, "{wide:?}");
}

/// Write units a second, of puts of new items by many clients. Items of many units make few requests; those that meet no empty partition are
/// let in whole, so that they count for plain writes only.
async fn units_a_second(table: &ShardedTable, next: &Arc<AtomicU64>, units: usize) -> f64 {
    const MEASURED: Duration = Duration::from_secs(1);
    const CLIENTS: usize = 128;
    let stored = Arc::new(AtomicU64::new(0));
    // What the partitions have saved is used up first, and does not count.
    let counts_from = Deadline::now() + MEASURED;
    let until = counts_from + MEASURED;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (table, stored, next) = (table.clone(), Arc::clone(&stored), Arc::clone(next));
        clients.spawn(async move {
            while Deadline::now() < until {
                let number = next.fetch_add(1, Ordering::Relaxed) as usize;
                let put = table.put(&item(number, (units - 1) * 1_024 + 1), until).await;
                if put.is_ok() && Deadline::now() > counts_from {
                    stored.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    clients.join_all().await;
    stored.load(Ordering::Relaxed) as f64 * units as f64 / MEASURED.as_secs_f64()
}

#[tokio::test(start_paused = true)]
#[ignore = "half a minute or more; .ci/run runs it"]
async fn point_writes_of_a_settled_key_grow_with_its_shards() {
    for width in large_or(&[4, 16][..], &[4]).iter().copied() {
        let limits = PartitionLimits { partitions: 256, split_after: None, ..PartitionLimits::default() };
        let fixture = Fixture::new(limits, |of_table| {
            of_table.cold_append = false;
            of_table.scaling = ScalingActors::Alarm;
        })
        .await;
        let (table, next) = (fixture.plain_instance(), Arc::new(AtomicU64::new(0)));
        table.append(&item(ITEMS, 1), soon()).await.expect("stored");
        table.finish_background_work().await;
        fixture.grow(width).await;
        let grown = units_a_second(&table, &next, 1).await;
        sleep(Duration::from_secs(5)).await;
        table.begin_settle(&key(), soon()).await.expect("it begins");
        fixture.drain(&table).await;
        let settled = units_a_second(&table, &next, 10).await;
        let reckoned = 1_000.0 / (2.0 - 1.0 / f64::from(width));
        documented(COSTS, &format!("| {width} | {grown:.0} | {reckoned:.0} | {settled:.0} |"));
        assert!(grown < 700.0, "{grown}");
        assert!(settled > 800.0 * f64::from(width), "{settled}");
    }
}
