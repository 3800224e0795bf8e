//! The errors of requests. Each kind calls for a different reaction of the caller.

use std::error::Error;
use std::fmt;

use crate::protocol::tag::ETag;
use crate::table::error::{Cause, TableError};
use crate::values::key::{PartitionKey, SortKey};
use crate::values::patch::PatchError;

type Source = Box<dyn Error + Send + Sync>;

/// An invalid request. Nothing was sent. Correct the program, or its user's input.
///
/// ```
/// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
/// # in_process::with_table(async |table| {
/// let error = table.delete("", "order-1147").await.unwrap_err();
/// assert_eq!(error.to_string(), "partition key: it is empty; a key has at least one byte");
/// assert_eq!((error.attempts, error.is_retryable()), (0, false));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct InvalidRequest {
    what: String,
    why: String,
}

impl InvalidRequest {
    /// What is wrong, for example `sort key` or `attribute lines[2].price`.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What is wrong about it, and what is allowed.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    pub(crate) fn of(what: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { what: what.into(), why: why.to_string() }
    }
}

/// A write that failed or has an unknown outcome.
///
/// ```
/// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
/// # in_process::with_table(async |table| {
/// use dynamodb_write_sharding::{Attributes, WriteErrorKind};
///
/// table.create("seats", "14C", Attributes::new()).await?;
/// match table.create("seats", "14C", Attributes::new()).await {
///     Err(error) if matches!(error.kind, WriteErrorKind::Exists) => {
///         assert!(error.current.is_some());
///     }
///     Err(error) if error.is_retryable() => {
///         println!("try again later: {error}, after {} attempts", error.attempts);
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok(()) });
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct WriteError {
    /// The reason, and what to do about it.
    pub kind: WriteErrorKind,
    /// Requests to the main table that may have been sent.
    pub attempts: u32,
    /// Attempts that were throttled.
    pub throttled: u32,
    /// The item's sort key, unless the request failed before it had one. For an append, the
    /// generated one of the last attempt.
    pub sort_key: Option<Box<SortKey>>,
    /// The tag of the item that prevented the write, if there is one.
    pub current: Option<ETag>,
}

impl WriteError {
    /// Whether nothing was changed and the same request may succeed a moment later. `Unknown` is
    /// `false`: it depends on the request.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            WriteErrorKind::Capacity { .. }
                | WriteErrorKind::Deadline(_)
                | WriteErrorKind::Contended
        )
    }
}

/// Before the first attempt.
impl From<WriteErrorKind> for WriteError {
    fn from(kind: WriteErrorKind) -> Self {
        kind.after(0, 0)
    }
}

impl From<InvalidRequest> for WriteError {
    fn from(error: InvalidRequest) -> Self {
        WriteErrorKind::Invalid(error).into()
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl Error for WriteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.kind.source()
    }
}

