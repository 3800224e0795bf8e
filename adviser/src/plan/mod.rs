//! `plan`: calculates the needs of a hot key before a deployment. The plan has the number of
//! shards, the throttled share, and the costs of reads and of a month.
//! It is calculated, not simulated, so it takes milliseconds and needs no seed.

mod at_rest;
mod case;
mod costs;
mod demand;
mod figures;
mod options;
mod partitions;
mod policy;
mod prices;
mod profile;
mod reads;
mod report;
mod shards;
mod throttling;
mod verdict;

pub(crate) use figures::plan;
pub(crate) use options::PlanOptions;
pub(crate) use partitions::kept_partitions;
pub(crate) use throttling::NEGLIGIBLE;
