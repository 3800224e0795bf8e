//! A connection on which a test decides the fate of each request.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpClient};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use embedded_dynamodb::{InProcess, http_client};
use serde_json::Value;
use sharding::internal::{Clock, protocol::view::Moment};
use tokio::time::Instant;

/// A request in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The operation, for example `PutItem`.
    pub operation: String,
    /// Whether it concerns the main table of the tests.
    pub to_items: bool,
    /// The partition key of its item, as it is stored.
    pub key: Option<String>,
    /// Its index, if it names one.
    pub index: Option<String>,
    /// The number of keys of a `BatchGetItem`.
    pub keys: usize,
    /// The number of earlier calls of the same operation to the same table.
    pub before: usize,
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is applied, and the response is returned.
    Pass,
    /// It is applied after this time, and the response is returned.
    Hold(Duration),
    /// It is applied, and the response is lost.
    LoseResponse,
    /// It is applied, and the response is returned after this time.
    Delay(Duration),
    /// It is applied after this time, without any response.
    Late(Duration),
    /// It is not applied, and the response has this body and status 400.
    Refuse(&'static str),
    /// It is not applied, and the response has this body and status 200.
    Answer(&'static str),
}

/// The connection.
#[derive(Clone)]
pub struct Wire {
    inner: InProcess,
    decide: Arc<dyn Fn(&Call) -> Fate + Send + Sync>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Wire {
    /// A wire in front of this connection.
    pub fn new(inner: InProcess, decide: impl Fn(&Call) -> Fate + Send + Sync + 'static) -> Self {
        Self { inner, decide: Arc::new(decide), calls: Arc::default() }
    }

    /// As an HTTP client for an SDK configuration.
    pub fn into_shared(self) -> SharedHttpClient {
        http_client(self)
    }

    /// The calls so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("no panic").clone()
    }

    /// The operations on the main table so far, in order.
    pub fn operations(&self) -> Vec<String> {
        self.calls().into_iter().filter(|call| call.to_items).map(|call| call.operation).collect()
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let operation =
            request.headers().get("x-amz-target").and_then(|target| target.split('.').nth(1));
        let operation = operation.unwrap_or_default().to_owned();
        let body: Value =
            serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap_or_default();
        let to_items = body["TableName"] == "items" || !body["RequestItems"]["items"].is_null();
        let named = if body["Item"].is_object() { &body["Item"] } else { &body["Key"] };
        let key = named["partition_key"]["S"].as_str().map(str::to_owned);
        let index = body["IndexName"].as_str().map(str::to_owned);
        let keys = body["RequestItems"]["items"]["Keys"].as_array().map_or(0, Vec::len);
        let call = {
            let mut calls = self.calls.lock().expect("no panic");
            let is_same = |call: &&Call| call.operation == operation && call.to_items == to_items;
            let before = calls.iter().filter(is_same).count();
            let call = Call { operation, to_items, key, index, keys, before };
            calls.push(call.clone());
            call
        };
        let fate = (self.decide)(&call);
        let inner = self.inner.clone();
        HttpConnectorFuture::new(async move {
            match fate {
                Fate::Pass => inner.call(request).await,
                Fate::Hold(time) => {
                    tokio::time::sleep(time).await;
                    inner.call(request).await
                }
                Fate::LoseResponse => {
                    drop(inner.call(request).await?);
                    Err(ConnectorError::io("the connection broke".into()))
                }
                Fate::Delay(time) => {
                    let response = inner.call(request).await;
                    tokio::time::sleep(time).await;
                    response
                }
                Fate::Late(time) => {
                    tokio::spawn(async move {
                        tokio::time::sleep(time).await;
                        drop(inner.call(request).await);
                    });
                    std::future::pending().await
                }
                Fate::Refuse(body) => respond(400, body),
                Fate::Answer(body) => respond(200, body),
            }
        })
    }
}

/// A response of a server.
pub(crate) fn respond(
    status: u16,
    body: impl Into<SdkBody>,
) -> Result<HttpResponse, ConnectorError> {
    let status = status.try_into().map_err(|error| ConnectorError::other(Box::new(error), None))?;
    Ok(HttpResponse::new(status, body.into()))
}

/// A clock that follows tokio's clock, and that a test can put forward.
#[derive(Debug, Clone)]
pub struct TestClock {
    origin: Instant,
    ahead: Arc<Mutex<Duration>>,
}

impl Default for TestClock {
    fn default() -> Self {
        Self { origin: Instant::now(), ahead: Arc::default() }
    }
}

impl TestClock {
    /// Puts the clock forward, as if the process had been frozen.
    pub fn jump(&self, by: Duration) {
        *self.ahead.lock().expect("no panic") += by;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        let elapsed = self.origin.elapsed();
        let ahead = *self.ahead.lock().expect("no panic");
        Moment { monotonic: elapsed, wall: Duration::from_secs(1_700_000_000) + elapsed + ahead }
    }
}
