//! The meaning of a record, and the order of one item's changes.

use std::fmt;
use std::time::Duration;

use sharding_core::{Item, PartitionKey, SortKey, Version};

/// The meaning of a record.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Decoded {
    /// A change by a user, or an expired item.
    Change(Change),
    /// An operation of the product itself, which a consumer can ignore.
    Internal,
    /// The record may be either; the record and the widths do not determine it: of a key whose widths
    /// are forgotten, an expired copy that a width change left behind, or an append with an
    /// `Idempotency-Key` whose key is being drained (docs/streams.md, "Limits"). Read the item with
    /// a strongly consistent `get`: a deletion or an expiry is a change if there is no item; a put
    /// is a change if the item has these attributes. A change that is counted this way may be
    /// counted twice. Its position detects that.
    Ambiguous(Change),
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeKind {
    /// The item was created or replaced.
    Put,
    /// A user deleted the item. A deletion of an item that does not exist has a record only if it
    /// left a tombstone.
    Delete,
    /// DynamoDB removed the item because its time to live had ended.
    Expiry,
}

/// One change of one item.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The logical partition key, without a shard.
    pub partition_key: PartitionKey,
    /// The sort key.
    pub sort_key: SortKey,
    /// For a put, and for a deletion that left a tombstone: the change's own version. For other
    /// deletions, and for an expiry: the version of the removed item. `None` if another program
    /// stored the item.
    pub version: Option<Version>,
    /// The item before the change. `None` if there was none, or if it was on another shard, as for
    /// the first put of an item since the key has grown.
    pub old: Option<Item>,
    /// The item after the change. `None` after a deletion or an expiry.
    pub new: Option<Item>,
    /// When the record was made, since the Unix epoch: in whole seconds (DynamoDB Streams),
    /// milliseconds or microseconds (Kinesis).
    pub at: Duration,
    /// The change's position among the changes of its item.
    pub position: Position,
}

/// The position of a change among the changes of its item. Of two changes, the one with the greater
/// position is later, in any order of delivery. Its text compares in the same way. So it can be
/// stored beside a projection of the item, and serve as the condition of an update:
/// `attribute_not_exists(#position) OR #position < :position`.
///
/// The era comes first. Within an era, all changes of an item are under one stored key, so the
/// stream's own order counts: the sequence number of DynamoDB Streams, or the time of a Kinesis
/// record and then the version. In an append-only table the version decides.
///
/// Compare only positions of one item, from one type of stream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(crate) String);

/// The comparable text.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
