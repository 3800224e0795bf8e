//! The mode of a table: what all processes that use it must agree on. It is stored in the table.

use super::retry::retrying;
use super::{Deadline, ShardedTable};
use crate::config::Writes;
use crate::table::error::TableError;
use crate::table::{Mode, TABLE_KEY};

/// The protocol that this release follows (docs/protocol.md). Processes of different protocols cannot use one table.
const PROTOCOL: u64 = 1;

impl ShardedTable {
    /// Makes sure that the table takes what this process is configured for: `WRITES`, and the placement. The first process of a table stores
    /// it, all later ones compare. Call it once before the first request: under another mode, reads miss items and writes are lost.
    ///
    /// # Errors
    /// [`TableError::Unusable`] where the table takes something else, or follows another protocol: do not use the table.
    /// [`TableError::Damaged`] where what is stored cannot be read. Another [`TableError`] where the metadata table did not answer.
    pub async fn claim_mode(&self, deadline: Deadline) -> Result<(), TableError> {
        let inner = &self.inner;
        if self.has_own_mode(deadline).await? {
            return Ok(());
        }
        let own = self.own_mode();
        match retrying(&inner.environment, deadline, || inner.tables.store_mode(&own)).await {
            // Another process was first, or an attempt before was applied.
            Err(TableError::ConditionFailed) => self.check_mode(deadline).await,
            stored => stored,
        }
    }

    /// As [`claim_mode`](Self::claim_mode), for a process that only reads: nothing is stored where nothing is.
    ///
    /// # Errors
    /// As [`claim_mode`](Self::claim_mode).
    pub async fn check_mode(&self, deadline: Deadline) -> Result<(), TableError> {
        self.has_own_mode(deadline).await.map(drop)
    }

    /// `false` where the table has no mode yet.
    async fn has_own_mode(&self, deadline: Deadline) -> Result<bool, TableError> {
        let inner = &self.inner;
        let own = self.own_mode();
        match retrying(&inner.environment, deadline, || inner.tables.get_mode()).await? {
            None => Ok(false),
            Some(stored) if stored == own => Ok(true),
            Some(stored) => Err(TableError::Unusable(format!(
                "it takes {} by protocol {}, as the item {TABLE_KEY} of {} says; this process is for {} by protocol {} \
                 (WRITES, SHARD_PLACEMENT): see \"Changing WRITES\" in docs/operations.md",
                stored.writes, stored.protocol, inner.config.metadata_table_name, own.writes, own.protocol
            ))),
        }
    }

    fn own_mode(&self) -> Mode {
        let own = self.inner.config.writes();
        let name = Writes::NAMES.iter().find(|(_, writes)| *writes == own).map_or("", |(name, _)| *name);
        Mode { writes: name.to_owned(), protocol: PROTOCOL }
    }
}
