//! The DynamoDB-compatible port. It gives `aws dynamodb`, `sam local` and other programs the engine
//! and limits that the functions use.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use embedded_dynamodb::Engine;
use http::{HeaderName, HeaderValue, Method, StatusCode};

use crate::traffic::epoch_micros;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
/// DynamoDB's limit of a body.
const MAX_BODY_BYTES: usize = 16 * 1_024 * 1_024;

pub(crate) fn router(engine: Engine) -> Router {
    Router::new().fallback(handle).with_state(engine)
}

async fn handle(State(engine): State<Engine>, request: Request) -> Response {
    let mut response = answer(&engine, request).await;
    response.headers_mut().insert(REQUEST_ID, request_id());
    response
}

/// An id that no other request has: the time and the request's number in this process.
fn request_id() -> HeaderValue {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let id = format!("{:016X}{number:016X}", epoch_micros());
    HeaderValue::try_from(id).expect("hexadecimal digits are valid")
}

async fn answer(engine: &Engine, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if parts.method != Method::POST {
        let health = (parts.method == Method::GET).then_some("healthy: dynamodb.local\n");
        let status = if health.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
        return respond(status, "text/plain", health.unwrap_or("not found\n").into());
    }
    let Ok(body) = to_bytes(body, MAX_BODY_BYTES).await else {
        let text = "the body is over 16 MB\n".into();
        return respond(StatusCode::PAYLOAD_TOO_LARGE, "text/plain", text);
    };
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let reply = engine.for_caller(header).respond(parts.uri.path(), header("x-amz-target"), &body);
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = respond(status, reply.content_type, reply.body);
    if reply.content_type == "application/cbor" {
        response.headers_mut().insert("smithy-protocol", HeaderValue::from_static("rpc-v2-cbor"));
    }
    response
}

fn respond(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response {
    let response = Response::builder().status(status).header("content-type", content_type);
    response.body(Body::from(body)).unwrap_or_default()
}
