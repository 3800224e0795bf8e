//! Scanning the whole table, to rebuild lost metadata. The metadata and the directory are surveyed
//! before the items.

use std::sync::Arc;

use crate::engine::views::keys::KeyJob;
use crate::engine::width::{ScaleOutcome, ScalingReason};
use crate::engine::{Deadline, TableEngine};
use crate::protocol::layout::Layout;
use crate::protocol::metadata::{Change, ShardMetadata};
use crate::protocol::survey::{KeyFindings, Survey, Surveyed, place_of};
use crate::protocol::view::View;
use crate::table::ScanPosition;
use crate::table::error::{Cause, TableError};
use crate::values::key::{PartitionKey, ShardCount, ShardNumber};

const MAX_ATTEMPTS: u32 = 5;

/// A page of a survey.
#[derive(Debug, Clone, PartialEq)]
pub struct SurveyPage {
    /// Where the next page begins. `None` at the end.
    pub next: Option<ScanPosition>,
    /// Items on this page.
    pub items: u64,
    /// Read units that the page cost.
    pub consumed_capacity: f64,
}

/// The result for one key's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rebuilt {
    /// The metadata covers all items.
    Kept,
    /// The metadata was missing, or could not be parsed. The key has this number of shards now.
    Created(ShardCount),
    /// The metadata missed items. The key has this number of shards now.
    Widened(ShardCount),
    /// Another actor was changing it every time: run the rebuild again.
    Superseded,
}

impl TableEngine {
    /// Adds a page of the main table to the survey.
    pub async fn survey_page(
        &self,
        survey: &mut Survey,
        after: Option<&ScanPosition>,
        deadline: Deadline,
    ) -> Result<SurveyPage, TableError> {
        let (inner, config) = (&self.inner, &self.inner.config);
        let page = inner.retrying(deadline, || inner.tables.scan(after)).await?;
        let always = inner.always_first().map(|_| ShardCount::ONE);
        let items = page.items.len() as u64;
        for item in page.items {
            let place = item.as_ref().and_then(|item| {
                place_of(&config.shard_keys, &item.stored_key, item.logical_key.as_deref())
            });
            let (Some(item), Some((key, shard))) = (item, place) else {
                survey.observe_unknown();
                continue;
            };
            let (sort_key, version, width) = (&item.sort_key, item.version, item.width);
            let seen = Surveyed { key: &key, sort_key, shard, version, width };
            if survey.asks_for((config.placement, config.adopt_shards), &seen) {
                let read = inner.retrying(deadline, || inner.tables.get_metadata(&key)).await;
                let known = match read {
                    Ok(known) => known,
                    Err(TableError::Damaged(_)) => None,
                    Err(error) => return Err(error),
                };
                survey.know(&key, known, config.adopt_shards);
            }
            survey.observe(config.placement, always, &seen);
        }
        Ok(SurveyPage { next: page.next, items, consumed_capacity: page.consumed })
    }

    /// Adds a page of the metadata table, and before its first page the directory, to the survey.
    /// Call it before the items are surveyed.
    pub async fn survey_metadata_page(
        &self,
        survey: &mut Survey,
        after: Option<&PartitionKey>,
        deadline: Deadline,
    ) -> Result<Option<PartitionKey>, TableError> {
        let (inner, width) = (&self.inner, self.inner.config.adopt_shards);
        if after.is_none() {
            survey.list(inner.listed_keys(width, deadline).await?);
        }
        let (keys, next) = inner.retrying(deadline, || inner.tables.list_metadata(after)).await?;
        for (key, raw) in keys {
            let hides_by_entry = survey.take_listed(&key);
            match raw.parse() {
                Err(_) => survey.know(&key, None, width),
                Ok(metadata) if hides_by_entry || metadata.widths().all(|known| known != width) => {
                    survey.know(&key, Some(metadata), width);
                }
                Ok(_) => {}
            }
        }
        Ok(next)
    }

