//! Entries of a page. They change only to a higher generation. If there is no room for another
//! entry, the key does not grow.

use std::time::Duration;

use sharding::PartitionKey;
use sharding::internal::protocol::directory::{FULL_PAGE_BYTES, MAX_PAGE_BYTES, PAGES};
use sharding::maintenance::{DrainRefused, ScaleOutcome, ScalingDecision, ScalingStep};
use system_tests::metadata::{self, page_copy, page_key, text};
use system_tests::{count, numbered, partition_key, report_throttles, soon};
use tokio::time::sleep;

use super::recorder::MetricRecorder;
use super::{Expected, Fixture, KEY, assert_finds, key, store};

/// A key on the same page as [`KEY`], or on another one.
fn other_key(is_neighbour: bool) -> PartitionKey {
    let mut names = (0..).map(|number| format!("other-{number}"));
    let is_wanted = |name: &String| (page_key(name, 0) == page_key(KEY, 0)) == is_neighbour;
    partition_key(&names.find(is_wanted).expect("there are four pages"))
}

#[tokio::test(start_paused = true)]
async fn a_full_page_refuses_only_a_first_growth_before_it_begins() {
    let (fixture, table, mut expected) = Fixture::grown(2, 10).await;
    let neighbour = other_key(true);
    let filler = "x".repeat(FULL_PAGE_BYTES);
    metadata::set(&fixture.client, &page_key(KEY, 0), [("key:filler", text(&filler))]).await;
    sleep(Duration::from_secs(2)).await;

    let full = ScaleOutcome::Unchanged(ScalingDecision::DirectoryFull);
    let mut events = table.scaling_events();
    for table in [&table, &fixture.instance(2)] {
        let set = table.set_shards(&neighbour, count(4), soon()).await.expect("a response");
        assert_eq!(set, full);
        assert_eq!(report_throttles(table, &neighbour).await.expect("a response"), full);
    }
    let stored = metadata::read(&fixture.client, neighbour.as_str()).await;
    assert_eq!(stored, None, "it was not closed");
    let event = events.try_recv().expect("an event");
    assert_eq!(event.step, ScalingStep::Unchanged(ScalingDecision::DirectoryFull));

    // Listed keys change as before, and a key on another page grows.
    table.set_shards(&key(), count(8), soon()).await.expect("grown");
    store(&table, numbered(5..30), 2, &mut expected).await;
    assert_finds(&fixture.instance(3), &expected, "a listed key of a full page").await;
    table.set_shards(&other_key(false), count(4), soon()).await.expect("grown");

    // When there is room again, it grows.
    metadata::remove(&fixture.client, &page_key(KEY, 0), "key:filler").await;
    let grown = table.set_shards(&neighbour, count(4), soon()).await.expect("grown");
    assert!(matches!(grown, ScaleOutcome::Scaled { .. }), "{grown:?}");
}

/// The closing would be in the metadata item, and could not be published.
#[tokio::test(start_paused = true)]
async fn a_page_at_its_size_limit_also_rejects_changes_of_listed_keys() {
    let (fixture, table, _) = Fixture::grown(4, 0).await;
    let before = metadata::read(&fixture.client, KEY).await;
    let filler = "x".repeat(MAX_PAGE_BYTES);
    metadata::set(&fixture.client, &page_key(KEY, 0), [("key:filler", text(&filler))]).await;
    sleep(Duration::from_secs(5)).await;
    let full = ScaleOutcome::Unchanged(ScalingDecision::DirectoryFull);
    for table in [&table, &fixture.instance(2)] {
        assert_eq!(table.set_shards(&key(), count(8), soon()).await.expect("a response"), full);
        let shrunk = table.begin_shrink(&key(), count(1), soon()).await;
        let is_full = matches!(&shrunk, Err(DrainRefused::Busy(why)) if why.contains("full"));
        assert!(is_full, "{shrunk:?}");
    }
    assert_eq!(metadata::read(&fixture.client, KEY).await, before, "it was not closed");
}

#[tokio::test(start_paused = true)]
async fn the_fill_of_a_page_is_reported_long_before() {
    for (percent, is_reported) in [(48, false), (52, true), (99, true)] {
        let recorded = MetricRecorder::default();
        let _recorder = metrics::set_default_local_recorder(&recorded);
        let fixture = Fixture::new().await;
        let filler = "x".repeat(FULL_PAGE_BYTES * percent / 100);
        metadata::set(&fixture.client, &page_key(KEY, 0), [("key:filler", text(&filler))]).await;
        let mut expected = Expected::new();
        store(&fixture.instance(1), numbered(0..3), 1, &mut expected).await;
        let fill = recorded.of("ShardingDirectoryFill");
        assert_eq!(!fill.is_empty(), is_reported, "{percent} %: {fill:?}");
        let about = percent as f64..percent as f64 + 0.5;
        assert!(fill.iter().all(|fill| about.contains(fill)), "{percent} %: {fill:?}");
    }
}

/// The documented size of a page: the number of grown keys that it holds, and the number that are
/// read for one unit. Keys may be long: with the keys themselves, 127 of these filled a page for
/// ever.
#[tokio::test(start_paused = true)]
async fn a_page_lists_thousands_of_keys() {
    const KEYS: usize = 10;
    let fixture = Fixture::new().await;
    let table = fixture.instance(1);
    // Three growths each, as of a key that was relieved step by step.
    for number in 0..KEYS {
        let key = partition_key(&format!("{number:2000}"));
        for width in [12, 18, 40] {
            table.set_shards(&key, count(width), soon()).await.expect("grown");
        }
    }
    let mut bytes = 0;
    for page in 0..PAGES {
        let page = metadata::read(&fixture.client, &page_copy(page, 0)).await.expect("a page");
        let entries = page.iter().filter(|(name, _)| name.starts_with("key:"));
        let sizes = entries.map(|(name, entry)| name.len() + entry.as_s().map_or(0, String::len));
        bytes += sizes.sum::<usize>();
    }
    let each = bytes / KEYS;
    let (in_unit, in_page) = (4_096 / each, FULL_PAGE_BYTES / each);
    println!("{each} bytes an entry: {in_unit} in a read unit, {in_page} in a full page");
    assert!((80..=110).contains(&each), "{each}");
}
