//! `PATCH /item`: JSON merge patches and additions, on keys of one shard and of several.

use local::ServeOptions;
use serde_json::{Value, json};
use sharding::Writes;
use system_tests::{Response, TestEdition, config};

use super::{JSON, assert_problem, number_table, set_shards, start};

const ITEM: &str = "/item?partition_key=k&sort_key=s";
const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");
const ADD: (&str, &str) = ("content-type", "application/vnd.dynamodb-write-sharding.add+json");

async fn patch(edition: &TestEdition, headers: &[(&str, &str)], body: &Value) -> Response {
    edition.send("PATCH", ITEM, headers, Some(body.to_string().into_bytes())).await
}

async fn put(edition: &TestEdition, attributes: Value) -> Response {
    let body = json!({ "attributes": attributes }).to_string().into_bytes();
    edition.send("PUT", ITEM, &[JSON], Some(body)).await
}

async fn attributes(edition: &TestEdition) -> Value {
    edition.get(&format!("{ITEM}&consistent=true")).await.body["attributes"].clone()
}

/// Asserts that a change is made: the response has the new item and its tag.
async fn changed(edition: &TestEdition, headers: &[(&str, &str)], body: &Value, expected: &Value) {
    let response = patch(edition, headers, body).await;
    assert_eq!(
        (response.status, &response.body["attributes"]),
        (200, expected),
        "{body}: {}",
        response.body
    );
    assert_eq!(
        (&response.body["partition_key"], &response.body["sort_key"]),
        (&json!("k"), &json!("s")),
        "{body}"
    );
    let read = edition.get(&format!("{ITEM}&consistent=true")).await;
    assert_eq!(
        (&read.body, &read.headers["etag"]),
        (&response.body, &response.headers["etag"]),
        "{body}"
    );
    assert!(response.headers.contains_key("x-attempts"), "{body}");
}

async fn exercise(edition: &TestEdition) {
    assert_problem(
        &patch(edition, &[MERGE], &json!({"attributes": {}})).await,
        404,
        "not_found",
        None,
        "absent",
    );
    assert_problem(
        &patch(edition, &[ADD], &json!({"add": {"n": 1}})).await,
        404,
        "not_found",
        None,
        "absent",
    );
    let stored =
        json!({"a": "b", "c": {"d": "e", "f": "g"}, "n": 1, "tags": {"$string_set": ["x"]}});
    assert_eq!(put(edition, stored).await.status, 200);
    changed(
        edition,
        &[MERGE],
        &json!({"attributes": {"a": "z", "c": {"f": null, "h": {"i": 1, "j": null}}}}),
        &json!({"a": "z", "c": {"d": "e", "h": {"i": 1}}, "n": 1, "tags": {"$string_set": ["x"]}}),
    )
    .await;
    changed(
        edition,
        &[MERGE],
        &json!({"partition_key": "k", "sort_key": "s", "attributes": {"c": null, "tags": {"$number_set": [1, 2]}, "a": [1, null]}}),
        &json!({"a": [1, null], "n": 1, "tags": {"$number_set": [1, 2]}}),
    )
    .await;
    changed(
        edition,
        &[MERGE],
        &json!({}),
        &json!({"a": [1, null], "n": 1, "tags": {"$number_set": [1, 2]}}),
    )
    .await;
    changed(
        edition,
        &[ADD],
        &json!({"add": {"n": 0.5, "new": -3, "words": {"$string_set": ["a"]}}}),
        &json!({"a": [1, null], "n": 1.5, "new": -3, "tags": {"$number_set": [1, 2]}, "words": {"$string_set": ["a"]}}),
    )
    .await;
    changed(
        edition,
        &[MERGE],
        &json!({"attributes": {"a": null, "tags": null, "new": null}}),
        &json!({"n": 1.5, "words": {"$string_set": ["a"]}}),
    )
    .await;

    // Conditions.
    let tag = edition.get(&format!("{ITEM}&consistent=true")).await.headers["etag"]
        .to_str()
        .expect("a tag")
        .to_owned();
    for (kind, body) in [(MERGE, json!({"attributes": {"n": 7}})), (ADD, json!({"add": {"n": 7}}))]
    {
        let refused = patch(edition, &[kind, ("if-match", "\"1\"")], &body).await;
        assert_problem(&refused, 412, "precondition_failed", None, "another state");
        assert_eq!(refused.headers["etag"], tag);
        let refused = patch(edition, &[kind, ("if-none-match", &tag)], &body).await;
        assert_problem(&refused, 412, "precondition_failed", None, "this state");
    }
    let added = patch(edition, &[ADD, ("if-match", &tag)], &json!({"add": {"n": 1}})).await;
    assert_eq!(
        (added.status, &added.body["attributes"]["n"]),
        (200, &json!(2.5)),
        "{}",
        added.body
    );

    // Updates that do not fit the item.
    let wrong = patch(edition, &[ADD], &json!({"add": {"words": 1}})).await;
    assert_problem(&wrong, 409, "wrong_attribute_type", Some("add.words"), "a number to a set");
    assert_eq!(put(edition, json!({"text": "x".repeat(399_000)})).await.status, 200);
    let large =
        patch(edition, &[MERGE], &json!({"attributes": {"more": "x".repeat(12_000)}})).await;
    assert_problem(&large, 413, "item_too_large", Some("attributes"), "more than 400 KB");
    assert_eq!(edition.send("DELETE", ITEM, &[], None).await.status, 204);
}

