//! The figures of a plan, from which the verdict, the bill and the report are made.

use sharding::internal::policy::rules::ScalingPolicy;

use super::demand::{Demand, kept_partitions};
use super::options::PlanOptions;
use super::policy::{PolicyShards, fewest_shards, shards, throttled};
use super::prices::Prices;
use super::reads::{PageCost, page};

#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) options: PlanOptions,
    pub(super) demand: Demand,
    /// The given partitions of the table, or those of a table that has served the demand before.
    pub(super) partitions: u32,
    pub(super) policy: PolicyShards,
    /// The number of shards that this plan judges: the requested one, or the policy's.
    pub(super) shards: u32,
    /// The expected share of the first attempts that is throttled with this number.
    pub(super) throttled: f64,
    /// The fewest shards with which less than 2 % is throttled on these partitions; absent if no
    /// number is enough.
    pub(super) fewest: Option<u32>,
    pub(super) page: PageCost,
    pub(super) prices: Prices,
}

pub(crate) fn plan(options: &PlanOptions) -> Plan {
    let demand = Demand::new(options.write_rate, options.item_size);
    let kept = || kept_partitions(demand.write_units_per_second);
    let partitions = options.partitions.unwrap_or_else(kept);
    let policy = shards(&demand, partitions, ScalingPolicy::default().max_shards.get());
    let shards = options.shards.unwrap_or(policy.shards);
    Plan {
        options: options.clone(),
        demand,
        partitions,
        policy,
        shards,
        throttled: throttled(&demand, shards, partitions),
        fewest: fewest_shards(&demand, partitions),
        page: page(options.page_size, options.item_size, shards, options.consistent),
        prices: Prices::published(),
    }
}
