//! Keys that an alarm's report names are given more shards, by the policy.

use serde_json::{Value, json};
use sharding::{Deadline, PartitionKey, Pressure, ScalingDecision, ShardMetadata};
use tokio::task::JoinSet;

use crate::Scaler;
use crate::throttled_keys::Throttles;
use crate::told::told;

/// Write units a second that one partition gives. [DynamoDB developer guide]
pub(crate) const PARTITION_WRITE_UNITS: u32 = 1_000;
/// A report does not tell how much of its minutes the throttling lasted. The longer it is taken to have lasted, the smaller it looks; so
/// it is taken as short, and a long one is met again by the next alarm.
const OVERLOAD_SECONDS: u64 = 10;

impl Scaler {
    /// One decision for each logical key, all at the same time: most of a scale-out is waiting.
    pub(crate) async fn relieve_all(
        &self,
        throttled: impl IntoIterator<Item = (PartitionKey, Throttles)>,
        now_seconds: u64,
        deadline: Deadline,
    ) -> Vec<Value> {
        let mut scaling = JoinSet::new();
        for (key, throttles) in throttled {
            let scaler = self.clone();
            scaling.spawn(async move {
                let answer = scaler.relieve(&key, &throttles, now_seconds, deadline).await;
                tracing::info!(audit = true, %answer, "decision");
                answer
            });
        }
        let mut keys: Vec<Value> = scaling.join_all().await;
        keys.sort_by_key(|key| key.get("partition_key").and_then(Value::as_str).map(str::to_owned));
        keys
    }

    async fn relieve(&self, key: &PartitionKey, throttles: &Throttles, now_seconds: u64, deadline: Deadline) -> Value {
        let config = self.table.config();
        let judge = |metadata: &ShardMetadata| {
            let since = throttles.since(metadata.last_change());
            let throttled = since.after;
            let unchanged = |reason: &str| json!({"action": "scale", "partition_key": key.as_str(), "outcome": "unchanged", "throttled": throttled, "reason": reason});
            // A change that its actor left half made is finished whatever the report says.
            if let Some(reason) = since.why_not_counted().filter(|_| metadata.closing().is_none()) {
                return Err(unchanged(reason));
            }
            let width = metadata.number_of_shards.get();
            // The report counts what was throttled. What was accepted is at most what the shards' partitions give.
            let accepted = u64::from(width) * u64::from(PARTITION_WRITE_UNITS) * OVERLOAD_SECONDS;
            let seen = Pressure { attempts: throttled.saturating_add(accepted), throttled, accepted };
            let decision = config.policy.decide(metadata, seen, now_seconds);
            if let (true, ScalingDecision::ScaleOut(to)) = (self.config.dry_run, decision) {
                return Err(
                    json!({"action": "scale", "partition_key": key.as_str(), "outcome": "dry-run", "throttled": throttled, "from": width, "to": to.get()}),
                );
            }
            if self.config.dry_run || decision == ScalingDecision::Calm {
                return Err(unchanged(&decision.to_string()));
            }
            Ok((seen, throttled))
        };
        let mut throttled = 0;
        let noted = |metadata: &ShardMetadata| {
            let (seen, count) = judge(metadata)?;
            throttled = count;
            Ok(seen)
        };
        let mut answer = match self.table.scale_by_report(key, noted, deadline).await {
            Ok(Ok(outcome)) => told("scale", key, Ok(outcome)),
            Ok(Err(unchanged)) => return unchanged,
            Err(error) => return told("scale", key, Err(error)),
        };
        if let Some(object) = answer.as_object_mut() {
            object.insert("throttled".into(), throttled.into());
        }
        answer
    }
}
