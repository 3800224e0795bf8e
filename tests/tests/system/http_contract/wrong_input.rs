//! Errors name the offending field or parameter, and nothing is stored.

use serde_json::json;
use sharding::{Placement, Writes};
use system_tests::config;

use super::{CREATE_ONLY, ITEM, JSON, MERGE, assert_problem, json_body, start};

#[tokio::test]
async fn wrong_bodies_are_reported_by_field_and_store_nothing() {
    let edition = start(config()).await;
    let of = |key: &str, rest: &str| format!(r#"{{"partition_key":{key},{rest}}}"#).into_bytes();
    let of_k = |rest: &str| of(r#""k""#, rest);
    let key = |key: &str| of(key, r#""attributes":{}"#);
    let sort_key = |text: &str| of_k(&format!(r#""sort_key":{text},"attributes":{{}}"#));
    let with = |attributes: &str| of_k(&format!(r#""attributes":{{{attributes}}}"#));
    let text = |letter: &str, length| format!(r#""{}""#, letter.repeat(length));
    let batch = |items: &str| format!(r#"{{"items":{items}}}"#).into_bytes();
    let item = |key: &str, sort_key: &str| json!({"partition_key": key, "sort_key": sort_key, "attributes": {}});
    let many: Vec<_> = (0..501).map(|number| item("k", &number.to_string())).collect();
    let twins = json!([item("k", "a"), item("l", "a"), item("k", "a")]);
    let heavy = format!(r#""a":{}"#, text("x", 400 * 1_024));
    let deep = r#"[{"partition_key":"k","attributes":{"a":{"b":1e999}}}]"#;
    for (path, body, code, field) in [
        ("/items", b"{".to_vec(), "invalid_json", "body"),
        ("/items", b"\xff".to_vec(), "invalid_json", "body"),
        ("/items", b"".to_vec(), "invalid_json", "body"),
        ("/items", b"[]".to_vec(), "wrong_type", "body"),
        ("/items", br#"{"attributes":{}}"#.to_vec(), "missing_field", "partition_key"),
        ("/items", br#"{"partition_key":"k"}"#.to_vec(), "missing_field", "attributes"),
        ("/items", key(r#""""#), "invalid_partition_key", "partition_key"),
        ("/items", key("7"), "wrong_type", "partition_key"),
        ("/items", key(r#""_sharding:table""#), "invalid_partition_key", "partition_key"),
        ("/items", key(&text("k", 2_045)), "invalid_partition_key", "partition_key"),
        ("/items", sort_key(r#""""#), "invalid_sort_key", "sort_key"),
        ("/items", sort_key("7"), "wrong_type", "sort_key"),
        ("/items", sort_key("null"), "wrong_type", "sort_key"),
        ("/items", sort_key(&text("s", 1_025)), "invalid_sort_key", "sort_key"),
        ("/items", of_k(r#""attributes":{},"ttl":1"#), "unknown_field", "ttl"),
        ("/items", of_k(r#""partition_key":"k""#), "repeated_field", "partition_key"),
        ("/items", with(r#""sort_key":"x""#), "reserved_attribute", "attributes.sort_key"),
        ("/items", with(r#""_sh:d":true"#), "reserved_attribute", "attributes._sh:d"),
        ("/items", with(r#""n":NaN"#), "invalid_json", "body"),
        ("/items", with(&heavy), "item_too_large", "attributes"),
        // Each quotation mark counts twice inside the event.
        ("/items", vec![b'"'; 3_200_000], "body_too_large", "body"),
        ("/items/batch", b"{}".to_vec(), "missing_field", "items"),
        ("/items/batch", batch("{}"), "wrong_type", "items"),
        ("/items/batch", batch("[]"), "invalid_batch", "items"),
        ("/items/batch", batch(&json!(many).to_string()), "invalid_batch", "items"),
        ("/items/batch", batch(&json!([item("k", "a"), 7]).to_string()), "wrong_type", "items[1]"),
        ("/items/batch", batch(deep), "invalid_number", "items[0].attributes.a.b"),
        ("/items/batch", batch(&twins.to_string()), "repeated_key", "items[2]"),
    ] {
        let about = format!("{path} {}", String::from_utf8_lossy(&body[..body.len().min(120)]));
        let status = if code.ends_with("_too_large") { 413 } else { 400 };
        let response = edition.send("POST", path, &[JSON], Some(body)).await;
        assert_problem(&response, status, code, Some(field), &about);
    }
    let twins = json!({"items": [item("k", "a"), item("k", "a")]});
    let repeated = edition.post("/items/batch", &twins).await;
    let detail = repeated.body["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("items[1]") && detail.contains("items[0]"), "{detail}");
    for key in ["k", "l"] {
        let (stored, _) = edition.read_all(key, "&consistent=true").await;
        assert!(stored.is_empty(), "nothing may be stored");
    }
}

#[tokio::test]
async fn wrong_parameters_are_reported_by_name() {
    let edition = start(config()).await;
    let item = |text: &str| json!({"partition_key": "a", "sort_key": text, "attributes": {}});
    let items = json!({"items": [item("1"), item("2")]});
    assert_eq!(edition.post("/items/batch", &items).await.status, 200);
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
        ("/items?partition_key=%zz", 400, "invalid_encoding", "partition_key"),
        ("/items?partition_key=a&cursor=", 400, "invalid_cursor", "cursor"),
        ("/items?partition_key=a&cursor=made-up", 400, "invalid_cursor", "cursor"),
        (&foreign, 400, "invalid_cursor", "cursor"),
        (&turned, 400, "invalid_cursor", "cursor"),
        (&cut, 400, "invalid_cursor", "cursor"),
        ("/item?partition_key=a", 400, "missing_parameter", "sort_key"),
        ("/item?partition_key=a&sort_key=", 400, "invalid_sort_key", "sort_key"),
        ("/shards", 400, "missing_parameter", "partition_key"),
        ("/shards?partition_key=_sharding:table", 400, "invalid_partition_key", "partition_key"),
        ("/shards?partition_key=a&consistent=true", 400, "unknown_parameter", "consistent"),
    ];
    for (path, status, code, field) in rows {
        assert_problem(&edition.get(path).await, status, code, Some(field), path);
    }
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
        assert_eq!(response.status, 405, "{method} {path}");
        assert_eq!(response.headers["allow"], allow, "{method} {path}");
    }
    let body = Some(br#"{"partition_key":"k","attributes":{}}"#.to_vec());
    for header in [&[][..], &[("content-type", "text/plain")][..]] {
        for (method, path) in [("POST", "/items"), ("PUT", ITEM)] {
            let response = edition.send(method, path, header, body.clone()).await;
            assert_problem(&response, 415, "unsupported_media_type", Some("content-type"), path);
        }
    }
    let utf8 = [("content-type", "application/json; charset=utf-8")];
    assert_eq!(edition.send("POST", "/items", &utf8, body.clone()).await.status, 201);
}

#[tokio::test]
async fn wrong_headers_and_point_writes_are_reported_by_name() {
    let edition = start(config()).await;
    let item = r#"{"partition_key":"k","sort_key":"s","attributes":{}}"#;
    let batch = r#"{"items":[{"partition_key":"k","sort_key":"s","attributes":{}}]}"#;
    let long = "x".repeat(256);
    let (own, of_batch) = ("idempotency-key", "items[0].idempotency-key");
    let rows = [
        ("POST", "/items", "", item, own),
        ("POST", "/items", "a b", item, own),
        ("POST", "/items", &long, item, own),
        ("POST", "/items/batch", &long, batch, own),
        // Without effect: the sort key is given.
        ("POST", "/items", "order-1147", item, own),
        ("POST", "/items/batch", "order-1147", batch, of_batch),
        ("PUT", ITEM, "order-1147", r#"{"attributes":{}}"#, own),
        ("DELETE", ITEM, "order-1147", "", own),
    ];
    for (method, path, key, body, field) in rows {
        let (headers, sent) = ([JSON, (own, key)], Some(body.as_bytes().to_vec()));
        let response = edition.send(method, path, &headers, sent).await;
        let about = format!("{method} {path} {key:?}");
        assert_problem(&response, 400, "invalid_header", Some(field), &about);
    }
    let reserved = r#"{"attributes":{"_sh:v":1}}"#;
    let rows = [
        ("PUT", "partition_key=k", "{}", "missing_parameter", "sort_key"),
        ("PUT", "sort_key=s", "{}", "missing_parameter", "partition_key"),
        (
            "PUT",
            "partition_key=k&sort_key=s&consistent=true",
            "{}",
            "unknown_parameter",
            "consistent",
        ),
        ("PUT", "partition_key=k&sort_key=s", "{}", "missing_field", "attributes"),
        ("PUT", "partition_key=k&sort_key=s", item, "unknown_field", "partition_key"),
        ("PUT", "partition_key=k&sort_key=s", reserved, "reserved_attribute", "attributes._sh:v"),
        ("DELETE", "partition_key=k", "", "missing_parameter", "sort_key"),
        ("DELETE", "partition_key=k&sort_key=", "", "invalid_sort_key", "sort_key"),
    ];
    for (method, query, body, code, field) in rows {
        let (path, sent) = (format!("/item?{query}"), Some(body.as_bytes().to_vec()));
        let response = edition.send(method, &path, &[JSON], sent).await;
        assert_problem(&response, 400, code, Some(field), &format!("{method} {path} {body}"));
    }
    assert!(edition.read_all("k", "&consistent=true").await.0.is_empty(), "nothing may be stored");
}

#[tokio::test]
async fn an_append_only_table_takes_appends_only() {
    for (about, config) in [
        ("random placement", config().with(|config| config.placement = Placement::Random)),
        ("WRITES=appends", config().with(|config| config.writes = Writes::Appends)),
    ] {
        let edition = start(config).await;
        let item = json!({"partition_key": "k", "sort_key": "s", "attributes": {"n": 1}});
        let stored = edition.post("/items", &item).await;
        let create_only = [JSON, CREATE_ONLY];
        let empty = json_body(&json!({"attributes": {}}));
        for (response, allow) in [
            (edition.send("PUT", ITEM, &[JSON], empty.clone()).await, "GET"),
            (edition.send("PATCH", ITEM, &[MERGE], empty).await, "GET"),
            (edition.send("DELETE", ITEM, &[], None).await, "GET"),
            (edition.send("POST", "/items", &create_only, json_body(&item)).await, "GET, POST"),
        ] {
            assert_problem(&response, 405, "append_only", None, about);
            assert_eq!(response.headers["allow"], allow, "{about}");
        }
        let read = edition.get(ITEM).await;
        assert_eq!(read.body["attributes"], json!({"n": 1}), "{about}");
        assert_eq!((stored.status, stored.headers.get("etag")), (201, read.headers.get("etag")));
    }
}
