//! An actor dies between the updates of a metadata item and of the copies of its page. Other actors
//! wait only a short time, and no read is wrong meanwhile.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use sharding::internal::{Clock, Deadline, Environment, TableEngine};
use sharding::maintenance::ScaleOutcome;
use sharding::{Placement, ShardNumber};
use system_tests::at_once::StandingClock;
use system_tests::metadata::{self, Stored, number, number_of, page_key};
use system_tests::{
    Call, Fate, Tables, config, count, numbered, numbers, read_items, soon, sort_key,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{
    Expected, KEY, assert_copies, assert_finds, entry_in, entry_of_item, get, item, key, list, put,
    shards, store,
};

/// The longest wait of a writer: for the closer's open, a random pause, and its own open.
const LONGEST_WAIT: Duration = Duration::from_millis(4_000);

/// A key of four shards with items from before and after its growth, in a directory of two copies.
async fn grown() -> (Tables, Expected) {
    let tables = Tables::claimed(config()).await;
    let (table, mut expected) = (tables.instance(1), Expected::new());
    table.until(soon()).raise_directory_copies(2).await.expect("raised");
    store(&table, numbered(0..15), 1, &mut expected).await;
    table.until(soon()).grow(&key(), count(4)).await.expect("grown");
    store(&table, numbered(10..30), 2, &mut expected).await;
    sleep(Duration::from_secs(5)).await;
    (tables, expected)
}

/// Closes the key to 8 shards in the metadata item, as an actor does.
async fn close_item(tables: &Tables) {
    let before = metadata::read(&tables.client, KEY).await.expect("it is stored");
    let generation = number_of(&before, "generation") + 1;
    let next = [("closing", 8), ("read_shards", 8), ("generation", generation)];
    metadata::set(&tables.client, KEY, next.map(|(name, n)| (name, number(n)))).await;
}

/// Opens the key in the metadata item, as the same actor does after its wait.
async fn open_item(tables: &Tables) {
    let before = metadata::read(&tables.client, KEY).await.expect("it is stored");
    let now = tables.clock.now().epoch_seconds();
    let mut history = before["shard_history"].as_ss().expect("a history").clone();
    history.push(format!("{now}:8"));
    metadata::remove(&tables.client, KEY, "closing").await;
    let next = [
        ("number_of_shards", number(8)),
        ("era", number(number_of(&before, "era") + 1)),
        ("generation", number(number_of(&before, "generation") + 1)),
        ("last_updated", number(now)),
        ("shard_history", AttributeValue::Ss(history)),
    ];
    metadata::set(&tables.client, KEY, next).await;
}

/// Writes the current state of the metadata item to this copy of its page.
async fn publish_item(tables: &Tables, copy: u32) {
    list(tables, copy, &entry_of_item(tables).await).await;
}

async fn both_copies(tables: &Tables) -> [Stored; 2] {
    let copy = async |copy| metadata::read(&tables.client, &page_key(KEY, copy)).await;
    [copy(0).await.expect("it is stored"), copy(1).await.expect("it is stored")]
}

async fn put_back(tables: &Tables, copies: [Stored; 2]) {
    for copy in copies {
        metadata::put_back(&tables.client, copy).await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_actor_completes_the_change_of_a_dead_one() {
    // The copies with the closing, whether the metadata item is open again, and the copies with the
    // open.
    let rows: [(&str, &[u32], bool, &[u32]); 4] = [
        ("closed in one copy of two", &[0], false, &[]),
        ("closed in both copies", &[0, 1], false, &[]),
        ("opened in the item", &[0, 1], true, &[]),
        ("opened in the item and in one copy", &[0, 1], true, &[1]),
    ];
    for (about, closing, is_opened, opened) in rows {
        let (tables, mut expected) = grown().await;
        let old = tables.instance(2);
        assert_finds(&old, &expected, about).await;
        close_item(&tables).await;
        for copy in closing {
            publish_item(&tables, *copy).await;
        }
        sleep(Duration::from_secs(2)).await;
        if is_opened {
            open_item(&tables).await;
        }
        for copy in opened {
            publish_item(&tables, *copy).await;
        }

        // Enough writers that each copy is read by some of them.
        let (died, mut writers) = (Instant::now(), JoinSet::new());
        for seed in 10..26 {
            let table = tables.instance(seed);
            writers.spawn(async move {
                let text = format!("of-{seed}");
                put(&table, &text, seed).await;
                (text, seed, died.elapsed())
            });
        }
        for seed in 30..36 {
            // There are no new writes of these items.
            let mut found = numbers(&read_items(&tables.instance(seed), &key(), 200).await);
            found.retain(|text, _| !text.starts_with("of-"));
            assert_eq!(found, expected, "{about}: while it is torn");
        }
        let mut waits = Vec::new();
        while let Some(written) = writers.join_next().await {
            let (text, value, waited) = written.expect("no writer fails");
            expected.insert(text, value);
            waits.push(waited);
        }
        waits.sort_unstable();
        let (shortest, longest) = (waits[0], waits[waits.len() - 1]);
        println!("{about}: writers waited {shortest:?} to {longest:?}");
        assert!(longest <= LONGEST_WAIT, "{about}: {longest:?}");
        let tells_nobody = closing.len() < 2 || !opened.is_empty();
        assert_eq!(shortest < Duration::from_millis(100), tells_nobody, "{about}: {shortest:?}");
        assert!(longest > Duration::from_secs(1), "{about}: some writer must have met the closing");

        put(&old, "by-one-that-knew-it-before", 7).await;
        expected.insert("by-one-that-knew-it-before".to_owned(), 7);
        for table in [&old, &tables.instance(3)] {
            assert_finds(table, &expected, about).await;
        }
        let metadata = shards(&old).await;
        assert_eq!((metadata.number_of_shards, metadata.closing()), (count(8), None), "{about}");
        assert_copies(&tables, 2, about).await;
        assert_eq!(old.until(soon()).repair_directory().await.expect("compared"), 0, "{about}");
    }
}

/// The request that detects the dead actor may end, or be frozen, before its wait for the open
/// ends.
#[tokio::test(start_paused = true)]
async fn a_takeover_outlives_its_request_and_only_one_runs_at_a_time() {
    let (tables, _) = grown().await;
    close_item(&tables).await;
    for copy in [0, 1] {
        publish_item(&tables, copy).await;
    }
    // It closes again so slowly that the waiting writer would begin another takeover, after at most
    // 4.2 s.
    let (table, wire) = tables.wired(2, |call| {
        let closes_again = !call.to_items && call.operation == "UpdateItem" && call.before == 0;
        if closes_again { Fate::Hold(Duration::from_millis(2_500)) } else { Fate::Pass }
    });
    // The key opens after at least 5.2 s.
    let waited = timeout(Duration::from_millis(4_500), table.put(&item("late", 1), soon())).await;
    waited.expect_err("the request ends while it waits");
    table.finish_background_work().await;
    let metadata = shards(&tables.instance(3)).await;
    assert_eq!((metadata.number_of_shards, metadata.closing()), (count(8), None));
    let calls = wire.calls();
    let is_change =
        |call: &&Call| call.operation == "UpdateItem" && call.key.as_deref() == Some(KEY);
    assert_eq!(calls.iter().filter(is_change).count(), 2, "it closes again once, and opens");
}

/// The key's writers do not know of the closing, but an actor that changes the key does.
#[tokio::test(start_paused = true)]
async fn a_closing_in_the_item_only_stops_no_writer() {
    for grows_first in [true, false] {
        let about = if grows_first { "a key that has grown" } else { "a key that never grew" };
        let (tables, mut expected) = if grows_first {
            grown().await
        } else {
            (Tables::claimed(config()).await, Expected::new())
        };
        if grows_first {
            close_item(&tables).await;
        } else {
            store(&tables.instance(1), numbered(0..20), 1, &mut expected).await;
            let first =
                [("number_of_shards", 1), ("read_shards", 8), ("closing", 8), ("generation", 1)];
            metadata::store(&tables.client, KEY, first.map(|(name, n)| (name, number(n)))).await;
        }
        let table = tables.instance(2);
        let began = Instant::now();
        store(&table, numbered(25..40), 3, &mut expected).await;
        assert_finds(&table, &expected, about).await;
        assert!(began.elapsed() < Duration::from_millis(100), "{about}: {:?}", began.elapsed());
        let grown = tables.instance(3).until(soon()).grow(&key(), count(16)).await.expect("grown");
        let ScaleOutcome::Scaled { to, .. } = grown else { panic!("{about}: {grown:?}") };
        assert_eq!(to, count(16), "{about}");
        // The actor takes the closing over, and then makes its own change.
        assert!(began.elapsed() < Duration::from_secs(6), "{about}: {:?}", began.elapsed());
        store(&table, numbered(30..50), 4, &mut expected).await;
        for table in [&table, &tables.instance(4)] {
            assert_finds(table, &expected, about).await;
        }
    }
}

/// An instance that has a newer layout than its page for seconds repairs the page by itself.
#[tokio::test(start_paused = true)]
async fn an_instance_that_knows_more_than_its_page_repairs_it() {
    let (tables, mut expected) = grown().await;
    let behind = both_copies(&tables).await;
    let table = tables.instance(2);
    table.until(soon()).grow(&key(), count(8)).await.expect("grown");
    put_back(&tables, behind.clone()).await;
    for round in 0..10u64 {
        store(&table, [format!("round-{round}")].into_iter(), round, &mut expected).await;
        sleep(Duration::from_secs(1)).await;
    }
    table.finish_background_work().await;
    assert_copies(&tables, 2, "repaired").await;
    assert_finds(&tables.instance(3), &expected, "repaired").await;
    // Without a writer, the schedule's comparison repairs both copies.
    put_back(&tables, behind).await;
    let compared = tables.instance(4).until(soon()).repair_directory().await.expect("compared");
    assert_eq!(compared, 2);
    assert_copies(&tables, 2, "compared").await;
}

/// A page that is behind by an era must have been restored. The items show it, and the metadata
/// item is right.
#[tokio::test(start_paused = true)]
async fn a_page_an_era_behind_its_item_is_noticed_by_reads_and_writes() {
    let (tables, mut expected) = grown().await;
    let behind = both_copies(&tables).await;
    let table = tables.instance(2);
    table.until(soon()).grow(&key(), count(8)).await.expect("grown");
    store(&table, numbered(0..60), 5, &mut expected).await;
    let entry = entry_of_item(&tables).await;
    let restore = async || {
        put_back(&tables, behind.clone()).await;
        sleep(Duration::from_secs(2)).await;
    };
    restore().await;
    assert_finds(&tables.instance(3), &expected, "a page over all shards is read again").await;

    // An item at a place that both widths read.
    let both = super::lost::at_home_under_both(&expected, 4, 8);
    restore().await;
    assert_eq!(get(&tables.instance(4), &both).await, Some(5));
    assert_ne!(entry_in(&tables, 0).await.as_ref(), Some(&entry), "a reader writes nothing");

    restore().await;
    let writer = tables.instance(5);
    let in_time = Deadline::now() + Duration::from_secs(5);
    writer.put(&item(&both, 6), in_time).await.expect("stored by the item");
    expected.insert(both, 6);
    assert_copies(&tables, 2, "repaired by the writer").await;
    for table in [&writer, &tables.instance(6)] {
        assert_finds(table, &expected, "the writer has repaired the page").await;
    }
}

/// The outdated page and the current item are read at the same instant, as with a coarse clock.
#[tokio::test(start_paused = true)]
async fn a_write_goes_home_by_its_own_view_even_if_the_last_is_as_new() {
    let (tables, mut expected) = grown().await;
    let behind = both_copies(&tables).await;
    let table = tables.instance(2);
    table.until(soon()).grow(&key(), count(8)).await.expect("grown");
    store(&table, numbered(0..60), 5, &mut expected).await;
    table.until(soon()).grow(&key(), count(16)).await.expect("grown");
    put_back(&tables, behind).await;
    // A copy of an intermediate era is stored at the home under the page's width. It sends the
    // writer to the metadata item.
    let home =
        |text: &str, width| Placement::Calculated.home(&key(), &sort_key(text), count(width));
    let moved = |text: &&String| home(text, 4) == home(text, 8) && home(text, 8) != home(text, 16);
    let text = expected.keys().find(moved).expect("some item moves by the last growth only");
    let environment = Environment::seeded(StandingClock, 5);
    let writer = TableEngine::with_environment(&tables.client, config(), environment);
    assert_eq!(Some(put(&writer, text, 6).await.shard), home(text, 16).map(ShardNumber::get));
}
