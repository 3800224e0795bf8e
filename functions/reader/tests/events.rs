//! Runs the reader's binary as a Lambda process, with every sample event, against the local
//! edition's DynamoDB port.

use insta::assert_snapshot;
use local::ServeOptions;
use serde_json::{Value, json};
use system_tests::{
    Function, TestEdition, config, count, event, partition_key, soon, store_plainly,
};

const BINARY: &str = env!("CARGO_BIN_EXE_reader");

#[tokio::test]
async fn every_sample_event_has_its_answer() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    for time in 123_456_789_101u64..123_456_789_104 {
        let item = json!({"partition_key": "/shared/firetvGen2.txt", "sort_key": time.to_string(), "attributes": {"bytes": time % 7}});
        assert_eq!(edition.post("/items", &item).await.status, 201);
    }
    edition.table().finish_background_work().await;
    let mut reader = Function::start(BINARY, &Function::variables(&edition.dynamodb_url())).await;
    let mut answers = String::new();
    let samples = "
        reader-get-items reader-get-items-range reader-get-items-bad-cursor
        reader-get-items-limit-zero reader-get-item reader-get-item-not-modified
        reader-get-item-absent reader-get-shards-never-grown reader-unknown-parameter
    ";
    for name in samples.split_whitespace() {
        let response = reader.invoke(event(name)).await;
        let body = response["body"].as_str().unwrap_or("no body");
        answers += &format!("{name}: {} {body}\n", response["statusCode"]);
    }
    assert_snapshot!(answers);

    let key = partition_key("/shared/firetvGen2.txt");
    edition.table().until(soon()).grow(&key, count(4)).await.expect("grown");
    let shards = reader.invoke(event("reader-get-shards")).await;
    let body: Value = serde_json::from_str(shards["body"].as_str().expect("a body")).expect("JSON");
    for (member, expected) in [
        ("/number_of_shards", json!(4)),
        ("/read_shards", json!(4)),
        ("/grown", json!(true)),
        ("/shard_history/0/count", json!(1)),
        ("/shard_history/1/count", json!(4)),
        // The edition's shard-scaler has published it.
        ("/warm_throughput", json!({"write_units": 4_000, "read_units": 12_000})),
    ] {
        assert_eq!(body.pointer(member), Some(&expected), "{member}: {body}");
    }
}

/// A program that goes around the product is counted where it shows: it has replaced an item of an
/// armed key, or stored one where only the product does.
#[tokio::test]
async fn a_program_that_goes_around_is_counted() {
    let edition = TestEdition::start(ServeOptions::default(), config()).await;
    let stored = json!({"partition_key": "k", "sort_key": "s", "attributes": {"n": 1}});
    assert_eq!(edition.post("/items", &stored).await.status, 201);
    edition.table().until(soon()).grow(&partition_key("k"), count(2)).await.expect("grown");
    let aws = connection::server::configuration_for(&edition.dynamodb_url()).await;
    let client = aws_sdk_dynamodb::Client::new(&aws);
    for stored_key in ["k", "k\u{1f}s2"] {
        store_plainly(&client, stored_key, "s", 1).await;
    }
    let mut reader = Function::start(BINARY, &Function::variables(&edition.dynamodb_url())).await;
    let mut get = event("reader-get-items");
    get["queryStringParameters"] = json!({"partition_key": "k"});
    get["rawQueryString"] = json!("partition_key=k");
    assert_eq!(reader.invoke(get).await["statusCode"], 200);
    let log = reader.stop().await;
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let counted = lines.filter_map(|line| line["ShardingForeignItems"].as_u64());
    assert_eq!(counted.sum::<u64>(), 2, "{log}");
}
