//! Answers that are not problems.

use lambda_http::{Body, Response};
use serde::Serialize;
use sharding::internal::ItemTag;

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
            let damaged =
                sharding::internal::TableError::Damaged(format!("an answer cannot be written as JSON: {error}"));
            Problem::from_table(&damaged).into_response()
        }
    }
}

/// 204.
#[must_use]
pub fn no_content() -> Response<Body> {
    Response::builder().status(204).body(Body::Empty).unwrap_or_default()
}

/// A tag as a header says it: strong.
pub(crate) fn etag(tag: &ItemTag) -> String {
    format!("\"{tag}\"")
}

/// The response with the item's state in `ETag`.
#[must_use]
pub fn tagged(mut response: Response<Body>, tag: Option<&ItemTag>) -> Response<Body> {
    if let Some(tag) = tag.and_then(|tag| etag(tag).parse().ok()) {
        response.headers_mut().insert("etag", tag);
    }
    response
}

/// 304: the item is in a state that the client has.
#[must_use]
pub fn not_modified(tag: &ItemTag) -> Response<Body> {
    tagged(Response::builder().status(304).body(Body::Empty).unwrap_or_default(), Some(tag))
}
