//! Looking at the whole table: for items under bare keys, which a migration brings home, and for what lost metadata must say.

use super::keys::KeyState;
use super::retry::retrying;
use super::{Deadline, Inner, ShardedTable};
use crate::core::key::{PartitionKey, ShardCount, ShardNumber};
use crate::core::metadata::ShardMetadata;
use crate::core::survey::{KeyFindings, Place, Survey, Surveyed};
use crate::sharded_table::events::ScalingReason;
use crate::table::error::TableError;
use crate::table::{MetadataUpdate, ScanPosition};

/// How often a rebuild is begun anew because another actor changed the metadata.
const ATTEMPTS: u32 = 5;

/// A page of a survey.
#[derive(Debug, Clone, PartialEq)]
pub struct SurveyPage {
    /// Where the next page begins; `None` at the end.
    pub next: Option<ScanPosition>,
    /// Items on this page.
    pub items: u64,
    /// Read units that it cost.
    pub consumed_capacity: f64,
}

/// What became of one key's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebuilt {
    /// It misses none of the items.
    Kept,
    /// There was none, or it could not be read; the key has this many shards now.
    Created(ShardCount),
    /// It missed items; the key has this many shards now.
    Widened(ShardCount),
    /// Another actor was changing it every time: run it again.
    Outrun,
}

impl ShardedTable {
    /// Looks at a page of the main table, strongly consistent, and adds it to the survey. One request.
    ///
    /// # Errors
    /// [`TableError`] where the table could not be read.
    pub async fn survey_page(
        &self,
        survey: &mut Survey,
        after: Option<&ScanPosition>,
        deadline: Deadline,
    ) -> Result<SurveyPage, TableError> {
        let (inner, config) = (&self.inner, &self.inner.config);
        let page = retrying(&inner.environment, deadline, || inner.tables.scan(after)).await?;
        for item in &page.items {
            let logical = item.logical_key.as_deref();
            let place = Place::of(&config.shard_keys, config.adopt_unsharded, &item.stored_key, logical);
            let shard = match &place {
                Place::Of(_, shard) => *shard,
                Place::Unknown => ShardNumber::UNSHARDED,
            };
            let seen = Surveyed { sort_key: &item.sort_key, shard, version: item.version, width: item.width };
            survey.observe((config.placement, &config.shard_keys), config.adopt_shards, place, &seen);
        }
        Ok(SurveyPage { next: page.next, items: page.items.len() as u64, consumed_capacity: page.consumed })
    }

    /// Makes a key's metadata tell of every item that was found; where it does already, nothing is changed. It never takes a shard away.
    ///
    /// # Errors
    /// [`TableError`] where the metadata could not be read or written. What was done is right; run it again.
    pub async fn rebuild(
        &self,
        key: &PartitionKey,
        findings: &KeyFindings,
        deadline: Deadline,
    ) -> Result<Rebuilt, TableError> {
        let inner = &self.inner;
        let state = inner.keys.state(key);
        let always = inner.config.cold_append.then_some(ShardCount::ONE);
        for _ in 0..ATTEMPTS {
            let read = retrying(&inner.environment, deadline, || inner.tables.get_metadata(key)).await;
            let (seen, is_damaged) = match read {
                Ok(seen) => (seen, false),
                Err(TableError::Damaged(_)) => (None, true),
                Err(error) => return Err(error),
            };
            if let Some(metadata) = &seen
                && findings.are_covered_by(metadata, always)
            {
                return Ok(Rebuilt::Kept);
            }
            let before = seen.as_ref().filter(|metadata| metadata.draining);
            if let Some(draining) = before {
                inner.step(key, &state, Some(draining), MetadataUpdate::StopDrain).await?;
                continue;
            }
            let now = seen.as_ref().map_or(inner.config.adopt_shards, |metadata| metadata.read_shards);
            let width = findings.width().max(now);
            let update = MetadataUpdate::Rebuild { to: width, history: findings.history(), is_damaged };
            // The generation goes on from the clock, so that functions which know a later one from before the loss believe this one.
            let Some(rebuilt) = inner.step(key, &state, seen.as_ref(), update).await? else { continue };
            let outcome = if seen.is_some() { Rebuilt::Widened(width) } else { Rebuilt::Created(width) };
            return inner.put_to_use(key, &state, &rebuilt, deadline).await.map(|()| outcome);
        }
        Ok(Rebuilt::Outrun)
    }
}

impl Inner {
    /// Lets writers use the shards that readers look at from now on: as after any expansion, once all views from before have run out.
    async fn put_to_use(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        rebuilt: &ShardMetadata,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        if rebuilt.expansion().is_some() {
            self.wait_out_views().await;
            self.activate(key, state, rebuilt, ScalingReason::Asked, deadline).await?;
        }
        Ok(())
    }

    /// Whether items stand where a key without metadata has none: then it is lost. This finds a key that has an item on the first of its
    /// further shards, which is every key that grew because it was written a lot.
    pub(super) async fn look_for_loss(&self, key: &PartitionKey, deadline: Deadline) -> Result<(), TableError> {
        let beyond = ShardNumber::from_index(self.config.adopt_shards.get());
        if retrying(&self.environment, deadline, || self.tables.has_items(key, beyond)).await? {
            return Err(TableError::Lost(format!("it has no item, yet items stand on shard {beyond}")));
        }
        Ok(())
    }
}
