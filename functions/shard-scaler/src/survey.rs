//! The direct event that reads the whole table: rebuilding lost metadata. If the table is too large
//! for one invocation, it changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sharding::maintenance::{Rebuilt, Survey};
use tokio::time::{Instant as Deadline, timeout_at};

use crate::Scaler;
use crate::response::{Outcome, Report, count_failure};

const CONCURRENCY: usize = 32;
/// The share of the time for reading the table. The rest is for the keys that were found.
const READING_SHARE: f64 = 0.5;
const RESPONSE_TIME: Duration = Duration::from_secs(3);
const MAX_NAMED_KEYS: usize = 100;
const TOO_LARGE: &str = "the table is too large or too slow for one invocation; nothing was \
                         changed: take the command `admin rebuild`";

impl Scaler {
    /// Makes the metadata of every key cover all its items. Nothing changes unless the whole table
    /// was read, because a part of a key's items suggests too few shards.
    pub(crate) async fn rebuild(&self, deadline: Deadline) -> Report {
        if !self.config.dry_run
            && let Err(error) = self.maintenance(deadline).claim_for_rebuild().await
        {
            return Report::of(Outcome::of_error(&error, "the metadata cannot be rebuilt"));
        }
        let now = Deadline::now();
        let look_until = now + deadline.saturating_duration_since(now).mul_f64(READING_SHARE);
        let mut survey = Survey::default();
        let maintenance = self.maintenance(deadline);
        let looked = timeout_at(look_until, maintenance.survey(&mut survey, 0, |_| {})).await;
        match looked {
            Ok(Ok(())) => self.rebuild_from(&survey, deadline).await,
            Ok(Err(error)) => {
                Report::of(Outcome::of_error(&error, "the table could not be looked at"))
            }
            Err(_) => Report {
                outcome: Outcome::unchanged(TOO_LARGE),
                details: json!({"items": survey.items}),
            },
        }
    }

    /// Rebuilds the metadata of the keys, several at once, and then the directory.
    async fn rebuild_from(&self, survey: &Survey, deadline: Deadline) -> Report {
        let maintenance = self.maintenance(deadline - RESPONSE_TIME);
        let (mut keys, mut failed) = (BTreeMap::<_, u64>::new(), Vec::<Value>::new());
        if self.config.dry_run {
            survey.keys.keys().for_each(|_| *keys.entry("would_look").or_default() += 1);
        } else {
            let rebuilding = maintenance.rebuild_all(survey, CONCURRENCY, |key, rebuilt| {
                let name = match rebuilt {
                    Ok(Rebuilt::Kept) => Ok("kept"),
                    Ok(Rebuilt::Created(_)) => Ok("created"),
                    Ok(Rebuilt::Widened(_)) => Ok("widened"),
                    Ok(Rebuilt::Superseded) => Err("another actor was changing it".to_owned()),
                    Ok(other) => Err(format!("{other:?}")),
                    Err(error) => Err(error.to_string()),
                };
                let name = name.unwrap_or_else(|why| {
                    tracing::error!(audit = true, key = key.as_str(), %why, "a key was left");
                    count_failure();
                    failed.push(json!({"partition_key": key.as_str(), "detail": why}));
                    "failed"
                });
                *keys.entry(name).or_default() += 1;
            });
            rebuilding.await;
        }
        // If a key were left out, complete pages would mean that it never grew.
        let is_complete = !self.config.dry_run && failed.is_empty();
        failed.truncate(MAX_NAMED_KEYS);
        let mut details = json!({
            "items": survey.items,
            "unknown": survey.unknown,
            "keys": keys,
            "failed": failed,
            "astray": survey.keys.values().map(|findings| findings.misplaced).sum::<u64>(),
        });
        let mut outcome = Outcome::Handled;
        if is_complete {
            // Last, so that the pages contain the rebuilt metadata.
            match maintenance.rebuild_directory(survey).await {
                Ok((behind, restored)) => {
                    details["directory_behind"] = behind.into();
                    details["restored"] = restored.into();
                }
                Err(error) => {
                    outcome = Outcome::of_error(&error, "the directory could not be rebuilt");
                }
            }
        }
        Report { outcome, details }
    }
}
