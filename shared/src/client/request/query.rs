//! Reading the items of a partition key in order.

use std::collections::{BTreeSet, VecDeque};
use std::marker::PhantomData;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream};
use tracing::Instrument;

use crate::client::ShardedTable;
use crate::client::content::{FromValue, allowed};
use crate::client::entry::{Counted, Entry, EntryTags, Page};
use crate::client::request::{Within, own_sort_key, partition_key, sent_as, span};
use crate::engine::Deadline;
use crate::engine::error::{InvalidRequest, ReadError};
use crate::engine::read;
use crate::values::cursor::{self, Position};
use crate::values::key::{IntoKey, SortKey, SortKeyType};
use crate::values::query::{Order, PageQuery};

const MAX_COUNTED_ITEMS: usize = 10_000;

/// See [`ShardedTable::query`].
///
/// ```
/// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
/// # in_process::with_table(async |table| {
/// use dynamodb_write_sharding::{Attributes, Order};
///
/// for sort_key in ["order-1", "order-2", "order-3", "refund-1"] {
///     table.put("2014-07-09", sort_key, Attributes::new()).await?;
/// }
/// let orders = || table.query::<Attributes>("2014-07-09").prefix("order-").consistent(true);
/// let last = orders().order(Order::Descending).limit(1).await?;
/// assert_eq!(last.entries[0].sort_key.to_string(), "order-3");
/// let before =
///     orders().order(Order::Descending).after(&last.entries[0].sort_key).fields(["total"]).await?;
/// assert_eq!(before.entries.len(), 2);
/// # Ok(()) });
/// ```
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct Query<T> {
    table: ShardedTable,
    query: Result<PageQuery, InvalidRequest>,
    cursor: Option<String>,
    limit: Option<usize>,
    tags: bool,
    within: Within,
    of: PhantomData<fn() -> T>,
}

sent_as!(Query<T>, "query", Result<Page<T>, ReadError>);

impl<T> Query<T> {
    pub(crate) fn new(table: ShardedTable, key: impl IntoKey) -> Self {
        let query = partition_key(table.config(), key).map(PageQuery::new);
        let within = Within::default();
        Self { table, query, cursor: None, limit: None, tags: true, within, of: PhantomData }
    }

    fn try_to(
        mut self,
        change: impl FnOnce(&mut PageQuery, &ShardedTable) -> Result<(), InvalidRequest>,
    ) -> Self {
        self.query =
            self.query.and_then(|mut query| change(&mut query, &self.table).map(|()| query));
        self
    }

    /// Only sort keys from this one on, inclusive.
    pub fn from(self, lowest: impl IntoKey<SortKey>) -> Self {
        self.try_to(|query, table| {
            query.from = Some(own_sort_key("from", table.config(), lowest)?);
            Ok(())
        })
    }

    /// Only sort keys up to this one, inclusive.
    pub fn to(self, highest: impl IntoKey<SortKey>) -> Self {
        self.try_to(|query, table| {
            query.to = Some(own_sort_key("to", table.config(), highest)?);
            Ok(())
        })
    }

    /// Only sort keys with this prefix. For tables whose sort key is a string, and not together
    /// with `from` or `to`.
    pub fn prefix(self, prefix: &str) -> Self {
        self.try_to(|query, table| {
            if table.config().sort_key_type != SortKeyType::String {
                let why = "the table's sort keys are numbers; use from and to";
                return Err(InvalidRequest::of("prefix", why));
            }
            own_sort_key("prefix", table.config(), prefix)?;
            query.prefix = Some(prefix.to_owned());
            Ok(())
        })
    }

    /// Only sort keys after this one in the query's order, exclusive: where an earlier reader
    /// stopped.
    pub fn after(self, sort_key: impl IntoKey<SortKey>) -> Self {
        self.try_to(|query, table| {
            query.after = Some(own_sort_key("after", table.config(), sort_key)?);
            Ok(())
        })
    }

