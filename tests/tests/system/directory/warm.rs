//! The immediate capacity of the table, as its pages show it.

use std::time::Duration;

use sharding::WarmThroughput;
use sharding::internal::{TableEngine, protocol::directory::PAGES};
use sharding::maintenance::{ScaleOutcome, ScalingDecision};
use system_tests::metadata::{self, page_copy, page_key};
use system_tests::{Fate, Wire, count, report_throttles, soon};
use tokio::time::sleep;

use super::{Fixture, KEY, key};

const WARM: WarmThroughput = WarmThroughput { write_units: 24_000, read_units: 12_000 };
const ATTRIBUTE: &str = "warm_throughput";

impl Fixture {
    async fn warm_entry(&self, page: u32, copy: u32) -> Option<String> {
        let page = metadata::read(&self.client, &page_copy(page, copy)).await?;
        page.get(ATTRIBUTE)?.as_s().ok().cloned()
    }
}

async fn known(table: &TableEngine) -> Option<WarmThroughput> {
    table.warm_throughput(&key(), soon()).await.expect("a response")
}

fn updates(wire: &Wire) -> usize {
    wire.calls().iter().filter(|call| call.operation == "UpdateItem").count()
}

#[tokio::test(start_paused = true)]
async fn the_capacity_is_written_to_differing_copies_and_known_to_all() {
    let fixture = Fixture::new().await;
    fixture.instance(1).raise_directory_copies(2, soon()).await.expect("raised");
    let (publisher, wire) = fixture.wired(2, |_| Fate::Pass);
    assert_eq!(known(&fixture.instance(3)).await, None, "it was not published yet");
    publisher.publish_warm_throughput(WARM, soon()).await.expect("published");
    for page in 0..PAGES {
        for copy in 0..2 {
            let stored = fixture.warm_entry(page, copy).await;
            assert_eq!(stored.as_deref(), Some("24000 12000"), "{page} {copy}");
        }
    }
    let all = 2 * PAGES as usize;
    assert_eq!(updates(&wire), all);
    assert_eq!(known(&fixture.instance(4)).await, Some(WARM));
    publisher.publish_warm_throughput(WARM, soon()).await.expect("as before");
    assert_eq!(updates(&wire), all, "it is already stored");
    // One copy is behind.
    metadata::set(&fixture.client, &page_key(KEY, 1), [(ATTRIBUTE, metadata::text("4000 12000"))])
        .await;
    publisher.publish_warm_throughput(WARM, soon()).await.expect("published");
    assert_eq!(updates(&wire), all + 1);
    publisher.raise_directory_copies(3, soon()).await.expect("raised");
    for page in 0..PAGES {
        assert_eq!(fixture.warm_entry(page, 2).await.as_deref(), Some("24000 12000"), "{page}");
    }
}

/// A copy with only this attribute would look like a page that existed before.
#[tokio::test(start_paused = true)]
async fn a_missing_copy_is_not_created_by_a_capacity_update() {
    let fixture = Fixture::new().await;
    let table = fixture.instance(1);
    table.raise_directory_copies(2, soon()).await.expect("raised");
    metadata::lose(&fixture.client, &page_key(KEY, 1)).await;
    table.publish_warm_throughput(WARM, soon()).await.expect("published");
    assert_eq!(metadata::read(&fixture.client, &page_key(KEY, 1)).await, None);
    table.repair_directory(soon()).await.expect("repaired");
    let copy = metadata::read(&fixture.client, &page_key(KEY, 1)).await.expect("created again");
    assert!(copy.contains_key(ATTRIBUTE), "{copy:?}");
}

/// The shard-scaler may have read a page hours ago, or never.
#[tokio::test(start_paused = true)]
async fn a_report_is_judged_by_what_the_table_can_serve_now() {
    let fixture = Fixture::new().await;
    let (scaler, other) = (fixture.instance(1), fixture.instance(2));
    let few = WarmThroughput { write_units: 1_000, ..WARM };
    other.publish_warm_throughput(few, soon()).await.expect("published");
    let short = report_throttles(&scaler, &key()).await.expect("a response");
    let ScaleOutcome::Unchanged(decision) = short else { panic!("{short:?}") };
    assert!(matches!(decision, ScalingDecision::ShortOfPartitions { write_units: Some(_), .. }));
    other.publish_warm_throughput(WARM, soon()).await.expect("published");
    // In virtual time, two reads at the same instant would have the same age.
    sleep(Duration::from_millis(1)).await;
    let grown = report_throttles(&scaler, &key()).await.expect("a response");
    assert!(matches!(grown, ScaleOutcome::Scaled { to, .. } if to == count(2)), "{grown:?}");
}
