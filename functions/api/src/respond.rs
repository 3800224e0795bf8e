//! Responses that are not problems.

use lambda_http::{Body, Response};
use serde::Serialize;
use sharding::ETag;

use crate::problem::Problem;

/// A JSON response.
#[must_use]
pub fn json(status: u16, body: &impl Serialize) -> Response<Body> {
    match serde_json::to_string(body) {
        Ok(body) => Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .body(Body::from(body))
            .unwrap_or_default(),
        Err(error) => {
            let why = format!("a response cannot be serialized: {error}");
            Problem::from_table(&sharding::TableError::Damaged(why)).into_response()
        }
    }
}

/// A 204 response.
#[must_use]
pub fn no_content() -> Response<Body> {
    Response::builder().status(204).body(Body::Empty).unwrap_or_default()
}

/// Adds the item's tag to the response, in the header `ETag`, as a strong entity tag.
#[must_use]
pub fn tagged(mut response: Response<Body>, tag: Option<&ETag>) -> Response<Body> {
    if let Some(tag) = tag.and_then(|tag| format!("\"{tag}\"").parse().ok()) {
        response.headers_mut().insert("etag", tag);
    }
    response
}

/// A 304 response: the client already has this state of the item.
#[must_use]
pub fn not_modified(tag: &ETag) -> Response<Body> {
    tagged(Response::builder().status(304).body(Body::Empty).unwrap_or_default(), Some(tag))
}