    /// Continues at a page's [`cursor`](Page::cursor) or [`previous`](Page::previous). The query must
    /// be the same; its limit may differ.
    pub fn cursor(mut self, cursor: &str) -> Self {
        self.cursor = Some(cursor.to_owned());
        self
    }

    /// The order of the items. The default is ascending.
    pub fn order(self, order: Order) -> Self {
        self.try_to(|query, _| {
            query.order = order;
            Ok(())
        })
    }

    /// The largest number of items of a page, 1 to 1,000; by default 100. A stream has no limit,
    /// and reads pages of this size.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self.try_to(|query, _| {
            if !(1..=PageQuery::MAX_LIMIT).contains(&limit) {
                let why = format!("it is {limit}; allowed: 1 to {}", PageQuery::MAX_LIMIT);
                return Err(InvalidRequest::of("limit", why));
            }
            query.limit = limit;
            Ok(())
        })
    }

    /// Whether the result must contain every write that was acknowledged before. Costs twice the
    /// read units.
    pub fn consistent(self, consistent: bool) -> Self {
        self.try_to(|query, _| {
            query.consistent = consistent;
            Ok(())
        })
    }

    /// Only these attributes, besides the keys. Fewer bytes are sent; the read units are the same.
    pub fn fields<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.try_to(|query, table| {
            let names: Vec<&str> = names.into_iter().collect();
            names.iter().try_for_each(|name| allowed(table.config(), name))?;
            query.fields = Some(names.into_iter().map(str::to_owned).collect());
            Ok(())
        })
    }

    /// Whether entries have tags; by default they have. For items without a version of their own,
    /// a tag costs a digest of the item.
    pub const fn tags(mut self, tags: bool) -> Self {
        self.tags = tags;
        self
    }

    /// The query, once it is complete, and where its page is.
    fn checked(self) -> Result<Checked, InvalidRequest> {
        let query = self.query?;
        if query.prefix.is_some() && (query.from.is_some() || query.to.is_some()) {
            return Err(InvalidRequest::of("prefix", "it cannot be combined with from or to"));
        }
        if query.from.as_ref().zip(query.to.as_ref()).is_some_and(|(from, to)| from > to) {
            return Err(InvalidRequest::of("from", "it is above to"));
        }
        let at = match self.cursor {
            None => Position::after(query.after.clone()),
            Some(cursor) => cursor::decode(&query, self.table.config().sort_key_type, &cursor)
                .map_err(|error| InvalidRequest::of("cursor", error))?,
        };
        let tags = match &query.fields {
            _ if !self.tags => EntryTags::None,
            Some(_) => EntryTags::OfVersions,
            None => EntryTags::All,
        };
        Ok(Checked { table: self.table, query, at, tags, within: self.within })
    }

    /// As [`checked`](Self::checked), for requests that only go forwards.
    fn forwards(self) -> Result<Checked, InvalidRequest> {
        let mut checked = self.checked()?;
        if checked.at.is_before {
            let why = "it is of a previous page, and this request goes forwards";
            return Err(InvalidRequest::of("cursor", why));
        }
        checked.query.after = checked.at.place.take();
        Ok(checked)
    }
}

struct Checked {
    table: ShardedTable,
    query: PageQuery,
    at: Position,
    tags: EntryTags,
    within: Within,
}

