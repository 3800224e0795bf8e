//! The cost of a drain, and the cost of reading a key after it: measured in virtual time, and
//! printed as tables.

use std::time::Duration;

use embedded_dynamodb::PartitionLimits;
use sharding::internal::{Clock, Deadline, PageQuery, TableEngine};
use sharding::maintenance::Drained;
use sharding::{Item, Placement};
use system_tests::{OneItem, UNLIMITED, config, count, filled_item, large_or, large_tests, soon};
use tokio::time::{Instant, sleep};

use crate::documented::documented;
use crate::one_key::{self, Fixture, key};

const ITEMS: usize = 3_000;
const PAGE: usize = 100;
/// The size of a stored item in bytes, including names.
const ITEM_BYTES: usize = 1_024;

fn item(number: usize, filler: usize) -> Item {
    filled_item(key(), &format!("{number:012}"), filler)
}

/// Tables without a claim. The wire counts requests, and slows down as the count rises.
async fn fixture(limits: PartitionLimits) -> Fixture {
    let fixture = one_key::fixture(|of_table| of_table.drain = config().drain).await;
    fixture.tables.engine.set_limits([("items".to_owned(), limits)]);
    fixture
}

impl Fixture {
    fn counted_instance(&self) -> TableEngine {
        self.tables.instance_over(self.wire.clone().into_shared(), 7)
    }

