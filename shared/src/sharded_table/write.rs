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

/// A write that was not, or not certainly, carried out, and the attempts that it took.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub struct WriteError {
    /// Why, and whether trying again helps.
    pub kind: WriteErrorKind,
    /// Attempts made: requests to the main table that may have been sent.
    pub attempts: u32,
    /// Attempts that were throttled.
    pub throttled: u32,
}

/// Why a write was not, or not certainly, carried out.
#[derive(Debug, thiserror::Error)]
pub enum WriteErrorKind {
    /// Nothing was changed: capacity did not come before the deadline, and this limit was met last. Try again later.
    #[error("no capacity before the deadline ({})", .0.name())]
    Capacity(CapacityScope),
    /// Nothing was changed: other writes of the same item were under way until the deadline. Try again.
    #[error("other writes of the same item were under way until the deadline")]
    Contended,
    /// Nothing was changed: a create-only write found an item.
    #[error("the item exists")]
    Exists,
    /// Nothing was changed: the item was created by a request with the same idempotency key and another content. Choose a new key.
    #[error("the idempotency key was used for an item with another content")]
    IdempotencyKeyReused,
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

impl WriteErrorKind {
    /// With the attempts that were made.
    pub(crate) const fn after(self, attempts: u32, throttled: u32) -> WriteError {
        WriteError { kind: self, attempts, throttled }
    }

    /// What the last error before giving up means, where no attempt can have been applied.
    pub(crate) fn of_last(last: Option<TableError>) -> Self {
        match last {
            Some(TableError::Capacity(scope)) => Self::Capacity(scope),
            Some(TableError::Conflict) => Self::Contended,
            // Nothing was sent to the main table, or all of it was refused.
            Some(TableError::Transient(_)) | None => Self::Capacity(CapacityScope::Unknown),
            Some(
                other @ (TableError::ConditionFailed
                | TableError::Lost(_)
                | TableError::Occupied
                | TableError::Rejected(_)
                | TableError::Damaged(_)
                | TableError::Unsupported(_)
                | TableError::Unusable(_)),
            ) => Self::Table(other),
        }
    }
}
