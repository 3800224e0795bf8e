//! Read replicas share eventually consistent page queries. The table serves the query if a replica
//! cannot.

use std::time::Duration;

use sharding::internal::PageQuery;
use sharding::maintenance::Drained;
use system_tests::{Call, Fate, Tables, config, count, partition_key, soon, valued_item};

const THROTTLED: &str = r#"{"__type":"x#ThrottlingException","message":"hot","throttlingReasons":[{"reason":"IndexReadKeyRangeThroughputExceeded","resource":"arn"}]}"#;
const BUILDING: &str = r#"{"__type":"com.amazon.coral.validate#ValidationException","message":"Cannot read from backfilling global secondary index: replica-1"}"#;

/// Reads the key's 40 items twenty times. Returns the numbers of queries to the table and to
/// replicas.
async fn read(
    decide: impl Fn(&Call) -> Fate + Send + Sync + 'static,
    consistent: bool,
) -> (usize, usize) {
    let config =
        config().with(|config| config.read_replicas = vec!["replica-1".into(), "replica-2".into()]);
    let (table, wire) = Tables::unclaimed(config).await.wired(1, decide);
    let key = partition_key("k");
    table.until(soon()).grow(&key, count(4)).await.expect("scaled");
    for number in 0..40 {
        let item = valued_item(key.clone(), &format!("{number:02}"), number);
        table.put(&item, soon()).await.expect("stored");
    }
    for _ in 0..20 {
        let query = PageQuery { consistent, ..PageQuery::new(key.clone()) };
        let page = table.query(&query, soon()).await.expect("a page");
        let found: Vec<String> = page.items.iter().map(|item| item.sort_key.to_string()).collect();
        assert_eq!(found, (0..40).map(|number| format!("{number:02}")).collect::<Vec<_>>());
    }
    let queries: Vec<Call> =
        wire.calls().into_iter().filter(|call| call.operation == "Query").collect();
    let to_index = queries.iter().filter(|call| call.index.is_some()).count();
    (queries.len() - to_index, to_index)
}

#[tokio::test(start_paused = true)]
async fn replicas_share_the_queries_that_they_can_serve() {
    let (table, replicas) = read(|_| Fate::Pass, false).await;
    let about = "two of three queries go to the two replicas";
    assert!(table > 10 && replicas > table, "{about}: {table}, {replicas}");
    let (table, replicas) = read(|_| Fate::Pass, true).await;
    assert!(table > 0 && replicas == 0, "consistent reads: {table}, {replicas}");
    for refusal in [THROTTLED, BUILDING] {
        let refuse = move |call: &Call| match call.index {
            Some(_) => Fate::Refuse(refusal),
            None => Fate::Pass,
        };
        let (table, replicas) = read(refuse, false).await;
        let about = "they pause after a rejection, and the table responds";
        assert!(replicas > 0 && replicas < table / 4, "{about}: {table}, {replicas}");
    }
}

/// An index shows a drain's changes later, in no order. An item could be missing at both places, or
/// present at both.
#[tokio::test(start_paused = true)]
async fn a_drained_key_is_read_from_the_table_until_indexes_catch_up() {
    let config = config().with(|config| config.read_replicas = vec!["replica-1".into()]);
    let (table, wire) = Tables::unclaimed(config).await.wired(1, |_| Fate::Pass);
    table.until(soon()).claim().await.expect("claimed");
    let key = partition_key("k");
    table.until(soon()).grow(&key, count(4)).await.expect("scaled");
    let asks_the_index = async || {
        let asked = || wire.calls().iter().filter(|call| call.index.is_some()).count();
        let before = asked();
        for _ in 0..20 {
            table.query(&PageQuery::new(key.clone()), soon()).await.expect("a page");
        }
        asked() > before
    };
    assert!(asks_the_index().await, "an idle key is read from its replica");
    tokio::time::sleep(Duration::from_secs(5)).await;
    table.until(soon()).shrink(&key, count(1)).await.expect("begun");
    loop {
        assert!(!asks_the_index().await, "while it is drained");
        match table.until(soon()).drain(&key, &[]).await.expect("no fault") {
            Drained::Done { .. } => break,
            Drained::Nothing => panic!("it ended too early"),
            Drained::Waiting { .. } | Drained::Working { .. } | _ => {
                tokio::time::sleep(Duration::from_secs(30)).await
            }
        }
    }
    tokio::time::sleep(Duration::from_secs(890)).await;
    assert!(!asks_the_index().await, "an index may lag for 900 seconds");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(asks_the_index().await, "the lag has ended");
}
