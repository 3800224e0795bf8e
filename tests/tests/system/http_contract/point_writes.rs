//! PUT, DELETE, create-only POST and `Idempotency-Key`, on keys of one shard and of several.

use serde_json::{Value, json};
use system_tests::{Response, TestEdition, config};

use super::{JSON, assert_problem, set_shards, start};

const CREATE_ONLY: (&str, &str) = ("if-none-match", "*");

async fn put(edition: &TestEdition, key: &str, sort_key: &str, value: u32) -> Response {
    let body = json!({"attributes": {"value": value}}).to_string().into_bytes();
    edition
        .send("PUT", &format!("/item?partition_key={key}&sort_key={sort_key}"), &[JSON], Some(body))
        .await
}

async fn delete(edition: &TestEdition, key: &str, sort_key: &str) -> Response {
    edition
        .send("DELETE", &format!("/item?partition_key={key}&sort_key={sort_key}"), &[], None)
        .await
}

async fn create(
    edition: &TestEdition,
    key: &str,
    sort_key: &str,
    more: &[(&str, &str)],
) -> Response {
    let body = json!({"partition_key": key, "sort_key": sort_key, "attributes": {"value": 0}})
        .to_string()
        .into_bytes();
    edition.send("POST", "/items", &[&[JSON, CREATE_ONLY], more].concat(), Some(body)).await
}

async fn value(edition: &TestEdition, key: &str, sort_key: &str) -> Value {
    let item = edition
        .get(&format!("/item?partition_key={key}&sort_key={sort_key}&consistent=true"))
        .await;
    item.body["attributes"]["value"].clone()
}

async fn exercise(edition: &TestEdition, key: &str, sort_key: &str) {
    let about = format!("{key} {sort_key}");
    assert_eq!(delete(edition, key, sort_key).await.status, 204, "absent is fine: {about}");
    let created = create(edition, key, sort_key, &[]).await;
    assert_eq!(created.status, 201, "{about}: {}", created.body);
    assert_problem(&create(edition, key, sort_key, &[]).await, 412, "already_exists", None, &about);
    for number in 1..3 {
        let stored = put(edition, key, sort_key, number).await;
        assert_eq!(stored.status, 200, "{about}: {}", stored.body);
        assert_eq!(stored.body["sort_key"], sort_key, "{about}");
        assert_eq!(value(edition, key, sort_key).await, number, "{about}");
    }
    let deleted = delete(edition, key, sort_key).await;
    assert_eq!((deleted.status, deleted.body), (204, Value::Null), "{about}");
    assert_problem(
        &edition
            .get(&format!("/item?partition_key={key}&sort_key={sort_key}&consistent=true"))
            .await,
        404,
        "not_found",
        None,
        &about,
    );
    assert_eq!(create(edition, key, sort_key, &[]).await.status, 201, "free again: {about}");
}

#[tokio::test]
async fn a_key_of_one_shard_behaves_like_a_table() {
    let edition = start(config()).await;
    exercise(&edition, "k", "s").await;
    edition.stop().await;
}

