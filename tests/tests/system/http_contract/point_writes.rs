//! PUT, DELETE, create-only POST and `Idempotency-Key`, on keys of one shard and of several.

use serde_json::{Value, json};
use system_tests::{Response, TestEdition, config};

use super::{JSON, assert_problem, json_body, set_shards, start};

const CREATE_ONLY: (&str, &str) = ("if-none-match", "*");

fn path(key: &str, sort_key: &str) -> String {
    format!("/item?partition_key={key}&sort_key={sort_key}")
}

async fn put(edition: &TestEdition, key: &str, sort_key: &str, value: u32) -> Response {
    let body = json_body(&json!({"attributes": {"value": value}}));
    edition.send("PUT", &path(key, sort_key), &[JSON], body).await
}

async fn delete(edition: &TestEdition, key: &str, sort_key: &str) -> Response {
    edition.send("DELETE", &path(key, sort_key), &[], None).await
}

/// A create-only POST of this value to the key `k`.
async fn create(
    edition: &TestEdition,
    sort_key: &str,
    value: u32,
    more: &[(&str, &str)],
) -> Response {
    let item = json!({"partition_key": "k", "sort_key": sort_key, "attributes": {"value": value}});
    let headers = [&[JSON, CREATE_ONLY], more].concat();
    edition.send("POST", "/items", &headers, json_body(&item)).await
}

async fn get(edition: &TestEdition, key: &str, sort_key: &str) -> Response {
    edition.get(&format!("{}&consistent=true", path(key, sort_key))).await
}

async fn value(edition: &TestEdition, key: &str, sort_key: &str) -> Value {
    get(edition, key, sort_key).await.body["attributes"]["value"].clone()
}

async fn exercise(edition: &TestEdition, sort_key: &str) {
    assert_eq!(delete(edition, "k", sort_key).await.status, 204, "absent is fine: {sort_key}");
    let created = create(edition, sort_key, 0, &[]).await;
    assert_eq!(created.status, 201, "{sort_key}: {}", created.body);
    let again = create(edition, sort_key, 0, &[]).await;
    assert_problem(&again, 412, "already_exists", None, sort_key);
    for number in 1..3 {
        let stored = put(edition, "k", sort_key, number).await;
        assert_eq!(stored.status, 200, "{sort_key}: {}", stored.body);
        assert_eq!(stored.body["sort_key"], sort_key);
        assert_eq!(value(edition, "k", sort_key).await, number, "{sort_key}");
    }
    let deleted = delete(edition, "k", sort_key).await;
    assert_eq!((deleted.status, deleted.body), (204, Value::Null), "{sort_key}");
    assert_problem(&get(edition, "k", sort_key).await, 404, "not_found", None, sort_key);
    assert_eq!(create(edition, sort_key, 0, &[]).await.status, 201, "free again: {sort_key}");
}

