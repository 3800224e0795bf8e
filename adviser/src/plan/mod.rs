//! `plan`: calculates the needs of a hot key before a deployment. The plan has the number of
//! shards, the throttled share, and the costs of reads and of a month.
//!
//! The plan is calculated, not simulated. The expectation over all placements of shards on
//! partitions has a closed form (see `throttling`), so it takes milliseconds and needs no seed.

mod at_rest;
mod costs;
mod demand;
mod figures;
mod notes;
mod options;
mod partitions;
mod policy;
mod prices;
mod reads;
mod report;
mod throttling;
mod usage;
mod verdict;

use std::error::Error;

pub(crate) use options::PlanOptions;
pub(crate) use partitions::kept_partitions;
pub(crate) use throttling::NEGLIGIBLE;

use crate::report::Report;

/// Calculates the plan for a demand, and reports it.
///
/// # Errors
/// As [`figures::plan`]; or a figure has no form in JSON.
pub(crate) fn report(options: &PlanOptions) -> Result<Report, Box<dyn Error>> {
    Ok(figures::plan(options)?.report()?)
}
