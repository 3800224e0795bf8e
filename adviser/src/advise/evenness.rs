//! Measures how evenly each placement spreads a key's writes over shards.

use std::cmp::Reverse;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use sharding::{PartitionKey, Placement, ShardCount, SortKey};

/// A fixed seed, so that a run can be repeated.
const SEED: u64 = 1;

/// The spread of one key's writes over a number of shards by one placement.
#[derive(Debug, Serialize)]
pub(crate) struct PlacementSpread {
    pub(crate) shards: u32,
    /// The placement's name, as in SHARD_PLACEMENT.
    pub(crate) placement: &'static str,
    /// The shard with the most writes, from 1.
    pub(crate) busiest_shard: u64,
    /// Its share of the writes, 0 to 1.
    pub(crate) busiest_share: f64,
    /// The number of evenly loaded shards with the same throughput. The busiest shard is full
    /// first, and the rest of the others' capacity is unused.
    pub(crate) worth_shards: f64,
}

impl PlacementSpread {
    /// Calculates the spread from the writes of each shard; `None` without writes.
    fn of(placement: &'static str, writes: &[u64]) -> Option<Self> {
        let total: u64 = writes.iter().sum();
        // The first of several.
        let (&most, Reverse(busiest_shard)) = writes.iter().zip((1..).map(Reverse)).max()?;
        (total > 0).then(|| Self {
            shards: writes.len() as u32,
            placement,
            busiest_shard,
            busiest_share: most as f64 / total as f64,
            worth_shards: total as f64 / most as f64,
        })
    }
}

/// Counts the writes of one key by placement, width and shard.
pub(super) struct Spread {
    /// Each width with the writes of its shards, by placement in the order of [`Placement::NAMES`].
    widths: Vec<(ShardCount, [Vec<u64>; Placement::NAMES.len()])>,
    chance: StdRng,
}

impl Spread {
    pub(super) fn new(widths: &[ShardCount]) -> Self {
        let none = |width: &ShardCount| std::array::from_fn(|_| vec![0; width.get() as usize]);
        let widths = widths.iter().map(|width| (*width, none(width))).collect();
        Self { widths, chance: StdRng::seed_from_u64(SEED) }
    }

    pub(super) fn add(&mut self, key: &PartitionKey, sort_key: &SortKey) {
        for (width, counts) in &mut self.widths {
            for ((_, placement), writes) in Placement::NAMES.iter().zip(counts) {
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
        let all = self.widths.iter();
        let all = all.flat_map(|(_, counts)| Placement::NAMES.into_iter().zip(counts));
        all.filter_map(|((placement, _), writes)| PlacementSpread::of(placement, writes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_shard_limits_what_a_spread_is_worth() {
        let of = |writes: &[u64]| {
            let spread = PlacementSpread::of("any", writes)?;
            Some((spread.shards, spread.busiest_shard, spread.busiest_share, spread.worth_shards))
        };
        assert_eq!(of(&[0, 0]), None);
        assert_eq!(of(&[3, 6, 3]), Some((3, 2, 0.5, 2.0)));
        assert_eq!(of(&[7; 5]), Some((5, 1, 0.2, 5.0)));
    }
}
