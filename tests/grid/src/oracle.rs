//! The oracle: it knows the demand and the partitions, and sets the best width once, at the start,
//! by the same protocol. It does not know where the shards of a key will be.

use std::time::Duration;

use embedded_dynamodb::{PartitionLimits, Partitions, StoredKey};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use sharding::internal::ShardKeys;
use sharding::{PARTITION_WRITE_UNITS, ShardNumber};

use crate::scenario::{Load, Scenario};

/// The most shards of a key.
const MAX_SHARDS: u32 = 200;
/// The placements that the oracle tries for each number of shards.
const PLACEMENTS: u32 = 400;
/// A partition is filled at most to this share, because arrivals are uneven and a backlog drains.
const FILLED: f64 = 0.95;
/// A placement relieves a demand if it rejects less of it.
const RELIEVED: f64 = 0.01;
/// A number of shards may relieve so much less of the placements than the most shards.
const NEARLY_AS_MANY: f64 = 0.05;
/// A number of shards may accept so much less of a demand that nothing relieves.
const AS_GOOD: f64 = 0.002;

/// The fewest shards that relieve nearly as many placements of a demand (in partitions) as the most
/// would; if those relieve hardly any, the fewest that accept nearly as much.
pub(crate) fn best_width(demand: f64, partitions: u32) -> u32 {
    let tried: Vec<(f64, f64)> =
        (1..=MAX_SHARDS).map(|shards| rejected(demand / FILLED, shards, partitions)).collect();
    let (relieved, lost) = tried.last().copied().unwrap_or_default();
    let is_good = |tried: &(f64, f64)| {
        if relieved > 0.2 {
            tried.0 >= relieved - NEARLY_AS_MANY
        } else {
            tried.1 <= lost + AS_GOOD
        }
    };
    // From the most shards down: all wider ones are as good.
    let worse = tried.iter().rposition(|tried| !is_good(tried));
    worse.map_or(1, |index| index as u32 + 2).min(MAX_SHARDS)
}

/// Of the placements of these shards: the share that relieves the demand, and the mean share of the
/// demand that is rejected.
fn rejected(demand: f64, shards: u32, partitions: u32) -> (f64, f64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(u64::from(shards));
    let each = demand / f64::from(shards);
    let (mut relieved, mut lost) = (0, 0.0);
    let mut load = vec![0.0; partitions as usize];
    for _ in 0..PLACEMENTS {
        load.fill(0.0);
        for _ in 0..shards {
            load[rng.random_range(0..partitions as usize)] += each;
        }
        let over: f64 = load.iter().map(|load| (load - 1.0).max(0.0)).sum::<f64>() / demand;
        relieved += u32::from(over < RELIEVED);
        lost += over;
    }
    (f64::from(relieved) / f64::from(PLACEMENTS), lost / f64::from(PLACEMENTS))
}

/// Whether a table can serve the only key of an open load: with the most shards, hardly any writes
/// are for a partition that has no room.
pub(crate) fn can_be_served(scenario: &Scenario) -> bool {
    let Load::Open(demand, _) = scenario.load else { return true };
    let limits = PartitionLimits { partitions: scenario.partitions, ..PartitionLimits::default() };
    let (key, partitions) = (scenario.key(0), Partitions::new(limits, Duration::ZERO));
    let mut shards = vec![0_u32; scenario.partitions as usize];
    for number in (1..=MAX_SHARDS).filter_map(ShardNumber::new) {
        let stored = ShardKeys::default().build(&key, number).expect("the key has a suffix");
        shards[partitions.index_of(&StoredKey::new(stored))] += 1;
    }
    let each = demand / PARTITION_WRITE_UNITS as f64 / f64::from(MAX_SHARDS);
    let full = shards.into_iter().filter(|shards| f64::from(*shards) * each > FILLED);
    f64::from(full.sum::<u32>()) < RELIEVED * f64::from(MAX_SHARDS)
}
