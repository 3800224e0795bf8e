//! Writes: their results, and what each is for the protocol.

mod append;
mod run;

use std::borrow::Cow;

use crate::config::Writes;
use crate::engine::error::{WriteError, WriteErrorKind};
use crate::engine::job::KeyJob;
use crate::engine::{Deadline, Inner, TableEngine};
use crate::protocol::applied::{Once, UpdateId};
use crate::protocol::tag::{Conditions, ETag};
use crate::protocol::version::Version;
use crate::protocol::write::{Kind, Update};
use crate::protocol::write_id::WriteId;
use crate::values::idempotency::IdempotencyKey;
use crate::values::key::{PartitionKey, SortKey};
use crate::values::patch::Patch;
use crate::values::value::{Attributes, Item};
use append::AppendRun;
use run::{Attempts, Input, WriteRun};

/// A successful write.
///
/// ```
/// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
/// # in_process::with_table(async |table| {
/// let written = table.put("2014-07-09", "order-1", dynamodb_write_sharding::Attributes::new()).await?;
/// assert_eq!((written.attempts, written.throttled), (1, 0));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The item's sort key. For an append, the generated one.
    pub sort_key: SortKey,
    /// The tag of the item as it was stored. `None` for a delete, or if an earlier request may have
    /// stored it and a later one replaced it.
    pub tag: Option<ETag>,
    /// The shard that holds the item, or would hold it, numbered from 1.
    pub shard: u32,
    /// The number of shards of the key's writes.
    pub number_of_shards: u32,
    /// Attempts, including the successful one.
    pub attempts: u32,
    /// Attempts that were throttled.
    pub throttled: u32,
    /// Under the same conditions as `tag`.
    pub(crate) version: Option<Version>,
}

/// An item after its update.
///
/// The update has been made, so a type that does not fit is a separate error:
/// [`decode`](Self::decode).
///
/// ```
/// # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
/// # in_process::with_table(async |table| {
/// use dynamodb_write_sharding::{Attributes, Value};
///
/// table.put("2014-07-09", "order-1", Attributes::new()).await?;
/// let updated = table.update("2014-07-09", "order-1").set("status", "paid").await?;
/// assert_eq!(updated.attributes["status"], Value::S("paid".into()));
/// table.delete("2014-07-09", "order-1").if_match(&updated.tag).await?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Updated {
    /// The attributes without the keys.
    pub attributes: Attributes,
    /// The tag of this state.
    pub tag: ETag,
    /// How it was written.
    pub written: Written,
    pub(crate) partition_key: PartitionKey,
}

impl Updated {
    pub(crate) fn of(item: Item, tag: ETag, written: Written) -> Self {
        let Item { partition_key, attributes, .. } = item;
        Self { attributes, tag, written, partition_key }
    }
}

impl TableEngine {
    /// See [`ShardedTable::put`](crate::ShardedTable::put).
    pub async fn put(&self, item: &Item, deadline: Deadline) -> Result<Written, WriteError> {
        self.store(item, Origin::Caller, deadline).await
    }

    /// See [`ShardedTable::append`](crate::ShardedTable::append).
    pub async fn append(
        &self,
        partition_key: PartitionKey,
        attributes: Attributes,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        let item = Item { partition_key, sort_key: self.make_sort_key(), attributes };
        self.store(&item, Origin::Engine, deadline).await
    }

    /// See [`Put::once`](crate::request::Put::once).
    pub async fn put_once(&self, item: &Item, deadline: Deadline) -> Result<Written, WriteError> {
        self.store(item, Origin::IdempotencyKey, deadline).await
    }

    /// A time-ordered unique sort key for an item that came without one: a UUID of version 7.
    #[must_use]
    pub fn make_sort_key(&self) -> SortKey {
        self.inner.make_sort_key()
    }

    /// Of any number of concurrent calls for one item, exactly one succeeds.
    pub async fn create(
        &self,
        item: &Item,
        idempotency_key: Option<&IdempotencyKey>,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        let write_id = match idempotency_key {
            Some(key) => WriteId::of_request(key, item),
            None => WriteId::random(self.inner.environment.bytes()),
        };
        let job = self.begin_write(&item.partition_key, Writes::Items, deadline).await?;
        let attempts = Attempts::new(job, &item.sort_key, Input::put(item));
        Ok(WriteRun::run(attempts, Kind::Create(Some(write_id))).await?.0)
    }

    /// [`put`](Self::put), if the conditions hold for the stored item.
    pub async fn put_if(
        &self,
        item: &Item,
        conditions: &Conditions,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        if conditions.are_none() {
            return self.store(item, Origin::Caller, deadline).await;
        }
        if conditions.only_absent() {
            return self.create(item, None, deadline).await.map_err(|mut error| {
                if matches!(error.kind, WriteErrorKind::Exists) {
                    error.kind = WriteErrorKind::Precondition;
                }
                error
            });
        }
        let changing = Input { conditions: Some(conditions), ..Input::put(item) };
        Ok(self.change(&item.partition_key, &item.sort_key, changing, deadline).await?.0)
    }

