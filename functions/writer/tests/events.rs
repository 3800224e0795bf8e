//! Runs the writer's binary as a Lambda process, with every sample event, against the local
//! edition's DynamoDB port.

use insta::assert_snapshot;
use local::ServeOptions;
use serde_json::Value;
use system_tests::{Function, TestEdition, config, event};

const BINARY: &str = env!("CARGO_BIN_EXE_writer");

fn line(response: &Value) -> String {
    format!("{} {}", response["statusCode"], response["body"].as_str().unwrap_or("no body"))
}

#[tokio::test]
async fn every_sample_event_has_its_answer() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let mut writer = Function::start(BINARY, &Function::variables(&edition.dynamodb_url())).await;
    let mut answers = String::new();
    for name in [
        "writer-post-item-create-only",
        "writer-post-item-create-only",
        "writer-post-item",
        "writer-post-item-base64",
        "writer-post-batch",
        "writer-post-item-empty-partition-key",
        "writer-post-item-unknown-field",
        "writer-post-item-wrong-content-type",
        "writer-post-item-idempotency-key",
        "writer-post-item-idempotency-key",
        "writer-put-item",
        "writer-put-item-if-match",
        "writer-patch-item-merge",
        "writer-patch-item-add",
        "writer-patch-item-add",
        "writer-delete-item",
    ] {
        answers += &format!("{name}: {}\n", line(&writer.invoke(event(name)).await));
    }
    assert_snapshot!(answers);

    let made = writer.invoke(event("writer-post-item-made-sort-key")).await;
    assert_eq!(made["statusCode"], 201);
    let body: Value = serde_json::from_str(made["body"].as_str().expect("a body")).expect("JSON");
    assert_eq!(body["sort_key"].as_str().map(str::len), Some(36), "{body}");

    let (items, _) = edition.read_all("/shared/firetvGen2.txt", "&consistent=true").await;
    let keys: Vec<&str> = items.iter().filter_map(|item| item["sort_key"].as_str()).collect();
    assert!(
        keys.contains(&"123456789102")
            && !keys.contains(&"123456789101")
            && keys.contains(&body["sort_key"].as_str().expect("a key")),
        "{keys:?}"
    );
    let log = writer.stop().await;
    let metrics: Vec<Value> = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|line: &Value| line.get("_aws").is_some())
        .collect();
    let written: u64 = metrics.iter().filter_map(|line| line["ShardingWrites"].as_u64()).sum();
    assert!(written >= 8, "every stored item is counted: {log}");
    for line in &metrics {
        assert_eq!(
            (&line["TableName"], line["RequestId"].is_string()),
            (&Value::from("items"), true),
            "{line}"
        );
        let set = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(set["Namespace"], "DynamoDBWriteSharding", "{line}");
        assert!(
            !set["Dimensions"].to_string().contains("artition"),
            "a partition key is no dimension: {line}"
        );
    }
    // Every sample has attributes with these names.
    assert!(!log.contains("action") && !log.contains("bytes"), "no item body is logged: {log}");
    edition.stop().await;
}

#[tokio::test]
async fn a_table_for_other_writes_stops_the_function() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let mut variables = Function::variables(&edition.dynamodb_url());
    variables.push(("WRITES", "appends".to_owned()));
    let log = Function::refusal(BINARY, &variables).await;
    assert!(
        log.contains("it was made for \\\"items\\\"")
            && log.contains("for \\\"appends\\\"")
            && log.contains("Changing WRITES"),
        "{log}"
    );
    edition.stop().await;
}

#[tokio::test]
async fn a_wrong_variable_stops_the_function_with_its_name() {
    let mut variables = Function::variables("http://127.0.0.1:9");
    variables.push(("MAX_SHARDS", "many".to_owned()));
    let log = Function::refusal(BINARY, &variables).await;
    assert!(
        log.contains("MAX_SHARDS") && log.contains("many") && log.contains("1 to 10000"),
        "{log}"
    );

    let mut variables = Function::variables("http://127.0.0.1:9");
    variables.push(("SHARD_SCALER_FUNCTION", "the shard-scaler".to_owned()));
    let log = Function::refusal(BINARY, &variables).await;
    assert!(log.contains("SHARD_SCALER_FUNCTION") && log.contains("name or ARN"), "{log}");
}
