//! Entries of a page. They change only to a higher generation. If there is no room for another
//! entry, the key does not grow.

use std::time::Duration;

use sharding::internal::protocol::directory::{FULL_PAGE_BYTES, MAX_PAGE_BYTES, PAGES};
use sharding::maintenance::{DrainRefused, ScaleOutcome, ScalingDecision, ScalingStep};
use system_tests::metadata::{self, number_of, page_copy, page_key, text};
use system_tests::{Fate, Tables, config, count, numbered, partition_key, report_throttles, soon};
use tokio::time::sleep;

use super::recorder::MetricRecorder;
use super::{
    Expected, KEY, assert_finds, entry_in, get, grown, key, neighbours, put, store, updates,
};

#[tokio::test(start_paused = true)]
async fn a_full_page_refuses_only_a_first_growth_before_it_begins() {
    let (tables, table, mut expected) = grown(2, 10).await;
    let neighbour = neighbours().next().expect("there is no end of keys");
    let filler = "x".repeat(FULL_PAGE_BYTES);
    metadata::set(&tables.client, &page_key(KEY, 0), [("key:filler", text(&filler))]).await;
    sleep(Duration::from_secs(2)).await;

    let full = ScaleOutcome::Unchanged(ScalingDecision::DirectoryFull);
    let mut events = table.until(soon()).events();
    for table in [&table, &tables.instance(2)] {
        let set = table.until(soon()).grow(&neighbour, count(4)).await.expect("a response");
        assert_eq!(set, full);
        assert_eq!(report_throttles(table, &neighbour).await.expect("a response"), full);
    }
    let stored = metadata::read(&tables.client, neighbour.as_str()).await;
    assert_eq!(stored, None, "it was not closed");
    let event = events.try_recv().expect("an event");
    assert_eq!(event.step, ScalingStep::Unchanged(ScalingDecision::DirectoryFull));

    // Listed keys change as before, and a key on another page grows.
    table.until(soon()).grow(&key(), count(8)).await.expect("grown");
    store(&table, numbered(5..30), 2, &mut expected).await;
    assert_finds(&tables.instance(3), &expected, "a listed key of a full page").await;
    let other = numbered(0..99).find(|name| page_key(name, 0) != page_key(KEY, 0));
    let other = partition_key(&other.expect("there are four pages"));
    table.until(soon()).grow(&other, count(4)).await.expect("grown");

    // When there is room again, it grows.
    metadata::remove(&tables.client, &page_key(KEY, 0), "key:filler").await;
    let grown = table.until(soon()).grow(&neighbour, count(4)).await.expect("grown");
    assert!(matches!(grown, ScaleOutcome::Scaled { .. }), "{grown:?}");
}

/// The closing would be in the metadata item, and could not be published.
#[tokio::test(start_paused = true)]
async fn a_page_at_its_size_limit_also_rejects_changes_of_listed_keys() {
    let (tables, table, _) = grown(4, 0).await;
    let before = metadata::read(&tables.client, KEY).await;
    let filler = "x".repeat(MAX_PAGE_BYTES);
    metadata::set(&tables.client, &page_key(KEY, 0), [("key:filler", text(&filler))]).await;
    sleep(Duration::from_secs(5)).await;
    let full = ScaleOutcome::Unchanged(ScalingDecision::DirectoryFull);
    for table in [&table, &tables.instance(2)] {
        assert_eq!(table.until(soon()).grow(&key(), count(8)).await.expect("a response"), full);
        let shrunk = table.until(soon()).shrink(&key(), count(1)).await;
        let is_full = matches!(&shrunk, Err(DrainRefused::Busy(why)) if why.contains("full"));
        assert!(is_full, "{shrunk:?}");
    }
    assert_eq!(metadata::read(&tables.client, KEY).await, before, "it was not closed");
}

#[tokio::test(start_paused = true)]
async fn the_fill_of_a_page_is_reported_long_before() {
    for (percent, is_reported) in [(48, false), (52, true), (99, true)] {
        let recorded = MetricRecorder::default();
        let _recorder = metrics::set_default_local_recorder(&recorded);
        let tables = Tables::claimed(config()).await;
        let filler = "x".repeat(FULL_PAGE_BYTES * percent / 100);
        metadata::set(&tables.client, &page_key(KEY, 0), [("key:filler", text(&filler))]).await;
        let mut expected = Expected::new();
        store(&tables.instance(1), numbered(0..3), 1, &mut expected).await;
        let fill = recorded.of("ShardingDirectoryFill");
        assert_eq!(!fill.is_empty(), is_reported, "{percent} %: {fill:?}");
        let about = percent as f64..percent as f64 + 0.5;
        assert!(fill.iter().all(|fill| about.contains(fill)), "{percent} %: {fill:?}");
    }
}

/// `REGISTER_KEYS`: a key that never grew has an item in the metadata table, and no entry.
#[tokio::test(start_paused = true)]
async fn with_registration_the_first_write_stores_the_metadata_once() {
    let tables = Tables::claimed(config().with(|config| config.register_keys = true)).await;
    let (table, wire) = tables.wired(1, |_| Fate::Pass);
    let (other, of_other) = tables.wired(2, |_| Fate::Pass);
    assert_eq!(get(&table, "order").await, None);
    table.finish_background_work().await;
    assert_eq!(metadata::read(&tables.client, KEY).await, None, "a read registers nothing");
    for (table, value) in [(&table, 1), (&table, 2), (&other, 3)] {
        put(table, "order", value).await;
        table.finish_background_work().await;
    }
    assert_eq!((updates(&wire), updates(&of_other)), (1, 0));
    let stored = metadata::read(&tables.client, KEY).await.expect("it is registered");
    assert_eq!(["number_of_shards", "generation"].map(|name| number_of(&stored, name)), [1, 1]);
    assert_eq!(entry_in(&tables, 0).await, None, "it has not grown");
    let listed = table.until(soon()).list(None).await.expect("a list").0;
    assert_eq!(listed.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [key()]);
    table.until(soon()).grow(&key(), count(4)).await.expect("grown");
    assert!(entry_in(&tables, 0).await.is_some());
}

/// The documented size of a page: the number of grown keys that it holds, and the number that are
/// read for one unit. Keys may be long: with the keys themselves, 127 of these filled a page for
/// ever.
#[tokio::test(start_paused = true)]
async fn a_page_lists_thousands_of_keys() {
    const KEYS: usize = 10;
    let tables = Tables::claimed(config()).await;
    let table = tables.instance(1);
    // Three growths each, as of a key that was relieved step by step.
    for number in 0..KEYS {
        let key = partition_key(&format!("{number:2000}"));
        for width in [12, 18, 40] {
            table.until(soon()).grow(&key, count(width)).await.expect("grown");
        }
    }
    let mut bytes = 0;
    for page in 0..PAGES {
        let page = metadata::read(&tables.client, &page_copy(page, 0)).await.expect("a page");
        let entries = page.iter().filter(|(name, _)| name.starts_with("key:"));
        let sizes = entries.map(|(name, entry)| name.len() + entry.as_s().map_or(0, String::len));
        bytes += sizes.sum::<usize>();
    }
    let each = bytes / KEYS;
    let (in_unit, in_page) = (4_096 / each, FULL_PAGE_BYTES / each);
    println!("{each} bytes an entry: {in_unit} in a read unit, {in_page} in a full page");
    assert!((80..=110).contains(&each), "{each}");
}
