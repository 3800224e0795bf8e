//! `batch_put` of the crate: any number of items, with back-pressure and a time limit for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use sharding::{Attributes, ShardedTable, WriteErrorKind};
use system_tests::{Tables, config};

/// The most writes that are under way at once.
const CONCURRENCY: usize = 64;

async fn table() -> ShardedTable {
    let tables = Tables::unclaimed(config()).await;
    Tables { service_time: Duration::from_millis(100), ..tables }.sharded_table()
}

fn items(count: usize) -> impl Iterator<Item = (&'static str, String, Attributes)> {
    (0..count).map(|n| ("day", format!("order-{n:05}"), Attributes::new()))
}

#[tokio::test(start_paused = true)]
async fn items_are_taken_only_as_earlier_ones_end() {
    let (table, taken) = (table().await, Arc::new(AtomicUsize::new(0)));
    let counted = items(500).inspect(|_| {
        taken.fetch_add(1, Ordering::Relaxed);
    });
    let mut outcomes = table.batch_put(counted).stream();
    assert_eq!(taken.load(Ordering::Relaxed), 0, "nothing is taken before the stream is polled");
    let mut positions = Vec::new();
    while let Some((position, outcome)) = outcomes.next().await {
        outcome.expect("stored");
        assert!(taken.load(Ordering::Relaxed) <= positions.len() + CONCURRENCY);
        positions.push(position);
    }
    positions.sort_unstable();
    assert!(positions.into_iter().eq(0..500), "each item has one outcome");
}

/// A write that has begun needs no further poll of the stream.
#[tokio::test(start_paused = true)]
async fn a_slow_consumer_of_the_outcomes_fails_no_item() {
    let table = table().await;
    table.put("day", "first", Attributes::new()).await.expect("stored");
    let mut outcomes = table.batch_put(items(200)).timeout(Duration::from_secs(1)).stream();
    while let Some((position, outcome)) = outcomes.next().await {
        assert!(outcome.is_ok(), "{position}: {outcome:?}");
        if position % 50 == 0 {
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_repeated_by_its_positions() {
    let tables = Tables::unclaimed(config()).await;
    let good = tables.sharded_table();
    let lost = Tables { service_time: Duration::from_secs(3_600), ..tables }.sharded_table();
    let mut items: Vec<_> = items(100).collect();
    items[7].1.clear();
    good.put("day", "first", Attributes::new()).await.expect("stored");
    let outcome = lost.batch_put(items.clone()).timeout(Duration::from_secs(1)).await;
    assert_eq!((outcome.written, outcome.failed.len()), (0, 100));
    assert!(outcome.failed.iter().map(|(position, _)| *position).eq(0..100), "in their order");
    assert!(matches!(outcome.failed[7].1.kind, WriteErrorKind::Invalid(_)));
    let again: Vec<_> = outcome.to_repeat().map(|position| items[position].clone()).collect();
    assert_eq!(again.len(), 99, "repeating does not help the one without a sort key");
    let outcome = good.batch_put(again).await;
    assert_eq!(outcome.written, 99, "{:?}", outcome.failed);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_for_all_items_together() {
    let table = table().await;
    table.put("day", "first", Attributes::new()).await.expect("stored");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(1);
    let outcome = table.batch_put(items(2_000)).deadline(deadline).await;
    assert!((CONCURRENCY..2_000).contains(&outcome.written), "{}", outcome.written);
    assert_eq!(outcome.to_repeat().count(), 2_000 - outcome.written);
    assert!(tokio::time::Instant::now() < deadline + Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn items_of_a_stream_are_stored_as_they_come() {
    let table = table().await;
    let slow = stream::iter(items(10)).then(|item| async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        item
    });
    assert_eq!(table.batch_put_stream(slow).await.written, 10);
}
