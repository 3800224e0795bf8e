//! The oracle: a policy that knows the demand and the partitions, and sets the best width at once.

use std::time::Duration;

use sharding::internal::{ScalingPolicy, ShardCount, collisions};

use super::parallel::run_all;
use super::scenario::{Contender, Scenario, Starts};

/// The name of the policy that knows the demand and the partitions.
pub(super) const ORACLE: &str = "oracle";
/// The oracle tries a number of shards on this many keys. Their seeds place the shards elsewhere
/// than in the runs.
const TRIED_KEYS: u64 = 60;
const TRIED_SEED: u64 = 1_000_000;
const TRIED_SECONDS: u32 = 10;
/// Three times the time until a rejected write has failed.
const TRIED_TO_FAIL_SECONDS: u32 = 30;
/// The share of relieved keys may be lower by this and still counts as nearly as many.
const NEARLY_AS_MANY: f64 = 0.1;
/// If the most shards relieve a smaller share of the keys than this, the accepted share decides
/// instead.
const HARDLY_ANY: f64 = 0.2;
/// The accepted share of the demand may be lower by this and still counts as equal.
const AS_GOOD: f64 = 0.001;

/// The shards that the oracle sets. It knows the demand and the partitions, but not the placement
/// of the shards. It sets the fewest shards that relieve nearly as many keys as the most shards do.
/// If the most shards relieve hardly any key, it sets the fewest shards with which nearly as many
/// writes are accepted.
pub(super) fn of_oracle(demand: u32, partitions: u32) -> ShardCount {
    let most = ScalingPolicy::default().max_shards;
    let tried = |shards: ShardCount, seconds: u32| {
        let of_key = |key| Scenario {
            policy: ORACLE,
            contender: Contender::Once(shards),
            demand,
            partitions,
            knows_partitions: true,
            budget: 0,
            warming: Duration::ZERO,
            seconds,
            instances: 1,
            reads: 0,
            starts: Starts::Warm,
            copies: 1,
            metadata_partitions: None,
            seed: TRIED_SEED + key,
        };
        let outcomes = run_all(&(0..TRIED_KEYS).map(of_key).collect::<Vec<_>>(), || {});
        let count = outcomes.len() as f64;
        let relieved = outcomes.iter().filter(|outcome| outcome.relieved_after.is_some()).count()
            as f64
            / count;
        (relieved, outcomes.iter().map(|outcome| outcome.accepted).sum::<f64>() / count)
    };
    let (relieved, _) = tried(most, TRIED_SECONDS);
    if relieved >= HARDLY_ANY {
        let is_good = |shards| tried(shards, TRIED_SECONDS).0 >= relieved - NEARLY_AS_MANY;
        return collisions::fewest(most, is_good).unwrap_or(most);
    }
    let (_, accepted) = tried(most, TRIED_TO_FAIL_SECONDS);
    let is_good = |shards| tried(shards, TRIED_TO_FAIL_SECONDS).1 >= accepted - AS_GOOD;
    collisions::fewest(most, is_good).unwrap_or(most)
}
