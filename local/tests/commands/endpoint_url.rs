//! `--endpoint-url`: the API over another DynamoDB server. The local edition runs as a process.

use std::process::Command;

use local::ServeOptions;
use serde_json::json;
use system_tests::{TestEdition, config};

#[tokio::test(flavor = "multi_thread")]
async fn the_api_can_use_another_server() {
    let engine = TestEdition::start(ServeOptions::default(), config()).await;
    // The SDK's standard chain finds these in the environment of a user; a test must not change its
    // own, so a child process has them.
    let mut child = Command::new(env!("CARGO_BIN_EXE_local"));
    child.args(["serve", "--port", "0", "--endpoint-url", &engine.dynamodb_url()]);
    child
        .env("AWS_ACCESS_KEY_ID", "local")
        .env("AWS_SECRET_ACCESS_KEY", "local")
        .env("AWS_REGION", "us-east-1");
    child.stdout(std::process::Stdio::piped());
    let mut child = child.spawn().expect("the local edition starts");
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("its output")));
    let api = lines
        .find_map(|line| line.ok()?.strip_prefix("API").map(|rest| rest.trim().to_owned()))
        .expect("its address");
    let posted = reqwest::Client::new()
        .post(format!("{api}/items"))
        .header("content-type", "application/json")
        .body(json!({"partition_key": "k", "sort_key": "1", "attributes": {}}).to_string())
        .send()
        .await
        .expect("a response");
    assert_eq!(posted.status(), 201);
    child.kill().expect("it is stopped");
    child.wait().expect("it has ended");
    assert_eq!(engine.read_all("k", "").await.0.len(), 1, "the item is on the other server");
    engine.stop().await;
}
