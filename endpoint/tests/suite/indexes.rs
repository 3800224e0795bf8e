//! Queries on indexes with the table's own partition key, beside those of a plain table.

use serde_json::{Value, json};

use crate::cases::{GROWN, ONE, comparable, keyed, leaks};
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

async fn both(world: &World, operation: &str, body: &Value) {
    let of = |table: &str| {
        let mut body = body.clone();
        body["TableName"] = json!(table);
        body
    };
    let expected = world.engine(operation, &of(PLAIN));
    let got = world.endpoint(operation, &of(SHARDED)).await;
    assert_eq!(comparable(expected.1), comparable(got.1), "{operation} {body}");
    assert_eq!(expected.0, got.0);
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
                both(&world, "PutItem", &json!({ "Item": item })).await;
            } else if number % 5 == change {
                let update = json!({
                    "Key": item_key,
                    "UpdateExpression": "SET t = :t, n = :n REMOVE m",
                    "ExpressionAttributeValues": { ":t": {"S": "b"}, ":n": {"N": "9.0"} },
                });
                both(&world, "UpdateItem", &update).await;
            } else if number % 5 == change + 1 {
                let update = json!({
                    "Key": item_key,
                    "UpdateExpression": "SET words = :w",
                    "ExpressionAttributeValues": { ":w": {"S": "xxxxx"} },
                });
                both(&world, "UpdateItem", &update).await;
            }
            if number % 7 == change {
                both(&world, "DeleteItem", &json!({ "Key": item_key })).await;
            }
        }
    }
    world
}

/// Follows the pages of a query, and returns them.
async fn pages(world: &World, table: &str, query: &Value) -> Vec<Value> {
    let (mut pages, mut query) = (Vec::new(), query.clone());
    query["TableName"] = json!(table);
    loop {
        let (status, page) = match table {
            PLAIN => world.engine("Query", &query),
            _ => world.endpoint("Query", &query).await,
        };
        assert_eq!(status, 200, "{query}: {page}");
        assert!(!leaks(&page), "{page}");
        let next = page.get("LastEvaluatedKey").cloned();
        pages.push(comparable(page));
        let Some(next) = next else { return pages };
        query["ExclusiveStartKey"] = next;
    }
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

/// Asks everything of all indexes. With a limit, each page is that of the plain table, with its
/// `LastEvaluatedKey`.
async fn compare(world: &World, key: &str) {
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
                for (limit, is_forward) in [
                    (None, true),
                    (None, false),
                    (Some(1), true),
                    (Some(5), false),
                    (Some(16), true),
                ] {
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
                        let expected = pages(world, PLAIN, &query).await;
                        let got = pages(world, SHARDED, &query).await;
                        assert_eq!(expected, got, "{query}");
                        count += 1;
                    }
                }
            }
        }
    }
    println!("{count} queries equal");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_a_key_with_one_shard_is_that_of_a_plain_table() {
    compare(&filled(ONE, &[1, 1]).await, ONE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_a_key_with_four_shards_is_that_of_a_plain_table() {
    compare(&filled(GROWN, &[4]).await, GROWN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_with_entries_of_old_copies_is_that_of_a_plain_table() {
    compare(&filled(GROWN, &[1, 4, 8]).await, GROWN).await;
}
