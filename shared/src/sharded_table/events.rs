//! What this instance does about its keys' shards, for whoever wants to show it.

use tokio::sync::broadcast;

use super::{Inner, TableEngine};
use crate::core::key::{PartitionKey, ShardCount};
use crate::core::policy::ScalingDecision;
use crate::core::pressure::Pressure;

/// Events that wait for a slow receiver; it misses the oldest beyond these.
pub(super) const KEPT: usize = 256;

/// One step, or a decision against one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalingEvent {
    /// The logical key.
    pub partition_key: PartitionKey,
    /// Its write width before.
    pub from: ShardCount,
    /// What was done.
    pub step: ScalingStep,
    /// Why it was looked at.
    pub reason: ScalingReason,
}

/// Why a key's shards were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalingReason {
    /// Writes of this instance were throttled: what it saw of all its writes of the key.
    Throttled(Pressure),
    /// Whoever calls has seen this, in a report for example.
    Reported(Pressure),
    /// A number of shards was asked for.
    Asked,
    /// A closing was found that stood longer than it takes.
    TakenOver,
}

/// What was done about a key's shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalingStep {
    /// The width to come is named; writers wait for it.
    Closed(ShardCount),
    /// Writers use this many shards from now on.
    Opened(ShardCount),
    /// A drain is done: readers look at this many shards from now on.
    Drained(ShardCount),
    /// The policy said no.
    Unchanged(ScalingDecision),
}

impl TableEngine {
    /// What this instance and its clones do about their keys' shards from now on, in order.
    #[must_use]
    pub fn scaling_events(&self) -> broadcast::Receiver<ScalingEvent> {
        self.inner.scaling_events.subscribe()
    }
}

impl Inner {
    pub(crate) fn tell(&self, key: &PartitionKey, from: ShardCount, step: ScalingStep, reason: ScalingReason) {
        if self.scaling_events.receiver_count() > 0 {
            // The last receiver may have gone meanwhile.
            let _ = self.scaling_events.send(ScalingEvent { partition_key: key.clone(), from, step, reason });
        }
    }
}
