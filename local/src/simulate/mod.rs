//! `simulate`: how fast each policy relieves a key that turns hot at once, and what its instances ask of the metadata table.
//!
//! The policy, the pressure tracker, the metadata and the partitions of both tables are the real ones; the protocol's waits are its constants.
//! What is simulated is the rest: many instances with views of their own, their requests to the metadata table, their retries, and the
//! passing of time, in steps of ten milliseconds. A quarter of an hour of 50,000 writes a second takes a second or so. Not simulated are
//! the read units that reads take of the main table, instances that die, and other keys.

mod instances;
mod metadata;
mod report;
mod world;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use sharding::{Growth, MAX_COPIES, ScalingPolicy};

use crate::plan::recommended_copies;

pub use metadata::MetadataLoad;
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
    /// Instances, each of which writes and reads
    #[arg(long, visible_alias = "writers", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub instances: u32,
    /// Reads a second, of all instances; a read uses the view of its instance, and keeps it fresh while writes wait for an open
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub reads: u32,
    /// How the instances start
    #[arg(long, value_enum, default_value_t = Starts::Warm)]
    pub starts: Starts,
    /// Copies of the key's page in the directory; without it, as many as plan recommends for the instances
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COPIES)))]
    pub copies: Option<u32>,
    /// Partitions of the metadata table, which its items share by their hashes; without it, each item has one to itself, as an item gets in
    /// time that is read a lot
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub metadata_partitions: Option<u32>,
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

/// How the instances start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Starts {
    /// They run, and have views of different ages
    Warm,
    /// All at second 0, without a view: the worst for the metadata table
    AtOnce,
    /// 1,000 at second 0 and 100 in each second after it, without a view: as fast as Lambda starts them
    Lambda,
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
    let copies = options.copies.unwrap_or_else(|| recommended_copies(options.instances, 1));
    for demand in &options.demand {
        for partitions in &options.partitions {
            for (name, contender) in Contender::all() {
                all.push(Scenario {
                    policy: name,
                    contender,
                    demand: *demand,
                    partitions: *partitions,
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

#[cfg(test)]
mod tests {
    use super::*;
    use system_tests::large_or;

    /// The default policy under a step of the demand, with reads as many as writes, on partitions enough.
    fn step((instances, demand): (u32, u32), seconds: u32, starts: Starts) -> Scenario {
        Scenario {
            policy: "proportional",
            contender: Contender::Policy(ScalingPolicy::default()),
            demand,
            partitions: 3_000,
            seconds,
            instances,
            reads: demand,
            starts,
            copies: recommended_copies(instances, 1),
            metadata_partitions: None,
            seed: 1,
        }
    }

    fn metadata(outcome: &Outcome) -> &MetadataLoad {
        outcome.metadata.as_ref().unwrap()
    }

    #[test]
    fn with_the_recommended_copies_busy_instances_take_half_of_a_metadata_partition() {
        let (instances, seconds, copies) = large_or((10_000, 60, 10), (1_000, 20, 1));
        let all = [Starts::Warm, Starts::AtOnce, Starts::Lambda].map(|starts| step((instances, 500), seconds, starts));
        let outcomes = run(&all);
        println!("{}", table(&outcomes));
        for outcome in &outcomes {
            let (starts, load) = (outcome.scenario.starts, metadata(outcome));
            assert_eq!(load.copies, copies);
            assert!(load.mean <= 0.5, "{starts:?}: {load:?}");
            // No more are recommended than are needed; Lambda takes 90 seconds to start 10,000 instances.
            assert!(load.mean > 0.4 || starts == Starts::Lambda, "{starts:?}: {load:?}");
            assert!(outcome.without_view < 0.05, "{starts:?}: {}", outcome.without_view);
        }
    }

    #[test]
    fn a_key_that_steps_up_is_relieved_after_a_cold_start() {
        // With ten writes a second each, an instance sees too few of them to tell how far to grow, and the key grows twice or more.
        let (size, seconds, within) = large_or(((10_000, 100_000), 60, 10.0), ((200, 5_000), 20, 5.0));
        let outcome = world::run(&step(size, seconds, Starts::AtOnce));
        println!("{}", table(std::slice::from_ref(&outcome)));
        assert!(outcome.updates_made >= 2, "closed and opened: {outcome:?}");
        assert!(outcome.relieved_after.is_some_and(|seconds| seconds <= within), "{outcome:?}");
        assert!(metadata(&outcome).mean <= 0.5, "{outcome:?}");
    }

    #[test]
    fn too_few_copies_leave_instances_without_a_view() {
        let scenario = Scenario { copies: 1, ..step((4_000, 500), 10, Starts::Warm) };
        let outcome = world::run(&scenario);
        let load = metadata(&outcome);
        assert!(load.mean > 0.95 && load.throttled > 0 && outcome.without_view > 0.2, "{outcome:?}");
        let enough = world::run(&Scenario { copies: 8, ..scenario.clone() });
        assert!(metadata(&enough).mean <= 0.5 && enough.without_view < 1e-9, "{enough:?}");
        // Copies do not help where they share too few partitions.
        let shared = world::run(&Scenario { copies: 8, metadata_partitions: Some(1), ..scenario });
        assert!(metadata(&shared).mean > 0.95, "{shared:?}");
    }

    #[test]
    fn without_a_policy_nobody_uses_the_metadata_table() {
        let plain = Scenario { contender: Contender::Nothing, ..step((100, 1_000), 10, Starts::AtOnce) };
        let outcome = world::run(&plain);
        assert_eq!((outcome.metadata, outcome.without_view), (None, 0.0));
    }
}
