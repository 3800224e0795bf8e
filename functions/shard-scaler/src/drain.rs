//! Shrinking and settling. A direct event begins them, or the schedule does for a key that has been
//! calm for long. Every run of the schedule continues them.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use sharding::PartitionKey;
use sharding::maintenance::{DrainBudget, DrainRefused, Drained, Due, ShardMetadata};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant as Deadline;

use crate::Scaler;
use crate::clients::{ClientError, Insights, provisioned};
use crate::event::{EventError, WholeNumber};
use crate::response::{Handled, Outcome, Report, to_json};

/// The largest number of keys that are drained at once. Each shard of each key has its own pace.
const CONCURRENCY: usize = 8;
/// The largest number of keys for which one run of the schedule begins something. The rest can
/// wait.
const MAX_STARTED_KEYS: usize = 20;
/// The largest number of keys that the response names, besides the counts.
const MAX_NAMED_KEYS: usize = 100;
/// The longest time of one run: if only one shard-scaler runs at a time, an alarm waits for it.
const RUN_TIME: Duration = Duration::from_secs(20);
/// How long a run works on one key before the others have their turn.
const TURN_TIME: Duration = Duration::from_secs(5);
/// The part of a run's time that is reserved for its response.
const RESPONSE_TIME: Duration = Duration::from_secs(3);

impl Scaler {
    pub(crate) async fn shrink(
        &self,
        key: &str,
        asked: WholeNumber,
        deadline: Deadline,
    ) -> Handled {
        let key = self.logical_key(key)?;
        let refused = || asked.refused("number_of_shards", "1 or more");
        let to = asked.shard_count().ok_or_else(refused)?;
        if self.config.dry_run {
            return Ok(Report::of_key(&key, Outcome::DryRun(json!({"to": to.get()}))));
        }
        begun(&key, self.maintenance(deadline).shrink(&key, to).await)
    }

    pub(crate) async fn settle(&self, key: &str, deadline: Deadline) -> Handled {
        let key = self.logical_key(key)?;
        if self.config.dry_run {
            return Ok(Report::of_key(&key, Outcome::DryRun(json!({}))));
        }
        begun(&key, self.maintenance(deadline).settle(&key).await)
    }

    /// A run of the schedule.
    pub(crate) async fn drain_all(&self, now_seconds: u64, deadline: Deadline) -> Report {
        let deadline = deadline.min(Deadline::now() + RUN_TIME) - RESPONSE_TIME;
        // Boxed, because the SDK's futures nest deeply.
        let (report, (), _) = tokio::join!(
            Box::pin(self.drain_keys(now_seconds, deadline)),
            Box::pin(self.repair_directory(deadline)),
            Box::pin(self.learn_warm_throughput(deadline)),
        );
        report
    }

    /// Continues every drain, finishes changes whose actors have stopped, and begins to shrink and
    /// settle keys that are due. A run begins with the first key that the last run did not reach.
    async fn drain_keys(&self, now_seconds: u64, deadline: Deadline) -> Report {
        let throttled = self.known_throttled(now_seconds).await;
        let budget = match self.budget_of_all().await {
            Ok(budget) => budget.map(Arc::new),
            Err(error) => {
                tracing::error!(%error, "how much the table can take is not known");
                return Report::of(Outcome::of_client_error(&error));
            }
        };
        let (maintenance, plan) = (self.table.maintenance(), self.config.shrink_and_settle);
        let slots = Arc::new(Semaphore::new(CONCURRENCY));
        let mut draining = JoinSet::new();
        let mut begun_now = 0;
        let (looked_at, outcome) = self
            .look_at_keys(deadline, |key, metadata| {
                let is_calm = throttled.as_ref().is_some_and(|throttled| !throttled.contains(&key));
                let due = || maintenance.due(metadata, &plan, is_calm);
                let begin = (begun_now < MAX_STARTED_KEYS).then(due).flatten();
                if metadata.draining().is_none() && begin.is_none() {
                    return;
                }
                begun_now += usize::from(begin.is_some());
                let (scaler, slots, budget) = (self.clone(), Arc::clone(&slots), budget.clone());
                draining.spawn(async move {
                    scaler.carry_on_in_turns(&key, begin, budget.as_deref(), &slots, deadline).await
                });
            })
            .await;
        let mut keys: Vec<Report> = draining.join_all().await;
        for report in &keys {
            tracing::info!(audit = true, answer = %to_json(report), "drain");
        }
        let count = keys.len();
        keys.truncate(MAX_NAMED_KEYS);
        let details = json!({"looked_at": looked_at, "draining": count, "keys": keys});
        Report { outcome, details }
    }

    /// Visits the keys from the first one that the last run did not reach. Returns the number of
    /// keys, and a failure if it stopped early.
    async fn look_at_keys(
        &self,
        deadline: Deadline,
        mut visit: impl FnMut(PartitionKey, &ShardMetadata),
    ) -> (u64, Outcome) {
        let maintenance = self.maintenance(deadline);
        let (mut after, mut looked_at) = (self.looked_after().clone(), 0);
        loop {
            let (keys, next) = match maintenance.list(after.as_ref()).await {
                Ok(page) => page,
                Err(error) => {
                    if looked_at == 0 {
                        // Another starting point may succeed.
                        *self.looked_after() = None;
                    }
                    let effect = "not all keys could be looked at";
                    return (looked_at, Outcome::of_error(&error, effect));
                }
            };
            looked_at += keys.len() as u64;
            for (key, metadata) in keys {
                visit(key, &metadata);
            }
            self.looked_after().clone_from(&next);
            if next.is_none() {
                return (looked_at, Outcome::Handled);
            }
            after = next;
        }
    }

