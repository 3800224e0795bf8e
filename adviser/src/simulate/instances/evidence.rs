//! The shared evidence of all instances on the key.

use std::time::Duration;

use sharding::internal::{EVIDENCE_LASTS, Pressure};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Evidence {
    generation: u64,
    partitions: Option<u32>,
    begun: Duration,
    seen: Pressure,
}

impl Evidence {
    /// Returns the evidence on this generation of the key and this number of partitions.
    pub(super) fn of(self, generation: u64, partitions: Option<u32>) -> Option<Pressure> {
        ((self.generation, self.partitions) == (generation, partitions)).then_some(self.seen)
    }

    /// Adds an instance's own evidence, or starts anew with it. Returns the shared evidence.
    pub(super) fn add(
        &mut self,
        own: Pressure,
        generation: u64,
        partitions: Option<u32>,
        now: Duration,
    ) -> Pressure {
        if self.of(generation, partitions).is_some()
            && now.saturating_sub(self.begun) <= EVIDENCE_LASTS
        {
            self.seen = self.seen.plus(own);
        } else if self.generation <= generation {
            *self = Self { generation, partitions, begun: now, seen: own };
        }
        self.of(generation, partitions).unwrap_or(own)
    }
}
