//! `--endpoint-url`: the API over another DynamoDB server. The local edition runs as a process.

use local::ServeOptions;
use serde_json::json;
use system_tests::{TestEdition, config};

use crate::Served;

#[tokio::test(flavor = "multi_thread")]
async fn the_api_can_use_another_server() {
    let engine = TestEdition::start(ServeOptions::default(), config()).await;
    // The SDK's standard chain finds these in the environment of a user; a test must not change its
    // own, so a child process has them.
    let variables = [
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
        ("AWS_REGION", "us-east-1"),
    ];
    let url = engine.dynamodb_url();
    let served = Served::start(&["--port", "0", "--endpoint-url", &url], &variables);
    let posted = reqwest::Client::new()
        .post(format!("{}/items", served.address("API")))
        .header("content-type", "application/json")
        .body(json!({"partition_key": "k", "sort_key": "1", "attributes": {}}).to_string())
        .send()
        .await
        .expect("a response");
    assert_eq!(posted.status(), 201);
    drop(served);
    assert_eq!(engine.read_all("k", "").await.0.len(), 1, "the item is on the other server");
    engine.stop().await;
}
