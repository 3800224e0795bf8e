//! Feeds scaling decisions to the page, with a number and a time.

use std::collections::HashMap;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sharding::PartitionKey;
use sharding::maintenance::{ScalingDecision, ScalingEvent, ScalingStep};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::stream::Feed;
use crate::decisions::Decision;

/// The page shows a repeated decision against scaling a key again after this pause.
const REPEAT_PERIOD: Duration = Duration::from_secs(60);

pub(super) async fn listen(mut events: Receiver<ScalingEvent>, feed: Arc<Feed>) {
    let mut id = 0_u64;
    let mut unchanged: HashMap<PartitionKey, (ScalingDecision, Instant)> = HashMap::new();
    loop {
        match events.recv().await {
            Ok(event) => {
                if let ScalingStep::Unchanged(decision) = event.step {
                    // The same decision may repeat many times; the page shows it once.
                    let now = Instant::now();
                    unchanged.retain(|_, (_, at)| now.duration_since(*at) < REPEAT_PERIOD);
                    let before = unchanged.insert(event.partition_key.clone(), (decision, now));
                    if before.is_some_and(|(it, _)| discriminant(&it) == discriminant(&decision)) {
                        continue;
                    }
                } else {
                    unchanged.remove(&event.partition_key);
                }
                id += 1;
                let mut decision = json!(Decision::of(&event));
                decision["id"] = id.into();
                // Seconds since the Unix epoch.
                decision["at"] = api::since_epoch().as_secs_f64().into();
                feed.decision(&decision);
            }
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "the console missed decisions")
            }
            Err(RecvError::Closed) => return,
        }
    }
}
