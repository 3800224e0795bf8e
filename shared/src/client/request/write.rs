//! Storing, changing and deleting one item.

use crate::client::ShardedTable;
use crate::client::content::{IntoValue, allowed, check_numbers, item_attributes, map, value};
use crate::client::request::{Target, Within, partition_key, sent_as};
use crate::engine::Deadline;
use crate::engine::error::{InvalidRequest, WriteError};
use crate::engine::write::{Updated, Written};
use crate::protocol::tag::{Conditions, ETag};
use crate::values::idempotency::IdempotencyKey;
use crate::values::key::{IntoKey, PartitionKey, SortKey, SortKeyType};
use crate::values::patch::{Merge, Patch};
use crate::values::value::{Attributes, Item, Value};

macro_rules! conditional {
    ($request:ident) => {
        impl $request {
            /// Only if the item is still in this state. Otherwise the error is of kind
            /// `Precondition` and has the present tag.
            ///
            /// ```
            /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
            /// # in_process::with_table(async |table| {
            /// use dynamodb_write_sharding::{Attributes, WriteErrorKind};
            ///
            /// let free = table.put("seats", "14C", Attributes::new()).await?;
            /// let tag = free.tag.expect("it was stored by this request");
            /// table.update("seats", "14C").set("taken", true).if_match(&tag).await?;
            /// let refused = table.delete("seats", "14C").if_match(&tag).await.unwrap_err();
            /// assert!(matches!(refused.kind, WriteErrorKind::Precondition));
            /// # Ok(()) });
            /// ```
            pub fn if_match(mut self, tag: &ETag) -> Self {
                self.conditions = Conditions::unchanged_since(tag);
                self
            }

            /// Only under these conditions. They replace those of [`if_match`](Self::if_match).
            pub fn conditions(mut self, conditions: Conditions) -> Self {
                self.conditions = conditions;
                self
            }
        }
    };
}

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
    pub(crate) fn new(table: ShardedTable, key: impl IntoKey, item: impl IntoValue) -> Self {
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
        let sort_key = SortKey::String(key.sort_key(&partition_key, &attributes, 0).into());
        engine.put_once(&Item { partition_key, sort_key, attributes }, deadline).await
    }
}

/// See [`ShardedTable::update`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct Update {
    table: ShardedTable,
    target: Result<Target, InvalidRequest>,
    patch: Patch,
    conditions: Conditions,
    idempotency_key: Option<IdempotencyKey>,
    within: Within,
}

sent_as!(Update, "update", Result<Updated, WriteError>);
conditional!(Update);

impl Update {
    pub(crate) fn new(table: ShardedTable, target: Result<Target, InvalidRequest>) -> Self {
        let (conditions, within) = (Conditions::default(), Within::default());
        let patch = Patch::default();
        Self { table, target, patch, conditions, idempotency_key: None, within }
    }

    fn try_to(mut self, change: impl FnOnce(&mut Self) -> Result<(), InvalidRequest>) -> Self {
        if let Err(wrong) = change(&mut self) {
            self.target = self.target.and(Err(wrong));
        }
        self
    }

    fn insert(
        &mut self,
        name: &str,
        change: Result<Merge, InvalidRequest>,
    ) -> Result<(), InvalidRequest> {
        allowed(self.table.config(), name)?;
        self.patch.merge.insert(name.to_owned(), change?);
        Ok(())
    }

    fn insert_summand(&mut self, name: &str, added: impl IntoValue) -> Result<(), InvalidRequest> {
        allowed(self.table.config(), name)?;
        let added = value(name, added)?;
        if !matches!(added, Value::N(_) | Value::Ss(_) | Value::Ns(_) | Value::Bs(_)) {
            let why = format!("it is {}; a number or a set can be added", added.type_name());
            return Err(InvalidRequest::of(format!("attribute {name}"), why));
        }
        self.patch.add.insert(name.to_owned(), added);
        Ok(())
    }

    /// Sets an attribute to a value.
    pub fn set(self, name: &str, to: impl IntoValue) -> Self {
        self.try_to(|update| update.insert(name, value(name, to).map(Merge::Set)))
    }

    /// Removes an attribute. It is no error if there is none.
    pub fn remove(self, name: &str) -> Self {
        self.try_to(|update| update.insert(name, Ok(Merge::Remove)))
    }

