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
    let names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"];
    let variables = names.map(|name| (name, "local"));
    let url = engine.dynamodb_url();
    let served = Served::start(&["--port", "0", "--endpoint-url", &url], &variables);
    let item = json!({"partition_key": "k", "sort_key": "1", "attributes": {}});
    let post = reqwest::Client::new().post(format!("{}/items", served.address("API"))).json(&item);
    assert_eq!(post.send().await.expect("a response").status(), 201);
    drop(served);
    assert_eq!(engine.read_all("k", "").await.0.len(), 1, "the item is on the other server");
    engine.stop().await;
}
