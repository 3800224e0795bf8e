//! `ETag`, `If-Match` and `If-None-Match` (RFC 9110), on keys of one shard and of several.

use serde_json::{Value, json};
use system_tests::{Response, TestEdition, config};

use super::{CREATE_ONLY, ITEM, JSON, assert_problem, json_body, set_shards, start};

fn body(value: u32) -> Option<Vec<u8>> {
    json_body(&json!({"attributes": {"value": value}}))
}

async fn put(edition: &TestEdition, value: u32, headers: &[(&str, &str)]) -> Response {
    edition.send("PUT", ITEM, &[&[JSON], headers].concat(), body(value)).await
}

async fn delete(edition: &TestEdition, headers: &[(&str, &str)]) -> Response {
    edition.send("DELETE", ITEM, headers, None).await
}

async fn read(edition: &TestEdition, headers: &[(&str, &str)]) -> Response {
    edition.send("GET", &format!("{ITEM}&consistent=true"), headers, None).await
}

#[track_caller]
fn etag(response: &Response) -> String {
    let tag = response.headers.get("etag").and_then(|tag| tag.to_str().ok()).expect("an ETag");
    assert!(tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"'), "a strong tag: {tag}");
    tag.to_owned()
}

/// Asserts a 412 with the tag of the item's state.
#[track_caller]
fn assert_precondition(response: &Response, expected: Option<&str>, about: &str) {
    assert_problem(response, 412, "precondition_failed", None, about);
    assert_eq!(response.headers.get("etag").and_then(|tag| tag.to_str().ok()), expected, "{about}");
}

async fn exercise(edition: &TestEdition, about: &str) {
    // Without an item.
    for condition in [("if-match", "*"), ("if-match", "\"1\"")] {
        assert_precondition(&put(edition, 0, &[condition]).await, None, about);
        assert_precondition(&delete(edition, &[condition]).await, None, about);
        assert_problem(&read(edition, &[condition]).await, 404, "not_found", None, about);
    }
    let deleted = delete(edition, &[("if-none-match", "\"1\"")]).await;
    assert_eq!(deleted.status, 204, "{about}: there is no item, and nothing is deleted");

    // Every response about the item has its tag.
    let created = put(edition, 1, &[CREATE_ONLY]).await;
    assert_eq!(created.status, 200, "{about}: {}", created.body);
    let first = etag(&created);
    assert_eq!(etag(&read(edition, &[]).await), first, "{about}");
    assert_precondition(&put(edition, 9, &[CREATE_ONLY]).await, Some(&first), about);
    let item = json!({"partition_key": "k", "sort_key": "s", "attributes": {"value": 2}});
    let again = edition.send("POST", "/items", &[JSON, CREATE_ONLY], json_body(&item)).await;
    assert_problem(&again, 412, "already_exists", None, about);
    assert_eq!(etag(&again), first, "{about}");
    let second = etag(&edition.post("/items", &item).await);
    assert_ne!(second, first, "{about}");
    assert_eq!(etag(&read(edition, &[]).await), second, "{about}");

    // GET.
    let list = format!("\"1\", W/{second}");
    for value in ["*", &second, &list] {
        let same = read(edition, &[("if-none-match", value)]).await;
        let expected = (304, &Value::Null, second.clone());
        assert_eq!((same.status, &same.body, etag(&same)), expected, "{about}: {value}");
    }
    assert_eq!(read(edition, &[("if-none-match", &first)]).await.status, 200, "{about}");
    assert_eq!(read(edition, &[("if-match", &second)]).await.status, 200, "{about}");
    assert_precondition(&read(edition, &[("if-match", &first)]).await, Some(&second), about);
    let both = read(edition, &[("if-match", &first), ("if-none-match", &second)]).await;
    assert_precondition(&both, Some(&second), about);

    // PUT.
    let weak = format!("W/{second}");
    for value in [first.as_str(), "\"1\"", &weak, "\"99999999999999999999999999999999999999\""] {
        let refused = put(edition, 9, &[("if-match", value)]).await;
        assert_precondition(&refused, Some(&second), &format!("{about}: {value}"));
    }
    assert_precondition(&put(edition, 9, &[("if-none-match", &weak)]).await, Some(&second), about);
    let listed = format!("\"1\", {second}");
    let third = put(edition, 3, &[("if-match", &listed)]).await;
    assert_eq!(third.status, 200, "{about}: {}", third.body);
    let fourth = put(edition, 4, &[("if-match", &etag(&third))]).await;
    assert_eq!(fourth.status, 200, "{about}: {}", fourth.body);
    let fifth = put(edition, 5, &[("if-match", "*"), ("if-none-match", &second)]).await;
    assert_eq!(fifth.status, 200, "{about}: {}", fifth.body);
    let stored = read(edition, &[]).await;
    assert_eq!(stored.body["attributes"]["value"], 5, "{about}");
    let fifth = etag(&fifth);
    assert_eq!(etag(&stored), fifth, "{about}");

    // DELETE.
    let refused = delete(edition, &[("if-match", &second)]).await;
    assert_precondition(&refused, Some(&fifth), about);
    assert_eq!(delete(edition, &[("if-match", &fifth)]).await.status, 204, "{about}");
    assert_problem(&read(edition, &[]).await, 404, "not_found", None, about);
    assert_precondition(&put(edition, 6, &[("if-match", &fifth)]).await, None, about);
}

#[tokio::test]
async fn conditions_hold_whatever_the_number_of_shards() {
    let edition = start(config()).await;
    exercise(&edition, "one shard").await;
    // The item is at an old place, and keeps its tag.
    let tag = etag(&put(&edition, 1, &[]).await);
    set_shards(&edition, "k", 16).await;
    assert_eq!(read(&edition, &[("if-none-match", &tag)]).await.status, 304);
    let stored = put(&edition, 2, &[("if-match", &tag)]).await;
    assert_eq!(stored.status, 200, "{}", stored.body);
    assert_eq!(delete(&edition, &[("if-match", &etag(&stored))]).await.status, 204);
    assert_eq!(read(&edition, &[]).await.status, 404);
    for shards in [16, 17] {
        set_shards(&edition, "k", shards).await;
        exercise(&edition, &format!("{shards} shards")).await;
    }
}

#[tokio::test]
async fn an_invalid_condition_is_rejected_by_name_and_stores_nothing() {
    let edition = start(config()).await;
    for (method, header) in [
        ("GET", "if-match"),
        ("PUT", "if-none-match"),
        ("PATCH", "if-match"),
        ("DELETE", "if-match"),
        ("DELETE", "if-none-match"),
    ] {
        let response = edition.send(method, ITEM, &[JSON, (header, "\"1")], body(1)).await;
        assert_problem(&response, 400, "invalid_header", Some(header), method);
    }
    let batch = json_body(&json!({"items": [{"partition_key": "k", "attributes": {}}]}));
    for (path, condition) in [
        ("/items/batch", ("if-match", "*")),
        ("/items/batch", ("if-none-match", "*")),
        ("/items", ("if-match", "*")),
        ("/items", ("if-match", "\"1\"")),
        ("/items", ("if-none-match", "\"1\"")),
    ] {
        let response = edition.send("POST", path, &[JSON, condition], batch.clone()).await;
        assert_problem(&response, 400, "invalid_header", Some(condition.0), path);
    }
    assert!(edition.read_all("k", "&consistent=true").await.0.is_empty());
}
