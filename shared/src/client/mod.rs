//! The crate's interface: the table, its settings and results, and its errors.
//! [`request`](crate::client::request) has the requests of the verbs.

pub(crate) mod content;
pub(crate) mod entry;
pub mod maintenance;
pub mod request;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use futures_util::stream::{self, Stream, StreamExt};

use crate::client::content::IntoValue;
use crate::client::maintenance::Maintenance;
use crate::client::request::{
    Append, BatchGet, BatchWrite, Create, Delete, Get, Put, Query, Single, Update,
};
use crate::config::TableConfig;
use crate::engine::{TableEngine, Within};
use crate::values::key::{IntoKey, SortKey};

/// A DynamoDB table whose hot partition keys are spread over shards.
///
/// Each verb returns a request. Set its options, then `.await` it; nothing is sent before. Keys are
/// text, and an invalid key is an error of the request. Every request ends within
/// [`TableConfig::timeout`] (5 s by default) unless its `timeout` or `deadline` says otherwise. A
/// request owns its data, so it can be spawned.
///
/// Cheap to clone. Clones share the state of the keys. Use one table (and its clones) for a
/// process, not one for each request.
///
/// # What happens by itself
///
/// - **Before the first write**, the process checks that all processes of the table agree on
///   [`TableConfig::writes`] and [`TableConfig::placement`]. The first process of a new table
///   records both in the metadata table. If they disagree, the write fails and nothing is stored.
///   Reads check this as well. The check costs one read, once.
/// - **After a throttled write**, its key gets more shards in the background. A process may stop at
///   any time: another process takes over an unfinished growth at its next write of the key. Call
///   [`close`](Self::close) before a process ends, to finish its own growths. If you do not,
///   dropping the last clone logs a warning with the keys, through `tracing`.
///
/// # Example
///
/// ```
/// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
/// # in_process::with_table(async |table| {
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Order {
///     total: u64,
/// }
///
/// let written = table.put("2014-07-09", "order-1147", Order { total: 12 }).await?;
/// assert_eq!((written.shard, written.number_of_shards), (1, 1));
/// let order = table.get::<Order>("2014-07-09", "order-1147").consistent(true).await?;
/// assert_eq!(order.map(|order| order.value.total), Some(12));
/// table.delete("2014-07-09", "order-1147").await?;
/// table.close().await;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct ShardedTable {
    handle: Arc<Handle>,
}

impl ShardedTable {
    /// A table that is accessed with this client. Nothing is sent yet. Retries and timeouts of
    /// single attempts are the table's own, whatever the client's settings are. Requests must run
    /// in a tokio runtime with timers.
    ///
    /// ```no_run
    /// use dynamodb_write_sharding::{ShardedTable, TableConfig};
    ///
    /// # fn table(aws: &aws_config::SdkConfig) -> ShardedTable {
    /// let client = aws_sdk_dynamodb::Client::new(aws);
    /// ShardedTable::new(&client, TableConfig::new("items", "items-metadata"))
    /// # }
    /// ```
    #[must_use]
    pub fn new(client: &Client, config: TableConfig) -> Self {
        Self::over(TableEngine::new(client, config))
    }

    /// A table over an engine. Tests create one with a clock and a seed.
    #[doc(hidden)]
    #[must_use]
    pub fn over(engine: TableEngine) -> Self {
        Self { handle: Arc::new(Handle { engine }) }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &TableConfig {
        self.engine().config()
    }

    /// The engine behind it, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn engine(&self) -> &TableEngine {
        &self.handle.engine
    }

    /// What an operator of the table does, and a schedule: grow keys ahead of a known peak, shrink
    /// and settle them, read and repair the metadata.
    #[must_use]
    pub fn maintenance(&self) -> Maintenance {
        Maintenance { engine: self.engine().clone(), within: Within::default() }
    }

    /// A time-ordered unique sort key for an item that came without one: a UUID of version 7. For
    /// tables whose sort key is a string.
    #[must_use]
    pub fn make_sort_key(&self) -> SortKey {
        self.engine().make_sort_key()
    }

    /// Tells when an invocation that has just begun must end, in time since the Unix epoch by the
    /// clock of the service that invokes. Call it at the start of each invocation on AWS Lambda,
    /// which freezes a process between invocations: so the process notices for how long it was
    /// frozen, even if its clock was set back meanwhile.
    pub fn invoked(&self, ends_at: Duration) {
        self.engine().invoked(ends_at);
    }

    /// Stores or replaces an item. Of two puts of one item, the one that is acknowledged later
    /// wins. In an append-only table, the later one by its writer's clock wins.
    ///
    /// `item` is any value that serializes to a map, or [`Attributes`](crate::Attributes). It does
    /// not contain the keys.
    ///
    /// # Errors
    /// [`WriteError`](crate::WriteError): kind `Precondition` if [`Put::if_match`] does not hold,
    /// and the kinds of every write.
    pub fn put(
        &self,
        key: impl IntoKey,
        sort_key: impl IntoKey<SortKey>,
        item: impl IntoValue,
    ) -> Put {
        Put::new(self.clone(), request::item(self.config(), key, sort_key, item))
    }

