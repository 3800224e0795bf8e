//! AWS in this process: the embedded engine, with responses that a test defines for single
//! requests.

use std::fmt;
use std::future::pending;
use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpClient};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::body::SdkBody;
use ciborium::Value as Cbor;
use embedded_dynamodb::{Engine, InProcess, http_client};
use serde_json::Value;

#[derive(Clone)]
pub(crate) enum Reply {
    /// The engine responds.
    Engine,
    /// The engine responds, and its response takes this long to arrive.
    Late(Duration),
    /// This status and body.
    With(u16, Value),
    /// There is no response.
    Never,
}

/// This reply to every request of one operation. The engine responds to the others.
pub(crate) fn replies(
    operation: &'static str,
    reply: Reply,
) -> impl Fn(&str, &Value) -> Reply + Send + Sync + 'static {
    move |asked: &str, _: &Value| if asked == operation { reply.clone() } else { Reply::Engine }
}

/// Decides by the operation's name and the request's body.
type Replies = dyn Fn(&str, &Value) -> Reply + Send + Sync;

#[derive(Clone)]
pub(crate) struct Aws {
    engine: InProcess,
    replies: Arc<Replies>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl fmt::Debug for Aws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aws").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Aws {
    pub(crate) fn new(
        engine: &Engine,
        replies: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let engine = InProcess::new(engine.clone());
        Self { engine, replies: Arc::new(replies), asked: Arc::default() }
    }

    pub(crate) fn shared(&self) -> SharedHttpClient {
        http_client(self.clone())
    }

    /// The bodies of all requests of one operation, in order.
    pub(crate) fn asked(&self, operation: &str) -> Vec<Value> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().filter(|(name, _)| name == operation).map(|(_, body)| body.clone()).collect()
    }
}

impl HttpConnector for Aws {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").and_then(|it| it.split('.').nth(1));
        let bytes = request.body().bytes().unwrap_or_default();
        let (operation, body, in_cbor) = match target {
            Some(name) => (name.to_owned(), serde_json::from_slice(bytes).expect("JSON"), false),
            None => {
                let operation = request.uri().rsplit('/').next().unwrap_or_default().to_owned();
                let body: Cbor = ciborium::from_reader(Cursor::new(bytes)).expect("CBOR");
                (operation, serde_json::to_value(body).expect("the names are text"), true)
            }
        };
        let reply = (self.replies)(&operation, &body);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push((operation, body));
        let engine = self.engine.clone();
        HttpConnectorFuture::new(async move {
            match reply {
                Reply::Engine => engine.call(request).await,
                Reply::Late(by) => {
                    let answer = engine.call(request).await;
                    tokio::time::sleep(by).await;
                    answer
                }
                Reply::With(status, body) => Ok(response(status, &body, in_cbor)),
                Reply::Never => pending().await,
            }
        })
    }
}

fn response(status: u16, body: &Value, in_cbor: bool) -> HttpResponse {
    let status = status.try_into().expect("a status");
    if !in_cbor {
        return HttpResponse::new(status, SdkBody::from(body.to_string()));
    }
    let (body, mut bytes) = (Cbor::serialized(body).expect("a value"), Vec::new());
    ciborium::into_writer(&with_times(body, false), &mut bytes).expect("memory takes it");
    let mut response = HttpResponse::new(status, SdkBody::from(bytes));
    response.headers_mut().insert("smithy-protocol", "rpc-v2-cbor");
    response
}

/// Makes the numbers of fields named `Timestamp` or `Timestamps` times.
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is open")]
fn with_times(value: Cbor, is_time: bool) -> Cbor {
    match value {
        Cbor::Map(fields) => {
            let fields = fields.into_iter().map(|(name, value)| {
                let is_time = name.as_text().is_some_and(|name| name.starts_with("Timestamp"));
                (name, with_times(value, is_time))
            });
            Cbor::Map(fields.collect())
        }
        Cbor::Array(values) => {
            Cbor::Array(values.into_iter().map(|value| with_times(value, is_time)).collect())
        }
        number if is_time => Cbor::Tag(1, Box::new(number)),
        other => other,
    }
}
