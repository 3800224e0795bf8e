//! Direct events that read the whole table: migrating bare keys, and rebuilding lost metadata.
//!
//! A table may be too large for one invocation. A migration then does a part and says where the
//! next one continues; a rebuild changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use sharding::maintenance::{DrainRefused, Rebuilt, ScanPosition, Survey};
use sharding::{PartitionKey, SortKey, TableError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant as Deadline;

use crate::Scaler;
use crate::event::{After, EventError};
use crate::response::{Failure, Outcome, Report, to_json};
use crate::telemetry;

/// The largest number of keys that are processed at once.
const CONCURRENCY: usize = 32;
/// No further page is read once this number of keys is waiting.
const MAX_WAITING_KEYS: usize = 300;
/// The share of the time for reading the table. The rest is for the keys that were found.
const READING_SHARE: f64 = 0.5;
/// The part of the time that is reserved for the response.
const RESPONSE_TIME: Duration = Duration::from_secs(3);
/// The largest number of failed keys that are named.
const MAX_NAMED_KEYS: usize = 100;
/// Why a rebuild changes nothing.
const TOO_LARGE: &str = "the table is larger than one invocation can look at; nothing was changed: \
                         take the command `admin rebuild`";

/// The totals, the number of keys by result, and why some failed.
#[derive(Debug, Default, Serialize)]
struct Work {
    items: u64,
    unknown: u64,
    keys: BTreeMap<&'static str, u64>,
    failed: Vec<FailedKey>,
}

#[derive(Debug, Serialize)]
struct FailedKey {
    partition_key: String,
    detail: String,
}

/// The progress of the scan for items under bare keys.
#[derive(Default)]
struct Look {
    survey: Survey,
    keys: Vec<PartitionKey>,
    unsharded_items: u64,
    /// Where the next scan continues.
    next: Option<ScanPosition>,
    interrupted: Option<TableError>,
}

impl Scaler {
    /// Begins to migrate the keys that have items under their bare key. The schedule of drains does
    /// the rest.
    pub(crate) async fn migrate(
        &self,
        after: Option<After>,
        deadline: Deadline,
    ) -> Result<Report, EventError> {
        if !self.table.config().adopt_unsharded {
            let reason = DrainRefused::NotAdopting.to_string();
            let outcome = Ok(Outcome::Unchanged { reason });
            return Ok(Report { outcome, details: json!({}) });
        }
        let after = self.position(after)?;
        let mut look = self.look_for_bare_keys(after.clone(), look_until(deadline)).await;
        let dry_run = self.config.dry_run;
        let work = each(&look.survey, std::mem::take(&mut look.keys), |key| {
            let maintenance = self.maintenance(deadline - RESPONSE_TIME);
            async move {
                if dry_run {
                    return Ok("would_begin");
                }
                match maintenance.migrate(&key).await {
                    Ok(_) => Ok("begun"),
                    Err(DrainRefused::Busy(_)) => Ok("busy"),
                    Err(error) => Err((key, error.to_string())),
                }
            }
        });
        let work = work.await;
        // If the scan made progress, the response says where to continue; a repetition would begin
        // again.
        let is_retryable = |error: &TableError| error.is_retryable() && look.next == after;
        let outcome = match &look.interrupted {
            Some(error) => Err(Failure::new(error, is_retryable(error))),
            None => Ok(Outcome::Handled),
        };
        let after = |next: ScanPosition| {
            let sort_key = next.sort_key.to_string();
            After { stored_key: next.stored_key, sort_key }
        };
        let mut details = to_json(&work);
        details["next"] = json!(look.next.map(after));
        details["unsharded_items"] = look.unsharded_items.into();
        details["looks_sharded"] = look.survey.looks_sharded().into();
        Ok(Report { outcome, details })
    }

    async fn look_for_bare_keys(&self, after: Option<ScanPosition>, until: Deadline) -> Look {
        let maintenance = self.maintenance(until);
        let mut look = Look { next: after, ..Look::default() };
        loop {
            match maintenance.survey_page(&mut look.survey, look.next.as_ref()).await {
                Ok(page) => look.next = page.next,
                Err(error) => {
                    tracing::error!(%error, "the table could not be looked at");
                    look.interrupted = Some(error);
                    return look;
                }
            }
            let found = look.survey.take_unsharded();
            look.unsharded_items += found.values().sum::<u64>();
            look.keys.extend(found.into_keys());
            if look.next.is_none()
                || look.keys.len() >= MAX_WAITING_KEYS
                || Deadline::now() >= until
            {
                return look;
            }
        }
    }

    /// Makes the metadata of every key cover all its items. Nothing changes unless the whole table
    /// was read, because a part of a key's items suggests too few shards.
    pub(crate) async fn rebuild(&self, deadline: Deadline) -> Report {
        match self.look_for_rebuild(deadline).await {
            Err(failure) => Report { outcome: Err(failure), details: json!({}) },
            Ok((survey, false)) => Report {
                outcome: Ok(Outcome::Unchanged { reason: TOO_LARGE.to_owned() }),
                details: json!({"items": survey.items()}),
            },
            Ok((survey, true)) => self.rebuild_from(&survey, deadline).await,
        }
    }

    /// Reads the metadata and then the items of the table. `false` if the time was not enough for the
    /// whole table.
    async fn look_for_rebuild(&self, deadline: Deadline) -> Result<(Survey, bool), Failure> {
        let failure = |what, error: &TableError| {
            tracing::error!(%error, "{what}");
            Failure::new(error, error.is_retryable())
        };
        if !self.config.dry_run {
            let claimed = self.maintenance(deadline).claim_for_rebuild().await;
            claimed.map_err(|error| failure("the metadata cannot be rebuilt", &error))?;
        }
        let look_until = look_until(deadline);
        let maintenance = self.maintenance(look_until);
        let (mut survey, mut at) = (Survey::default(), None);
        let known = self.look_at_metadata(&mut survey, look_until).await;
        if !known.map_err(|error| failure("the metadata could not be looked at", &error))? {
            return Ok((survey, false));
        }
        loop {
            let page = maintenance.survey_page(&mut survey, at.as_ref()).await;
            at = page.map_err(|error| failure("the table could not be looked at", &error))?.next;
            // Bare keys have no shards to rebuild, and would only use memory.
            survey.take_unsharded();
            if at.is_none() {
                return Ok((survey, true));
            }
            if Deadline::now() >= look_until {
                return Ok((survey, false));
            }
        }
    }

    async fn rebuild_from(&self, survey: &Survey, deadline: Deadline) -> Report {
        let dry_run = self.config.dry_run;
        let found: Vec<_> =
            survey.keys().map(|(key, findings)| (key.clone(), findings.clone())).collect();
        let misplaced: u64 = found.iter().map(|(_, findings)| findings.misplaced()).sum();
        let work = each(survey, found, |(key, findings)| {
            let maintenance = self.maintenance(deadline - RESPONSE_TIME);
            async move {
                if dry_run {
                    return Ok("would_look");
                }
                match maintenance.rebuild(&key, &findings).await {
                    Ok(Rebuilt::Kept) => Ok("kept"),
                    Ok(Rebuilt::Created(_)) => Ok("created"),
                    Ok(Rebuilt::Widened(_)) => Ok("widened"),
                    Ok(Rebuilt::Superseded) => {
                        Err((key, "another actor was changing it".to_owned()))
                    }
                    Ok(other) => Err((key, format!("{other:?}"))),
                    Err(error) => Err((key, error.to_string())),
                }
            }
        });
        let work = work.await;
        let (mut outcome, mut details) = (Ok(Outcome::Handled), to_json(&work));
        details["astray"] = misplaced.into();
        // If a key were left out, complete pages would mean that it never grew.
        if !dry_run && work.failed.is_empty() {
            // Last, so that the pages contain the rebuilt metadata.
            match self.maintenance(deadline - RESPONSE_TIME).rebuild_directory().await {
                Ok((behind, restored)) => {
                    details["directory_behind"] = behind.into();
                    details["restored"] = restored.into();
                }
                Err(error) => {
                    tracing::error!(%error, "the directory could not be rebuilt");
                    outcome = Err(Failure::new(&error, error.is_retryable()));
                }
            }
        }
        Report { outcome, details }
    }

    /// `false` if the time was not enough for all metadata.
    async fn look_at_metadata(
        &self,
        survey: &mut Survey,
        look_until: Deadline,
    ) -> Result<bool, TableError> {
        let maintenance = self.maintenance(look_until);
        let mut after = None;
        loop {
            after = maintenance.survey_metadata_page(survey, after.as_ref()).await?;
            if after.is_none() {
                return Ok(true);
            }
            if Deadline::now() >= look_until {
                return Ok(false);
            }
        }
    }

    fn position(&self, after: Option<After>) -> Result<Option<ScanPosition>, EventError> {
        let Some(After { stored_key, sort_key }) = after else { return Ok(None) };
        let sort_key = SortKey::parse(self.table.config().sort_key_type, &sort_key);
        let sort_key = sort_key.map_err(|error| EventError::new("after.sort_key", error))?;
        Ok(Some(ScanPosition { stored_key, sort_key }))
    }
}

fn look_until(deadline: Deadline) -> Deadline {
    let now = Deadline::now();
    now + deadline.saturating_duration_since(now).mul_f64(READING_SHARE)
}

/// Processes the keys, several at once, and counts the results.
async fn each<K, F>(survey: &Survey, keys: Vec<K>, work: impl Fn(K) -> F) -> Work
where
    F: Future<Output = Result<&'static str, (PartitionKey, String)>> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(CONCURRENCY));
    let mut working = JoinSet::new();
    for key in keys {
        let (slots, working_on) = (Arc::clone(&slots), work(key));
        working.spawn(async move {
            let _slot = slots.acquire().await;
            working_on.await
        });
    }
    let mut done = Work { items: survey.items(), unknown: survey.unknown(), ..Work::default() };
    for outcome in working.join_all().await {
        let name = match outcome {
            Ok(name) => name,
            Err((key, why)) => {
                tracing::error!(audit = true, key = key.as_str(), %why, "a key was left");
                telemetry::failed();
                let partition_key = key.as_str().to_owned();
                done.failed.push(FailedKey { partition_key, detail: why });
                "failed"
            }
        };
        *done.keys.entry(name).or_default() += 1;
    }
    done.failed.truncate(MAX_NAMED_KEYS);
    done
}
