//! A missing or incomplete page never means that no key has grown. The metadata table may be
//! unavailable for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sharding::internal::Deadline;
use sharding::maintenance::Survey;
use sharding::{ReadError, WriteErrorKind, Writes};
use system_tests::metadata::{self, page_key};
use system_tests::{Call, Fate, OneItem, Tables, config, count, numbered, soon, sort_key};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::recorder::MetricRecorder;
use super::{
    Expected, KEY, assert_finds, get, grown, item, key, list, neighbours, put, reads_of, store,
};

const FULL: &str = r#"{"__type":"x#ThrottlingException","message":"full","throttlingReasons":[]}"#;

#[tokio::test(start_paused = true)]
async fn a_missing_or_incomplete_page_does_not_mean_no_key_has_grown() {
    for about in ["missing", "not complete"] {
        let recorded = MetricRecorder::default();
        let _recorder = metrics::set_default_local_recorder(&recorded);
        let tables = Tables::claimed(config()).await;
        let (old, mut expected) = (tables.instance(1), Expected::new());
        store(&old, numbered(0..20), 1, &mut expected).await;
        old.until(soon()).grow(&key(), count(8)).await.expect("grown");
        store(&old, numbered(20..40), 1, &mut expected).await;
        match about {
            "missing" => metadata::lose(&tables.client, &page_key(KEY, 0)).await,
            _ => metadata::remove(&tables.client, &page_key(KEY, 0), "copies").await,
        }
        // Every view has expired.
        sleep(Duration::from_secs(2)).await;
        assert_eq!(recorded.of("ShardingDirectoryIncomplete").len(), 0, "{about}");
        let (new, wire) = tables.wired(2, |_| Fate::Pass);
        for (table, texts) in [(&old, numbered(35..50)), (&new, numbered(45..60))] {
            assert_finds(table, &expected, about).await;
            store(table, texts, 2, &mut expected).await;
            assert_finds(table, &expected, about).await;
        }
        assert!(reads_of(&wire, KEY) > 0, "{about}: the metadata item shows where its items are");
        assert!(!recorded.of("ShardingDirectoryIncomplete").is_empty(), "{about}");

        // The key can still grow. The page is not used before it was compared with all items.
        new.until(soon()).grow(&key(), count(16)).await.expect("grown");
        let reads_item = async || {
            sleep(Duration::from_secs(2)).await;
            let before = reads_of(&wire, KEY);
            assert_finds(&new, &expected, about).await;
            reads_of(&wire, KEY) > before
        };
        assert!(reads_item().await, "{about}");
        new.until(soon()).repair_directory().await.expect("compared");
        assert!(reads_item().await, "{about}: items may also be lost");
        assert_eq!(
            new.until(soon()).rebuild_directory(&Survey::default()).await.expect("rebuilt"),
            (0, 0),
            "{about}"
        );
        assert!(!reads_item().await, "{about}: now its page shows it");
        assert_finds(&old, &expected, about).await;
    }
}

/// Otherwise every request for a key without a view would read the page, one after the other.
#[tokio::test(start_paused = true)]
async fn a_page_that_is_not_complete_is_asked_for_once_in_a_lease() {
    let tables = Tables::claimed(config()).await;
    let page = page_key(KEY, 0);
    metadata::lose(&tables.client, &page).await;
    let (table, wire) = tables.wired(1, |_| Fate::Hold(Duration::from_millis(3)));
    for round in 1..=3 {
        let mut crowd = JoinSet::new();
        for key in neighbours().take(10) {
            let table = table.clone();
            crowd.spawn(async move {
                table.get(&key, &sort_key("order"), true, soon()).await.expect("a response")
            });
        }
        assert!(crowd.join_all().await.iter().all(Option::is_none), "nothing was stored");
        assert_eq!(reads_of(&wire, &page), round);
        sleep(Duration::from_secs(2)).await;
    }
}

