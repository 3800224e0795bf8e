//! A change of the width pauses the writers of that key for a moment, and nobody else.

use std::time::Duration;

use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use local::{create_tables, in_process_clients};
use sharding::internal::{Attributes, Deadline, Environment, Item, PageQuery, PartitionKey, TableEngine};
use system_tests::{TestClock, config, count, large_or, soon, sort_key};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// What each request takes.
const SERVICE_TIME: Duration = Duration::from_millis(3);
const INSTANCES: u64 = 5;
const SECONDS: u64 = 4;
/// The longest that a writer waits: the lease, the margin, and what it takes to notice.
const LONGEST_PAUSE: Duration = Duration::from_millis(1_300);
/// The longest that anybody else takes: a page among tombstones is asked for in several rounds, and once more under a new view.
const UNDELAYED: Duration = Duration::from_millis(50);

fn item(key: &str, number: u64) -> Item {
    let partition_key = PartitionKey::new(key).expect("a key");
    Item { partition_key, sort_key: sort_key(&format!("{number:08}")), attributes: Attributes::new() }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// A write of the key that changes.
    Hot,
    /// A write of another key.
    Other,
    /// A read of the key that changes.
    Read,
}

async fn act(table: &TableEngine, deed: Deed, number: u64) {
    let deadline = || Deadline::now() + Duration::from_secs(5);
    match (deed, number % 4) {
        (Deed::Hot, 0) => {
            table.create(&item("hot", number), None, deadline()).await.expect("created");
        }
        (Deed::Hot, 1) => {
            let gone = item("hot", number.saturating_sub(401));
            table.delete(&gone.partition_key, &gone.sort_key, deadline()).await.expect("deleted");
        }
        (Deed::Hot, _) => {
            table.put(&item("hot", number), deadline()).await.expect("put");
        }
        (Deed::Other, _) => {
            table.put(&item("other", number), deadline()).await.expect("put");
        }
        (Deed::Read, 0) => {
            let query = PageQuery { consistent: true, limit: 20, ..PageQuery::new(item("hot", 0).partition_key) };
            table.query(&query, deadline()).await.expect("a page");
        }
        (Deed::Read, _) => {
            let wanted = item("hot", number);
            table.get(&wanted.partition_key, &wanted.sort_key, true, deadline()).await.expect("an answer");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_width_changes_in_a_pause_of_a_second_and_nobody_else_waits() {
    let engine = Engine::in_memory().expect("an engine");
    let client = in_process_clients(&InProcess::new(engine.clone()).with_service_time(SERVICE_TIME)).dynamodb;
    create_tables(&client, &config()).await.expect("tables");
    let unlimited = PartitionLimits { partitions: 1, write_units: 1e9, read_units: 1e9, ..PartitionLimits::default() };
    engine.set_limits(["items", "items-metadata"].map(|table| (table.to_owned(), unlimited)));
    let clock = TestClock::default();
    let instance = |seed| TableEngine::with_environment(&client, config(), Environment::seeded(clock.clone(), seed));
    let scaler = instance(100);
    scaler.set_shards(&item("hot", 0).partition_key, count(8), soon()).await.expect("grown");
    let instances: Vec<TableEngine> = (0..INSTANCES).map(instance).collect();
    for table in &instances {
        act(table, Deed::Hot, 2).await;
        act(table, Deed::Other, 2).await;
        table.finish_background_work().await;
    }

    let began = Instant::now();
    let mut deeds = JoinSet::new();
    for (deed, rate) in [(Deed::Hot, large_or(5_000, 500)), (Deed::Other, 100), (Deed::Read, 100)] {
        for number in 0..rate * SECONDS {
            let table = instances[usize::try_from(number % INSTANCES).expect("small")].clone();
            deeds.spawn(async move {
                sleep_until(began + Duration::from_secs_f64(number as f64 / rate as f64)).await;
                let sent = Instant::now();
                act(&table, deed, 1_000 + number).await;
                (deed, sent.elapsed())
            });
        }
    }
    sleep(Duration::from_millis(1_500)).await;
    scaler.set_shards(&item("hot", 0).partition_key, count(16), soon()).await.expect("grown");
    let changed = began.elapsed();
    let took = deeds.join_all().await;
    let slowest =
        |of: Deed| took.iter().filter(|(deed, _)| *deed == of).map(|(_, took)| *took).max().unwrap_or_default();
    let paused = took.iter().filter(|(deed, took)| *deed == Deed::Hot && *took > UNDELAYED).count();
    let [hot, other, reads] = [Deed::Hot, Deed::Other, Deed::Read].map(slowest);
    println!(
        "from 8 to 16 shards after {changed:?}: {paused} writes of the key waited, the slowest took {hot:?}; of another key {other:?}, of reads {reads:?}"
    );
    assert!(changed < Duration::from_secs(SECONDS), "the load must outlast the change");
    assert!(paused > 0, "the change must have met writers");
    assert!(hot <= LONGEST_PAUSE, "{hot:?}");
    assert!(other <= UNDELAYED && reads <= UNDELAYED, "{other:?} {reads:?}");
    assert_eq!(engine.traffic("items").throttled_writes, 0);
}
