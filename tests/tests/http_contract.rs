//! The HTTP contract over real HTTP: what is wrong, and how it is told; nothing is stored by a request that got a 4xx.

use local::ServeOptions;
use serde_json::{Value, json};
use sharding::{SortKeyType, TableConfig};
use system_tests::{Response, TestEdition, config};

/// Route, body, status, code and field.
type WrongBody<'a> = (&'a str, Vec<u8>, u16, &'a str, Option<&'a str>);

const JSON: (&str, &str) = ("content-type", "application/json");

async fn start(config: TableConfig) -> TestEdition {
    TestEdition::start(ServeOptions::default(), config).await
}

fn number_table() -> TableConfig {
    TableConfig { sort_key_type: SortKeyType::Number, ..config() }
}

#[track_caller]
fn assert_problem(response: &Response, status: u16, code: &str, field: Option<&str>, about: &str) {
    assert_eq!((response.status, response.body["code"].as_str()), (status, Some(code)), "{about}: {}", response.body);
    assert_eq!(response.headers["content-type"], "application/problem+json", "{about}");
    assert_eq!(response.body["status"], status, "{about}");
    assert!(response.body["title"].is_string() && response.body["type"].is_string(), "{about}: {}", response.body);
    assert_eq!(response.body["field"].as_str(), field, "{about}: {}", response.body);
    if let Some(field) = field {
        assert!(
            response.body["detail"].as_str().is_some_and(|detail| detail.starts_with(field)),
            "{about}: {}",
            response.body
        );
    }
}

