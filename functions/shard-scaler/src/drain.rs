//! Shrinking and settling: begun by a direct event or because a key has been calm for long, and carried on by every run of the schedule.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use sharding::internal::{
    Deadline, DrainBudget, DrainRefused, Drained, PartitionKey, Pressure, ShardCount, ShardMetadata, ShrinkDecision,
    TableConfig, Writes,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Scaler;
use crate::clients::ClientError;
use crate::failure::failed;
use crate::throttled_keys::Insights;
use crate::told::{refused, told};

/// The most keys that are drained at once; each shard of each keeps to its own pace.
const AT_ONCE: usize = 8;
/// The most keys with which one run of the schedule begins something: it can wait.
const MOST_BEGUN: usize = 20;
/// The most keys that one run tells of, besides the counts.
const MOST_TOLD: usize = 100;
/// The longest of one run: where one shard-scaler runs at a time, an alarm waits for it.
const RUN_TIME: Duration = Duration::from_secs(20);
/// For how long one key is worked on before others have their turn.
const TURN_TIME: Duration = Duration::from_secs(5);
/// How many seconds a key keeps its width before it is settled in a table with a time to live, unless it is configured. Until then an item
/// that expires may reveal an older copy of it.
const SETTLE_EXPIRING_AFTER: u64 = 3_600;
/// What is kept of a run's time for its answer.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// What the schedule begins with a key.
#[derive(Debug, Clone, Copy)]
enum Begin {
    Shrink(ShardCount),
    Settle,
    /// The open of a change that its actor has left after the close.
    Open,
}

impl Scaler {
    pub(crate) async fn shrink(&self, key: &str, number_of_shards: i128, deadline: Deadline) -> Value {
        let key = match self.logical_key(key) {
            Ok(key) => key,
            Err(refusal) => return refusal,
        };
        let Some(to) = u32::try_from(number_of_shards).ok().and_then(ShardCount::new) else {
            return refused("number_of_shards", format_args!("it is {number_of_shards}; allowed: 1 or more"));
        };
        if self.config.dry_run {
            return json!({"action": "shrink", "partition_key": key.as_str(), "outcome": "dry-run", "to": to.get()});
        }
        begun("shrink", &key, self.table.begin_shrink(&key, to, deadline).await)
    }

    pub(crate) async fn settle(&self, key: &str, deadline: Deadline) -> Value {
        let key = match self.logical_key(key) {
            Ok(key) => key,
            Err(refusal) => return refusal,
        };
        if self.config.dry_run {
            return json!({"action": "settle", "partition_key": key.as_str(), "outcome": "dry-run"});
        }
        begun("settle", &key, self.table.begin_settle(&key, deadline).await)
    }

    /// A run of the schedule.
    pub(crate) async fn drain_all(&self, now_seconds: u64, deadline: Deadline) -> Value {
        let deadline = deadline.min(Deadline::now() + RUN_TIME) - ANSWER_TIME;
        // Boxed: the SDK's futures nest deeply.
        let (answer, (), _) = tokio::join!(
            Box::pin(self.drain_keys(now_seconds, deadline)),
            Box::pin(self.repair_directory(deadline)),
            Box::pin(self.learn_warm_throughput(deadline)),
        );
        answer
    }

