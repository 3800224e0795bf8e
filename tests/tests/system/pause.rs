//! A change of the width pauses the writers of that key for a moment, and no other request.

use std::time::Duration;

use sharding::Item;
use sharding::internal::{Deadline, PageQuery, TableEngine};
use system_tests::{OneItem, Tables, config, count, large_or, partition_key, soon, valued_item};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

const SERVICE_TIME: Duration = Duration::from_millis(3);
const INSTANCES: u64 = 5;
const SECONDS: u64 = 4;
/// The longest wait of a writer: the lease, the margin, and the time to detect the change.
const LONGEST_PAUSE: Duration = Duration::from_millis(1_300);
/// The longest duration of any other request. A page among tombstones needs several rounds, and one
/// more under a new view.
const UNDELAYED: Duration = Duration::from_millis(50);

fn item(key: &str, number: u64) -> Item {
    valued_item(partition_key(key), &format!("{number:08}"), number)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// A write of the key that changes.
    Hot,
    Other,
    Read,
}

async fn act(table: &TableEngine, operation: Operation, number: u64) {
    let deadline = || Deadline::now() + Duration::from_secs(5);
    match (operation, number % 4) {
        (Operation::Hot, 0) => {
            table.create(&item("hot", number), None, deadline()).await.expect("created");
        }
        (Operation::Hot, 1) => {
            let gone = item("hot", number.saturating_sub(401));
            table.delete(&gone.partition_key, &gone.sort_key, deadline()).await.expect("deleted");
        }
        (Operation::Hot, _) => {
            table.put(&item("hot", number), deadline()).await.expect("put");
        }
        (Operation::Other, _) => {
            table.put(&item("other", number), deadline()).await.expect("put");
        }
        (Operation::Read, 0) => {
            let query = PageQuery::new(item("hot", 0).partition_key);
            let query = PageQuery { consistent: true, limit: 20, ..query };
            table.query(&query, deadline()).await.expect("a page");
        }
        (Operation::Read, _) => {
            let Item { partition_key, sort_key, .. } = item("hot", number);
            table.get(&partition_key, &sort_key, true, deadline()).await.expect("a response");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_width_pauses_only_its_writers_for_a_second() {
    let tables = Tables::unclaimed(config()).await;
    let tables = Tables { service_time: SERVICE_TIME, ..tables };
    tables.set_unlimited();
    let scaler = tables.instance(100);
    scaler.until(soon()).grow(&item("hot", 0).partition_key, count(8)).await.expect("grown");
    let instances: Vec<TableEngine> = (0..INSTANCES).map(|seed| tables.instance(seed)).collect();
    for table in &instances {
        act(table, Operation::Hot, 2).await;
        act(table, Operation::Other, 2).await;
        table.finish_background_work().await;
    }

    let began = Instant::now();
    let mut operations = JoinSet::new();
    for (operation, rate) in
        [(Operation::Hot, large_or(5_000, 500)), (Operation::Other, 100), (Operation::Read, 100)]
    {
        for number in 0..rate * SECONDS {
            let table = instances[usize::try_from(number % INSTANCES).expect("small")].clone();
            operations.spawn(async move {
                sleep_until(began + Duration::from_secs_f64(number as f64 / rate as f64)).await;
                let sent = Instant::now();
                act(&table, operation, 1_000 + number).await;
                (operation, sent.elapsed())
            });
        }
    }
    sleep(Duration::from_millis(1_500)).await;
    scaler.until(soon()).grow(&item("hot", 0).partition_key, count(16)).await.expect("grown");
    let changed = began.elapsed();
    let took = operations.join_all().await;
    let all_of = |of: Operation| {
        took.iter().filter(move |(operation, _)| *operation == of).map(|(_, took)| *took)
    };
    let slowest = |of| all_of(of).max().unwrap_or_default();
    let paused = all_of(Operation::Hot).filter(|took| *took > UNDELAYED).count();
    let [hot, other, reads] = [Operation::Hot, Operation::Other, Operation::Read].map(slowest);
    println!(
        "from 8 to 16 shards after {changed:?}: {paused} writes of the key waited, the slowest took \
         {hot:?}; of another key {other:?}, of reads {reads:?}"
    );
    assert!(changed < Duration::from_secs(SECONDS), "the load must outlast the change");
    assert!(paused > 0, "the change must have met writers");
    assert!(hot <= LONGEST_PAUSE, "{hot:?}");
    assert!(other <= UNDELAYED && reads <= UNDELAYED, "{other:?} {reads:?}");
    assert_eq!(tables.engine.traffic("items").throttled_writes, 0);
}
