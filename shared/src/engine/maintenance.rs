//! What an operator of a table does, and a schedule. Each file of the engine has its own part of it.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::TableConfig;
use crate::engine::{Deadline, TableEngine};

/// The time limit of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Within {
    /// The table's default.
    #[default]
    Default,
    /// This long from the moment of sending.
    Timeout(Duration),
    /// Until this instant.
    Deadline(Instant),
}

impl Within {
    pub(crate) fn deadline(self, config: &TableConfig) -> Deadline {
        match self {
            Self::Default => Instant::now() + config.timeout,
            Self::Timeout(timeout) => Instant::now() + timeout,
            Self::Deadline(deadline) => deadline,
        }
    }
}

/// See the [module](crate::maintenance) and
/// [`ShardedTable::maintenance`](crate::ShardedTable::maintenance). Each call has the timeout of a
/// request, or the deadline that was set. A call that reaches its deadline keeps the work that it
/// has done, and the next call continues. Three calls go through the whole directory from its
/// beginning, and need a longer timeout where many keys have grown, such as ten minutes:
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
    pub(in crate::engine) fn until(&self) -> Deadline {
        self.within.deadline(self.engine.config())
    }
}

impl TableEngine {
    /// The work of an operator, until this deadline.
    pub fn until(&self, deadline: Deadline) -> Maintenance {
        Maintenance { engine: self.clone(), within: Within::Deadline(deadline) }
    }
}
