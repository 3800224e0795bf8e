//! The shards of a key, and raising their number.

use crate::client::ShardedTable;
use crate::client::request::{Within, partition_key, sent_as};
use crate::config::width_history::WidthHistory;
use crate::engine::Deadline;
use crate::engine::error::{InvalidRequest, ReadError, WriteError, WriteErrorKind};
use crate::engine::width::{ScaleError, ScaleOutcome};
use crate::policy::decision::ScalingDecision;
use crate::values::key::{KeyError, PartitionKey, ShardCount};

/// See [`ShardedTable::shards`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct ReadShards {
    table: ShardedTable,
    key: Result<PartitionKey, InvalidRequest>,
    within: Within,
}

sent_as!(ReadShards, "shards", Result<u32, ReadError>);

impl ReadShards {
    pub(crate) fn new(
        table: ShardedTable,
        key: impl TryInto<PartitionKey, Error: Into<KeyError>>,
    ) -> Self {
        Self { key: partition_key(table.config(), key), table, within: Within::default() }
    }

    async fn send(self, deadline: Deadline) -> Result<u32, ReadError> {
        let metadata = self.table.engine().shards(&self.key?, deadline).await?;
        // A key without metadata has never grown.
        let unlisted = self.table.config().adopt_shards;
        Ok(metadata.map_or(unlisted, |metadata| metadata.number_of_shards).get())
    }
}

/// See [`ShardedTable::set_shards`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct SetShards {
    table: ShardedTable,
    key: Result<PartitionKey, InvalidRequest>,
    to: Result<ShardCount, InvalidRequest>,
    within: Within,
}

sent_as!(SetShards, "set_shards", Result<u32, WriteError>);

impl SetShards {
    pub(crate) fn new(
        table: ShardedTable,
        key: impl TryInto<PartitionKey, Error: Into<KeyError>>,
        to: u32,
    ) -> Self {
        let key = partition_key(table.config(), key);
        let to = ShardCount::new(to)
            .ok_or_else(|| InvalidRequest::of("number of shards", "it is 0; allowed: 1 and more"));
        Self { table, key, to, within: Within::default() }
    }

    async fn send(self, deadline: Deadline) -> Result<u32, WriteError> {
        let (key, to) = (self.key?, self.to?);
        match self.table.engine().set_shards(&key, to, deadline).await {
            Ok(ScaleOutcome::Unchanged(ScalingDecision::DirectoryFull)) => {
                Err(WriteErrorKind::DirectoryFull.into())
            }
            Ok(ScaleOutcome::Unchanged(ScalingDecision::NotArmed { from })) => {
                Err(WriteErrorKind::NotArmed { from }.into())
            }
            Ok(ScaleOutcome::Scaled { to, .. }) => Ok(to.get()),
            Ok(ScaleOutcome::Unchanged(_)) => Ok(to.get()),
            Ok(ScaleOutcome::Superseded) => Err(WriteErrorKind::Contended.into()),
            Err(error @ (ScaleError::TooMany { .. } | ScaleError::Lower { .. })) => {
                Err(InvalidRequest::of("number of shards", error).into())
            }
            Err(ScaleError::Table(error)) => Err(WriteErrorKind::unchanged(error).into()),
        }
    }
}

/// See [`ShardedTable::width_history`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct ReadWidthHistory {
    table: ShardedTable,
    key: Result<PartitionKey, InvalidRequest>,
    within: Within,
}

sent_as!(ReadWidthHistory, "width_history", Result<WidthHistory, ReadError>);

impl ReadWidthHistory {
    pub(crate) fn new(
        table: ShardedTable,
        key: impl TryInto<PartitionKey, Error: Into<KeyError>>,
    ) -> Self {
        Self { key: partition_key(table.config(), key), table, within: Within::default() }
    }

    async fn send(self, deadline: Deadline) -> Result<WidthHistory, ReadError> {
        let engine = self.table.engine();
        let read_at = engine.epoch_seconds();
        let metadata = engine.shards(&self.key?, deadline).await?;
        Ok(WidthHistory::of(metadata.as_ref(), engine.config(), read_at))
    }
}
