//! A proxy between a function's binary and the local edition's port. The test itself responds to
//! some operations of AWS's services.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::net::TcpListener;

/// The test's response to an operation and the body of its request, as status and body, or `None`
/// for the edition's own response.
type Responses = dyn Fn(&str, &[u8]) -> Option<(u16, Value)> + Send + Sync;

/// The proxy. It ends with the test's runtime.
#[derive(Debug)]
pub struct Services {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
struct Port {
    responses: Arc<Responses>,
    asked: Arc<Mutex<Vec<String>>>,
    edition: String,
    http: reqwest::Client,
}

impl Services {
    /// Starts a proxy in front of the edition's port. `responses` gets the name of an operation, for
    /// example `DescribeTable`, and the body of its request.
    pub async fn start(
        edition: &str,
        responses: impl Fn(&str, &[u8]) -> Option<(u16, Value)> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("the port is known"));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let port = Port {
            responses: Arc::new(responses),
            asked: Arc::clone(&asked),
            edition: edition.to_owned(),
            http: reqwest::Client::new(),
        };
        let routes = Router::new().fallback(handle).with_state(port);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, asked }
    }

    /// The URL of the proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The operations so far, in order.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn handle(State(port): State<Port>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok());
    let in_cbor = target.is_none();
    let operation = match target {
        Some(target) => target.rsplit('.').next(),
        None => uri.path().rsplit('/').next(),
    };
    let operation = operation.unwrap_or_default();
    port.asked.lock().unwrap_or_else(PoisonError::into_inner).push(operation.to_owned());
    match (port.responses)(operation, &body) {
        Some((status, value)) => respond(status, in_cbor, &value),
        None => forward(&port, &uri, headers, body).await,
    }
}

fn respond(status: u16, in_cbor: bool, value: &Value) -> Response {
    let status = StatusCode::from_u16(status).expect("a status");
    if !in_cbor {
        return (status, [("content-type", "application/x-amz-json-1.0")], value.to_string())
            .into_response();
    }
    let mut body = Vec::new();
    ciborium::into_writer(value, &mut body).expect("memory takes it");
    (status, [("content-type", "application/cbor"), ("smithy-protocol", "rpc-v2-cbor")], body)
        .into_response()
}

async fn forward(port: &Port, uri: &Uri, mut headers: HeaderMap, body: Bytes) -> Response {
    headers.remove("host");
    let request =
        port.http.post(format!("{}{}", port.edition, uri.path())).headers(headers).body(body);
    let response = request.send().await.expect("the edition responds");
    let (status, headers) = (response.status(), response.headers().clone());
    (status, headers, response.bytes().await.expect("the response is complete")).into_response()
}
