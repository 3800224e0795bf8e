//! Copies of pages: their number is raised under traffic, and every copy gets each change.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sharding::TableError;
use sharding::internal::protocol::directory::PAGES;
use sharding::maintenance::{MAX_COPIES, Survey};
use system_tests::metadata::{self, TABLE_ITEM, entry_name, number_of, page_copy, page_key};
use system_tests::{Fate, Tables, config, count, soon};
use tokio::time::sleep;

use super::{KEY, REFUSED, assert_copies, assert_finds, entry_in, grown, key, put, reads_of};

#[tokio::test(start_paused = true)]
async fn a_running_instance_learns_of_new_copies_from_a_page() {
    let tables = Tables::claimed(config()).await;
    let running: Vec<_> = (10..40).map(|seed| tables.wired(seed, |_| Fate::Pass)).collect();
    for (table, _) in &running {
        put(table, "order", 1).await;
    }
    tables.instance(1).until(soon()).raise_directory_copies(4).await.expect("raised");
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
    let (tables, table, expected) = grown(4, 20).await;
    let stored = async || {
        let table = metadata::read(&tables.client, TABLE_ITEM).await.expect("it is stored");
        number_of(&table, "copies")
    };
    assert_eq!(stored().await, 1);
    for refused in [0, MAX_COPIES + 1] {
        let error =
            table.until(soon()).raise_directory_copies(refused).await.expect_err("out of bounds");
        assert!(matches!(error, TableError::Rejected(_)), "{error:?}");
        assert!(error.to_string().contains("1 to 64"), "{error}");
    }
    for (copies, expected) in [(3, 3), (2, 3), (3, 3)] {
        table.until(soon()).raise_directory_copies(copies).await.expect("raised or unchanged");
        assert_eq!(stored().await, expected);
    }
    assert_copies(&tables, 3, "three copies").await;
    assert_eq!(metadata::read(&tables.client, &page_key(KEY, 3)).await, None);
    for seed in 2..8 {
        assert_finds(&tables.instance(seed), &expected, "three copies").await;
    }
}

/// The instance raised the number, and died before all copies were filled.
#[tokio::test(start_paused = true)]
async fn copies_that_are_not_filled_are_written() {
    let (tables, table, _) = grown(4, 20).await;
    metadata::set(&tables.client, TABLE_ITEM, [("copies", metadata::number(3))]).await;
    table.until(soon()).grow(&key(), count(8)).await.expect("grown");
    assert_copies(&tables, 3, "not filled").await;
}

/// Without the entry, the copy would show a key that never grew.
#[tokio::test(start_paused = true)]
async fn a_new_copy_lists_a_key_of_a_lost_item_before_it_is_read() {
    let (tables, _, expected) = grown(4, 20).await;
    metadata::lose(&tables.client, KEY).await;
    let (page, updates) = (page_key(KEY, 1), AtomicUsize::new(0));
    // The first update of the new copy lists the key. The second one marks the copy, and is
    // rejected.
    let (raiser, _) = tables.wired(2, move |call| {
        let is_of_copy =
            call.operation == "UpdateItem" && call.key.as_deref() == Some(page.as_str());
        let is_second = is_of_copy && updates.fetch_add(1, Ordering::Relaxed) == 1;
        if is_second { Fate::Refuse(REFUSED) } else { Fate::Pass }
    });
    raiser.until(soon()).raise_directory_copies(2).await.expect_err("the copy could not be marked");
    let copy = metadata::read(&tables.client, &page_key(KEY, 1)).await.expect("it was made");
    assert!(copy.contains_key(&entry_name(KEY)) && !copy.contains_key("copies"), "{copy:?}");
    raiser.until(soon()).raise_directory_copies(2).await.expect("it is run again");
    assert_eq!(entry_in(&tables, 1).await, entry_in(&tables, 0).await);
    for seed in 3..11 {
        assert_finds(&tables.instance(seed), &expected, "each copy is read by some").await;
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
        let tables = Tables::claimed(config()).await;
        tables.instance(1).until(soon()).raise_directory_copies(3).await.expect("raised");
        if is_lost {
            metadata::lose(&tables.client, TABLE_ITEM).await;
        } else {
            metadata::set(&tables.client, TABLE_ITEM, [("copies", metadata::number(1))]).await;
        }
        for page in (0..PAGES).filter(|_| loses_first) {
            metadata::lose(&tables.client, &page_copy(page, 0)).await;
        }
        let rebuilder = tables.instance(2);
        if has_claimed {
            rebuilder.until(soon()).claim().await.expect("claimed");
        }
        rebuilder.until(soon()).claim_for_rebuild().await.expect("claimed");
        let table = metadata::read(&tables.client, TABLE_ITEM).await.expect("it is stored");
        assert_eq!(number_of(&table, "copies"), 3, "{about}");
        assert_eq!(
            rebuilder.until(soon()).rebuild_directory(&Survey::default()).await.expect("rebuilt"),
            (0, 0),
            "{about}"
        );
        sleep(Duration::from_secs(125)).await;
        tables.instance(3).until(soon()).grow(&key(), count(4)).await.expect("grown");
        assert_copies(&tables, 3, about).await;
    }
}