    /// Merges a map into the item as in RFC 7396 (JSON merge patch): null and `None` remove, maps
    /// are merged, all other values are set.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// #[derive(serde::Serialize)]
    /// struct Change {
    ///     note: Option<String>,
    ///     #[serde(skip_serializing_if = "Option::is_none")]
    ///     total: Option<u64>,
    /// }
    ///
    /// table
    ///     .put("2014-07-09", "order-1", Change { note: Some("fragile".into()), total: Some(12) })
    ///     .await?;
    /// let updated =
    ///     table.update("2014-07-09", "order-1").merge(Change { note: None, total: None }).await?;
    /// assert_eq!(updated.attributes.keys().collect::<Vec<_>>(), ["total"]);
    /// # Ok(()) });
    /// ```
    pub fn merge(self, changes: impl IntoValue) -> Self {
        self.try_to(|update| {
            let mut changes = map(changes)?.into_iter();
            changes.try_for_each(|(name, value)| update.insert(&name, Ok(merge(value))))
        })
    }

    /// Adds to a number, or members to a set. An absent attribute counts as 0 or as an empty set.
    /// Concurrent additions of any number of processes are all applied. A set is a [`Value`]
    /// (`Value::Ss`), or the result of `serde_dynamo::string_set`.
    ///
    /// Without an [`idempotency_key`](Self::idempotency_key), an addition that is repeated after an
    /// unknown outcome may be applied twice.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use dynamodb_write_sharding::{Attributes, Value};
    ///
    /// table.put("pages", "/index.html", Attributes::new()).await?;
    /// let tags = Value::Ss(vec!["new".into()]);
    /// let updated = table.update("pages", "/index.html").add("count", 1).add("tags", tags).await?;
    /// assert_eq!(updated.attributes["count"], Value::N("1".into()));
    /// # Ok(()) });
    /// ```
    pub fn add(self, name: &str, value: impl IntoValue) -> Self {
        self.try_to(|update| update.insert_summand(name, value))
    }

    /// Makes all changes of a patch, besides those that were named before.
    pub fn patch(self, patch: Patch) -> Self {
        self.try_to(|update| {
            for (name, change) in patch.merge {
                let checked = check_merged_numbers(&name, &change);
                update.insert(&name, checked.map(|()| change))?;
            }
            patch.add.into_iter().try_for_each(|(name, value)| update.insert_summand(&name, value))
        })
    }

    /// An [`IdempotencyKey`]. The item remembers it for at least a minute, and the change is made
    /// once. A put or a delete of the item forgets it.
    pub fn idempotency_key(self, key: &str) -> Self {
        self.try_to(|update| {
            update.idempotency_key = Some(idempotency_key(key)?);
            Ok(())
        })
    }

    async fn send(self, deadline: Deadline) -> Result<Updated, WriteError> {
        let Target { partition_key, sort_key } = self.target?;
        let Patch { merge, add } = &self.patch;
        if let Some(name) = add.keys().find(|name| merge.contains_key(*name)) {
            let why = "the update both adds to it and sets or removes it";
            return Err(InvalidRequest::of(format!("attribute {name}"), why).into());
        }
        let once = self.idempotency_key.as_ref();
        let target = (&partition_key, &sort_key);
        self.table.engine().update(target, &self.patch, &self.conditions, once, deadline).await
    }
}

/// See [`ShardedTable::delete`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct Delete {
    table: ShardedTable,
    target: Result<Target, InvalidRequest>,
    conditions: Conditions,
    within: Within,
}

sent_as!(Delete, "delete", Result<Written, WriteError>);
conditional!(Delete);

impl Delete {
    pub(crate) fn new(table: ShardedTable, target: Result<Target, InvalidRequest>) -> Self {
        Self { table, target, conditions: Conditions::default(), within: Within::default() }
    }

    async fn send(self, deadline: Deadline) -> Result<Written, WriteError> {
        let Target { partition_key, sort_key } = self.target?;
        let engine = self.table.engine();
        engine.delete_if(&partition_key, &sort_key, &self.conditions, deadline).await
    }
}

fn idempotency_key(text: &str) -> Result<IdempotencyKey, InvalidRequest> {
    IdempotencyKey::new(text).map_err(|error| InvalidRequest::of("idempotency key", error))
}

fn check_merged_numbers(name: &str, change: &Merge) -> Result<(), InvalidRequest> {
    match change {
        Merge::Remove => Ok(()),
        Merge::Set(value) => check_numbers(name, value),
        Merge::Into(members) => members.iter().try_for_each(|(member, change)| {
            check_merged_numbers(&format!("{name}.{member}"), change)
        }),
    }
}

fn merge(value: Value) -> Merge {
    if value == Value::Null {
        return Merge::Remove;
    }
    let Value::M(members) = value else { return Merge::Set(value) };
    Merge::Into(members.into_iter().map(|(name, value)| (name, merge(value))).collect())
}
