//! `simulate`: how fast each policy relieves a key that turns hot at once.
//!
//! The policy, the pressure tracker, the metadata and the partitions are the real ones; the protocol's waits are its constants. What is
//! simulated is the rest: many writer instances with views of their own, their retries, and the passing of time, in steps of ten
//! milliseconds. A quarter of an hour of 50,000 writes a second takes a second or so.

mod report;
mod world;
mod writers;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sharding::{Growth, ScalingPolicy};

pub use report::{render_svg, table, write_csv};
pub use world::{Outcome, Scenario};

/// What to simulate.
#[derive(Debug, Clone, Args)]
pub struct SimulateOptions {
    /// Write units a second that the key takes from second 0 on
    #[arg(long, value_delimiter = ',', default_values_t = [5_000, 20_000, 50_000])]
    pub demand: Vec<u32>,
    /// Partitions of the table
    #[arg(long, value_delimiter = ',', default_values_t = [64, 200, 1_000])]
    pub partitions: Vec<u32>,
    /// Seconds of simulated time
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u32).range(10..=86_400))]
    pub seconds: u32,
    /// Writer instances
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub writers: u32,
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

/// A policy under comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Contender {
    /// Only what DynamoDB does by itself: split for heat.
    Nothing,
    /// The `sharding` crate under this policy.
    Policy(ScalingPolicy),
}

impl Contender {
    /// The four of the benchmark, each with the name that the table shows.
    #[must_use]
    pub fn all() -> [(&'static str, Self); 4] {
        let ours = ScalingPolicy::default();
        [
            ("split for heat only", Self::Nothing),
            (
                "+1, cooldown 60 s",
                Self::Policy(ScalingPolicy { growth: Growth::PlusOne, cooldown_seconds: 60, ..ours }),
            ),
            ("doubling", Self::Policy(ScalingPolicy { growth: Growth::Doubling, ..ours })),
            ("proportional", Self::Policy(ours)),
        ]
    }
}

/// Every combination of demand, partitions and policy, in the order of the table.
#[must_use]
pub fn scenarios(options: &SimulateOptions) -> Vec<Scenario> {
    let mut all = Vec::new();
    for demand in &options.demand {
        for partitions in &options.partitions {
            for (name, contender) in Contender::all() {
                all.push(Scenario {
                    policy: name,
                    contender,
                    demand: *demand,
                    partitions: *partitions,
                    seconds: options.seconds,
                    writers: options.writers,
                    seed: options.seed,
                });
            }
        }
    }
    all
}

/// Runs the scenarios on all cores, showing progress; the outcomes are in their order.
#[must_use]
pub fn run(scenarios: &[Scenario]) -> Vec<Outcome> {
    let style = ProgressStyle::with_template("simulating {wide_bar} {pos}/{len} runs {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(scenarios.len() as u64).with_style(style);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Outcome)>> = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((index, scenario)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, scenarios.get(i)?)))
                {
                    let outcome = world::run(scenario);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((index, outcome));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}