    /// Goes on with every drain, finishes changes that their actors have left, and begins to shrink and settle keys that are due. A run begins
    /// with the key that the last run did not come to.
    async fn drain_keys(&self, now_seconds: u64, deadline: Deadline) -> Value {
        let throttled = if self.config.shrink_after.is_zero() {
            None
        } else {
            match self.lately_throttled(now_seconds).await {
                Ok(throttled) => Some(throttled),
                Err(error) => {
                    tracing::error!(%error, "which keys are throttled is not known: none begins to shrink");
                    None
                }
            }
        };
        let budget = match self.budget_of_all().await {
            Ok(budget) => budget.map(Arc::new),
            Err(error) => {
                tracing::error!(%error, "how much the table can take is not known");
                return failed(json!({"action": "drain"}), &error, error.is_retryable);
            }
        };
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut draining = JoinSet::new();
        let first = self.looked_after().clone();
        let (mut after, mut has_wrapped) = (first.clone(), first.is_none());
        let (mut is_round, mut looked_at, mut begun_now, mut interrupted) = (false, 0u64, 0, None);
        loop {
            let (keys, next) = match self.table.list_keys(after.as_ref(), deadline).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::error!(%error, "not all keys could be looked at");
                    if looked_at == 0 {
                        // Another beginning may have more luck.
                        *self.looked_after() = None;
                    }
                    interrupted = Some(error);
                    break;
                }
            };
            looked_at += keys.len() as u64;
            for (key, metadata) in keys {
                is_round |= has_wrapped && first.as_ref() == Some(&key);
                let is_calm = throttled.as_ref().is_some_and(|throttled| !throttled.contains(&key));
                let begin = if begun_now < MOST_BEGUN { self.due(&metadata, is_calm, now_seconds) } else { None };
                if metadata.draining().is_none() && begin.is_none() {
                    continue;
                }
                begun_now += usize::from(begin.is_some());
                let (scaler, slots, budget) = (self.clone(), Arc::clone(&slots), budget.clone());
                draining.spawn(async move {
                    scaler.carry_on_in_turns(&key, begin, budget.as_deref(), &slots, deadline).await
                });
            }
            *self.looked_after() = next.clone().filter(|_| !is_round);
            match next {
                Some(next) if !is_round => after = Some(next),
                // From the beginning up to where this run began.
                None if !has_wrapped => (after, has_wrapped) = (None, true),
                _ => break,
            }
        }
        let told: Vec<Value> = draining.join_all().await;
        for answer in &told {
            tracing::info!(audit = true, %answer, "drain");
        }
        let count = told.len();
        let told: Vec<Value> = told.into_iter().take(MOST_TOLD).collect();
        let answer =
            json!({"action": "drain", "outcome": "handled", "looked_at": looked_at, "draining": count, "keys": told});
        match interrupted {
            Some(error) => failed(answer, &error, error.is_retryable()),
            None => answer,
        }
    }

    /// What is due for a key.
    fn due(&self, metadata: &ShardMetadata, is_calm: bool, now_seconds: u64) -> Option<Begin> {
        let config = self.table.config();
        let shrink_after = self.config.shrink_after.as_secs();
        if metadata.closing().is_some() {
            return Some(Begin::Open);
        }
        // By an event it can be tried again.
        if metadata.has_unmovable() {
            return None;
        }
        // Of a key that the directory does not list, writers do not note the load.
        if is_calm
            && shrink_after > 0
            && metadata.layout().is_listed(config.adopt_shards)
            && let ShrinkDecision::To(to) = config.policy.decide_shrink(metadata, shrink_after, now_seconds)
        {
            return Some(Begin::Shrink(to));
        }
        let since = metadata.last_change().unwrap_or_default();
        let is_due = |after: u64| now_seconds >= since.saturating_add(after);
        let is_due = settle_after(metadata, config, self.config.settle_after.as_secs()).is_some_and(is_due);
        (is_due && metadata.wants_settling()).then_some(Begin::Settle)
    }

    /// The write units that all drains share; `None` where the table's capacity is not provisioned.
    async fn budget_of_all(&self) -> Result<Option<DrainBudget>, ClientError> {
        let capacity = self.clients.capacity(&self.table.config().table_name).await?;
        let share = f64::from(self.config.drain_share_percent) / 100.0;
        Ok(capacity.provisioned.map(|units| DrainBudget::new(units.write as f64 * share)))
    }

    fn looked_after(&self) -> MutexGuard<'_, Option<PartitionKey>> {
        self.looked_after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on a key for a while at a time, so that large keys do not keep the others waiting.
    async fn carry_on_in_turns(
        &self,
        key: &PartitionKey,
        begin: Option<Begin>,
        budget_of_all: Option<&DrainBudget>,
        slots: &Semaphore,
        deadline: Deadline,
    ) -> Value {
        let budgets: Vec<&DrainBudget> = budget_of_all.into_iter().collect();
        let mut begin = begin;
        let mut items = 0;
        loop {
            let slot = slots.acquire().await;
            let turn = deadline.min(Deadline::now() + TURN_TIME);
            let mut answer = self.carry_on(key, begin.take(), &budgets, turn).await;
            drop(slot);
            items += answer.get("items").and_then(Value::as_u64).unwrap_or_default();
            let goes_on = answer.get("outcome").and_then(Value::as_str) == Some("working");
            if !goes_on || Deadline::now() + TURN_TIME > deadline {
                if let Some(told) = answer.as_object_mut().and_then(|told| told.get_mut("items")) {
                    *told = items.into();
                }
                return answer;
            }
        }
    }

    async fn carry_on(
        &self,
        key: &PartitionKey,
        begin: Option<Begin>,
        budgets: &[&DrainBudget],
        deadline: Deadline,
    ) -> Value {
        let name = key.as_str();
        if self.config.dry_run {
            let to = match begin {
                Some(Begin::Shrink(to)) => Some(to.get()),
                Some(Begin::Settle | Begin::Open) | None => None,
            };
            return json!({"partition_key": name, "outcome": "dry-run", "to": to});
        }
        let begun = match begin {
            Some(Begin::Shrink(to)) => self.table.begin_shrink(key, to, deadline).await.map(drop),
            Some(Begin::Settle) => self.table.begin_settle(key, deadline).await.map(drop),
            Some(Begin::Open) => {
                return told("open", key, self.table.scale_by_policy(key, Pressure::default(), deadline).await);
            }
            None => Ok(()),
        };
        if let Err(error) = begun {
            return json!({"partition_key": name, "outcome": "unchanged", "reason": error.to_string()});
        }
        match self.table.drain_within(key, budgets, deadline).await {
            Ok(Drained::Nothing) => {
                json!({"partition_key": name, "outcome": "unchanged", "reason": "its drain has ended"})
            }
            Ok(Drained::Waiting { until }) => {
                json!({"partition_key": name, "outcome": "waiting", "until": until})
            }
            Ok(Drained::Working { items }) => {
                json!({"partition_key": name, "outcome": "working", "items": items})
            }
            Ok(Drained::Done { from, to, items }) => {
                json!({"partition_key": name, "outcome": "done", "from": from.get(), "to": to.get(), "items": items})
            }
            Err(error) => {
                tracing::warn!(%error, "a drain was interrupted; it goes on with the next run, unless an item cannot be moved");
                // The next run of the schedule is its repetition.
                failed(json!({"partition_key": name}), error, false)
            }
        }
    }

    async fn lately_throttled(&self, now_seconds: u64) -> Result<BTreeSet<PartitionKey>, ClientError> {
        let config = self.table.config();
        match self.clients.throttled_keys(&config.table_name, None, &config.shard_keys, now_seconds).await? {
            Insights::Keys(throttled) => Ok(throttled.by_key.into_keys().collect()),
            // Then the demand that the writers noted decides alone.
            Insights::Enabling | Insights::Off(_) => Ok(BTreeSet::new()),
        }
    }
}

