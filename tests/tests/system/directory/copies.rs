//! Copies of pages: their number is raised under traffic, and every copy gets each change.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded_dynamodb::InProcess;
use local::in_process_clients;
use sharding::TableError;
use sharding::internal::{Environment, PageQuery, TableEngine, protocol::directory::PAGES};
use sharding::maintenance::MAX_COPIES;
use system_tests::metadata::{self, TABLE_ITEM, entry_name, number_of, page_copy, page_key};
use system_tests::{Fate, count, numbered, soon};
use tokio::time::sleep;

use super::{Expected, Fixture, KEY, assert_finds, key, put, reads_of, store};

const REFUSED: &str =
    r#"{"__type":"com.amazon.coral.validate#ValidationException","message":"no"}"#;

impl Fixture {
    /// As [`instance`](Self::instance), with a service time of 3 ms.
    pub(super) fn distant_instance(&self, seed: u64) -> TableEngine {
        let connection =
            InProcess::new(self.engine.clone()).with_service_time(Duration::from_millis(3));
        let environment = Environment::seeded(self.clock.clone(), seed);
        TableEngine::with_environment(
            &in_process_clients(&connection).dynamodb,
            self.config.clone(),
            environment,
        )
    }
}

#[tokio::test(start_paused = true)]
async fn copies_are_raised_while_traffic_runs() {
    let fixture = Fixture::new().await;
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let goes_on = Arc::new(AtomicBool::new(true));
    let writer = {
        let (table, acknowledged) = (fixture.distant_instance(1), Arc::clone(&acknowledged));
        let goes_on = Arc::clone(&goes_on);
        tokio::spawn(async move {
            for number in 0u64.. {
                let text = format!("order-{number:05}");
                put(&table, &text, number).await;
                acknowledged.lock().expect("no thread panics while it holds the lock").insert(text);
                sleep(Duration::from_millis(20)).await;
                if !goes_on.load(Ordering::Relaxed) {
                    return;
                }
            }
        })
    };
    let reader = {
        let (table, acknowledged) = (fixture.distant_instance(2), Arc::clone(&acknowledged));
        let goes_on = Arc::clone(&goes_on);
        tokio::spawn(async move {
            let mut scans = 0;
            while goes_on.load(Ordering::Relaxed) {
                let before =
                    acknowledged.lock().expect("no thread panics while it holds the lock").clone();
                let query = PageQuery { limit: 1_000, consistent: true, ..PageQuery::new(key()) };
                let page = table.query(&query, soon()).await.expect("a page");
                let seen: BTreeSet<String> =
                    page.items.iter().map(|item| item.sort_key.to_string()).collect();
                let missed = before.difference(&seen).next();
                assert_eq!(missed, None, "acknowledged before the read began");
                scans += 1;
                sleep(Duration::from_millis(70)).await;
            }
            scans
        })
    };
    let scaler = fixture.distant_instance(3);
    sleep(Duration::from_secs(1)).await;
    scaler.set_shards(&key(), count(4), soon()).await.expect("grown");
    scaler.raise_directory_copies(3, soon()).await.expect("raised");
    sleep(Duration::from_secs(1)).await;
    // One change after the new copies, and one concurrently with them.
    scaler.set_shards(&key(), count(8), soon()).await.expect("grown");
    let other = fixture.distant_instance(4);
    let beside = async {
        sleep(Duration::from_millis(5)).await;
        other.raise_directory_copies(5, soon()).await
    };
    let hot = key();
    let (grown, raised) = tokio::join!(scaler.set_shards(&hot, count(16), soon()), beside);
    grown.expect("grown");
    raised.expect("raised");
    sleep(Duration::from_secs(2)).await;
    goes_on.store(false, Ordering::Relaxed);
    writer.await.expect("no write fails");
    let scans = reader.await.expect("no read is wrong");
    assert!(scans > 30, "{scans}");

    let entry = fixture.entry_of_item().await;
    for copy in 0..5 {
        assert_eq!(fixture.entry(copy).await.as_ref(), Some(&entry), "copy {copy}");
        let page =
            metadata::read(&fixture.client, &page_key(KEY, copy)).await.expect("it is stored");
        assert_eq!(number_of(&page, "copies"), 5, "copy {copy}");
    }
    // New instances read every copy, and no other page.
    let mut read = BTreeSet::new();
    for seed in 10..50 {
        let (new, wire) = fixture.wired(seed, |_| Fate::Pass);
        new.query(&PageQuery::new(key()), soon()).await.expect("a page");
        assert_eq!(reads_of(&wire, KEY), 0);
        read.extend((0..5).filter(|copy| reads_of(&wire, &page_key(KEY, *copy)) > 0));
    }
    assert_eq!(read, BTreeSet::from([0, 1, 2, 3, 4]));
}

