//! Changing a part of an item.

use crate::client::ShardedTable;
use crate::client::request::put::idempotency_key;
use crate::client::request::{
    IntoValue, Target, Within, allowed, check_numbers, conditional, map, sent_as, value,
};
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
            conditions: Conditions::default(),
            idempotency_key: None,
            within: Within::default(),
        }
    }

    fn try_to(mut self, change: impl FnOnce(&mut Self) -> Result<(), InvalidRequest>) -> Self {
        if let Err(wrong) = change(&mut self) {
            self.target = self.target.and(Err(wrong));
        }
        self
    }

    /// Makes a change of an attribute, unless the name is not allowed.
    fn insert(
        &mut self,
        name: &str,
        change: Result<Merge, InvalidRequest>,
    ) -> Result<(), InvalidRequest> {
        allowed(self.table.config(), name)?;
        self.patch.merge.insert(name.to_owned(), change?);
        Ok(())
    }

    /// Adds to an attribute, unless the name or the value is not allowed.
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
    ///
    /// ```
    /// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
    /// # in_process::with_table(async |table| {
    /// let order = std::collections::HashMap::from([("note", "fragile")]);
    /// table.put("2014-07-09", "order-1", order).await?;
    /// let update = table.update("2014-07-09", "order-1");
    /// let updated = update.set("status", "paid").set("lines", vec![3, 4]).remove("note").await?;
    /// assert_eq!(updated.attributes.keys().collect::<Vec<_>>(), ["lines", "status"]);
    /// # Ok(()) });
    /// ```
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
