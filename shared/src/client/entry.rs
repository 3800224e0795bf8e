//! The results of requests.

use crate::client::content::{FromValue, NotOfType};
use crate::engine::error::{ReadError, WriteError, WriteErrorKind};
use crate::engine::write::Updated;
use crate::protocol::tag::ETag;
use crate::protocol::version::Version;
use crate::values::cursor::{self, Position};
use crate::values::key::{PartitionKey, SortKey};
use crate::values::query::PageQuery;
use crate::values::value::{Attributes, Item, Value};

/// An item of a page or a stream: its sort key, and its attributes as a `T`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<T> {
    /// The sort key.
    pub sort_key: SortKey,
    /// The attributes without the keys.
    pub value: T,
    /// The tag of the state that was read, for conditional writes. `None` if the query asks for no
    /// [`tags`](crate::request::Query::tags). Also `None` if it names
    /// [`fields`](crate::request::Query::fields) and the item has no version of its own: another
    /// program stored it, or an append with an idempotency key. Then the tag is of all attributes.
    pub tag: Option<ETag>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum EntryTags {
    None,
    /// Those with a version of their own. The others lack attributes.
    OfVersions,
    All,
}

impl<T: FromValue> Entry<T> {
    pub(crate) fn of(item: Item, version: Version, tags: EntryTags) -> Result<Self, ReadError> {
        let Item { partition_key, sort_key, attributes } = item;
        let tag = match tags {
            EntryTags::None => None,
            EntryTags::OfVersions => ETag::of_version(version),
            EntryTags::All => Some(ETag::of(version, &attributes)),
        };
        let value = decode(&partition_key, &sort_key, attributes)?;
        Ok(Self { sort_key, value, tag })
    }
}

/// An item with the tag of its state. Conditional writes name the state that was read by its tag.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Versioned<T> {
    /// The attributes without the keys.
    pub value: T,
    /// The tag of the state that was read.
    pub tag: ETag,
}

/// A page of a query: items in order, each sort key once.
///
/// ```
/// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
/// # in_process::with_table(async |table| {
/// use dynamodb_write_sharding::Attributes;
///
/// for sort_key in ["order-1", "order-2"] {
///     table.put("2014-07-09", sort_key, Attributes::new()).await?;
/// }
/// let query = || table.query::<Attributes>("2014-07-09").limit(1).consistent(true);
/// let first = query().await?;
/// let second = query().cursor(&first.cursor.expect("there is more")).await?;
/// assert_eq!(second.entries[0].sort_key.to_string(), "order-2");
/// let again = query().cursor(&second.previous.expect("there is a page before it")).await?;
/// assert_eq!(again.entries, first.entries);
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Page<T> {
    /// The items.
    pub entries: Vec<Entry<T>>,
    /// Where the next page begins. `None` at the end. It is text of URL-safe characters, at most
    /// 1,400, and valid for the same query only. A page may be short, or even empty, and still have
    /// a cursor.
    pub cursor: Option<String>,
    /// Where the page before this one begins. `None` on the first page. An empty page after the last
    /// item has it, too.
    pub previous: Option<String>,
    /// The number of shards that were read.
    pub shards: usize,
    /// The DynamoDB read units that the page cost.
    pub consumed_capacity: f64,
    /// The page was read backwards: its query continues at a [`previous`](Self::previous).
    pub is_backwards: bool,
    pub(crate) query: PageQuery,
    pub(crate) at: Position,
}

impl<T> Page<T> {
    /// The items in the order in which they were read: the last one first if the page was read
    /// backwards.
    pub fn as_read(&self) -> impl Iterator<Item = &Entry<T>> {
        let (forwards, backwards) =
            if self.is_backwards { (0, self.entries.len()) } else { (self.entries.len(), 0) };
        self.entries.iter().take(forwards).chain(self.entries.iter().rev().take(backwards))
    }

    /// Keeps this number of items, of those that were [read first](Self::as_read), for example
    /// because a response has room for no more. The [`cursor`](Self::cursor), or
    /// [`previous`](Self::previous) of a page that was read backwards, continues with the others.
    pub fn keep(&mut self, count: usize) {
        let Some(left_out) = self.entries.len().checked_sub(count).filter(|left| *left > 0) else {
            return;
        };
        let kept = if self.is_backwards {
            self.entries.drain(..left_out);
            self.entries.first()
        } else {
            self.entries.truncate(count);
            self.entries.last()
        };
        // Without an item, it continues where it began.
        let place = kept.map_or_else(|| self.at.place.clone(), |it| Some(it.sort_key.clone()));
        let position = Position { place, is_before: self.is_backwards };
        let further = if self.is_backwards { &mut self.previous } else { &mut self.cursor };
        *further = Some(cursor::encode(&self.query, &position));
    }
}

/// The number of items of a part of a query.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Counted {
    /// The number of items.
    pub items: usize,
    /// Where the next part begins. `None` at the end.
    pub cursor: Option<String>,
    /// The number of shards that were read.
    pub shards: usize,
    /// The DynamoDB read units that the part cost.
    pub consumed_capacity: f64,
}

/// The outcome of [`batch_put`](crate::ShardedTable::batch_put) or
/// [`batch_delete`](crate::ShardedTable::batch_delete).
#[derive(Debug)]
#[non_exhaustive]
pub struct BatchOutcome {
    /// The number of items that were stored, or deleted.
    pub written: usize,
    /// The items that were not, or may not have been: each with its position from 0, in their
    /// order.
    pub failed: Vec<(usize, WriteError)>,
}

impl BatchOutcome {
    /// The positions of the failed items for which a repetition may succeed: the error is
    /// [retryable](WriteError::is_retryable), or its outcome is unknown, and a put may be repeated
    /// as it is. A deletion may be, unless another process stores the item anew. For the other
    /// failed items, something must be corrected first.
    pub fn to_repeat(&self) -> impl Iterator<Item = usize> {
        self.failed.iter().filter_map(|(position, error)| {
            let helps = error.is_retryable() || matches!(error.kind, WriteErrorKind::Unknown(_));
            helps.then_some(*position)
        })
    }
}

impl Updated {
    /// The item as a `T`.
    ///
    /// # Errors
    /// [`ReadError::Decode`] names the attribute that does not fit.
    pub fn decode<T: FromValue>(self) -> Result<T, ReadError> {
        decode(&self.partition_key, &self.written.sort_key, self.attributes)
    }
}

pub(super) fn decode<T: FromValue>(
    key: &PartitionKey,
    sort_key: &SortKey,
    attributes: Attributes,
) -> Result<T, ReadError> {
    T::from_value(Value::M(attributes)).map_err(|NotOfType { attribute, why }| ReadError::Decode {
        partition_key: key.clone(),
        sort_key: sort_key.clone(),
        attribute,
        why,
    })
}
