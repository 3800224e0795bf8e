//! What a record means.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::json::attributes_to_json;
use super::position::Position;
use crate::core::key::{PartitionKey, ShardNumber, SortKey};
use crate::core::value::Item;
use crate::protocol::version::Version;

/// What a record means.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded {
    /// A user's change, or an item that has expired.
    Change(Change),
    /// The product's own doing: of no concern to a consumer.
    Internal(Internal),
    /// It may be either; the record and the widths cannot say which. Read the item, strongly consistent, by `get`:
    /// a deletion or an expiry is a change if there is no item; a put is one if the item is there with these attributes. A change that is
    /// counted then may be counted twice, which its position, or a [`ChangeTracker`](super::ChangeTracker), finds.
    Ambiguous(Change, Doubt),
}

/// Why a record can mean two things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// The width of the key has changed since, and a drain has ended, which forgets the widths before it. Only a consumer that is behind
    /// by more than a quarter of an hour meets it.
    WidthForgotten,
    /// The copy of an item has expired that a width change has left behind. The item has expired with it if no newer copy is at home.
    ExpiredCopy,
    /// An append with an `Idempotency-Key` in a table that takes only appends, while its key is drained: appended, or moved.
    RepeatableAppend,
}

/// What the product does for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Internal {
    /// A drain or a write has copied an item, or a tombstone, to its home.
    Moved,
    /// A drain has removed what it had copied.
    OriginalRemoved,
    /// A tombstone was removed: the item was deleted before.
    TombstoneRemoved,
    /// The record is of the metadata table.
    Metadata,
}

/// What happened to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// It was stored: created or replaced.
    Put,
    /// It was deleted by a user. An item that did not exist may be deleted, too: then the deletion leaves a record only if it left a tombstone.
    Delete,
    /// DynamoDB has removed it because its time to live had ended.
    Expiry,
}

impl ChangeKind {
    /// `put`, `delete` or `expiry`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Delete => "delete",
            Self::Expiry => "expiry",
        }
    }
}

/// One change of one item.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The logical partition key, without a shard.
    pub partition_key: PartitionKey,
    /// The sort key.
    pub sort_key: SortKey,
    /// The shard that the item stood on; 0 for a bare key.
    pub shard: ShardNumber,
    /// Of a put, and of a deletion that left a tombstone: the change's own version. Of every other deletion, and of an expiry: that of
    /// the item that was removed. `None` where another program has stored the item.
    pub version: Option<Version>,
    /// What stood there before. `None` where nothing did; and also where the item before stood on another shard, as it does when a put is the
    /// first of its item since the key has grown.
    pub old: Option<Item>,
    /// What stands there now; `None` after a deletion and an expiry.
    pub new: Option<Item>,
    /// When the record was made, since the Unix epoch: in whole seconds (DynamoDB Streams), milliseconds or microseconds (Kinesis).
    pub at: Duration,
    /// Where it stands among the changes of its item.
    pub position: Position,
    /// Whether no version of its own says what it is: a deletion without a tombstone, and an expiry.
    pub(super) is_end: bool,
}

impl Change {
    /// As a JSON object, with attribute values as DynamoDB has them: `kind`, `partition_key`, `sort_key`, `version`, `position`, `at_micros`,
    /// and `old` and `new` where there are such images.
    ///
    /// The sort key is a string, of a number, too: a JSON number may lose digits.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut json = json!({
            "kind": self.kind.as_str(),
            "partition_key": self.partition_key.as_str(),
            "sort_key": self.sort_key.to_string(),
            "version": self.version.map(|version| version.to_string()),
            "position": self.position.as_str(),
            "at_micros": u64::try_from(self.at.as_micros()).unwrap_or(u64::MAX),
        });
        for (name, image) in [("old", &self.old), ("new", &self.new)] {
            if let Some(item) = image {
                json[name] = attributes_to_json(&item.attributes);
            }
        }
        json
    }
}
