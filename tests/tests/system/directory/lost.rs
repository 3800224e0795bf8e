//! Metadata that is lost or was restored to an earlier state. No instance takes its key for one
//! that never grew, or grows it again.

use std::time::Duration;

use serde_json::json;
use shard_scaler::ScalerConfig;
use sharding::internal::{Clock, PageQuery, protocol::layout::Layout};
use sharding::maintenance::Rebuilt;
use sharding::{Placement, TableError, WriteErrorKind};
use system_tests::metadata::{self, entry_name, number, page_key};
use system_tests::{OneItem, Tables, count, numbered, report_throttles, soon, sort_key, survey};
use tokio::time::sleep;

use super::{Expected, KEY, assert_finds, entry_in, grown, item, key, list, shards, store};
use crate::schedule::scaler;

/// Rebuilds the metadata by an event of the shard-scaler. Returns the response.
async fn rebuild(tables: &Tables, seed: u64) -> serde_json::Value {
    let scaler = scaler(&tables.connection(), tables.instance(seed), ScalerConfig::default());
    let now = tables.clock.now().epoch_seconds();
    scaler.handle(&json!({"action": "rebuild"}), now, soon()).await.expect("handled")
}

async fn listed(tables: &Tables) -> Layout {
    let entry = entry_in(tables, 0).await.expect("an entry");
    Layout::from_entry(&entry).expect("a layout")
}

/// A sort key with one home under two widths.
pub(super) fn at_home_under_both(expected: &Expected, one: u32, other: u32) -> String {
    let home =
        |text: &str, width| Placement::Calculated.home(&key(), &sort_key(text), count(width));
    let both = expected.keys().find(|text| home(text, one) == home(text, other));
    both.expect("some item has not moved").clone()
}

fn reports_lost<T: std::fmt::Debug, E: std::fmt::Display + std::fmt::Debug>(
    result: &Result<T, E>,
) -> bool {
    result.as_ref().is_err_and(|error| error.to_string().contains("lost"))
}

#[tokio::test(start_paused = true)]
async fn a_change_detects_an_item_lost_or_older_than_its_page() {
    // With items on other shards, without items, and with an item from before the last growth.
    for (about, items, is_restored) in
        [("items", 40, false), ("no items", 0, false), ("restored", 40, true)]
    {
        let (tables, table, mut expected) = grown(4, 0).await;
        let older = metadata::read(&tables.client, KEY).await.expect("it is stored");
        table.until(soon()).grow(&key(), count(8)).await.expect("grown");
        store(&table, numbered(0..items), 1, &mut expected).await;
        let entry = entry_in(&tables, 0).await;
        metadata::lose(&tables.client, KEY).await;
        if is_restored {
            metadata::put_back(&tables.client, older.clone()).await;
        }
        // Longer than the policy's cooldown after a growth.
        sleep(Duration::from_secs(700)).await;
        for seed in [1, 2] {
            // One instance knows the key, and the other has no state.
            let table = if seed == 1 { table.clone() } else { tables.instance(seed) };
            let set = table.until(soon()).grow(&key(), count(16)).await;
            assert!(reports_lost(&set), "{about}, {seed}: {set:?}");
            let scaled = report_throttles(&table, &key()).await;
            assert!(reports_lost(&scaled), "{about}, {seed}: {scaled:?}");
            // In virtual time, two reads at the same instant would have the same age.
            sleep(Duration::from_millis(1)).await;
            let shown = table.until(soon()).metadata(&key()).await;
            // An instance without a view does not compare an earlier item with the page.
            assert!(reports_lost(&shown) || is_restored && seed == 2, "{about}, {seed}: {shown:?}");
        }
        let settled = tables.instance(4).until(soon()).settle(&key()).await;
        assert!(reports_lost(&settled), "{about}: {settled:?}");
        let repaired = tables.instance(5).until(soon()).repair_directory().await.expect("compared");
        assert_eq!(repaired, 0, "{about}: an item from before does not lower its entry");
        let stored = metadata::read(&tables.client, KEY).await;
        assert_eq!(stored, is_restored.then_some(older), "{about}: nothing was changed");
        assert_eq!(entry_in(&tables, 0).await, entry, "{about}");
        // Readers and writers use the page, which is complete.
        assert_finds(&tables.instance(3), &expected, about).await;
    }
}