    /// Creates an item. Of any number of concurrent calls for one item, exactly one succeeds.
    ///
    /// # Errors
    /// [`WriteError`](crate::WriteError): kind `Exists` if the item exists, and the kinds of every
    /// write. After `Unknown`, repeat the call with the same
    /// [`idempotency_key`](Create::idempotency_key): it recognises its own item and succeeds again.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use dynamodb_write_sharding::{Attributes, WriteErrorKind};
    ///
    /// table.create("seats", "14C", Attributes::new()).await?;
    /// let taken = table.create("seats", "14C", Attributes::new()).await.unwrap_err();
    /// assert!(matches!(taken.kind, WriteErrorKind::Exists));
    /// # Ok(()) });
    /// ```
    pub fn create(
        &self,
        key: impl IntoKey,
        sort_key: impl IntoKey<SortKey>,
        item: impl IntoValue,
    ) -> Create {
        Create::new(self.clone(), request::item(self.config(), key, sort_key, item))
    }

    /// Stores an item under a new sort key: a UUID of version 7, so items of one writer are ordered
    /// by time. The response has the sort key. For tables whose sort key is a string.
    ///
    /// Without an idempotency key, an append avoids throttled shards: until an attempt may have
    /// stored the item, it may make another sort key, which belongs to another shard.
    ///
    /// # Errors
    /// [`WriteError`](crate::WriteError): kind `Invalid` if the table's sort key is a number, and
    /// the kinds of every write. After `Unknown`, [`put`](Self::put) the item with the error's
    /// `sort_key`, or repeat the call with the same
    /// [`idempotency_key`](Append::idempotency_key): it stores one item.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use dynamodb_write_sharding::{Attributes, Value};
    ///
    /// let event = Attributes::from([("type", Value::S("click".into()))]);
    /// let first = table.append("/index.html", event.clone()).await?;
    /// let second = table.append("/index.html", event).await?;
    /// assert!(first.sort_key < second.sort_key);
    /// # Ok(()) });
    /// ```
    pub fn append(&self, key: impl IntoKey, item: impl IntoValue) -> Append {
        Append::new(self.clone(), key, item)
    }

