//! `plan`: calculates the needs of a hot key before a deployment. The plan has the number of
//! shards, the throttled share, the costs of reads and of a month, and the effect of DynamoDB's own
//! split.
//!
//! The plan is calculated, not simulated. The expectation over all placements of shards on
//! partitions has a closed form (see `throttling`), so it takes milliseconds and needs no seed.
//! `agreement` compares it with the partition model of the embedded engine. Only the split for heat
//! runs in that model, because it has no closed form. The run takes the most time, so a sample
//! stands for many keys.

mod admission;
#[cfg(test)]
mod agreement;
mod at_rest;
mod costs;
mod demand;
mod directory;
mod heat;
mod notes;
mod options;
mod partitions;
mod policy;
mod prices;
mod reads;
mod report;
mod tables;
mod throttling;
mod usage;
mod verdict;

pub use at_rest::{AtRest, IdleLine, IdlePart, IdleStack};
pub use costs::{Bill, Line, MonthlyCost, Service, ServiceShare};
pub use demand::Demand;
pub use directory::DirectoryNeed;
pub use heat::{SortKeyOrder, SplitForHeat};
pub use options::{Architecture, CapacityMode, Format, PlanOptions, ProfileName};
pub use partitions::TablePartitions;
pub(crate) use partitions::kept_partitions;
pub use policy::PolicyShards;
pub use prices::{Evidence, Price, Prices, PricesError};
pub use reads::{PageCost, PageLatency, PageUnits};
pub use report::{Report, ShardChoice, plan};
pub(crate) use throttling::NEGLIGIBLE;
pub use throttling::ThrottlingRow;
pub use verdict::{Verdict, VerdictKind};
