//! The cost of requests and pages in requests, round trips and units, which are the same on every
//! machine. The documents show the same rows.
//!
//! Time is paused and every request takes the same time, so the time of an operation is a number of
//! round trips.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use sharding::internal::{PageQuery, TableEngine, protocol::directory::PAGES};
use sharding::{Attributes, Conditions, ETags, Item, Merge, Patch, Value};
use system_tests::pages::{Keys, PageBench, WIDTHS, starts};
use system_tests::{
    Fate, OneItem, Tables, Wire, config, count, filled_item, large_or, partition_key, soon,
    sort_key, warm_write,
};
use tokio::time::{Instant, sleep};

use crate::documented::documented;

pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(3);

#[tokio::test(start_paused = true)]
async fn a_page_costs_what_the_documents_say() {
    for keys in [Keys::Even, Keys::Uneven] {
        for width in large_or(&WIDTHS[..], &WIDTHS[1..2]).iter().copied() {
            let bench = PageBench::new(width, keys, ROUND_TRIP).await;
            let table = bench.instance();
            // A function also does this at its start.
            table.until(soon()).check().await.expect("it agrees");
            let mut sums = [0.0; 3];
            for after in starts() {
                sums[0] += bench.oracle(after);
                let began = Instant::now();
                sums[1] += bench.ours(&table, after).await;
                sums[2] += began.elapsed().div_duration_f64(ROUND_TRIP).round();
            }
            let [oracle, ours, round_trips] = sums.map(|sum| sum / starts().count() as f64);
            let ratio = ours / oracle;
            let keys = format!("{keys:?}").to_lowercase();
            let row = format!(
                "| {keys} | {width} | {oracle:.2} | {ours:.2} | {ratio:.2} | {round_trips:.2} |"
            );
            documented(&row);
            assert!(ratio <= 1.2 + 0.005, "{keys} {width}: {ratio}");
        }
    }
}

pub(crate) struct Counted {
    tables: Tables,
    pub(crate) wire: Wire,
    pub(crate) table: TableEngine,
}

impl Counted {
    pub(crate) async fn new() -> Self {
        let tables = Tables { service_time: ROUND_TRIP, ..Tables::claimed(config()).await };
        tables.set_unlimited();
        let (table, wire) = tables.wired(1, |_| Fate::Pass);
        table.until(soon()).claim().await.expect("it agrees");
        Self { tables, wire, table }
    }

    /// Reads every page, so that this instance knows that unlisted keys have never grown.
    async fn read_all_pages(&self) {
        for number in 0..8 * PAGES {
            let key = partition_key(&format!("of-a-page-{number}"));
            let found = self.table.get(&key, &sort_key("1"), false, soon()).await;
            assert_eq!(found.expect("a response"), None);
        }
    }

    /// Checks the documented cost of an operation, including its work in the background.
    async fn costs<T>(&self, name: &str, operation: impl Future<Output = T>) -> T {
        let (calls, [written, read]) = (self.wire.calls().len(), self.tables.units());
        let began = Instant::now();
        let outcome = operation.await;
        let round_trips = began.elapsed().div_duration_f64(ROUND_TRIP);
        self.table.finish_background_work().await;
        let calls = self.wire.calls().split_off(calls);
        let to_items = calls.iter().filter(|call| call.to_items).count();
        let [write_units, read_units] = self.tables.units();
        let to_metadata = calls.len() - to_items;
        let (written, read) = (write_units - written, read_units - read);
        let row = format!(
            "| {name} | {round_trips:.0} | {to_items} | {to_metadata} | {written:.1} | {read:.1} |"
        );
        documented(&row);
        outcome
    }
}

fn item(key: &str, text: &str) -> Item {
    filled_item(partition_key(key), text, 800)
}

#[tokio::test(start_paused = true)]
async fn an_operation_costs_what_the_documents_say() {
    let counted = Counted::new().await;
    // A POST and a PUT are the same write.
    let put = async |name: &str, item: &Item| {
        counted.costs(name, counted.table.put(item, soon())).await.expect("stored");
    };
    let create = async |name: &str, item: &Item| {
        counted.costs(name, counted.table.create(item, None, soon())).await.expect("nothing stood");
    };
    let delete = async |name: &str, item: &Item| {
        let delete = counted.table.delete(&item.partition_key, &item.sort_key, soon());
        counted.costs(name, delete).await.expect("deleted");
    };
    let get = async |name: &str, item: &Item, is_stored: bool| {
        let get = counted.table.get(&item.partition_key, &item.sort_key, true, soon());
        let found = counted.costs(name, get).await.expect("a response");
        assert_eq!(found.is_some(), is_stored);
    };
    let page = async |name: &str, item: &Item| {
        let query = PageQuery { consistent: true, ..PageQuery::new(item.partition_key.clone()) };
        counted.costs(name, counted.table.query(&query, soon())).await.expect("a page");
    };
    let idle = async || sleep(Duration::from_secs(60)).await;
    counted.read_all_pages().await;
    put("POST, a key never seen", &item("a", "1")).await;
    put("POST, a warm key", &item("a", "2")).await;
    put("PUT, a key never seen", &item("b", "1")).await;
    put("PUT, a warm key", &item("b", "1")).await;
    create("create-only POST, a warm key", &item("b", "2")).await;
    delete("DELETE, a warm key", &item("b", "2")).await;
    get("`GET /item`, a key never seen", &item("c", "1"), false).await;
    get("`GET /item`, a warm key", &item("b", "1"), true).await;
    page("`GET /items`, a key never seen", &item("d", "1")).await;
    page("`GET /items`, a warm key", &item("b", "1")).await;
    idle().await;
    put("POST, an instance that was idle", &item("a", "3")).await;
    idle().await;
    get("`GET /item`, an instance that was idle", &item("b", "1"), true).await;
    idle().await;
    page("`GET /items`, an instance that was idle", &item("b", "1")).await;

    let (grown, other) = (item("grown", "2"), item("grown", "3"));
    counted.table.until(soon()).grow(&grown.partition_key, count(8)).await.expect("scaled");
    put("POST, a warm key of 8 shards", &grown).await;
    put("PUT, a warm key of 8 shards", &other).await;
    get("`GET /item`, a warm key of 8 shards", &grown, true).await;
    page("`GET /items`, a warm key of 8 shards", &grown).await;
    delete("DELETE, a warm key of 8 shards", &other).await;
    create("create-only POST, a warm key of 8 shards", &other).await;
}

