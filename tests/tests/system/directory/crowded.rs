//! Many keys of one page change at once, while many instances write them. Instances hold back, and
//! do not repeat each other's work.

use std::time::Duration;

use embedded_dynamodb::PartitionLimits;
use sharding::internal::{Deadline, protocol::directory::FULL_PAGE_BYTES};
use sharding::maintenance::ScaleOutcome;
use system_tests::metadata::{self, page_key, text};
use system_tests::{Call, Fate, Tables, Wire, config, count, large_or, valued_item};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{KEY, neighbours};

/// Keys that change at once. Each is closed and opened: two publications.
const KEYS: usize = 20;
/// Writes of the page for each publication. A publication waits for up to ten seconds, between
/// pauses that double from 0.2 s, at random up to 6.4 s. Other instances read before they write.
const WRITES_EACH: usize = 5;

fn later() -> Deadline {
    Deadline::now() + Duration::from_secs(60)
}

/// An instance changes each key. The page is so large that its partition takes four writes of it a
/// second, so the changes take ten seconds.
#[tokio::test(start_paused = true)]
async fn many_changes_on_a_large_page_need_few_writes_of_it() {
    for writers in large_or(vec![0, 5, 20], vec![5]) {
        let tables = Tables::claimed(config()).await;
        let filler = "x".repeat(FULL_PAGE_BYTES - 10_000);
        metadata::set(&tables.client, &page_key(KEY, 0), [("filler", text(&filler))]).await;
        let limits = PartitionLimits { partitions: 1, ..PartitionLimits::default() };
        tables.engine.set_limits([("items-metadata".to_owned(), limits)]);
        let wire = Wire::new(tables.connection(), |_| Fate::Pass);
        let instance = |seed| tables.instance_over(wire.clone().into_shared(), seed);
        let (began, mut changing, mut writing) = (Instant::now(), JoinSet::new(), JoinSet::new());
        for (seed, key) in (100..).zip(neighbours().take(KEYS)) {
            let scaler = instance(seed);
            changing.spawn(async move { scaler.until(later()).grow(&key, count(4)).await });
        }
        for seed in 0..writers {
            let table = instance(seed);
            for key in neighbours().take(KEYS) {
                let table = table.clone();
                writing.spawn(async move {
                    for number in 0..20 {
                        let item = valued_item(key.clone(), &format!("{seed}-{number}"), number);
                        table.put(&item, later()).await.expect("no put fails");
                        sleep(Duration::from_secs(1)).await;
                    }
                    table.finish_background_work().await;
                });
            }
        }
        while let Some(changed) = changing.join_next().await {
            let changed = changed.expect("it does not panic").expect("a response");
            assert!(matches!(changed, ScaleOutcome::Scaled { .. }), "{changed:?}");
        }
        let took = began.elapsed();
        writing.join_all().await;
        let page = page_key(KEY, 0);
        let of_page =
            |call: &&Call| call.operation == "UpdateItem" && call.key.as_deref() == Some(&page);
        let writes = wire.calls().iter().filter(of_page).count();
        println!(
            "{KEYS} keys, {writers} instances that write: {writes} writes of the page in {took:?}"
        );
        assert!(writes <= 2 * KEYS * WRITES_EACH, "{writers}: {writes}");
        assert!(took < Duration::from_secs(15), "{writers}: {took:?}");
    }
}