    /// Deletes an item, if the conditions hold for it. It is no error if there is none.
    pub async fn delete_if(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        conditions: &Conditions,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        let changing = Input { conditions: Some(conditions), ..Input::default() };
        Ok(self.change(key, sort_key, changing, deadline).await?.0)
    }

    /// Changes some attributes of an existing item, if the conditions hold.
    pub async fn update(
        &self,
        (key, sort_key): (&PartitionKey, &SortKey),
        patch: &Patch,
        conditions: &Conditions,
        idempotency_key: Option<&IdempotencyKey>,
        deadline: Deadline,
    ) -> Result<Updated, WriteError> {
        let sent_at = self.inner.environment.now().epoch_millis();
        let once =
            idempotency_key.map(|name| Once { id: UpdateId::of(name, &patch.content()), sent_at });
        let changing =
            Input { conditions: Some(conditions), once, patch: Some(patch), ..Input::default() };
        let (written, changing) = self.change(key, sort_key, changing, deadline).await?;
        let added = changing.added.and_then(|added| Some((added.item?, added.version)));
        let put = changing.item.filter(|_| changing.sent == written.version).map(Cow::into_owned);
        let put = put.zip(written.version);
        if let Some((item, version)) = added.or(put) {
            let tag = ETag::of(version, &item.attributes);
            return Ok(Updated::of(item, tag, written));
        }
        // An earlier request made the change.
        let kind = match self.get_tagged(key, sort_key, true, deadline).await {
            Ok(Some((item, tag))) => return Ok(Updated::of(item, tag, written)),
            Ok(None) => WriteErrorKind::Absent,
            Err(error) => WriteErrorKind::unread(error),
        };
        let error = kind.after(written.attempts, written.throttled);
        Err(WriteError { sort_key: Some(Box::new(written.sort_key)), ..error })
    }

    async fn change<'a>(
        &'a self,
        key: &'a PartitionKey,
        sort_key: &'a SortKey,
        input: Input<'a>,
        deadline: Deadline,
    ) -> Result<(Written, Input<'a>), WriteError> {
        let job = self.begin_write(key, Writes::Items, deadline).await?;
        let conditions = input.conditions.filter(|conditions| !conditions.are_none());
        // A patch needs the item anyway.
        let without_item = conditions.filter(|_| input.patch.is_none());
        let expects = without_item.and_then(Conditions::only_version);
        let update = Update { expects, once: input.once };
        let kind = match input.patch {
            Some(patch) if patch.only_adds() && conditions.is_none() => Kind::Add(update),
            None if input.item.is_none() => {
                let may_look = job.state.may_look(self.inner.environment.now());
                match conditions {
                    Some(_) => Kind::DeleteIf { update, may_look },
                    None => Kind::Delete { may_look },
                }
            }
            Some(_) | None => Kind::Replace(update),
        };
        WriteRun::run(Attempts::new(job, sort_key, input), kind).await
    }

    /// Begins a write in a table of these writes: it accepts this process, and the key is armed.
    async fn begin_write<'a>(
        &'a self,
        key: &'a PartitionKey,
        writes: Writes,
        deadline: Deadline,
    ) -> Result<KeyJob<'a>, WriteErrorKind> {
        if self.inner.config.writes() != writes {
            return Err(WriteErrorKind::AppendOnly);
        }
        self.inner.claim_once(deadline).await.map_err(WriteErrorKind::unchanged)?;
        let job = self.inner.job(key, deadline);
        match job.not_armed_before().await.map_err(WriteErrorKind::unchanged)? {
            None => Ok(job),
            Some(from) => Err(WriteErrorKind::NotArmed { from }),
        }
    }

    async fn store(
        &self,
        item: &Item,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        let writes = self.inner.config.writes();
        let job = self.begin_write(&item.partition_key, writes, deadline).await?;
        let mut attempts = Attempts::new(job, &item.sort_key, Input::put(item));
        attempts.makes_keys = origin == Origin::Engine;
        let once = origin == Origin::IdempotencyKey;
        match writes {
            Writes::Items => {
                let kind = if once { Kind::Create(None) } else { Kind::Put };
                Ok(WriteRun::run(attempts, kind).await?.0)
            }
            Writes::Appends => AppendRun::new(attempts, once).run().await,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Caller,
    IdempotencyKey,
    Engine,
}

impl Inner {
    fn make_sort_key(&self) -> SortKey {
        let millis = self.environment.now().epoch_millis();
        let uuid = uuid::Builder::from_unix_timestamp_millis(millis, &self.environment.bytes());
        SortKey::String(uuid.into_uuid().to_string().into())
    }
}
