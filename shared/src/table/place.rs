//! Where a request finds or puts an item.

use crate::values::key::{PartitionKey, ShardCount, ShardNumber, SortKey};

/// Where a write finds or puts an item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) partition_key: &'a PartitionKey,
    pub(crate) sort_key: &'a SortKey,
    pub(crate) shard: ShardNumber,
    /// The write width under which the item is placed. Items and tombstones store it.
    pub(crate) width: ShardCount,
}
