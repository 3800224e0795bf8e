//! Beginning a drain: a shrink, a settling.

use crate::engine::events::ScalingReason;
use crate::engine::width::ScaleOutcome;
use crate::engine::{Deadline, Inner, TableEngine};
use crate::policy::decision::ScalingDecision;
use crate::protocol::growth::GrowthRecord;
use crate::protocol::metadata::{Change, Phase, ShardMetadata};
use crate::table::error::TableError;
use crate::values::key::{PartitionKey, ShardCount};

/// Why a drain cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrainRefused {
    /// Only a lower number is a shrink.
    #[error("the key has {now} shards; a shrink goes to a lower number")]
    NotLower {
        /// The present write width.
        now: ShardCount,
    },
    /// The key's width is changing, the key is being drained, or it changed a moment ago.
    #[error("{0}")]
    Busy(&'static str),
    /// Writers without a view write to shard 1, or items are placed randomly, so items need not be
    /// at home.
    #[error(
        "the table takes appends only (WRITES=appends, or random placement): its keys can shrink, and cannot be settled"
    )]
    NoHomes,
    /// The tables could not be used.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl TableEngine {
    /// Lowers a key to this number of shards, and begins to drain the others.
    pub async fn begin_shrink(
        &self,
        key: &PartitionKey,
        to: ShardCount,
        deadline: Deadline,
    ) -> Result<ShardMetadata, DrainRefused> {
        self.inner.claim_once(deadline).await?;
        let job = self.inner.job(key, deadline);
        let record = job.record_from_now().await?;
        let now = record.metadata.number_of_shards;
        self.inner.check_calm(&record.metadata)?;
        if to >= now {
            return Err(DrainRefused::NotLower { now });
        }
        let close = Change::Close { to, growth: GrowthRecord::default() };
        let outcome = job.change_width(&record, close, ScalingReason::Asked).await?;
        Err(DrainRefused::Busy(match outcome {
            ScaleOutcome::Scaled { .. } => {
                let known = job.state.known().record.clone();
                return Ok(known.unwrap_or(record).metadata.clone());
            }
            ScaleOutcome::Unchanged(ScalingDecision::NotArmed { .. }) => "the key is not armed",
            ScaleOutcome::Unchanged(_) => "the key's page of the directory is full",
            ScaleOutcome::Superseded => SUPERSEDED,
        }))
    }

    /// Begins to settle a key.
    pub async fn begin_settle(
        &self,
        key: &PartitionKey,
        deadline: Deadline,
    ) -> Result<ShardMetadata, DrainRefused> {
        self.inner.claim_once(deadline).await?;
        let job = self.inner.job(key, deadline);
        let mut record = job.record_from_now().await?;
        let ShardMetadata { read_shards, number_of_shards, .. } = &record.metadata;
        // Items that a shrink left behind can be moved even with random placement.
        if self.inner.always_first().is_some() && read_shards == number_of_shards {
            return Err(DrainRefused::NoHomes);
        }
        self.inner.check_calm(&record.metadata)?;
        if !job.is_in_step(&record).await? {
            return Err(DrainRefused::Busy(SUPERSEDED));
        }
        if !record.exists {
            job.register().await?;
            record = job.record_from_now().await?;
        }
        job.step(&record, &Change::MarkDrain).await?.ok_or(DrainRefused::Busy(SUPERSEDED))
    }
}

const SUPERSEDED: &str = "another actor changed it first";

impl Inner {
    fn check_calm(&self, metadata: &ShardMetadata) -> Result<(), DrainRefused> {
        let cooldown = self.config.policy.cooldown_seconds;
        let calm_from = metadata.last_change().unwrap_or_default() + cooldown;
        let is_calm = self.environment.now().epoch_seconds() >= calm_from;
        Err(DrainRefused::Busy(match metadata.phase {
            Phase::Draining(_) => "the key is being drained already",
            Phase::Closing(_) => "the key's width is changing",
            Phase::Open if is_calm => return Ok(()),
            Phase::Open => "the key's shards changed a moment ago",
        }))
    }
}
