//! A shard whose partition others fill: a write whose sort key is made for it goes elsewhere.

use std::collections::BTreeSet;
use std::iter::repeat_with;
use std::time::Duration;

use sharding::internal::Deadline;
use sharding::{Attributes, Item, WriteErrorKind, Writes};
use system_tests::{Call, Fate, Tables, config, count, partition_key, soon};
use tokio::time::Instant;

const APPENDS: u32 = 200;
/// Throttles by the partition of a key, and by a limit of the whole table.
const KEY_RANGE: &str = r#"{"__type":"x#ThrottlingException","throttlingReasons":[{"reason":"TableWriteKeyRangeThroughputExceeded","resource":"items"}]}"#;
const MAX_ON_DEMAND: &str = r#"{"__type":"x#ThrottlingException","throttlingReasons":[{"reason":"TableWriteMaxOnDemandThroughputExceeded","resource":"items"}]}"#;

/// The partition of the key's first shard throttles every write.
fn throttles_first_shard(call: &Call) -> Fate {
    let is_of_first = call.to_items && call.key.as_deref() == Some("hot");
    if is_of_first { Fate::Refuse(KEY_RANGE) } else { Fate::Pass }
}

async fn appends(writes: Writes) {
    let tables = Tables::claimed(config().with(|config| config.writes = writes)).await;
    let (table, _) = tables.wired(7, throttles_first_shard);
    let key = partition_key("hot");
    let deadline = || Deadline::now() + Duration::from_secs(5);
    table.until(deadline()).grow(&key, count(8)).await.expect("it grows");

    let (mut throttled, mut shards) = (0, BTreeSet::new());
    for _ in 0..APPENDS {
        let written = table.append(key.clone(), Attributes::new(), deadline()).await;
        let written = written.expect("another shard takes it");
        throttled += written.throttled;
        shards.insert(written.shard);
    }
    assert_eq!(shards, (2..=8).collect(), "all other shards are used");
    // The first append that finds it tells the others for a second.
    assert!(throttled < APPENDS / 20, "{throttled} attempts were throttled");

    // A sort key of the caller's stays on its shard.
    for sort_key in repeat_with(|| table.make_sort_key()).take(40) {
        let item = Item { partition_key: key.clone(), sort_key, attributes: Attributes::new() };
        if let Err(error) = table.put(&item, deadline()).await {
            assert!(matches!(error.kind, WriteErrorKind::Capacity { .. }), "{error}");
            assert_eq!(error.sort_key.as_deref(), Some(&item.sort_key));
            return;
        }
    }
    panic!("no item has its place on the first shard");
}

#[tokio::test(start_paused = true)]
async fn an_append_leaves_a_throttled_shard() {
    appends(Writes::Items).await;
    appends(Writes::Appends).await;
}

/// The first request of an append is throttled. Returns its attempts, and the time until its end.
async fn first_throttled(
    refusal: &'static str,
    patience: Duration,
    writes: Writes,
) -> (u32, Duration) {
    let tables = Tables::claimed(config().with(|config| {
        config.writes = writes;
        config.throttled_for = patience;
    }))
    .await;
    let key = partition_key("hot");
    let (table, _) = tables.wired(1, move |call| {
        let is_first = call.to_items && call.operation == "PutItem" && call.before == 0;
        if is_first { Fate::Refuse(refusal) } else { Fate::Pass }
    });
    table.until(soon()).grow(&key, count(8)).await.expect("it grows");
    let began = Instant::now();
    let written = table.append(key, Attributes::new(), soon()).await;
    let attempts = written.map_or_else(|error| error.attempts, |written| written.attempts);
    (attempts, began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn only_a_write_that_may_move_is_repeated_at_once() {
    const SECOND: Duration = Duration::from_secs(1);
    for writes in [Writes::Items, Writes::Appends] {
        let of_shard = first_throttled(KEY_RANGE, SECOND, writes).await;
        assert_eq!(of_shard, (2, Duration::ZERO), "{writes:?}");
        let of_table = first_throttled(MAX_ON_DEMAND, SECOND, writes).await;
        assert!(of_table.0 == 2 && of_table.1 > Duration::ZERO, "{writes:?}: {of_table:?}");
        let never = first_throttled(KEY_RANGE, Duration::ZERO, writes).await;
        assert_eq!(never.0, 1, "{writes:?}: throttled writes are not repeated");
    }
}
