//! The shards of the key, on the partitions of the main table.

use std::time::Duration;

use embedded_dynamodb::{PartitionLimits, Partitions, StoredKey};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use sharding::internal::ShardCount;

use super::chance::poisson;
use super::scenario::Scenario;

/// Parts of the units of a shard that DynamoDB has split.
const PARTS: u32 = 16;

#[derive(Debug)]
pub(super) struct Shards {
    pub(super) partitions: Partitions,
    key: String,
    /// The stored key of each shard. Another seed places the shards on other partitions.
    stored: Vec<StoredKey>,
}

/// The accepted share of a step's attempts, and the refused share by width.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) share: f64,
    pub(super) by_width: Vec<(ShardCount, f64)>,
}

impl Shards {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let limits = PartitionLimits {
            partitions: scenario.partitions,
            warming: scenario.warming,
            ..PartitionLimits::default()
        };
        Self {
            partitions: Partitions::new(limits, Duration::ZERO),
            key: format!("hot-{}", scenario.seed),
            stored: Vec::new(),
        }
    }

    /// Spreads attempts over the shards of each width in use, and charges their partitions.
    /// `widths` has the share of the attempts under each width.
    pub(super) fn admit(
        &mut self,
        attempts: u64,
        widths: &[(ShardCount, f64)],
        now: Duration,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Admitted {
        let (mut wanted_sum, mut granted_sum) = (0.0, 0.0);
        let mut by_width = Vec::new();
        for &(width, share) in widths {
            let mean = attempts as f64 * share / f64::from(width.get());
            let (mut wanted, mut granted) = (0.0, 0.0);
            for shard in 0..width.get() {
                let units = poisson(mean, rng) as f64;
                if units > 0.0 {
                    wanted += units;
                    granted += self.take(shard, units, now, rng);
                }
            }
            let refused = if wanted > 0.0 { 1.0 - granted / wanted } else { 0.0 };
            by_width.push((width, refused));
            wanted_sum += wanted;
            granted_sum += granted;
        }
        let share = if wanted_sum > 0.0 { granted_sum / wanted_sum } else { 1.0 };
        Admitted { share, by_width }
    }

    /// Takes units from a shard's partition. Sort keys are scattered, which gives DynamoDB's own
    /// split its best chance.
    fn take(&mut self, shard: u32, units: f64, now: Duration, rng: &mut Xoshiro256PlusPlus) -> f64 {
        while self.stored.len() <= shard as usize {
            self.stored.push(StoredKey::new(format!("{}.{}", self.key, self.stored.len() + 1)));
        }
        let Some(key) = self.stored.get(shard as usize) else { return 0.0 };
        if self.partitions.is_split(key) {
            let of_part = units / f64::from(PARTS);
            let sort_keys = (0..PARTS).map(|part| format!("{part}-{shard}"));
            sort_keys.map(|sort| self.partitions.take(key, Some(&sort), of_part, now)).sum()
        } else {
            let sort_key = if rng.random::<bool>() { "a" } else { "b" };
            self.partitions.take(key, Some(sort_key), units, now)
        }
    }
}