#[tokio::test]
async fn patches_change_what_they_name_whatever_the_number_of_shards() {
    let edition = start(config()).await;
    exercise(&edition).await;
    set_shards(&edition, "k", 16).await;
    exercise(&edition).await;
    edition.stop().await;
}

/// Always over the embedded engine: other servers that speak DynamoDB's protocol do not limit the
/// digits of a sum.
#[tokio::test]
async fn a_sum_with_too_many_digits_is_rejected() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    assert_eq!(put(&edition, json!({"n": 1e38})).await.status, 200);
    let sum = patch(&edition, &[ADD], &json!({"add": {"n": 1}})).await;
    assert_eq!(sum.status, 409, "{}", sum.body);
    assert_eq!(attributes(&edition).await, json!({"n": 1e38}));
    edition.stop().await;
}

#[tokio::test]
async fn an_addition_with_an_idempotency_key_is_made_once() {
    let edition = start(config()).await;
    assert_eq!(put(&edition, json!({"n": 0})).await.status, 200);
    let add = async |by: u32, key: &str| {
        let response =
            patch(&edition, &[ADD, ("idempotency-key", key)], &json!({"add": {"n": by}})).await;
        assert_eq!(response.status, 200, "{}", response.body);
        response.body["attributes"]["n"].clone()
    };
    assert_eq!(
        (add(1, "a").await, add(1, "a").await, add(1, "b").await, add(1, "a").await),
        (json!(1), json!(1), json!(2), json!(2))
    );
    assert_eq!(
        (add(2, "a").await, add(2, "a").await),
        (json!(4), json!(4)),
        "a different content is a different request"
    );
    set_shards(&edition, "k", 16).await;
    assert_eq!(
        (add(1, "a").await, add(1, "b").await, add(2, "a").await),
        (json!(4), json!(4), json!(4)),
        "also at an old place"
    );
    assert_eq!((add(1, "c").await, add(1, "c").await), (json!(5), json!(5)));
    set_shards(&edition, "k", 17).await;
    assert_eq!(
        (add(1, "a").await, add(1, "c").await, add(1, "d").await),
        (json!(5), json!(5), json!(6))
    );
    // A merge patch with a key is also applied once. The item's record of updates is not part of
    // it.
    let key = ("idempotency-key", "e");
    let merge = json!({"attributes": {"n": 0}});
    assert_eq!(patch(&edition, &[MERGE, key], &merge).await.body["attributes"], json!({"n": 0}));
    assert_eq!(add(1, "f").await, 1);
    assert_eq!(
        patch(&edition, &[MERGE, key], &merge).await.body["attributes"],
        json!({"n": 1}),
        "made before"
    );
    assert_eq!(patch(&edition, &[MERGE], &merge).await.body["attributes"], json!({"n": 0}));
    assert_eq!(add(1, "f").await, 0, "still recorded after the patch");
    assert_eq!(attributes(&edition).await, json!({"n": 0}));
    assert_eq!(edition.read_all("k", "&consistent=true").await.0.len(), 1);
    edition.stop().await;
}

