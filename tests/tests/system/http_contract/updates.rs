//! `PATCH /item`: JSON merge patches and additions, on keys of one shard and of several.

use local::ServeOptions;
use serde_json::{Value, json};
use system_tests::{Response, TestEdition, config};

use super::{ITEM, JSON, MERGE, assert_problem, json_body, number_table, set_shards, start};

const ADD: (&str, &str) = ("content-type", "application/vnd.dynamodb-write-sharding.add+json");

async fn patch(edition: &TestEdition, headers: &[(&str, &str)], body: &Value) -> Response {
    edition.send("PATCH", ITEM, headers, json_body(body)).await
}

async fn put(edition: &TestEdition, attributes: &Value) {
    let body = json_body(&json!({ "attributes": attributes }));
    assert_eq!(edition.send("PUT", ITEM, &[JSON], body).await.status, 200);
}

async fn read(edition: &TestEdition) -> Response {
    edition.get(&format!("{ITEM}&consistent=true")).await
}

/// Asserts that a change is made: the response has the new item and its tag.
async fn changed(edition: &TestEdition, kind: (&str, &str), body: Value, expected: Value) {
    let response = patch(edition, &[kind], &body).await;
    let item = json!({"partition_key": "k", "sort_key": "s", "attributes": expected});
    assert_eq!((response.status, &response.body), (200, &item), "{body}");
    let read = read(edition).await;
    assert_eq!(read.body, item, "{body}");
    assert_eq!(read.headers["etag"], response.headers["etag"], "{body}");
    assert!(response.headers.contains_key("x-attempts"), "{body}");
}

async fn exercise(edition: &TestEdition) {
    for (kind, body) in [(MERGE, json!({"attributes": {}})), (ADD, json!({"add": {"n": 1}}))] {
        let absent = patch(edition, &[kind], &body).await;
        assert_problem(&absent, 404, "not_found", None, "absent");
    }
    let stored =
        json!({"a": "b", "c": {"d": "e", "f": "g"}, "n": 1, "tags": {"$string_set": ["x"]}});
    put(edition, &stored).await;
    for (kind, body, expected) in [
        (
            MERGE,
            json!({"attributes": {"a": "z", "c": {"f": null, "h": {"i": 1, "j": null}}}}),
            json!({"a": "z", "c": {"d": "e", "h": {"i": 1}}, "n": 1, "tags": {"$string_set": ["x"]}}),
        ),
        (
            MERGE,
            json!({"partition_key": "k", "sort_key": "s", "attributes": {"c": null, "tags": {"$number_set": [1, 2]}, "a": [1, null]}}),
            json!({"a": [1, null], "n": 1, "tags": {"$number_set": [1, 2]}}),
        ),
        (MERGE, json!({}), json!({"a": [1, null], "n": 1, "tags": {"$number_set": [1, 2]}})),
        (
            ADD,
            json!({"add": {"n": 0.5, "new": -3, "words": {"$string_set": ["a"]}}}),
            json!({"a": [1, null], "n": 1.5, "new": -3, "tags": {"$number_set": [1, 2]}, "words": {"$string_set": ["a"]}}),
        ),
        (
            MERGE,
            json!({"attributes": {"a": null, "tags": null, "new": null}}),
            json!({"n": 1.5, "words": {"$string_set": ["a"]}}),
        ),
    ] {
        changed(edition, kind, body, expected).await;
    }

    // Conditions.
    let stored = read(edition).await;
    let tag = stored.headers["etag"].to_str().expect("a tag");
    for (kind, body) in [(MERGE, json!({"attributes": {"n": 7}})), (ADD, json!({"add": {"n": 7}}))]
    {
        let refused = patch(edition, &[kind, ("if-match", "\"1\"")], &body).await;
        assert_problem(&refused, 412, "precondition_failed", None, "another state");
        assert_eq!(refused.headers["etag"], tag);
        let refused = patch(edition, &[kind, ("if-none-match", tag)], &body).await;
        assert_problem(&refused, 412, "precondition_failed", None, "this state");
    }
    let added = patch(edition, &[ADD, ("if-match", tag)], &json!({"add": {"n": 1}})).await;
    assert_eq!(added.body["attributes"]["n"], 2.5, "{}", added.body);

    // Updates that do not fit the item.
    let wrong = patch(edition, &[ADD], &json!({"add": {"words": 1}})).await;
    assert_problem(&wrong, 409, "wrong_attribute_type", Some("add.words"), "a number to a set");
    put(edition, &json!({"text": "x".repeat(399_000)})).await;
    let more = json!({"attributes": {"more": "x".repeat(12_000)}});
    let large = patch(edition, &[MERGE], &more).await;
    assert_problem(&large, 413, "item_too_large", Some("attributes"), "more than 400 KB");
    assert_eq!(edition.send("DELETE", ITEM, &[], None).await.status, 204);
}

#[tokio::test]
async fn patches_change_what_they_name_whatever_the_number_of_shards() {
    let edition = start(config()).await;
    exercise(&edition).await;
    set_shards(&edition, "k", 16).await;
    exercise(&edition).await;
}

/// Always over the embedded engine: other servers that speak DynamoDB's protocol do not limit the
/// digits of a sum.
#[tokio::test]
async fn a_sum_with_too_many_digits_is_rejected() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    put(&edition, &json!({"n": 1e38})).await;
    let sum = patch(&edition, &[ADD], &json!({"add": {"n": 1}})).await;
    assert_eq!(sum.status, 409, "{}", sum.body);
    assert_eq!(read(&edition).await.body["attributes"], json!({"n": 1e38}));
}

