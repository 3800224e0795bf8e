//! Partition limits as a program sees them through the real SDK and the DynamoDB-compatible port.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, KeysAndAttributes, Put, PutRequest, TransactWriteItem, WriteRequest,
};
use embedded_dynamodb::{Engine, PartitionLimits};
use local::ServeOptions;
use serde_json::json;
use system_tests::{TestEdition, config};

const TIGHT: PartitionLimits = PartitionLimits {
    partitions: 64,
    write_units: 5.0,
    read_units: 5.0,
    provisioned_write_units: None,
    ..PartitionLimits::NEW_ON_DEMAND_TABLE
};

/// A client of this engine that does not repeat requests.
fn client(engine: &Engine) -> Builder {
    Builder::from(&engine.sdk_config()).retry_config(RetryConfig::disabled())
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn put(client: &Client, table: &str, key: &str) -> PutItemFluentBuilder {
    client.put_item().table_name(table).item("pk", text(key))
}

/// Writes to the key `hot` until its partition is over its limit. Returns the error's code and its
/// raw body.
async fn overdraw(client: &Client, table: &str) -> (String, String) {
    for _ in 0..200 {
        if let Err(error) = put(client, table, "hot").send().await {
            let body = error.raw_response().and_then(|raw| raw.body().bytes()).unwrap_or_default();
            let code = error.code().unwrap_or_default().to_owned();
            return (code, String::from_utf8_lossy(body).into_owned());
        }
    }
    panic!("200 writes were accepted");
}

/// An engine with two tables, `on-demand` and `provisioned`.
fn tight_engine() -> (Engine, Client) {
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
    let create = Some("DynamoDB_20120810.CreateTable");
    let created = engine.respond("/", create, provisioned.to_string().as_bytes());
    assert_eq!(created.status, 200);
    let client = Client::from_conf(client(&engine).build());
    (engine, client)
}

#[tokio::test(start_paused = true)]
async fn a_throttle_names_its_reason_in_the_class_of_the_billing_mode() {
    let (engine, client) = tight_engine();
    for (table, class, spelling) in [
        ("on-demand", "ThrottlingException", "\"throttlingReasons\""),
        ("provisioned", "ProvisionedThroughputExceededException", "\"ThrottlingReasons\""),
    ] {
        let (code, body) = overdraw(&client, table).await;
        assert_eq!(code, class);
        assert!(body.contains(spelling), "{body}");
        assert!(body.contains("TableWriteKeyRangeThroughputExceeded"), "{body}");
        assert!(engine.traffic(table).throttled_writes > 0);
        // Another partition is not affected.
        let mut accepted = 0;
        for number in 0..10 {
            let written = put(&client, table, &format!("cold-{number}")).send().await;
            accepted += u32::from(written.is_ok());
        }
        assert!(accepted >= 8, "{accepted}");
    }
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    put(&client, "on-demand", "hot").send().await.expect("the bucket has been refilled");
}

#[tokio::test(start_paused = true)]
async fn batches_return_what_is_throttled_and_transactions_fail_whole() {
    let (_, client) = tight_engine();
    overdraw(&client, "on-demand").await;
    let write = |key: &str| {
        let put = PutRequest::builder().item("pk", text(key)).build().expect("built");
        WriteRequest::builder().put_request(put).build()
    };
    let batch = async |writes: Vec<WriteRequest>| {
        client.batch_write_item().request_items("on-demand", writes).send().await
    };
    let mut probe = String::new();
    for number in 0..10 {
        probe = format!("cold-{number}");
        if put(&client, "on-demand", &probe).send().await.is_ok() {
            break;
        }
    }
    let response = batch(vec![write("hot"), write(&probe)]).await.expect("a part was processed");
    let left = &response.unprocessed_items().expect("a part was not")["on-demand"];
    let left: Vec<_> = left.iter().filter_map(|one| one.put_request()?.item().get("pk")).collect();
    assert_eq!(left, [&text("hot")]);

    let whole = batch(vec![write("hot")]).await.expect_err("nothing was processed");
    let is_throttled = whole.as_service_error().is_some_and(|it| it.is_throttling_exception());
    assert!(is_throttled, "{whole:?}");

    let action = |key: &str| {
        let put = Put::builder().table_name("on-demand").item("pk", text(key));
        let put = put.item("v", text("new")).build().expect("built");
        TransactWriteItem::builder().put(put).build()
    };
    let transaction = client.transact_write_items();
    let transaction = transaction.transact_items(action("hot")).transact_items(action(&probe));
    let error = transaction.send().await.expect_err("cancelled").into_service_error();
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = &error else {
        panic!("{error:?}");
    };
    let codes: Vec<_> =
        cancelled.cancellation_reasons().iter().filter_map(|reason| reason.code()).collect();
    assert_eq!(codes, ["ThrottlingError", "None"]);
    let get = client.get_item().table_name("on-demand").key("pk", text(&probe));
    let untouched = get.send().await.expect("read");
    assert_eq!(untouched.item().and_then(|item| item.get("v")), None);
}

#[tokio::test(start_paused = true)]
async fn reads_have_their_own_limit_and_batches_return_what_is_left() {
    let (engine, client) = tight_engine();
    put(&client, "on-demand", "hot").send().await.expect("stored");
    let mut throttled = false;
    for _ in 0..200 {
        let read = client
            .query()
            .table_name("on-demand")
            .key_condition_expression("pk = :p")
            .expression_attribute_values(":p", text("hot"));
        throttled |= read.consistent_read(true).send().await.is_err();
    }
    assert!(throttled && engine.traffic("on-demand").throttled_reads > 0);
    put(&client, "on-demand", "hot").send().await.expect("writes have units of their own");
    let mut keys = KeysAndAttributes::builder();
    for key in ["hot", "cold-1", "cold-2", "cold-3"] {
        keys = keys.keys(std::collections::HashMap::from([("pk".to_owned(), text(key))]));
    }
    let batch = client.batch_get_item().request_items("on-demand", keys.build().expect("built"));
    let response = batch.send().await.expect("a part was read");
    let left = &response.unprocessed_keys().expect("a part was not")["on-demand"];
    assert!(left.keys().iter().any(|key| key.get("pk") == Some(&text("hot"))));
}

#[tokio::test]
async fn the_port_gives_the_same_data_and_has_the_same_limits() {
    let options =
        ServeOptions { partitions: 64, partition_write_units: 5, ..ServeOptions::default() };
    let edition = TestEdition::start(options, config()).await;
    let item = json!({"partition_key": "k", "sort_key": "s", "attributes": {"n": 1}});
    assert_eq!(edition.post("/items", &item).await.status, 201);
    let http = aws_smithy_http_client::Builder::new().build_http();
    let over_the_port = client(edition.engine()).http_client(http);
    let client = Client::from_conf(over_the_port.endpoint_url(edition.dynamodb_url()).build());
    let get = client.get_item().table_name("items").key("partition_key", text("k"));
    let item = get.key("sort_key", text("s")).send().await.expect("read");
    assert!(item.item().is_some_and(|item| item.contains_key("_sh:v")));
    let mut throttled = false;
    for i in 0..50 {
        let put = client.put_item().table_name("items").item("partition_key", text("k"));
        throttled |= put.item("sort_key", text(&i.to_string())).send().await.is_err();
    }
    assert!(throttled, "the port must have the limits, too");
}
