//! Shrinking and settling. A direct event begins them, or the schedule does for a key that has been
//! calm for long. Every run of the schedule continues them.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use sharding::internal::{
    Deadline, DrainBudget, DrainRefused, Drained, ShardCount, ShardMetadata, ShrinkDecision,
};
use sharding::{PartitionKey, TableConfig, TableError, Writes};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Scaler;
use crate::clients::ClientError;
use crate::event::{EventError, WholeNumber};
use crate::response::{Failure, KeyOutcome, KeyReport, Outcome, Report, to_json};
use crate::throttled_keys::Insights;

/// The largest number of keys that are drained at once. Each shard of each key has its own pace.
const AT_ONCE: usize = 8;
/// The largest number of keys for which one run of the schedule begins something. The rest can
/// wait.
const MOST_BEGUN: usize = 20;
/// The largest number of keys that the response names, besides the counts.
const MOST_NAMED: usize = 100;
/// The longest time of one run: if only one shard-scaler runs at a time, an alarm waits for it.
const RUN_TIME: Duration = Duration::from_secs(20);
/// How long a run works on one key before the others have their turn.
const TURN_TIME: Duration = Duration::from_secs(5);
/// How many seconds a key keeps its width before it is settled in a table with a time to live, by
/// default. Until then, an expired item may reveal an older copy.
const SETTLE_EXPIRING_AFTER: u64 = 3_600;
/// The part of a run's time that is reserved for its response.
const RESPONSE_TIME: Duration = Duration::from_secs(3);

/// The change that the schedule begins for a key.
#[derive(Debug, Clone, Copy)]
enum Begin {
    Shrink(ShardCount),
    Settle,
    /// Remove the tombstones of a settled key.
    Purge,
    /// The open of a change whose actor stopped after the close.
    Open,
}

impl Scaler {
    pub(crate) async fn shrink(
        &self,
        key: &str,
        asked: WholeNumber,
        deadline: Deadline,
    ) -> Result<KeyReport, EventError> {
        let key = self.logical_key(key)?;
        let Some(to) = asked.shard_count() else {
            let why = format_args!("it is {asked}; allowed: 1 or more");
            return Err(EventError::new("number_of_shards", why));
        };
        if self.config.dry_run {
            let planned = json!({"to": to.get()});
            return Ok(KeyReport::new(&key, Ok(KeyOutcome::DryRun(planned))));
        }
        begun(&key, self.table.begin_shrink(&key, to, deadline).await)
    }