#[tokio::test]
async fn wrong_bodies_are_told_by_field_and_store_nothing() {
    let edition = start(config()).await;
    let long_key = format!(r#"{{"partition_key":"{}","attributes":{{}}}}"#, "k".repeat(2_045));
    let long_sort = format!(r#"{{"partition_key":"k","sort_key":"{}","attributes":{{}}}}"#, "s".repeat(1_025));
    let digits = format!(r#"{{"partition_key":"k","attributes":{{"n":{}}}}}"#, "9".repeat(39));
    let heavy = format!(r#"{{"partition_key":"k","attributes":{{"a":"{}"}}}}"#, "x".repeat(400 * 1_024));
    let body_limit = vec![b' '; 6 * 1_024 * 1_024 + 1];
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
        ("/items", br#"{"partition_key":"k","attributes":{"_version":1}}"#.to_vec(), 400, "reserved_attribute", Some("attributes._version")),
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
    assert_eq!(edition.engine().traffic("items").writes, 0, "nothing may be stored");
    edition.stop().await;
}

#[tokio::test]
async fn wrong_parameters_are_told_by_name() {
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
        ("GET", "/items/batch", ""),
        ("POST", "/item", "GET, PUT, DELETE"),
        ("DELETE", "/shards", "GET"),
        ("HEAD", "/items", "GET, POST"),
    ] {
        let response = edition.send(method, path, &[JSON], None).await;
        if allow.is_empty() {
            assert_eq!(response.status, 404, "{method} {path}");
            continue;
        }
        assert_eq!(
            (response.status, response.headers["allow"].to_str().expect("ASCII")),
            (405, allow),
            "{method} {path}"
        );
    }
    let body = Some(br#"{"partition_key":"k","attributes":{}}"#.to_vec());
    for header in [&[][..], &[("content-type", "text/plain")][..]] {
        let response = edition.send("POST", "/items", header, body.clone()).await;
        assert_problem(&response, 415, "unsupported_media_type", Some("content-type"), "POST /items");
    }
    let utf8 = [("content-type", "application/json; charset=utf-8")];
    assert_eq!(edition.send("POST", "/items", &utf8, body.clone()).await.status, 201);
    for (method, path) in [("PUT", "/item?partition_key=k&sort_key=s"), ("DELETE", "/item?partition_key=k&sort_key=s")]
    {
        assert_problem(&edition.send(method, path, &[JSON], None).await, 501, "not_implemented", None, path);
    }
    let create_only = edition.send("POST", "/items", &[JSON, ("if-none-match", "*")], body).await;
    assert_problem(&create_only, 501, "not_implemented", None, "If-None-Match");
    edition.stop().await;
}

#[tokio::test]
async fn an_item_comes_back_as_it_went_in() {
    let edition = start(config()).await;
    let attributes = r#"{"exact":12345678901234567890123456789012345678,"small":1E-130,"empty":"","nested":{"l":[null,true,{"x":[]}]},"set":{"$string_set":["a","b"]}}"#;
    let body = format!(r#"{{"partition_key":"a/b.7 \u00e9","sort_key":"☃","attributes":{attributes}}}"#);
    let stored = edition.send("POST", "/items", &[JSON], Some(body.into_bytes())).await;
    assert_eq!((stored.status, &stored.body["shard"], &stored.body["number_of_shards"]), (201, &json!(1), &json!(1)));
    let item = edition.get("/item?partition_key=a%2Fb.7%20%C3%A9&sort_key=%E2%98%83&consistent=true").await;
    assert_eq!(item.status, 200, "{}", item.body);
    let text = item.body["attributes"].to_string();
    assert!(text.contains("\"empty\":\"\"") && text.contains("\"$string_set\":[\"a\",\"b\"]"), "{text}");
    assert_problem(&edition.get("/item?partition_key=a&sort_key=b").await, 404, "not_found", None, "absent item");
    assert_problem(&edition.get("/shards?partition_key=a").await, 404, "not_found", None, "absent key");
    let empty = edition.get("/items?partition_key=never").await;
    assert_eq!((empty.status, &empty.body["items"], &empty.body["cursor"]), (200, &json!([]), &Value::Null));
    edition.stop().await;
}

#[tokio::test]
async fn pages_are_right_for_number_keys_both_orders_and_ranges_over_many_shards() {
    let edition = start(number_table()).await;
    let key = sharding::PartitionKey::new("numbers").expect("a key");
    let eight = sharding::ShardCount::new(8).expect("a count");
    let soon = sharding::Deadline::now() + std::time::Duration::from_secs(20);
    edition.table().set_shards(&key, eight, soon).await.expect("scaled");
    let numbers: Vec<i64> = (-60..60).map(|n| n * 7).collect();
    let items: Vec<Value> =
        numbers.iter().map(|n| json!({"partition_key": "numbers", "sort_key": n, "attributes": {"n": n}})).collect();
    assert_eq!(edition.post("/items/batch", &json!({ "items": items })).await.body["written"], 120);
    for (parameters, expected) in [
        ("&limit=1000", numbers.clone()),
        ("&limit=7", numbers.clone()),
        ("&limit=1", numbers.clone()),
        ("&limit=11&order=desc", numbers.iter().rev().copied().collect()),
        ("&limit=5&from=-70&to=1.4e2", (-10..=20).map(|n| n * 7).collect()),
        ("&limit=5&from=-70&to=140&order=desc", (-10..=20).rev().map(|n| n * 7).collect()),
        ("&from=400", (58..60).map(|n| n * 7).collect()),
        ("&to=-420&consistent=true", vec![-420]),
        ("&from=1&to=2", vec![]),
    ] {
        let (items, _) = edition.read_all("numbers", parameters).await;
        let got: Vec<i64> = items.iter().filter_map(|item| item["sort_key"].as_i64()).collect();
        assert_eq!(got, expected, "{parameters}");
    }
    let string = edition.post("/items", &json!({"partition_key": "k", "sort_key": "1", "attributes": {}})).await;
    assert_problem(&string, 400, "wrong_type", Some("sort_key"), "a string for a number");
    let missing = edition.post("/items", &json!({"partition_key": "k", "attributes": {}})).await;
    assert_problem(&missing, 400, "missing_field", Some("sort_key"), "no sort key");
    let prefix = edition.get("/items?partition_key=numbers&prefix=7").await;
    assert_problem(&prefix, 400, "invalid_parameter", Some("prefix"), "a prefix of numbers");
    edition.stop().await;
}

#[tokio::test]
async fn a_prefix_reads_its_part_in_order() {
    let edition = start(config()).await;
    let items: Vec<Value> = ["a", "ab", "ab#1", "ab#2", "b", "ä"]
        .iter()
        .map(|s| json!({"partition_key": "k", "sort_key": s, "attributes": {}}))
        .collect();
    edition.post("/items/batch", &json!({ "items": items })).await;
    let (found, pages) = edition.read_all("k", "&prefix=ab&limit=1&order=desc").await;
    let keys: Vec<_> = found.iter().filter_map(|item| item["sort_key"].as_str()).collect();
    assert_eq!(keys, ["ab#2", "ab#1", "ab"]);
    assert!(pages >= 3);
    edition.stop().await;
}
