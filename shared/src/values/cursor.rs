//! The caller's position in a scan.
//!
//! A cursor is a position in sort-key order: one `LastEvaluatedKey` per shard would grow with the
//! width and would not survive a change of it. It is bound to its query, versioned, opaque and
//! bounded. It is not secret: it can only start a scan that the caller may make anyway. A checksum
//! detects cursors that were damaged or made up.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::values::content;
use crate::values::key::{SortKey, SortKeyType};
use crate::values::query::{Order, PageQuery};

const AFTER: u8 = 1;
const BEFORE: u8 = 2;
const CHECKSUM: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CursorError {
    #[error("it is not a cursor that this API gave out")]
    Broken,
    #[error("it is of another version of this API; start again without a cursor")]
    Version,
    #[error(
        "it was given out for another query; partition_key, order, from, to and prefix must be the same on every page"
    )]
    OtherQuery,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The page begins after this sort key, or ends before it. `None` for the first or the last
    /// page.
    pub(crate) place: Option<SortKey>,
    /// It ends there.
    pub(crate) is_before: bool,
}

impl Position {
    pub(crate) const fn after(place: Option<SortKey>) -> Self {
        Self { place, is_before: false }
    }

    pub(crate) const fn before(place: Option<SortKey>) -> Self {
        Self { place, is_before: true }
    }
}

pub(crate) fn encode(query: &PageQuery, position: &Position) -> String {
    let format = if position.is_before { BEFORE } else { AFTER };
    // No sort key is empty.
    let place = position.place.as_ref().map_or_else(String::new, ToString::to_string);
    let body = [[format].as_slice(), &query_binding(query), place.as_bytes()].concat();
    URL_SAFE_NO_PAD.encode([body.as_slice(), &checksum(&body)].concat())
}

/// The position, if the cursor is of the same query.
pub(crate) fn decode(
    query: &PageQuery,
    key_type: SortKeyType,
    cursor: &str,
) -> Result<Position, CursorError> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| CursorError::Broken)?;
    let (body, sum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(CursorError::Broken)?;
    if checksum(body) != *sum {
        return Err(CursorError::Broken);
    }
    let (format, rest) = body.split_first().ok_or(CursorError::Broken)?;
    if ![AFTER, BEFORE].contains(format) {
        return Err(CursorError::Version);
    }
    let (binding, place) = rest.split_first_chunk::<CHECKSUM>().ok_or(CursorError::Broken)?;
    if *binding != query_binding(query) {
        return Err(CursorError::OtherQuery);
    }
    let place = std::str::from_utf8(place).map_err(|_| CursorError::Broken)?;
    let place = (!place.is_empty()).then(|| SortKey::parse(key_type, place)).transpose();
    Ok(Position { place: place.map_err(|_| CursorError::Broken)?, is_before: *format == BEFORE })
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    content::first(&Sha256::new_with_prefix(b"cursor").chain_update(bytes).finalize())
}

/// Everything that determines which items the scan returns, and their order.
fn query_binding(query: &PageQuery) -> [u8; CHECKSUM] {
    let mut digest = Sha256::new();
    let mut part = |tag: u8, text: &str| content::add(&mut digest, tag, text.as_bytes());
    part(b'k', query.partition_key.as_str());
    part(b'o', if query.order == Order::Ascending { "asc" } else { "desc" });
    for (tag, bound) in [(b'f', &query.from), (b't', &query.to)] {
        if let Some(bound) = bound {
            part(tag, &bound.canonical());
        }
    }
    if let Some(prefix) = &query.prefix {
        part(b'p', prefix);
    }
    content::first(&digest.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::{key, text};
    use proptest::prelude::*;

    /// The documented limit: 1,024 bytes of sort key and its frame, in base64.
    const MAX_CURSOR_CHARS: usize = 1_400;

    fn decoded(partition_key: &str, cursor: &str) -> Result<Position, CursorError> {
        decode(&PageQuery::new(key(partition_key)), SortKeyType::String, cursor)
    }

    #[test]
    fn the_longest_cursor_stays_under_two_kilobytes() {
        let (partition_key, position) =
            ("k".repeat(2_040), Position::before(Some(text(&"s".repeat(1_024)))));
        let cursor = encode(&PageQuery::new(key(&partition_key)), &position);
        assert!(cursor.len() <= MAX_CURSOR_CHARS, "{}", cursor.len());
        assert_eq!(decoded(&partition_key, &cursor), Ok(position));
    }

    proptest! {
        #[test]
        fn cursors_round_trip_and_any_change_breaks_them(
            k in "\\PC{1,20}",
            back: bool,
            place in proptest::option::of("\\PC{1,60}"),
            at in any::<prop::sample::Index>(),
            to in "[A-Za-z0-9_-]",
        ) {
            let position = Position { place: place.as_deref().map(text), is_before: back };
            let good = encode(&PageQuery::new(key(&k)), &position);
            prop_assert_eq!(decoded(&k, &good), Ok(position));
            prop_assert_eq!(decoded(&format!("{k}2"), &good), Err(CursorError::OtherQuery));
            prop_assert_eq!(decoded(&k, &good[1..]), Err(CursorError::Broken));
            let at = at.index(good.len());
            let bad = format!("{}{to}{}", &good[..at], &good[at + 1..]);
            prop_assert!(bad == good || decoded(&k, &bad).is_err());
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,80}") {
            prop_assert!(decode(&PageQuery::new(key("k")), SortKeyType::Number, &text).is_err());
        }
    }
}
