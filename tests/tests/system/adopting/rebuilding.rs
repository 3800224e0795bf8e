//! Metadata that is lost or damaged, and rebuilt from the items.

use std::collections::BTreeMap;
use std::time::Duration;

use sharding::internal::PageQuery;
use sharding::maintenance::{Drained, Rebuilt};
use system_tests::metadata::{self, number};
use system_tests::{count, numbered, scan_stored, soon};
use tokio::time::sleep;

use super::fixture::{fixture, item, key};

#[tokio::test(start_paused = true)]
async fn lost_metadata_is_reported_and_rebuilt() {
    const KEY: &str = "2014-07-09";
    let fixture = fixture(|_| {}).await;
    for (width, range) in [(1, 0..40), (6, 40..120), (15, 120..200)] {
        if width > 1 {
            fixture.table.set_shards(&key(KEY), count(width), soon()).await.expect("grown");
            sleep(Duration::from_secs(5)).await;
        }
        for text in numbered(range) {
            fixture.table.put(&item(KEY, &text, 1), soon()).await.expect("stored");
        }
    }
    let expected: BTreeMap<_, _> = numbered(0..200).map(|text| (text, 1)).collect();
    let shards = async || {
        fixture.table.shards(&key(KEY), soon()).await.expect("a response").expect("metadata")
    };
    let before = shards().await;
    let lose = async || {
        metadata::lose(&fixture.client, KEY).await;
        sleep(Duration::from_secs(70)).await;
    };
    // The page is lost, too: no instance reads too little, whether or not it has seen the item.
    lose().await;
    metadata::lose(&fixture.client, &metadata::stored_page_key(&fixture.client, KEY, 0).await)
        .await;
    sleep(Duration::from_secs(70)).await;
    let new = fixture.another_instance();
    for table in [&fixture.table, &new] {
        let page = table.query(&PageQuery::new(key(KEY)), soon()).await;
        assert!(page.as_ref().is_err_and(|error| error.to_string().contains("lost")), "{page:?}");
        let put = table.put(&item(KEY, "order-0001", 9), soon()).await;
        assert!(put.as_ref().is_err_and(|error| error.to_string().contains("lost")), "{put:?}");
        let grown = table.set_shards(&key(KEY), count(30), soon()).await;
        assert!(grown.as_ref().is_err_and(|error| error.to_string().contains("lost")), "{grown:?}");
    }
    let rebuild = async || {
        let survey = fixture.survey().await;
        assert_eq!(survey.keys().len(), 1);
        let mut rebuilt = Vec::new();
        for (key, findings) in survey.keys() {
            assert_eq!(findings.misplaced(), 0);
            rebuilt.push(new.rebuild(key, findings, soon()).await.expect("rebuilt"));
        }
        new.rebuild_directory(soon()).await.expect("rebuilt");
        rebuilt
    };
    let check = async || {
        let now = shards().await;
        assert_eq!(now.number_of_shards, before.number_of_shards);
        assert_eq!(now.read_shards, before.read_shards);
        assert!(now.generation > before.generation, "instances with the old one accept it");
        assert!(now.era > before.era, "later writes replace the stored items");
        assert_eq!(metadata::entry(&fixture.client, KEY, 0).await, Some(now.layout().to_entry()));
        assert_eq!(fixture.all(KEY).await, expected);
        for text in expected.keys() {
            assert_eq!(fixture.get(KEY, text).await, Some(1), "{text}");
        }
    };
    assert_eq!(rebuild().await, [Rebuilt::Created(count(15))]);
    check().await;
    assert_eq!(rebuild().await, [Rebuilt::Kept]);

    // A program without knowledge of the items registers the key again with one shard.
    lose().await;
    let one_shard = [("number_of_shards", number(1)), ("generation", number(1))];
    metadata::store(&fixture.client, KEY, one_shard).await;
    assert_eq!(rebuild().await, [Rebuilt::Widened(count(15))]);
    check().await;

    // The item is damaged.
    metadata::store(&fixture.client, KEY, [("number_of_shards", metadata::text("many"))]).await;
    assert_eq!(rebuild().await, [Rebuilt::Created(count(15))]);
    check().await;
}

#[tokio::test(start_paused = true)]
async fn damaged_metadata_of_a_key_with_one_shard_is_repaired() {
    let fixture = fixture(|_| {}).await;
    fixture.table.put(&item("one", "order", 1), soon()).await.expect("stored");
    metadata::store(&fixture.client, "one", [("number_of_shards", metadata::text("many"))]).await;
    let new = fixture.another_instance();
    let items = async || {
        let page = new.query(&PageQuery::new(key("one")), soon()).await;
        page.expect("its page is sufficient").items.len()
    };
    assert_eq!(items().await, 1);
    assert!(new.shards(&key("one"), soon()).await.is_err());
    assert!(new.set_shards(&key("one"), count(2), soon()).await.is_err());
    let listed = new.list_keys(None, soon()).await.expect("the others");
    assert_eq!(listed, (vec![], None), "one damaged key does not hide the others");
    let survey = fixture.survey().await;
    for (key, findings) in survey.keys() {
        let rebuilt = new.rebuild(key, findings, soon()).await.expect("rebuilt");
        assert_eq!(rebuilt, Rebuilt::Created(count(1)));
    }
    assert_eq!(survey.keys().len(), 1);
    assert_eq!(items().await, 1);
    new.set_shards(&key("one"), count(2), soon()).await.expect("it can grow again");
}

/// The documented restores: the main table alone to before a growth, or the metadata table alone to
/// before a shrink. The metadata then has no width under which the items are at home.
#[tokio::test(start_paused = true)]
async fn a_rebuild_finds_items_that_settled_metadata_hides() {
    const KEY: &str = "2014-07-09";
    for is_item_lost in [false, true] {
        let fixture = fixture(|_| {}).await;
        for text in numbered(0..40) {
            fixture.table.put(&item(KEY, &text, 1), soon()).await.expect("stored");
        }
        let backup = scan_stored(&fixture.client).await;
        fixture.table.set_shards(&key(KEY), count(6), soon()).await.expect("grown");
        sleep(Duration::from_secs(5)).await;
        fixture.table.begin_settle(&key(KEY), soon()).await.expect("it begins");
        while !matches!(
            fixture.table.drain(&key(KEY), soon()).await.expect("it goes on"),
            Drained::Done { .. }
        ) {
            sleep(Duration::from_secs(60)).await;
        }
        fixture.restore(backup).await;
        if is_item_lost {
            metadata::lose(&fixture.client, KEY).await;
        }
        sleep(Duration::from_secs(70)).await;
        let new = fixture.another_instance();
        let survey = fixture.survey().await;
        let mut rebuilt = Vec::new();
        for (key, findings) in survey.keys() {
            rebuilt.push(new.rebuild(key, findings, soon()).await.expect("rebuilt"));
        }
        let expected =
            if is_item_lost { Rebuilt::Created(count(6)) } else { Rebuilt::Widened(count(6)) };
        assert_eq!(rebuilt, [expected]);
        new.rebuild_directory(soon()).await.expect("rebuilt");
        let expected: BTreeMap<_, _> = numbered(0..40).map(|text| (text, 1)).collect();
        assert_eq!(fixture.all(KEY).await, expected);
        for text in expected.keys() {
            assert_eq!(fixture.get(KEY, text).await, Some(1), "{text}");
            let created = new.create(&item(KEY, text, 2), None, soon()).await;
            assert!(created.is_err(), "{text} exists");
        }
    }
}
