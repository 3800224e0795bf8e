//! Partition limits as a program sees them through the real SDK and the DynamoDB-compatible port.

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, KeysAndAttributes,
    ProvisionedThroughput, Put, PutRequest, ScalarAttributeType, TransactWriteItem, WriteRequest,
};
use aws_sdk_dynamodb::{Client, Config};
use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use local::ServeOptions;
use system_tests::{TestEdition, config};

const TIGHT: PartitionLimits = PartitionLimits {
    partitions: 64,
    write_units: 5.0,
    read_units: 5.0,
    provisioned_write_units: None,
    split_after: None,
    doubles_after: None,
    ..PartitionLimits::NEW_ON_DEMAND_TABLE
};

fn client(endpoint_url: &str, in_process: Option<InProcess>) -> Client {
    let base = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("local"))
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .endpoint_url(endpoint_url)
        .retry_config(RetryConfig::disabled());
    Client::from_conf(match in_process {
        Some(connector) => base.http_client(connector.into_shared()).build(),
        None => base.http_client(aws_smithy_http_client::Builder::new().build_http()).build(),
    })
}

async fn table(client: &Client, name: &str, billing: BillingMode) {
    let mut create = client
        .create_table()
        .table_name(name)
        .attribute_definitions(
            AttributeDefinition::builder()
                .attribute_name("pk")
                .attribute_type(ScalarAttributeType::S)
                .build()
                .expect("built"),
        )
        .key_schema(
            KeySchemaElement::builder()
                .attribute_name("pk")
                .key_type(KeyType::Hash)
                .build()
                .expect("built"),
        )
        .billing_mode(billing.clone());
    if billing == BillingMode::Provisioned {
        let units = ProvisionedThroughput::builder()
            .read_capacity_units(5)
            .write_capacity_units(5)
            .build()
            .expect("built");
        create = create.provisioned_throughput(units);
    }
    create.send().await.expect("the table is created");
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

/// Writes to one key until its partition is over its limit. Returns the error's code and its raw
/// body.
async fn overdraw(client: &Client, table: &str, key: &str) -> (String, String) {
    for _ in 0..200 {
        if let Err(error) = client.put_item().table_name(table).item("pk", text(key)).send().await {
            let body = error
                .raw_response()
                .and_then(|raw| raw.body().bytes())
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            let code = aws_sdk_dynamodb::error::ProvideErrorMetadata::code(&error)
                .unwrap_or_default()
                .to_owned();
            return (code, body.unwrap_or_default());
        }
    }
    panic!("200 writes were accepted");
}

fn tight_engine() -> (Engine, Client) {
    let engine = Engine::in_memory().expect("an engine");
    engine.set_limits(["on-demand", "provisioned"].map(|name| (name.to_owned(), TIGHT)));
    let client = client("http://embedded", Some(InProcess::new(engine.clone())));
    (engine, client)
}

#[tokio::test(start_paused = true)]
async fn a_throttle_names_its_reason_in_the_class_of_the_billing_mode() {
    let (engine, client) = tight_engine();
    table(&client, "on-demand", BillingMode::PayPerRequest).await;
    table(&client, "provisioned", BillingMode::Provisioned).await;
    for (table, class, spelling) in [
        ("on-demand", "ThrottlingException", "\"throttlingReasons\""),
        ("provisioned", "ProvisionedThroughputExceededException", "\"ThrottlingReasons\""),
    ] {
        let (code, body) = overdraw(&client, table, "hot").await;
        assert_eq!(code, class);
        assert!(
            body.contains(spelling) && body.contains("TableWriteKeyRangeThroughputExceeded"),
            "{body}"
        );
        assert!(engine.traffic(table).throttled_writes > 0);
        // Another partition is not affected.
        let other = (0..).map(|i| format!("cold-{i}"));
        let mut accepted = 0;
        for key in other.take(10) {
            accepted += u32::from(
                client.put_item().table_name(table).item("pk", text(&key)).send().await.is_ok(),
            );
        }
        assert!(accepted >= 8, "{accepted}");
    }
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    client
        .put_item()
        .table_name("on-demand")
        .item("pk", text("hot"))
        .send()
        .await
        .expect("the bucket has been refilled");
}

#[tokio::test(start_paused = true)]
async fn batches_return_what_is_throttled_and_transactions_fail_whole() {
    let (_, client) = tight_engine();
    table(&client, "on-demand", BillingMode::PayPerRequest).await;
    overdraw(&client, "on-demand", "hot").await;
    let put = |key: &str| {
        WriteRequest::builder()
            .put_request(PutRequest::builder().item("pk", text(key)).build().expect("built"))
            .build()
    };
    let mut cold = (0..).map(|i| format!("cold-{i}"));
    let mut probe = String::new();
    for _ in 0..10 {
        probe = cold.next().expect("endless");
        if client.put_item().table_name("on-demand").item("pk", text(&probe)).send().await.is_ok() {
            break;
        }
    }
    let response = client
        .batch_write_item()
        .request_items("on-demand", vec![put("hot"), put(&probe)])
        .send()
        .await
        .expect("a part was processed");
    let left = response
        .unprocessed_items()
        .and_then(|left| left.get("on-demand"))
        .expect("a part was not");
    assert_eq!(
        left.iter()
            .filter_map(|request| request.put_request()?.item().get("pk"))
            .collect::<Vec<_>>(),
        [&text("hot")]
    );

    let whole = client
        .batch_write_item()
        .request_items("on-demand", vec![put("hot")])
        .send()
        .await
        .expect_err("nothing was processed");
    assert!(
        whole.as_service_error().is_some_and(|error| error.is_throttling_exception()),
        "{whole:?}"
    );

    let action = |key: &str| {
        TransactWriteItem::builder()
            .put(
                Put::builder()
                    .table_name("on-demand")
                    .item("pk", text(key))
                    .item("v", text("new"))
                    .build()
                    .expect("built"),
            )
            .build()
    };
    let error = client
        .transact_write_items()
        .transact_items(action("hot"))
        .transact_items(action(&probe))
        .send()
        .await
        .expect_err("cancelled");
    let aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError::TransactionCanceledException(
        cancelled,
    ) = error.into_service_error()
    else {
        panic!("not cancelled");
    };
    let codes: Vec<_> =
        cancelled.cancellation_reasons().iter().filter_map(|reason| reason.code()).collect();
    assert_eq!(codes, ["ThrottlingError", "None"]);
    let untouched = client
        .get_item()
        .table_name("on-demand")
        .key("pk", text(&probe))
        .send()
        .await
        .expect("read");
    assert_eq!(untouched.item().and_then(|item| item.get("v")), None);
}

#[tokio::test(start_paused = true)]
async fn reads_have_their_own_limit_and_batches_return_what_is_left() {
    let (engine, client) = tight_engine();
    table(&client, "on-demand", BillingMode::PayPerRequest).await;
    client.put_item().table_name("on-demand").item("pk", text("hot")).send().await.expect("stored");
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
    client
        .put_item()
        .table_name("on-demand")
        .item("pk", text("hot"))
        .send()
        .await
        .expect("writes have units of their own");
    let mut keys = KeysAndAttributes::builder();
    for key in ["hot", "cold-1", "cold-2", "cold-3"] {
        keys = keys.keys(std::collections::HashMap::from([("pk".to_owned(), text(key))]));
    }
    let response = client
        .batch_get_item()
        .request_items("on-demand", keys.build().expect("built"))
        .send()
        .await
        .expect("a part was read");
    let left =
        response.unprocessed_keys().and_then(|left| left.get("on-demand")).expect("a part was not");
    assert!(left.keys().iter().any(|key| key.get("pk") == Some(&text("hot"))));
}

#[tokio::test]
async fn the_port_gives_the_same_data_and_has_the_same_limits() {
    let options =
        ServeOptions { partitions: 64, partition_write_units: 5, ..ServeOptions::default() };
    let edition = TestEdition::start(options, config()).await;
    let stored = edition
        .post(
            "/items",
            &serde_json::json!({"partition_key": "k", "sort_key": "s", "attributes": {"n": 1}}),
        )
        .await;
    assert_eq!(stored.status, 201);
    let client = client(&edition.dynamodb_url(), None);
    let item = client
        .get_item()
        .table_name("items")
        .key("partition_key", text("k"))
        .key("sort_key", text("s"))
        .send()
        .await
        .expect("read");
    assert!(item.item().is_some_and(|item| item.contains_key("_sh:v")));
    let mut throttled = false;
    for i in 0..50 {
        let put = client
            .put_item()
            .table_name("items")
            .item("partition_key", text("k"))
            .item("sort_key", text(&i.to_string()));
        throttled |= put.send().await.is_err();
    }
    assert!(throttled, "the port must have the limits, too");
    edition.stop().await;
}
