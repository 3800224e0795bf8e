//! The DynamoDB-compatible port. It gives `aws dynamodb`, `sam local` and other programs the engine
//! and limits that the functions use.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use embedded_dynamodb::Engine;
use http::{Method, StatusCode};

/// DynamoDB's limit of a body.
const MAX_BODY_BYTES: usize = 16 * 1_024 * 1_024;

pub(crate) fn router(engine: Engine) -> Router {
    Router::new().fallback(handle).with_state(engine)
}

async fn handle(State(engine): State<Engine>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if parts.method != Method::POST {
        let health = (parts.method == Method::GET).then_some("healthy: dynamodb.local\n");
        let status = if health.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
        return respond(status, "text/plain", health.unwrap_or("not found\n").into());
    }
    let Ok(body) = to_bytes(body, MAX_BODY_BYTES).await else {
        return respond(
            StatusCode::PAYLOAD_TOO_LARGE,
            "text/plain",
            "the body is over 16 MB\n".into(),
        );
    };
    let target = parts.headers.get("x-amz-target").and_then(|value| value.to_str().ok());
    let reply = engine.respond(parts.uri.path(), target, &body);
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = respond(status, reply.content_type, reply.body);
    if reply.content_type == "application/cbor" {
        response
            .headers_mut()
            .insert("smithy-protocol", http::HeaderValue::from_static("rpc-v2-cbor"));
    }
    response
}

fn respond(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response {
    let response = Response::builder().status(status).header("content-type", content_type);
    response.body(Body::from(body)).unwrap_or_default()
}
