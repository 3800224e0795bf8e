//! How much one invocation carries. Request and response bodies travel as JSON strings inside Lambda's own JSON, so each
//! quotation mark, backslash and line break of a body counts twice, and most other control characters six times.

use lambda_http::{Body, Response};
use serde_json::value::{RawValue, to_raw_value};
use sharding::internal::Item;

use crate::item::ItemJson;
use crate::problem::Problem;
use crate::respond::json;

/// What Lambda takes as an event, and as a response. (AWS Lambda developer guide, "Lambda quotas".)
const LAMBDA_PAYLOAD_BYTES: usize = 6 * 1_024 * 1_024;
/// Kept for what stands beside the body: headers (10 KB at most), the request's context, the claims of a token.
const BESIDE_THE_BODY: usize = 128 * 1_024;
/// The most bytes of a body as a JSON string.
pub const MAX_PAYLOAD_BYTES: usize = LAMBDA_PAYLOAD_BYTES - BESIDE_THE_BODY;

/// Bytes of a text as a JSON string, without the quotation marks around it.
///
/// ```
/// assert_eq!(api::escaped_len(r#"{"a":1}"#), r#"{\"a\":1}"#.len());
/// assert_eq!(api::escaped_len("\u{1}"), r"\u0001".len());
/// ```
#[must_use]
pub fn escaped_len(text: &str) -> usize {
    text.bytes().map(escaped_byte).sum()
}

/// The first items of a page as JSON, as many as fit into a response.
///
/// # Errors
/// 500 where not even the first fits.
pub fn fitting_items(items: &[Item]) -> Result<Vec<Box<RawValue>>, Problem> {
    let mut fitting = Vec::with_capacity(items.len());
    let mut bytes = 0;
    for item in items {
        let json = to_raw_value(&ItemJson(item)).map_err(|error| Problem::unprintable(&error))?;
        bytes += escaped_len(json.get()) + 1;
        if bytes > MAX_PAYLOAD_BYTES {
            return if fitting.is_empty() { Err(Problem::response_too_large(bytes)) } else { Ok(fitting) };
        }
        fitting.push(json);
    }
    Ok(fitting)
}

/// A response that is one item.
#[must_use]
pub fn item(status: u16, item: &Item) -> Response<Body> {
    match fitting_items(std::slice::from_ref(item)) {
        Ok(items) => json(status, &items.first()),
        Err(problem) => problem.into_response(),
    }
}

const fn escaped_byte(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0x00..0x20 => 6,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_text_is_counted_as_it_is_escaped(text in "(\\PC|[\u{0}-\u{7f}]){0,50}") {
            let escaped = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(escaped_len(&text), escaped.len() - 2);
        }
    }
}
