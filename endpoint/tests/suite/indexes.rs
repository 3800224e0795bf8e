//! Queries on indexes with the table's own partition key, beside those of a plain table.

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use embedded_dynamodb::InProcess;
use serde_json::{Value, json};
use sharding::Version;

use crate::cases::{GROWN, ONE, comparable, keyed};
use crate::world::{
    PLAIN, SHARDED, World, combined, described, done, expression, joined, schema, together,
};

/// The items that [`filled`] stores at first.
pub(crate) const ITEMS: u32 = 48;

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
    let of = |global: bool| {
        let indexes = INDEXES.iter().filter(|(name, ..)| name.starts_with('g') == global);
        let indexes = indexes.map(|(name, sort_key, projection)| {
            let mut shown = json!({ "ProjectionType": projection });
            if *projection == "INCLUDE" {
                shown["NonKeyAttributes"] = json!(["words"]);
            }
            json!({ "IndexName": name, "KeySchema": schema(*sort_key), "Projection": shown })
        });
        indexes.collect::<Vec<_>>()
    };
    let table = described(&[("pk", "S"), ("sk", "S"), ("t", "S"), ("n", "N"), ("b", "B")]);
    let indexes = json!({ "LocalSecondaryIndexes": of(false), "GlobalSecondaryIndexes": of(true) });
    together(&[&table, &indexes])
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
pub(crate) async fn filled(key: &str, widths: &[u32]) -> World {
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
            let item_key = json!({ "Key": keyed(key, &sort_key, &json!({})) });
            let update = |text, values| {
                together(&[&expression("UpdateExpression", text, values), &item_key])
            };
            if number >= from && (number < from + ITEMS / 2 || change == 0) {
                world.both("PutItem", &json!({ "Item": item })).await;
            } else if number % 5 == change {
                let values = json!({ ":t": {"S": "b"}, ":n": {"N": "9.0"} });
                world.both("UpdateItem", &update("SET t = :t, n = :n REMOVE m", values)).await;
            } else if number % 5 == change + 1 {
                let values = json!({ ":w": {"S": "xxxxx"} });
                world.both("UpdateItem", &update("SET words = :w", values)).await;
            }
            if number % 7 == change {
                world.both("DeleteItem", &item_key).await;
            }
        }
    }
    world
}

/// A query of all entries of an index, with more members.
fn query(key: &str, index: &str, more: &Value) -> Value {
    let all = json!({
        "IndexName": index,
        "KeyConditionExpression": "pk = :k",
        "ExpressionAttributeValues": { ":k": {"S": key} },
    });
    together(&[&all, more])
}

