//! Decisions as they come, numbered and timed.

use std::collections::HashMap;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use sharding::internal::{PartitionKey, ScalingDecision, ScalingEvent, ScalingStep};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::sampler::now;
use super::stream::Feed;
use crate::decisions::Decision;

/// The same refusal of a key is shown again after this long without one.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize)]
pub(super) struct Numbered {
    id: u64,
    /// Seconds since the Unix epoch.
    at: f64,
    #[serde(flatten)]
    decision: Decision,
}

pub(super) async fn listen(mut events: Receiver<ScalingEvent>, feed: Arc<Feed>) {
    let mut id = 0;
    let mut refused: HashMap<PartitionKey, (ScalingDecision, Instant)> = HashMap::new();
    loop {
        match events.recv().await {
            Ok(event) => {
                match event.step {
                    // A key that may not grow is told so again and again; the page need not.
                    ScalingStep::Unchanged(decision) => {
                        let now = Instant::now();
                        refused.retain(|_, (_, at)| now.duration_since(*at) < TOLD_AGAIN);
                        let before = refused.insert(event.partition_key.clone(), (decision, now));
                        if before.is_some_and(|(before, _)| discriminant(&before) == discriminant(&decision)) {
                            continue;
                        }
                    }
                    ScalingStep::Closed(_) | ScalingStep::Opened(_) | ScalingStep::Drained(_) => {
                        refused.remove(&event.partition_key);
                    }
                }
                id += 1;
                feed.decision(&Numbered { id, at: now(), decision: Decision::of(&event) });
            }
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "the console missed decisions"),
            Err(RecvError::Closed) => return,
        }
    }
}
