//! `plan`: calculates the needs of a hot key before a deployment. The plan has the number of
//! shards, the throttled share, and the costs of reads and of a month.
//! It is calculated, not simulated, so it takes milliseconds and needs no seed.

mod costs;
mod demand;
mod figures;
mod options;
mod policy;
mod prices;
mod reads;
mod report;
mod verdict;

pub(crate) use figures::plan;
pub(crate) use options::PlanOptions;
pub(crate) use policy::unlimited_shards;
