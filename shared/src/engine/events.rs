//! Events about this instance's changes of its keys' shards, for programs that show them.

use tokio::sync::broadcast;

use crate::engine::TableEngine;
use crate::engine::views::keys::KeyJob;
use crate::policy::decision::ScalingDecision;
use crate::policy::pressure::Pressure;
use crate::values::key::{PartitionKey, ShardCount};

/// The number of events that are kept for a slow receiver. It misses older ones.
pub(super) const MAX_KEPT_EVENTS: usize = 256;

/// One step of a change, or a decision against a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalingEvent {
    /// The logical key.
    pub partition_key: PartitionKey,
    /// Its write width before.
    pub from: ShardCount,
    /// The step.
    pub step: ScalingStep,
    /// The reason for looking at the key.
    pub reason: ScalingReason,
}

/// The reason for looking at a key's shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScalingReason {
    /// Writes of this instance were throttled. These are its observations of all its writes of the
    /// key.
    Throttled(Pressure),
    /// A report names the key.
    Reported {
        /// The number of throttled requests in it.
        throttled: u64,
    },
    /// A caller asked for a number of shards.
    Asked,
    /// A closing was found that lasted longer than it should.
    TakenOver,
}

/// A step of a key's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScalingStep {
    /// The next width is named, and writers wait for it.
    Closed(ShardCount),
    /// Writers use this number of shards from now on.
    Opened(ShardCount),
    /// A drain is done: readers query this number of shards from now on.
    Drained(ShardCount),
    /// The policy decided against it.
    Unchanged(ScalingDecision),
}

impl TableEngine {
    /// The events of this instance and its clones from now on, in order.
    pub fn scaling_events(&self) -> broadcast::Receiver<ScalingEvent> {
        self.inner.scaling_events.subscribe()
    }
}

impl KeyJob<'_> {
    pub(crate) fn report(&self, from: ShardCount, step: ScalingStep, reason: ScalingReason) {
        let events = &self.inner.scaling_events;
        if events.receiver_count() > 0 {
            let partition_key = self.key.clone();
            // The last receiver may be gone meanwhile.
            let _ = events.send(ScalingEvent { partition_key, from, step, reason });
        }
    }
}
