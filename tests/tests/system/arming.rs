//! Armed keys, and their disarming: the real code reads and writes a table that another program
//! uses, over the embedded engine, in virtual time.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, StreamSpecification, StreamViewType};
use sharding::internal::{PageQuery, TableEngine};
use sharding::maintenance::{
    ArmingObstacle, Disarming, KeyPattern, PlainItems, ScaleOutcome, ScalingDecision,
};
use sharding::{ReadError, TableError, WriteError, WriteErrorKind, Written};
use system_tests::metadata::{self, TABLE_ITEM};
use system_tests::{
    Fate, OneItem, Tables, config, count, numbered, partition_key as key, soon, sort_key,
    store_plainly, survey, valued_item,
};
use tokio::time::sleep;

/// From the arming on, in seconds.
const ARMING: u64 = 18 * 60;

/// Tables in which another program has stored items of two keys.
async fn tables() -> Tables {
    let tables = Tables::unclaimed(config()).await;
    for text in numbered(0..20) {
        store_plainly(&tables.client, "a/1", &text, 1).await;
        store_plainly(&tables.client, "b/1", &text, 1).await;
    }
    tables
}

fn pattern(text: &str) -> KeyPattern {
    text.parse().expect("a pattern")
}

async fn put(table: &TableEngine, of: &str, text: &str) -> Result<Written, WriteError> {
    table.put(&valued_item(key(of), text, 2), soon()).await
}

/// The same tables with a pattern that counts, and the instance that has armed it.
async fn armed(text: &str) -> (Tables, TableEngine) {
    let tables = tables().await;
    let table = tables.instance(1);
    table.until(soon()).arm(&pattern(text)).await.expect("armed");
    sleep(Duration::from_secs(ARMING + 5)).await;
    (tables, table)
}

/// The number of items of the key `a/1`, on one page.
async fn read(table: &TableEngine) -> Result<usize, ReadError> {
    table.query(&PageQuery::new(key("a/1")), soon()).await.map(|page| page.items.len())
}

