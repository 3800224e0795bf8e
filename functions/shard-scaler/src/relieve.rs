//! Gives more shards, by the policy, to the keys that an alarm's report names.

use sharding::internal::{
    Deadline, PARTITION_WRITE_UNITS, PartitionKey, Pressure, ScaleOutcome, ScalingDecision, Seen,
    ShardMetadata, WarmThroughput, needed_write_units,
};
use tokio::task::JoinSet;

use crate::Scaler;
use crate::report::{KeyAction, KeyOutcome, KeyReport, to_json};
use crate::throttled_keys::Throttles;

/// The assumed duration of the throttling in a report, which does not contain it. A longer duration
/// would mean a smaller demand.
const OVERLOAD_SECONDS: u64 = 10;

/// An alarm's report about a key.
#[derive(Debug, Clone, Copy)]
struct Reported {
    seen: Pressure,
    throttled: u64,
    /// The most write units a second that the key's shards serve.
    capacity: u64,
}

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
            let width = metadata.number_of_shards.get();
            // The report counts throttles. The accepted rate is at most what the shards' partitions
            // serve.
            let partitions = warm.map(WarmThroughput::partitions);
            let capacity =
                u64::from(partitions.unwrap_or(width).min(width)) * PARTITION_WRITE_UNITS;
            let accepted = capacity * OVERLOAD_SECONDS;
            let seen =
                Pressure { attempts: throttled.saturating_add(accepted), throttled, accepted };
            let reported = Reported { seen, throttled, capacity };
            let decision =
                config.policy.decide(metadata, Seen { partitions, ..seen.into() }, now_seconds);
            if let (true, ScalingDecision::ScaleOut(to)) = (self.config.dry_run, decision) {
                let planned = KeyOutcome::dry_run(Some(width), Some(to.get()));
                return Err((not_scaled(planned), None));
            }
            if self.config.dry_run || decision == ScalingDecision::Calm {
                let unchanged = not_scaled(KeyOutcome::unchanged(decision));
                return Err((unchanged, lacking(decision, reported)));
            }
            Ok(reported)
        };
        let mut judged = None;
        let noted = |metadata: &ShardMetadata| {
            let reported = judge(metadata)?;
            judged = Some(reported);
            Ok(reported.seen)
        };
        let outcome = match self.table.scale_by_report(key, noted, deadline).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(unchanged)) => return unchanged,
            Err(error) => return (report(KeyOutcome::of(Err(error)), None), None),
        };
        let mut lacks = None;
        if let (ScaleOutcome::Unchanged(decision), Some(reported)) = (outcome, judged) {
            lacks = lacking(decision, reported);
        }
        let throttled = judged.map_or(0, |reported| reported.throttled);
        (report(KeyOutcome::of(Ok(outcome)), Some(throttled)), lacks)
    }
}

/// The write units a second that the table would need, if a decision says that it has too few
/// partitions.
fn lacking(decision: ScalingDecision, reported: Reported) -> Option<u64> {
    let ScalingDecision::ShortOfPartitions { write_units, .. } = decision else { return None };
    // Without known partitions, only the report counts.
    Some(
        write_units.unwrap_or_else(|| {
            needed_write_units(reported.capacity, reported.seen.accepted_share())
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_table_lacks_is_the_policys_word_or_follows_from_the_report() {
        let seen = Pressure { attempts: 200_000, throttled: 160_000, accepted: 40_000 };
        let reported = Reported { seen, throttled: 160_000, capacity: 4_000 };
        let short = |write_units| ScalingDecision::ShortOfPartitions { until: 9, write_units };
        let rows = [
            (short(Some(21_000)), Some(21_000)),
            // 4,000 are a fifth of the demand.
            (short(None), Some(24_000)),
            (ScalingDecision::AtMaximum, None),
            (ScalingDecision::Calm, None),
        ];
        for (decision, expected) in rows {
            assert_eq!(lacking(decision, reported), expected, "{decision:?}");
        }
    }
}