    /// Stores many items in parallel, each as with [`put`](Self::put), from pairs of keys with an
    /// item. Up to 64 are under way at once. An item is taken from the iterator when its write
    /// begins, and the time limit counts for each item from then on, so there may be any number of
    /// them.
    ///
    /// The output says which items to repeat; [`BatchWrite::stream`] has each outcome as it comes. This
    /// is not a transaction: some items may be stored and others not.
    ///
    /// # Errors
    /// For each item, the errors of [`put`](Self::put).
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use dynamodb_write_sharding::Attributes;
    ///
    /// let sort_keys = ["order-1", "order-2", ""];
    /// let items = sort_keys.map(|sort_key| ("2014-07-09", sort_key, Attributes::new()));
    /// let outcome = table.batch_put(items).await;
    /// assert_eq!(outcome.written, 2);
    /// let (position, error) = &outcome.failed[0];
    /// assert_eq!(sort_keys[*position], "");
    /// assert_eq!(error.to_string(), "sort key: it is empty; a key has at least one byte");
    /// assert_eq!(outcome.to_repeat().count(), 0, "repeating does not help");
    /// # Ok(()) });
    /// ```
    pub fn batch_put<'a, K: IntoKey, S: IntoKey<SortKey>, V: IntoValue>(
        &self,
        items: impl IntoIterator<Item = (K, S, V), IntoIter: Send + 'a>,
    ) -> BatchWrite<'a> {
        self.batch_put_stream(stream::iter(items))
    }

    /// As [`batch_put`](Self::batch_put), for items that come from a stream. While the stream is
    /// pending, writes go on.
    pub fn batch_put_stream<'a, K: IntoKey, S: IntoKey<SortKey>, V: IntoValue>(
        &self,
        items: impl Stream<Item = (K, S, V)> + Send + 'a,
    ) -> BatchWrite<'a> {
        let table = self.clone();
        let checked = move |(key, sort_key, item)| {
            request::item(table.config(), key, sort_key, item).map(Single::Put)
        };
        BatchWrite::new(self.clone(), "batch_put", items.map(checked))
    }

    /// Reads one item and its tag. `None` if there is none. Eventually consistent unless
    /// [`Get::consistent`] is set.
    ///
    /// # Errors
    /// [`ReadError`](crate::ReadError): `Decode` if the item does not fit `T`, and the kinds of
    /// every read.
    pub fn get<T>(&self, key: impl IntoKey, sort_key: impl IntoKey<SortKey>) -> Get<T> {
        Get::new(self.clone(), request::target(self.config(), key, sort_key))
    }

    /// Reads many items in parallel, each as with [`get`](Self::get). The output has one result for
    /// each pair of keys, in their order. Each item is one request, and costs the read units of a
    /// single read.
    ///
    /// # Errors
    /// For each item, the errors of [`get`](Self::get).
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use dynamodb_write_sharding::Attributes;
    ///
    /// table.put("2014-07-09", "order-1", Attributes::new()).await?;
    /// let found = table
    ///     .batch_get::<Attributes>([("2014-07-09", "order-1"), ("2014-07-09", "order-2")])
    ///     .await;
    /// let found: Result<Vec<_>, _> = found.into_iter().collect();
    /// assert!(matches!(found?.as_slice(), [Some(_), None]));
    /// # Ok(()) });
    /// ```
    pub fn batch_get<T>(
        &self,
        keys: impl IntoIterator<Item = (impl IntoKey, impl IntoKey<SortKey>)>,
    ) -> BatchGet<T> {
        let gets = keys.into_iter().map(|(key, sort_key)| self.get(key, sort_key));
        BatchGet::new(self.clone(), gets.collect())
    }

    /// Changes some attributes of an existing item: sets, removes, merges and adds, each attribute
    /// in one of these ways.
    ///
    /// # Errors
    /// [`WriteError`](crate::WriteError): kind `Absent` if there is no item, `Mismatch` if an
    /// addition does not fit the stored attribute, `Precondition` if [`Update::if_match`] does not
    /// hold, and the kinds of every write.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Counter {
    ///     count: u64,
    /// }
    ///
    /// table.put("pages", "/index.html", Counter { count: 1 }).await?;
    /// let updated = table.update("pages", "/index.html").add("count", 2).await?;
    /// assert_eq!(updated.decode::<Counter>()?.count, 3);
    /// # Ok(()) });
    /// ```
    pub fn update(&self, key: impl IntoKey, sort_key: impl IntoKey<SortKey>) -> Update {
        Update::new(self.clone(), request::target(self.config(), key, sort_key))
    }

    /// Deletes an item. It is no error if there is none.
    ///
    /// # Errors
    /// [`WriteError`](crate::WriteError): kind `Precondition` if [`Delete::if_match`] does not
    /// hold, and the kinds of every write. After `Unknown`, read before you delete again: another
    /// process may have stored a new item.
    pub fn delete(&self, key: impl IntoKey, sort_key: impl IntoKey<SortKey>) -> Delete {
        Delete::new(self.clone(), request::target(self.config(), key, sort_key))
    }

    /// Deletes many items in parallel, each as with [`delete`](Self::delete), from pairs of keys,
    /// as [`batch_put`](Self::batch_put) stores them.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use dynamodb_write_sharding::Attributes;
    ///
    /// let orders = ["order-1", "order-2"];
    /// table.batch_put(orders.map(|order| ("2014-07-09", order, Attributes::new()))).await;
    /// let outcome = table.batch_delete(orders.map(|order| ("2014-07-09", order))).await;
    /// assert_eq!(outcome.written, 2);
    /// # Ok(()) });
    /// ```
    pub fn batch_delete<'a, K: IntoKey, S: IntoKey<SortKey>>(
        &self,
        keys: impl IntoIterator<Item = (K, S), IntoIter: Send + 'a>,
    ) -> BatchWrite<'a> {
        let table = self.clone();
        let target = move |(key, sort_key)| request::target(table.config(), key, sort_key);
        let checked = stream::iter(keys).map(target).map(|target| target.map(Single::Delete));
        BatchWrite::new(self.clone(), "batch_delete", checked)
    }

    /// Reads the items of a partition key in sort-key order, over all its shards: a page with
    /// `.await`, or all items with [`Query::stream`].
    ///
    /// # Errors
    /// [`ReadError`](crate::ReadError): `Decode` if an item does not fit `T`, and the kinds of
    /// every read.
    pub fn query<T>(&self, key: impl IntoKey) -> Query<T> {
        Query::new(self.clone(), key)
    }

    /// Waits until the background work of this table and its clones is done: mainly keys that are
    /// getting more shards. Call it after the last request, before the process ends. The table can
    /// still be used afterwards.
    ///
    /// It ends within seconds, because each task has a deadline of its own.
    pub async fn close(&self) {
        self.engine().finish_background_work().await;
    }
}

/// The state that all clones of a table share. Its drop shows that the last clone is gone.
#[derive(Debug)]
struct Handle {
    engine: TableEngine,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let (tasks, growing) = self.engine.unfinished();
        if tasks == 0 {
            return;
        }
        tracing::warn!(
            tasks,
            ?growing,
            "a sharded table was dropped with work in the background; if the process ends now, the keys that are growing wait for another \
             process to take over. Call ShardedTable::close first"
        );
    }
}
