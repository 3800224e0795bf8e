//! `Idempotency-Key`, on keys of one shard and of several.

use serde_json::{Value, json};
use system_tests::{Response, TestEdition, config};

use super::{CREATE_ONLY, JSON, assert_problem, json_body, set_shards, start};

fn path(key: &str, sort_key: &str) -> String {
    format!("/item?partition_key={key}&sort_key={sort_key}")
}

async fn put(edition: &TestEdition, key: &str, sort_key: &str, value: u32) -> Response {
    let body = json_body(&json!({"attributes": {"value": value}}));
    edition.send("PUT", &path(key, sort_key), &[JSON], body).await
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

async fn value(edition: &TestEdition, key: &str, sort_key: &str) -> Value {
    let path = format!("{}&consistent=true", path(key, sort_key));
    edition.get(&path).await.body["attributes"]["value"].clone()
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
    // A repetition does not undo a later PUT, whatever the number of shards.
    let (items, _) = edition.read_all("b", "").await;
    let of_batch = items[0]["sort_key"].as_str().expect("a sort key");
    for (key, sort_key) in [("k", first.as_str()), ("b", of_batch)] {
        assert_eq!(put(&edition, key, sort_key, 2).await.status, 200);
    }
    for shards in [1, 16] {
        for key in ["k", "b"] {
            set_shards(&edition, key, shards).await;
        }
        assert_eq!(post(&[JSON, key]).await, first, "{shards} shards");
        assert_eq!(post_batch(json!([twin, twin])).await, 2, "{shards} shards");
        assert_eq!(value(&edition, "k", &first).await, 2, "{shards} shards");
        assert_eq!(value(&edition, "b", of_batch).await, 2, "{shards} shards, in a batch");
    }
    assert_eq!(edition.read_all("k", "&consistent=true").await.0.len(), 4);
    assert_eq!(edition.read_all("b", "&consistent=true").await.0.len(), 2);
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
}

#[tokio::test]
async fn a_create_only_post_knows_its_own_earlier_attempt() {
    let edition = start(config()).await;
    let (mine, yours) = ([("idempotency-key", "a:mine")], [("idempotency-key", "yours")]);
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
}
