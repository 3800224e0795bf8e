//! Tables with items of other programs, and metadata that is lost or damaged and rebuilt from the
//! items: the real code over the embedded engine, in virtual time.

use std::time::Duration;

use sharding::internal::{PageQuery, Separator, ShardKeys, TableEngine};
use sharding::maintenance::Rebuilt;
use sharding::{Conditions, ETag, ETags, Placement, TableConfig, WriteErrorKind};
use system_tests::metadata::{self, number};
use system_tests::{OneItem, count, numbered, scan_stored, soon, sort_key, store_plainly, survey};
use tokio::time::sleep;

use crate::one_key::{Expected, Fixture, KEY, assert_finds, fixture, get, item, key, shards};

/// A table that was empty when it was claimed, so that every key is armed.
async fn claimed(change: impl FnOnce(&mut TableConfig)) -> Fixture {
    let fixture = fixture(change).await;
    fixture.table.until(soon()).claim().await.expect("claimed");
    fixture
}

/// Rebuilds all metadata from the items. Returns what was done for each key, and the number of its
/// misplaced items.
async fn rebuild(new: &TableEngine) -> Vec<(Rebuilt, u64)> {
    let (survey, mut rebuilt) = (survey(new).await, Vec::new());
    for (key, findings) in &survey.keys {
        let of_key = new.until(soon()).rebuild(key, findings).await.expect("rebuilt");
        rebuilt.push((of_key, findings.misplaced));
    }
    new.until(soon()).rebuild_directory(&survey).await.expect("rebuilt");
    rebuilt
}

/// A drain gives an item of another program a version. Its tag stays the same.
#[tokio::test(start_paused = true)]
async fn a_tag_of_an_adopted_item_stays_valid_when_it_moves() {
    let fixture = claimed(|_| {}).await;
    for text in numbered(0..20) {
        store_plainly(&fixture.tables.client, KEY, &text, 1).await;
    }
    let tag = async |text: &str| {
        let read = fixture.table.get_tagged(&key(), &sort_key(text), true, soon()).await;
        read.expect("a response").expect("an item").1
    };
    let mut tags: Vec<(String, ETag)> = Vec::new();
    for text in numbered(0..20) {
        tags.push((text.clone(), tag(&text).await));
    }
    fixture.grow(4).await;
    fixture.table.until(soon()).settle(&key()).await.expect("it begins");
    fixture.drain().await;
    assert!(fixture.by_shard().await.len() > 1, "some have moved");
    for (text, before) in tags {
        assert_eq!(tag(&text).await, before, "{text}");
        let unchanged =
            Conditions { matches: Some(ETags::Of(vec![before.clone()])), ..Conditions::default() };
        let written = fixture.table.put_if(&item(&text, 2), &unchanged, soon()).await;
        written.unwrap_or_else(|error| panic!("{text}: {error}"));
        let again = fixture.table.put_if(&item(&text, 3), &unchanged, soon()).await;
        assert!(again.is_err_and(|error| matches!(error.kind, WriteErrorKind::Precondition)));
    }
}

/// What another program stores under the key of a further shard is as if it were not there.
#[tokio::test(start_paused = true)]
async fn foreign_items_on_further_shards_are_as_if_absent() {
    let fixture = claimed(|_| {}).await;
    let table = &fixture.table;
    fixture.grow(4).await;
    for text in numbered(0..60) {
        for shard in 2..=4 {
            let shard_key = format!("{KEY}\u{1f}s{shard}");
            store_plainly(&fixture.tables.client, &shard_key, &text, 7).await;
        }
    }
    assert_eq!(fixture.all().await, Expected::new());
    let mut expected = Expected::new();
    for (number, text) in (0..).zip(numbered(0..60)) {
        assert_eq!(get(table, &text).await, None);
        match number % 3 {
            0 => drop(table.put(&item(&text, 1), soon()).await.expect("stored")),
            1 => drop(table.create(&item(&text, 1), None, soon()).await.expect("created")),
            _ => {
                table.delete(&key(), &sort_key(&text), soon()).await.expect("there is none");
                continue;
            }
        }
        expected.insert(text, 1);
    }
    assert_eq!(fixture.all().await, expected);
    let survey = survey(table).await;
    assert!(survey.unknown > 0 && survey.keys.len() <= 1);
}