#[tokio::test]
async fn errors_of_a_patch_are_named_and_nothing_is_changed() {
    let edition = start(config()).await;
    assert_eq!(put(&edition, json!({"n": 1})).await.status, 200);
    let deep = format!("{}1{}", "{\"a\":".repeat(33), "}".repeat(33));
    let deep: Value = serde_json::from_str(&deep).expect("JSON");
    let rows = [
        (MERGE, json!([]), "wrong_type", "body"),
        (MERGE, json!({"attributes": null}), "wrong_type", "attributes"),
        (MERGE, json!({"attributes": []}), "wrong_type", "attributes"),
        (MERGE, json!({"other": 1}), "unknown_field", "other"),
        (MERGE, json!({"partition_key": "other"}), "immutable_key", "partition_key"),
        (MERGE, json!({"sort_key": "other", "attributes": {}}), "immutable_key", "sort_key"),
        (
            MERGE,
            json!({"attributes": {"sort_key": "x"}}),
            "reserved_attribute",
            "attributes.sort_key",
        ),
        (MERGE, json!({"attributes": {"_sh:v": null}}), "reserved_attribute", "attributes._sh:v"),
        (
            MERGE,
            json!({"attributes": {"_sh:a": {"$binary_set": ["AA=="]}}}),
            "reserved_attribute",
            "attributes._sh:a",
        ),
        (
            MERGE,
            json!({"attributes": {"a": {"$what": 1}}}),
            "invalid_attribute",
            "attributes.a.$what",
        ),
        (MERGE, json!({"attributes": {"": null}}), "invalid_attribute", "attributes"),
        (ADD, json!({}), "missing_field", "add"),
        (ADD, json!({"attributes": {"n": 1}}), "unknown_field", "attributes"),
        (ADD, json!({"add": {}}), "invalid_attribute", "add"),
        (ADD, json!({"add": {"n": "1"}}), "wrong_type", "add.n"),
        (ADD, json!({"add": {"n": null}}), "wrong_type", "add.n"),
        (ADD, json!({"add": {"_sh:v": 1}}), "reserved_attribute", "add._sh:v"),
        (ADD, json!({"add": {"s": {"$string_set": []}}}), "invalid_attribute", "add.s.$string_set"),
    ];
    for (kind, body, code, field) in rows {
        let response = patch(&edition, &[kind], &body).await;
        assert_problem(&response, 400, code, Some(field), &body.to_string());
    }
    let response = patch(&edition, &[MERGE], &json!({"attributes": deep})).await;
    assert_eq!(
        (response.status, &response.body["code"]),
        (400, &json!("invalid_attribute")),
        "{}",
        response.body
    );
    let untyped = patch(&edition, &[JSON], &json!({"attributes": {}})).await;
    assert_problem(
        &untyped,
        415,
        "unsupported_media_type",
        Some("content-type"),
        "application/json",
    );
    assert_eq!(untyped.headers["accept-patch"], format!("{}, {}", MERGE.1, ADD.1));
    let key = patch(&edition, &[ADD, ("idempotency-key", "a b")], &json!({"add": {"n": 1}})).await;
    assert_problem(&key, 400, "invalid_header", Some("idempotency-key"), "a space");
    assert_eq!(attributes(&edition).await, json!({"n": 1}));
    edition.stop().await;
}

#[tokio::test]
async fn patches_know_number_keys_and_tables_that_take_appends_only() {
    let edition = start(number_table()).await;
    let path = "/item?partition_key=k&sort_key=7";
    let body = json!({"attributes": {"n": 1}}).to_string().into_bytes();
    assert_eq!(edition.send("PUT", path, &[JSON], Some(body)).await.status, 200);
    for (body, status) in [
        (json!({"sort_key": 7.0, "attributes": {"n": 2}}), 200),
        (json!({"sort_key": 8}), 400),
        (json!({"sort_key": "7"}), 400),
    ] {
        let response =
            edition.send("PATCH", path, &[MERGE], Some(body.to_string().into_bytes())).await;
        assert_eq!(response.status, status, "{body}: {}", response.body);
    }
    edition.stop().await;
    let edition = start(config().with(|config| config.writes = Writes::Appends)).await;
    let refused = patch(&edition, &[ADD], &json!({"add": {"n": 1}})).await;
    assert_problem(&refused, 405, "append_only", None, "appends only");
    let stored = edition
        .post("/items", &json!({"partition_key": "k", "sort_key": "s", "attributes": {"n": 1}}))
        .await;
    let read = edition.get(ITEM).await;
    assert_eq!((stored.status, &stored.headers["etag"]), (201, &read.headers["etag"]));
    edition.stop().await;
}