/// Why a write failed, or why its outcome is unknown. For every other kind, nothing was changed.
///
/// ```
/// use dynamodb_write_sharding::WriteErrorKind;
///
/// fn http_status(kind: &WriteErrorKind) -> u16 {
///     match kind {
///         WriteErrorKind::Invalid(_) | WriteErrorKind::Mismatch(_) => 400,
///         WriteErrorKind::Absent => 404,
///         WriteErrorKind::AppendOnly => 405,
///         WriteErrorKind::Exists | WriteErrorKind::Precondition => 412,
///         WriteErrorKind::Capacity { .. } | WriteErrorKind::Deadline(_) => 503,
///         WriteErrorKind::Contended | WriteErrorKind::Unknown(_) => 503,
///         _ => 500,
///     }
/// }
/// assert_eq!(http_status(&WriteErrorKind::Exists), 412);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteErrorKind {
    /// Capacity did not come before the deadline. Try again later. Meanwhile the key gets more
    /// shards, if they help.
    #[error("no capacity before the deadline ({limit})")]
    Capacity {
        /// The last limit that was exceeded: `key-range`, `table`, `account` or another.
        limit: &'static str,
    },
    /// The deadline passed, and nothing was throttled. Try again later. The source says what was
    /// missing.
    #[error("the deadline passed")]
    Deadline(#[source] Source),
    /// Other writes of the same item were running until the deadline. Try again.
    #[error("other writes of the same item were under way until the deadline")]
    Contended,
    /// A create found an existing item.
    #[error("the item exists")]
    Exists,
    /// The item was created with the same idempotency key and other content. Choose a new key.
    #[error("the idempotency key was used for an item with another content")]
    IdempotencyKeyReused,
    /// The table accepts appends only: no creates, updates, deletes or conditions.
    #[error("the table takes appends only")]
    AppendOnly,
    /// The item is not in the state that the request requires. Read it, and decide anew.
    #[error("the item is not in the state that the request names")]
    Precondition,
    /// The key is not armed: another program may still write it. It can be written once a pattern
    /// counts that matches it (`maintenance().arm`).
    #[error("the key is not armed{}", not_before(*.from))]
    #[non_exhaustive]
    NotArmed {
        /// The epoch second from which a stored pattern counts.
        from: Option<u64>,
    },
    /// There is no item to update.
    #[error("there is no such item")]
    Absent,
    /// The additions of an update do not fit the item, or make it too large. The source names the
    /// attribute.
    #[error("the change does not fit the item")]
    Mismatch(#[source] PatchError),
    /// The request is invalid.
    #[error(transparent)]
    Invalid(InvalidRequest),
    /// An attempt had no response in time, so the write may still take effect. Repeat a put as it
    /// is, an append as a put under the [`sort_key`](WriteError::sort_key) of the error, and a
    /// create or an update with its idempotency key. Before you repeat a delete, read.
    #[error("the outcome is unknown")]
    Unknown(#[source] Source),
    /// A table cannot be used, or rejects the request. Repeating does not help: the text names the
    /// table, and what to repair.
    #[error(transparent)]
    Table(TableError),
}

fn not_before(from: Option<u64>) -> String {
    from.map_or_else(
        || ", so only other programs may write it: arm it first".to_owned(),
        |from| format!(" before epoch second {from}"),
    )
}

impl WriteErrorKind {
    pub(crate) fn unchanged(error: TableError) -> Self {
        Self::of_read(error.into())
    }

    /// A read failed whose result the write needs.
    pub(crate) fn of_read(error: ReadError) -> Self {
        match error {
            ReadError::Capacity { limit } => Self::Capacity { limit },
            ReadError::Deadline(cause) => Self::Deadline(cause),
            ReadError::Table(error) => Self::Table(error),
            ReadError::Invalid(error) => Self::Invalid(error),
            error @ ReadError::Decode { .. } => Self::Table(TableError::Damaged(error.to_string())),
        }
    }

    /// The write is stored, but its result cannot be read.
    pub(crate) fn unread(error: ReadError) -> Self {
        if error.is_retryable() {
            let why = "the change is stored, and cannot be read in time";
            return Self::Unknown(Cause::by(why, error).into());
        }
        Self::of_read(error)
    }

    pub(crate) const fn after(self, attempts: u32, throttled: u32) -> WriteError {
        WriteError { kind: self, attempts, throttled, sort_key: None, current: None }
    }
}

/// Why a read failed.
///
/// ```
/// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
/// # in_process::with_table(async |table| {
/// use dynamodb_write_sharding::ReadError;
///
/// #[derive(Debug, serde::Deserialize)]
/// struct Order {
///     total: u64,
/// }
///
/// table
///     .put("2014-07-09", "order-1", std::collections::HashMap::from([("total", "twelve")]))
///     .await?;
/// match table.get::<Order>("2014-07-09", "order-1").consistent(true).await {
///     Err(ReadError::Decode { attribute, .. }) => assert_eq!(attribute, "total"),
///     other => panic!("{other:?}"),
/// }
/// # Ok(()) });
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Capacity did not come before the deadline. Try again later.
    #[error("no capacity before the deadline ({limit})")]
    Capacity {
        /// The last limit that was exceeded: `key-range`, `table`, `account` or another.
        limit: &'static str,
    },
    /// The deadline passed, and nothing was throttled. Try again later. The source says what was
    /// missing.
    #[error("the deadline passed")]
    Deadline(#[source] Source),
    /// The item exists, but does not fit the requested type.
    #[error(
        "the item {sort_key:?} of {partition_key:?}, attribute {attribute}: {why}",
        partition_key = .partition_key.as_str(),
        sort_key = .sort_key.to_string()
    )]
    #[non_exhaustive]
    Decode {
        /// The item's partition key.
        partition_key: PartitionKey,
        /// The item's sort key.
        sort_key: SortKey,
        /// The path of the attribute, for example `lines[2].price`; `.` is the whole item.
        attribute: String,
        /// The reason.
        why: String,
    },
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// A table cannot be used, or rejects the request. Repeating does not help: the text names the
    /// table, and what to repair.
    #[error(transparent)]
    Table(TableError),
}

impl ReadError {
    /// Whether the same request may succeed a moment later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Capacity { .. } | Self::Deadline(_))
    }
}

impl From<TableError> for ReadError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Capacity(scope) => Self::Capacity { limit: scope.name() },
            TableError::Transient(cause) => Self::Deadline(cause.into()),
            error @ TableError::Conflict => Self::Deadline(error.to_string().into()),
            error @ (TableError::ConditionFailed
            | TableError::Lost(_)
            | TableError::Rejected(_)
            | TableError::Damaged(_)
            | TableError::Unusable(_)) => Self::Table(error),
        }
    }
}