/// Asks everything of all indexes. Each page is that of the plain table, with its
/// `LastEvaluatedKey`.
async fn compare(world: &World, key: &str) {
    let condition = |text, values| expression("KeyConditionExpression", text, values);
    let filters = [
        json!({}),
        expression("FilterExpression", "words > :f", json!({ ":f": {"S": "xxxx"} })),
        json!({ "FilterExpression": "attribute_not_exists(m)" }),
    ];
    let pages = [
        json!({}),
        json!({ "ScanIndexForward": false }),
        json!({ "ScanIndexForward": false, "Limit": 7 }),
        json!({ "Limit": 16 }),
    ];
    let shown = [
        json!({}),
        json!({ "ProjectionExpression": "words, sk" }),
        json!({ "Select": "COUNT" }),
        json!({ "Select": "ALL_ATTRIBUTES" }),
    ];
    for (index, sort_key, projection) in INDEXES {
        let mut conditions = vec![json!({})];
        conditions.extend(match sort_key {
            Some("t") => vec![
                condition("pk = :k AND t >= :a", json!({ ":a": {"S": "b"} })),
                condition("t = :a AND pk = :k", json!({ ":a": {"S": "b"} })),
            ],
            Some("n") => {
                let highest = "12345678901234567890123456789012345678";
                let between = json!({ ":a": {"N": "-1"}, ":b": {"N": "10"} });
                vec![
                    condition("pk = :k AND n BETWEEN :a AND :b", between),
                    condition("pk = :k AND n < :a", json!({ ":a": {"N": highest} })),
                ]
            }
            Some("b") => {
                vec![condition("pk = :k AND begins_with(b, :a)", json!({ ":a": {"B": "AA=="} }))]
            }
            _ => vec![],
        });
        let is_local = index.starts_with('l');
        let all = [query(key, index, &json!({ "ConsistentRead": is_local }))];
        // Only a local index shows what it does not have.
        let shown = if is_local || projection == "ALL" { &shown[..] } else { &shown[..3] };
        let mut queries = combined(&[&all, &conditions, &filters, &pages, shown]);
        for (limit, is_forward) in [(1, true), (2, false), (3, true), (ITEMS, true)] {
            let page = json!({ "Limit": limit, "ScanIndexForward": is_forward });
            queries.push(query(key, index, &page));
        }
        for query in queries {
            let [expected, got] = world.both_pages(&query).await;
            assert_eq!(expected, got, "{query}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_a_key_with_one_shard_is_that_of_a_plain_table() {
    let world = filled(ONE, &[1, 1]).await;
    let deleted =
        json!({ "_sh:v": {"N": Version::new(1, 1, 1).to_string()}, "_sh:d": {"BOOL": true} });
    world.store(SHARDED, &keyed(ONE, "0035", &deleted));
    compare(&world, ONE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_with_entries_of_old_copies_is_that_of_a_plain_table() {
    let world = filled(GROWN, &[1, 4, 8]).await;
    let stored = |table: &str, filter: &str| {
        let scan = json!({ "TableName": table, "FilterExpression": filter,
            "ExpressionAttributeNames": {"#d": "_sh:d"} });
        world.engine("Scan", &scan).1["Count"].as_u64().expect("a number")
    };
    let (none, some) = ("attribute_not_exists(#d)", "attribute_exists(#d)");
    let (items, copies) = (stored(PLAIN, none), stored(SHARDED, none));
    assert!(stored(SHARDED, some) > 2 && copies > items + 20, "{copies} copies of {items} items");
    compare(&world, GROWN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_on_an_index_continues_after_a_growth() {
    let world = filled(GROWN, &[1]).await;
    for (index, ..) in INDEXES {
        let mut query = query(GROWN, index, &json!({ "Limit": 11 }));
        let expected = world.pages("Query", PLAIN, &query).await;
        for (page, width) in (0..).zip([1, 4, 8]) {
            if page > 0 && index == INDEXES[0].0 {
                world.grow(GROWN, width).await;
            }
            let got = comparable(world.done("Query", &query).await);
            assert_eq!(got, expected[page], "{query}");
            query["ExclusiveStartKey"] = got["LastEvaluatedKey"].clone();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_dynamodb_refuses_has_its_own_text_in_every_width() {
    for (key, widths) in [(ONE, &[1][..]), (GROWN, &[4])] {
        let world = filled(key, widths).await;
        let start = |more: Value| json!({ "ExclusiveStartKey": keyed(key, "009", &more) });
        let filter = |text: &str| json!({ "FilterExpression": text });
        let none = json!({ ":k": {"S": "none"} });
        for (index, more) in [
            ("g-text", json!({ "ConsistentRead": true })),
            ("g-text", json!({ "Select": "ALL_ATTRIBUTES" })),
            ("g-text", json!({ "Select": "ALL_ATTRIBUTES", "FilterExpression": "sk = :k" })),
            ("l-text", json!({ "Select": "SOME" })),
            ("l-text", json!({ "Select": "SPECIFIC_ATTRIBUTES" })),
            ("l-text", json!({ "Select": "COUNT", "ProjectionExpression": "sk" })),
            ("l-text", json!({ "Select": "ALL_ATTRIBUTES", "ProjectionExpression": "sk" })),
            ("l-text", json!({ "Limit": 0 })),
            ("l-text", filter("t = :k")),
            ("l-text", filter("AND")),
            ("l-text", expression("FilterExpression", "words = ", none)),
            ("l-text", json!({ "ExpressionAttributeNames": {"#unused": "t"} })),
            ("l-text", json!({ "KeyConditionExpression": "pk = :k AND n = :k" })),
            ("l-text", json!({ "KeyConditionExpression": "t = :k" })),
            ("absent", json!({})),
            ("l-text", start(json!({}))),
            ("l-text", start(json!({ "n": {"N": "1"} }))),
            ("l-text", start(json!({ "t": {"N": "1"} }))),
            ("l-text", start(json!({ "t": {"S": "a"}, "n": {"N": "1"} }))),
            ("g-all", start(json!({ "t": {"S": "a"} }))),
            ("g-table", start(json!({ "t": {"S": "a"} }))),
            ("l-number", start(json!({ "n": {"S": "1"} }))),
            ("l-bytes", start(json!({ "b": {"S": "AA=="} }))),
        ] {
            let query = query(key, index, &more);
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
            let answer = world.refused("Query", &query(key, "l-text", &more)).await;
            assert!(answer["message"].to_string().contains(why), "{answer}");
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
    let [expected, got] = world.both_pages(&query(GROWN, "l-text", &json!({}))).await;
    assert_eq!(joined(&expected).0, joined(&got).0);
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
            let one = json!({ ":one": {"N": "1"} });
            let mut update = expression("UpdateExpression", "ADD n :one", one);
            update["Key"] = keyed(GROWN, &format!("{number:03}"), &json!({}));
            world.done("UpdateItem", &update).await;
        }
    };
    let read = async {
        for _ in 0..40 {
            for (index, count) in [("l-text", ITEMS), ("l-bytes-all", 0), ("g-keys", ITEMS)] {
                let is_local = index.starts_with('l');
                let more = json!({ "ConsistentRead": is_local, "Select": "COUNT" });
                let page = world.done("Query", &query(GROWN, index, &more)).await;
                assert_eq!(page["Count"], json!(count), "{index}");
            }
        }
    };
    tokio::join!(write, read);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_made_anew_is_described_again() {
    let world = filled(ONE, &[1]).await;
    let by_key = query(ONE, "g-text", &json!({}));
    let [expected, got] = world.both_pages(&by_key).await;
    assert_eq!(expected, got);
    let delete = json!({ "Delete": { "IndexName": "g-text" } });
    let create = json!({ "Create": {
        "IndexName": "g-text",
        "KeySchema": schema(Some("n")),
        "Projection": { "ProjectionType": "KEYS_ONLY" },
    } });
    let defined = &table()["AttributeDefinitions"];
    for table in [PLAIN, SHARDED] {
        for change in [&delete, &create] {
            let update = json!({ "TableName": table, "GlobalSecondaryIndexUpdates": [change],
                "AttributeDefinitions": defined });
            done(&world.engine, "UpdateTable", &update);
        }
    }
    let [expected, first] = world.answers("Query", &by_key).await;
    assert_eq!((expected.0, first.0), (200, 500), "{first:?}");
    let [expected, got] = world.both_pages(&by_key).await;
    assert_eq!(expected, got);
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
        for filter in [json!({}), json!({ "FilterExpression": "attribute_exists(words)" })] {
            let answer = world.refused("Query", &query(key, "g-all", &filter)).await;
            assert!(answer["message"].to_string().contains("not in the order"), "{answer}");
        }
    }
}
