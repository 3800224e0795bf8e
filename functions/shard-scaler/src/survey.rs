//! The direct event that reads the whole table: rebuilding lost metadata. If the table is too large
//! for one invocation, it changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use sharding::maintenance::{Rebuilt, Survey};
use sharding::{PartitionKey, TableError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant as Deadline;

use crate::Scaler;
use crate::response::{Failure, Outcome, Report, to_json};
use crate::telemetry;

/// The largest number of keys that are processed at once.
const CONCURRENCY: usize = 32;
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

impl Scaler {
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
        if !self.config.dry_run {
            let claimed = self.maintenance(deadline).claim_for_rebuild().await;
            claimed.map_err(|error| Failure::of(&error, "the metadata cannot be rebuilt"))?;
        }
        let look_until = look_until(deadline);
        let maintenance = self.maintenance(look_until);
        let (mut survey, mut at) = (Survey::default(), None);
        let known = self.look_at_metadata(&mut survey, look_until).await;
        let failure = |error| Failure::of(&error, "the metadata could not be looked at");
        if !known.map_err(failure)? {
            return Ok((survey, false));
        }
        loop {
            let page = maintenance.survey_page(&mut survey, at.as_ref()).await;
            let failure = |error| Failure::of(&error, "the table could not be looked at");
            at = page.map_err(failure)?.next;
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
            match self.maintenance(deadline - RESPONSE_TIME).rebuild_directory(survey).await {
                Ok((behind, restored)) => {
                    details["directory_behind"] = behind.into();
                    details["restored"] = restored.into();
                }
                Err(error) => {
                    outcome = Err(Failure::of(&error, "the directory could not be rebuilt"));
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
