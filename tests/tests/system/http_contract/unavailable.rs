//! The responses when the server behind the API has no capacity or rejects requests. A 503 says
//! when to retry, and a 500 reveals no internals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use local::ServeOptions;
use serde_json::{Value, json};
use system_tests::{Response, Services, TestEdition, config};

use super::{CREATE_ONLY, ITEM, JSON, assert_problem, json_body, start};

const THROTTLED: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"hot","throttlingReasons":[{"reason":"TableWriteKeyRangeThroughputExceeded","resource":"arn"}]}"#;
const DENIED: &str = r#"{"__type":"com.amazon.coral.service#AccessDeniedException","message":"User arn:aws:iam::1:role/secret is not authorized"}"#;

/// The responses of every route that reads or writes items, while the server returns this error.
async fn responses_with(error_body: &'static str) -> Vec<(String, Response)> {
    let behind = start(config()).await;
    let server = std::env::var("DYNAMODB_ENDPOINT").unwrap_or_else(|_| behind.dynamodb_url());
    let error: Value = serde_json::from_str(error_body).expect("JSON");
    let shut: Arc<AtomicBool> = Arc::default();
    let is_shut = Arc::clone(&shut);
    let services = Services::start(&server, move |_, body| {
        // A write first needs a view, so the metadata stays readable.
        let about_items = !String::from_utf8_lossy(body).contains("-metadata\"");
        (is_shut.load(Ordering::Relaxed) && about_items).then(|| (400, error.clone()))
    })
    .await;
    let endpoint_url = Some(services.url().to_owned());
    let names = behind.table().config().clone();
    let edition =
        TestEdition::start(ServeOptions { endpoint_url, ..ServeOptions::default() }, names).await;
    shut.store(true, Ordering::Relaxed);
    let item = json_body(&json!({"partition_key": "k", "sort_key": "s", "attributes": {}}));
    let attributes = json_body(&json!({"attributes": {}}));
    let requests: [(&str, &str, &[_], _); 6] = [
        ("POST", "/items", &[JSON], item.clone()),
        ("POST", "/items", &[JSON, CREATE_ONLY], item),
        ("PUT", ITEM, &[JSON], attributes),
        ("DELETE", ITEM, &[], None),
        ("GET", ITEM, &[], None),
        ("GET", "/items?partition_key=k", &[], None),
    ];
    let sent = requests
        .iter()
        .map(|(method, path, headers, body)| edition.send(method, path, headers, body.clone()));
    let responses = join_all(sent).await;
    shut.store(false, Ordering::Relaxed);
    assert!(edition.read_all("k", "&consistent=true").await.0.is_empty(), "nothing may be stored");
    let routes = requests.iter().map(|(method, path, ..)| format!("{method} {path}"));
    routes.zip(responses).collect()
}

#[tokio::test]
async fn without_capacity_the_response_asks_for_a_retry() {
    for (route, response) in responses_with(THROTTLED).await {
        assert_problem(&response, 503, "no_capacity", None, &route);
        assert_eq!(response.headers["retry-after"], "1", "{route}");
        let detail = response.body["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("key-range"), "{route}: {detail}");
    }
}

#[tokio::test]
async fn an_internal_error_reveals_no_internals() {
    for (route, response) in responses_with(DENIED).await {
        assert_problem(&response, 500, "internal_error", None, &route);
        let text = response.body.to_string();
        let internals = ["secret", "AccessDenied", "arn"];
        assert!(!internals.iter().any(|internal| text.contains(internal)), "{route}: {text}");
    }
}
