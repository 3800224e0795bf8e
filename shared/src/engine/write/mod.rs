//! Writes: puts, creations and deletions here, updates and batches in files of their own, and what
//! all of them share.

mod append;
mod attempts;
mod run;
pub(crate) mod update;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::config::Writes;
use crate::engine::error::{WriteError, WriteErrorKind};
use crate::engine::results::Written;
use crate::engine::views::keys::KeyJob;
use crate::engine::{Deadline, Inner, TableEngine};
use crate::protocol::metadata::Change;
use crate::protocol::view::View;
use crate::protocol::write::Kind;
use crate::protocol::write_id::WriteId;
use crate::table::ATTEMPT_TIMEOUT;
use crate::table::error::TableError;
use crate::values::idempotency::IdempotencyKey;
use crate::values::key::{PartitionKey, ShardCount, SortKey};
use crate::values::value::{Attributes, Item};
use append::AppendRun;
use attempts::Attempts;
use run::{Input, What, WriteRun};

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
        self.inner.check_point_writes(deadline).await?;
        let job = self.inner.job(&item.partition_key, deadline);
        job.check_armed().await?;
        self.inner.write(job, Kind::Create(write_id), &item.sort_key, What::Put(item)).await
    }

    /// Deletes an item. It is no error if there is none.
    pub async fn delete(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        self.inner.check_point_writes(deadline).await?;
        let job = self.inner.job(key, deadline);
        job.check_armed().await?;
        let may_look = job.state.may_look(self.inner.environment.now());
        self.inner.write(job, Kind::Delete { may_look }, sort_key, What::Delete).await
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

    async fn check_writes(&self, deadline: Deadline) -> Result<(), WriteErrorKind> {
        self.claim_once(deadline).await.map_err(WriteErrorKind::unchanged)
    }

    async fn check_point_writes(&self, deadline: Deadline) -> Result<(), WriteErrorKind> {
        match self.config.writes() {
            Writes::Items => self.check_writes(deadline).await,
            Writes::Appends => Err(WriteErrorKind::AppendOnly),
        }
    }

    /// A write that does not depend on the stored item.
    async fn write(
        &self,
        job: KeyJob<'_>,
        kind: Kind,
        sort_key: &SortKey,
        what: What<'_>,
    ) -> Result<Written, WriteError> {
        let attempts = Attempts::new(job, sort_key);
        WriteRun::new(attempts, kind, Input::new(what)).run().await.0
    }

    async fn store(
        self: &Arc<Self>,
        item: &Item,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<Written, WriteError> {
        self.check_writes(deadline).await?;
        let job = self.job(&item.partition_key, deadline);
        job.check_armed().await?;
        let mut attempts = Attempts::new(job, &item.sort_key);
        attempts.makes_keys = origin == Origin::Engine;
        let once = origin == Origin::IdempotencyKey;
        match self.config.writes() {
            Writes::Items => {
                let kind = if once { Kind::CreateOnce } else { Kind::Put };
                WriteRun::new(attempts, kind, Input::new(What::Put(item))).run().await.0
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
        self.beside(&self.state.is_registering, move |inner, key, state| async move {
            let job = KeyJob::new(&inner, &key, state, Instant::now() + ATTEMPT_TIMEOUT);
            if let Err(error) = job.register().await {
                tracing::warn!(%error, "could not register a key; the next write of it tries again");
            }
        });
    }

    /// Creates a key's metadata item. Another instance may be first.
    pub(super) async fn register(&self) -> Result<(), TableError> {
        let record = self.record(|record, _| record.exists).await?;
        if !record.exists {
            self.check_is_new().await?;
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
        if view.is_none()
            || last >= minute
            || state
                .units_noted
                .compare_exchange(last, minute, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
            || last == 0
        {
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