#[tokio::test(start_paused = true)]
async fn a_table_of_fixed_shards_keeps_its_placement_and_their_number() {
    let fixture = claimed(|config| {
        config.placement = Placement::ModuloMd5;
        config.adopt_shards = count(10);
        config.shard_keys = ShardKeys::Suffixed(Separator::default());
    })
    .await;
    let home = |text: &str| {
        let home = Placement::ModuloMd5.home(&key(), &sort_key(text), count(10));
        home.expect("a home").get()
    };
    let mut expected = Expected::new();
    for text in numbered(0..80) {
        let shard_key = format!("{KEY}.{}", home(&text));
        store_plainly(&fixture.tables.client, &shard_key, &text, 1).await;
        expected.insert(text, 1);
    }
    assert_eq!(fixture.all().await, expected, "from the first read on");
    for text in numbered(70..120) {
        let written = fixture.table.put(&item(&text, 2), soon()).await.expect("stored");
        assert_eq!((written.shard, written.number_of_shards), (home(&text), 10));
        expected.insert(text, 2);
    }
    let metadata = fixture.table.until(soon()).metadata(&key()).await.expect("a response");
    assert_eq!(metadata, None, "the table's own number of shards needs no metadata");
    fixture.grow(25).await;
    for text in numbered(100..160) {
        fixture.table.put(&item(&text, 4), soon()).await.expect("stored");
        expected.insert(text, 4);
    }
    assert_finds(&fixture.table, &expected, "a key of 25 shards").await;
}

