//! Pages over many shards.

use api::{MAX_PAYLOAD_BYTES, escaped_len};
use serde_json::{Value, json};
use system_tests::config;

use super::{assert_problem, number_table, set_shards, start};

#[tokio::test]
async fn pages_are_right_for_number_keys_both_orders_and_ranges() {
    let edition = start(number_table()).await;
    set_shards(&edition, "numbers", 8).await;
    let numbers: Vec<i64> = (-60..60).map(|n| n * 7).collect();
    let item = |n| json!({"partition_key": "numbers", "sort_key": n, "attributes": {"n": n}});
    let items: Vec<Value> = numbers.iter().map(item).collect();
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
    let item = json!({"partition_key": "k", "sort_key": "1", "attributes": {}});
    let string = edition.post("/items", &item).await;
    assert_problem(&string, 400, "wrong_type", Some("sort_key"), "a string for a number");
    let missing = edition.post("/items", &json!({"partition_key": "k", "attributes": {}})).await;
    assert_problem(&missing, 400, "missing_field", Some("sort_key"), "no sort key");
    let prefix = edition.get("/items?partition_key=numbers&prefix=7").await;
    assert_problem(&prefix, 400, "invalid_parameter", Some("prefix"), "a prefix of numbers");
}

/// The size limit of a Lambda response. The body is a string in it, so the escapes of the JSON are
/// escaped once more.
#[tokio::test]
async fn a_page_fits_into_a_lambda_response_whatever_its_items_hold() {
    let edition = start(config()).await;
    for sort_key in 0..7 {
        let item = json!({"partition_key": "k", "sort_key": sort_key.to_string(), "attributes": {"text": "\u{1}".repeat(400_000)}});
        assert_eq!(edition.post("/items", &item).await.status, 201);
    }
    let (mut keys, mut cursor) = (Vec::new(), String::new());
    loop {
        let text = edition.text(&format!("/items?partition_key=k&consistent=true{cursor}")).await;
        assert!(escaped_len(&text) < MAX_PAYLOAD_BYTES + 4_096, "{} bytes", escaped_len(&text));
        let page: Value = serde_json::from_str(&text).expect("a page");
        let items = page["items"].as_array().expect("items");
        assert!(!items.is_empty(), "every page has a next one");
        keys.extend(items.iter().filter_map(|item| item["sort_key"].as_str().map(str::to_owned)));
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(keys, ["0", "1", "2", "3", "4", "5", "6"]);
}
