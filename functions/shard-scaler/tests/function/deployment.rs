//! The custom resource: whether a deployment over a table that exists already is told what is wrong with that table.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::aws::{Aws, Reply};
use super::cloudformation::CloudFormation;
use embedded_dynamodb::{Engine, InProcess};
use local::{clients_over, create_tables, in_process_clients};
use serde_json::{Value, json};
use shard_scaler::{Clients, Failed, Scaler, ScalerConfig};
use sharding::{Deadline, ShardedTable, SortKeyType, TableConfig};
use system_tests::{config, event};

/// A shard-scaler that is configured so. There are the tables of the tests' own configuration; `described` is what DescribeTable answers, where it
/// is not the engine.
async fn scaler(configured: TableConfig, described: Option<(u16, Value)>) -> (Scaler, Aws) {
    let reply = move || described.clone().map_or(Reply::Engine, |(status, body)| Reply::With(status, body));
    scaler_with(configured, reply).await
}

async fn scaler_with(configured: TableConfig, described: impl Fn() -> Reply + Send + Sync + 'static) -> (Scaler, Aws) {
    let engine = Engine::in_memory().expect("an engine");
    create_tables(&in_process_clients(&InProcess::new(engine.clone())).dynamodb, &config()).await.expect("tables");
    let aws =
        Aws::new(&engine, move |operation, _| if operation == "DescribeTable" { described() } else { Reply::Engine });
    let clients = clients_over(aws.shared());
    let table = ShardedTable::new(&clients.dynamodb, configured);
    let clients = Clients { dynamodb: clients.dynamodb, cloudwatch: clients.cloudwatch };
    (Scaler::new(table, clients, ScalerConfig::default()), aws)
}

async fn send(scaler: &Scaler, event: &Value) -> Result<Value, Failed> {
    // Time for two looks at the table.
    scaler.handle(event, 1_700_000_000, Deadline::now() + Duration::from_secs(6)).await
}

