//! Direct events that look at the whole table: bringing bare items home, and rebuilding lost metadata.
//!
//! A table may be larger than what one invocation can look at. A migration does a part and says where the next goes on; a rebuild does nothing then.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sharding::internal::{Deadline, DrainRefused, Rebuilt, ScanPosition, SortKey, Survey, TableError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Scaler;
use crate::event::After;
use crate::failure::failed;
use crate::telemetry;
use crate::told::refused;

/// The most keys that are worked on at once.
const AT_ONCE: usize = 32;
/// No further page is looked at once so many keys are to be worked on.
const MOST_KEYS: usize = 300;
/// The part of the time that the look at the table may take; the rest is for the keys that were found.
const LOOKING: f64 = 0.5;
/// What is kept of the time for the answer.
const ANSWER_TIME: Duration = Duration::from_secs(3);
/// The most failed keys that are named.
const MOST_TOLD: usize = 100;

/// What became of the keys: how many of each outcome, and why some failed.
#[derive(Default)]
struct Outcomes {
    counts: Map<String, Value>,
    failed: Vec<Value>,
}

impl Scaler {
    /// Begins to migrate the keys that have items under their bare key. The schedule of drains does the rest.
    pub(crate) async fn migrate(&self, after: Option<After>, deadline: Deadline) -> Value {
        if !self.table.config().adopt_unsharded {
            return json!({"action": "migrate", "outcome": "unchanged", "reason": DrainRefused::NotAdopting.to_string()});
        }
        let after = match self.position(after) {
            Ok(after) => after,
            Err(refusal) => return refusal,
        };
        let look_until = look_until(deadline);
        let (mut survey, mut keys, mut unsharded) = (Survey::default(), Vec::new(), 0);
        let (mut at, mut interrupted) = (after.clone(), None);
        loop {
            match self.table.survey_page(&mut survey, at.as_ref(), look_until).await {
                Ok(page) => at = page.next,
                Err(error) => {
                    tracing::error!(%error, "the table could not be looked at");
                    interrupted = Some(error);
                    break;
                }
            }
            let found = survey.take_unsharded();
            unsharded += found.values().sum::<u64>();
            keys.extend(found.into_keys());
            if at.is_none() || keys.len() >= MOST_KEYS || Deadline::now() >= look_until {
                break;
            }
        }
        let dry_run = self.config.dry_run;
        let outcomes = each(keys, |key| {
            let table = self.table.clone();
            async move {
                if dry_run {
                    return Ok("would_begin");
                }
                match table.begin_migration(&key, deadline - ANSWER_TIME).await {
                    Ok(_) => Ok("begun"),
                    Err(DrainRefused::Busy(_)) => Ok("busy"),
                    Err(error) => Err((key, error.to_string())),
                }
            }
        });
        let next =
            at.as_ref().map(|next| json!({"stored_key": next.stored_key, "sort_key": next.sort_key.to_string()}));
        let mut answer = told("migrate", &survey, outcomes.await);
        answer.insert("next".into(), next.into());
        answer.insert("unsharded_items".into(), unsharded.into());
        answer.insert("looks_sharded".into(), survey.looks_sharded().into());
        match interrupted {
            // Where it came some way, the answer says where to go on: a repetition would begin anew.
            Some(error) => failed(answer.into(), &error, error.is_retryable() && at == after),
            None => answer.into(),
        }
    }

