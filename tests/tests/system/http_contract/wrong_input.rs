//! Errors name the offending field or parameter, and nothing is stored.

use serde_json::json;
use sharding::{Placement, Writes};
use system_tests::config;

use super::{JSON, assert_problem, start};

/// Route, body, status, code and field.
type WrongBody<'a> = (&'a str, Vec<u8>, u16, &'a str, Option<&'a str>);

#[tokio::test]
async fn wrong_bodies_are_reported_by_field_and_store_nothing() {
    let edition = start(config()).await;
    let long_key = format!(r#"{{"partition_key":"{}","attributes":{{}}}}"#, "k".repeat(2_045));
    let long_sort =
        format!(r#"{{"partition_key":"k","sort_key":"{}","attributes":{{}}}}"#, "s".repeat(1_025));
    let digits = format!(r#"{{"partition_key":"k","attributes":{{"n":{}}}}}"#, "9".repeat(39));
    let heavy =
        format!(r#"{{"partition_key":"k","attributes":{{"a":"{}"}}}}"#, "x".repeat(400 * 1_024));
    // Each quotation mark counts twice inside the event.
    let body_limit = vec![b'"'; 3_200_000];
    let many = json!({"items": (0..501).map(|i| json!({"partition_key": "k", "sort_key": i.to_string(), "attributes": {}})).collect::<Vec<_>>()});
    let rows: Vec<WrongBody<'_>> = vec![
        ("/items", b"{".to_vec(), 400, "invalid_json", Some("body")),
        ("/items", b"\xff".to_vec(), 400, "invalid_json", Some("body")),
        ("/items", b"".to_vec(), 400, "invalid_json", Some("body")),
        ("/items", b"[]".to_vec(), 400, "wrong_type", Some("body")),
        ("/items", br#"{"attributes":{}}"#.to_vec(), 400, "missing_field", Some("partition_key")),
        ("/items", br#"{"partition_key":"k"}"#.to_vec(), 400, "missing_field", Some("attributes")),
        ("/items", br#"{"partition_key":"","attributes":{}}"#.to_vec(), 400, "invalid_partition_key", Some("partition_key")),
        ("/items", br#"{"partition_key":7,"attributes":{}}"#.to_vec(), 400, "wrong_type", Some("partition_key")),
        ("/items", long_key.into_bytes(), 400, "invalid_partition_key", Some("partition_key")),
        ("/items", br#"{"partition_key":"k","sort_key":"","attributes":{}}"#.to_vec(), 400, "invalid_sort_key", Some("sort_key")),
        ("/items", br#"{"partition_key":"k","sort_key":7,"attributes":{}}"#.to_vec(), 400, "wrong_type", Some("sort_key")),
        ("/items", br#"{"partition_key":"k","sort_key":null,"attributes":{}}"#.to_vec(), 400, "wrong_type", Some("sort_key")),
        ("/items", long_sort.into_bytes(), 400, "invalid_sort_key", Some("sort_key")),
        ("/items", br#"{"partition_key":"k","attributes":[]}"#.to_vec(), 400, "wrong_type", Some("attributes")),
        ("/items", br#"{"partition_key":"k","attributes":{},"ttl":1}"#.to_vec(), 400, "unknown_field", Some("ttl")),
        ("/items", br#"{"partition_key":"k","partition_key":"k","attributes":{}}"#.to_vec(), 400, "repeated_field", Some("partition_key")),
        ("/items", br#"{"partition_key":"k","attributes":{"sort_key":"x"}}"#.to_vec(), 400, "reserved_attribute", Some("attributes.sort_key")),
        ("/items", br#"{"partition_key":"k","attributes":{"_sh:v":1}}"#.to_vec(), 400, "reserved_attribute", Some("attributes._sh:v")),
        ("/items", br#"{"partition_key":"k","attributes":{"_sh:d":true}}"#.to_vec(), 400, "reserved_attribute", Some("attributes._sh:d")),
        ("/items", br#"{"partition_key":"k","attributes":{"n":NaN}}"#.to_vec(), 400, "invalid_json", Some("body")),
        ("/items", br#"{"partition_key":"k","attributes":{"n":1e126}}"#.to_vec(), 400, "invalid_number", Some("attributes.n")),
        ("/items", digits.into_bytes(), 400, "invalid_number", Some("attributes.n")),
        ("/items", heavy.into_bytes(), 413, "item_too_large", Some("attributes")),
        ("/items", body_limit, 413, "body_too_large", Some("body")),
        ("/items/batch", br#"{}"#.to_vec(), 400, "missing_field", Some("items")),
        ("/items/batch", br#"{"items":{}}"#.to_vec(), 400, "wrong_type", Some("items")),
        ("/items/batch", br#"{"items":[]}"#.to_vec(), 400, "invalid_batch", Some("items")),
        ("/items/batch", many.to_string().into_bytes(), 400, "invalid_batch", Some("items")),
        ("/items/batch", br#"{"items":[{"partition_key":"k","attributes":{}},7]}"#.to_vec(), 400, "wrong_type", Some("items[1]")),
        ("/items/batch", br#"{"items":[{"partition_key":"k","attributes":{"a":{"b":1e999}}}]}"#.to_vec(), 400, "invalid_number", Some("items[0].attributes.a.b")),
        (
            "/items/batch",
            br#"{"items":[{"partition_key":"k","sort_key":"a","attributes":{}},{"partition_key":"l","sort_key":"a","attributes":{}},{"partition_key":"k","sort_key":"a","attributes":{}}]}"#.to_vec(),
            400,
            "repeated_key",
            Some("items[2]"),
        ),
    ];
    for (path, body, status, code, field) in rows {
        let about = format!("{path} {}", String::from_utf8_lossy(&body[..body.len().min(120)]));
        let response = edition.send("POST", path, &[JSON], Some(body)).await;
        assert_problem(&response, status, code, field, &about);
    }
    let repeated = edition.post("/items/batch", &json!({"items": [
        {"partition_key": "k", "sort_key": "a", "attributes": {}}, {"partition_key": "k", "sort_key": "a", "attributes": {}}]})).await;
    assert!(
        repeated.body["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("items[1]") && detail.contains("items[0]"))
    );
    for key in ["k", "l"] {
        assert!(
            edition.read_all(key, "&consistent=true").await.0.is_empty(),
            "nothing may be stored"
        );
    }
    edition.stop().await;
}

#[tokio::test]
async fn wrong_parameters_are_reported_by_name() {
    let edition = start(config()).await;
    let foreign = edition.post("/items/batch", &json!({"items": [
        {"partition_key": "a", "sort_key": "1", "attributes": {}}, {"partition_key": "a", "sort_key": "2", "attributes": {}}]})).await;
    assert_eq!(foreign.status, 200);
    let page = edition.get("/items?partition_key=a&limit=1").await;
    let cursor = page.body["cursor"].as_str().expect("there is more").to_owned();
    let foreign = format!("/items?partition_key=b&cursor={cursor}");
    let turned = format!("/items?partition_key=a&order=desc&cursor={cursor}");
    let cut = format!("/items?partition_key=a&cursor={}", &cursor[..cursor.len() - 1]);
    let long = format!("/items?partition_key={}", "k".repeat(2_045));
    let rows = [
        ("/items", 400, "missing_parameter", "partition_key"),
        ("/items?partition_key=", 400, "invalid_partition_key", "partition_key"),
        (&long, 400, "invalid_partition_key", "partition_key"),
        ("/items?partition_key=a&limit=0", 400, "invalid_parameter", "limit"),
        ("/items?partition_key=a&limit=1001", 400, "invalid_parameter", "limit"),
        ("/items?partition_key=a&limit=ten", 400, "invalid_parameter", "limit"),
        ("/items?partition_key=a&order=up", 400, "invalid_parameter", "order"),
        ("/items?partition_key=a&consistent=yes", 400, "invalid_parameter", "consistent"),
        ("/items?partition_key=a&from=b&to=a", 400, "invalid_range", "from"),
        ("/items?partition_key=a&from=", 400, "invalid_sort_key", "from"),
        ("/items?partition_key=a&prefix=", 400, "invalid_parameter", "prefix"),
        ("/items?partition_key=a&prefix=x&from=x", 400, "invalid_parameter", "prefix"),
        ("/items?partition_key=a&limits=1", 400, "unknown_parameter", "limits"),
        ("/items?partition_key=a&partition_key=a", 400, "repeated_parameter", "partition_key"),
        ("/items?partition_key=%FF", 400, "invalid_encoding", "partition_key"),
        ("/items?partition_key=%4", 400, "invalid_encoding", "partition_key"),
        ("/items?partition_key=a&cursor=", 400, "invalid_cursor", "cursor"),
        ("/items?partition_key=a&cursor=made-up", 400, "invalid_cursor", "cursor"),
        (&foreign, 400, "invalid_cursor", "cursor"),
        (&turned, 400, "invalid_cursor", "cursor"),
        (&cut, 400, "invalid_cursor", "cursor"),
        ("/item?partition_key=a", 400, "missing_parameter", "sort_key"),
        ("/item?partition_key=a&sort_key=", 400, "invalid_sort_key", "sort_key"),
        ("/shards", 400, "missing_parameter", "partition_key"),
        ("/shards?partition_key=a&consistent=true", 400, "unknown_parameter", "consistent"),
    ];
    for (path, status, code, field) in rows {
        assert_problem(&edition.get(path).await, status, code, Some(field), path);
    }
    edition.stop().await;
}

#[tokio::test]
async fn routes_methods_and_media_types() {
    let edition = start(config()).await;
    assert_problem(&edition.get("/nothing").await, 404, "no_such_route", None, "GET /nothing");
    for (method, path, allow) in [
        ("PATCH", "/items", "GET, POST"),
        ("GET", "/items/batch", "POST"),
        ("POST", "/item", "GET, PUT, PATCH, DELETE"),
        ("DELETE", "/shards", "GET"),
        ("HEAD", "/items", "GET, POST"),
    ] {
        let response = edition.send(method, path, &[JSON], None).await;
        assert_eq!(
            (response.status, response.headers["allow"].to_str().expect("ASCII")),
            (405, allow),
            "{method} {path}"
        );
    }
    let body = Some(br#"{"partition_key":"k","attributes":{}}"#.to_vec());
    for header in [&[][..], &[("content-type", "text/plain")][..]] {
        let response = edition.send("POST", "/items", header, body.clone()).await;
        assert_problem(
            &response,
            415,
            "unsupported_media_type",
            Some("content-type"),
            "POST /items",
        );
    }
    let utf8 = [("content-type", "application/json; charset=utf-8")];
    assert_eq!(edition.send("POST", "/items", &utf8, body.clone()).await.status, 201);
    edition.stop().await;
}

#[tokio::test]
async fn wrong_headers_and_point_writes_are_reported_by_name() {
    let edition = start(config()).await;
    let item = r#"{"partition_key":"k","sort_key":"s","attributes":{}}"#;
    let batch = r#"{"items":[{"partition_key":"k","sort_key":"s","attributes":{}}]}"#;
    let long = "x".repeat(256);
    let rows = [
        ("/items", "", item),
        ("/items", "a b", item),
        ("/items", &long, item),
        ("/items/batch", &long, batch),
    ];
    for (path, key, body) in rows {
        let header = ("idempotency-key", key);
        let response =
            edition.send("POST", path, &[JSON, header], Some(body.as_bytes().to_vec())).await;
        let about = format!("{path} {key:?}");
        assert_problem(&response, 400, "invalid_header", Some("idempotency-key"), &about);
    }
    let rows = [
        ("PUT", "/item?partition_key=k", "{}", "missing_parameter", "sort_key"),
        ("PUT", "/item?sort_key=s", "{}", "missing_parameter", "partition_key"),
        (
            "PUT",
            "/item?partition_key=k&sort_key=s&consistent=true",
            "{}",
            "unknown_parameter",
            "consistent",
        ),
        ("PUT", "/item?partition_key=k&sort_key=s", "{}", "missing_field", "attributes"),
        ("PUT", "/item?partition_key=k&sort_key=s", item, "unknown_field", "partition_key"),
        (
            "PUT",
            "/item?partition_key=k&sort_key=s",
            r#"{"attributes":{"_sh:v":1}}"#,
            "reserved_attribute",
            "attributes._sh:v",
        ),
        ("DELETE", "/item?partition_key=k", "", "missing_parameter", "sort_key"),
        ("DELETE", "/item?partition_key=k&sort_key=", "", "invalid_sort_key", "sort_key"),
    ];
    for (method, path, body, code, field) in rows {
        let response = edition.send(method, path, &[JSON], Some(body.as_bytes().to_vec())).await;
        assert_problem(&response, 400, code, Some(field), &format!("{method} {path} {body}"));
    }
    let untyped =
        edition.send("PUT", "/item?partition_key=k&sort_key=s", &[], Some(b"{}".to_vec())).await;
    assert_problem(
        &untyped,
        415,
        "unsupported_media_type",
        Some("content-type"),
        "PUT without a content type",
    );
    assert!(edition.read_all("k", "&consistent=true").await.0.is_empty(), "nothing may be stored");
    edition.stop().await;
}

#[tokio::test]
async fn an_append_only_table_takes_appends_only() {
    for (about, config) in [
        ("random placement", config().with(|config| config.placement = Placement::Random)),
        ("WRITES=appends", config().with(|config| config.writes = Writes::Appends)),
    ] {
        let edition = start(config).await;
        let item = json!({"partition_key": "k", "sort_key": "s", "attributes": {"n": 1}});
        assert_eq!(edition.post("/items", &item).await.status, 201);
        let (path, body) =
            ("/item?partition_key=k&sort_key=s", Some(br#"{"attributes":{}}"#.to_vec()));
        for response in [
            edition.send("PUT", path, &[JSON], body.clone()).await,
            edition.send("DELETE", path, &[], None).await,
            edition
                .send(
                    "POST",
                    "/items",
                    &[JSON, ("if-none-match", "*")],
                    Some(item.to_string().into_bytes()),
                )
                .await,
        ] {
            assert_problem(&response, 405, "append_only", None, about);
            assert!(
                ["GET", "GET, POST"].iter().any(|allow| response.headers["allow"] == *allow),
                "{about}"
            );
        }
        assert_eq!(edition.get(path).await.body["attributes"], json!({"n": 1}), "{about}");
        edition.stop().await;
    }
}
