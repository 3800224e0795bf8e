//! The cost of requests and pages in requests, round trips and units, which are the same on every
//! machine. The documents show the same rows.
//!
//! Time is paused and every request takes the same time, so the time of an operation is a number of
//! round trips.

use std::sync::Arc;
use std::time::Duration;

use embedded_dynamodb::Engine;
use sharding::internal::{Environment, PageQuery, TableEngine, protocol::directory::PAGES};
use sharding::{Attributes, Conditions, ETags, Item, Merge, Patch, Value};
use system_tests::many_keys::{OPERATIONS, Side};
use system_tests::pages::{Keys, PageBench, WIDTHS, starts};
use system_tests::{
    Fate, Tables, TestClock, Wire, config, count, large_or, partition_key, soon, sort_key,
    warm_write,
};
use tokio::time::{Instant, sleep};

use crate::documented::documented;

const COSTS: &str = include_str!("../../../docs/costs.md");
/// The service time of a request.
const ROUND_TRIP: Duration = Duration::from_millis(3);

#[tokio::test(start_paused = true)]
async fn a_page_costs_what_the_documents_say() {
    for keys in [Keys::Even, Keys::Uneven] {
        let single = PageBench::new(1, keys).await;
        let plain = single.client(Duration::ZERO);
        for width in large_or(&WIDTHS[..], &WIDTHS[1..2]).iter().copied() {
            let bench = PageBench::new(width, keys).await;
            let environment = Environment::seeded(TestClock::default(), 1);
            let table =
                TableEngine::with_environment(&bench.client(ROUND_TRIP), config(), environment);
            // A function also does this at its start.
            table.check_mode(soon()).await.expect("it agrees");
            let client = bench.client(Duration::ZERO);
            let (mut sums, mut round_trips) = ([0.0; 4], 0.0);
            for after in starts() {
                sums[0] += single.unsharded(&plain, after).await;
                sums[1] += bench.oracle(after);
                let began = Instant::now();
                sums[2] += bench.ours(&table, after).await;
                round_trips += began.elapsed().div_duration_f64(ROUND_TRIP).round();
                sums[3] += bench.ask_all(&client, after).await;
            }
            let pages = starts().count() as f64;
            let [unsharded, oracle, ours, all] = sums.map(|sum| sum / pages);
            let (ratio, round_trips) = (ours / oracle, round_trips / pages);
            let keys = format!("{keys:?}").to_lowercase();
            documented(
                COSTS,
                &format!(
                    "| {keys} | {width} | {unsharded:.2} | {oracle:.2} | {ours:.2} | {all:.2} | {ratio:.2} | {round_trips:.2} |"
                ),
            );
            assert!(ratio <= 1.2 + 0.005, "{keys} {width}: {ratio}");
        }
    }
}

/// A table whose requests are counted.
struct Counted {
    engine: Engine,
    wire: Wire,
    table: TableEngine,
}

impl Counted {
    async fn new() -> Self {
        let tables = Tables { service_time: ROUND_TRIP, ..Tables::claimed(config()).await };
        tables.set_unlimited();
        let (table, wire) = tables.wired(1, |_| Fate::Pass);
        table.claim_mode(soon()).await.expect("it agrees");
        Self { engine: tables.engine, wire, table }
    }

    /// Reads every page, so that this instance knows that unlisted keys have never grown.
    async fn read_all_pages(&self) {
        for number in 0..8 * PAGES {
            let key = partition_key(&format!("of-a-page-{number}"));
            let found =
                self.table.get(&key, &sort_key("1"), false, soon()).await.expect("a response");
            assert_eq!(found, None);
        }
    }

    /// The write and read units of the main table so far.
    fn units(&self) -> [f64; 2] {
        let heat = self.engine.heat("items");
        [
            heat.iter().map(|partition| partition.write_units).sum(),
            heat.iter().map(|partition| partition.read_units).sum(),
        ]
    }

    /// Checks the documented cost of an operation, including its work in the background.
    async fn costs(&self, name: &str, operation: impl AsyncFnOnce(&TableEngine)) {
        let (calls, [written, read]) = (self.wire.calls().len(), self.units());
        let began = Instant::now();
        operation(&self.table).await;
        let round_trips = began.elapsed().div_duration_f64(ROUND_TRIP);
        self.table.finish_background_work().await;
        let calls = self.wire.calls().split_off(calls);
        let to_items = calls.iter().filter(|call| call.to_items).count();
        let [write_units, read_units] = self.units();
        documented(
            COSTS,
            &format!(
                "| {name} | {round_trips:.0} | {to_items} | {} | {:.1} | {:.1} |",
                calls.len() - to_items,
                write_units - written,
                read_units - read
            ),
        );
    }
}

