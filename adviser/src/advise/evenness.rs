//! Measures how evenly each placement spreads a key's writes over shards.

use std::cmp::Reverse;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use sharding::{PartitionKey, Placement, ShardCount, SortKey};

/// A fixed seed, so that a run can be repeated.
const SEED: u64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Evenness {
    /// The shard with the most writes, from 1.
    pub(crate) busiest_shard: u64,
    /// Its share of the writes, 0 to 1.
    pub(crate) busiest_share: f64,
    /// The number of evenly loaded shards with the same throughput. The busiest shard is full
    /// first, and the rest of the others' capacity is unused.
    pub(crate) worth_shards: f64,
}

/// The spread of one key's writes over a number of shards by one placement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PlacementSpread {
    pub(crate) shards: u32,
    /// The placement's name, as in SHARD_PLACEMENT.
    pub(crate) placement: &'static str,
    #[serde(flatten)]
    pub(crate) evenness: Evenness,
}

/// Calculates the evenness of the writes on each shard; `None` without writes.
pub(super) fn evenness(writes: &[u64]) -> Option<Evenness> {
    let total: u64 = writes.iter().sum();
    if total == 0 {
        return None;
    }
    // The first of several.
    let (&most, Reverse(busiest_shard)) = writes.iter().zip((1..).map(Reverse)).max()?;
    Some(Evenness {
        busiest_shard,
        busiest_share: most as f64 / total as f64,
        worth_shards: total as f64 / most as f64,
    })
}

/// Counts the writes of one key by placement, width and shard.
pub(super) struct Spread {
    widths: Vec<ShardCount>,
    /// The writes of each shard, by width and by placement in the order of [`Placement::NAMES`].
    shards: Vec<[Vec<u64>; Placement::NAMES.len()]>,
    chance: StdRng,
}

impl Spread {
    pub(super) fn new(widths: &[ShardCount]) -> Self {
        let shards = widths
            .iter()
            .map(|width| std::array::from_fn(|_| vec![0; width.get() as usize]))
            .collect();
        Self { widths: widths.to_vec(), shards, chance: StdRng::seed_from_u64(SEED) }
    }

    pub(super) fn add(&mut self, key: &PartitionKey, sort_key: &SortKey) {
        for (width, shards) in self.widths.iter().zip(&mut self.shards) {
            for ((_, placement), writes) in Placement::NAMES.iter().zip(shards) {
                let home = placement.home(key, sort_key, *width).map(|shard| shard.get() - 1);
                let index = home.unwrap_or_else(|| self.chance.random_range(0..width.get()));
                if let Some(writes) = writes.get_mut(index as usize) {
                    *writes += 1;
                }
            }
        }
    }

    /// Returns the spreads in the order of the widths and of [`Placement::NAMES`].
    pub(super) fn finish(&self) -> Vec<PlacementSpread> {
        let mut all = Vec::new();
        for (width, counts) in self.widths.iter().zip(&self.shards) {
            let shards = width.get();
            for ((placement, _), writes) in Placement::NAMES.into_iter().zip(counts) {
                let spread = |evenness| PlacementSpread { shards, placement, evenness };
                all.extend(evenness(writes).map(spread));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_shard_limits_what_a_spread_is_worth() {
        assert_eq!(evenness(&[0, 0]), None);
        let expected = Evenness { busiest_shard: 2, busiest_share: 0.5, worth_shards: 2.0 };
        assert_eq!(evenness(&[3, 6, 3]), Some(expected));
        assert_eq!(evenness(&[7; 5]).map(|even| even.worth_shards), Some(5.0));
    }
}