#[tokio::test(start_paused = true)]
async fn an_update_costs_what_the_documents_say() {
    let counted = Counted::new().await;
    let tag = async |item: &Item| {
        let (key, sort_key) = (&item.partition_key, &item.sort_key);
        let found = counted.table.get_tagged(key, sort_key, true, soon()).await;
        let tag = found.expect("a response").expect("it is stored").1;
        Conditions { matches: Some(ETags::Of(vec![tag])), differs: None }
    };
    let replace = async |name: &str, item: &Item| {
        let conditions = tag(item).await;
        let replace = counted.table.put_if(item, &conditions, soon());
        counted.costs(name, replace).await.expect("unchanged");
    };
    let delete = async |name: &str, item: &Item| {
        let (conditions, key, sort_key) = (tag(item).await, &item.partition_key, &item.sort_key);
        let delete = counted.table.delete_if(key, sort_key, &conditions, soon());
        counted.costs(name, delete).await.expect("unchanged");
    };
    let patch = async |name: &str, item: &Item, patch: &Patch| {
        let (keys, none) = ((&item.partition_key, &item.sort_key), Conditions::default());
        let update = counted.table.update(keys, patch, &none, None, soon());
        counted.costs(name, update).await.expect("updated");
    };
    let one = Patch {
        add: Attributes::from([("count".to_owned(), Value::N("1".into()))]),
        ..Patch::default()
    };
    let merge = Patch {
        merge: [("state".to_owned(), Merge::Set(Value::Bool(true)))].into(),
        ..Patch::default()
    };
    counted.read_all_pages().await;
    let (single, grown) = (item("single", "1"), item("grown", "2"));
    counted.table.put(&single, soon()).await.expect("stored");
    replace("PUT with `If-Match`, a warm key", &single).await;
    patch("PATCH that adds, a warm key", &single, &one).await;
    patch("PATCH that merges, a warm key", &single, &merge).await;
    delete("DELETE with `If-Match`, a warm key", &single).await;

    counted.table.put(&grown, soon()).await.expect("stored");
    counted.table.until(soon()).grow(&grown.partition_key, count(8)).await.expect("scaled");
    patch("PATCH that adds, an item at an old place", &grown, &one).await;
    patch("PATCH that adds, a warm key of 8 shards", &grown, &one).await;
    patch("PATCH that merges, a warm key of 8 shards", &grown, &merge).await;
    replace("PUT with `If-Match`, a warm key of 8 shards", &grown).await;
}

/// A bare request is one request, one unit and one round trip. A page is read once in 0.8 s, for any
/// number of requests that use it.
#[tokio::test(start_paused = true)]
async fn keys_that_never_grew_cost_what_bare_requests_do() {
    let keys: usize = large_or(20_000, 5_000);
    let tables = Tables { service_time: ROUND_TRIP, ..Tables::claimed(config()).await };
    tables.set_unlimited();
    let table = &tables.instance(1);
    table.until(soon()).claim().await.expect("it agrees");
    let cost = || {
        let names = ["items", "items-metadata"];
        let traffic = names.map(|name| tables.engine.traffic(name));
        let heat = names.map(|name| tables.engine.heat(name));
        let requests: u64 = traffic.iter().map(|of_table| of_table.reads + of_table.writes).sum();
        let units: f64 = heat.iter().flatten().map(|it| it.read_units + it.write_units).sum();
        (requests as f64, units)
    };
    for is_write in [true, false] {
        let act = |number: usize| async move {
            let item = item(&format!("/shared/path-{number:07}.txt"), "1");
            let sent = Instant::now();
            if is_write {
                table.put(&item, soon()).await.expect("stored");
            } else {
                let found = table.get(&item.partition_key, &item.sort_key, true, soon()).await;
                assert!(found.expect("a response").is_some(), "{number}");
            }
            sent.elapsed()
        };
        let before = cost();
        let mut times: Vec<Duration> =
            stream::iter(0..keys).map(act).buffer_unordered(40).collect().await;
        let after = cost();
        times.sort_unstable();
        let slow = times[(keys - 1) * 99 / 100];
        let [requests, units] =
            [after.0 - before.0, after.1 - before.1].map(|sum| sum / keys as f64);
        println!("{requests:.5} requests and {units:.5} units each, 99 % within {slow:?}");
        assert!(requests <= 1.001 && units <= 1.001, "write: {is_write}: {requests} {units}");
        assert!(slow <= ROUND_TRIP.mul_f64(1.05), "write: {is_write}: {slow:?}");
    }
}

/// The ratio is the same on every run.
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
            let ratio = ours / bare;
            println!("instructions of a bare PutItem {bare:.0}, of ours {ours:.0}: {ratio:.3}");
            assert!(ours <= 1.10 * bare, "{ours} / {bare}");
        }
        None => {
            let required = std::env::var("REQUIRE_VALGRIND").is_ok_and(|value| value == "1");
            assert!(!required, "valgrind is not installed, and REQUIRE_VALGRIND=1 asks for it");
            println!("not counted: valgrind is not installed");
        }
    }
}
