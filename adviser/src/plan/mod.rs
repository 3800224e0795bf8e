//! `plan`: what a hot key needs, before anything is deployed: how many shards, what stays throttled, what reads and
//! the month cost, whether DynamoDB would do alone, and what to set before a launch.
//!
//! Why reckoned and not simulated? The expectation over all the ways in which shards can fall onto partitions has a closed form (see
//! `throttling`), so that it takes milliseconds and has no seed. `agreement` compares it with the partition model of the embedded engine. Only
//! the split for heat is run in that model: it has no shorter description. That takes the longest, so of many keys some are run.

mod admission;
#[cfg(test)]
mod agreement;
mod at_rest;
mod costs;
mod demand;
mod directory;
mod heat;
mod launch;
mod notes;
mod options;
mod partitions;
mod policy;
mod prices;
mod reads;
mod ready;
mod report;
mod tables;
mod throttling;
mod verdict;

pub use at_rest::{AtRest, IdleLine, IdlePart, IdleStack};
pub use costs::{Bill, HourlyCost, Line, MonthlyCost, Service, ServiceShare};
pub use demand::Demand;
pub use directory::{DirectoryNeed, recommended_copies, renewed_after};
pub use heat::{SortKeyOrder, SplitForHeat};
pub use launch::{
    LaunchChoice, LaunchPlan, LaunchStep, LaunchTime, LaunchTimeError, StepKind, TemplateSetting, WarmUnits, Warming,
};
pub use options::{Architecture, CapacityMode, Format, PlanOptions};
pub use partitions::TablePartitions;
pub(crate) use partitions::kept_partitions;
pub use policy::{PolicyEnd, PolicyPath};
pub use prices::{Evidence, Price, Prices, PricesError};
pub use reads::{PageCost, PageLatency, PageUnits};
pub use report::{PlanError, Report, ShardChoice, plan};
pub use throttling::ThrottlingRow;
pub use verdict::{Verdict, VerdictKind};
