//! Changing a part of an item.

use crate::client::ShardedTable;
use crate::client::request::put::idempotency_key;
use crate::client::request::{IntoValue, Target, Within, allowed, conditional, map, sent_as};
use crate::engine::Deadline;
use crate::engine::error::{InvalidRequest, WriteError};
use crate::engine::results::Updated;
use crate::protocol::tag::Conditions;
use crate::values::idempotency::IdempotencyKey;
use crate::values::patch::{Merge, Patch};
use crate::values::value::Value;

/// See [`ShardedTable::update`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct Update {
    table: ShardedTable,
    target: Result<Target, InvalidRequest>,
    patch: Patch,
    wrong: Option<InvalidRequest>,
    conditions: Conditions,
    idempotency_key: Option<IdempotencyKey>,
    within: Within,
}

sent_as!(Update, "update", Result<Updated, WriteError>);
conditional!(Update);

impl Update {
    pub(crate) fn new(table: ShardedTable, target: Result<Target, InvalidRequest>) -> Self {
        Self {
            table,
            target,
            patch: Patch::default(),
            wrong: None,
            conditions: Conditions::default(),
            idempotency_key: None,
            within: Within::default(),
        }
    }

    fn try_to(mut self, change: impl FnOnce(&mut Self) -> Result<(), InvalidRequest>) -> Self {
        if let Err(wrong) = change(&mut self) {
            self.wrong.get_or_insert(wrong);
        }
        self
    }

    /// Sets an attribute to a value.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// table.put("2014-07-09", "order-1", dynamodb_write_sharding::Attributes::new()).await?;
    /// let updated = table
    ///     .update("2014-07-09", "order-1")
    ///     .set("status", "paid")
    ///     .set("lines", vec![3, 4])
    ///     .await?;
    /// assert_eq!(updated.attributes.len(), 2);
    /// # Ok(()) });
    /// ```
    pub fn set(self, name: &str, value: impl IntoValue) -> Self {
        self.try_to(|update| {
            allowed(update.table.config(), name)?;
            update.patch.merge.insert(name.to_owned(), Merge::Set(super::value(name, value)?));
            Ok(())
        })
    }

    /// Removes an attribute. It is no error if there is none.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// table
    ///     .put("2014-07-09", "order-1", std::collections::HashMap::from([("note", "fragile")]))
    ///     .await?;
    /// assert!(table.update("2014-07-09", "order-1").remove("note").await?.attributes.is_empty());
    /// # Ok(()) });
    /// ```
    pub fn remove(self, name: &str) -> Self {
        self.try_to(|update| {
            allowed(update.table.config(), name)?;
            update.patch.merge.insert(name.to_owned(), Merge::Remove);
            Ok(())
        })
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
            for (name, value) in map(changes)? {
                allowed(update.table.config(), &name)?;
                update.patch.merge.insert(name, merge(value));
            }
            Ok(())
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
        self.try_to(|update| {
            allowed(update.table.config(), name)?;
            update.patch.add.insert(name.to_owned(), summand(name, super::value(name, value)?)?);
            Ok(())
        })
    }

    /// Makes all changes of a patch, besides those that were named before.
    pub fn patch(self, patch: Patch) -> Self {
        self.try_to(|update| {
            for (name, change) in patch.merge {
                allowed(update.table.config(), &name)?;
                check_numbers(&name, &change)?;
                update.patch.merge.insert(name, change);
            }
            for (name, value) in patch.add {
                allowed(update.table.config(), &name)?;
                let value = summand(&name, super::value(&name, value)?)?;
                update.patch.add.insert(name, value);
            }
            Ok(())
        })
    }

    /// The caller's own name for this change, the same in every repetition: 1 to 255 visible ASCII
    /// characters. The item remembers it for at least a minute, and the change is made once. A put
    /// or a delete of the item forgets it.
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// use dynamodb_write_sharding::{Attributes, Value};
    ///
    /// table.put("pages", "/index.html", Attributes::new()).await?;
    /// for _attempt in 1..=2 {
    ///     let updated = table
    ///         .update("pages", "/index.html")
    ///         .add("count", 1)
    ///         .idempotency_key("visit-9")
    ///         .await?;
    ///     assert_eq!(updated.attributes["count"], Value::N("1".into()));
    /// }
    /// # Ok(()) });
    /// ```
    pub fn idempotency_key(self, key: &str) -> Self {
        self.try_to(|update| {
            update.idempotency_key = Some(idempotency_key(key)?);
            Ok(())
        })
    }

    async fn send(self, deadline: Deadline) -> Result<Updated, WriteError> {
        let Target { partition_key, sort_key } = self.target?;
        if let Some(wrong) = self.wrong {
            return Err(wrong.into());
        }
        let Patch { merge, add } = &self.patch;
        if let Some(name) = add.keys().find(|name| merge.contains_key(*name)) {
            let what = format!("attribute {name}");
            let why = "the update both adds to it and sets or removes it".to_owned();
            return Err(InvalidRequest::new(what, why).into());
        }
        let once = self.idempotency_key.as_ref();
        let target = (&partition_key, &sort_key);
        self.table.engine().update(target, &self.patch, &self.conditions, once, deadline).await
    }
}

fn summand(name: &str, value: Value) -> Result<Value, InvalidRequest> {
    if matches!(value, Value::N(_) | Value::Ss(_) | Value::Ns(_) | Value::Bs(_)) {
        return Ok(value);
    }
    let why = format!("it is {}; a number or a set can be added", value.type_name());
    Err(InvalidRequest::new(format!("attribute {name}"), why))
}

fn check_numbers(name: &str, change: &Merge) -> Result<(), InvalidRequest> {
    match change {
        Merge::Remove => Ok(()),
        Merge::Set(value) => super::check_numbers(name, value),
        Merge::Into(members) => members
            .iter()
            .try_for_each(|(member, change)| check_numbers(&format!("{name}.{member}"), change)),
    }
}

fn merge(value: Value) -> Merge {
    match value {
        Value::Null => Merge::Remove,
        Value::M(members) => {
            Merge::Into(members.into_iter().map(|(name, value)| (name, merge(value))).collect())
        }
        Value::S(_)
        | Value::N(_)
        | Value::B(_)
        | Value::Bool(_)
        | Value::L(_)
        | Value::Ss(_)
        | Value::Ns(_)
        | Value::Bs(_) => Merge::Set(value),
    }
}