#[tokio::test]
async fn a_key_of_any_number_of_shards_behaves_like_a_table() {
    let edition = start(config()).await;
    exercise(&edition, "of-one-shard").await;
    // These items are at their home under width 1.
    for number in 0..20 {
        assert_eq!(put(&edition, "k", &format!("old-{number}"), number).await.status, 200);
    }
    set_shards(&edition, "k", 16).await;
    for number in 0..10 {
        exercise(&edition, &format!("new-{number}")).await;
        let old = format!("old-{number}");
        let again = create(&edition, &old, 0, &[]).await;
        assert_problem(&again, 412, "already_exists", None, &old);
        assert_eq!(value(&edition, "k", &old).await, number);
        assert_eq!(put(&edition, "k", &old, 1_000).await.status, 200);
        assert_eq!(value(&edition, "k", &old).await, 1_000);
        assert_eq!(delete(&edition, "k", &old).await.status, 204);
    }
    let (items, _) = edition.read_all("k", "&consistent=true&limit=7").await;
    let keys: Vec<_> = items.iter().filter_map(|item| item["sort_key"].as_str()).collect();
    let new = (0..10).map(|n| format!("new-{n}")).chain(["of-one-shard".to_owned()]);
    let expected: Vec<_> = new.chain((10..20).map(|n| format!("old-{n}"))).collect();
    assert_eq!(keys, expected, "each once, on any shard");
    edition.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_makes_repeated_posts_one_item() {
    let edition = start(config()).await;
    let key = ("idempotency-key", "order-1147");
    let item = json!({"partition_key": "k", "attributes": {"value": 1}});
    let post = async |headers: &[(&str, &str)]| {
        let response = edition.send("POST", "/items", headers, json_body(&item)).await;
        assert_eq!(response.status, 201, "{}", response.body);
        response.body["sort_key"].as_str().expect("a sort key").to_owned()
    };
    let post_batch = async |items: Value| {
        let body = json_body(&json!({ "items": items }));
        let stored = edition.send("POST", "/items/batch", &[JSON, key], body).await;
        assert_eq!(stored.status, 200, "{}", stored.body);
        stored.body["written"].clone()
    };
    let first = post(&[JSON, key]).await;
    assert_eq!(post(&[JSON, key]).await, first);
    let other = [JSON, CREATE_ONLY, ("idempotency-key", "order-1148")];
    assert_ne!(post(&other).await, first);
    assert_eq!(post(&other).await, post(&other).await);
    assert_ne!(post(&[JSON]).await, post(&[JSON]).await, "without a key every post is an item");
    let twin = json!({"partition_key": "b", "attributes": {}});
    for _ in 0..2 {
        assert_eq!(post_batch(json!([twin, twin])).await, 2);
    }
    assert_eq!(edition.read_all("k", "").await.0.len(), 4);
    assert_eq!(edition.read_all("b", "").await.0.len(), 2);
    // A client that repeats only failed requests, and one that reuses a key for another request,
    // replace nothing.
    let item = |n: u32| json!({"partition_key": "c", "attributes": {"n": n}});
    for items in [vec![item(0), item(1), item(2)], vec![item(2), item(1)], vec![item(3)]] {
        post_batch(items.into()).await;
    }
    let (items, _) = edition.read_all("c", "").await;
    let mut stored: Vec<_> =
        items.iter().filter_map(|item| item["attributes"]["n"].as_u64()).collect();
    stored.sort_unstable();
    assert_eq!(stored, [0, 1, 2, 3]);
    edition.stop().await;
}

#[tokio::test]
async fn a_create_only_post_knows_its_own_earlier_attempt() {
    let edition = start(config()).await;
    let (mine, yours) = ([("idempotency-key", "mine")], [("idempotency-key", "yours")]);
    assert_eq!(create(&edition, "s", 1, &mine).await.status, 201);
    assert_eq!(create(&edition, "s", 1, &mine).await.status, 201, "the same request");
    for more in [&yours[..], &[]] {
        let other = create(&edition, "s", 1, more).await;
        assert_problem(&other, 412, "already_exists", None, "another request");
    }
    let reused = create(&edition, "s", 2, &mine).await;
    assert_problem(&reused, 422, "idempotency_key_reused", Some("idempotency-key"), "another body");
    assert_eq!(value(&edition, "k", "s").await, 1);
    set_shards(&edition, "k", 16).await;
    let again = create(&edition, "s", 1, &mine).await;
    assert_eq!(again.status, 201, "also on another number of shards");
    edition.stop().await;
}

#[tokio::test]
async fn a_repeated_post_after_a_put_changes_nothing_on_any_width() {
    let edition = start(config()).await;
    let item = |key: &str| json!({"partition_key": key, "attributes": {"value": 1}});
    let headers = [JSON, ("idempotency-key", "order-1147")];
    let post = async || edition.send("POST", "/items", &headers, json_body(&item("k"))).await;
    let batch = json!({"items": [item("b")]});
    let post_batch =
        async || edition.send("POST", "/items/batch", &headers, json_body(&batch)).await.status;
    let first = post().await;
    let sort_key = first.body["sort_key"].as_str().expect("a sort key").to_owned();
    assert_eq!((first.status, post_batch().await), (201, 200));
    let (items, _) = edition.read_all("b", "&consistent=true").await;
    let of_batch = items[0]["sort_key"].as_str().expect("one");
    for (key, sort_key) in [("k", &*sort_key), ("b", of_batch)] {
        assert_eq!(put(&edition, key, sort_key, 2).await.status, 200);
    }
    for shards in [1, 8, 16] {
        set_shards(&edition, "k", shards).await;
        set_shards(&edition, "b", shards).await;
        let again = post().await;
        assert_eq!((again.status, again.body["sort_key"].as_str()), (201, Some(&*sort_key)));
        assert_eq!(post_batch().await, 200);
        let about = format!("{shards} shards: the repetition has undone a later PUT");
        assert_eq!(value(&edition, "k", &sort_key).await, 2, "{about}");
        assert_eq!(value(&edition, "b", of_batch).await, 2, "{about}, in a batch");
        assert_eq!(edition.read_all("k", "&consistent=true").await.0.len(), 1);
    }
    edition.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_without_effect_is_rejected_by_name() {
    let edition = start(config()).await;
    let key = ("idempotency-key", "order-1147");
    let item = json!({"partition_key": "k", "sort_key": "s", "attributes": {}});
    let (batch, put) = (json!({ "items": [item] }), json!({"attributes": {}}));
    let of_item = path("k", "s");
    for (method, path, body, field) in [
        ("POST", "/items", json_body(&item), "idempotency-key"),
        ("POST", "/items/batch", json_body(&batch), "items[0].idempotency-key"),
        ("PUT", &of_item, json_body(&put), "idempotency-key"),
        ("DELETE", &of_item, None, "idempotency-key"),
    ] {
        let response = edition.send(method, path, &[JSON, key], body).await;
        assert_problem(&response, 400, "invalid_header", Some(field), &format!("{method} {path}"));
    }
    assert!(edition.read_all("k", "&consistent=true").await.0.is_empty(), "nothing may be stored");
    edition.stop().await;
}
