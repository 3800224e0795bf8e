//! The numbers of shards that a plan judges and compares.

use serde::Serialize;
use sharding::internal::policy::rules::ScalingPolicy;

use super::demand::Demand;
use super::options::PlanOptions;
use super::partitions::TablePartitions;
use super::policy::{self, PolicyShards};
use super::throttling::{fewest_shards, throttled};

/// Numbers of shards of each key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ShardChoice {
    /// The number that this plan judges: the requested one, or the policy's.
    pub(crate) judged: u32,
    pub(crate) asked_for: bool,
    /// The number that would be enough if each shard had its own partition.
    pub(crate) on_paper: u32,
    /// The fewest with which less than 2 % is throttled on these partitions; absent if no number is
    /// enough.
    pub(crate) fewest: Option<u32>,
    pub(crate) policy: PolicyShards,
    /// The expected share of the first attempts that is throttled with the judged number.
    pub(crate) throttled: f64,
}

pub(super) fn shard_choice(
    options: &PlanOptions,
    demand: &Demand,
    partitions: &TablePartitions,
) -> ShardChoice {
    let most = ScalingPolicy::default().max_shards.get();
    let policy = policy::shards(demand, partitions.count, most);
    let judged = options.shards.unwrap_or(policy.shards);
    ShardChoice {
        judged,
        asked_for: options.shards.is_some(),
        on_paper: (demand.units_per_key() / partitions.write_units).ceil().max(1.0) as u32,
        fewest: fewest_shards(demand, partitions.count),
        policy,
        throttled: throttled(demand, judged, partitions.count),
    }
}
