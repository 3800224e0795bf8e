//! Scaling decisions in words.

use std::sync::Arc;

use serde::Serialize;
use sharding::{Pressure, ScalingEvent, ScalingReason, ScalingStep};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::sampler::now;
use super::stream::Feed;

#[derive(Debug, Serialize)]
pub(super) struct Decision {
    id: u64,
    /// Seconds since the Unix epoch.
    at: f64,
    partition_key: String,
    from: u32,
    to: u32,
    outcome: &'static str,
    by: &'static str,
    reason: String,
}

pub(super) async fn listen(mut events: Receiver<ScalingEvent>, feed: Arc<Feed>) {
    let mut id = 0;
    loop {
        match events.recv().await {
            Ok(event) => {
                id += 1;
                feed.decision(&decision(id, now(), &event));
            }
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "the console missed decisions"),
            Err(RecvError::Closed) => return,
        }
    }
}

fn decision(id: u64, at: f64, event: &ScalingEvent) -> Decision {
    let why = match event.reason {
        ScalingReason::Throttled(Pressure { attempts, throttled, .. }) => {
            format!("{throttled} of {attempts} first attempts throttled")
        }
        ScalingReason::Reported(Pressure { throttled, .. }) => format!("{throttled} throttles reported"),
        ScalingReason::Asked => "asked for".to_owned(),
        ScalingReason::TakenOver => "its actor did not finish it".to_owned(),
    };
    let (outcome, to, reason) = match event.step {
        ScalingStep::Expanded(to) => ("expanding", to, why),
        ScalingStep::Activated(to) => ("scaled", to, why),
        ScalingStep::Unchanged(decision) => ("unchanged", event.from, format!("{decision} ({why})")),
    };
    let by = match event.reason {
        ScalingReason::Throttled(_) | ScalingReason::TakenOver => "writer",
        ScalingReason::Reported(_) | ScalingReason::Asked => "shard-scaler",
    };
    let partition_key = event.partition_key.as_str().to_owned();
    Decision { id, at, partition_key, from: event.from.get(), to: to.get(), outcome, by, reason }
}

#[cfg(test)]
mod tests {
    use sharding::{PartitionKey, ScalingDecision, ShardCount};

    use super::*;

    #[test]
    fn a_decision_says_what_it_was_made_by() {
        let count = |n| ShardCount::new(n).expect("a count");
        let seen = Pressure { attempts: 80, throttled: 62, accepted: 18 };
        let event = |step, reason| ScalingEvent {
            partition_key: PartitionKey::new("hot").expect("a key"),
            from: count(4),
            step,
            reason,
        };
        let told = decision(1, 0.0, &event(ScalingStep::Expanded(count(13)), ScalingReason::Throttled(seen)));
        assert_eq!((told.from, told.to, told.outcome, told.by), (4, 13, "expanding", "writer"));
        assert_eq!(told.reason, "62 of 80 first attempts throttled");
        let step = ScalingStep::Unchanged(ScalingDecision::AtMaximum);
        let told = decision(2, 0.0, &event(step, ScalingReason::Reported(seen)));
        assert_eq!((told.to, told.outcome, told.by), (4, "unchanged", "shard-scaler"));
        assert_eq!(told.reason, "at MAX_SHARDS (62 throttles reported)");
    }
}
