//! The immediate capacity of the table, as its pages show it.

use std::time::Duration;

use sharding::WarmThroughput;
use sharding::internal::{TableEngine, protocol::directory::PAGES};
use sharding::maintenance::{ScaleOutcome, ScalingDecision};
use system_tests::metadata::{self, page_copy, page_key};
use system_tests::{Fate, Tables, config, count, report_throttles, soon};
use tokio::time::sleep;

use super::{KEY, key, updates};

const WARM: WarmThroughput = WarmThroughput { write_units: 24_000, read_units: 12_000 };
const ATTRIBUTE: &str = "warm_throughput";

async fn warm_entry(tables: &Tables, page: u32, copy: u32) -> Option<String> {
    let page = metadata::read(&tables.client, &page_copy(page, copy)).await?;
    page.get(ATTRIBUTE)?.as_s().ok().cloned()
}

async fn known(table: &TableEngine) -> Option<WarmThroughput> {
    table.until(soon()).warm_throughput(&key()).await.expect("a response")
}

#[tokio::test(start_paused = true)]
async fn the_capacity_is_written_to_differing_copies_and_known_to_all() {
    let tables = Tables::claimed(config()).await;
    tables.instance(1).until(soon()).raise_directory_copies(2).await.expect("raised");
    let (publisher, wire) = tables.wired(2, |_| Fate::Pass);
    assert_eq!(known(&tables.instance(3)).await, None, "it was not published yet");
    publisher.until(soon()).publish_warm_throughput(WARM).await.expect("published");
    for page in 0..PAGES {
        for copy in 0..2 {
            let stored = warm_entry(&tables, page, copy).await;
            assert_eq!(stored.as_deref(), Some("24000 12000"), "{page} {copy}");
        }
    }
    let all = 2 * PAGES as usize;
    assert_eq!(updates(&wire), all);
    assert_eq!(known(&tables.instance(4)).await, Some(WARM));
    publisher.until(soon()).publish_warm_throughput(WARM).await.expect("as before");
    assert_eq!(updates(&wire), all, "it is already stored");
    // One copy is behind.
    metadata::set(&tables.client, &page_key(KEY, 1), [(ATTRIBUTE, metadata::text("4000 12000"))])
        .await;
    publisher.until(soon()).publish_warm_throughput(WARM).await.expect("published");
    assert_eq!(updates(&wire), all + 1);
    publisher.until(soon()).raise_directory_copies(3).await.expect("raised");
    for page in 0..PAGES {
        assert_eq!(warm_entry(&tables, page, 2).await.as_deref(), Some("24000 12000"), "{page}");
    }
    // A copy with only this attribute would look like a page that existed before.
    metadata::lose(&tables.client, &page_key(KEY, 1)).await;
    let less = WarmThroughput { write_units: 20_000, ..WARM };
    publisher.until(soon()).publish_warm_throughput(less).await.expect("published");
    assert_eq!(metadata::read(&tables.client, &page_key(KEY, 1)).await, None);
    publisher.until(soon()).repair_directory().await.expect("repaired");
    let copy = metadata::read(&tables.client, &page_key(KEY, 1)).await.expect("created again");
    assert!(copy.contains_key(ATTRIBUTE), "{copy:?}");
}

/// The shard-scaler may have read a page hours ago, or never.
#[tokio::test(start_paused = true)]
async fn a_report_is_judged_by_what_the_table_can_serve_now() {
    let tables = Tables::claimed(config()).await;
    let (scaler, other) = (tables.instance(1), tables.instance(2));
    let few = WarmThroughput { write_units: 1_000, ..WARM };
    other.until(soon()).publish_warm_throughput(few).await.expect("published");
    let short = report_throttles(&scaler, &key()).await.expect("a response");
    let ScaleOutcome::Unchanged(decision) = short else { panic!("{short:?}") };
    assert!(matches!(decision, ScalingDecision::ShortOfPartitions { write_units: Some(_), .. }));
    other.until(soon()).publish_warm_throughput(WARM).await.expect("published");
    // In virtual time, two reads at the same instant would have the same age.
    sleep(Duration::from_millis(1)).await;
    let grown = report_throttles(&scaler, &key()).await.expect("a response");
    assert!(matches!(grown, ScaleOutcome::Scaled { to, .. } if to == count(2)), "{grown:?}");
}