fn refused(written: Result<Written, WriteError>) -> Option<u64> {
    let kind = written.expect_err("not armed").kind;
    let WriteErrorKind::NotArmed { from, .. } = kind else { panic!("{kind:?}") };
    from
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_armed_is_read_as_it_is_and_not_written() {
    let tables = tables().await;
    let (table, wire) = tables.wired(1, |_| Fate::Pass);
    let waits = table.until(soon()).not_armed_before(&key("a/1")).await.expect("a response");
    assert_eq!(waits, Some(None), "nobody has claimed the table");
    assert_eq!(refused(put(&table, "a/1", "order-0001").await), None);
    let before = wire.calls().len();
    for _ in 0..3 {
        assert_eq!(read(&table).await.expect("a page"), 20);
        let got = table.get(&key("b/1"), &sort_key("order-0001"), true, soon()).await;
        assert!(got.expect("a response").is_some());
    }
    let sent = wire.calls().split_off(before);
    assert_eq!(sent.len(), 6);
    assert!(sent.iter().all(|call| call.to_items), "no page is read: {sent:?}");
    let grown = table.until(soon()).grow(&key("a/1"), count(4)).await.expect("a response");
    let expected = ScalingDecision::NotArmed { from: None };
    assert_eq!(grown, ScaleOutcome::Unchanged(expected));
    // The patterns are a lease: a minute later they are read again.
    sleep(Duration::from_secs(61)).await;
    let before = wire.calls().len();
    table.get(&key("b/1"), &sort_key("order-0001"), true, soon()).await.expect("a response");
    assert_eq!(wire.calls().len(), before + 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_written_and_grows_once_its_pattern_counts() {
    let tables = tables().await;
    let (table, other) = (tables.instance(1), tables.instance(2));
    refused(put(&other, "a/1", "order-0001").await);
    let from = table.until(soon()).arm(&pattern("prefix:a/")).await.expect("armed");
    assert_eq!(refused(put(&table, "a/1", "order-0001").await), Some(from));
    sleep(Duration::from_secs(1)).await;
    let again = table.until(soon()).arm(&pattern("prefix:a/")).await.expect("armed");
    assert_eq!(again, from, "a process may have read this time already");
    store_plainly(&tables.client, "a/1", "order-0001", 7).await;
    sleep(Duration::from_secs(ARMING - 6)).await;
    for instance in [&table, &other] {
        assert_eq!(refused(put(instance, "a/1", "order-0001").await), Some(from));
        let grown = instance.until(soon()).grow(&key("a/1"), count(4)).await.expect("a response");
        let waits = ScalingDecision::NotArmed { from: Some(from) };
        assert_eq!(grown, ScaleOutcome::Unchanged(waits));
    }
    sleep(Duration::from_secs(10)).await;
    let grown = table.until(soon()).grow(&key("a/1"), count(4)).await.expect("a response");
    assert_eq!(grown, ScaleOutcome::Scaled { from: count(1), to: count(4) });
    for text in numbered(0..30) {
        put(&other, "a/1", &text).await.expect("stored");
    }
    for instance in [&table, &other] {
        assert_eq!(read(instance).await.expect("a page"), 30);
    }
    assert_eq!(refused(put(&table, "b/1", "order-0001").await), None, "another key");
    // A pattern that counts stays, and is not given a later time.
    assert_eq!(table.until(soon()).arm(&pattern("prefix:a/")).await.expect("armed"), from);
    let disarmed = table.until(soon()).disarm(&pattern("prefix:a/")).await;
    assert!(matches!(disarmed, Err(TableError::ConditionFailed)), "{disarmed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pattern_without_a_time_and_one_that_is_gone_never_count() {
    let tables = tables().await;
    let table = tables.instance(1);
    refused(put(&table, "a/1", "order-0001").await);
    // Its operator died between the two steps.
    let marked = AttributeValue::M([("*".to_owned(), metadata::text("mark"))].into());
    metadata::set(&tables.client, TABLE_ITEM, [("armed", marked)]).await;
    sleep(Duration::from_secs(10 * ARMING)).await;
    assert_eq!(refused(put(&table, "a/1", "order-0001").await), None);
    let from = table.until(soon()).arm(&pattern("*")).await.expect("armed");
    assert_eq!(refused(put(&table, "a/1", "order-0001").await), Some(from));
    // It is removed before it counts. An instance that has read it reads the patterns again.
    tables.instance(2).until(soon()).disarm(&pattern("*")).await.expect("it does not count yet");
    sleep(Duration::from_secs(2 * ARMING)).await;
    assert_eq!(refused(put(&table, "a/1", "order-0001").await), None);
}

#[tokio::test(start_paused = true)]
async fn a_table_made_for_other_settings_is_left_within_a_minute() {
    let (tables, table) = armed("*").await;
    put(&table, "a/1", "order-0001").await.expect("stored");
    let other = metadata::text("random");
    metadata::set(&tables.client, TABLE_ITEM, [("placement", other)]).await;
    sleep(Duration::from_secs(61)).await;
    // This request finds that its knowledge is old, and the next ones what it learned.
    drop(put(&table, "a/1", "order-0001").await);
    table.finish_background_work().await;
    let error = put(&table, "a/1", "order-0001").await.expect_err("other settings").to_string();
    assert!(error.contains("it was made for \"random\""), "{error}");
    let unread = read(&table).await.expect_err("other settings").to_string();
    assert!(unread.contains("SHARD_PLACEMENT"), "{unread}");
}

#[tokio::test(start_paused = true)]
async fn lost_patterns_come_back_if_no_other_program_has_items() {
    for is_shared in [false, true] {
        let tables = Tables::unclaimed(config()).await;
        let table = tables.instance(1);
        for text in numbered(0..20) {
            put(&table, "a/1", &text).await.expect("every key of a new table is armed");
        }
        table.until(soon()).grow(&key("grown"), count(3)).await.expect("grown");
        put(&table, "grown", "order-0001").await.expect("stored");
        if is_shared {
            store_plainly(&tables.client, "b/1", "order-0001", 1).await;
        }
        metadata::lose(&tables.client, TABLE_ITEM).await;
        let new = tables.instance(2);
        new.until(soon()).claim_for_rebuild().await.expect("claimed");
        let survey = survey(&new).await;
        new.until(soon()).rebuild_directory(&survey).await.expect("rebuilt");
        let new = tables.instance(3);
        put(&new, "grown", "order-0002").await.expect("a key that has grown is armed");
        sleep(Duration::from_secs(125)).await;
        let written = put(&new, "a/1", "order-0001").await;
        assert_eq!(written.is_err(), is_shared, "{written:?}");
        assert_eq!(read(&new).await.expect("a page"), 20);
    }
}

/// The table item is restored to before its patterns: a grown key has none.
#[tokio::test(start_paused = true)]
async fn a_grown_key_without_a_pattern_is_no_native_key() {
    let (tables, table) = armed("*").await;
    let (all, other) = (pattern("*"), pattern("prefix:x"));
    table.until(soon()).grow(&key("a/1"), count(4)).await.expect("grown");
    for text in numbered(0..30) {
        put(&table, "a/1", &text).await.expect("stored");
    }
    let empty = AttributeValue::M(HashMap::new());
    metadata::set(&tables.client, TABLE_ITEM, [("armed", empty)]).await;
    let new = tables.instance(2);
    new.until(soon()).claim().await.expect("claimed");
    let unread = read(&new).await.expect_err("it is no native key");
    assert!(unread.to_string().contains("no pattern"), "{unread}");
    // A rebuild lets reads look at all pages again, and arms nothing that may be another program's.
    let survey = survey(&new).await;
    new.until(soon()).rebuild_directory(&survey).await.expect("rebuilt");
    assert_eq!(read(&new).await.expect("a page"), 30);
    assert_eq!(refused(put(&new, "b/1", "order-0001").await), None);
    put(&new, "a/1", "order-0001").await.expect("a key that has grown is armed");
    // As long as nothing else matches the grown key, the pattern stays.
    new.until(soon()).arm(&other).await.expect("armed");
    let kept = new.until(soon()).disarm(&all).await;
    assert!(matches!(kept, Err(TableError::Rejected(_))), "{kept:?}");
    new.until(soon()).disarm(&other).await.expect("it does not count yet");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_several_shards_is_named_before_arming() {
    let tables = tables().await;
    let table = tables.instance(1);
    assert_eq!(table.until(soon()).arming_obstacles().await.expect("described"), []);
    let stream = StreamSpecification::builder().stream_enabled(true);
    let stream = stream.stream_view_type(StreamViewType::NewAndOldImages).build();
    let update = tables.client.update_table().table_name("items");
    let update = update.stream_specification(stream.expect("a stream"));
    update.send().await.expect("updated");
    let found = table.until(soon()).arming_obstacles().await.expect("described");
    assert_eq!(found, [ArmingObstacle::Stream]);

    // The table's tag names the metadata table of the deployment that has armed its keys.
    table.until(soon()).arm(&pattern("prefix:x")).await.expect("armed");
    assert_eq!(
        table.until(soon()).arming_obstacles().await.expect("described"),
        [ArmingObstacle::Stream]
    );
    let of_another = config().with(|config| "others".clone_into(&mut config.metadata_table_name));
    let other = Tables { config: of_another, ..tables.clone() }.instance(2);
    let found = other.until(soon()).arming_obstacles().await.expect("described");
    assert_eq!(found, [ArmingObstacle::Stream, ArmingObstacle::Metadata]);
}

async fn pass(tool: &TableEngine, disarming: &Disarming) -> PlainItems {
    tool.until(soon()).disarm_items(disarming, |_| {}).await.expect("every page")
}

#[tokio::test(start_paused = true)]
async fn disarmed_keys_have_the_items_of_a_plain_table() {
    let (tables, running) = armed("prefix:a/").await;
    put(&running, "a/1", "order-0001").await.expect("stored");
    // As the deletion of an item that its creation may still repeat.
    let tombstone = [
        ("partition_key", metadata::text("a/1")),
        ("sort_key", metadata::text("order-0002")),
        ("_sh:v", AttributeValue::N("1001700000000000000000000000".to_owned())),
        ("_sh:d", AttributeValue::Bool(true)),
    ];
    let tombstone = tombstone.map(|(name, value)| (name.to_owned(), value)).into();
    let store = tables.client.put_item().table_name("items").set_item(Some(tombstone));
    store.send().await.expect("stored");
    let tool = tables.instance(2);
    let disarming = tool.until(soon()).begin_disarming(&pattern("prefix:a/")).await.expect("begun");
    let early = tool.until(soon()).disarm_items(&disarming, |_| {}).await;
    assert!(matches!(early, Err(TableError::Rejected(_))), "{early:?}");
    sleep(Duration::from_secs(ARMING + 1)).await;
    let plain = pass(&tool, &disarming).await;
    assert_eq!((plain.changed, plain.tombstones), (1, 1), "{plain:?}");
    // A process that was not stopped has read that the pattern counts.
    put(&running, "a/1", "order-0003").await.expect("stored");
    assert_eq!(pass(&tool, &disarming).await.changed, 1, "the second pass finds its item");
    assert_eq!(pass(&tool, &disarming).await.changed, 0);
    tool.until(soon()).end_disarming(disarming).await.expect("ended");

    let scanned = tables.client.scan().table_name("items").send().await.expect("a scan");
    let items = scanned.items.expect("items");
    assert_eq!(items.len(), 39);
    let mut names = items.iter().flat_map(HashMap::keys);
    assert_eq!(names.find(|name| name.starts_with("_sh:")), None);
    let stored = |item: &&HashMap<String, AttributeValue>| {
        AttributeValue::as_s(&item["sort_key"]) == Ok(&"order-0001".to_owned())
    };
    let values: Vec<_> = items.iter().filter(stored).map(|item| item["value"].as_n()).collect();
    assert!(values.contains(&Ok(&"2".to_owned())), "{values:?}");
    let new = tables.instance(3);
    assert_eq!(refused(put(&new, "a/1", "order-0001").await), None);
    assert!(new.until(soon()).armed().await.expect("patterns").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_has_grown_stays_armed() {
    let (tables, table) = armed("prefix:a/").await;
    table.until(soon()).grow(&key("a/1"), count(4)).await.expect("grown");
    let tool = tables.instance(2);
    let refused = tool.until(soon()).begin_disarming(&pattern("prefix:a/")).await;
    let why = refused.expect_err("it has grown").to_string();
    assert!(why.contains("a/1 has grown"), "{why}");
    let absent = tool.until(soon()).begin_disarming(&pattern("*")).await;
    assert!(matches!(absent, Err(TableError::ConditionFailed)), "{absent:?}");
}
