//! Callers choose keys. However they do, pages have room for them: callers cannot choose the page,
//! and the number of pages doubles under traffic.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use sharding::internal::TableEngine;
use sharding::internal::protocol::directory::{Division, PAGES, SPLIT_PAGE_BYTES};
use sharding::maintenance::Survey;
use system_tests::metadata::{self, DIVISION, TABLE_ITEM, number_of, page_copy, page_key_in, text};
use system_tests::{Fate, Tables, count, numbered, soon};

use super::{KEY, REFUSED, assert_finds, entry_of_item, grown, key, store};

const DOUBLED: Division = Division { pages: 2 * PAGES, ..DIVISION };

/// Makes a page as large as many entries do.
async fn enlarge(tables: &Tables, page: u32) {
    let filler = text(&"x".repeat(SPLIT_PAGE_BYTES));
    metadata::set(&tables.client, &page_copy(page, 0), [("filler", filler)]).await;
}

/// The numbers of pages that are read, and that are being made.
async fn pages(tables: &Tables) -> (u64, bool) {
    let table = metadata::read(&tables.client, TABLE_ITEM).await.expect("it is stored");
    (number_of(&table, "pages"), table.contains_key("next_pages"))
}

async fn entry_of_larger(tables: &Tables, copy: u32) -> Option<String> {
    let page = metadata::read(&tables.client, &page_key_in(DOUBLED, KEY, copy)).await?;
    page.get(&metadata::entry_name(KEY))?.as_s().ok().cloned()
}

/// Fails the process's updates and puts of the metadata table from one on, and then all.
async fn dies_after(tables: &Tables, seed: u64, writes: usize) {
    let done = AtomicUsize::new(0);
    let (table, _) = tables.wired(seed, move |call| {
        let is_write = !call.to_items && ["UpdateItem", "PutItem"].contains(&&*call.operation);
        let is_late = is_write && done.fetch_add(1, Ordering::Relaxed) >= writes;
        if is_late { Fate::Refuse(REFUSED) } else { Fate::Pass }
    });
    let _ = table.until(soon()).repair_directory().await;
}

/// Whichever step was the last, the key changes and is read correctly, and the next process goes on.
#[tokio::test(start_paused = true)]
async fn pages_that_are_half_made_are_finished_by_the_next_process() {
    let mut steps = BTreeSet::new();
    // The number, an entry, the marks of eight pages, four moves, the former entry, and the end.
    for writes in 0..=16 {
        let (tables, old, mut expected) = grown(4, 20).await;
        enlarge(&tables, 0).await;
        dies_after(&tables, 2, writes).await;
        steps.insert(pages(&tables).await);
        let about = format!("after {writes} writes");
        let instances: [TableEngine; 2] = [old, tables.instance(3)];
        for (table, width) in instances.iter().zip([8, 16]) {
            assert_finds(table, &expected, &about).await;
            table.until(soon()).grow(&key(), count(width)).await.expect("grown");
            store(table, numbered(10..40), u64::from(width), &mut expected).await;
            for table in &instances {
                assert_finds(table, &expected, &about).await;
            }
        }
        // Copies are added meanwhile.
        if writes % 2 == 0 {
            instances[0].until(soon()).raise_directory_copies(2).await.expect("raised");
        }
        instances[0].until(soon()).repair_directory().await.expect("compared");
        assert_eq!(pages(&tables).await, (8, false), "{about}");
        let entry = entry_of_item(&tables).await;
        for copy in 0..=u32::from(writes % 2 == 0) {
            assert_eq!(entry_of_larger(&tables, copy).await.as_ref(), Some(&entry), "{about}");
        }
        for table in instances.iter().chain([&tables.instance(4)]) {
            assert_finds(table, &expected, &about).await;
        }
    }
    assert_eq!(steps, BTreeSet::from([(4, false), (4, true), (8, false)]));
}

/// The pages say how many there are, also while they double.
#[tokio::test(start_paused = true)]
async fn a_rebuild_finds_the_pages_without_the_table_item() {
    for (writes, is_older) in [(0, false), (12, false), (99, false), (99, true)] {
        let about = format!("after {writes} writes, restored: {is_older}");
        let (tables, old, mut expected) = grown(4, 20).await;
        let older = metadata::read(&tables.client, TABLE_ITEM).await.expect("it is stored");
        enlarge(&tables, 0).await;
        dies_after(&tables, 2, writes).await;
        let before = pages(&tables).await;
        if is_older {
            metadata::put_back(&tables.client, older).await;
        } else {
            metadata::lose(&tables.client, TABLE_ITEM).await;
        }
        let rebuilder = tables.instance(3);
        rebuilder.until(soon()).claim_for_rebuild().await.expect("claimed");
        assert_eq!(pages(&tables).await, before, "{about}");
        rebuilder.until(soon()).rebuild_directory(&Survey::default()).await.expect("rebuilt");
        assert_eq!(pages(&tables).await, (8, false), "{about}");
        // An instance from before the loss learns of each change.
        rebuilder.until(soon()).grow(&key(), count(8)).await.expect("grown");
        store(&rebuilder, numbered(10..40), 2, &mut expected).await;
        for table in [&old, &tables.instance(4)] {
            assert_finds(table, &expected, &about).await;
        }
    }
}

/// A page of another secret lists other keys.
#[tokio::test(start_paused = true)]
async fn pages_that_were_made_anew_are_not_read_by_the_former_secret() {
    let (tables, old, mut expected) = grown(4, 20).await;
    metadata::lose(&tables.client, TABLE_ITEM).await;
    for page in 0..PAGES {
        metadata::lose(&tables.client, &page_copy(page, 0)).await;
    }
    let rebuilder = tables.instance(2);
    rebuilder.until(soon()).claim_for_rebuild().await.expect("claimed");
    let table = metadata::read(&tables.client, TABLE_ITEM).await.expect("it is stored");
    assert_ne!(number_of(&table, "seed"), DIVISION.seed, "no page knows it");
    rebuilder.until(soon()).rebuild_directory(&Survey::default()).await.expect("rebuilt");
    rebuilder.until(soon()).grow(&key(), count(8)).await.expect("grown");
    store(&rebuilder, numbered(10..40), 2, &mut expected).await;
    for table in [&old, &tables.instance(3)] {
        assert_finds(table, &expected, "made anew").await;
    }
}
