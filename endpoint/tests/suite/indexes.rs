//! Queries on indexes with the table's own partition key, beside those of a plain table.

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use embedded_dynamodb::InProcess;
use serde_json::{Value, json};
use sharding::Version;

use crate::cases::{GROWN, ONE, comparable, keyed};
use crate::world::{PLAIN, SHARDED, World};

/// The items of a key.
const ITEMS: u32 = 48;

/// The indexes: name, sort key, projection. A global one has a name that begins with `g`.
const INDEXES: [(&str, Option<&str>, &str); 9] = [
    ("l-text", Some("t"), "ALL"),
    ("l-number", Some("n"), "KEYS_ONLY"),
    ("l-bytes", Some("b"), "INCLUDE"),
    ("l-bytes-all", Some("b"), "ALL"),
    ("g-text", Some("t"), "KEYS_ONLY"),
    ("g-number", Some("n"), "ALL"),
    ("g-table", Some("sk"), "INCLUDE"),
    ("g-all", None, "ALL"),
    ("g-keys", None, "KEYS_ONLY"),
];

fn table() -> Value {
    let key = |name: &str, kind: &str| json!({ "AttributeName": name, "KeyType": kind });
    let of = |global: bool| {
        let described = INDEXES.iter().filter(|(name, ..)| name.starts_with('g') == global);
        let described = described.map(|(name, sort_key, projection)| {
            let range = sort_key.map(|name| key(name, "RANGE"));
            let keys: Vec<Value> = [key("pk", "HASH")].into_iter().chain(range).collect();
            let mut shown = json!({ "ProjectionType": projection });
            if *projection == "INCLUDE" {
                shown["NonKeyAttributes"] = json!(["words"]);
            }
            json!({ "IndexName": name, "KeySchema": keys, "Projection": shown })
        });
        described.collect::<Vec<_>>()
    };
    let typed = [("pk", "S"), ("sk", "S"), ("t", "S"), ("n", "N"), ("b", "B")];
    let typed = typed.map(|(name, of)| json!({ "AttributeName": name, "AttributeType": of }));
    json!({
        "KeySchema": [key("pk", "HASH"), key("sk", "RANGE")],
        "AttributeDefinitions": typed,
        "BillingMode": "PAY_PER_REQUEST",
        "LocalSecondaryIndexes": of(false),
        "GlobalSecondaryIndexes": of(true),
    })
}

/// The attributes of an item after some changes: few values, so that many items have the same, and
/// some items that are not in an index.
fn attributes(number: u32, change: u32) -> Value {
    let of = number * 7 + change * 3;
    let numbers = [
        "-12345678901234567890123456789012345678",
        "-12345678901234567890123456789012345677",
        "-0.5",
        "9",
        "10",
        "12345678901234567890123456789012345677",
        "12345678901234567890123456789012345678",
    ];
    let texts = ["a", "B", "b", "\u{e9}"];
    let bytes = ["AA==", "AP8=", "fw==", "gA==", "/wA="];
    let mut attributes = json!({
        "words": {"S": "x".repeat((of % 13) as usize)},
        "m": {"M": {"a": {"N": of.to_string()}}},
    });
    // Every third item keeps its keys in the indexes.
    let of = if number.is_multiple_of(3) { number } else { of };
    if !of.is_multiple_of(5) {
        attributes["t"] = json!({ "S": (texts[of as usize % 4]) });
    }
    if !of.is_multiple_of(11) {
        attributes["n"] = json!({ "N": (numbers[of as usize % 7]) });
    }
    attributes["b"] = json!({ "B": (bytes[of as usize % 5]) });
    attributes
}

