//! The use cases over the two tables: write, read, scale, drain and survey.
//!
//! The future is boxed where several use cases meet. Otherwise each crate that awaits one would
//! compile all that lies behind it again.

pub(crate) mod arming;
pub(crate) mod disarming;
pub(crate) mod drain;
pub(crate) mod environment;
pub(crate) mod error;
mod foreign;
pub(crate) mod job;
pub(crate) mod read;
pub(crate) mod survey;
mod views;
pub(crate) mod width;
pub(crate) mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use quick_cache::sync::Cache;
use tokio::sync::broadcast;
use tokio_util::task::TaskTracker;

use crate::config::TableConfig;
use crate::engine::environment::Environment;
use crate::table::Tables;
use crate::values::key::PartitionKey;
use arming::Arming;
use read::Replicas;
use views::KnownPages;
use views::keys::{self, KeyState};
use width::ScalingEvent;

/// The instant by which an operation must have a response.
pub type Deadline = tokio::time::Instant;

/// The use cases of one sharded table. [`ShardedTable`](crate::ShardedTable) is the typed
/// interface.
///
/// Cheap to clone; clones share the state of the keys. Work that must not delay a response
/// (registering a key, refreshing a view, scaling out) runs in the background.
#[derive(Debug, Clone)]
pub struct TableEngine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    config: Arc<TableConfig>,
    tables: Tables,
    environment: Environment,
    /// Every page of the directory, once the table item has been read. Larger ones replace them.
    pages: RwLock<Option<Arc<KnownPages>>>,
    arming: Arming,
    keys: Cache<PartitionKey, Arc<KeyState>>,
    /// Hashes of items that this process has written, where another program had items before.
    written: Cache<u64, ()>,
    replicas: Replicas,
    background: TaskTracker,
    scaling_events: broadcast::Sender<ScalingEvent>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TableEngine {
    /// The engine uses its own retries and attempt timeouts, and ignores those of the client.
    pub fn new(client: &Client, config: TableConfig) -> Self {
        Self::with_environment(client, config, Environment::system())
    }

    /// As [`new`](Self::new), with this clock and random generator.
    pub fn with_environment(
        client: &Client,
        config: TableConfig,
        environment: Environment,
    ) -> Self {
        let config = Arc::new(config);
        let inner = Inner {
            tables: Tables::new(client, Arc::clone(&config)),
            replicas: Replicas::new(&config.read_replicas),
            config,
            environment,
            pages: RwLock::default(),
            arming: Arming::default(),
            keys: Cache::new(keys::MAX_REMEMBERED_KEYS),
            written: Cache::new(foreign::MAX_WRITTEN_ITEMS),
            background: TaskTracker::new(),
            scaling_events: broadcast::Sender::new(width::MAX_KEPT_EVENTS),
        };
        Self { inner: Arc::new(inner) }
    }

    /// As [`with_environment`](Self::with_environment), with a model in place of the main table.
    /// Only puts work.
    #[cfg(feature = "test-switches")]
    pub fn over_model(
        client: &Client,
        config: TableConfig,
        environment: Environment,
        model: Arc<dyn crate::table::PartitionModel>,
    ) -> Self {
        let mut engine = Self::with_environment(client, config, environment);
        if let Some(inner) = Arc::get_mut(&mut engine.inner) {
            inner.tables.model = Some(model);
        }
        engine
    }

    /// The configuration.
    pub fn config(&self) -> &TableConfig {
        &self.inner.config
    }

    /// See [`ShardedTable::invoked`](crate::ShardedTable::invoked). All invocations of a process
    /// have the same time limit.
    pub fn invoked(&self, ends_at: Duration) {
        self.inner.environment.invoked(ends_at);
    }

    /// Waits for it, for an orderly end of the process.
    pub async fn finish_background_work(&self) {
        self.inner.background.close();
        self.inner.background.wait().await;
        self.inner.background.reopen();
    }

    /// The work of an operator, until this deadline.
    pub fn until(&self, deadline: Deadline) -> Maintenance {
        Maintenance { engine: self.clone(), within: Within::Deadline(deadline) }
    }

    pub(crate) fn unfinished(&self) -> (usize, Vec<String>) {
        let changing = self.inner.keys.iter().filter(|(_, state)| state.is_changing());
        (self.inner.background.len(), changing.map(|(key, _)| key.to_string()).collect())
    }
}

/// The time limit of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Within {
    /// The table's default.
    #[default]
    Default,
    /// This long from the moment of sending.
    Timeout(Duration),
    /// Until this instant.
    Deadline(Deadline),
}

impl Within {
    pub(crate) fn deadline(self, config: &TableConfig) -> Deadline {
        match self {
            Self::Default => Deadline::now() + config.timeout,
            Self::Timeout(timeout) => Deadline::now() + timeout,
            Self::Deadline(deadline) => deadline,
        }
    }
}

/// See the [module](crate::maintenance) and
/// [`ShardedTable::maintenance`](crate::ShardedTable::maintenance). Each call has the timeout of a
/// request, or the deadline that was set. A call that reaches it keeps the work that it has done,
/// and the next call continues. Three calls go through the whole directory from its beginning, and
/// need a longer timeout where many keys have grown, such as ten minutes:
/// [`repair_directory`](Self::repair_directory), [`rebuild_directory`](Self::rebuild_directory) and
/// [`raise_directory_copies`](Self::raise_directory_copies).
///
/// # Errors
/// Every call fails with a [`TableError`](crate::TableError) if it could not use a table: run it
/// again. Each call names its other errors.
#[derive(Debug, Clone)]
pub struct Maintenance {
    pub(crate) engine: TableEngine,
    pub(crate) within: Within,
}

impl Maintenance {
    fn until(&self) -> Deadline {
        self.within.deadline(self.engine.config())
    }
}
