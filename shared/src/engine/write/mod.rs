//! Writes: their results, and what each is for the protocol. Conditional writes and updates depend
//! on the stored item.

mod append;
mod run;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::config::Writes;
use crate::engine::error::{WriteError, WriteErrorKind};
use crate::engine::job::KeyJob;
use crate::engine::{Deadline, Inner, TableEngine};
use crate::protocol::applied::{Once, UpdateId};
use crate::protocol::metadata::Change;
use crate::protocol::tag::{Conditions, ETag};
use crate::protocol::version::Version;
use crate::protocol::view::View;
use crate::protocol::write::{Kind, Update};
use crate::protocol::write_id::WriteId;
use crate::table::ATTEMPT_TIMEOUT;
use crate::table::error::TableError;
use crate::values::idempotency::IdempotencyKey;
use crate::values::key::{PartitionKey, ShardCount, SortKey};
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
    /// The shard that holds the item, numbered from 1. For a delete, the shard where it would be.
    pub shard: u32,
    /// The number of shards of the key's writes.
    pub number_of_shards: u32,
    /// Attempts, including the successful one.
    pub attempts: u32,
    /// Attempts that were throttled.
    pub throttled: u32,
    /// The version of the item that was stored, as `tag`.
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
    /// Stores or replaces an item. Of two writes of one item, the one that is acknowledged later
    /// wins; in an append-only table, the later one by its writer's clock.
    pub async fn put(&self, item: &Item, deadline: Deadline) -> Result<Written, WriteError> {
        self.inner.store(item, Origin::Caller, deadline).await
    }

    /// Stores an item under a sort key that it makes. Until an attempt may have stored the item, it
    /// may make another one, to avoid throttled shards.
    pub async fn append(
        &self,
        partition_key: PartitionKey,
        attributes: Attributes,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        let item = Item { partition_key, sort_key: self.make_sort_key(), attributes };
        self.inner.store(&item, Origin::Engine, deadline).await
    }

    /// Stores an item whose sort key an idempotency key has generated
    /// ([`IdempotencyKey::sort_key`]). A repetition succeeds and changes nothing, even if the item
    /// was replaced in between. If the item was deleted, a repetition may store it again.
    pub async fn put_once(&self, item: &Item, deadline: Deadline) -> Result<Written, WriteError> {
        self.inner.store(item, Origin::IdempotencyKey, deadline).await
    }

    /// A time-ordered unique sort key for an item that came without one: a UUID of version 7.
    #[must_use]
    pub fn make_sort_key(&self) -> SortKey {
        self.inner.make_sort_key()
    }

    /// Creates an item. Of any number of concurrent calls for one item, exactly one succeeds.
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
        let job = self.inner.begin_write(&item.partition_key, Writes::Items, deadline).await?;
        let attempts = Attempts::new(job, &item.sort_key);
        WriteRun::new(attempts, Kind::Create(write_id), Input::put(item)).run().await.0
    }

    /// Deletes an item. It is no error if there is none.
    pub async fn delete(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        self.delete_if(key, sort_key, &Conditions::default(), deadline).await
    }

    /// [`put`](Self::put), if the conditions hold for the stored item.
    pub async fn put_if(
        &self,
        item: &Item,
        conditions: &Conditions,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        if conditions.are_none() {
            return self.put(item, deadline).await;
        }
        if conditions.only_absent() {
            let created = self.create(item, None, deadline).await;
            let exists = |kind: &WriteErrorKind| matches!(kind, WriteErrorKind::Exists);
            return created.map_err(|error| WriteError {
                kind: if exists(&error.kind) { WriteErrorKind::Precondition } else { error.kind },
                ..error
            });
        }
        let changing = Input { conditions: Some(conditions), ..Input::put(item) };
        Ok(self.change(&item.partition_key, &item.sort_key, changing, deadline).await?.0)
    }

    /// [`delete`](Self::delete), if the conditions hold for the stored item.
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
        // An earlier request made the change. The stored item is the result.
        let (attempts, throttled) = (written.attempts, written.throttled);
        match self.get_tagged(key, sort_key, true, deadline).await {
            Ok(Some((item, tag))) => Ok(Updated::of(item, tag, written)),
            Ok(None) => Err(WriteErrorKind::Absent.after(attempts, throttled)),
            Err(error) => Err(WriteError {
                sort_key: Some(Box::new(sort_key.clone())),
                ..WriteErrorKind::unread(error).after(attempts, throttled)
            }),
        }
    }

    async fn change<'a>(
        &'a self,
        key: &'a PartitionKey,
        sort_key: &'a SortKey,
        input: Input<'a>,
        deadline: Deadline,
    ) -> Result<(Written, Input<'a>), WriteError> {
        let job = self.inner.begin_write(key, Writes::Items, deadline).await?;
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
        let (written, input) = WriteRun::new(Attempts::new(job, sort_key), kind, input).run().await;
        match written {
            Ok(written) => Ok((written, input)),
            Err(error) => Err(WriteError { current: input.current, ..error }),
        }
    }
}