#[tokio::test(start_paused = true)]
async fn a_running_instance_learns_of_new_copies_from_a_page() {
    let fixture = Fixture::new().await;
    let mut read = BTreeSet::new();
    let running: Vec<_> = (10..40).map(|seed| fixture.wired(seed, |_| Fate::Pass)).collect();
    for (table, _) in &running {
        put(table, "order", 1).await;
    }
    fixture.instance(1).raise_directory_copies(4, soon()).await.expect("raised");
    for _ in 0..2 {
        sleep(Duration::from_secs(2)).await;
        for (table, _) in &running {
            put(table, "order", 2).await;
        }
    }
    for (_, wire) in &running {
        read.extend((0..4).filter(|copy| reads_of(wire, &page_key(KEY, *copy)) > 0));
    }
    assert_eq!(read, BTreeSet::from([0, 1, 2, 3]));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_copies_is_never_lowered_and_has_bounds() {
    let fixture = Fixture::new().await;
    let (table, mut expected) = (fixture.instance(1), Expected::new());
    table.set_shards(&key(), count(4), soon()).await.expect("grown");
    store(&table, numbered(0..20), 1, &mut expected).await;
    let stored = async || {
        number_of(
            &metadata::read(&fixture.client, TABLE_ITEM).await.expect("it is stored"),
            "copies",
        )
    };
    assert_eq!(stored().await, 1);
    for refused in [0, MAX_COPIES + 1] {
        let error = table.raise_directory_copies(refused, soon()).await.expect_err("out of bounds");
        assert!(matches!(error, TableError::Rejected(_)), "{error:?}");
        assert!(error.to_string().contains("1 to 64"), "{error}");
    }
    for (copies, expected) in [(3, 3), (2, 3), (3, 3)] {
        table.raise_directory_copies(copies, soon()).await.expect("raised or unchanged");
        assert_eq!(stored().await, expected);
    }
    for copy in 0..3 {
        assert_eq!(fixture.entry(copy).await, fixture.entry(0).await, "copy {copy}");
    }
    assert_eq!(metadata::read(&fixture.client, &page_key(KEY, 3)).await, None);
    for seed in 2..8 {
        assert_finds(&fixture.instance(seed), &expected, "three copies").await;
    }
}

/// The instance raised the number, and died before all copies were filled.
#[tokio::test(start_paused = true)]
async fn copies_that_are_not_filled_are_written_and_not_read() {
    let fixture = Fixture::new().await;
    let (table, mut expected) = (fixture.instance(1), Expected::new());
    table.set_shards(&key(), count(4), soon()).await.expect("grown");
    store(&table, numbered(0..20), 1, &mut expected).await;
    metadata::set(&fixture.client, TABLE_ITEM, [("copies", metadata::number(3))]).await;
    let other = sharding::PartitionKey::new("other").expect("a key");
    table.set_shards(&other, count(2), soon()).await.expect("grown");
    for copy in 0..3 {
        assert!(metadata::entry(&fixture.client, "other", copy).await.is_some(), "copy {copy}");
    }
    for seed in 2..12 {
        let (new, wire) = fixture.wired(seed, |_| Fate::Pass);
        assert_finds(&new, &expected, "two copies are not filled").await;
        assert_eq!(reads_of(&wire, KEY), 0, "the first copy is complete");
    }
    table.raise_directory_copies(3, soon()).await.expect("it is run again");
    for copy in 0..3 {
        assert_eq!(fixture.entry(copy).await, fixture.entry(0).await, "copy {copy}");
    }
}

/// Without the entry, the copy would show a key that never grew.
#[tokio::test(start_paused = true)]
async fn a_new_copy_lists_a_key_of_a_lost_item_before_it_is_read() {
    let fixture = Fixture::new().await;
    let (table, mut expected) = (fixture.instance(1), Expected::new());
    table.set_shards(&key(), count(4), soon()).await.expect("grown");
    store(&table, numbered(0..20), 1, &mut expected).await;
    metadata::lose(&fixture.client, KEY).await;
    let (page, updates) = (page_key(KEY, 1), AtomicUsize::new(0));
    // The first update of the new copy lists the key. The second one marks the copy, and is
    // rejected.
    let (raiser, _) = fixture.wired(2, move |call| {
        let is_of_copy =
            call.operation == "UpdateItem" && call.key.as_deref() == Some(page.as_str());
        let is_second = is_of_copy && updates.fetch_add(1, Ordering::Relaxed) == 1;
        if is_second { Fate::Refuse(REFUSED) } else { Fate::Pass }
    });
    raiser.raise_directory_copies(2, soon()).await.expect_err("the copy could not be marked");
    let copy = metadata::read(&fixture.client, &page_key(KEY, 1)).await.expect("it was made");
    assert!(copy.contains_key(&entry_name(KEY)) && !copy.contains_key("copies"), "{copy:?}");
    raiser.raise_directory_copies(2, soon()).await.expect("it is run again");
    assert_eq!(fixture.entry(1).await, fixture.entry(0).await);
    for seed in 3..11 {
        assert_finds(&fixture.instance(seed), &expected, "each copy is read by some").await;
    }
}

/// The table item sets how many copies are written. The markers of pages set how many are read.
#[tokio::test(start_paused = true)]
async fn a_rebuild_writes_every_copy_even_those_the_table_item_lacks() {
    for (about, is_lost, loses_first, has_claimed) in [
        ("restored", false, false, false),
        ("restored, and its process has started normally", false, false, true),
        ("restored, first copies lost", false, true, false),
        ("lost", true, false, false),
    ] {
        let fixture = Fixture::new().await;
        fixture.instance(1).raise_directory_copies(3, soon()).await.expect("raised");
        if is_lost {
            metadata::lose(&fixture.client, TABLE_ITEM).await;
        } else {
            metadata::set(&fixture.client, TABLE_ITEM, [("copies", metadata::number(1))]).await;
        }
        for page in (0..PAGES).filter(|_| loses_first) {
            metadata::lose(&fixture.client, &page_copy(page, 0)).await;
        }
        let rebuilder = fixture.instance(2);
        if has_claimed {
            rebuilder.claim_mode(soon()).await.expect("claimed");
        }
        rebuilder.claim_for_rebuild(soon()).await.expect("claimed");
        let table = metadata::read(&fixture.client, TABLE_ITEM).await.expect("it is stored");
        assert_eq!(number_of(&table, "copies"), 3, "{about}");
        assert_eq!(rebuilder.rebuild_directory(soon()).await.expect("rebuilt"), (0, 0), "{about}");
        let survey = sharding::maintenance::Survey::default();
        rebuilder.restore_patterns(&survey, soon()).await.expect("restored");
        sleep(Duration::from_secs(125)).await;
        fixture.instance(3).set_shards(&key(), count(4), soon()).await.expect("grown");
        let entry = fixture.entry_of_item().await;
        for copy in 0..3 {
            assert_eq!(fixture.entry(copy).await.as_ref(), Some(&entry), "{about}: copy {copy}");
        }
    }
}
