//! Items are returned as they were stored.

use serde_json::{Value, json};
use system_tests::config;

use super::{JSON, start};

#[tokio::test]
async fn numbers_and_types_that_json_lacks_come_back_digit_for_digit() {
    let edition = start(config()).await;
    let attributes = concat!(
        r#"{"zero":0e999,"two":{"$a":1,"$b":2},"inner":{"$map":{"$map":{"$map":{"$b":[{"$map":{"$c":{}}}]}}}},"#,
        r#""text":"\u0000\"\\💥","binary":{"$binary":"AAEC/w=="},"binary_set":{"$binary_set":["AA==","AQ=="]},"empty":"","empty_list":[],"empty_map":{},"#,
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
        r#""zero":0}"#,
        r#""two":{"$a":1,"$b":2}"#,
        r#""inner":{"$map":{"$map":{"$map":{"$b":[{"$map":{"$c":{}}}]}}}}"#,
        r#""text":"\u0000\"\\💥""#,
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
