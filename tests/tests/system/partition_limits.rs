//! Partition limits in the responses of the embedded engine.

use std::time::Duration;

use embedded_dynamodb::{Engine, PartitionLimits};
use serde_json::{Value, json};

const TIGHT: PartitionLimits = PartitionLimits {
    partitions: 64,
    write_units: 5.0,
    read_units: 5.0,
    provisioned_write_units: None,
    ..PartitionLimits::NEW_ON_DEMAND_TABLE
};

/// The status of the response, and its body.
fn send(engine: &Engine, operation: &str, request: &Value) -> (u16, Value) {
    let target = format!("DynamoDB_20120810.{operation}");
    let response = engine.respond("/", Some(&target), request.to_string().as_bytes());
    (response.status, serde_json::from_slice(&response.body).expect("JSON"))
}

fn put(engine: &Engine, table: &str, key: &str) -> (u16, Value) {
    send(engine, "PutItem", &json!({"TableName": table, "Item": {"pk": {"S": key}}}))
}

/// Writes to the key `hot` until its partition is over its limit. Returns the error.
fn overdraw(engine: &Engine, table: &str) -> Value {
    let mut written = (0..200).map(|_| put(engine, table, "hot"));
    written.find(|(status, _)| *status == 400).expect("200 writes were accepted").1
}

/// An engine with two tables, `on-demand` and `provisioned`.
fn tight_engine() -> Engine {
    let engine = Engine::in_memory().expect("an engine");
    engine.set_limits(["on-demand", "provisioned"].map(|name| (name.to_owned(), TIGHT)));
    engine.create_table("on-demand", "pk", None).expect("a table");
    let provisioned = json!({
        "TableName": "provisioned",
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "BillingMode": "PROVISIONED",
        "ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5},
    });
    assert_eq!(send(&engine, "CreateTable", &provisioned).0, 200);
    engine
}

#[tokio::test(start_paused = true)]
async fn a_throttle_names_its_reason_in_the_class_of_the_billing_mode() {
    let engine = tight_engine();
    for (table, class, spelling) in [
        ("on-demand", "#ThrottlingException", "throttlingReasons"),
        ("provisioned", "#ProvisionedThroughputExceededException", "ThrottlingReasons"),
    ] {
        let error = overdraw(&engine, table);
        assert!(error["__type"].as_str().is_some_and(|it| it.ends_with(class)), "{error}");
        assert_eq!(error[spelling][0]["reason"], "TableWriteKeyRangeThroughputExceeded");
        assert!(engine.traffic(table).throttled_writes > 0);
        // Another partition is not affected.
        let cold = (0..10).map(|number| put(&engine, table, &format!("cold-{number}")));
        let accepted = cold.filter(|(status, _)| *status == 200).count();
        assert!(accepted >= 8, "{accepted}");
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(put(&engine, "on-demand", "hot").0, 200, "the bucket has been refilled");
}

#[tokio::test(start_paused = true)]
async fn batches_return_what_is_throttled_and_transactions_fail_whole() {
    let engine = tight_engine();
    overdraw(&engine, "on-demand");
    let mut cold = (0..10).map(|number| format!("cold-{number}"));
    let cold = cold.find(|key| put(&engine, "on-demand", key).0 == 200).expect("most are");
    let write = |key: &str| json!({"PutRequest": {"Item": {"pk": {"S": key}}}});
    let batch = |writes: Value| {
        send(&engine, "BatchWriteItem", &json!({"RequestItems": {"on-demand": writes}}))
    };
    let (status, body) = batch(json!([write("hot"), write(&cold)]));
    assert_eq!(status, 200, "a part was processed: {body}");
    assert_eq!(body["UnprocessedItems"]["on-demand"], json!([write("hot")]));
    let (status, body) = batch(json!([write("hot")]));
    let class = body["__type"].as_str().unwrap_or_default();
    assert!(status == 400 && class.ends_with("#ThrottlingException"), "none was: {body}");

    let item = |key: &str| json!({"pk": {"S": key}, "v": {"S": "new"}});
    let action = |key: &str| json!({"Put": {"TableName": "on-demand", "Item": item(key)}});
    let transaction = json!({"TransactItems": [action("hot"), action(&cold)]});
    let (_, body) = send(&engine, "TransactWriteItems", &transaction);
    let class = body["__type"].as_str().unwrap_or_default();
    assert!(class.ends_with("#TransactionCanceledException"), "{body}");
    let codes = [0, 1].map(|at| &body["CancellationReasons"][at]["Code"]);
    assert_eq!(codes, ["ThrottlingError", "None"]);
    let get = json!({"TableName": "on-demand", "Key": {"pk": {"S": cold}}});
    let (_, body) = send(&engine, "GetItem", &get);
    assert_eq!(body["Item"], json!({"pk": {"S": cold}}), "it is as before");
}

#[tokio::test(start_paused = true)]
async fn reads_have_their_own_limit_and_batches_return_what_is_left() {
    let engine = tight_engine();
    assert_eq!(put(&engine, "on-demand", "hot").0, 200);
    let query = json!({
        "TableName": "on-demand",
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": {":p": {"S": "hot"}},
        "ConsistentRead": true,
    });
    let mut reads = (0..200).map(|_| send(&engine, "Query", &query).0);
    assert!(reads.any(|status| status == 400));
    assert!(engine.traffic("on-demand").throttled_reads > 0);
    assert_eq!(put(&engine, "on-demand", "hot").0, 200, "writes have units of their own");
    let keys = ["hot", "cold-1", "cold-2", "cold-3"].map(|key| json!({"pk": {"S": key}}));
    let request = json!({"RequestItems": {"on-demand": {"Keys": keys}}});
    let (_, body) = send(&engine, "BatchGetItem", &request);
    let left = body["UnprocessedKeys"]["on-demand"]["Keys"].as_array().expect("a part was not");
    assert!(left.contains(&keys[0]), "{body}");
}
