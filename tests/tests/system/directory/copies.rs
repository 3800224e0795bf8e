//! Copies of pages: their number is raised under traffic, and every copy gets each change.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sharding::TableError;
use sharding::internal::protocol::directory::PAGES;
use sharding::maintenance::MAX_COPIES;
use system_tests::metadata::{self, TABLE_ITEM, entry_name, number_of, page_copy, page_key};
use system_tests::{Fate, count, soon};
use tokio::time::sleep;

use super::{Fixture, KEY, REFUSED, assert_finds, key, put, reads_of};

#[tokio::test(start_paused = true)]
async fn a_running_instance_learns_of_new_copies_from_a_page() {
    let fixture = Fixture::new().await;
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
    for copy in 0..4 {
        let page = page_key(KEY, copy);
        assert!(running.iter().any(|(_, wire)| reads_of(wire, &page) > 0), "copy {copy}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_copies_is_never_lowered_and_has_bounds() {
    let (fixture, table, expected) = Fixture::grown(4, 20).await;
    let stored = async || {
        let table = metadata::read(&fixture.client, TABLE_ITEM).await.expect("it is stored");
        number_of(&table, "copies")
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
async fn copies_that_are_not_filled_are_written() {
    let (fixture, table, _) = Fixture::grown(4, 20).await;
    metadata::set(&fixture.client, TABLE_ITEM, [("copies", metadata::number(3))]).await;
    table.set_shards(&key(), count(8), soon()).await.expect("grown");
    let entry = fixture.entry_of_item().await;
    for copy in 0..3 {
        assert_eq!(fixture.entry(copy).await.as_ref(), Some(&entry), "copy {copy}");
    }
}

/// Without the entry, the copy would show a key that never grew.
#[tokio::test(start_paused = true)]
async fn a_new_copy_lists_a_key_of_a_lost_item_before_it_is_read() {
    let (fixture, _, expected) = Fixture::grown(4, 20).await;
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