    /// Adds to the pages what the metadata has and they lack, because an actor that changed a key
    /// may have stopped between the two. The next run repeats a failure.
    async fn repair_directory(&self, deadline: Deadline) {
        if self.config.dry_run {
            return;
        }
        match self.maintenance(deadline).repair_directory().await {
            Ok(behind) => tracing::info!(behind, "compared the directory with the metadata"),
            Err(error) => {
                tracing::error!(%error, "the directory could not be compared with the metadata; the next run tries again");
            }
        }
    }

    /// The throttled keys. `None` if they are not known, or if no key is to shrink.
    async fn known_throttled(&self, now_seconds: u64) -> Option<BTreeSet<PartitionKey>> {
        if self.config.shrink_and_settle.shrink_after.is_zero() {
            return None;
        }
        match self.clients.throttled_keys(self.table.config(), None, now_seconds).await {
            Ok(Insights::Keys(throttled)) => Some(throttled.into_keys().collect()),
            // Then the recorded demand decides alone.
            Ok(Insights::Unknown { .. }) => Some(BTreeSet::new()),
            Err(error) => {
                let effect = "which keys are throttled is not known: none begins to shrink";
                tracing::error!(%error, "{effect}");
                None
            }
        }
    }

    /// The write units that all drains share. `None` if the table's capacity is not provisioned.
    async fn budget_of_all(&self) -> Result<Option<DrainBudget>, ClientError> {
        let table = self.clients.describe(&self.table.config().table_name).await?;
        let share = f64::from(self.config.drain_share_percent) / 100.0;
        Ok(provisioned(&table).map(|units| DrainBudget::new(units.write as f64 * share)))
    }

    fn looked_after(&self) -> MutexGuard<'_, Option<PartitionKey>> {
        self.looked_after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on a key for a limited time, so that large keys do not block the others.
    async fn carry_on_in_turns(
        &self,
        key: &PartitionKey,
        mut begin: Option<Due>,
        budget_of_all: Option<&DrainBudget>,
        slots: &Semaphore,
        deadline: Deadline,
    ) -> Report {
        use Outcome::{Done, Working};
        let budgets: Vec<&DrainBudget> = budget_of_all.into_iter().collect();
        let opens = matches!(begin, Some(Due::Open)) && !self.config.dry_run;
        let mut moved = 0;
        let outcome = loop {
            let slot = slots.acquire().await;
            let turn = deadline.min(Deadline::now() + TURN_TIME);
            let mut outcome = self.carry_on(key, begin.take(), &budgets, turn).await;
            drop(slot);
            if let Working { items } | Done { items, .. } = &mut outcome {
                moved += *items;
                *items = moved;
            }
            let goes_on = matches!(outcome, Working { .. });
            if !goes_on || Deadline::now() + TURN_TIME > deadline {
                break outcome;
            }
        };
        let mut report = Report::of_key(key, outcome);
        if opens {
            report.details["action"] = "open".into();
        }
        report
    }

    async fn carry_on(
        &self,
        key: &PartitionKey,
        begin: Option<Due>,
        budgets: &[&DrainBudget],
        deadline: Deadline,
    ) -> Outcome {
        if self.config.dry_run {
            // It names a width if it would begin a shrink.
            let to = if let Some(Due::Shrink(to)) = begin { Some(to.get()) } else { None };
            return Outcome::DryRun(json!({"to": to}));
        }
        let maintenance = self.maintenance(deadline);
        match begin {
            Some(Due::Open) => {
                let finished = maintenance.finish_change(key).await;
                return finished
                    .map_or_else(|error| Outcome::not_scaled(&error), Outcome::of_change);
            }
            Some(due) => {
                if let Err(error) = maintenance.begin(key, due).await {
                    return Outcome::unchanged(error);
                }
            }
            None => {}
        }
        match maintenance.drain(key, budgets).await {
            Ok(Drained::Nothing) => Outcome::unchanged("its drain has ended"),
            Ok(Drained::Waiting { until }) => Outcome::Waiting { until },
            Ok(Drained::Working { items }) => Outcome::Working { items },
            Ok(Drained::Done { from, to, items }) => {
                Outcome::Done { from: from.get(), to: to.get(), items }
            }
            Ok(other) => Outcome::unchanged(format!("{other:?}")),
            Err(error) => {
                tracing::warn!(%error, "a drain was interrupted; it goes on with the next run, unless an item cannot be moved");
                // The next run of the schedule repeats it.
                Outcome::failed(error, false)
            }
        }
    }
}

fn begun(key: &PartitionKey, result: Result<ShardMetadata, DrainRefused>) -> Handled {
    let outcome = match result {
        Ok(metadata) => Outcome::Begun {
            number_of_shards: metadata.number_of_shards.get(),
            read_shards: metadata.read_shards.get(),
        },
        Err(DrainRefused::Table(error)) => Outcome::of_error(&error, "a drain could not begin"),
        Err(error @ DrainRefused::NotLower { .. }) => {
            return Err(EventError::new("number_of_shards", error));
        }
        Err(error @ (DrainRefused::Busy(_) | DrainRefused::NoHomes | _)) => {
            Outcome::unchanged(error)
        }
    };
    Ok(Report::of_key(key, outcome))
}
