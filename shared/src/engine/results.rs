//! The result of a write.

use crate::protocol::tag::ETag;
use crate::protocol::version::Version;
use crate::values::key::SortKey;

/// A successful write.
///
/// ```
/// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
/// # in_process::with_table(async |table| {
/// let written = table.put("2014-07-09", "order-1", dynamodb_write_sharding::Attributes::new()).await?;
/// assert_eq!((written.attempts, written.throttled), (1, 0));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The item's sort key. For an append, the generated one.
    pub sort_key: SortKey,
    /// The tag of the item as it was stored. `None` for a delete, or if an earlier request may have
    /// stored it and a later one replaced it.
    pub tag: Option<ETag>,
    /// The shard that holds the item, numbered from 1. For a delete, the shard where it would be.
    pub shard: u32,
    /// The number of shards of the key's writes.
    pub number_of_shards: u32,
    /// Attempts, including the successful one.
    pub attempts: u32,
    /// Attempts that were throttled.
    pub throttled: u32,
    /// The version of the item that was stored, as `tag`.
    pub(crate) version: Option<Version>,
}