/// An instance whose own copy is incomplete reads the first copy, or any other if its own is the
/// first.
#[tokio::test(start_paused = true)]
async fn one_copy_that_is_not_complete_costs_one_more_read() {
    let (tables, old, expected) = grown(4, 20).await;
    old.until(soon()).raise_directory_copies(3).await.expect("raised");
    let whole = metadata::read(&tables.client, &page_key(KEY, 0)).await.expect("it is stored");
    for lost in [0, 1] {
        metadata::lose(&tables.client, &page_key(KEY, lost)).await;
        if lost == 1 {
            metadata::put_back(&tables.client, whole.clone()).await;
            metadata::remove(&tables.client, &page_key(KEY, 2), "copies").await;
        }
        for seed in 10..22 {
            let (new, wire) = tables.wired(seed, |_| Fate::Pass);
            assert_finds(&new, &expected, "some of three copies are lost").await;
            assert_eq!(reads_of(&wire, KEY), 0, "from copy {lost} on, seed {seed}");
        }
    }
}

/// An unreadable page does not mean that a key never grew.
#[tokio::test(start_paused = true)]
async fn an_entry_that_cannot_be_read_sends_its_key_to_the_item() {
    let (tables, _, mut expected) = grown(4, 20).await;
    list(&tables, 0, "000000000002 four").await;
    let (new, wire) = tables.wired(2, |_| Fate::Pass);
    assert_finds(&new, &expected, "a damaged entry").await;
    store(&new, numbered(20..30), 1, &mut expected).await;
    assert_finds(&new, &expected, "a damaged entry").await;
    assert!(reads_of(&wire, KEY) > 0);
}

#[tokio::test(start_paused = true)]
async fn without_the_metadata_table_a_key_works_until_its_lease_ends() {
    let tables = Tables::claimed(config()).await;
    let is_down = Arc::new(AtomicBool::new(false));
    let (table, _) = tables.wired(1, refuses_metadata(&is_down));
    put(&table, "before", 1).await;
    is_down.store(true, Ordering::Relaxed);
    sleep(Duration::from_millis(700)).await;
    put(&table, "within", 1).await;
    assert_eq!(get(&table, "within").await, Some(1));
    sleep(Duration::from_millis(400)).await;
    let in_time = || Deadline::now() + Duration::from_secs(3);
    let put_late = table.put(&item("late", 1), in_time()).await;
    let put_late = put_late.expect_err("the key may have grown");
    assert!(matches!(put_late.kind, WriteErrorKind::Capacity { .. }), "{put_late:?}");
    let read_late = table.get(&key(), &sort_key("before"), true, in_time()).await;
    assert!(matches!(read_late, Err(ReadError::Capacity { .. })), "{read_late:?}");
    is_down.store(false, Ordering::Relaxed);
    let expected = Expected::from([("before".to_owned(), 1), ("within".to_owned(), 1)]);
    assert_finds(&table, &expected, "the rejected write has stored nothing").await;
}

/// Appends with a view under the lease of appends, and without a view.
#[tokio::test(start_paused = true)]
async fn a_throttled_append_does_not_wait_for_the_metadata_table() {
    for idle in [5, 300] {
        let tables = Tables::claimed(config().with(|config| config.writes = Writes::Appends)).await;
        let is_down = Arc::new(AtomicBool::new(false));
        let refuses = refuses_metadata(&is_down);
        let (table, _) = tables.wired(1, move |call| {
            let is_throttled =
                call.to_items && call.operation == "PutItem" && (1..3).contains(&call.before);
            if is_throttled { Fate::Refuse(FULL) } else { refuses(call) }
        });
        put(&table, "before", 1).await;
        is_down.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(idle)).await;
        let sent = Instant::now();
        let written = put(&table, "late", 1).await;
        let found = (written.attempts, written.throttled, written.shard);
        assert_eq!(found, (3, 2, 1), "idle for {idle} s");
        assert!(sent.elapsed() < Duration::from_secs(1), "idle for {idle} s: {:?}", sent.elapsed());
    }
}

fn refuses_metadata(is_down: &Arc<AtomicBool>) -> impl Fn(&Call) -> Fate + Send + Sync + use<> {
    let is_down = Arc::clone(is_down);
    move |call| {
        let is_refused = !call.to_items && is_down.load(Ordering::Relaxed);
        if is_refused { Fate::Refuse(FULL) } else { Fate::Pass }
    }
}