impl<T: FromValue + Send + 'static> Query<T> {
    /// The number of items. It reads all of their keys, so it costs as much as reading the items; it
    /// has the request's timeout for each page.
    ///
    /// # Errors
    /// [`ReadError`], as of the query.
    pub async fn count(self) -> Result<usize, ReadError> {
        let Checked { table, mut query, within, .. } = self.forwards()?;
        (query.fields, query.limit) = (Some(BTreeSet::new()), MAX_COUNTED_ITEMS);
        let mut count = 0;
        loop {
            let page = read_page(&table, &query, within).await?;
            count += page.items.len();
            let Some(next) = page.next else { return Ok(count) };
            query.after = Some(next);
        }
    }

    /// The number of items of one part of the query, within one timeout: up to its
    /// [`limit`](Self::limit), by default 10,000. The result says where the next part begins.
    ///
    /// # Errors
    /// [`ReadError`], as of the query.
    pub async fn count_page(self) -> Result<Counted, ReadError> {
        let limit = self.limit.unwrap_or(MAX_COUNTED_ITEMS);
        let Checked { table, mut query, within, .. } = self.forwards()?;
        (query.fields, query.limit) = (Some(BTreeSet::new()), limit);
        let page = read_page(&table, &query, within).await?;
        Ok(Counted {
            items: page.items.len(),
            cursor: page.next.map(|next| cursor::encode(&query, &Position::after(Some(next)))),
            shards: page.shards,
            consumed_capacity: page.consumed_capacity,
        })
    }

    /// All items, page after page, in order. Each page has the request's timeout. After an error
    /// the stream ends; to continue, query again [`after`](Self::after) the last entry.
    ///
    /// Across changes of the shards, each item that exists throughout comes exactly once.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use futures_util::TryStreamExt;
    /// use dynamodb_write_sharding::Attributes;
    ///
    /// for minute in 10..40 {
    ///     table.put("2014-07-09", format!("12:{minute}"), Attributes::new()).await?;
    /// }
    /// let later = table.query::<Attributes>("2014-07-09").from("12:20").limit(7).consistent(true);
    /// let (mut entries, mut count) = (later.stream(), 0);
    /// while let Some(entry) = entries.try_next().await? {
    ///     assert_eq!(entry.sort_key.to_string(), format!("12:{}", 20 + count));
    ///     count += 1;
    /// }
    /// assert_eq!(count, 20);
    /// # Ok(()) });
    /// ```
    pub fn stream(
        self,
    ) -> impl Stream<Item = Result<Entry<T>, ReadError>> + Send + Unpin + 'static {
        let begun = self.forwards().map(|checked| (Box::new(checked), VecDeque::new(), false));
        Box::pin(stream::try_unfold(begun, |begun| async move {
            let (mut checked, mut items, mut is_last) = begun?;
            while items.is_empty() && !is_last {
                let page = read_page(&checked.table, &checked.query, checked.within).await?;
                items.extend(page.items.into_iter().zip(page.versions));
                is_last = page.next.is_none();
                checked.query.after = page.next;
            }
            let Some((item, version)) = items.pop_front() else { return Ok(None) };
            let entry = Entry::<T>::of(item, version, checked.tags)?;
            Ok(Some((entry, Ok((checked, items, is_last)))))
        }))
    }
}

// Boxed, because the SDK's futures nest so deeply that the compiler fails on futures that contain
// them.
fn read_page<'a>(
    table: &'a ShardedTable,
    query: &'a PageQuery,
    within: Within,
) -> BoxFuture<'a, Result<read::Page, ReadError>> {
    let page = async move { table.engine().query(query, within.deadline(table.config())).await };
    Box::pin(page.instrument(span("query", table)))
}

impl<T: FromValue> Query<T> {
    async fn send(self, deadline: Deadline) -> Result<Page<T>, ReadError> {
        let Checked { table, query, at, tags, .. } = self.checked()?;
        let page = table.engine().page_at(&query, &at, deadline).await?;
        let (next, previous) = page.neighbours(&at);
        let entries = page.items.into_iter().zip(page.versions);
        let entries = entries.map(|(item, version)| Entry::of(item, version, tags));
        let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
        if at.is_before {
            entries.reverse();
        }
        Ok(Page {
            entries,
            cursor: next.map(|next| cursor::encode(&query, &next)),
            previous: previous.map(|previous| cursor::encode(&query, &previous)),
            shards: page.shards,
            consumed_capacity: page.consumed_capacity,
            is_backwards: at.is_before,
            query,
            at,
        })
    }
}
