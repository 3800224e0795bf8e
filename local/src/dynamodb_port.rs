//! The DynamoDB-compatible port. It gives `aws dynamodb`, `sam local` and other programs the engine
//! and limits that the functions use.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use embedded_dynamodb::Engine;
use endpoint::request_id;
use http::{Method, StatusCode};

/// DynamoDB's limit of a body.
const MAX_BODY_BYTES: usize = 16 * 1_024 * 1_024;

pub(crate) fn router(engine: Engine) -> Router {
    Router::new().fallback(handle).with_state(engine)
}

async fn handle(State(engine): State<Engine>, request: Request) -> Response {
    let mut response = answer(&engine, request).await;
    response.headers_mut().insert("x-amzn-requestid", request_id());
    response
}

async fn answer(engine: &Engine, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if parts.method == Method::GET {
        return "healthy: dynamodb.local\n".into_response();
    }
    if parts.method != Method::POST {
        return (StatusCode::NOT_FOUND, "not found\n").into_response();
    }
    let Ok(body) = to_bytes(body, MAX_BODY_BYTES).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "the body is over 16 MB\n").into_response();
    };
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    engine.respond_over_http(parts.uri.path(), header, &body).map(Body::from)
}
