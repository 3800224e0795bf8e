//! Runs the writer's binary as a Lambda process, with every sample event, against the local
//! edition's DynamoDB port.

use insta::assert_snapshot;
use local::ServeOptions;
use serde_json::Value;
use system_tests::{Function, TestEdition, config, event};

const BINARY: &str = env!("CARGO_BIN_EXE_writer");

#[tokio::test]
async fn every_sample_event_has_its_answer() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let mut writer = Function::start(BINARY, &Function::variables(&edition.dynamodb_url())).await;
    let mut answers = String::new();
    let samples = "
        writer-post-item-create-only writer-post-item-create-only writer-post-item
        writer-post-item-base64 writer-post-batch writer-post-item-empty-partition-key
        writer-post-item-unknown-field writer-post-item-wrong-content-type
        writer-post-item-idempotency-key writer-post-item-idempotency-key writer-put-item
        writer-put-item-if-match writer-patch-item-merge writer-patch-item-add
        writer-patch-item-add writer-delete-item
    ";
    for name in samples.split_whitespace() {
        let response = writer.invoke(event(name)).await;
        let body = response["body"].as_str().unwrap_or("no body");
        answers += &format!("{name}: {} {body}\n", response["statusCode"]);
    }
    assert_snapshot!(answers);

    let made = writer.invoke(event("writer-post-item-made-sort-key")).await;
    assert_eq!(made["statusCode"], 201);
    let body: Value = serde_json::from_str(made["body"].as_str().expect("a body")).expect("JSON");
    assert_eq!(body["sort_key"].as_str().map(str::len), Some(36), "{body}");

    let (items, _) = edition.read_all("/shared/firetvGen2.txt", "&consistent=true").await;
    let keys: Vec<&str> = items.iter().filter_map(|item| item["sort_key"].as_str()).collect();
    let made = body["sort_key"].as_str().expect("a key");
    assert!(keys.contains(&"123456789102") && keys.contains(&made), "{keys:?}");
    assert!(!keys.contains(&"123456789101"), "{keys:?}");
    let log = writer.stop().await;
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let metrics: Vec<Value> = lines.filter(|line| line.get("_aws").is_some()).collect();
    let written: u64 = metrics.iter().filter_map(|line| line["ShardingWrites"].as_u64()).sum();
    assert!(written >= 8, "every stored item is counted: {log}");
    for line in &metrics {
        assert!(line["TableName"] == "items" && line["RequestId"].is_string(), "{line}");
        let set = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(set["Namespace"], "DynamoDBWriteSharding", "{line}");
        let dimensions = set["Dimensions"].to_string();
        assert!(!dimensions.contains("artition"), "a partition key is no dimension: {line}");
    }
    // Every sample has attributes with these names.
    assert!(!log.contains("action") && !log.contains("bytes"), "no item body is logged: {log}");
}

#[tokio::test]
async fn a_wrong_variable_stops_the_function_with_its_name() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    for (name, value, why) in [
        ("MAX_SHARDS", "many", "1 to 10000"),
        ("SHARD_SCALER_FUNCTION", "the shard-scaler", "name or ARN"),
        ("WRITES", "appends", r#"it was made for \"items\""#),
    ] {
        let mut variables = Function::variables(&edition.dynamodb_url());
        variables.push((name, value.to_owned()));
        let log = Function::refusal(BINARY, &variables).await;
        assert!([name, value, why].iter().all(|part| log.contains(part)), "{log}");
    }
}