/// For how many seconds a key keeps its width before it is settled; `None` where it is not settled by itself.
fn settle_after(metadata: &ShardMetadata, table: &TableConfig, configured: u64) -> Option<u64> {
    if table.writes() != Writes::Items {
        return None;
    }
    // The drain of a shrink has not begun, or was cut off: readers look at shards that are not written to.
    if metadata.read_shards > metadata.number_of_shards {
        return Some(table.policy.cooldown_seconds);
    }
    if configured == 0 { table.ttl_attribute.is_some().then_some(SETTLE_EXPIRING_AFTER) } else { Some(configured) }
}

fn begun(action: &str, key: &PartitionKey, result: Result<ShardMetadata, DrainRefused>) -> Value {
    match result {
        Ok(metadata) => json!({
            "action": action,
            "partition_key": key.as_str(),
            "outcome": "begun",
            "number_of_shards": metadata.number_of_shards.get(),
            "read_shards": metadata.read_shards.get(),
        }),
        Err(DrainRefused::Table(error)) => {
            tracing::error!(%error, "a drain could not begin");
            failed(json!({"action": action, "partition_key": key.as_str()}), &error, error.is_retryable())
        }
        Err(error @ DrainRefused::NotLower { .. }) => refused("number_of_shards", error),
        Err(error @ (DrainRefused::Busy(_) | DrainRefused::NoHomes | DrainRefused::NotAdopting)) => {
            json!({"action": action, "partition_key": key.as_str(), "outcome": "unchanged", "reason": error.to_string()})
        }
    }
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
            assert_eq!(settle_after(metadata, table, configured), expected, "{read} {writes:?} {configured}");
        }
    }
}
