//! Scanning the whole table, to rebuild lost metadata.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep_until};

use crate::engine::Maintenance;
use crate::engine::width::{ScaleOutcome, ScalingReason};
use crate::protocol::layout::Layout;
use crate::protocol::metadata::{Change, ShardMetadata};
use crate::protocol::survey::{KeyFindings, Survey, Surveyed};
use crate::table::error::{Cause, TableError};
use crate::values::key::{PartitionKey, ShardCount};

const MAX_ATTEMPTS: u32 = 5;

/// The result for one key's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rebuilt {
    /// The metadata covers all items.
    Kept,
    /// It was missing, or could not be parsed. The key has this number of shards now.
    Created(ShardCount),
    /// It missed items. The key has this number of shards now.
    Widened(ShardCount),
    /// Another actor was changing it every time: run the rebuild again.
    Superseded,
}

impl Maintenance {
    /// The first step of a rebuild: reads the metadata, and then every item, strongly consistent.
    /// Adds the items to the survey, and the keys whose metadata cannot be parsed or would hide
    /// items. A timeout counts for each page. After an error, take a new survey.
    ///
    /// It takes at most this number of read units of the main table a second; 0 is no limit. Calls
    /// `looked_at` after each page with the number of items so far.
    pub async fn survey(
        &self,
        survey: &mut Survey,
        read_units: u32,
        mut looked_at: impl FnMut(u64),
    ) -> Result<(), TableError> {
        self.survey_metadata(survey).await?;
        let inner = &self.engine.inner;
        let (config, always) = (&inner.config, inner.always_first().map(|_| ShardCount::ONE));
        let mut after = None;
        loop {
            let (began, deadline) = (Instant::now(), self.until());
            let page = inner.retrying(deadline, || inner.tables.scan(after.as_ref())).await?;
            for item in page.items {
                let place = item.as_ref().and_then(|item| item.place(&config.shard_keys));
                let (Some(item), Some((key, shard))) = (item, place) else {
                    survey.items += 1;
                    survey.unknown += 1;
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
            looked_at(survey.items);
            if page.next.is_none() {
                return Ok(());
            }
            after = page.next;
            if read_units > 0 {
                let seconds = page.consumed / f64::from(read_units);
                sleep_until(began + Duration::from_secs_f64(seconds)).await;
            }
        }
    }

    async fn survey_metadata(&self, survey: &mut Survey) -> Result<(), TableError> {
        let inner = &self.engine.inner;
        let width = inner.config.adopt_shards;
        survey.listed = inner.listed_keys(width, self.until()).await?;
        let mut after = None;
        loop {
            let list = || inner.tables.list_metadata(after.as_ref());
            let (keys, next) = inner.retrying(self.until(), list).await?;
            for (key, raw) in keys {
                let hides_by_entry = survey.take_listed(&key);
                match raw.parse() {
                    Err(_) => survey.know(&key, None, width),
                    Ok(known) if hides_by_entry || known.widths().all(|of| of != width) => {
                        survey.know(&key, Some(known), width);
                    }
                    Ok(_) => {}
                }
            }
            if next.is_none() {
                return Ok(());
            }
            after = next;
        }
    }

    /// The second step, for each key of the survey ([`rebuild_all`](Self::rebuild_all)): changes
    /// its metadata so that it covers every item that was found. It never removes a shard.
    pub async fn rebuild(
        &self,
        key: &PartitionKey,
        findings: &KeyFindings,
    ) -> Result<Rebuilt, TableError> {
        if findings.is_whole() {
            return Ok(Rebuilt::Kept);
        }
        let (inner, deadline) = (&self.engine.inner, self.until());
        let job = inner.job(key, deadline);
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
            // The page's entry, if the item is lost. The new item must supersede it.
            let page = inner.read_page(job.digest(), |_| false, deadline).await?;
            let listed = page.and_then(|page| page.view_of(job.digest()));
            let listed = listed.map_or_else(
                || Layout::unlisted(inner.config.adopt_shards),
                |view| view.layout.clone(),
            );
            let known = ShardMetadata {
                generation: known.generation.max(listed.generation),
                era: known.era.max(listed.era),
                ..known
            };
            let to = width.max(known.read_shards).max(listed.read_shards);
            // Items may also be stored under a width that only the page's entry has.
            let Layout { generation, last_updated, widths, .. } = &listed;
            let widths = widths.iter().filter(|_| *generation > 0);
            let history = widths
                .fold(findings.history(), |history, width| history.with(*last_updated, *width));
            // The generation continues from the clock, and the era from the items', so that
            // functions with later ones from before the loss accept these.
            let rebuild = Change::Rebuild { to, history, era: findings.era() };
            let stored = (seen.as_ref(), damaged.as_ref());
            let Some(closed) = job.change_from(&known, stored, &rebuild).await? else { continue };
            return Ok(match (job.open(&closed, ScalingReason::Asked).await?, seen) {
                (ScaleOutcome::Superseded, _) => Rebuilt::Superseded,
                (_, Some(_)) => Rebuilt::Widened(to),
                (_, None) => Rebuilt::Created(to),
            });
        }
        Ok(Rebuilt::Superseded)
    }

    /// [Rebuilds](Self::rebuild) every key of a survey, up to `concurrency` of them at once.
    pub async fn rebuild_all(
        &self,
        survey: &Survey,
        concurrency: usize,
        mut rebuilt: impl FnMut(&PartitionKey, Result<Rebuilt, TableError>),
    ) {
        let rebuilding: Vec<_> = survey
            .keys
            .iter()
            .map(|(key, findings)| async move { (key, self.rebuild(key, findings).await) })
            .collect();
        let mut rebuilding = stream::iter(rebuilding).buffer_unordered(concurrency.max(1));
        while let Some((key, result)) = rebuilding.next().await {
            rebuilt(key, result);
        }
    }
}
