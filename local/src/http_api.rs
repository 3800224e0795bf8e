//! The API on one port. Every request goes to the handler of the function that API Gateway would
//! invoke.

use std::time::Duration;

use api::{Function, MAX_PAYLOAD_BYTES, Problem, route};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::Method;
use http::header::CONTENT_TYPE;
use shard_scaler::{Failed, Scaler};
use sharding::ShardedTable;
use tokio::time::Instant;

use crate::traffic::Meter;
use crate::wake;

/// The template's timeout of the writer and the reader, less the margin for the response.
const FUNCTION_TIMEOUT: Duration = Duration::from_millis(9_600);
/// The part of `longest_read` that a request may take.
const READ_TIME_SHARE: f64 = 0.9;
/// The route of Lambda's own Invoke API, so that `aws lambda invoke --endpoint-url` reaches the
/// shard-scaler.
const INVOKE_ROUTE: &str = "/2015-03-31/functions/shard-scaler/invocations";
const DESCRIPTION_ROUTE: &str = "/openapi.yaml";

#[derive(Debug, Clone)]
pub(crate) struct Functions {
    pub(crate) table: ShardedTable,
    pub(crate) scaler: Scaler,
    pub(crate) meter: Meter,
}

impl Functions {
    /// Returns the response of the function that serves the route, or of the reader if there is no
    /// such route. The meter counts it.
    pub(crate) async fn respond(&self, request: api::Request) -> api::Response<lambda_http::Body> {
        let began = Instant::now();
        let function =
            route(request.method().as_str(), request.uri().path()).map(|(function, _)| function);
        if function.unwrap_or(Function::Reader) == Function::Reader {
            // If reads have a shorter limit, a page ends early within the limit instead of failing.
            let deadline = began
                + FUNCTION_TIMEOUT.min(self.table.config().longest_read().mul_f64(READ_TIME_SHARE));
            let response = reader::handle(&self.table, request, deadline).await;
            self.meter.read(response.status(), began.elapsed());
            response
        } else {
            let response = writer::handle(&self.table, request, began + FUNCTION_TIMEOUT).await;
            self.meter.write(&response, began.elapsed());
            response
        }
    }
}

pub(crate) fn router(functions: Functions) -> Router {
    Router::new().fallback(handle).with_state(functions)
}

async fn handle(State(functions): State<Functions>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_PAYLOAD_BYTES).await else {
        let problem = api::body_too_large(MAX_PAYLOAD_BYTES + 1, MAX_PAYLOAD_BYTES + 1);
        return to_axum(problem.into_response());
    };
    if parts.uri.path() == DESCRIPTION_ROUTE && parts.method == Method::GET {
        return ([(CONTENT_TYPE, "application/yaml")], api::OPENAPI).into_response();
    }
    if parts.uri.path() == INVOKE_ROUTE && parts.method == Method::POST {
        return invoke_scaler(&functions, &body).await;
    }
    let request = http::Request::from_parts(parts, lambda_http::Body::Binary(body.to_vec()));
    to_axum(functions.respond(request).await)
}

async fn invoke_scaler(functions: &Functions, body: &[u8]) -> Response {
    let event = match serde_json::from_slice(body) {
        Ok(event) => event,
        Err(error) => {
            let why = format!("it is not JSON: {error}");
            return to_axum(Problem::bad("invalid_json", "body", why).into_response());
        }
    };
    let handled = wake::send(&functions.scaler, &event).await;
    to_axum(api::json(200, &handled.unwrap_or_else(Failed::into_response)))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is open")]
pub(crate) fn to_axum(response: http::Response<lambda_http::Body>) -> Response {
    response.map(|body| match body {
        lambda_http::Body::Text(text) => Body::from(text),
        lambda_http::Body::Binary(bytes) => Body::from(bytes),
        _ => Body::empty(),
    })
}
