//! The media types of request bodies.

pub(crate) const JSON: &str = "application/json";
pub(crate) const ADD: &str = "application/vnd.dynamodb-write-sharding.add+json";
/// The media types that `PATCH` accepts.
pub(crate) const PATCHES: [&str; 2] = ["application/merge-patch+json", ADD];
