//! Keys that an alarm's report names are given more shards, by the policy.

use serde_json::{Value, json};
use sharding::{Deadline, PartitionKey, Pressure, ScalingDecision, ShardMetadata};
use tokio::task::JoinSet;

use crate::Scaler;
use crate::throttled_keys::Throttles;
use crate::told::told;

/// Write units a second that one partition gives. [DynamoDB developer guide]
pub(crate) const PARTITION_WRITE_UNITS: u64 = 1_000;
/// A report does not tell how much of its minutes the throttling lasted. The longer it is taken to have lasted, the smaller it looks; so
/// it is taken as short, and a long one is met again by the next alarm.
const OVERLOAD_SECONDS: u64 = 10;
/// Every item of a key that is not settled has shard 1 among its candidates. A report does not tell which writes were throttled there, so this is
/// said of keys whose writers have noted point writes.
const ONLY_SHARD_1: &str =
    "only shard 1 is throttled, which point writes use whatever the width: more shards do not help, settling does";

impl Scaler {
    /// One decision for each logical key, all at the same time: most of a scale-out is waiting.
    pub(crate) async fn relieve_all(
        &self,
        throttled: impl IntoIterator<Item = (PartitionKey, Throttles)>,
        deadline: Deadline,
    ) -> Vec<Value> {
        let mut scaling = JoinSet::new();
        for (key, throttles) in throttled {
            let scaler = self.clone();
            scaling.spawn(async move {
                let answer = scaler.relieve(&key, &throttles, deadline).await;
                tracing::info!(audit = true, %answer, "decision");
                answer
            });
        }
        let mut keys: Vec<Value> = scaling.join_all().await;
        keys.sort_by_key(|key| key.get("partition_key").and_then(Value::as_str).map(str::to_owned));
        keys
    }

    async fn relieve(&self, key: &PartitionKey, throttles: &Throttles, deadline: Deadline) -> Value {
        let metadata = match self.table.shards(key, deadline).await {
            Ok(metadata) => metadata,
            Err(error) => return told("scale", key, Err(error.into())),
        };
        let since = throttles.since(metadata.as_ref().and_then(ShardMetadata::last_change));
        let unchanged = |reason: &str| json!({"action": "scale", "partition_key": key.as_str(), "outcome": "unchanged", "throttled": since.after, "reason": reason});
        let is_expanding = metadata.as_ref().is_some_and(|metadata| metadata.expansion().is_some());
        // A growth that its actor left half made is finished whatever the report says.
        if let Some(reason) = since.why_not_counted().filter(|_| !is_expanding) {
            return unchanged(reason);
        }
        let settling_helps =
            !self.table.config().cold_append && metadata.as_ref().is_some_and(ShardMetadata::wants_settling);
        if throttles.only_shard_1 && settling_helps {
            return unchanged(ONLY_SHARD_1);
        }
        let width =
            metadata.as_ref().map_or(self.table.config().adopt_shards, |metadata| metadata.number_of_shards).get();
        // What was turned away is known; what was let in is at most what the shards' partitions give.
        let accepted = u64::from(width) * PARTITION_WRITE_UNITS * OVERLOAD_SECONDS;
        let throttled = since.after;
        let seen = Pressure { attempts: throttled.saturating_add(accepted), throttled, accepted };
        if self.config.dry_run {
            return match self.table.decide(key, seen, deadline).await {
                Ok(ScalingDecision::ScaleOut(to)) => {
                    json!({"action": "scale", "partition_key": key.as_str(), "outcome": "dry-run", "throttled": throttled, "from": width, "to": to.get()})
                }
                Ok(decision) => unchanged(&decision.to_string()),
                Err(error) => told("scale", key, Err(error)),
            };
        }
        let mut answer = told("scale", key, self.table.scale_by_policy(key, seen, deadline).await);
        if let Some(object) = answer.as_object_mut() {
            object.insert("throttled".into(), throttled.into());
        }
        answer
    }
}