/// Stores the same items in both tables while the key grows, and puts, updates and deletes some, so
/// that there are entries of copies that are not the newest.
async fn filled(key: &str, widths: &[u32]) -> World {
    let world = World::of(true, &table()).await;
    // Of another program.
    for number in 0..4 {
        let item = keyed(key, &format!("{number:03}"), &attributes(number, 9));
        for table in [PLAIN, SHARDED] {
            world.store(table, &item);
        }
    }
    for (change, width) in (0..).zip(widths) {
        if *width > 1 {
            world.grow(key, *width).await;
        }
        let from = ITEMS / 4 * change;
        for number in 4..ITEMS {
            let sort_key = format!("{number:03}");
            let item = keyed(key, &sort_key, &attributes(number, change));
            let item_key = keyed(key, &sort_key, &json!({}));
            if number >= from && (number < from + ITEMS / 2 || change == 0) {
                world.both("PutItem", &json!({ "Item": item })).await;
            } else if number % 5 == change {
                let update = json!({
                    "Key": item_key,
                    "UpdateExpression": "SET t = :t, n = :n REMOVE m",
                    "ExpressionAttributeValues": { ":t": {"S": "b"}, ":n": {"N": "9.0"} },
                });
                world.both("UpdateItem", &update).await;
            } else if number % 5 == change + 1 {
                let update = json!({
                    "Key": item_key,
                    "UpdateExpression": "SET words = :w",
                    "ExpressionAttributeValues": { ":w": {"S": "xxxxx"} },
                });
                world.both("UpdateItem", &update).await;
            }
            if number % 7 == change {
                world.both("DeleteItem", &json!({ "Key": item_key })).await;
            }
        }
    }
    world
}

fn query(key: &str, index: &str, condition: &str, values: &Value) -> Value {
    let mut query = json!({
        "IndexName": index,
        "KeyConditionExpression": condition,
        "ExpressionAttributeValues": { ":k": {"S": key} },
    });
    for (name, value) in values.as_object().into_iter().flatten() {
        query["ExpressionAttributeValues"][name] = value.clone();
    }
    query
}