fn item(key: &str, text: &str) -> Arc<Item> {
    let attributes = Attributes::from([("filler".to_owned(), Value::S("x".repeat(800)))]);
    Arc::new(Item { partition_key: partition_key(key), sort_key: sort_key(text), attributes })
}

#[tokio::test(start_paused = true)]
async fn an_operation_costs_what_the_documents_say() {
    let counted = Counted::new().await;
    // A POST and a PUT are the same write.
    let put = async |table: &TableEngine, item: &Item| {
        table.put(item, soon()).await.expect("stored");
    };
    let create = async |table: &TableEngine, item: &Item| {
        table.create(item, None, soon()).await.expect("nothing stood");
    };
    let delete = async |table: &TableEngine, item: &Item| {
        table.delete(&item.partition_key, &item.sort_key, soon()).await.expect("deleted");
    };
    let get = async |table: &TableEngine, item: &Item, is_stored: bool| {
        let found =
            table.get(&item.partition_key, &item.sort_key, true, soon()).await.expect("a response");
        assert_eq!(found.is_some(), is_stored);
    };
    let idle = async || sleep(Duration::from_secs(60)).await;
    let page = async |table: &TableEngine, item: &Item| {
        let query = PageQuery { consistent: true, ..PageQuery::new(item.partition_key.clone()) };
        drop(table.query(&query, soon()).await.expect("a page"));
    };
    counted.read_all_pages().await;
    counted.costs("POST, a key never seen", async |table| put(table, &item("a", "1")).await).await;
    counted.costs("POST, a warm key", async |table| put(table, &item("a", "2")).await).await;
    counted.costs("PUT, a key never seen", async |table| put(table, &item("b", "1")).await).await;
    counted.costs("PUT, a warm key", async |table| put(table, &item("b", "1")).await).await;
    counted
        .costs("create-only POST, a warm key", async |table| create(table, &item("b", "2")).await)
        .await;
    counted.costs("DELETE, a warm key", async |table| delete(table, &item("b", "2")).await).await;
    counted
        .costs("`GET /item`, a key never seen", async |table| {
            get(table, &item("c", "1"), false).await
        })
        .await;
    counted
        .costs("`GET /item`, a warm key", async |table| get(table, &item("b", "1"), true).await)
        .await;
    counted
        .costs("`GET /items`, a key never seen", async |table| page(table, &item("d", "1")).await)
        .await;
    counted
        .costs("`GET /items`, a warm key", async |table| page(table, &item("b", "1")).await)
        .await;
    idle().await;
    counted
        .costs("POST, an instance that was idle", async |table| put(table, &item("a", "3")).await)
        .await;
    idle().await;
    counted
        .costs("`GET /item`, an instance that was idle", async |table| {
            get(table, &item("b", "1"), true).await
        })
        .await;
    idle().await;
    counted
        .costs("`GET /items`, an instance that was idle", async |table| {
            page(table, &item("b", "1")).await
        })
        .await;

    let grown = item("grown", "2");
    counted.table.set_shards(&grown.partition_key, count(8), soon()).await.expect("scaled");
    counted.costs("POST, a warm key of 8 shards", async |table| put(table, &grown).await).await;
    counted
        .costs("PUT, a warm key of 8 shards", async |table| put(table, &item("grown", "3")).await)
        .await;
    counted
        .costs("`GET /item`, a warm key of 8 shards", async |table| get(table, &grown, true).await)
        .await;
    counted
        .costs("`GET /items`, a warm key of 8 shards", async |table| page(table, &grown).await)
        .await;
    counted
        .costs("DELETE, a warm key of 8 shards", async |table| {
            delete(table, &item("grown", "3")).await
        })
        .await;
    counted
        .costs("create-only POST, a warm key of 8 shards", async |table| {
            create(table, &item("grown", "3")).await
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_update_costs_what_the_documents_say() {
    let counted = Counted::new().await;
    let tag = async |item: &Item| {
        let found =
            counted.table.get_tagged(&item.partition_key, &item.sort_key, true, soon()).await;
        Conditions {
            matches: Some(ETags::Of(vec![found.expect("a response").expect("it is stored").1])),
            differs: None,
        }
    };
    let replace = async |table: &TableEngine, item: &Item, conditions: &Conditions| {
        table.put_if(item, conditions, soon()).await.expect("unchanged");
    };
    let one = Patch {
        add: Attributes::from([("count".to_owned(), Value::N("1".into()))]),
        ..Patch::default()
    };
    let merge = Patch {
        merge: [("state".to_owned(), Merge::Set(Value::Bool(true)))].into(),
        ..Patch::default()
    };
    let patch = async |table: &TableEngine, item: &Item, patch: &Patch| {
        let keys = (&item.partition_key, &item.sort_key);
        table.update(keys, patch, &Conditions::default(), None, soon()).await.expect("updated");
    };
    counted.read_all_pages().await;
    let (single, grown) = (item("single", "1"), item("grown", "2"));
    counted.table.put(&single, soon()).await.expect("stored");
    let conditions = tag(&single).await;
    counted
        .costs("PUT with `If-Match`, a warm key", async |table| {
            replace(table, &single, &conditions).await
        })
        .await;
    counted
        .costs("PATCH that adds, a warm key", async |table| patch(table, &single, &one).await)
        .await;
    counted
        .costs("PATCH that merges, a warm key", async |table| patch(table, &single, &merge).await)
        .await;
    let conditions = tag(&single).await;
    counted
        .costs("DELETE with `If-Match`, a warm key", async |table| {
            table
                .delete_if(&single.partition_key, &single.sort_key, &conditions, soon())
                .await
                .expect("unchanged");
        })
        .await;

    counted.table.put(&grown, soon()).await.expect("stored");
    counted.table.set_shards(&grown.partition_key, count(8), soon()).await.expect("scaled");
    counted
        .costs("PATCH that adds, an item at an old place", async |table| {
            patch(table, &grown, &one).await
        })
        .await;
    counted
        .costs("PATCH that adds, a warm key of 8 shards", async |table| {
            patch(table, &grown, &one).await
        })
        .await;
    counted
        .costs("PATCH that merges, a warm key of 8 shards", async |table| {
            patch(table, &grown, &merge).await
        })
        .await;
    let conditions = tag(&grown).await;
    counted
        .costs("PUT with `If-Match`, a warm key of 8 shards", async |table| {
            replace(table, &grown, &conditions).await
        })
        .await;
}

/// A page is read once in 0.8 s, for any number of requests that use it.
#[tokio::test(start_paused = true)]
async fn keys_that_never_grew_cost_what_bare_requests_do() {
    let keys = large_or(20_000, 5_000);
    let (bare, ours) = (Side::bare().await, Side::ours().await);
    for operation in OPERATIONS {
        let bare = bare.carry_out(operation, 0..keys, 40).await;
        let ours = ours.carry_out(operation, 0..keys, 40).await;
        let requests = ours.requests as f64 / bare.requests as f64;
        let units = ours.units / bare.units;
        let [median, slow] =
            [50, 99].map(|percent| ours.percentile(percent) / bare.percentile(percent));
        println!(
            "{operation:?}: {requests:.5} times the requests, {units:.5} the units; \
             {median:.3} and {slow:.3} the time"
        );
        assert_eq!(bare.requests, keys as u64);
        assert!(requests <= 1.001 && units <= 1.001, "{operation:?}: {requests} {units}");
        assert!(median <= 1.05 && slow <= 1.05, "{operation:?}: {median} {slow}");
    }
}

/// Debug builds inline little, so this ratio is above that of the benchmark. Both are the same on
/// every run.
#[test]
fn a_warm_write_takes_few_more_instructions_than_a_bare_put() {
    // Under valgrind this test starts itself, to run one side of the comparison.
    if warm_write::run_side() {
        return;
    }
    let this = [
        "--exact",
        "costs::a_warm_write_takes_few_more_instructions_than_a_bare_put",
        "--test-threads=1",
    ];
    match warm_write::per_write(&this, 20, 70) {
        Some((bare, ours)) => {
            println!(
                "instructions of a bare PutItem {bare:.0}, of ours {ours:.0}: {:.3}",
                ours / bare
            );
            assert!(ours <= 1.10 * bare, "{ours} / {bare}");
        }
        None => {
            let required = std::env::var("REQUIRE_VALGRIND").is_ok_and(|value| value == "1");
            assert!(!required, "valgrind is not installed, and REQUIRE_VALGRIND=1 asks for it");
            println!("not counted: valgrind is not installed");
        }
    }
}
