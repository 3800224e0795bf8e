//! The shards of a key, and raising their number.

use tracing::Instrument;

use crate::client::ShardedTable;
use crate::client::request::{Sent, Within, partition_key, span, within};
use crate::config::width_history::WidthHistory;
use crate::engine::Deadline;
use crate::engine::error::{InvalidRequest, ReadError, WriteError, WriteErrorKind};
use crate::engine::width::{ScaleError, ScaleOutcome};
use crate::policy::decision::ScalingDecision;
use crate::protocol::metadata::ShardMetadata;
use crate::values::key::{KeyError, PartitionKey, ShardCount};

/// See [`ShardedTable::shards`].
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct ReadShards {
    table: ShardedTable,
    key: Result<PartitionKey, InvalidRequest>,
    within: Within,
}

within!(ReadShards);

impl ReadShards {
    pub(crate) fn new(
        table: ShardedTable,
        key: impl TryInto<PartitionKey, Error: Into<KeyError>>,
    ) -> Self {
        let key = partition_key(table.config(), key);
        Self { table, key, within: Within::default() }
    }
}

impl IntoFuture for ReadShards {
    type Output = Result<u32, ReadError>;
    type IntoFuture = Sent<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let span = span("shards", &self.table);
        let sent = async move {
            let deadline = self.within.deadline(self.table.config());
            Ok(width(&self.table, &self.key?, deadline).await?.get())
        };
        Box::pin(sent.instrument(span))
    }
}

/// The write width. A key without metadata has never grown.
async fn width(
    table: &ShardedTable,
    key: &PartitionKey,
    deadline: Deadline,
) -> Result<ShardCount, ReadError> {
    let metadata = metadata(table, key, deadline).await?;
    Ok(metadata.map_or(table.config().adopt_shards, |metadata| metadata.number_of_shards))
}

async fn metadata(
    table: &ShardedTable,
    key: &PartitionKey,
    deadline: Deadline,
) -> Result<Option<ShardMetadata>, ReadError> {
    table.engine().shards(key, deadline).await.map_err(ReadError::from)
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

within!(SetShards);

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
}

impl IntoFuture for SetShards {
    type Output = Result<u32, WriteError>;
    type IntoFuture = Sent<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let span = span("set_shards", &self.table);
        let sent = async move {
            let (key, to) = (self.key?, self.to?);
            let deadline = self.within.deadline(self.table.config());
            let wrong = |error: ScaleError| InvalidRequest::of("number of shards", error).into();
            match self.table.engine().set_shards(&key, to, deadline).await {
                Ok(ScaleOutcome::Scaled { to, .. }) => Ok(to.get()),
                Ok(ScaleOutcome::Unchanged(ScalingDecision::DirectoryFull)) => {
                    Err(WriteErrorKind::DirectoryFull.into())
                }
                Ok(ScaleOutcome::Unchanged(ScalingDecision::NotArmed { from })) => {
                    Err(WriteErrorKind::NotArmed { from }.into())
                }
                Ok(ScaleOutcome::Unchanged(_)) => Ok(to.get()),
                Ok(ScaleOutcome::Superseded) => Err(WriteErrorKind::Contended.into()),
                Err(error @ (ScaleError::TooMany { .. } | ScaleError::Lower { .. })) => {
                    Err(wrong(error))
                }
                Err(ScaleError::Table(error)) => Err(WriteErrorKind::unchanged(error).into()),
            }
        };
        Box::pin(sent.instrument(span))
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

within!(ReadWidthHistory);

impl ReadWidthHistory {
    pub(crate) fn new(
        table: ShardedTable,
        key: impl TryInto<PartitionKey, Error: Into<KeyError>>,
    ) -> Self {
        let key = partition_key(table.config(), key);
        Self { table, key, within: Within::default() }
    }
}

impl IntoFuture for ReadWidthHistory {
    type Output = Result<WidthHistory, ReadError>;
    type IntoFuture = Sent<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let span = span("width_history", &self.table);
        let sent = async move {
            let config = self.table.config();
            let read_at = self.table.engine().epoch_seconds();
            let metadata = metadata(&self.table, &self.key?, self.within.deadline(config)).await?;
            Ok(WidthHistory::of(metadata.as_ref(), config, read_at))
        };
        Box::pin(sent.instrument(span))
    }
}