/// Asks everything of all indexes. Each page is that of the plain table, with its
/// `LastEvaluatedKey`. Returns the number of queries.
async fn compare(world: &World, key: &str) -> u32 {
    let mut count = 0;
    for (index, sort_key, projection) in INDEXES {
        let mut conditions = vec![("pk = :k", json!({}))];
        conditions.extend(match sort_key {
            Some("t") => vec![
                ("pk = :k AND t >= :a", json!({ ":a": {"S": "b"} })),
                ("t = :a AND pk = :k", json!({ ":a": {"S": "b"} })),
            ],
            Some("n") => vec![
                (
                    "pk = :k AND n BETWEEN :a AND :b",
                    json!({ ":a": {"N": "-1"}, ":b": {"N": "10"} }),
                ),
                (
                    "pk = :k AND n < :a",
                    json!({ ":a": {"N": "12345678901234567890123456789012345678"} }),
                ),
            ],
            Some("b") => vec![("pk = :k AND begins_with(b, :a)", json!({ ":a": {"B": "AA=="} }))],
            _ => vec![],
        });
        for (condition, values) in &conditions {
            for filter in [None, Some("words > :f"), Some("attribute_not_exists(m)")] {
                for (limit, is_forward) in
                    [(None, true), (None, false), (Some(7), false), (Some(16), true)]
                {
                    for shown in ["all", "words, sk", "COUNT", "ALL_ATTRIBUTES"] {
                        let mut query = query(key, index, condition, values);
                        query["ScanIndexForward"] = json!(is_forward);
                        let is_local = index.starts_with('l');
                        query["ConsistentRead"] = json!(is_local);
                        if let Some(filter) = filter {
                            query["FilterExpression"] = json!(filter);
                            if filter.contains(":f") {
                                query["ExpressionAttributeValues"][":f"] = json!({ "S": "xxxx" });
                            }
                        }
                        if let Some(limit) = limit {
                            query["Limit"] = json!(limit);
                        }
                        match shown {
                            "all" => {}
                            // Only a local index shows what it does not have.
                            "ALL_ATTRIBUTES" if !is_local && projection != "ALL" => continue,
                            "COUNT" | "ALL_ATTRIBUTES" => query["Select"] = json!(shown),
                            names => query["ProjectionExpression"] = json!(names),
                        }
                        let expected = world.pages("Query", PLAIN, &query).await;
                        let got = world.pages("Query", SHARDED, &query).await;
                        assert_eq!(expected, got, "{query}");
                        count += 1;
                    }
                }
            }
        }
    }
    for (index, ..) in INDEXES {
        for (limit, is_forward) in [(1, true), (2, false), (3, true), (ITEMS, true)] {
            let mut query = query(key, index, "pk = :k", &json!({}));
            query["Limit"] = json!(limit);
            query["ScanIndexForward"] = json!(is_forward);
            let expected = world.pages("Query", PLAIN, &query).await;
            assert_eq!(expected, world.pages("Query", SHARDED, &query).await, "{query}");
            count += 1;
        }
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_a_key_with_one_shard_is_that_of_a_plain_table() {
    let world = filled(ONE, &[1, 1]).await;
    let deleted =
        json!({ "_sh:v": {"N": Version::new(1, 1, 1).to_string()}, "_sh:d": {"BOOL": true} });
    world.store(SHARDED, &keyed(ONE, "0035", &deleted));
    let count = compare(&world, ONE).await;
    println!("{count} queries equal");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_a_key_with_four_shards_is_that_of_a_plain_table() {
    let count = compare(&filled(GROWN, &[4]).await, GROWN).await;
    println!("{count} queries equal");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_with_entries_of_old_copies_is_that_of_a_plain_table() {
    let world = filled(GROWN, &[1, 4, 8]).await;
    let stored = |table: &str, more: &Value| {
        let mut scan = more.clone();
        scan["TableName"] = json!(table);
        world.engine("Scan", &scan).1["Count"].as_u64().unwrap_or_default()
    };
    let deleted = json!({ "FilterExpression": "attribute_exists(#d)",
        "ExpressionAttributeNames": {"#d": "_sh:d"} });
    let (items, copies) = (stored(PLAIN, &json!({})), stored(SHARDED, &json!({})));
    let tombstones = stored(SHARDED, &deleted);
    assert!(tombstones > 2 && copies > items + tombstones + 20, "{copies} copies of {items} items");
    let count = compare(&world, GROWN).await;
    println!("{count} queries equal");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_on_an_index_continues_after_a_growth() {
    let world = filled(GROWN, &[1]).await;
    for (index, ..) in INDEXES {
        let mut query = query(GROWN, index, "pk = :k", &json!({}));
        query["Limit"] = json!(11);
        let expected = world.pages("Query", PLAIN, &query).await;
        query["TableName"] = json!(SHARDED);
        for (page, width) in (0..).zip([1, 4, 8]) {
            if page > 0 && index == INDEXES[0].0 {
                world.grow(GROWN, width).await;
            }
            let (_, got) = world.endpoint("Query", &query).await;
            let got = comparable(got);
            assert_eq!(got, expected[page], "{query}");
            query["ExclusiveStartKey"] = got["LastEvaluatedKey"].clone();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_dynamodb_refuses_has_its_own_text_in_every_width() {
    for (key, widths) in [(ONE, &[1][..]), (GROWN, &[4])] {
        let world = filled(key, widths).await;
        let of = |index: &str, more: Value| {
            let mut query = query(key, index, "pk = :k", &json!({}));
            for (name, value) in more.as_object().into_iter().flatten() {
                query[name] = value.clone();
            }
            query
        };
        let start = |more: Value| json!({ "ExclusiveStartKey": keyed(key, "009", &more) });
        let none = json!({ ":k": {"S": "none"} });
        for query in [
            of("g-text", json!({ "ConsistentRead": true })),
            of("g-text", json!({ "Select": "ALL_ATTRIBUTES" })),
            of("g-text", json!({ "Select": "ALL_ATTRIBUTES", "FilterExpression": "sk = :k" })),
            of("l-text", json!({ "Select": "SOME" })),
            of("l-text", json!({ "Select": "SPECIFIC_ATTRIBUTES" })),
            of("l-text", json!({ "Select": "COUNT", "ProjectionExpression": "sk" })),
            of("l-text", json!({ "Select": "ALL_ATTRIBUTES", "ProjectionExpression": "sk" })),
            of("l-text", json!({ "Limit": 0 })),
            of("l-text", json!({ "FilterExpression": "t = :k" })),
            of("l-text", json!({ "FilterExpression": "AND" })),
            of(
                "l-text",
                json!({ "FilterExpression": "words = ", "ExpressionAttributeValues": none }),
            ),
            of("l-text", json!({ "ExpressionAttributeNames": {"#unused": "t"} })),
            of("l-text", json!({ "KeyConditionExpression": "pk = :k AND n = :k" })),
            of("l-text", json!({ "KeyConditionExpression": "t = :k" })),
            of("absent", json!({})),
            of("l-text", start(json!({}))),
            of("l-text", start(json!({ "n": {"N": "1"} }))),
            of("l-text", start(json!({ "t": {"N": "1"} }))),
            of("l-text", start(json!({ "t": {"S": "a"}, "n": {"N": "1"} }))),
            of("g-all", start(json!({ "t": {"S": "a"} }))),
            of("g-table", start(json!({ "t": {"S": "a"} }))),
            of("l-number", start(json!({ "n": {"S": "1"} }))),
            of("l-bytes", start(json!({ "b": {"S": "AA=="} }))),
        ] {
            let [expected, got] = world.answers("Query", &query).await;
            assert_eq!((got.0, expected.0), (400, 400), "{query}: {got:?}");
            assert_eq!(got.1["message"], expected.1["message"], "{query}");
            assert_eq!(got.1["__type"], expected.1["__type"], "{query}");
        }
        let of_another = json!({ "ExclusiveStartKey": keyed("a", "0", &json!({"t": {"S": "a"}})) });
        let names_ours = json!({ "ProjectionExpression": "#v",
            "ExpressionAttributeNames": {"#v": "_sh:v"} });
        for (more, why) in [
            (of_another, "The provided starting key is invalid"),
            (names_ours, "_sh:v"),
            (json!({ "QueryFilter": {} }), "QueryFilter"),
        ] {
            let [_, got] = world.answers("Query", &of("l-text", more)).await;
            assert_eq!(got.0, 400, "{got:?}");
            assert!(got.1["message"].to_string().contains(why), "{got:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_an_index_ends_where_dynamodb_ends_one() {
    let world = World::of(true, &table()).await;
    world.grow(GROWN, 4).await;
    for number in 0..30 {
        let of =
            json!({ "t": {"S": (number % 4).to_string()}, "words": {"S": "x".repeat(90_000)} });
        let item = keyed(GROWN, &format!("{number:03}"), &of);
        world.both("PutItem", &json!({ "Item": item })).await;
    }
    let query = query(GROWN, "l-text", "pk = :k", &json!({}));
    let items = |pages: &[Value]| -> Vec<Value> {
        pages.iter().filter_map(|page| page["Items"].as_array()).flatten().cloned().collect()
    };
    let expected = world.pages("Query", PLAIN, &query).await;
    let got = world.pages("Query", SHARDED, &query).await;
    assert_eq!(items(&expected), items(&got));
    assert!(got.len() > 2, "{} pages", got.len());
    for page in &got {
        assert!(page.to_string().len() < 1_200_000, "{}", page.to_string().len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_comes_home_meanwhile_is_not_missing() {
    let world = World::of(true, &table()).await;
    for number in 0..ITEMS {
        let of = json!({ "t": {"S": (number % 3).to_string()} });
        let item = keyed(GROWN, &format!("{number:03}"), &of);
        world.both("PutItem", &json!({ "Item": item })).await;
    }
    world.grow(GROWN, 4).await;
    let write = async {
        for number in 0..ITEMS {
            let update = json!({
                "TableName": SHARDED,
                "Key": keyed(GROWN, &format!("{number:03}"), &json!({})),
                "UpdateExpression": "ADD n :one",
                "ExpressionAttributeValues": { ":one": {"N": "1"} },
            });
            let (status, answer) = world.endpoint("UpdateItem", &update).await;
            assert_eq!(status, 200, "{answer}");
        }
    };
    let read = async {
        for _ in 0..40 {
            for index in ["l-text", "l-bytes-all", "g-keys"] {
                let mut query = query(GROWN, index, "pk = :k", &json!({}));
                query["ConsistentRead"] = json!(index.starts_with('l'));
                query["Select"] = json!("COUNT");
                query["TableName"] = json!(SHARDED);
                let (_, page) = world.endpoint("Query", &query).await;
                let expected = if index == "l-bytes-all" { 0 } else { ITEMS };
                assert_eq!(page["Count"], json!(expected), "{index}");
            }
        }
    };
    tokio::join!(write, read);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_made_anew_is_described_again() {
    let world = filled(ONE, &[1]).await;
    let defined = &table()["AttributeDefinitions"];
    let by_key = query(ONE, "g-text", "pk = :k", &json!({}));
    assert_eq!(
        world.pages("Query", PLAIN, &by_key).await,
        world.pages("Query", SHARDED, &by_key).await
    );
    let key = |name: &str, kind: &str| json!({ "AttributeName": name, "KeyType": kind });
    let create = json!({
        "IndexName": "g-text",
        "KeySchema": [key("pk", "HASH"), key("n", "RANGE")],
        "Projection": { "ProjectionType": "KEYS_ONLY" },
    });
    for table in [PLAIN, SHARDED] {
        for change in
            [json!({ "Delete": { "IndexName": "g-text" } }), json!({ "Create": create.clone() })]
        {
            let update = json!({ "TableName": table, "GlobalSecondaryIndexUpdates": [change],
                "AttributeDefinitions": defined });
            let (status, answer) = world.engine("UpdateTable", &update);
            assert_eq!(status, 200, "{answer}");
        }
    }
    let [expected, first] = world.answers("Query", &by_key).await;
    assert_eq!((expected.0, first.0), (200, 500), "{first:?}");
    assert_eq!(
        world.pages("Query", PLAIN, &by_key).await,
        world.pages("Query", SHARDED, &by_key).await
    );
}

/// A server whose entries of one index key are not in the order of the table's sort key.
#[derive(Debug, Clone)]
struct Unordered(InProcess);

impl HttpConnector for Unordered {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let is_query = request.headers().get("x-amz-target").unwrap_or_default().ends_with("Query");
        let response = self.0.call(request);
        HttpConnectorFuture::new(async move {
            let mut response = response.await?;
            let body = response.body().bytes().unwrap_or_default();
            let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
            if is_query && let Some(items) = body["Items"].as_array_mut() {
                items.reverse();
                *response.body_mut() = SdkBody::from(body.to_string());
            }
            Ok(response)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_in_another_order_is_refused_in_every_width() {
    for (key, widths) in [(ONE, &[1][..]), (GROWN, &[4])] {
        let world = filled(key, widths).await;
        let world = world.through(Unordered(InProcess::new(world.engine.clone()))).await;
        for filter in [None, Some("attribute_exists(words)")] {
            let mut query = query(key, "g-all", "pk = :k", &json!({}));
            if let Some(filter) = filter {
                query["FilterExpression"] = json!(filter);
            }
            let [_, got] = world.answers("Query", &query).await;
            assert_eq!(got.0, 400, "{got:?}");
            assert!(got.1["message"].to_string().contains("not in the order"), "{got:?}");
        }
    }
}
