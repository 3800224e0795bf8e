//! The crate as a program uses it: typed requests, and the warning for a missing `close`. The
//! examples of the documentation show each verb.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Seek};
use std::sync::Mutex;
use std::time::Duration;

use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use futures_util::TryStreamExt;
use local::in_process_clients;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use sharding::maintenance::ScaleOutcome;
use sharding::{
    Attributes, Conditions, ETag, ETags, ReadError, ShardedTable, SortKey, SortKeyType, Value,
    WriteErrorKind, create_tables,
};
use system_tests::{Tables, config, count, partition_key};
use tokio::time::Instant;
use tracing_subscriber::fmt::format::FmtSpan;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    total: i64,
    note: Option<String>,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    article: String,
    count: u64,
}

fn order(total: i64) -> Order {
    Order { total, note: None, lines: vec![Line { article: "tea".into(), count: u64::MAX }] }
}

async fn table() -> ShardedTable {
    Tables::unclaimed(config()).await.sharded_table()
}

#[tokio::test(start_paused = true)]
async fn an_item_comes_back_as_stored_and_a_wrong_type_is_named() {
    let table = table().await;
    table.put("day", "order-1", order(i64::MIN)).await.expect("stored");
    let get = || table.get::<Order>("day", "order-1").consistent(true);
    let read = get().await.expect("read").expect("it is there");
    assert_eq!(read.value, order(i64::MIN), "integers keep all digits");

    let line = [("article", "tea"), ("count", "many")];
    let line = line.map(|(name, text)| (name.to_owned(), Value::S(text.into())));
    let wrong = Attributes::from([("lines", Value::L(vec![Value::M(line.into())]))]);
    table.update("day", "order-1").merge(wrong).await.expect("changed");
    let error = get().await.expect_err("count is no number");
    let ReadError::Decode { attribute, .. } = &error else { panic!("{error:?}") };
    assert_eq!(attribute, "lines[0].count");
    let expected = r#"the item "order-1" of "day", attribute lines[0].count: "#;
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_stored_is_an_error_and_nothing_is_sent() {
    let table = table().await;
    let own = |name: &str| table.put("day", "order-1", Attributes::from([(name, Value::Null)]));
    let update = || table.update("day", "order-1");
    let shares = HashMap::from([("shares", [f32::INFINITY])]);
    let refused = [
        table.put("", "order-1", order(1)).await.map(drop),
        table.put("day", "", order(1)).await.map(drop),
        table.put("day", 7, order(1)).await.map(drop),
        table.put("day", "order-1", "text").await.map(drop),
        own("sort_key").await.map(drop),
        own("_sh:v").await.map(drop),
        table.create("day", "order-1", order(1)).idempotency_key("").await.map(drop),
        update().set("total", 1).add("total", 1).await.map(drop),
        update().add("lines", vec![1]).await.map(drop),
        table.put("day", "order-1", HashMap::from([("share", f64::NAN)])).await.map(drop),
        table.create("day", "order-1", shares).await.map(drop),
        update().set("lines", [HashMap::from([("sum", 1e-200)])]).await.map(drop),
        update().add("ids", Value::Ns(vec!["1".repeat(39)])).await.map(drop),
        table.put("day", "order-1", HashMap::from([("lines", [Some(u128::MAX)])])).await.map(drop),
        update().add("total", -1_i128).await.map(drop),
        table.put("day", "order-1", order(1)).once(true).if_match(&ETag::new("1")).await.map(drop),
        Err(table.batch_delete([("day", "order-1")]).once(true).await.failed.remove(0).1),
    ];
    let reserved =
        "the name belongs to a key or to the product; any other name that is not empty is allowed";
    let numbers =
        "allowed: up to 38 significant digits, and 0 or a magnitude of 1E-130 to 9.99E+125";
    let integers = "allowed: integers of up to 64 bits, or Value::N in an item of Attributes for \
                    up to 38 digits";
    let (ones, zeros) = ("1".repeat(39), "0".repeat(58));
    let expected = [
        "partition key: it is empty; a key has at least one byte",
        "sort key: it is empty; a key has at least one byte",
        "sort key: it must be a string: the table's sort keys are strings",
        "item: it is a string, and must be a map",
        &format!("attribute sort_key: {reserved}"),
        &format!("attribute _sh:v: {reserved}"),
        "idempotency key: it has 0 characters, or one that is not visible ASCII; allowed: 1 to 255 \
         visible ASCII characters",
        "attribute total: the update both adds to it and sets or removes it",
        "attribute lines: it is a list; a number or a set can be added",
        &format!("attribute share: it is not a decimal number: NaN; {numbers}"),
        &format!("attribute shares[0]: it is not a decimal number: inf; {numbers}"),
        &format!(
            "attribute lines[0].sum: its magnitude is outside 1E-130 to 9.99E+125: 0.{zeros}; \
             {numbers}"
        ),
        &format!("attribute ids: it has more than 38 significant digits: {ones}; {numbers}"),
        &format!("attribute lines[0]: it is a 128-bit integer; {integers}"),
        &format!("attribute total: it is a 128-bit integer; {integers}"),
        "conditions: a put that is made once has no conditions; use create, or leave once out",
        "once: only puts can be made once",
    ];
    assert_eq!(refused.len(), expected.len());
    for (result, expected) in refused.into_iter().zip(expected) {
        let error = result.expect_err(expected);
        let is_invalid = matches!(error.kind, WriteErrorKind::Invalid(_));
        assert!(is_invalid && error.attempts == 0, "{error:?}");
        assert_eq!(error.to_string(), expected);
    }
    let query = || table.query::<Order>("day");
    for (query, expected) in [
        (query().limit(0), "limit: it is 0; allowed: 1 to 1000"),
        (query().from("b").to("a"), "from: it is above to"),
        (query().prefix("a").from("b"), "prefix: it cannot be combined with from or to"),
        (query().cursor("?"), "cursor: it is not a cursor that this API gave out"),
        (query().fields(["_sh:v"]), &format!("attribute _sh:v: {reserved}")),
    ] {
        let error = query.stream().try_next().await.expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
    assert!(table.query::<Order>("day").consistent(true).await.expect("read").entries.is_empty());
    let (day, maintenance) = (partition_key("day"), table.maintenance());
    let error = maintenance.grow(&day, count(201)).await.expect_err("too many");
    assert_eq!(error.to_string(), "number_of_shards 201 is over MAX_SHARDS, 200");
    let grown = maintenance.grow(&day, count(8)).await.expect("grown");
    assert_eq!(grown, ScaleOutcome::Scaled { from: count(1), to: count(8) });
    assert!(maintenance.grow(&day, count(2)).await.is_err(), "fewer is a shrink");
}

#[tokio::test(start_paused = true)]
async fn a_table_with_numbers_takes_text_and_integers() {
    let numbers = config().with(|config| config.sort_key_type = SortKeyType::Number);
    let table = Tables::unclaimed(numbers).await.sharded_table();
    for sort_key in ["10", "9.50"] {
        table.put("sensor", sort_key, Attributes::new()).await.expect("stored");
    }
    table.put("sensor", 9, Attributes::new()).await.expect("stored");
    let query = table.query::<Attributes>("sensor").from(9).to("10.0").consistent(true);
    let page = query.await.expect("read");
    let keys: Vec<String> = page.entries.iter().map(|entry| entry.sort_key.to_string()).collect();
    assert_eq!(keys, ["9", "9.5", "10"]);
    assert_eq!(page.entries[0].sort_key, SortKey::from(9));
    let error = table.append("sensor", Attributes::new()).await.expect_err("no number is made");
    let expected = "sort key: the table's sort keys are numbers, and none is made; use put";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_error_names_the_table_that_is_missing() {
    for (missing, name) in [("items", "main"), ("items-metadata", "metadata")] {
        let tables = Tables::unclaimed(config()).await;
        let table = tables.sharded_table();
        tables.client.delete_table().table_name(missing).send().await.expect("deleted");
        let expected = format!(
            "the {name} table {missing} cannot be used: ResourceNotFoundException: Requested resource not found"
        );
        let put = table.put("day", "order-1", order(1)).await.expect_err(missing);
        assert_eq!(put.to_string(), expected);
        let get = table.get::<Order>("day", "order-1").consistent(true).await.expect_err(missing);
        assert_eq!(get.to_string(), expected);
        let page = table.query::<Order>("day").consistent(true).await.expect_err(missing);
        assert_eq!(page.to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_within_its_timeout_or_the_tables() {
    let quick = config().with(|config| config.timeout = Duration::from_secs(2));
    let tables = Tables::unclaimed(quick).await;
    tables.sharded_table().put("day", "order-1", order(1)).await.expect("stored");
    let table = Tables { service_time: Duration::from_secs(3600), ..tables }.sharded_table();
    for (timeout, expected) in [(None, 2), (Some(1), 1)] {
        let (put, began) = (table.put("day", "order-1", order(1)), Instant::now());
        let put = match timeout {
            Some(seconds) => put.timeout(Duration::from_secs(seconds)),
            None => put,
        };
        let error = put.await.expect_err("there is no response");
        assert!(error.is_retryable(), "{error:?}");
        assert_eq!(began.elapsed().as_secs(), expected);
    }
    let (deadline, began) = (Instant::now() + Duration::from_secs(3), Instant::now());
    let read = table.get::<Order>("day", "order-1").deadline(deadline).await;
    assert!(read.expect_err("there is no response").is_retryable());
    assert_eq!(began.elapsed().as_secs(), 3);
}

/// Dropping the last clone while a key grows in the background logs a warning. After `close`, there
/// is no warning.
#[test]
fn a_program_without_close_gets_a_warning_with_the_growing_keys() {
    for closes in [true, false] {
        let log = logged(async {
            let tables = Tables::unclaimed(config()).await;
            let limits = PartitionLimits { write_units: 10.0, ..PartitionLimits::default() };
            tables.engine.set_limits([("items".to_owned(), limits)]);
            let table = tables.sharded_table();
            let items = (0..400).map(|n| ("day", format!("order-{n:03}"), order(n)));
            let outcome = table.batch_put(items).timeout(Duration::from_millis(300)).await;
            assert!(!outcome.failed.is_empty(), "it is hot");
            if closes {
                table.close().await;
            }
        });
        let parts = ["WARN", "dropped with work in the background", "day"];
        let is_warning = |line: String| parts.iter().all(|part| line.contains(part));
        let warned = log.iter().any(|line| is_warning(line.to_string()));
        assert_eq!(warned, !closes, "{log:?}");
    }
}

#[test]
fn each_request_has_a_span_without_keys_and_items() {
    let log = logged(async {
        let table = table().await;
        table.put("secret", "order-1", order(1)).await.expect("stored");
        table.create("secret", "order-2", order(2)).await.expect("created");
        table.append("secret", order(3)).await.expect("appended");
        table.update("secret", "order-1").add("total", 1).await.expect("updated");
        table.delete("secret", "order-2").await.expect("deleted");
        table.get::<Order>("secret", "order-1").await.expect("read");
        let keys = [("secret", "order-1"), ("secret", "order-2")];
        assert_eq!(table.batch_get::<Order>(keys).await.len(), 2);
        table.query::<Order>("secret").await.expect("read");
        let items = (4..6).map(|n| ("secret", format!("order-{n}"), order(n)));
        assert_eq!(table.batch_put(items).await.written, 2);
    });
    let operations =
        "put create append update delete get batch_get batch_get query batch_put batch_put";
    let span = |it: &str| json!({"name": "sharding_request", "operation": it, "table": "items"});
    let expected: Vec<_> = operations.split(' ').map(span).collect();
    let is_begun = |line: &&Json| line["fields"]["message"] == "new";
    let spans = log.iter().filter(is_begun).map(|line| &line["span"]);
    let spans: Vec<_> = spans.filter(|span| span["name"] == "sharding_request").collect();
    assert_eq!(spans, expected.iter().collect::<Vec<_>>());
}

/// What a program logs, and its spans when they begin.
fn logged(program: impl Future<Output = ()>) -> Vec<Json> {
    let mut file = tempfile::tempfile().expect("a file");
    let writer = Mutex::new(file.try_clone().expect("a file"));
    let log = tracing_subscriber::fmt().json().with_span_events(FmtSpan::NEW).with_writer(writer);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let run = || runtime.expect("a runtime").block_on(program);
    tracing::subscriber::with_default(log.finish(), run);
    file.rewind().expect("a file");
    let lines = BufReader::new(file).lines().map(|line| line.expect("a line"));
    lines.map(|line| serde_json::from_str(&line).expect("JSON")).collect()
}

#[tokio::test]
async fn an_update_merges_and_adds_in_one_write_and_once() {
    let table = table().await;
    let counted = |count: &str| Value::N(count.into());
    let stored = Attributes::from([("count", counted("1")), ("note", Value::S("old".into()))]);
    table.put("day", "order-1", stored).await.expect("stored");
    for _attempt in 1..=2 {
        let update =
            table.update("day", "order-1").remove("note").set("paid", true).add("count", 2);
        let updated = update.idempotency_key("payment-7").await.expect("updated");
        let expected = Attributes::from([("count", counted("3")), ("paid", Value::Bool(true))]);
        assert_eq!(updated.attributes, expected);
    }
    let other = table.update("day", "order-1").set("paid", true).add("count", 3);
    let updated = other.idempotency_key("payment-7").await.expect("another content");
    assert_eq!(updated.attributes["count"], counted("6"));
}

#[tokio::test]
async fn entries_of_a_page_have_the_tags_that_conditions_name() {
    let table = table().await;
    for sort_key in ["order-1", "order-2", "order-3"] {
        table.put("day", sort_key, order(1)).await.expect("stored");
    }
    let query = || table.query::<Attributes>("day").fields(["total"]).consistent(true);
    let entries = query().await.expect("a page").entries;
    let tags: Vec<ETag> = entries.into_iter().filter_map(|entry| entry.tag).collect();
    assert_eq!(tags.len(), 3);
    let one_of =
        |tags: &[ETag]| Conditions { matches: Some(ETags::Of(tags.to_vec())), differs: None };
    let wrong = table.put("day", "order-1", order(2)).conditions(one_of(&tags[1..])).await;
    let wrong = wrong.expect_err("none of them is its tag");
    assert!(matches!(wrong.kind, WriteErrorKind::Precondition), "{wrong:?}");
    assert_eq!(wrong.current.as_ref(), Some(&tags[0]));
    table.delete("day", "order-1").conditions(one_of(&tags)).await.expect("one is its tag");
    assert_eq!(query().count().await.expect("counted"), 2);
}

#[tokio::test]
async fn a_page_that_is_cut_short_goes_on_in_both_directions() {
    let table = table().await;
    let sort_keys: Vec<String> = (0..30).map(|number| format!("order-{number:02}")).collect();
    let items = sort_keys.iter().map(|sort_key| ("day", sort_key, order(1)));
    assert_eq!(table.batch_put(items).await.written, 30);
    // The page at a cursor, of which so many entries are kept, and their sort keys.
    let read = async |cursor: Option<&str>, kept: usize| {
        let query = table.query::<Attributes>("day").limit(7).consistent(true);
        let page = match cursor {
            Some(cursor) => query.cursor(cursor).await,
            None => query.await,
        };
        let mut page = page.expect("a page");
        page.keep(kept);
        let keys = page.entries.iter().map(|entry| entry.sort_key.to_string());
        let keys: Vec<String> = keys.collect();
        (page, keys)
    };
    let (mut last, mut forwards) = read(None, 3).await;
    while let Some(cursor) = last.cursor.clone() {
        let (page, keys) = read(Some(&cursor), 3).await;
        forwards.extend(keys);
        last = page;
    }
    assert_eq!(forwards, sort_keys);
    let mut backwards = forwards.split_off(forwards.len() - last.entries.len());
    while let Some(previous) = last.previous.clone() {
        let (page, keys) = read(Some(&previous), 3).await;
        assert!(page.is_backwards);
        backwards.splice(0..0, keys);
        last = page;
    }
    assert_eq!(backwards, sort_keys);

    // A page of which nothing is kept is read again.
    let second = read(None, 7).await.0.cursor.expect("there is more");
    let (third, _) = read(Some(&second), 7).await;
    for cursor in [second, third.previous.expect("there is a page before it")] {
        let (page, none) = read(Some(&cursor), 0).await;
        let further = if page.is_backwards { page.previous } else { page.cursor };
        let (_, again) = read(Some(&further.expect("it goes on")), 7).await;
        assert_eq!((none, again), (vec![], read(Some(&cursor), 7).await.1));
    }
}

#[tokio::test]
async fn tables_are_created_once_by_any_number_of_processes() {
    let engine = Engine::in_memory().expect("an engine");
    let client = in_process_clients(&InProcess::new(engine)).dynamodb;
    let config = config().with(|config| config.read_replicas = vec!["replica".to_owned()]);
    let created = futures_util::future::join_all((0..8).map(|_| create_tables(&client, &config)));
    for created in created.await {
        created.expect("it exists, whoever created it");
    }
    let described = client.describe_table().table_name("items").send().await.expect("a table");
    let table = described.table.expect("a description");
    assert_eq!(table.global_secondary_indexes()[0].index_name(), Some("replica"));
}
