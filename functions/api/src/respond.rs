//! Responses that are not problems.

use lambda_http::{Body, Response};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use sharding::ETag;

use crate::etag::tagged;
use crate::item::ItemJson;
use crate::payload::{MAX_PAYLOAD_BYTES, escaped_len};
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

/// A response whose body is one item.
#[must_use]
pub fn item(status: u16, item: ItemJson<'_>) -> Response<Body> {
    let fitting = fitting_items([item]);
    fitting.map_or_else(Problem::into_response, |items| json(status, &items.first()))
}

/// Returns the first items as JSON, as many as fit into a response.
///
/// # Errors
/// 500 if the first item does not fit.
pub fn fitting_items<'a>(
    items: impl IntoIterator<Item = ItemJson<'a>>,
) -> Result<Vec<Box<RawValue>>, Problem> {
    let (mut fitting, mut bytes) = (Vec::new(), 0);
    for item in items {
        let json = to_raw_value(&item).map_err(|error| Problem::unprintable(&error))?;
        bytes += escaped_len(json.get()) + 1;
        if bytes > MAX_PAYLOAD_BYTES {
            return if fitting.is_empty() {
                Err(Problem::response_too_large(bytes))
            } else {
                Ok(fitting)
            };
        }
        fitting.push(json);
    }
    Ok(fitting)
}

/// A 204 response.
#[must_use]
pub fn no_content() -> Response<Body> {
    Response::builder().status(204).body(Body::Empty).unwrap_or_default()
}

/// A 304 response: the client already has this state of the item.
#[must_use]
pub fn not_modified(tag: &ETag) -> Response<Body> {
    tagged(Response::builder().status(304).body(Body::Empty).unwrap_or_default(), Some(tag))
}
