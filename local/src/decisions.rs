//! Scaling decisions as text.

use serde::Serialize;
use sharding::maintenance::{Pressure, ScalingEvent, ScalingReason, ScalingStep};

/// A scaling step, or a decision against one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Decision {
    pub(crate) partition_key: String,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// `closing`, `scaled`, `drained` or `unchanged`.
    pub(crate) outcome: &'static str,
    /// The function that acted.
    pub(crate) by: &'static str,
    pub(crate) reason: String,
    /// When the key may be decided on again, in epoch seconds.
    pub(crate) until: Option<u64>,
}

impl Decision {
    pub(crate) fn of(event: &ScalingEvent) -> Self {
        let why = match event.reason {
            ScalingReason::Throttled(Pressure { attempts, throttled, .. }) => {
                format!("{throttled} of {attempts} first attempts throttled")
            }
            ScalingReason::Reported { throttled } => format!("{throttled} throttles reported"),
            ScalingReason::Asked => "requested".to_owned(),
            ScalingReason::TakenOver => "another actor did not finish it".to_owned(),
            other => format!("{other:?}"),
        };
        let (outcome, to, reason, until) = match event.step {
            ScalingStep::Closed(to) => ("closing", to, why, None),
            ScalingStep::Opened(to) => ("scaled", to, why, None),
            ScalingStep::Drained(to) => ("drained", to, "its items were moved".to_owned(), None),
            ScalingStep::Unchanged(decision) => {
                ("unchanged", event.from, format!("{decision} ({why})"), decision.until())
            }
            other => ("unchanged", event.from, format!("{other:?} ({why})"), None),
        };
        let by = match event.reason {
            ScalingReason::Throttled(_) => "writer",
            ScalingReason::TakenOver => "the actor that found it",
            ScalingReason::Reported { .. } | ScalingReason::Asked | _ => "shard-scaler",
        };
        let partition_key = event.partition_key.as_str().to_owned();
        Self { partition_key, from: event.from.get(), to: to.get(), outcome, by, reason, until }
    }
}

#[cfg(test)]
mod tests {
    use sharding::maintenance::ScalingDecision;
    use sharding::{PartitionKey, ShardCount};

    use super::*;

    #[test]
    fn a_decision_names_its_actor_and_reason() {
        let count = |n| ShardCount::new(n).expect("a count");
        let seen = Pressure { attempts: 80, throttled: 62, accepted: 18, ..Pressure::default() };
        let event = |step, reason| ScalingEvent {
            partition_key: PartitionKey::new("hot").expect("a key"),
            from: count(4),
            step,
            reason,
        };
        let decision =
            Decision::of(&event(ScalingStep::Closed(count(13)), ScalingReason::Throttled(seen)));
        assert_eq!((decision.from, decision.to), (4, 13));
        assert_eq!((decision.outcome, decision.by), ("closing", "writer"));
        assert_eq!(decision.reason, "62 of 80 first attempts throttled");
        let step = ScalingStep::Unchanged(ScalingDecision::AtMaximum);
        let decision = Decision::of(&event(step, ScalingReason::Reported { throttled: 62 }));
        assert_eq!((decision.to, decision.outcome, decision.by), (4, "unchanged", "shard-scaler"));
        assert_eq!(decision.reason, "at MAX_SHARDS (62 throttles reported)");
        assert_eq!(decision.until, None);
        let step = ScalingStep::Unchanged(ScalingDecision::CoolingDown { until: 1_795_471_270 });
        let decision = Decision::of(&event(step, ScalingReason::Reported { throttled: 62 }));
        assert_eq!(decision.reason, "cooling down (62 throttles reported)");
        assert_eq!(decision.until, Some(1_795_471_270), "the page shows it as a time of day");
    }
}
