//! The header form of an item's tag.

use sharding::ETag;

/// The value of the header `ETag`: a strong entity tag.
pub(crate) fn etag(tag: &ETag) -> String {
    format!("\"{tag}\"")
}