    /// Changes a key's metadata so that it covers every item that was found.
    pub async fn rebuild(
        &self,
        key: &PartitionKey,
        findings: &KeyFindings,
        deadline: Deadline,
    ) -> Result<Rebuilt, TableError> {
        if findings.is_whole() {
            return Ok(Rebuilt::Kept);
        }
        let (inner, job) = (&self.inner, self.inner.job(key, deadline));
        for _ in 0..MAX_ATTEMPTS {
            let read = inner.retrying(deadline, || inner.tables.get_raw_metadata(key)).await?;
            let seen = read.as_ref().and_then(|raw| raw.parse().ok());
            if seen.as_ref().is_some_and(|metadata| findings.are_covered_by(metadata)) {
                return Ok(Rebuilt::Kept);
            }
            if let Some(draining) = seen.as_ref().filter(|metadata| metadata.draining().is_some()) {
                let stop = Change::StopDrain { unmovable: false };
                job.change_from(draining, (Some(draining), None), &stop).await?;
                continue;
            }
            let damaged = read.filter(|_| seen.is_none());
            let nothing = ShardMetadata::unregistered_with(inner.config.adopt_shards);
            let known = match (&seen, &damaged) {
                (Some(metadata), _) => metadata.clone(),
                (None, Some(raw)) => raw.readable_parts(nothing),
                (None, None) => nothing,
            };
            let (width, most) = (findings.width(), inner.config.policy.max_shards);
            if width > most {
                return Err(TableError::Rejected(Cause::from(format!(
                    "its items tell of {width} shards, which is over MAX_SHARDS, {most}: raise that if it is right"
                ))));
            }
            // The entry of the key's page, if the item is lost. The new item must supersede it.
            let listed = job.listed_view().await?;
            let known = ShardMetadata {
                generation: known.generation.max(listed.layout.generation),
                era: known.era.max(listed.layout.era),
                ..known
            };
            let to = width.max(known.read_shards).max(listed.layout.read_shards);
            // Items may also be stored under a width that only the page's entry has.
            let Layout { generation, last_updated, widths, .. } = &listed.layout;
            let widths = widths.iter().filter(|_| *generation > 0);
            let history = widths
                .fold(findings.history(), |history, width| history.with(*last_updated, *width));
            // The generation continues from the clock, and the era from the items', so that
            // functions with later ones from before the loss accept these.
            let rebuild = Change::Rebuild { to, history, era: findings.era() };
            let stored = (seen.as_ref(), damaged.as_ref());
            let Some(closed) = job.change_from(&known, stored, &rebuild).await? else { continue };
            return Ok(match job.open(&closed, ScalingReason::Asked).await? {
                ScaleOutcome::Superseded => Rebuilt::Superseded,
                ScaleOutcome::Scaled { .. } | ScaleOutcome::Unchanged(_) if seen.is_some() => {
                    Rebuilt::Widened(to)
                }
                ScaleOutcome::Scaled { .. } | ScaleOutcome::Unchanged(_) => Rebuilt::Created(to),
            });
        }
        Ok(Rebuilt::Superseded)
    }
}

impl KeyJob<'_> {
    /// The key's entry in its page, if it has one.
    async fn listed_view(&self) -> Result<Arc<View>, TableError> {
        let asked_at = self.inner.environment.now();
        let page = self.inner.read_page(self.digest(), |_| false, self.deadline).await?;
        Ok(page.and_then(|page| page.view_of(self.digest())).unwrap_or_else(|| {
            let layout = Layout::unlisted(self.inner.config.adopt_shards);
            Arc::new(View { layout, asked_at })
        }))
    }

    /// Before metadata is created for a key: only if it is certain that none is lost.
    pub(super) async fn check_is_new(&self) -> Result<(), TableError> {
        let is_new = self.state.known().is_new;
        if !is_new {
            let found = self.has_further_items(self.deadline).await;
            self.check_not_lost(found, self.deadline).await?;
            self.state.known().is_new = true;
        }
        Ok(())
    }

    /// Whether the key has items where a key without metadata has none. Every key that grew under
    /// load has.
    pub(super) async fn has_further_items(&self, deadline: Deadline) -> Result<bool, TableError> {
        let KeyJob { inner, key, .. } = self;
        let beyond = ShardNumber::from_index(inner.config.adopt_shards.get());
        inner.retrying(deadline, || inner.tables.has_items(key, beyond)).await
    }

    /// Fails if the metadata of a key is lost: items were found beyond its shards, and there is no
    /// metadata.
    pub(super) async fn check_not_lost(
        &self,
        found: Result<bool, TableError>,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        let KeyJob { inner, key, .. } = self;
        // It may have grown since its metadata was read.
        if found? && inner.retrying(deadline, || inner.tables.get_metadata(key)).await?.is_none() {
            let beyond = ShardNumber::from_index(inner.config.adopt_shards.get());
            let why = format!("it has no item, yet items stand on shard {beyond}");
            return Err(TableError::Lost(why));
        }
        Ok(())
    }
}