    /// Makes the metadata of every key tell of all its items. Nothing is changed unless the whole table was seen: a part of a key's items tells
    /// too few shards.
    pub(crate) async fn rebuild(&self, deadline: Deadline) -> Value {
        let dry_run = self.config.dry_run;
        if !dry_run && let Err(error) = Box::pin(self.table.claim_for_rebuild(deadline)).await {
            tracing::error!(%error, "the metadata cannot be rebuilt");
            return failed(json!({"action": "rebuild"}), &error, error.is_retryable());
        }
        let look_until = look_until(deadline);
        let (mut survey, mut at) = (Survey::default(), None);
        loop {
            match self.table.survey_page(&mut survey, at.as_ref(), look_until).await {
                Ok(page) => at = page.next,
                Err(error) => {
                    tracing::error!(%error, "the table could not be looked at");
                    return failed(json!({"action": "rebuild"}), &error, error.is_retryable());
                }
            }
            // Bare keys have no shards to rebuild, and would only take memory.
            survey.take_unsharded();
            if at.is_none() {
                break;
            }
            if Deadline::now() >= look_until {
                let why = "the table is larger than one invocation can look at; nothing was changed: take the command `local rebuild`";
                return json!({"action": "rebuild", "outcome": "unchanged", "items": survey.items(), "reason": why});
            }
        }
        if let Err(error) = self.look_for_damage(&mut survey, look_until).await {
            return failed(json!({"action": "rebuild"}), &error, error.is_retryable());
        }
        let found: Vec<_> = survey.keys().map(|(key, findings)| (key.clone(), findings.clone())).collect();
        let astray: u64 = found.iter().map(|(_, findings)| findings.astray()).sum();
        let outcomes = each(found, |(key, findings)| {
            let table = self.table.clone();
            async move {
                if dry_run {
                    return Ok("would_look");
                }
                match table.rebuild(&key, &findings, deadline - ANSWER_TIME).await {
                    Ok(Rebuilt::Kept) => Ok("kept"),
                    Ok(Rebuilt::Created(_)) => Ok("created"),
                    Ok(Rebuilt::Widened(_)) => Ok("widened"),
                    Ok(Rebuilt::Superseded) => Err((key, "another actor was changing it".to_owned())),
                    Err(error) => Err((key, error.to_string())),
                }
            }
        });
        let outcomes = outcomes.await;
        let is_whole = outcomes.failed.is_empty();
        let mut answer = told("rebuild", &survey, outcomes);
        answer.insert("astray".into(), astray.into());
        // With a key left out, complete pages would say of it that it never grew.
        if dry_run || !is_whole {
            return answer.into();
        }
        // Last, so that the pages have what was rebuilt.
        match Box::pin(self.table.rebuild_directory(deadline - ANSWER_TIME)).await {
            Ok((behind, restored)) => {
                answer.insert("directory_behind".into(), behind.into());
                answer.insert("restored".into(), restored.into());
                answer.into()
            }
            Err(error) => {
                tracing::error!(%error, "the directory could not be rebuilt");
                failed(answer.into(), &error, error.is_retryable())
            }
        }
    }

    async fn look_for_damage(&self, survey: &mut Survey, deadline: Deadline) -> Result<(), TableError> {
        let mut after = None;
        loop {
            after = self.table.survey_metadata_page(survey, after.as_ref(), deadline).await?;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn position(&self, after: Option<After>) -> Result<Option<ScanPosition>, Value> {
        let Some(After { stored_key, sort_key }) = after else { return Ok(None) };
        let sort_key = SortKey::parse(self.table.config().sort_key_type, &sort_key);
        let sort_key = sort_key.map_err(|error| refused("after.sort_key", error))?;
        Ok(Some(ScanPosition { stored_key, sort_key }))
    }
}

fn look_until(deadline: Deadline) -> Deadline {
    let now = Deadline::now();
    now + deadline.saturating_duration_since(now).mul_f64(LOOKING)
}

/// Works on the keys, some at once, and counts what became of them.
async fn each<K, F>(keys: Vec<K>, work: impl Fn(K) -> F) -> Outcomes
where
    F: Future<Output = Result<&'static str, (sharding::internal::PartitionKey, String)>> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut working = JoinSet::new();
    for key in keys {
        let (slots, done) = (Arc::clone(&slots), work(key));
        working.spawn(async move {
            let _slot = slots.acquire().await;
            done.await
        });
    }
    let mut outcomes = Outcomes::default();
    for outcome in working.join_all().await {
        let name = match outcome {
            Ok(name) => name,
            Err((key, why)) => {
                tracing::error!(audit = true, key = key.as_str(), %why, "a key was left");
                telemetry::failed();
                outcomes.failed.push(json!({"partition_key": key.as_str(), "detail": why}));
                "failed"
            }
        };
        let before = outcomes.counts.get(name).and_then(Value::as_u64).unwrap_or_default();
        outcomes.counts.insert(name.to_owned(), (before + 1).into());
    }
    outcomes.failed.truncate(MOST_TOLD);
    outcomes
}

fn told(action: &str, survey: &Survey, outcomes: Outcomes) -> Map<String, Value> {
    Map::from_iter([
        ("action".to_owned(), action.into()),
        ("outcome".to_owned(), "handled".into()),
        ("items".to_owned(), survey.items().into()),
        ("unknown".to_owned(), survey.unknown().into()),
        ("keys".to_owned(), outcomes.counts.into()),
        ("failed".to_owned(), outcomes.failed.into()),
    ])
}