#[tokio::test]
async fn a_table_with_the_configured_keys_is_a_success_and_is_put_as_the_signed_url_wants_it() {
    let cloudformation = CloudFormation::start(200).await;
    let (scaler, _) = scaler(config(), None).await;
    let sample = event("shard-scaler-deployment");
    let answer = send(&scaler, &cloudformation.ask(sample.clone())).await.expect("handled");
    assert_eq!((&answer["status"], &answer["table"]), (&json!("SUCCESS"), &json!("items")), "{answer}");
    assert!(!answer.to_string().contains("Signature"), "{answer}");

    let (put, body) = cloudformation.answer();
    assert_eq!(put.method(), "PUT");
    assert_eq!(put.uri(), "/arn%3Aaws%7CExistingTable?Signature=s%2Fecret", "the URL is not changed");
    assert_eq!(put.headers()["content-type"], "");
    assert_eq!(put.headers()["content-length"], put.body().len().to_string());
    assert!(!put.headers().contains_key("transfer-encoding"), "{put:?}");
    let expected = json!({
        "Status": "SUCCESS", "Reason": "", "PhysicalResourceId": "items", "NoEcho": false, "Data": {},
        "StackId": sample["StackId"], "RequestId": sample["RequestId"], "LogicalResourceId": "ExistingTableCheck",
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_table_that_does_not_fit_fails_with_what_was_found_and_what_is_needed() {
    let table = |status: &str, keys: Value, definitions: Value| {
        let table = json!({"TableStatus": status, "KeySchema": keys, "AttributeDefinitions": definitions});
        Some((200, json!({ "Table": table })))
    };
    let number_key = table(
        "ACTIVE",
        json!([{"AttributeName": "id", "KeyType": "HASH"}]),
        json!([{"AttributeName": "id", "AttributeType": "N"}]),
    );
    let denied = json!({"__type": "x#AccessDeniedException", "message": "not allowed: dynamodb:DescribeTable"});
    let absent = TableConfig { table_name: "orders".to_owned(), ..config() };
    let by_number = TableConfig { sort_key_type: SortKeyType::Number, ..config() };
    let rows = [
        (absent, None, ["\"orders\" does not exist", "Name one that does"]),
        (by_number, None, ["\"sort_key\" of type S; needed", "\"sort_key\" of type N"]),
        (config(), number_key, ["\"id\" of type N and no sort key; needed", "\"partition_key\" of type S"]),
        (config(), table("CREATING", json!([]), json!([])), ["\"items\" is CREATING", "ACTIVE or UPDATING"]),
        (config(), Some((400, denied)), ["AccessDeniedException", "dynamodb:DescribeTable"]),
    ];
    for (configured, described, reasons) in rows {
        let cloudformation = CloudFormation::start(200).await;
        let table_name = configured.table_name.clone();
        let (scaler, _) = scaler(configured, described).await;
        let answer = send(&scaler, &cloudformation.ask(event("shard-scaler-deployment"))).await.expect("handled");
        assert_eq!((&answer["outcome"], &answer["status"]), (&json!("handled"), &json!("FAILED")), "{answer}");
        let (_, body) = cloudformation.answer();
        assert_eq!((&body["Status"], &body["PhysicalResourceId"]), (&json!("FAILED"), &json!(table_name)), "{body}");
        let reason = body["Reason"].as_str().unwrap_or_default();
        assert!(reasons.iter().all(|part| reason.contains(part)), "{reasons:?}: {reason}");
    }
}

/// A new stack's role is not known everywhere at once.
#[tokio::test]
async fn a_right_that_comes_a_moment_later_is_waited_for() {
    let cloudformation = CloudFormation::start(200).await;
    let denied = || json!({"__type": "x#AccessDeniedException", "message": "not allowed: dynamodb:DescribeTable"});
    let first = AtomicBool::new(true);
    let reply = move || if first.swap(false, Ordering::Relaxed) { Reply::With(400, denied()) } else { Reply::Engine };
    let (scaler, aws) = scaler_with(config(), reply).await;
    let answer = send(&scaler, &cloudformation.ask(event("shard-scaler-deployment"))).await.expect("handled");
    assert_eq!(answer["status"], "SUCCESS", "{answer}");
    assert_eq!(aws.asked("DescribeTable").len(), 2);
}

#[tokio::test]
async fn a_table_that_cannot_be_described_in_time_fails_too_for_nobody_else_would_answer() {
    let cloudformation = CloudFormation::start(200).await;
    let (scaler, _) = scaler_with(config(), || Reply::Never).await;
    let deadline = Deadline::now() + Duration::from_millis(3_300);
    let event = cloudformation.ask(event("shard-scaler-deployment"));
    let answer = scaler.handle(&event, 1_700_000_000, deadline).await.expect("handled");
    assert_eq!(answer["status"], "FAILED", "{answer}");
    assert!(cloudformation.answer().1["Reason"].as_str().unwrap_or_default().contains("no answer in time"));
}

#[tokio::test]
async fn a_deletion_succeeds_without_a_look_at_the_table() {
    let cloudformation = CloudFormation::start(200).await;
    let (scaler, aws) = scaler(TableConfig { table_name: "orders".to_owned(), ..config() }, None).await;
    let mut deletion = event("shard-scaler-deployment");
    deletion["RequestType"] = "Delete".into();
    deletion["PhysicalResourceId"] = "items-of-before".into();
    let answer = send(&scaler, &cloudformation.ask(deletion)).await.expect("handled");
    assert_eq!((&answer["request"], &answer["status"]), (&json!("Delete"), &json!("SUCCESS")), "{answer}");
    assert_eq!(cloudformation.answer().1["PhysicalResourceId"], "items-of-before");
    assert!(aws.asked("DescribeTable").is_empty(), "{aws:?}");
}

#[tokio::test]
async fn an_answer_that_cannot_be_sent_is_an_error_so_that_lambda_repeats_the_event() {
    let refusing = CloudFormation::start(403).await;
    let (scaler, _) = scaler(config(), None).await;
    let failed = send(&scaler, &refusing.ask(event("shard-scaler-deployment"))).await.expect_err("not taken");
    assert_eq!(failed.to_string(), "deployment failed: ResponseURL: status 403");
    let answer = failed.into_answer();
    assert_eq!((&answer["outcome"], &answer["status"]), (&json!("failed"), &json!("SUCCESS")), "{answer}");

    let mut gone = event("shard-scaler-deployment");
    gone["ResponseURL"] = "http://127.0.0.1:1/?Signature=secret".into();
    let failed = send(&scaler, &gone).await.expect_err("nobody is there");
    assert_eq!(failed.to_string(), "deployment failed: ResponseURL: the connection failed");
}

#[tokio::test]
async fn a_response_url_that_is_not_safe_is_refused_and_not_shown() {
    let (scaler, aws) = scaler(config(), None).await;
    let mut unsafe_url = event("shard-scaler-deployment");
    unsafe_url["ResponseURL"] = "http://bucket.example.com/?Signature=secret".into();
    let answer = send(&scaler, &unsafe_url).await.expect("refused");
    assert_eq!((&answer["outcome"], &answer["field"]), (&json!("refused"), &json!("ResponseURL")), "{answer}");
    assert!(!answer.to_string().contains("Signature"), "{answer}");
    assert!(aws.asked("DescribeTable").is_empty(), "{aws:?}");
}
