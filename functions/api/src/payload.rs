//! The sizes of bodies inside an invocation. Lambda embeds request and response bodies as JSON
//! strings in its own JSON, so each quotation mark, backslash and line break of a body counts as
//! two bytes, and most other control characters count as six.

/// The size limit of an event and of a response. (AWS Lambda developer guide, "Lambda quotas".)
const LAMBDA_PAYLOAD_BYTES: usize = 6 * 1_024 * 1_024;
/// Reserved for everything except the body: headers (at most 10 KB), the request context, and the
/// claims of a token.
const RESERVED_BYTES: usize = 128 * 1_024;
/// The maximum size of a body, in bytes of its JSON string.
pub const MAX_PAYLOAD_BYTES: usize = LAMBDA_PAYLOAD_BYTES - RESERVED_BYTES;

/// The length of a text as a JSON string, in bytes, without the quotation marks around it.
///
/// ```
/// assert_eq!(api::escaped_len(r#"{"a":1}"#), r#"{\"a\":1}"#.len());
/// assert_eq!(api::escaped_len("\u{1}"), r"\u0001".len());
/// ```
#[must_use]
pub fn escaped_len(text: &str) -> usize {
    text.bytes().map(escaped_byte).sum()
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
            prop_assert_eq!(escaped_len(&text), serde_json::to_string(&text).unwrap().len() - 2);
        }
    }
}
