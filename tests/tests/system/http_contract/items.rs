//! Items are returned as they were stored.

use serde_json::{Value, json};
use system_tests::config;

use super::{JSON, assert_problem, start};

#[tokio::test]
async fn an_item_comes_back_as_it_went_in() {
    let edition = start(config()).await;
    let item =
        json!({"partition_key": "a/b.7 \u{e9}", "sort_key": "☃", "attributes": {"empty": ""}});
    let stored = edition.post("/items", &item).await;
    assert_eq!(stored.status, 201);
    assert_eq!(["shard", "number_of_shards"].map(|name| stored.body[name].as_u64()), [Some(1); 2]);
    let path = "/item?partition_key=a%2Fb.7%20%C3%A9&sort_key=%E2%98%83&consistent=true";
    let item = edition.get(path).await;
    assert_eq!((item.status, &item.body["attributes"]), (200, &json!({"empty": ""})));
    let absent = edition.get("/item?partition_key=a&sort_key=b").await;
    assert_problem(&absent, 404, "not_found", None, "absent item");
    let shards = edition.get("/shards?partition_key=a").await;
    let of_key = ["number_of_shards", "grown", "last_updated"].map(|name| &shards.body[name]);
    let never_grown = [&json!(1), &json!(false), &Value::Null];
    assert_eq!(of_key, never_grown, "a key that never grew");
    let empty = edition.get("/items?partition_key=never").await.body;
    assert_eq!((&empty["items"], &empty["cursor"]), (&json!([]), &Value::Null));
}

#[tokio::test]
async fn numbers_and_types_that_json_lacks_come_back_digit_for_digit() {
    let edition = start(config()).await;
    let attributes = concat!(
        r#"{"binary":{"$binary":"AAEC/w=="},"binary_set":{"$binary_set":["AA==","AQ=="]},"empty":"","empty_list":[],"empty_map":{},"#,
        r#""exact":12345678901234567890123456789012345678,"map":{"$map":{"$binary":"a name"}},"negative":-0.00000000000000000000000000000000000001,"#,
        r#""nested":{"l":[null,true,{"x":[1.5,""]}]},"number_set":{"$number_set":[1,2]},"small":1e-130,"string_set":{"$string_set":["a","b"]}}"#
    );
    let body = format!(r#"{{"partition_key":"k","sort_key":"s","attributes":{attributes}}}"#);
    assert_eq!(edition.send("POST", "/items", &[JSON], Some(body.into_bytes())).await.status, 201);
    let text = edition.text("/item?partition_key=k&sort_key=s&consistent=true").await;
    for part in [
        r#""binary":{"$binary":"AAEC/w=="}"#,
        r#""empty":"","empty_list":[],"empty_map":{}"#,
        r#""exact":12345678901234567890123456789012345678"#,
        r#""map":{"$map":{"$binary":"a name"}}"#,
        r#""nested":{"l":[null,true,{"x":[1.5,""]}]}"#,
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // A server may return a number with other digits but the same value, and a set in another
    // order.
    let parsed: Value = serde_json::from_str(&text).expect("JSON");
    let number = |name: &str| -> sharding::Number {
        let rest = text.split(&format!("\"{name}\":")).nth(1).expect("the attribute exists");
        rest.split([',', '}']).next().expect("a value").parse().expect("a number")
    };
    for (name, expected) in [("negative", "-1E-38"), ("small", "1E-130")] {
        assert_eq!(number(name), expected.parse().expect("a number"), "{text}");
    }
    for (name, kind, members) in [
        ("string_set", "$string_set", json!(["a", "b"])),
        ("number_set", "$number_set", json!([1, 2])),
        ("binary_set", "$binary_set", json!(["AA==", "AQ=="])),
    ] {
        let mut found = parsed["attributes"][name][kind].as_array().cloned().unwrap_or_default();
        found.sort_by_key(Value::to_string);
        assert_eq!(Value::Array(found), members, "{name} in {text}");
    }
}
