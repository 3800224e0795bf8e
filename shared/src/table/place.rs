//! Where a request finds or puts an item.

use crate::values::key::{PartitionKey, ShardCount, ShardNumber, SortKey};

/// The place of an item that a request is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) partition_key: &'a PartitionKey,
    pub(crate) sort_key: &'a SortKey,
    pub(crate) shard: ShardNumber,
    /// The write width under which the item is placed. Items and tombstones store it.
    pub(crate) width: ShardCount,
}

/// An item on a shard.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) partition_key: &'a PartitionKey,
    pub(super) sort_key: &'a SortKey,
    pub(super) shard: ShardNumber,
}