    /// Continues the drain as soon as possible, and returns its duration.
    async fn drain_at_once(&self, table: &TableEngine) -> Duration {
        let began = Instant::now();
        for _ in 0..1_000 {
            let deadline = Deadline::now() + Duration::from_secs(30);
            match table.until(deadline).drain(&key(), &[]).await.expect("the tables respond") {
                Drained::Done { .. } => return began.elapsed(),
                Drained::Nothing => panic!("no other instance drains"),
                Drained::Waiting { until } => {
                    let until = Duration::from_secs(until);
                    sleep(until.saturating_sub(self.tables.clock.now().wall)).await;
                }
                Drained::Working { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        panic!("the drain does not end");
    }

    /// The mean number of requests and of read units per read.
    async fn cost(&self, reads: usize, read: impl AsyncFnOnce()) -> (f64, f64) {
        let (requests, [_, before]) = (self.wire.operations().len(), self.tables.units());
        read().await;
        let (requests, [_, after]) = (self.wire.operations().len() - requests, self.tables.units());
        (requests as f64 / reads as f64, (after - before) / reads as f64)
    }

    /// Requests and units of a page by cursor and of one item, on a new instance.
    async fn read_costs(&self) -> [(f64, f64); 2] {
        let table = self.counted_instance();
        // The first read of an instance does not know the number of shards.
        table.get(&key(), &item(0, 0).sort_key, false, soon()).await.expect("a response");
        let pages = self
            .cost(ITEMS / PAGE, async || {
                let mut query = PageQuery { limit: PAGE, ..PageQuery::new(key()) };
                for first in (0..ITEMS).step_by(PAGE) {
                    let page = table.query(&query, soon()).await.expect("a page");
                    assert_eq!(page.items.len(), PAGE);
                    assert_eq!(page.items[0].sort_key, item(first, 0).sort_key);
                    query.after = page.items.last().map(|item| item.sort_key.clone());
                }
            })
            .await;
        let gets = self
            .cost(ITEMS, async || {
                for number in 0..ITEMS {
                    let found = table.get(&key(), &item(number, 0).sort_key, false, soon()).await;
                    assert!(found.expect("a response").is_some(), "{number}");
                }
            })
            .await;
        [pages, gets]
    }
}

fn own_bytes() -> usize {
    let named = ["partition_key", "sort_key", "_sh:v", "filler"].iter().map(|name| name.len());
    // A version of 28 digits takes 15 bytes.
    named.sum::<usize>() + "hot".len() + 12 + 15
}

#[tokio::test(start_paused = true)]
async fn a_shrunk_key_costs_its_readers_what_a_never_grown_one_does() {
    let filler = ITEM_BYTES - own_bytes();
    let store_all = async |table: &TableEngine| {
        for number in 0..ITEMS {
            table.put(&item(number, filler), soon()).await.expect("stored");
        }
    };
    let plain = fixture(UNLIMITED).await;
    let table = plain.counted_instance();
    store_all(&table).await;
    table.finish_background_work().await;
    let never_grew = plain.read_costs().await;

    let fixture = fixture(UNLIMITED).await;
    fixture.grow(64).await;
    let table = fixture.counted_instance();
    store_all(&table).await;
    let wide = fixture.read_costs().await;
    let began = Instant::now();
    table.until(soon()).shrink(&key(), count(1)).await.expect("it begins");
    fixture.drain_at_once(&table).await;
    let took = began.elapsed();
    let shrunk = fixture.read_costs().await;

    let rows = [("64 shards", wide), ("shrunk from 64 to 1", shrunk), ("never grown", never_grew)];
    for (name, [(pages, page_units), (gets, get_units)]) in rows {
        let page = format!("{pages:.2} | {page_units:.2}");
        documented(&format!("| {name} | {page} | {gets:.2} | {get_units:.2} |"));
    }
    documented(&format!("| 64 to 1 | {ITEMS} | {:.0} |", took.as_secs_f64().ceil()));
    // Two waits, and the moves.
    assert!(took < Duration::from_secs(25 * 60), "{took:?}");
    let ([shrunk_page, shrunk_get], [page, get]) = (shrunk, never_grew);
    assert_eq!((shrunk_page.0, shrunk_get), (page.0, get));
    // An item that was always at home still has the 8 bytes of its placement under 64 shards. Units
    // are counted in halves.
    assert!(shrunk_page.1 <= page.1 + 0.5, "{shrunk:?} {never_grew:?}");
    assert!(wide[0].1 > 2.0 * shrunk[0].1, "{wide:?}");
}

/// A key that grew from 1 to 16 shards under writes, which continue while it is settled.
#[tokio::test(start_paused = true)]
async fn settling_under_load_costs_two_units_for_each_moved_kilobyte() {
    let items = large_or(8_000, 3_000);
    // 1,000 write units per second for each partition, and enough partitions that no two shards
    // share one.
    let limits = PartitionLimits { partitions: 65_536, ..PartitionLimits::default() };
    let unlimited = PartitionLimits { write_units: 1e9, read_units: 1e9, ..limits };
    let fixture = fixture(unlimited).await;
    // Room for the width, the logical key and the suffix of a shard of two digits.
    let on_further_shards = "_sh:w".len() + 3 + "_sh:k".len() + "hot".len() + 4;
    let filler = ITEM_BYTES - own_bytes() - on_further_shards;
    let table = fixture.tables.instance(7);
    for number in 0..items * 9 / 10 {
        table.put(&item(number, filler), soon()).await.expect("stored");
    }
    fixture.grow(16).await;
    for number in items * 9 / 10..items {
        table.put(&item(number, filler), soon()).await.expect("stored");
    }
    fixture.tables.engine.set_limits([("items".to_owned(), limits)]);
    table.until(soon()).settle(&key()).await.expect("it begins");
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let load = {
        let (table, filler) = (fixture.tables.instance(7), filler.min(100));
        tokio::spawn(async move {
            let (mut written, mut slowest) = (0usize, Duration::ZERO);
            while !*stopped.borrow() {
                let began = Instant::now();
                let item = item(1_000_000 + written % 500, filler);
                table.put(&item, soon()).await.expect("no write fails");
                slowest = slowest.max(began.elapsed());
                written += 1;
                sleep(Duration::from_millis(500)).await;
            }
            (written, slowest)
        })
    };
    let [before, _] = fixture.tables.units();
    let took = fixture.drain_at_once(&table).await;
    stop.send_replace(true);
    let (written, slowest) = load.await.expect("the load ends");
    let units = fixture.tables.units()[0] - before - written as f64;
    let misplaced = (0..items * 9 / 10).filter(|number| {
        let home = Placement::Calculated.home(&key(), &item(*number, 0).sort_key, count(16));
        home.is_some_and(|home| home.get() > 1)
    });
    let moved = misplaced.count();
    let each = units / moved as f64;
    println!(
        "{moved} of {items} items moved in {took:?}, {each:.3} write units each; \
         the slowest of {written} puts took {slowest:?}"
    );
    if large_tests() {
        documented(&format!("| 16, settled | {items} | {:.0} |", took.as_secs_f64().ceil()));
    }
    assert!(each <= 2.1, "{each}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}
