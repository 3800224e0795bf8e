//! Gives more shards, by the policy, to the keys that an alarm's report names.

use sharding::PartitionKey;
use sharding::internal::{Deadline, ScaleOutcome, ScalingDecision, ShardMetadata, WarmThroughput};
use tokio::task::JoinSet;

use crate::Scaler;
use crate::report::{KeyAction, KeyOutcome, KeyReport, to_json};
use crate::throttled_keys::Throttles;

/// The result for a key, and the write units a second that the table would need if more shards of
/// the key do not help.
type Relieved = (KeyReport, Option<u64>);

impl Scaler {
    /// One decision for each logical key, all in parallel, because most of a scale-out is waiting.
    /// Returns the result for each key, and the units that the table would need for all keys that
    /// more shards do not help.
    pub(crate) async fn relieve_all(
        &self,
        throttled: impl IntoIterator<Item = (PartitionKey, Throttles)>,
        warm: Option<WarmThroughput>,
        now_seconds: u64,
        deadline: Deadline,
    ) -> (Vec<KeyReport>, Option<u64>) {
        let mut scaling = JoinSet::new();
        for (key, throttles) in throttled {
            let scaler = self.clone();
            scaling.spawn(async move {
                let relieved = scaler.relieve(&key, &throttles, warm, now_seconds, deadline).await;
                tracing::info!(audit = true, answer = %to_json(&relieved.0), "decision");
                relieved
            });
        }
        let (mut keys, lacking): (Vec<_>, Vec<_>) = scaling.join_all().await.into_iter().unzip();
        keys.sort_by(|one: &KeyReport, other| one.partition_key.cmp(&other.partition_key));
        (keys, lacking.into_iter().flatten().reduce(u64::saturating_add))
    }

    async fn relieve(
        &self,
        key: &PartitionKey,
        throttles: &Throttles,
        warm: Option<WarmThroughput>,
        now_seconds: u64,
        deadline: Deadline,
    ) -> Relieved {
        let config = self.table.config();
        let report = |outcome, throttled| KeyReport {
            action: Some(KeyAction::Scale),
            throttled,
            ..KeyReport::new(key, outcome)
        };
        let judge = |metadata: &ShardMetadata| {
            let since = throttles.since(metadata.last_change());
            let throttled = since.after;
            let not_scaled = |outcome| report(Ok(outcome), Some(throttled));
            // A change whose actor stopped halfway is finished, whatever the report says.
            if let Some(reason) = since.why_not_counted().filter(|_| metadata.closing().is_none()) {
                return Err((not_scaled(KeyOutcome::unchanged(reason)), None));
            }
            if !self.config.dry_run {
                return Ok(throttled);
            }
            let partitions = warm.map(WarmThroughput::partitions);
            let decision = config.policy.decide_reported(metadata, partitions, now_seconds);
            let width = metadata.number_of_shards.get();
            let planned = if let ScalingDecision::ScaleOut(to) = decision {
                KeyOutcome::dry_run(Some(width), Some(to.get()))
            } else {
                KeyOutcome::unchanged(decision)
            };
            Err((not_scaled(planned), lacking(decision)))
        };
        let mut counted = 0;
        let noted = |metadata: &ShardMetadata| {
            counted = judge(metadata)?;
            Ok(counted)
        };
        let outcome = match self.table.scale_by_report(key, warm, noted, deadline).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(unchanged)) => return unchanged,
            Err(error) => return (report(KeyOutcome::of(Err(error)), None), None),
        };
        let lacks = match outcome {
            ScaleOutcome::Unchanged(decision) => lacking(decision),
            ScaleOutcome::Scaled { .. } | ScaleOutcome::Superseded => None,
        };
        (report(KeyOutcome::of(Ok(outcome)), Some(counted)), lacks)
    }
}

/// The write units a second that the table would need, if a decision says that it has too few
/// partitions.
const fn lacking(decision: ScalingDecision) -> Option<u64> {
    match decision {
        ScalingDecision::ShortOfPartitions { write_units, .. } => write_units,
        ScalingDecision::ScaleOut(_)
        | ScalingDecision::Calm
        | ScalingDecision::CoolingDown { .. }
        | ScalingDecision::Closing(_)
        | ScalingDecision::AtMaximum
        | ScalingDecision::Crowded { .. }
        | ScalingDecision::HotItems { .. }
        | ScalingDecision::DirectoryFull => None,
    }
}
