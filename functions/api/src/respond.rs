//! Answers that are not problems.

use lambda_http::{Body, Response};
use serde::Serialize;

use crate::problem::Problem;

/// A JSON answer.
#[must_use]
pub fn json(status: u16, body: &impl Serialize) -> Response<Body> {
    match serde_json::to_string(body) {
        Ok(body) => Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .body(Body::from(body))
            .unwrap_or_default(),
        Err(error) => {
            let damaged = sharding::TableError::Damaged(format!("an answer cannot be written as JSON: {error}"));
            Problem::from_table(&damaged).into_response()
        }
    }
}

/// 204.
#[must_use]
pub fn no_content() -> Response<Body> {
    Response::builder().status(204).body(Body::Empty).unwrap_or_default()
}
