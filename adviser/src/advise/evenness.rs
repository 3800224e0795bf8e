//! Measures how evenly each placement spreads a key's writes over shards.

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

/// Calculates the evenness of the writes on each shard; `None` without writes.
pub(super) fn evenness(writes: &[u64]) -> Option<Evenness> {
    let total: u64 = writes.iter().sum();
    if total == 0 {
        return None;
    }
    let (busiest, most) = writes
        .iter()
        .enumerate()
        .fold((0, 0), |best, (shard, n)| if *n > best.1 { (shard, *n) } else { best });
    Some(Evenness {
        busiest_shard: busiest as u64 + 1,
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

    /// Returns width, placement and evenness, in the order of the widths and of
    /// [`Placement::NAMES`].
    pub(super) fn finish(&self) -> Vec<(ShardCount, &'static str, Evenness)> {
        let mut all = Vec::new();
        for (width, shards) in self.widths.iter().zip(&self.shards) {
            for ((name, _), writes) in Placement::NAMES.iter().zip(shards) {
                all.extend(evenness(writes).map(|evenness| (*width, *name, evenness)));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sharding::SortKeyType;

    fn spread(
        sort_keys: impl Iterator<Item = String>,
        width: u32,
    ) -> Vec<(&'static str, Evenness)> {
        let mut spread = Spread::new(&[ShardCount::new(width).unwrap()]);
        let key = PartitionKey::new("2014-07-09").unwrap();
        for sort_key in sort_keys {
            spread.add(&key, &SortKey::parse(SortKeyType::String, &sort_key).unwrap());
        }
        spread.finish().into_iter().map(|(_, name, evenness)| (name, evenness)).collect()
    }

    #[test]
    fn code_points_crowd_one_shard_and_the_others_spread() {
        let ids = (0..20_000u64)
            .map(|i| format!("{:010}", i.wrapping_mul(2_654_435_761) % 10_000_000_000));
        for (name, evenness) in spread(ids, 200) {
            if name == "code-points" {
                assert_eq!(evenness.busiest_shard, 1);
                assert!((0.70..0.80).contains(&evenness.busiest_share), "{evenness:?}");
                assert!(evenness.worth_shards < 1.5, "{evenness:?}");
            } else {
                assert!(evenness.busiest_share < 0.01, "{name} {evenness:?}");
            }
        }
    }

    #[test]
    fn the_busiest_shard_limits_what_a_spread_is_worth() {
        assert_eq!(evenness(&[0, 0]), None);
        let expected = Evenness { busiest_shard: 2, busiest_share: 0.5, worth_shards: 2.0 };
        assert_eq!(evenness(&[3, 6, 3]), Some(expected));
        assert_eq!(evenness(&[7; 5]).map(|even| even.worth_shards), Some(5.0));
    }
}
