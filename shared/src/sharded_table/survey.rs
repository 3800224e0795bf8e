//! Looking at the whole table: for items under bare keys, which a migration brings home, and for what lost metadata must say.

use super::keys::KeyState;
use super::retry::retrying;
use super::{Deadline, Inner, ShardedTable};
use crate::core::key::{PartitionKey, ShardCount, ShardNumber};
use crate::core::metadata::ShardMetadata;
use crate::core::survey::{KeyFindings, Known, Place, Survey, Surveyed};
use crate::sharded_table::events::ScalingReason;
use crate::table::error::TableError;
use crate::table::{MetadataUpdate, RawMetadata, ScanPosition};

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
        let always = config.cold_append.then_some(ShardCount::ONE);
        let items = page.items.len() as u64;
        for item in page.items {
            let Some(item) = item else {
                survey.observe_damaged();
                continue;
            };
            let logical = item.logical_key.as_deref();
            let place = Place::of(&config.shard_keys, config.adopt_unsharded, &item.stored_key, logical);
            let shard = match &place {
                Place::Of(_, shard) => *shard,
                Place::Unknown => ShardNumber::UNSHARDED,
            };
            let seen = Surveyed { sort_key: &item.sort_key, shard, version: item.version, width: item.width };
            if let Some(key) = survey.asks_for((config.placement, config.adopt_shards), &place, &seen) {
                let known = match retrying(&inner.environment, deadline, || inner.tables.get_metadata(key)).await {
                    Ok(Some(metadata)) => Known::Is(Box::new(metadata)),
                    Ok(None) => Known::Absent,
                    Err(TableError::Damaged(_)) => Known::Damaged,
                    Err(error) => return Err(error),
                };
                survey.know(key, known, config.adopt_shards);
            }
            survey.observe((config.placement, &config.shard_keys), always, place, &seen);
        }
        Ok(SurveyPage { next: page.next, items, consumed_capacity: page.consumed })
    }

    /// Adds the keys to the survey whose metadata cannot be read, of a page of the metadata table. Returns the key to go on after.
    ///
    /// # Errors
    /// [`TableError`] where the metadata table could not be read.
    pub async fn survey_metadata_page(
        &self,
        survey: &mut Survey,
        after: Option<&PartitionKey>,
        deadline: Deadline,
    ) -> Result<Option<PartitionKey>, TableError> {
        let inner = &self.inner;
        let (keys, next) = retrying(&inner.environment, deadline, || inner.tables.list_metadata(after)).await?;
        for (key, raw) in keys {
            if raw.parse().is_err() {
                survey.know_damaged(&key, inner.config.adopt_shards);
            }
        }
        Ok(next)
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
        if findings.is_whole() {
            return Ok(Rebuilt::Kept);
        }
        let inner = &self.inner;
        let state = inner.keys.state(key);
        for _ in 0..ATTEMPTS {
            let read = retrying(&inner.environment, deadline, || inner.tables.get_raw_metadata(key)).await?;
            let seen = match &read {
                None => None,
                Some(raw) => raw.parse().ok(),
            };
            if seen.as_ref().is_some_and(|metadata| findings.are_told_by(metadata)) {
                return Ok(Rebuilt::Kept);
            }
            if let Some(draining) = seen.as_ref().filter(|metadata| metadata.draining) {
                inner.step(key, &state, Some(draining), MetadataUpdate::StopDrain { unmovable: false }).await?;
                continue;
            }
            let damaged = read.filter(|_| seen.is_none());
            let before = seen.as_ref().map(|metadata| metadata.read_shards);
            let before =
                before.or_else(|| damaged.as_ref().and_then(RawMetadata::widest)).unwrap_or(inner.config.adopt_shards);
            let width = findings.width().max(before);
            let most = inner.config.policy.max_shards;
            if findings.width() > most {
                return Err(TableError::Rejected(format!(
                    "its items tell of {} shards, which is over MAX_SHARDS, {most}: raise that if it is right",
                    findings.width()
                )));
            }
            let update = MetadataUpdate::Rebuild { to: width, history: findings.history(), damaged };
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

    /// Before metadata is made for a key: only where it is certain that none is lost.
    pub(super) async fn is_certainly_new(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        if !state.is_new() {
            let found = self.has_further_items(key, deadline).await?;
            self.is_lost(key, found, deadline).await?;
            state.note_new();
        }
        Ok(())
    }

    /// The first shard that a key without metadata does not have.
    fn first_further_shard(&self) -> ShardNumber {
        ShardNumber::from_index(self.config.adopt_shards.get())
    }

    /// Whether items stand where a key without metadata has none. That is so of every key that grew because it was written a lot.
    pub(super) async fn has_further_items(&self, key: &PartitionKey, deadline: Deadline) -> Result<bool, TableError> {
        let further = self.first_further_shard();
        retrying(&self.environment, deadline, || self.tables.has_items(key, further)).await
    }

    /// Fails where the metadata of a key is lost: items were found beyond its shards, and there is none.
    pub(super) async fn is_lost(&self, key: &PartitionKey, found: bool, deadline: Deadline) -> Result<(), TableError> {
        let beyond = self.first_further_shard();
        // It may have grown since its metadata was read.
        if found && retrying(&self.environment, deadline, || self.tables.get_metadata(key)).await?.is_none() {
            return Err(TableError::Lost(format!("it has no item, yet items stand on shard {beyond}")));
        }
        Ok(())
    }
}
