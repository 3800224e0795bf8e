//! `plan`: what a hot key needs, before anything is deployed: how many shards, what stays throttled, what reads and the month cost, and
//! whether DynamoDB would do alone.
//!
//! Why reckoned and not simulated? The expectation over all the ways in which shards can fall onto partitions has a closed form (see
//! `throttling`), so that it takes milliseconds and has no seed. `agreement` holds it against the partition model of the local edition. Only
//! the split for heat is run in that model: it has no shorter description. That takes the longest, so of many keys some are run.

mod admission;
#[cfg(test)]
mod agreement;
mod binomial;
mod costs;
mod demand;
mod directory;
mod heat;
mod notes;
mod options;
mod policy;
mod prices;
mod reads;
mod report;
mod tables;
mod text;
mod throttling;
mod verdict;

pub use costs::{Bill, Line, MonthlyCost, Service, ServiceShare};
pub use demand::Demand;
pub use directory::{DirectoryNeed, recommended_copies, renewed_after};
pub use heat::{SortKeyOrder, SplitForHeat};
pub use options::{Architecture, CapacityMode, Format, PlanOptions};
pub use policy::{PolicyEnd, PolicyPath};
pub use prices::{Evidence, Price, Prices, PricesError};
pub use reads::{PageCost, PageLatency, PageUnits};
pub use report::{Report, ShardChoice, TablePartitions, plan};
pub use throttling::ThrottlingRow;
pub use verdict::{Verdict, VerdictKind};