    pub(crate) async fn settle(
        &self,
        key: &str,
        deadline: Deadline,
    ) -> Result<KeyReport, EventError> {
        let key = self.logical_key(key)?;
        if self.config.dry_run {
            return Ok(KeyReport::new(&key, Ok(KeyOutcome::DryRun(json!({})))));
        }
        begun(&key, self.table.begin_settle(&key, deadline).await)
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
                let failure = Failure::new(&error, error.is_retryable);
                return Report { outcome: Err(failure), details: json!({}) };
            }
        };
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut draining = JoinSet::new();
        let mut begun_now = 0;
        let (looked_at, interrupted) = self
            .look_at_keys(deadline, |key, metadata| {
                let is_calm = throttled.as_ref().is_some_and(|throttled| !throttled.contains(&key));
                let due = || self.due(metadata, is_calm, now_seconds);
                let begin = (begun_now < MOST_BEGUN).then(due).flatten();
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
        let mut keys: Vec<KeyReport> = draining.join_all().await;
        for report in &keys {
            tracing::info!(audit = true, answer = %to_json(report), "drain");
        }
        let count = keys.len();
        keys.truncate(MOST_NAMED);
        let outcome = match interrupted {
            Some(error) => Err(Failure::new(&error, error.is_retryable())),
            None => Ok(Outcome::Handled),
        };
        let details = json!({"looked_at": looked_at, "draining": count, "keys": keys});
        Report { outcome, details }
    }

    /// Visits every key once, beginning with the first one that the last run did not reach. Returns
    /// the number of keys, and why it stopped early if it did.
    async fn look_at_keys(
        &self,
        deadline: Deadline,
        mut visit: impl FnMut(PartitionKey, &ShardMetadata),
    ) -> (u64, Option<TableError>) {
        let first = self.looked_after().clone();
        let (mut after, mut has_wrapped) = (first.clone(), first.is_none());
        let (mut is_round, mut looked_at) = (false, 0);
        loop {
            let (keys, next) = match self.table.list_keys(after.as_ref(), deadline).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::error!(%error, "not all keys could be looked at");
                    if looked_at == 0 {
                        // Another starting point may succeed.
                        *self.looked_after() = None;
                    }
                    return (looked_at, Some(error));
                }
            };
            looked_at += keys.len() as u64;
            for (key, metadata) in keys {
                is_round |= has_wrapped && first.as_ref() == Some(&key);
                visit(key, &metadata);
            }
            *self.looked_after() = next.clone().filter(|_| !is_round);
            match next {
                Some(next) if !is_round => after = Some(next),
                // From the beginning up to this run's starting point.
                None if !has_wrapped => (after, has_wrapped) = (None, true),
                _ => return (looked_at, None),
            }
        }
    }

    /// The throttled keys. `None` if they are not known, or if no key is to shrink.
    async fn known_throttled(&self, now_seconds: u64) -> Option<BTreeSet<PartitionKey>> {
        if self.config.shrink_after.is_zero() {
            return None;
        }
        let throttled = self.lately_throttled(now_seconds).await;
        let unknown = "which keys are throttled is not known: none begins to shrink";
        throttled.inspect_err(|error| tracing::error!(%error, "{unknown}")).ok()
    }

    /// The change that is due for a key.
    fn due(&self, metadata: &ShardMetadata, is_calm: bool, now_seconds: u64) -> Option<Begin> {
        let config = self.table.config();
        let shrink_after = self.config.shrink_after.as_secs();
        if metadata.closing().is_some() {
            return Some(Begin::Open);
        }
        if self.table.may_purge(metadata, now_seconds) {
            return Some(Begin::Purge);
        }
        // A direct event can try it again.
        if metadata.has_unmovable() {
            return None;
        }
        // Writers do not record the load of a key that the directory does not list.
        if is_calm
            && shrink_after > 0
            && metadata.layout().is_listed(config.adopt_shards)
            && let ShrinkDecision::To(to) =
                config.policy.decide_shrink(metadata, shrink_after, now_seconds)
        {
            return Some(Begin::Shrink(to));
        }
        let since = metadata.last_change().unwrap_or_default();
        let is_due = |after: u64| now_seconds >= since.saturating_add(after);
        let is_due =
            settle_after(metadata, config, self.config.settle_after.as_secs()).is_some_and(is_due);
        (is_due && metadata.wants_settling()).then_some(Begin::Settle)
    }

    /// The write units that all drains share. `None` if the table's capacity is not provisioned.
    async fn budget_of_all(&self) -> Result<Option<DrainBudget>, ClientError> {
        let capacity = self.clients.capacity(&self.table.config().table_name).await?;
        let share = f64::from(self.config.drain_share_percent) / 100.0;
        Ok(capacity.provisioned.map(|units| DrainBudget::new(units.write as f64 * share)))
    }

    fn looked_after(&self) -> MutexGuard<'_, Option<PartitionKey>> {
        self.looked_after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on a key for a limited time, so that large keys do not block the others.
    async fn carry_on_in_turns(
        &self,
        key: &PartitionKey,
        begin: Option<Begin>,
        budget_of_all: Option<&DrainBudget>,
        slots: &Semaphore,
        deadline: Deadline,
    ) -> KeyReport {
        use KeyOutcome::{Done, Working};
        let budgets: Vec<&DrainBudget> = budget_of_all.into_iter().collect();
        let opens = matches!(begin, Some(Begin::Open)) && !self.config.dry_run;
        let action = opens.then_some("open");
        let mut begin = begin;
        let mut moved = 0;
        loop {
            let slot = slots.acquire().await;
            let turn = deadline.min(Deadline::now() + TURN_TIME);
            let mut outcome = self.carry_on(key, begin.take(), &budgets, turn).await;
            drop(slot);
            if let Ok(Working { items } | Done { items, .. }) = &mut outcome {
                moved += *items;
                *items = moved;
            }
            let goes_on = matches!(outcome, Ok(Working { .. }));
            if !goes_on || Deadline::now() + TURN_TIME > deadline {
                return KeyReport { action, ..KeyReport::new(key, outcome) };
            }
        }
    }

    async fn carry_on(
        &self,
        key: &PartitionKey,
        begin: Option<Begin>,
        budgets: &[&DrainBudget],
        deadline: Deadline,
    ) -> Result<KeyOutcome, Failure> {
        if self.config.dry_run {
            // It names a width if it would begin a shrink.
            let to = match begin {
                Some(Begin::Shrink(to)) => Some(to.get()),
                Some(Begin::Settle | Begin::Purge | Begin::Open) | None => None,
            };
            return Ok(KeyOutcome::DryRun(json!({"to": to})));
        }
        let begun = match begin {
            Some(Begin::Shrink(to)) => self.table.begin_shrink(key, to, deadline).await.map(drop),
            Some(Begin::Settle) => self.table.begin_settle(key, deadline).await.map(drop),
            Some(Begin::Open) => {
                return KeyOutcome::of(self.table.finish_change(key, deadline).await);
            }
            // The drain begins the purge.
            Some(Begin::Purge) | None => Ok(()),
        };
        if let Err(error) = begun {
            return Ok(KeyOutcome::unchanged(error));
        }
        match self.table.drain_within(key, budgets, deadline).await {
            Ok(Drained::Nothing) => Ok(KeyOutcome::unchanged("its drain has ended")),
            Ok(Drained::Waiting { until }) => Ok(KeyOutcome::Waiting { until }),
            Ok(Drained::Working { items }) => Ok(KeyOutcome::Working { items }),
            Ok(Drained::Done { from, to, items }) => {
                let (from, to) = (from.get(), to.get());
                Ok(KeyOutcome::Done { from, to, items })
            }
            Err(error) => {
                tracing::warn!(%error, "a drain was interrupted; it goes on with the next run, unless an item cannot be moved");
                // The next run of the schedule repeats it.
                Err(Failure::new(error, false))
            }
        }
    }

    async fn lately_throttled(
        &self,
        now_seconds: u64,
    ) -> Result<BTreeSet<PartitionKey>, ClientError> {
        let config = self.table.config();
        match self
            .clients
            .throttled_keys(&config.table_name, None, &config.shard_keys, now_seconds)
            .await?
        {
            Insights::Keys(throttled) => Ok(throttled.by_key.into_keys().collect()),
            // Then the recorded demand decides alone.
            Insights::Unknown { .. } => Ok(BTreeSet::new()),
        }
    }
}

