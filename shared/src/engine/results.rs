//! The results of writes and reads: what was written, and why a request failed.

use std::error::Error;
use std::fmt;

use crate::policy::capacity::CapacityScope;
use crate::protocol::tag::ItemTag;
use crate::protocol::version::Version;
use crate::table::error::{Cause, TableError};
use crate::values::key::{ShardCount, ShardNumber};
use crate::values::patch::PatchError;

/// A successful write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The shard that holds the item. For a delete, the item's home.
    pub shard: ShardNumber,
    /// The write width under which it was placed.
    pub number_of_shards: ShardCount,
    /// Attempts, including the successful one.
    pub attempts: u32,
    /// Attempts that were throttled.
    pub throttled: u32,
    /// The version of the item that was stored. `None` for a delete, or if an earlier request may
    /// have stored it and a later one replaced it.
    pub version: Option<Version>,
}

/// A write that failed or has an unknown outcome, and its attempts. Its source is the source of its
/// kind.
#[derive(Debug)]
pub struct WriteError {
    /// Why, and whether trying again helps.
    pub kind: WriteErrorKind,
    /// Attempts: requests to the main table that may have been sent.
    pub attempts: u32,
    /// Attempts that were throttled.
    pub throttled: u32,
    /// The tag of the item that prevented the write, if there is one.
    pub current: Option<ItemTag>,
}

/// Why a write failed, or why its outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum WriteErrorKind {
    /// Nothing was changed: capacity did not come before the deadline. This is the last limit that
    /// was exceeded. Try again later.
    #[error("no capacity before the deadline ({})", .0.name())]
    Capacity(CapacityScope),
    /// Nothing was changed: the deadline passed, and nothing was throttled. Try again later.
    #[error("the deadline passed: {0}")]
    Deadline(Cause),
    /// Nothing was changed: other writes of the same item were running until the deadline. Try
    /// again.
    #[error("other writes of the same item were under way until the deadline")]
    Contended,
    /// Nothing was changed: a create-only write found an item.
    #[error("the item exists")]
    Exists,
    /// Nothing was changed: the item was created by a request with the same idempotency key and
    /// other content. Choose a new key.
    #[error("the idempotency key was used for an item with another content")]
    IdempotencyKeyReused,
    /// Nothing was changed: the table accepts appends only.
    #[error("the table takes appends only")]
    AppendOnly,
    /// Nothing was changed: the item's state does not satisfy the write's conditions. Read it, and
    /// decide anew.
    #[error("the item is not in a state that the conditions allow")]
    Precondition,
    /// Nothing was changed: there is no item to update.
    #[error("there is no such item")]
    Absent,
    /// Nothing was changed: the change does not fit the stored item, and repeating it does not
    /// help.
    #[error("the change does not fit the item")]
    Patch(#[source] PatchError),
    /// The outcome is unknown: an attempt had no response in time. A put may be repeated as it is.
    #[error("the outcome is unknown: {0}")]
    Unknown(Cause),
    /// Nothing was changed, and repeating it does not help.
    #[error(transparent)]
    Table(TableError),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl Error for WriteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The cause itself is part of the message.
        if let WriteErrorKind::Unknown(cause) | WriteErrorKind::Deadline(cause) = &self.kind {
            cause.source()
        } else {
            self.kind.source()
        }
    }
}

impl WriteErrorKind {
    /// The kind of an error before anything was changed.
    pub(crate) fn unchanged(error: TableError) -> Self {
        Self::of_read(ReadError::from(error))
    }

    /// The kind of a read that failed, for a write that needs its result.
    pub(super) fn of_read(error: ReadError) -> Self {
        match error {
            ReadError::Capacity(scope) => Self::Capacity(scope),
            ReadError::Deadline(cause) => Self::Deadline(cause),
            ReadError::Table(error) => Self::Table(error),
        }
    }

    /// The error of a write that is stored, if its result cannot be read.
    pub(super) fn unread(error: ReadError) -> Self {
        match error {
            ReadError::Capacity(_) | ReadError::Deadline(_) => {
                Self::Unknown(Cause::by("the change is stored, and cannot be read in time", error))
            }
            ReadError::Table(error) => Self::Table(error),
        }
    }

    /// Adds the attempts that were made.
    pub(crate) const fn after(self, attempts: u32, throttled: u32) -> WriteError {
        WriteError { kind: self, attempts, throttled, current: None }
    }
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Capacity did not come before the deadline. Try again later.
    #[error("no capacity before the deadline ({})", .0.name())]
    Capacity(CapacityScope),
    /// The deadline passed, and nothing was throttled. Try again later.
    #[error("the deadline passed: {0}")]
    Deadline(Cause),
    /// Repeating the read does not help.
    #[error(transparent)]
    Table(TableError),
}

impl From<TableError> for ReadError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Capacity(scope) => Self::Capacity(scope),
            TableError::Transient(cause) => Self::Deadline(cause),
            error @ TableError::Conflict => Self::Deadline(error.to_string().into()),
            error @ (TableError::ConditionFailed
            | TableError::Lost(_)
            | TableError::Occupied
            | TableError::Rejected(_)
            | TableError::Damaged(_)
            | TableError::Unsupported(_)
            | TableError::Unusable(_)) => Self::Table(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_without_a_response_names_the_deadline_and_a_throttled_one_its_limit() {
        for (error, text) in [
            (TableError::Transient("no page came".into()), "the deadline passed: no page came"),
            (
                TableError::Conflict,
                "the deadline passed: another request was changing the same item",
            ),
            (
                TableError::Capacity(CapacityScope::KeyRange),
                "no capacity before the deadline (key-range)",
            ),
            // DynamoDB gave no reason.
            (
                TableError::Capacity(CapacityScope::Unknown),
                "no capacity before the deadline (unknown)",
            ),
        ] {
            assert_eq!(ReadError::from(error).to_string(), text);
        }
    }
}
