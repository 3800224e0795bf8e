//! The results of writes.

use crate::protocol::tag::ETag;
use crate::protocol::version::Version;
use crate::values::key::{PartitionKey, SortKey};
use crate::values::value::{Attributes, Item};

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

/// An item after its update.
///
/// The update has been made, so a type that does not fit is a separate error:
/// [`decode`](Self::decode).
///
/// ```
/// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
/// # in_process::with_table(async |table| {
/// use dynamodb_write_sharding::{Attributes, Value};
///
/// table.put("2014-07-09", "order-1", Attributes::new()).await?;
/// let updated = table.update("2014-07-09", "order-1").set("status", "paid").await?;
/// assert_eq!(updated.attributes["status"], Value::S("paid".into()));
/// table.delete("2014-07-09", "order-1").if_match(&updated.tag).await?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Updated {
    /// The attributes without the keys.
    pub attributes: Attributes,
    /// The tag of this state.
    pub tag: ETag,
    /// How it was written.
    pub written: Written,
    pub(crate) partition_key: PartitionKey,
}

impl Updated {
    pub(crate) fn of(item: Item, tag: ETag, written: Written) -> Self {
        let Item { partition_key, attributes, .. } = item;
        Self { attributes, tag, written, partition_key }
    }
}
