//! The writer's requests to wake the shard-scaler: the request to Lambda, and the handling of
//! errors.

use std::future::pending;
use std::sync::{Arc, Mutex};

use api::SdkConfig;
use aws_sdk_lambda::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::body::SdkBody;
use serde_json::Value;
use system_tests::{event, http_client};
use tokio::time::Instant;
use writer::ShardScaler;

/// A fake of Lambda in this process.
#[derive(Debug, Clone)]
struct Lambda {
    /// The status and body of every response; `None` if there is no response.
    response: Option<(u16, &'static str)>,
    /// The path, the type of invocation, and the event of each request.
    requests: Arc<Mutex<Vec<(String, String, Value)>>>,
}

impl Lambda {
    fn new(response: Option<(u16, &'static str)>) -> Self {
        Self { response, requests: Arc::default() }
    }

    fn scaler(&self) -> ShardScaler {
        let credentials = Credentials::new("test", "test", None, None, "test");
        let aws = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .endpoint_url("http://lambda.test")
            .http_client(http_client(self.clone()))
            .build();
        ShardScaler::new(&aws, "items-shard-scaler".to_owned())
    }

    fn requests(&self) -> Vec<(String, String, Value)> {
        self.requests.lock().expect("nobody panics with it").clone()
    }
}

impl HttpConnector for Lambda {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let path = request.uri().trim_start_matches("http://lambda.test").to_owned();
        let kind = request.headers().get("x-amz-invocation-type").unwrap_or_default().to_owned();
        let event =
            serde_json::from_slice(request.body().bytes().unwrap_or_default()).expect("JSON");
        self.requests.lock().expect("nobody panics with it").push((path, kind, event));
        let Some((status, body)) = self.response else {
            return HttpConnectorFuture::new(pending());
        };
        let mut response =
            HttpResponse::new(status.try_into().expect("a status"), SdkBody::from(body));
        if status == 403 {
            response.headers_mut().insert("x-amzn-errortype", "AccessDeniedException");
        }
        HttpConnectorFuture::ready(Ok(response))
    }
}

#[tokio::test(start_paused = true)]
async fn the_function_is_invoked_without_waiting_for_its_outcome() {
    let lambda = Lambda::new(Some((202, "")));
    lambda.scaler().warm(24_000).await.expect("Lambda accepts it");
    let path = "/2015-03-31/functions/items-shard-scaler/invocations".to_owned();
    // The shard-scaler's own tests use the same sample event.
    let woken = (path, "Event".to_owned(), event("shard-scaler-warm-by-writer"));
    assert_eq!(lambda.requests(), [woken]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_is_not_repeated_and_its_cause_is_named() {
    let denied = r#"{"Message":"not authorized to perform: lambda:InvokeFunction"}"#;
    let lambda = Lambda::new(Some((403, denied)));
    let error = lambda.scaler().warm(24_000).await.expect_err("refused");
    assert!(error.starts_with("Invoke: AccessDeniedException: not authorized"), "{error}");
    assert_eq!(lambda.requests().len(), 1);

    let lambda = Lambda::new(Some((500, "{}")));
    lambda.scaler().warm(24_000).await.expect_err("failed");
    assert_eq!(lambda.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_has_three_seconds() {
    let lambda = Lambda::new(None);
    let began = Instant::now();
    let error = lambda.scaler().warm(24_000).await.expect_err("no response");
    assert_eq!((error.as_str(), began.elapsed().as_secs()), ("Invoke: no response within 3 s", 3));
}
