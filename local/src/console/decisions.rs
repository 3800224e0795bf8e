//! Decisions as they come, numbered and timed.

use std::sync::Arc;

use serde::Serialize;
use sharding::ScalingEvent;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::sampler::now;
use super::stream::Feed;
use crate::decisions::Decision;

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
    loop {
        match events.recv().await {
            Ok(event) => {
                id += 1;
                feed.decision(&Numbered { id, at: now(), decision: Decision::of(&event) });
            }
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "the console missed decisions"),
            Err(RecvError::Closed) => return,
        }
    }
}
