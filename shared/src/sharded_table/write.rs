//! What every kind of write ends in.

use crate::core::capacity::CapacityScope;
use crate::core::key::{ShardCount, ShardNumber};
use crate::table::error::TableError;

/// A write that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The shard that holds the item; of a delete, the item's home.
    pub shard: ShardNumber,
    /// The write width that it was placed under.
    pub number_of_shards: ShardCount,
    /// Attempts made, the successful one included.
    pub attempts: u32,
    /// Attempts that were throttled.
    pub throttled: u32,
}

/// A write that was not, or not certainly, carried out.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Nothing was changed: capacity did not come before the deadline. Try again later.
    #[error("no capacity before the deadline ({})", scope.name())]
    Capacity {
        /// The limit that the last attempt met.
        scope: CapacityScope,
        /// Attempts that were throttled.
        throttled: u32,
    },
    /// Nothing was changed: other writes of the same item were under way until the deadline. Try again.
    #[error("other writes of the same item were under way until the deadline")]
    Contended,
    /// Nothing was changed: a create-only write found an item.
    #[error("the item exists")]
    Exists,
    /// Nothing was changed: the table's placement is random, so it takes appends only.
    #[error("random placement takes appends only")]
    AppendOnly,
    /// The outcome is unknown: an attempt had no answer in time. An append or a put may be repeated as it is.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// Nothing was changed, and repeating it will not help.
    #[error(transparent)]
    Table(TableError),
}