/// Metadata of another program has no history. Its width is used, and kept in the history.
#[tokio::test(start_paused = true)]
async fn items_at_the_width_of_another_program_are_found_later() {
    let fixture = claimed(|_| {}).await;
    let (client, table) = (&fixture.tables.client, fixture.another_instance());
    metadata::store(client, KEY, [("number_of_shards", number(10))]).await;
    let compared = table.until(soon()).repair_directory().await.expect("compared");
    assert_eq!(compared, 1, "an unlisted key is not seen");
    let stored = metadata::read(client, KEY).await.expect("it is stored");
    assert_eq!(metadata::number_of(&stored, "generation"), 1, "it can be listed now");
    for text in numbered(0..60) {
        let written = table.put(&item(&text, 1), soon()).await.expect("stored");
        assert_eq!(written.number_of_shards, 10);
    }
    fixture.grow(20).await;
    for text in numbered(0..60) {
        assert_eq!(get(&fixture.table, &text).await, Some(1), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_metadata_is_reported_and_rebuilt() {
    let fixture = claimed(|_| {}).await;
    let client = &fixture.tables.client;
    for (width, range) in [(1, 0..40), (6, 40..120), (15, 120..200)] {
        if width > 1 {
            fixture.grow(width).await;
        }
        fixture.store(numbered(range)).await;
    }
    let expected: Expected = numbered(0..200).map(|text| (text, 1)).collect();
    let before = shards(&fixture.table).await;
    let lose = async |key: &str| {
        metadata::lose(client, key).await;
        sleep(Duration::from_secs(70)).await;
    };
    // The page is lost, too: no instance reads too little, whether or not it has seen the item.
    lose(KEY).await;
    lose(&metadata::stored_page_key(client, KEY, 0).await).await;
    let new = fixture.another_instance();
    for table in [&fixture.table, &new] {
        let page = table.query(&PageQuery::new(key()), soon()).await;
        assert!(page.as_ref().is_err_and(|error| error.to_string().contains("lost")), "{page:?}");
        let put = table.put(&item("order-0001", 9), soon()).await;
        assert!(put.as_ref().is_err_and(|error| error.to_string().contains("lost")), "{put:?}");
        let grown = table.until(soon()).grow(&key(), count(30)).await;
        assert!(grown.as_ref().is_err_and(|error| error.to_string().contains("lost")), "{grown:?}");
    }
    let check = async || {
        let now = shards(&fixture.table).await;
        assert_eq!(now.number_of_shards, before.number_of_shards);
        assert_eq!(now.read_shards, before.read_shards);
        assert!(now.generation > before.generation, "instances with the old one accept it");
        assert!(now.era > before.era, "later writes replace the stored items");
        assert_eq!(metadata::entry(client, KEY, 0).await, Some(now.layout().to_entry()));
        assert_finds(&fixture.table, &expected, "rebuilt").await;
    };
    assert_eq!(rebuild(&new).await, [(Rebuilt::Created(count(15)), 0)]);
    check().await;
    assert_eq!(rebuild(&new).await, [(Rebuilt::Kept, 0)]);

    // A program without knowledge of the items registers the key again with one shard.
    lose(KEY).await;
    let one_shard = [("number_of_shards", number(1)), ("generation", number(1))];
    metadata::store(client, KEY, one_shard).await;
    assert_eq!(rebuild(&new).await, [(Rebuilt::Widened(count(15)), 0)]);
    check().await;

    // The item is damaged.
    metadata::store(client, KEY, [("number_of_shards", metadata::text("many"))]).await;
    assert_eq!(rebuild(&new).await, [(Rebuilt::Created(count(15)), 0)]);
    check().await;
}

/// The main table alone is restored to before a growth. The metadata of the settled key has no width
/// under which its items are at home.
#[tokio::test(start_paused = true)]
async fn a_rebuild_finds_items_that_settled_metadata_hides() {
    for is_item_lost in [false, true] {
        let fixture = claimed(|_| {}).await;
        let client = &fixture.tables.client;
        fixture.store(numbered(0..40)).await;
        let backup = scan_stored(client).await;
        fixture.grow(6).await;
        fixture.table.until(soon()).settle(&key()).await.expect("it begins");
        fixture.drain().await;
        for mut moved in scan_stored(client).await {
            moved.retain(|name, _| ["partition_key", "sort_key"].contains(&name.as_str()));
            let delete = client.delete_item().table_name("items").set_key(Some(moved));
            delete.send().await.expect("deleted");
        }
        for item in backup {
            let put = client.put_item().table_name("items").set_item(Some(item));
            put.send().await.expect("stored");
        }
        if is_item_lost {
            metadata::lose(client, KEY).await;
        }
        sleep(Duration::from_secs(70)).await;
        let new = fixture.another_instance();
        rebuild(&new).await;
        assert_eq!(fixture.all().await.len(), 40);
        for text in numbered(0..40) {
            assert_eq!(get(&fixture.table, &text).await, Some(1), "{text}");
            let created = new.create(&item(&text, 2), None, soon()).await;
            let exists = created.is_err_and(|error| matches!(error.kind, WriteErrorKind::Exists));
            assert!(exists, "{text} is created again");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn damaged_metadata_of_a_key_with_one_shard_is_repaired() {
    let fixture = claimed(|_| {}).await;
    fixture.store(numbered(0..1)).await;
    let damaged = [("number_of_shards", metadata::text("many"))];
    metadata::store(&fixture.tables.client, KEY, damaged).await;
    let new = fixture.another_instance();
    let items = async || {
        let page = new.query(&PageQuery::new(key()), soon()).await;
        page.expect("its page is sufficient").items.len()
    };
    assert_eq!(items().await, 1);
    assert!(new.until(soon()).metadata(&key()).await.is_err());
    assert!(new.until(soon()).grow(&key(), count(2)).await.is_err());
    let listed = new.until(soon()).list(None).await.expect("the others");
    assert_eq!(listed, (vec![], None), "one damaged key does not hide the others");
    assert_eq!(rebuild(&new).await, [(Rebuilt::Created(count(1)), 0)]);
    assert_eq!(items().await, 1);
    new.until(soon()).grow(&key(), count(2)).await.expect("it can grow again");
}
