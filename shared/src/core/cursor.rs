//! The caller's place in a scan.
//!
//! A cursor is a position in sort-key order and nothing else: one `LastEvaluatedKey` per shard would grow with the width and would
//! not survive a change of it. It is bound to its query, versioned, opaque and bounded. It is not secret and not signed with a
//! key: all it can do is to start a scan, that the caller may make anyway, at another place; the checksum is there so that a
//! cursor that was cut, mixed up or made up is an error and not a page from nowhere.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::key::{SortKey, SortKeyType};
use super::query::PageQuery;

const FORMAT: u8 = 1;
const CHECKSUM: usize = 8;
/// The longest cursor that can have been made: 1,024 bytes of sort key with its frame, in base64.
pub const MAX_CURSOR_CHARS: usize = 1_400;

/// A cursor that this query did not give out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// Not a cursor, or damaged.
    #[error("it is not a cursor that this API gave out")]
    Broken,
    /// Of an older or newer release.
    #[error("it is of another version of this API; start again without a cursor")]
    Version,
    /// Given out for other parameters.
    #[error(
        "it was given out for another query; partition_key, order, from, to and prefix must be the same on every page"
    )]
    OtherQuery,
}

/// Writes the cursor of a query that continues after `position`.
#[must_use]
pub fn encode(query: &PageQuery, position: &SortKey) -> String {
    let text = position.to_string();
    let mut bytes = Vec::with_capacity(1 + 2 * CHECKSUM + text.len());
    bytes.push(FORMAT);
    bytes.extend_from_slice(&query_binding(query));
    bytes.extend_from_slice(text.as_bytes());
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a cursor back for the same query.
///
/// # Errors
/// [`CursorError`] says whether it is broken, of another version or of another query.
pub fn decode(query: &PageQuery, key_type: SortKeyType, cursor: &str) -> Result<SortKey, CursorError> {
    if cursor.len() > MAX_CURSOR_CHARS {
        return Err(CursorError::Broken);
    }
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| CursorError::Broken)?;
    let (body, sum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(CursorError::Broken)?;
    if checksum(body) != *sum {
        return Err(CursorError::Broken);
    }
    let (format, rest) = body.split_first().ok_or(CursorError::Broken)?;
    if *format != FORMAT {
        return Err(CursorError::Version);
    }
    let (binding, position) = rest.split_first_chunk::<CHECKSUM>().ok_or(CursorError::Broken)?;
    if *binding != query_binding(query) {
        return Err(CursorError::OtherQuery);
    }
    let text = std::str::from_utf8(position).map_err(|_| CursorError::Broken)?;
    SortKey::parse(key_type, text).map_err(|_| CursorError::Broken)
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let mut digest = Sha256::new();
    digest.update(b"cursor");
    digest.update(bytes);
    first_bytes(&digest.finalize())
}

/// What a cursor is bound to: everything that decides which items the scan returns, and their order.
fn query_binding(query: &PageQuery) -> [u8; CHECKSUM] {
    let mut digest = Sha256::new();
    let mut part = |tag: u8, text: &str| {
        digest.update([tag]);
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    };
    part(b'k', query.partition_key.as_str());
    part(b'o', query.order.name());
    for (tag, bound) in [(b'f', &query.from), (b't', &query.to)] {
        if let Some(bound) = bound {
            part(tag, &bound.canonical());
        }
    }
    if let Some(prefix) = &query.prefix {
        part(b'p', prefix);
    }
    first_bytes(&digest.finalize())
}

fn first_bytes(digest: &[u8]) -> [u8; CHECKSUM] {
    super::placement::first_u64(digest).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::PartitionKey;
    use proptest::prelude::*;

    fn query(key: &str) -> PageQuery {
        PageQuery::new(PartitionKey::new(key).unwrap())
    }

    #[test]
    fn the_longest_cursor_stays_under_two_kilobytes() {
        let position = SortKey::parse(SortKeyType::String, &"s".repeat(1_024)).unwrap();
        let cursor = encode(&query(&"k".repeat(2_040)), &position);
        assert!(cursor.len() <= MAX_CURSOR_CHARS, "{}", cursor.len());
        assert_eq!(decode(&query(&"k".repeat(2_040)), SortKeyType::String, &cursor), Ok(position));
    }

    #[test]
    fn a_foreign_cursor_is_told_from_a_broken_one() {
        let position = SortKey::parse(SortKeyType::String, "x").unwrap();
        let cursor = encode(&query("a"), &position);
        assert_eq!(decode(&query("b"), SortKeyType::String, &cursor), Err(CursorError::OtherQuery));
        assert_eq!(decode(&query("a"), SortKeyType::String, &cursor[1..]), Err(CursorError::Broken));
        assert_eq!(decode(&query("a"), SortKeyType::String, ""), Err(CursorError::Broken));
    }

    proptest! {
        #[test]
        fn cursors_round_trip(key in "\\PC{1,20}", position in "\\PC{1,60}") {
            let position = SortKey::parse(SortKeyType::String, &position).unwrap();
            prop_assert_eq!(decode(&query(&key), SortKeyType::String, &encode(&query(&key), &position)), Ok(position));
        }

        #[test]
        fn any_changed_character_breaks_a_cursor(position in "[a-z]{1,30}", at in any::<prop::sample::Index>(), to in "[A-Za-z0-9_-]") {
            let position = SortKey::parse(SortKeyType::String, &position).unwrap();
            let good = encode(&query("k"), &position);
            let at = at.index(good.len());
            let bad = format!("{}{to}{}", &good[..at], &good[at + 1..]);
            prop_assume!(bad != good);
            prop_assert!(decode(&query("k"), SortKeyType::String, &bad).is_err());
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,80}") {
            prop_assert!(decode(&query("k"), SortKeyType::Number, &text).is_err());
        }
    }
}