/// How many seconds a key keeps its width before it is settled. `None` if it is not settled
/// automatically.
fn settle_after(metadata: &ShardMetadata, table: &TableConfig, configured: u64) -> Option<u64> {
    if table.writes() != Writes::Items {
        return None;
    }
    // The drain of a shrink has not begun, or was cancelled: readers read shards that are not
    // written to.
    if metadata.read_shards > metadata.number_of_shards {
        return Some(table.policy.cooldown_seconds);
    }
    if configured == 0 {
        table.ttl_attribute.is_some().then_some(SETTLE_EXPIRING_AFTER)
    } else {
        Some(configured)
    }
}

fn begun(
    key: &PartitionKey,
    result: Result<ShardMetadata, DrainRefused>,
) -> Result<KeyReport, EventError> {
    let outcome = match result {
        Ok(metadata) => Ok(KeyOutcome::Begun {
            number_of_shards: metadata.number_of_shards.get(),
            read_shards: metadata.read_shards.get(),
        }),
        Err(DrainRefused::Table(error)) => {
            tracing::error!(%error, "a drain could not begin");
            Err(Failure::new(&error, error.is_retryable()))
        }
        Err(error @ DrainRefused::NotLower { .. }) => {
            return Err(EventError::new("number_of_shards", error));
        }
        Err(
            error @ (DrainRefused::Busy(_) | DrainRefused::NoHomes | DrainRefused::NotAdopting),
        ) => Ok(KeyOutcome::unchanged(error)),
    };
    Ok(KeyReport::new(key, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_settled_where_items_expire_and_where_the_drain_of_a_shrink_was_left() {
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
            assert_eq!(
                settle_after(metadata, table, configured),
                expected,
                "{read} {writes:?} {configured}"
            );
        }
    }
}
