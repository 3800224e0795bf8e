//! `simulate`: compares how fast each policy relieves a key that turns hot at once, and the load of
//! its instances on the metadata table.
//!
//! The policy, the pressure tracker, the metadata, the partitions of both tables, and the constants
//! of the protocol's waits are the real ones. The simulation adds many instances with their own
//! views, their requests to the metadata table, their retries, and the passing of time in steps of
//! ten milliseconds. It runs a quarter of an hour of 50,000 writes per second in about a second. It
//! does not simulate the read units of the main table, instances that die, and other keys.

mod chance;
mod instances;
mod metadata;
mod oracle;
mod outcome;
mod parallel;
mod picture;
mod report;
mod requests;
mod scaler;
mod scenario;
mod shards;
mod step;
mod tally;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use cli::output::bar_style;
use indicatif::ProgressBar;
use sharding::internal::MAX_COPIES;

use self::oracle::{ORACLE, of_oracle};
use self::parallel::run_all;
use crate::plan::recommended_copies;

pub use self::metadata::MetadataLoad;
pub use self::outcome::Outcome;
pub use self::picture::render_svg;
pub use self::report::{table, write_csv};
pub use self::scenario::{Contender, Scenario, Starts};

/// The options of `simulate`.
#[derive(Debug, Clone, Args)]
pub struct SimulateOptions {
    /// Write units per second of the key, from second 0 on
    #[arg(long, value_delimiter = ',', default_values_t = [5_000, 20_000, 50_000])]
    pub demand: Vec<u32>,
    /// Partitions of the table
    #[arg(long, value_delimiter = ',', default_values_t = [4, 20, 64, 1_000])]
    pub partitions: Vec<u32>,
    /// Hide the table's number of partitions from the instances, as a server without warm
    /// throughput does
    #[arg(long)]
    pub unknown_partitions: bool,
    /// Write units per second that the shard-scaler may raise the table's warm throughput to
    /// (MAX_WARM_WRITE_UNITS); 0 to never raise it
    #[arg(long, default_value_t = 0, value_name = "UNITS",
        value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub budget: u32,
    /// Duration of a raise of warm throughput, in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub warming: u32,
    /// Simulated time, in seconds
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u32).range(10..=86_400))]
    pub seconds: u32,
    /// Number of instances; each writes and reads
    #[arg(long, visible_alias = "writers", default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub instances: u32,
    /// Reads per second of all instances. A read uses the view of its instance, and keeps it fresh
    /// while writes wait for an open
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub reads: u32,
    /// Start of the instances
    #[arg(long, value_enum, default_value_t = Starts::Warm)]
    pub starts: Starts,
    /// Copies of the key's page in the directory [default: as many as plan recommends for the
    /// instances]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COPIES)))]
    pub copies: Option<u32>,
    /// Partitions of the metadata table, which its items share by their hashes [default: one for
    /// each item, as items get over time if they are read a lot]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub metadata_partitions: Option<u32>,
    /// Simulate only this policy
    #[arg(long)]
    pub policy: Option<String>,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write every second of every run to this CSV file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw the share of writes that is throttled or waits, over time, to this SVG file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Returns every combination of demand, partitions and policy, in the order of the table.
#[must_use]
pub fn scenarios(options: &SimulateOptions) -> Vec<Scenario> {
    let mut all = Vec::new();
    let copies = options.copies.unwrap_or_else(|| recommended_copies(options.instances, 1));
    for demand in &options.demand {
        for partitions in &options.partitions {
            for (name, contender) in contenders(options.policy.as_deref(), *demand, *partitions) {
                all.push(Scenario {
                    policy: name,
                    contender,
                    demand: *demand,
                    partitions: *partitions,
                    knows_partitions: !options.unknown_partitions,
                    budget: options.budget,
                    warming: Duration::from_secs(options.warming.into()),
                    seconds: options.seconds,
                    instances: options.instances,
                    reads: options.reads,
                    starts: options.starts,
                    copies,
                    metadata_partitions: options.metadata_partitions,
                    seed: options.seed,
                });
            }
        }
    }
    all
}

/// Returns the policy with this name, or all policies, each with its name in the table, for a
/// demand on this number of partitions.
fn contenders(name: Option<&str>, demand: u32, partitions: u32) -> Vec<(&'static str, Contender)> {
    let is_wanted = |one: &str| name.is_none_or(|only| only == one);
    let mut all: Vec<_> = Contender::all().into_iter().filter(|(one, _)| is_wanted(one)).collect();
    if is_wanted(ORACLE) {
        all.push((ORACLE, Contender::Once(of_oracle(demand, partitions))));
    }
    all
}

/// Runs the scenarios on all cores, with a progress bar. The outcomes are in the order of the
/// scenarios.
#[must_use]
pub fn run(scenarios: &[Scenario]) -> Vec<Outcome> {
    let bar = ProgressBar::new(scenarios.len() as u64);
    bar.set_style(bar_style("simulating {wide_bar} {pos}/{len} runs {eta}"));
    let outcomes = run_all(scenarios, || bar.inc(1));
    bar.finish_and_clear();
    outcomes
}

#[cfg(test)]
mod tests;
