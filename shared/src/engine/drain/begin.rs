//! Beginning a shrink or a settling, and what a schedule begins for a key.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::config::{TableConfig, Writes};
use crate::engine::width::{ScaleOutcome, ScalingReason};
use crate::engine::{Inner, Maintenance};
use crate::policy::decision::ScalingDecision;
use crate::protocol::drain::may_purge;
use crate::protocol::growth::GrowthRecord;
use crate::protocol::metadata::{Change, Phase, ShardMetadata};
use crate::table::error::TableError;
use crate::values::key::{PartitionKey, ShardCount};

/// After how many seconds, by default, a key is settled in a table with a time to live. Until then,
/// an expired item may reveal an older copy.
const EXPIRING_SETTLE_SECONDS: u64 = 3_600;

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
    /// The key's width is changing or changed a moment ago, or the key is being drained.
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

/// What is due for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Due {
    /// Give up shards: it has been calm.
    Shrink(ShardCount),
    /// Move its items home.
    Settle,
    /// Remove the tombstones of a settled key.
    Purge,
    /// Finish a change whose process stopped halfway.
    Open,
}

/// When keys shrink and settle by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShrinkAndSettle {
    /// A key that has kept its width for this time, and no longer needs it, gives up half of its
    /// shards; zero, the default, for never.
    pub shrink_after: Duration,
    /// A key that has kept its width for this time is settled; zero, the default, for never, or for
    /// an hour in a table with a time to live.
    pub settle_after: Duration,
}

impl ShrinkAndSettle {
    /// After how many seconds with its width a key is settled. `None` for never.
    fn settles_after(&self, metadata: &ShardMetadata, table: &TableConfig) -> Option<u64> {
        if table.writes() != Writes::Items {
            return None;
        }
        // The drain of a shrink has not begun, or was cancelled: readers read shards that are not
        // written to.
        if metadata.read_shards > metadata.number_of_shards {
            return Some(table.policy.cooldown_seconds);
        }
        if self.settle_after.is_zero() {
            table.ttl_attribute.is_some().then_some(EXPIRING_SETTLE_SECONDS)
        } else {
            Some(self.settle_after.as_secs())
        }
    }
}

impl Maintenance {
    /// What is due for a key now. Only a calm key, one that was not throttled lately, shrinks.
    pub fn due(
        &self,
        metadata: &ShardMetadata,
        plan: &ShrinkAndSettle,
        is_calm: bool,
    ) -> Option<Due> {
        let (table, now) = (self.engine.config(), self.engine.now().epoch_seconds());
        let shrink_after = plan.shrink_after.as_secs();
        if metadata.closing().is_some() {
            return Some(Due::Open);
        }
        if may_purge(metadata, &table.waits(), now) {
            return Some(Due::Purge);
        }
        // A caller's own request can try it again.
        if metadata.has_unmovable() {
            return None;
        }
        // Writers do not record the load of a key that the directory does not list.
        if is_calm
            && shrink_after > 0
            && metadata.layout().is_listed(table.adopt_shards)
            && let Some(to) = table.policy.decide_shrink(metadata, shrink_after, now)
        {
            return Some(Due::Shrink(to));
        }
        let since = metadata.last_change().unwrap_or_default();
        let after = plan.settles_after(metadata, table)?;
        let is_due = now >= since.saturating_add(after) && metadata.wants_settling();
        is_due.then_some(Due::Settle)
    }

    /// Begins what is due for a key. [`drain`](Self::drain) does the rest.
    ///
    /// # Errors
    /// As [`shrink`](Self::shrink).
    pub fn begin<'a>(
        &'a self,
        key: &'a PartitionKey,
        due: Due,
    ) -> BoxFuture<'a, Result<(), DrainRefused>> {
        Box::pin(async move {
            match due {
                Due::Shrink(to) => self.shrink(key, to).await.map(drop),
                Due::Settle => self.settle(key).await.map(drop),
                Due::Open => self.finish_change(key).await.map(drop).map_err(DrainRefused::Table),
                // The drain begins it.
                Due::Purge => Ok(()),
            }
        })
    }

    /// Lowers a key to this number of shards. [`drain`](Self::drain) moves the items of the others.
    ///
    /// # Errors
    /// [`DrainRefused`] if the number is not lower, or the key is being changed.
    pub async fn shrink(
        &self,
        key: &PartitionKey,
        to: ShardCount,
    ) -> Result<ShardMetadata, DrainRefused> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        inner.claim_once(deadline).await?;
        let job = inner.job(key, deadline);
        let record = job.record_from_now().await?;
        let now = record.metadata.number_of_shards;
        inner.check_calm(&record.metadata)?;
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

    /// Begins to settle a key. After [`drain`](Self::drain), every item is at its home, and
    /// requests for one item look at one place.
    ///
    /// # Errors
    /// [`DrainRefused`] if the key is being changed, or the table takes appends only.
    pub async fn settle(&self, key: &PartitionKey) -> Result<ShardMetadata, DrainRefused> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        inner.claim_once(deadline).await?;
        let job = inner.job(key, deadline);
        let mut record = job.record_from_now().await?;
        let ShardMetadata { read_shards, number_of_shards, .. } = &record.metadata;
        // Items that a shrink left behind can be moved even with random placement.
        if inner.always_first().is_some() && read_shards == number_of_shards {
            return Err(DrainRefused::NoHomes);
        }
        inner.check_calm(&record.metadata)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_settle_where_items_expire_and_after_a_partial_shrink() {
        let items = TableConfig::new("items", "items-metadata");
        let expiring = items.clone().with(|config| config.ttl_attribute = Some("expires".into()));
        let appends = expiring.clone().with(|config| config.writes = Writes::Appends);
        let whole = ShardMetadata::unregistered();
        let left = ShardMetadata { read_shards: ShardCount::new(8).unwrap(), ..whole.clone() };
        let rows = [
            (&whole, &items, 0, None),
            (&whole, &items, 600, Some(600)),
            (&whole, &expiring, 0, Some(3_600)),
            (&whole, &expiring, 600, Some(600)),
            (&whole, &appends, 600, None),
            (&left, &items, 0, Some(items.policy.cooldown_seconds)),
            (&left, &appends, 0, None),
        ];
        for (metadata, table, configured, expected) in rows {
            let (read, writes) = (metadata.read_shards, table.writes());
            let settle_after = Duration::from_secs(configured);
            let plan = ShrinkAndSettle { settle_after, ..ShrinkAndSettle::default() };
            let settles = plan.settles_after(metadata, table);
            assert_eq!(settles, expected, "{read} {writes:?} {configured}");
        }
    }
}
