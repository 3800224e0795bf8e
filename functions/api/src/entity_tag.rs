//! The header form of an item's tag.

use sharding::ItemTag;

/// The value of the header `ETag`: a strong entity tag.
pub(crate) fn etag(tag: &ItemTag) -> String {
    format!("\"{tag}\"")
}
