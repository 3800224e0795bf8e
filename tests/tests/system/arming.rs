//! Armed keys, and their disarming: the real code reads and writes a table that another program
//! uses, over the embedded engine, in virtual time.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, StreamSpecification, StreamViewType};
use sharding::internal::{PageQuery, TableEngine};
use sharding::maintenance::{
    ArmingObstacle, Disarming, KeyPattern, PlainPage, ScaleOutcome, ScalingDecision,
};
use sharding::{TableError, WriteError, WriteErrorKind, Written};
use system_tests::metadata::{self, TABLE_ITEM};
use system_tests::{
    Fate, Tables, config, count, numbered, partition_key as key, soon, sort_key, store_plainly,
    survey, valued_item,
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

fn refused(written: Result<Written, WriteError>) -> Option<u64> {
    let kind = written.expect_err("not armed").kind;
    let WriteErrorKind::NotArmed { from, .. } = kind else { panic!("{kind:?}") };
    from
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_armed_is_read_as_it_is_and_not_written() {
    let tables = tables().await;
    let (table, wire) = tables.wired(1, |_| Fate::Pass);
    let waits = table.not_armed_before(&key("a/1"), soon()).await.expect("a response");
    assert_eq!(waits, Some(None), "nobody has claimed the table");
    assert_eq!(refused(put(&table, "a/1", "order-0001").await), None);
    let before = wire.calls().len();
    for _ in 0..3 {
        let page = table.query(&PageQuery::new(key("a/1")), soon()).await.expect("a page");
        assert_eq!(page.items.len(), 20);
        let got = table.get(&key("b/1"), &sort_key("order-0001"), true, soon()).await;
        assert!(got.expect("a response").is_some());
    }
    let sent = wire.calls().split_off(before);
    assert_eq!(sent.len(), 6);
    assert!(sent.iter().all(|call| call.to_items), "no page is read: {sent:?}");
    let grown = table.set_shards(&key("a/1"), count(4), soon()).await.expect("a response");
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
    let from = table.arm(&pattern("prefix:a/"), soon()).await.expect("armed");
    assert_eq!(refused(put(&table, "a/1", "order-0001").await), Some(from));
    sleep(Duration::from_secs(1)).await;
    let again = table.arm(&pattern("prefix:a/"), soon()).await.expect("armed");
    assert_eq!(again, from, "a process may have read this time already");
    store_plainly(&tables.client, "a/1", "order-0001", 7).await;
    sleep(Duration::from_secs(ARMING - 6)).await;
    for instance in [&table, &other] {
        assert_eq!(refused(put(instance, "a/1", "order-0001").await), Some(from));
        let grown = instance.set_shards(&key("a/1"), count(4), soon()).await.expect("a response");
        let waits = ScalingDecision::NotArmed { from: Some(from) };
        assert_eq!(grown, ScaleOutcome::Unchanged(waits));
    }
    sleep(Duration::from_secs(10)).await;
    let grown = table.set_shards(&key("a/1"), count(4), soon()).await.expect("a response");
    assert_eq!(grown, ScaleOutcome::Scaled { from: count(1), to: count(4) });
    for text in numbered(0..30) {
        put(&other, "a/1", &text).await.expect("stored");
    }
    for instance in [&table, &other] {
        let page = instance.query(&PageQuery::new(key("a/1")), soon()).await.expect("a page");
        assert_eq!(page.items.len(), 30);
    }
    assert_eq!(refused(put(&table, "b/1", "order-0001").await), None, "another key");
    // A pattern that counts stays, and is not given a later time.
    assert_eq!(table.arm(&pattern("prefix:a/"), soon()).await.expect("armed"), from);
    let disarmed = table.disarm(&pattern("prefix:a/"), soon()).await;
    assert!(matches!(disarmed, Err(TableError::ConditionFailed)), "{disarmed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pattern_is_removed_before_it_counts() {
    let tables = tables().await;
    let (table, other) = (tables.instance(1), tables.instance(2));
    table.arm(&pattern("*"), soon()).await.expect("armed");
    assert!(refused(put(&other, "a/1", "order-0001").await).is_some());
    table.disarm(&pattern("*"), soon()).await.expect("disarmed");
    let again = table.disarm(&pattern("*"), soon()).await;
    assert!(matches!(again, Err(TableError::ConditionFailed)), "{again:?}");
    sleep(Duration::from_secs(2 * ARMING)).await;
    for instance in [&table, &other] {
        assert_eq!(refused(put(instance, "a/1", "order-0001").await), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pattern_without_a_time_never_counts() {
    let tables = tables().await;
    let table = tables.instance(1);
    refused(put(&table, "a/1", "order-0001").await);
    // Its operator died between the two steps.
    let marked = AttributeValue::M([("*".to_owned(), metadata::text("mark"))].into());
    metadata::set(&tables.client, TABLE_ITEM, [("armed", marked)]).await;
    sleep(Duration::from_secs(10 * ARMING)).await;
    assert_eq!(refused(put(&table, "a/1", "order-0001").await), None);
    let from = table.arm(&pattern("*"), soon()).await.expect("armed");
    assert_eq!(refused(put(&table, "a/1", "order-0001").await), Some(from));
}

#[tokio::test(start_paused = true)]
async fn a_table_made_for_other_settings_is_left_within_a_minute() {
    let tables = tables().await;
    let table = tables.instance(1);
    table.arm(&pattern("*"), soon()).await.expect("armed");
    sleep(Duration::from_secs(ARMING + 5)).await;
    put(&table, "a/1", "order-0001").await.expect("stored");
    let other = metadata::text("random");
    metadata::set(&tables.client, TABLE_ITEM, [("placement", other)]).await;
    sleep(Duration::from_secs(61)).await;
    // This request finds that its knowledge is old, and the next ones what it learned.
    drop(put(&table, "a/1", "order-0001").await);
    table.finish_background_work().await;
    let error = put(&table, "a/1", "order-0001").await.expect_err("other settings").to_string();
    assert!(error.contains("it was made for \"random\""), "{error}");
    let read = table.query(&PageQuery::new(key("a/1")), soon()).await;
    assert!(read.is_err_and(|error| error.to_string().contains("SHARD_PLACEMENT")));
}

#[tokio::test(start_paused = true)]
async fn lost_patterns_come_back_if_no_other_program_has_items() {
    for is_shared in [false, true] {
        let tables = Tables::unclaimed(config()).await;
        let table = tables.instance(1);
        for text in numbered(0..20) {
            put(&table, "a/1", &text).await.expect("every key of a new table is armed");
        }
        table.set_shards(&key("grown"), count(3), soon()).await.expect("grown");
        put(&table, "grown", "order-0001").await.expect("stored");
        if is_shared {
            store_plainly(&tables.client, "b/1", "order-0001", 1).await;
        }
        metadata::lose(&tables.client, TABLE_ITEM).await;
        let new = tables.instance(2);
        new.claim_for_rebuild(soon()).await.expect("claimed");
        let survey = survey(&new).await;
        new.rebuild_directory(soon()).await.expect("rebuilt");
        new.restore_patterns(&survey, soon()).await.expect("restored");
        let new = tables.instance(3);
        put(&new, "grown", "order-0002").await.expect("a key that has grown is armed");
        sleep(Duration::from_secs(125)).await;
        let written = put(&new, "a/1", "order-0001").await;
        assert_eq!(written.is_err(), is_shared, "{written:?}");
        let page = new.query(&PageQuery::new(key("a/1")), soon()).await.expect("a page");
        assert_eq!(page.items.len(), 20);
    }
}

/// The table item is restored to before its patterns: a grown key has none.
#[tokio::test(start_paused = true)]
async fn a_grown_key_without_a_pattern_is_no_native_key() {
    let tables = tables().await;
    let table = tables.instance(1);
    let (all, other) = (pattern("*"), pattern("prefix:x"));
    table.arm(&all, soon()).await.expect("armed");
    sleep(Duration::from_secs(ARMING + 5)).await;
    table.set_shards(&key("a/1"), count(4), soon()).await.expect("grown");
    for text in numbered(0..30) {
        put(&table, "a/1", &text).await.expect("stored");
    }
    let empty = AttributeValue::M(HashMap::new());
    metadata::set(&tables.client, TABLE_ITEM, [("armed", empty)]).await;
    let new = tables.instance(2);
    new.claim_mode(soon()).await.expect("claimed");
    let read = async |table: &TableEngine| {
        table.query(&PageQuery::new(key("a/1")), soon()).await.map(|page| page.items.len())
    };
    let unread = read(&new).await.expect_err("it is no native key");
    assert!(unread.to_string().contains("no pattern"), "{unread}");
    // A rebuild lets reads look at all pages again, and arms nothing that may be another program's.
    let survey = survey(&new).await;
    new.restore_patterns(&survey, soon()).await.expect("restored");
    assert_eq!(read(&new).await.expect("a page"), 30);
    assert_eq!(refused(put(&new, "b/1", "order-0001").await), None);
    put(&new, "a/1", "order-0001").await.expect("a key that has grown is armed");
    // As long as nothing else matches the grown key, the pattern stays.
    new.arm(&other, soon()).await.expect("armed");
    let kept = new.disarm(&all, soon()).await;
    assert!(matches!(kept, Err(TableError::Rejected(_))), "{kept:?}");
    new.disarm(&other, soon()).await.expect("it does not count yet");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_several_shards_is_named_before_arming() {
    let tables = tables().await;
    let table = tables.instance(1);
    assert_eq!(table.arming_obstacles(soon()).await.expect("described"), []);
    let stream = StreamSpecification::builder().stream_enabled(true);
    let stream = stream.stream_view_type(StreamViewType::NewAndOldImages).build();
    let update = tables.client.update_table().table_name("items");
    let update = update.stream_specification(stream.expect("a stream"));
    update.send().await.expect("updated");
    let found = table.arming_obstacles(soon()).await.expect("described");
    assert_eq!(found, [ArmingObstacle::Stream]);

    // The table's tag names the metadata table of the deployment that has armed its keys.
    table.tag(soon()).await.expect("tagged");
    assert_eq!(table.arming_obstacles(soon()).await.expect("described"), [ArmingObstacle::Stream]);
    let of_another = config().with(|config| "others".clone_into(&mut config.metadata_table_name));
    let other = Tables { config: of_another, ..tables.clone() }.instance(2);
    let found = other.arming_obstacles(soon()).await.expect("described");
    assert_eq!(found, [ArmingObstacle::Stream, ArmingObstacle::Metadata]);
}

/// A table with the keys of `prefix:a/` armed: one of their items is new, and one is deleted.
async fn armed() -> (Tables, TableEngine) {
    let tables = tables().await;
    let table = tables.instance(1);
    table.arm(&pattern("prefix:a/"), soon()).await.expect("armed");
    sleep(Duration::from_secs(ARMING + 1)).await;
    put(&table, "a/1", "order-0001").await.expect("stored");
    // As the deletion of an item that its creation may still repeat.
    let tombstone = [
        ("partition_key", AttributeValue::S("a/1".to_owned())),
        ("sort_key", AttributeValue::S("order-0002".to_owned())),
        ("_sh:v", AttributeValue::N("1001700000000000000000000000".to_owned())),
        ("_sh:d", AttributeValue::Bool(true)),
    ];
    let tombstone = tombstone.map(|(name, value)| (name.to_owned(), value)).into();
    let put = tables.client.put_item().table_name("items").set_item(Some(tombstone));
    put.send().await.expect("stored");
    (tables, table)
}

async fn pass(tool: &TableEngine, disarming: &Disarming) -> PlainPage {
    let (page, next) = tool.disarm_page(disarming, None, soon()).await.expect("a page");
    assert_eq!(next, None);
    page
}

#[tokio::test(start_paused = true)]
async fn disarmed_keys_have_the_items_of_a_plain_table() {
    let (tables, _) = armed().await;
    let tool = tables.instance(2);
    let disarming = tool.begin_disarming(&pattern("prefix:a/"), soon()).await.expect("begun");
    let early = tool.disarm_page(&disarming, None, soon()).await;
    assert!(matches!(early, Err(TableError::Rejected(_))), "{early:?}");
    sleep(Duration::from_secs(ARMING + 1)).await;
    let page = pass(&tool, &disarming).await;
    assert_eq!((page.changed, page.tombstones), (1, 1), "{page:?}");
    assert_eq!(pass(&tool, &disarming).await.changed, 0);
    tool.end_disarming(disarming, soon()).await.expect("ended");

    let scanned = tables.client.scan().table_name("items").send().await.expect("a scan");
    let items = scanned.items.expect("items");
    assert_eq!(items.len(), 39);
    for item in &items {
        let names: Vec<_> = item.keys().filter(|name| name.starts_with("_sh:")).collect();
        assert_eq!(names, Vec::<&String>::new());
    }
    let stored = |item: &&HashMap<String, AttributeValue>| {
        AttributeValue::as_s(&item["sort_key"]) == Ok(&"order-0001".to_owned())
    };
    let values: Vec<_> = items.iter().filter(stored).map(|item| item["value"].as_n()).collect();
    assert!(values.contains(&Ok(&"2".to_owned())), "{values:?}");
    let new = tables.instance(3);
    assert_eq!(refused(put(&new, "a/1", "order-0001").await), None);
    assert!(new.armed(soon()).await.expect("patterns").patterns().next().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_still_writes_is_seen() {
    let (tables, running) = armed().await;
    let tool = tables.instance(2);
    let disarming = tool.begin_disarming(&pattern("prefix:a/"), soon()).await.expect("begun");
    sleep(Duration::from_secs(ARMING + 1)).await;
    assert_eq!(pass(&tool, &disarming).await.changed, 1);
    put(&running, "a/1", "order-0003").await.expect("it has read that the pattern counts");
    assert_eq!(pass(&tool, &disarming).await.changed, 1, "the second pass finds its item");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_has_grown_stays_armed() {
    let (tables, table) = armed().await;
    table.set_shards(&key("a/1"), count(4), soon()).await.expect("grown");
    let tool = tables.instance(2);
    let refused = tool.begin_disarming(&pattern("prefix:a/"), soon()).await;
    let why = refused.expect_err("it has grown").to_string();
    assert!(why.contains("a/1 has grown"), "{why}");
    let absent = tool.begin_disarming(&pattern("*"), soon()).await;
    assert!(matches!(absent, Err(TableError::ConditionFailed)), "{absent:?}");
}
