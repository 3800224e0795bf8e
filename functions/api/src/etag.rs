//! The header `ETag` of a response: the state of an item.

use lambda_http::{Body, Response};
use sharding::ETag;

/// Adds the item's tag to the response, in the header `ETag`, as a strong entity tag.
#[must_use]
pub fn tagged(mut response: Response<Body>, tag: Option<&ETag>) -> Response<Body> {
    if let Some(tag) = tag.and_then(|tag| format!("\"{tag}\"").parse().ok()) {
        response.headers_mut().insert("etag", tag);
    }
    response
}