#[tokio::test]
async fn an_addition_with_an_idempotency_key_is_made_once() {
    let edition = start(config()).await;
    put(&edition, &json!({"n": 0})).await;
    let add = async |by: u32, key: &str| {
        let response =
            patch(&edition, &[ADD, ("idempotency-key", key)], &json!({"add": {"n": by}})).await;
        assert_eq!(response.status, 200, "{}", response.body);
        response.body["attributes"]["n"].clone()
    };
    // Growths, an addition under a key, and the number after it.
    for (shards, by, key, expected) in [
        (1, 1, "a", 1),
        (1, 1, "a", 1),
        (1, 1, "b", 2),
        (1, 1, "a", 2),
        // A different content is a different request.
        (1, 2, "a", 4),
        (1, 2, "a", 4),
        // At an old place.
        (16, 1, "a", 4),
        (16, 1, "b", 4),
        (16, 2, "a", 4),
        (16, 1, "c", 5),
        (16, 1, "c", 5),
        (17, 1, "a", 5),
        (17, 1, "c", 5),
        (17, 1, "d", 6),
    ] {
        set_shards(&edition, "k", shards).await;
        assert_eq!(add(by, key).await, expected, "{by} under {key} on {shards} shards");
    }
    // A merge patch with a key is also applied once. The item's record of updates is not part of
    // it.
    let key = ("idempotency-key", "e");
    let body = json!({"attributes": {"n": 0}});
    let merge = async |headers: &[(&str, &str)]| {
        patch(&edition, headers, &body).await.body["attributes"]["n"].clone()
    };
    assert_eq!(merge(&[MERGE, key]).await, 0);
    assert_eq!(add(1, "f").await, 1);
    assert_eq!(merge(&[MERGE, key]).await, 1, "made before");
    assert_eq!(merge(&[MERGE]).await, 0);
    assert_eq!(add(1, "f").await, 0, "still recorded after the patch");
    assert_eq!(read(&edition).await.body["attributes"], json!({"n": 0}));
    assert_eq!(edition.read_all("k", "&consistent=true").await.0.len(), 1);
}

#[tokio::test]
async fn errors_of_a_patch_are_named_and_nothing_is_changed() {
    let edition = start(config()).await;
    put(&edition, &json!({"n": 1})).await;
    let deep = format!("{}1{}", "{\"a\":".repeat(33), "}".repeat(33));
    let deep: Value = serde_json::from_str(&deep).expect("JSON");
    let attributes = |attributes: Value| json!({ "attributes": attributes });
    let updates = json!({"_sh:a": {"$binary_set": ["AA=="]}});
    let rows = [
        (MERGE, json!([]), "wrong_type", "body"),
        (MERGE, json!({"attributes": null}), "wrong_type", "attributes"),
        (MERGE, json!({"attributes": []}), "wrong_type", "attributes"),
        (MERGE, json!({"other": 1}), "unknown_field", "other"),
        (MERGE, json!({"partition_key": "other"}), "immutable_key", "partition_key"),
        (MERGE, json!({"sort_key": "other", "attributes": {}}), "immutable_key", "sort_key"),
        (MERGE, attributes(json!({"sort_key": "x"})), "reserved_attribute", "attributes.sort_key"),
        (MERGE, attributes(json!({"_sh:v": null})), "reserved_attribute", "attributes._sh:v"),
        (MERGE, attributes(updates), "reserved_attribute", "attributes._sh:a"),
        (MERGE, attributes(json!({"a": {"$what": 1}})), "invalid_attribute", "attributes.a.$what"),
        (MERGE, attributes(json!({"": null})), "invalid_attribute", "attributes"),
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
    let response = patch(&edition, &[MERGE], &attributes(deep)).await;
    assert_eq!(response.status, 400);
    assert_eq!(response.body["code"], "invalid_attribute", "{}", response.body);
    let untyped = patch(&edition, &[JSON], &attributes(json!({}))).await;
    assert_problem(&untyped, 415, "unsupported_media_type", Some("content-type"), JSON.1);
    assert_eq!(untyped.headers["accept-patch"], format!("{}, {}", MERGE.1, ADD.1));
    let key = patch(&edition, &[ADD, ("idempotency-key", "a b")], &json!({"add": {"n": 1}})).await;
    assert_problem(&key, 400, "invalid_header", Some("idempotency-key"), "a space");
    assert_eq!(read(&edition).await.body["attributes"], json!({"n": 1}));
}

#[tokio::test]
async fn patches_know_number_keys() {
    let edition = start(number_table()).await;
    let path = "/item?partition_key=k&sort_key=7";
    let body = json_body(&json!({"attributes": {"n": 1}}));
    assert_eq!(edition.send("PUT", path, &[JSON], body).await.status, 200);
    for (body, status) in [
        (json!({"sort_key": 7.0, "attributes": {"n": 2}}), 200),
        (json!({"sort_key": 8}), 400),
        (json!({"sort_key": "7"}), 400),
    ] {
        let response = edition.send("PATCH", path, &[MERGE], json_body(&body)).await;
        assert_eq!(response.status, status, "{body}: {}", response.body);
    }
}