#[tokio::test]
async fn a_key_of_many_shards_behaves_the_same() {
    let edition = start(config()).await;
    // These items are at their home under width 1.
    for number in 0..20 {
        assert_eq!(put(&edition, "k", &format!("old-{number}"), number).await.status, 200);
    }
    set_shards(&edition, "k", 16).await;
    for number in 0..10 {
        exercise(&edition, "k", &format!("new-{number}")).await;
        let old = format!("old-{number}");
        assert_problem(&create(&edition, "k", &old, &[]).await, 412, "already_exists", None, &old);
        assert_eq!(value(&edition, "k", &old).await, number);
        assert_eq!(put(&edition, "k", &old, 1_000).await.status, 200);
        assert_eq!(value(&edition, "k", &old).await, 1_000);
        assert_eq!(delete(&edition, "k", &old).await.status, 204);
    }
    let (items, _) = edition.read_all("k", "&consistent=true&limit=7").await;
    let keys: Vec<_> = items.iter().filter_map(|item| item["sort_key"].as_str()).collect();
    let expected: Vec<_> =
        (0..10).map(|n| format!("new-{n}")).chain((10..20).map(|n| format!("old-{n}"))).collect();
    assert_eq!(keys, expected, "each once, on any shard");
    edition.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_makes_repeated_posts_one_item() {
    let edition = start(config()).await;
    let key = ("idempotency-key", "order-1147");
    let body = json!({"partition_key": "k", "attributes": {"value": 1}}).to_string().into_bytes();
    let post = async |headers: &[(&str, &str)]| {
        let response = edition.send("POST", "/items", headers, Some(body.clone())).await;
        assert_eq!(response.status, 201, "{}", response.body);
        response.body["sort_key"].as_str().expect("a sort key").to_owned()
    };
    let first = post(&[JSON, key]).await;
    assert_eq!(post(&[JSON, key]).await, first);
    let other = [JSON, CREATE_ONLY, ("idempotency-key", "order-1148")];
    assert_ne!(post(&other).await, first);
    assert_eq!(post(&other).await, post(&other).await);
    assert_ne!(post(&[JSON]).await, post(&[JSON]).await, "without a key every post is an item");
    let batch = json!({"items": [{"partition_key": "b", "attributes": {}}, {"partition_key": "b", "attributes": {}}]});
    for _ in 0..2 {
        let stored = edition
            .send("POST", "/items/batch", &[JSON, key], Some(batch.to_string().into_bytes()))
            .await;
        assert_eq!((stored.status, &stored.body["written"]), (200, &json!(2)));
    }
    assert_eq!(edition.read_all("k", "").await.0.len(), 4);
    assert_eq!(edition.read_all("b", "").await.0.len(), 2);
    // A client that repeats only failed requests, and one that reuses a key for another request,
    // replace nothing.
    let item = |n: u32| json!({"partition_key": "c", "attributes": {"n": n}});
    for items in [vec![item(0), item(1), item(2)], vec![item(2), item(1)], vec![item(3)]] {
        let body = json!({ "items": items }).to_string().into_bytes();
        assert_eq!(
            edition.send("POST", "/items/batch", &[JSON, key], Some(body)).await.status,
            200
        );
    }
    let mut stored: Vec<_> = edition
        .read_all("c", "")
        .await
        .0
        .iter()
        .filter_map(|item| item["attributes"]["n"].as_u64())
        .collect();
    stored.sort_unstable();
    assert_eq!(stored, [0, 1, 2, 3]);
    edition.stop().await;
}

#[tokio::test]
async fn a_create_only_post_knows_its_own_earlier_attempt() {
    let edition = start(config()).await;
    let mine = [("idempotency-key", "mine")];
    assert_eq!(create(&edition, "k", "s", &mine).await.status, 201);
    assert_eq!(
        create(&edition, "k", "s", &mine).await.status,
        201,
        "a repetition is not a second write"
    );
    assert_problem(
        &create(&edition, "k", "s", &[("idempotency-key", "yours")]).await,
        412,
        "already_exists",
        None,
        "",
    );
    assert_problem(&create(&edition, "k", "s", &[]).await, 412, "already_exists", None, "");
    set_shards(&edition, "k", 16).await;
    assert_eq!(
        create(&edition, "k", "s", &mine).await.status,
        201,
        "also on another number of shards"
    );
    edition.stop().await;
}

#[tokio::test]
async fn a_repeated_post_after_a_put_changes_nothing_on_any_width() {
    let edition = start(config()).await;
    let body =
        json!({"partition_key": "k", "attributes": {"state": "new"}}).to_string().into_bytes();
    let batch = json!({"items": [{"partition_key": "b", "attributes": {"state": "new"}}]})
        .to_string()
        .into_bytes();
    let headers = [JSON, ("idempotency-key", "order-1147")];
    let post = async || edition.send("POST", "/items", &headers, Some(body.clone())).await;
    let post_batch =
        async || edition.send("POST", "/items/batch", &headers, Some(batch.clone())).await.status;
    let paid = || Some(json!({"attributes": {"state": "paid"}}).to_string().into_bytes());
    let state = async |key: &str, sort_key: &str| {
        let item = edition
            .get(&format!("/item?partition_key={key}&sort_key={sort_key}&consistent=true"))
            .await;
        item.body["attributes"]["state"].clone()
    };
    let first = post().await;
    let sort_key = first.body["sort_key"].as_str().expect("a sort key").to_owned();
    assert_eq!((first.status, post_batch().await), (201, 200));
    let of_batch = edition.read_all("b", "&consistent=true").await.0[0]["sort_key"]
        .as_str()
        .expect("one")
        .to_owned();
    for (key, sort_key) in [("k", &sort_key), ("b", &of_batch)] {
        let path = format!("/item?partition_key={key}&sort_key={sort_key}");
        assert_eq!(edition.send("PUT", &path, &[JSON], paid()).await.status, 200);
    }
    for shards in [1, 8, 16] {
        if shards > 1 {
            set_shards(&edition, "k", shards).await;
            set_shards(&edition, "b", shards).await;
        }
        let again = post().await;
        assert_eq!((again.status, again.body["sort_key"].as_str()), (201, Some(sort_key.as_str())));
        assert_eq!(post_batch().await, 200);
        assert_eq!(
            state("k", &sort_key).await,
            "paid",
            "{shards} shards: the repetition has undone a later PUT"
        );
        assert_eq!(state("b", &of_batch).await, "paid", "{shards} shards, in a batch");
        assert_eq!(edition.read_all("k", "&consistent=true").await.0.len(), 1);
    }
    edition.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_without_effect_is_rejected_by_name() {
    let edition = start(config()).await;
    let key = ("idempotency-key", "order-1147");
    let item = json!({"partition_key": "k", "sort_key": "s", "attributes": {}});
    let (one, batch) = (item.to_string(), json!({ "items": [item] }).to_string());
    let put = json!({"attributes": {}}).to_string();
    let keys = "/item?partition_key=k&sort_key=s";
    for (method, path, body, field) in [
        ("POST", "/items", Some(one), "idempotency-key"),
        ("POST", "/items/batch", Some(batch), "items[0].idempotency-key"),
        ("PUT", keys, Some(put), "idempotency-key"),
        ("DELETE", keys, None, "idempotency-key"),
    ] {
        let response = edition.send(method, path, &[JSON, key], body.map(String::into_bytes)).await;
        assert_problem(&response, 400, "invalid_header", Some(field), &format!("{method} {path}"));
    }
    assert!(edition.read_all("k", "&consistent=true").await.0.is_empty(), "nothing may be stored");
    edition.stop().await;
}

#[tokio::test]
async fn a_used_idempotency_key_with_other_attributes_is_rejected() {
    let edition = start(config()).await;
    let create = async |value: u32, key: &str| {
        let body = json!({"partition_key": "k", "sort_key": "s", "attributes": {"value": value}})
            .to_string();
        edition
            .send(
                "POST",
                "/items",
                &[JSON, CREATE_ONLY, ("idempotency-key", key)],
                Some(body.into_bytes()),
            )
            .await
    };
    assert_eq!(create(1, "mine").await.status, 201);
    let reused = create(2, "mine").await;
    assert_problem(&reused, 422, "idempotency_key_reused", Some("idempotency-key"), "another body");
    assert_eq!(create(1, "mine").await.status, 201, "the same body is the same request");
    assert_problem(&create(2, "yours").await, 412, "already_exists", None, "another request");
    assert_eq!(value(&edition, "k", "s").await, 1);
    edition.stop().await;
}
