//! Storing one item.

use crate::client::ShardedTable;
use crate::client::request::{
    IntoValue, Within, conditional, item_attributes, partition_key, sent_as,
};
use crate::engine::Deadline;
use crate::engine::error::{InvalidRequest, WriteError};
use crate::engine::results::Written;
use crate::protocol::tag::Conditions;
use crate::values::idempotency::IdempotencyKey;
use crate::values::key::{KeyError, PartitionKey, SortKey, SortKeyType};
use crate::values::value::{Attributes, Item};

/// See [`ShardedTable::put`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct Put {
    table: ShardedTable,
    item: Result<Item, InvalidRequest>,
    conditions: Conditions,
    once: bool,
    within: Within,
}

sent_as!(Put, "put", Result<Written, WriteError>);
conditional!(Put);

impl Put {
    pub(crate) fn new(table: ShardedTable, item: Result<Item, InvalidRequest>) -> Self {
        let (conditions, within) = (Conditions::default(), Within::default());
        Self { table, item, conditions, once: false, within }
    }

    /// An item that is there already counts as this one: nothing is stored, and the request
    /// succeeds. So a repetition undoes no later put of the item. If the item was deleted, a
    /// repetition may store it again. Not together with conditions.
    ///
    /// For sort keys that are derived from what they name, as [`IdempotencyKey::sort_key`] does. In
    /// an append-only table, all puts of one sort key must have the same content: of two that
    /// differ, either may be read.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use std::collections::HashMap;
    ///
    /// for visits in [1, 2] {
    ///     table.put("visitors", "203.0.113.7", HashMap::from([("visits", visits)])).once(true).await?;
    /// }
    /// let read = table.get::<HashMap<String, u32>>("visitors", "203.0.113.7").consistent(true);
    /// assert_eq!(read.await?.expect("it was stored").value["visits"], 1);
    /// # Ok(()) });
    /// ```
    pub const fn once(mut self, once: bool) -> Self {
        self.once = once;
        self
    }

    async fn send(self, deadline: Deadline) -> Result<Written, WriteError> {
        let item = self.item?;
        let engine = self.table.engine();
        if !self.once {
            return engine.put_if(&item, &self.conditions, deadline).await;
        }
        if !self.conditions.are_none() {
            let why = "a put that is made once has no conditions; use create, or leave once out";
            return Err(InvalidRequest::of("conditions", why).into());
        }
        engine.put_once(&item, deadline).await
    }
}

/// See [`ShardedTable::create`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct Create {
    table: ShardedTable,
    item: Result<Item, InvalidRequest>,
    idempotency_key: Option<Result<IdempotencyKey, InvalidRequest>>,
    within: Within,
}

sent_as!(Create, "create", Result<Written, WriteError>);

impl Create {
    pub(crate) fn new(table: ShardedTable, item: Result<Item, InvalidRequest>) -> Self {
        Self { table, item, idempotency_key: None, within: Within::default() }
    }

    /// An [`IdempotencyKey`]: a repetition recognises the item that an earlier attempt created, and
    /// succeeds.
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.idempotency_key = Some(idempotency_key(key));
        self
    }

    async fn send(self, deadline: Deadline) -> Result<Written, WriteError> {
        let (item, key) = (self.item?, self.idempotency_key.transpose()?);
        self.table.engine().create(&item, key.as_ref(), deadline).await
    }
}

/// See [`ShardedTable::append`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct Append {
    table: ShardedTable,
    item: Result<(PartitionKey, Attributes), InvalidRequest>,
    idempotency_key: Option<Result<IdempotencyKey, InvalidRequest>>,
    within: Within,
}

sent_as!(Append, "append", Result<Written, WriteError>);

impl Append {
    pub(crate) fn new(
        table: ShardedTable,
        key: impl TryInto<PartitionKey, Error: Into<KeyError>>,
        item: impl IntoValue,
    ) -> Self {
        let config = table.config();
        let item =
            partition_key(config, key).and_then(|key| Ok((key, item_attributes(config, item)?)));
        Self { table, item, idempotency_key: None, within: Within::default() }
    }

    /// An [`IdempotencyKey`]. The sort key is [derived](IdempotencyKey::sort_key) from it and the
    /// item, so a repetition stores nothing new, even if the first attempt's outcome is unknown.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use dynamodb_write_sharding::Attributes;
    ///
    /// let append = || table.append("/index.html", Attributes::new()).idempotency_key("click-7");
    /// assert_eq!(append().await?.sort_key, append().await?.sort_key);
    /// # Ok(()) });
    /// ```
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.idempotency_key = Some(idempotency_key(key));
        self
    }

    async fn send(self, deadline: Deadline) -> Result<Written, WriteError> {
        let ((partition_key, attributes), once) = (self.item?, self.idempotency_key.transpose()?);
        if self.table.config().sort_key_type != SortKeyType::String {
            let why = "the table's sort keys are numbers, and none is made; use put";
            return Err(InvalidRequest::of("sort key", why).into());
        }
        let engine = self.table.engine();
        let Some(key) = &once else {
            return engine.append(partition_key, attributes, deadline).await;
        };
        let text = key.sort_key(&partition_key, &attributes, 0);
        let sort_key =
            SortKey::parse(SortKeyType::String, &text).map_err(InvalidRequest::sort_key)?;
        engine.put_once(&Item { partition_key, sort_key, attributes }, deadline).await
    }
}

pub(super) fn idempotency_key(text: &str) -> Result<IdempotencyKey, InvalidRequest> {
    IdempotencyKey::new(text).map_err(|error| InvalidRequest::of("idempotency key", error))
}