/// Where the sort key of an item comes from.
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

    /// Begins a write in a table of these writes: it accepts this process, and the key is armed.
    async fn begin_write<'a>(
        self: &'a Arc<Self>,
        key: &'a PartitionKey,
        writes: Writes,
        deadline: Deadline,
    ) -> Result<KeyJob<'a>, WriteErrorKind> {
        if self.config.writes() != writes {
            return Err(WriteErrorKind::AppendOnly);
        }
        self.claim_once(deadline).await.map_err(WriteErrorKind::unchanged)?;
        let job = self.job(key, deadline);
        match job.not_armed_before().await.map_err(WriteErrorKind::unchanged)? {
            None => Ok(job),
            Some(from) => Err(WriteErrorKind::NotArmed { from }),
        }
    }

    async fn store(
        self: &Arc<Self>,
        item: &Item,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        let writes = self.config.writes();
        let job = self.begin_write(&item.partition_key, writes, deadline).await?;
        let mut attempts = Attempts::new(job, &item.sort_key);
        attempts.makes_keys = origin == Origin::Engine;
        let once = origin == Origin::IdempotencyKey;
        match writes {
            Writes::Items => {
                let kind = if once { Kind::CreateOnce } else { Kind::Put };
                WriteRun::new(attempts, kind, Input::put(item)).run().await.0
            }
            Writes::Appends => AppendRun::new(attempts, item, once).run().await,
        }
    }
}

impl KeyJob<'_> {
    /// With `REGISTER_KEYS`, the first write of a key creates its metadata item.
    pub(super) fn after_write(&self) {
        if !self.inner.config.register_keys || self.state.known().was_registered {
            return;
        }
        self.beside(&self.state.is_registering, move |inner, key| async move {
            let job = inner.job(&key, Instant::now() + ATTEMPT_TIMEOUT);
            if let Err(error) = job.register().await {
                tracing::warn!(%error, "could not register a key; the next write of it tries again");
            }
        });
    }

    /// Creates a key's metadata item. Another instance may be first.
    pub(super) async fn register(&self) -> Result<(), TableError> {
        let record = self.record(|record, _| record.exists).await?;
        if !record.exists {
            self.check_is_new(self.deadline).await?;
            if self.step(&record, &Change::Register).await?.is_none() {
                self.record(|record, _| record.exists).await?;
            }
        }
        Ok(())
    }

    /// Counts a write of a key with several shards, and records the count once a minute. Shrinking
    /// is decided by these records.
    pub(super) fn note_load(&self, view: Option<&View>, units: impl FnOnce() -> u64) {
        let state = &self.state;
        // Without a view, the number of shards is unknown. The next write that has a view counts.
        if view.is_some_and(|view| {
            view.layout.generation == 0 || view.layout.number_of_shards == ShardCount::ONE
        }) {
            state.units.store(0, Ordering::Relaxed);
            return;
        }
        state.units.fetch_add(units(), Ordering::Relaxed);
        let minute = self.inner.environment.now().epoch_seconds() / 60;
        let last = state.units_noted.load(Ordering::Relaxed);
        let may_note = || {
            let noted = &state.units_noted;
            noted.compare_exchange(last, minute, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if view.is_none() || last >= minute || !may_note() || last == 0 {
            return;
        }
        let units = state.units.swap(0, Ordering::Relaxed);
        let (inner, key) = (Arc::clone(self.inner), self.key.clone());
        self.inner.background.spawn(async move {
            // The process may have been suspended until now.
            let minute = inner.environment.now().epoch_seconds() / 60;
            if let Err(error) = inner.tables.note_load(&key, minute, units).await {
                tracing::warn!(%error, units, "the load of a key could not be noted: it looks calmer than it is");
            }
        });
    }
}
