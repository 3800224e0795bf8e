//! Tests of whole runs.

use sharding::internal::ScalingPolicy;
use system_tests::large_or;

use super::*;

/// The default policy under a step of the demand, with as many reads as writes, on enough
/// partitions.
fn step((instances, demand): (u32, u32), seconds: u32, starts: Starts) -> Scenario {
    Scenario {
        policy: "proportional",
        contender: Contender::Policy(ScalingPolicy::default()),
        demand,
        partitions: 3_000,
        knows_partitions: true,
        budget: 0,
        warming: Duration::from_secs(60),
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
    let all = [Starts::Warm, Starts::AtOnce, Starts::Lambda]
        .map(|starts| step((instances, 500), seconds, starts));
    let outcomes = run(&all);
    println!("{}", table(&outcomes));
    for outcome in &outcomes {
        let (starts, load) = (outcome.scenario.starts, metadata(outcome));
        assert_eq!(load.copies, copies);
        assert!(load.mean <= 0.5, "{starts:?}: {load:?}");
        // The recommendation is not too high. Lambda takes 90 seconds to start 10,000
        // instances.
        assert!(load.mean > 0.4 || starts == Starts::Lambda, "{starts:?}: {load:?}");
        assert!(outcome.without_view < 0.05, "{starts:?}: {}", outcome.without_view);
    }
}

#[test]
fn a_key_that_steps_up_is_relieved_after_a_cold_start() {
    let (size, seconds) = large_or(((10_000, 100_000), 60), ((200, 5_000), 20));
    let outcome = world::run(&step(size, seconds, Starts::AtOnce));
    println!("{}", table(std::slice::from_ref(&outcome)));
    assert!(outcome.updates_made >= 2, "closed and opened: {outcome:?}");
    assert!(outcome.relieved_after.is_some_and(|seconds| seconds <= 5.0), "{outcome:?}");
    assert!(metadata(&outcome).mean <= 0.5, "{outcome:?}");
}

#[test]
fn a_new_table_is_warmed_within_the_budget_and_without_one_what_it_lacks_is_named() {
    let new_table = Scenario {
        demand: 20_000,
        partitions: 4,
        reads: 0,
        ..step((200, 20_000), 100, Starts::Warm)
    };
    let runs = [100_000, 0]
        .map(|budget| (1..=3).map(|seed| Scenario { budget, seed, ..new_table.clone() }).collect());
    let [warmed, short] = runs.map(|scenarios: Vec<_>| run(&scenarios));
    for outcome in &warmed {
        assert!(outcome.relieved_after.is_some_and(|seconds| seconds <= 75.0), "{outcome:?}");
    }
    for outcome in &short {
        let Some((after, Some(units))) = outcome.short_after else {
            panic!("not reported: {outcome:?}")
        };
        assert!(after <= 30.0 && (40_000..=120_000).contains(&units), "{outcome:?}");
        assert!(outcome.relieved_after.is_none() && outcome.final_width <= 40, "{outcome:?}");
        assert_eq!(outcome.final_partitions, 4, "{outcome:?}");
    }
}

#[test]
fn too_few_copies_leave_instances_without_a_view() {
    let scenario = Scenario { copies: 1, ..step((4_000, 500), 10, Starts::Warm) };
    let outcome = world::run(&scenario);
    let load = metadata(&outcome);
    assert!(load.mean > 0.95 && load.throttled > 0 && outcome.without_view > 0.2, "{outcome:?}");
    let enough = world::run(&Scenario { copies: 8, ..scenario.clone() });
    assert!(metadata(&enough).mean <= 0.5 && enough.without_view < 1e-9, "{enough:?}");
    // Copies do not help if they share too few partitions.
    let shared = world::run(&Scenario { copies: 8, metadata_partitions: Some(1), ..scenario });
    assert!(metadata(&shared).mean > 0.95, "{shared:?}");
}

/// Partitions of the table, and write units per second of the key.
const GRID: ([u32; 6], [u32; 4]) = ([4, 8, 20, 64, 200, 1_000], [2_000, 5_000, 20_000, 50_000]);

/// The demand, the partitions, and the expected misses. With 50,000 units on 20 partitions, the
/// oracle starts a second earlier, which is 1.7 % of the writes of a minute. The bound is 1.5 %.
/// The next test runs this cell for a quarter of an hour.
const MISSED: [(u32, u32, &[&str]); 1] = [(50_000, 20, &["accepts fewer"])];

#[test]
fn ours_is_nearly_as_good_as_what_knows_the_demand_and_the_partitions() {
    // Luck in the placement would decide about a single key: of the first one, 85.3 % of 5,000 units
    // on four partitions are accepted, and 86.8 % with the oracle.
    let (seconds, seeds) = (60, 3);
    let (of_demand, of_partitions) =
        large_or((&GRID.1[..], &GRID.0[..]), (&[5_000, 20_000], &[4, 64, 1_000]));
    let mut all = Vec::new();
    for &demand in of_demand {
        for &partitions in of_partitions {
            let contenders = contenders(None, demand, partitions);
            for seed in 1..=seeds as u64 {
                for (policy, contender) in contenders.iter().copied().skip(1) {
                    let scenario = Scenario {
                        demand,
                        partitions,
                        reads: 0,
                        ..step((200, demand), seconds, Starts::Warm)
                    };
                    all.push(Scenario { policy, contender, seed, ..scenario });
                }
            }
        }
    }
    let outcomes = run(&all);
    let mut wrong = Vec::new();
    for of_cell in outcomes.chunks_exact(4 * seeds) {
        let cell = Cell::of(of_cell);
        let misses = cell.misses(seconds);
        let Scenario { demand, partitions, .. } = of_cell[0].scenario;
        let row = format!("{demand} on {partitions}: {cell}; {misses:?}");
        println!("{row}");
        if !misses.is_empty() && !MISSED.contains(&(demand, partitions, &misses[..])) {
            wrong.push(row);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// While a table is short of partitions, luck in the placement decides: a key with one shard on a
/// partition leaves half of it unused. So this takes the mean of three keys.
#[test]
fn while_a_table_splits_ours_accepts_as_much_as_any_other() {
    let (cells, seconds) =
        large_or((&[(20_000, 20), (50_000, 20)][..], 900), (&[(20_000, 8)][..], 300));
    for &(demand, partitions) in cells {
        let contenders = contenders(None, demand, partitions);
        let of = |wanted: &str| {
            let of_policy = contenders.iter().copied().filter(|(policy, _)| *policy == wanted);
            let scenarios: Vec<_> = of_policy
                .flat_map(|(policy, contender)| (1..=3).map(move |seed| (policy, contender, seed)))
                .map(|(policy, contender, seed)| Scenario {
                    policy,
                    contender,
                    seed,
                    partitions,
                    reads: 0,
                    ..step((200, demand), seconds, Starts::Warm)
                })
                .collect();
            CellResult::of(run(&scenarios).iter())
        };
        let [ours, doubling, oracle] = ["proportional", "doubling", ORACLE].map(of);
        println!("{demand} on {partitions}: ours {ours}; doubling {doubling}; oracle {oracle}");
        assert!(
            ours.accepted >= doubling.accepted.max(oracle.accepted) - negligible(seconds),
            "{demand} on {partitions}: ours {ours}; doubling {doubling}; oracle {oracle}"
        );
    }
}

/// The share of the writes of 0.9 s: 0.1 % in a quarter of an hour.
fn negligible(seconds: u32) -> f64 {
    0.9 / f64::from(seconds)
}

/// The results of the policies in a cell of the grid.
struct Cell {
    ours: CellResult,
    oracle: CellResult,
    doubling: CellResult,
    plus_one: CellResult,
}

impl Cell {
    fn of(outcomes: &[Outcome]) -> Self {
        let of = |policy: &str| {
            CellResult::of(outcomes.iter().filter(|outcome| outcome.scenario.policy == policy))
        };
        Self {
            ours: of("proportional"),
            oracle: of("oracle"),
            doubling: of("doubling"),
            plus_one: of("+1, cooldown 60 s"),
        }
    }

    /// Returns what is worse than expected with our policy, after a run of this duration.
    fn misses(&self, seconds: u32) -> Vec<&'static str> {
        let Self { ours, oracle, doubling, plus_one } = self;
        let best = doubling.accepted.max(plus_one.accepted).max(oracle.accepted);
        // If nearly all writes are accepted after retries, the table serves the demand.
        let is_served = oracle.relieved.is_finite() || oracle.accepted > 0.999;
        let misses = [
            (ours.relieved > oracle.relieved * 1.25 + 3.0, "late"),
            (ours.accepted < best - negligible(seconds), "accepts fewer"),
            (ours.width > oracle.width * 1.5, "wide"),
            (!is_served && ours.relieved.is_infinite() && ours.short > 30.0, "not reported"),
        ];
        misses.into_iter().filter_map(|(is_missed, name)| is_missed.then_some(name)).collect()
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { ours, oracle, doubling, plus_one } = self;
        write!(f, "ours {ours}; oracle {oracle}; doubling {doubling}; +1 {plus_one}")
    }
}

/// The result of a policy in a cell: medians over keys, and the mean of the accepted share.
struct CellResult {
    relieved: f64,
    accepted: f64,
    width: f64,
    short: f64,
}

impl CellResult {
    fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Self {
        let outcomes: Vec<&Outcome> = outcomes.collect();
        let median_of = |value: fn(&Outcome) -> f64| median(outcomes.iter().copied().map(value));
        Self {
            relieved: median_of(|outcome| outcome.relieved_after.unwrap_or(f64::INFINITY)),
            accepted: outcomes.iter().map(|outcome| outcome.accepted).sum::<f64>()
                / outcomes.len() as f64,
            width: median_of(|outcome| outcome.final_width.into()),
            short: median_of(|outcome| {
                let of_partitions = outcome.short_after.map(|(after, _)| after);
                let all = [of_partitions, outcome.at_maximum_after].into_iter().flatten();
                all.fold(f64::INFINITY, f64::min)
            }),
        }
    }
}

impl std::fmt::Display for CellResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { relieved, accepted, width, short } = self;
        write!(f, "{relieved} s {:.2} % {width} shards (short {short:.0} s)", accepted * 100.0)
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn without_a_policy_nobody_uses_the_metadata_table() {
    let plain =
        Scenario { contender: Contender::Nothing, ..step((100, 1_000), 10, Starts::AtOnce) };
    let outcome = world::run(&plain);
    assert_eq!((outcome.metadata, outcome.without_view), (None, 0.0));
}