/// A writer that waits for an open detects that none will come.
#[tokio::test(start_paused = true)]
async fn a_writer_reports_that_the_item_of_a_closing_is_lost() {
    let (tables, ..) = grown(4, 0).await;
    let listed = listed(&tables).await;
    let closing = Layout { generation: listed.generation + 1, closing: Some(count(8)), ..listed };
    list(&tables, 0, &closing.to_entry()).await;
    metadata::lose(&tables.client, KEY).await;
    let put = tables.instance(2).put(&item("waits", 1), soon()).await;
    let put = put.expect_err("its width is not known");
    assert!(matches!(put.kind, WriteErrorKind::Table(TableError::Lost(_))), "{put:?}");
}

/// The item was restored to a state in the middle of a change.
#[tokio::test(start_paused = true)]
async fn an_item_older_than_its_page_is_not_used() {
    for is_draining in [true, false] {
        let about = if is_draining { "draining" } else { "closing" };
        let (tables, table, mut expected) = grown(4, 0).await;
        sleep(Duration::from_secs(5)).await;
        if is_draining {
            table.until(soon()).settle(&key()).await.expect("it begins");
        }
        let mut older = metadata::read(&tables.client, KEY).await.expect("it is stored");
        if !is_draining {
            let closing = [("closing", 8), ("read_shards", 8), ("generation", 3)];
            older.extend(closing.map(|(name, n)| (name.to_owned(), number(n))));
        }
        table.until(soon()).grow(&key(), count(8)).await.expect("grown");
        store(&table, numbered(0..40), 1, &mut expected).await;
        let entry = entry_in(&tables, 0).await;
        metadata::put_back(&tables.client, older.clone()).await;
        let new = tables.instance(2);
        if is_draining {
            let drained = new.until(soon()).drain(&key(), &[]).await;
            assert!(reports_lost(&drained), "{drained:?}");
        } else {
            let taken_over = new.until(soon()).grow(&key(), count(16)).await;
            assert!(reports_lost(&taken_over), "{taken_over:?}");
        }
        let stored = metadata::read(&tables.client, KEY).await;
        assert_eq!(stored, Some(older), "{about}: nothing was changed");
        assert_eq!(entry_in(&tables, 0).await, entry, "{about}");
        assert_finds(&tables.instance(3), &expected, about).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_restores_keys_that_only_the_directory_lists() {
    for items in [0, 40] {
        let (tables, table, mut expected) = grown(8, items).await;
        let before = shards(&table).await;
        metadata::lose(&tables.client, KEY).await;
        assert_eq!(tables.instance(2).until(soon()).repair_directory().await.expect("compared"), 0);
        let stored = metadata::read(&tables.client, KEY).await;
        assert_eq!(stored, None, "it is reported, and not repaired");
        let mut report = rebuild(&tables, 3).await;
        if items == 0 {
            // An entry has no name. The page still shows where its items belong.
            assert_eq!(metadata::read(&tables.client, KEY).await, None);
            store(&tables.instance(5), numbered(0..3), 1, &mut expected).await;
            report = rebuild(&tables, 6).await;
        }
        assert_eq!(report["keys"], json!({"created": 1}), "{report}");
        assert_eq!(report["astray"], 0, "{report}");
        let after = shards(&table).await;
        let widths = (after.number_of_shards, after.read_shards, after.closing());
        assert_eq!(widths, (count(8), count(8), None));
        assert!(after.generation > before.generation, "{before:?} {after:?}");
        assert!(after.era > before.era, "{before:?} {after:?}");
        assert_eq!(entry_in(&tables, 0).await, Some(after.layout().to_entry()));
        for table in [&table, &tables.instance(4)] {
            assert_finds(table, &expected, "rebuilt").await;
        }
        table.until(soon()).grow(&key(), count(16)).await.expect("it can grow again");
    }
}

/// All items were written before the key's last two growths.
#[tokio::test(start_paused = true)]
async fn a_key_is_rebuilt_from_its_page_as_well_as_from_its_items() {
    let (tables, table, expected) = grown(4, 40).await;
    for width in [8, 16] {
        table.until(soon()).grow(&key(), count(width)).await.expect("grown");
    }
    // The key's generation is ahead of the clock, from which a rebuild continues.
    let listed = Layout { generation: 1_800_000_000, ..listed(&tables).await };
    list(&tables, 0, &listed.to_entry()).await;
    metadata::lose(&tables.client, KEY).await;

    let rebuilder = tables.instance(2);
    let survey = survey(&rebuilder).await;
    assert_eq!(survey.items, 40);
    let (_, findings) = survey.keys.iter().next().expect("a key that has grown");
    assert_eq!(findings.width(), count(4), "as far as its items show");
    let rebuilt = rebuilder.until(soon()).rebuild(&key(), findings).await.expect("rebuilt");
    assert_eq!(rebuilt, Rebuilt::Created(count(16)));
    let after = shards(&rebuilder).await.layout();
    let widths = (after.number_of_shards, after.read_shards, after.closing);
    assert_eq!(widths, (count(16), count(16), None));
    assert!(after.widths.is_superset(&listed.widths), "{after:?} {listed:?}");
    assert!(after.generation > listed.generation && after.era > listed.era, "{after:?} {listed:?}");
    assert_eq!(entry_in(&tables, 0).await, Some(after.to_entry()));
    assert_finds(&tables.instance(3), &expected, "rebuilt").await;
}

/// The items have an era that neither page nor item contain, because both were restored or are
/// gone.
#[tokio::test(start_paused = true)]
async fn a_copy_of_an_era_after_page_and_item_fails_every_request() {
    for is_gone in [true, false] {
        let (tables, table, mut expected) = grown(4, 0).await;
        let page = metadata::read(&tables.client, &page_key(KEY, 0)).await.expect("it is stored");
        let of_key = metadata::read(&tables.client, KEY).await.expect("it is stored");
        table.until(soon()).grow(&key(), count(8)).await.expect("grown");
        store(&table, numbered(0..60), 1, &mut expected).await;
        // A place that is read in any case.
        let both = at_home_under_both(&expected, if is_gone { 1 } else { 4 }, 8);
        if is_gone {
            metadata::lose(&tables.client, KEY).await;
            metadata::remove(&tables.client, &page_key(KEY, 0), &entry_name(KEY)).await;
        } else {
            metadata::put_back(&tables.client, page).await;
            metadata::put_back(&tables.client, of_key).await;
        }
        sleep(Duration::from_secs(2)).await;
        let new = |seed| tables.instance(seed);
        let query = PageQuery { consistent: true, ..PageQuery::new(key()) };
        let found = new(2).query(&query, soon()).await;
        assert!(reports_lost(&found), "gone: {is_gone}: {found:?}");
        let found = new(3).get(&key(), &sort_key(&both), true, soon()).await;
        assert!(reports_lost(&found), "gone: {is_gone}: {found:?}");
        for written in [
            new(4).put(&item(&both, 9), soon()).await,
            new(5).create(&item(&both, 9), None, soon()).await,
        ] {
            let kind = written.expect_err("the stored item is of a later era").kind;
            let is_lost = matches!(kind, WriteErrorKind::Table(TableError::Lost(_)));
            assert!(is_lost, "gone: {is_gone}: {kind:?}");
        }
    }
}
