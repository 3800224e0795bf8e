//! The seeded simulation. `SIMULATION_SEEDS` sets how many seeds are run, `SIMULATION_SEED` replays one. With `TEST_SIZE=large`
//! and `--include-ignored` everything is run that guards `main`.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use system_tests::large_or;
use system_tests::simulation::{Plan, Shrinking, Totals, run};

/// Seeds of a large run, and of another.
const SEEDS: (u64, u64) = (60, 10);

/// Seeds in which keys shrink again: such a run takes longer.
const SHRINKING_SEEDS: (u64, u64) = (8, 1);

fn as_built(seed: u64) -> Plan {
    Plan { seed, without_waiting: false, shrinking: Shrinking::Never, settling: false, adopting: false }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}; a whole number is needed")))
}

/// So many of a large or of a small run, or what the variables ask for: of runs that take longer, fewer in proportion.
fn seeds((large, small): (u64, u64)) -> Range<u64> {
    match variable("SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            0..variable("SIMULATION_SEEDS")
                .map_or_else(|| large_or(large, small), |seeds| (seeds * large).div_ceil(SEEDS.0))
        }
    }
}

/// Runs seeds on all cores until one finds a violation; returns the totals, or the lowest seed that found one.
fn run_seeds(
    seeds: impl Iterator<Item = u64> + Send,
    plan: impl Fn(u64) -> Plan + Sync,
) -> Result<(u64, Totals), (u64, String)> {
    let seeds = Mutex::new(seeds);
    let (count, totals, found) = (AtomicU64::new(0), Mutex::new(Totals::default()), Mutex::new(None::<(u64, String)>));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while found.lock().expect("no seed panics while it holds it").is_none()
                    && let Some(seed) = { seeds.lock().expect("no seed panics while it holds it").next() }
                {
                    match run(plan(seed)) {
                        Ok(of_seed) => {
                            count.fetch_add(1, Ordering::Relaxed);
                            let mut totals = totals.lock().expect("no seed panics while it holds it");
                            *totals = totals.plus(&of_seed);
                        }
                        Err(violation) => {
                            let mut found = found.lock().expect("no seed panics while it holds it");
                            if found.as_ref().is_none_or(|(before, _)| seed < *before) {
                                *found = Some((seed, violation));
                            }
                        }
                    }
                }
            });
        }
    });
    match found.into_inner().expect("no seed panics while it holds it") {
        Some(found) => Err(found),
        None => Ok((count.into_inner(), totals.into_inner().expect("no seed panics while it holds it"))),
    }
}

#[test]
fn no_seed_finds_a_violation() {
    match run_seeds(seeds(SEEDS), as_built) {
        Ok((count, totals)) => {
            println!(
                "{count} seeds without a violation: {} appends acknowledged, {} not; {} point writes acknowledged, {} found an item, {} had neither; {} reads checked, {} unanswered; {} scale-outs, up to {} shards; {} faults injected",
                totals.acknowledged,
                totals.unacknowledged,
                totals.point_writes,
                totals.existed,
                totals.unacknowledged_point_writes,
                totals.reads,
                totals.unanswered_reads,
                totals.scale_outs,
                totals.widest,
                totals.faults
            );
            assert!(
                totals.scale_outs >= count
                    && totals.point_writes > 10 * count
                    && totals.existed > count
                    && totals.reads > 10 * count
                    && totals.faults > 10 * count,
                "the runs must do something: {totals:?}"
            );
        }
        Err((seed, violation)) => panic!("{violation}\nreplay with SIMULATION_SEED={seed}"),
    }
}

#[test]
fn no_seed_finds_a_violation_while_keys_shrink_again() {
    match run_seeds(seeds(SHRINKING_SEEDS), |seed| Plan { shrinking: Shrinking::AsBuilt, ..as_built(seed) }) {
        Ok((count, totals)) => {
            println!(
                "{count} seeds without a violation: {} shrinks; {} appends and {} point writes acknowledged; {} reads checked; {} faults injected",
                totals.shrinks, totals.acknowledged, totals.point_writes, totals.reads, totals.faults
            );
            assert!(totals.shrinks > 0 && totals.reads > 100 * count, "the runs must do something: {totals:?}");
        }
        Err((seed, violation)) => panic!("{violation}\nreplay with SIMULATION_SEED={seed}"),
    }
}

#[test]
fn no_seed_finds_a_violation_while_keys_are_settled() {
    match run_seeds(seeds(SHRINKING_SEEDS), |seed| Plan {
        shrinking: Shrinking::AsBuilt,
        settling: true,
        ..as_built(seed)
    }) {
        Ok((count, totals)) => {
            println!(
                "{count} seeds without a violation: {} settlings, {} shrinks, {} runs of them cut off; {} appends and {} point writes acknowledged; {} reads checked; {} faults injected",
                totals.settlings,
                totals.shrinks,
                totals.cut_off,
                totals.acknowledged,
                totals.point_writes,
                totals.reads,
                totals.faults
            );
            assert!(
                totals.settlings > 0 && totals.cut_off > 0 && totals.reads > 100 * count,
                "the runs must do something: {totals:?}"
            );
        }
        Err((seed, violation)) => panic!("{violation}\nreplay with SIMULATION_SEED={seed}"),
    }
}

#[test]
fn no_seed_finds_a_violation_while_bare_items_are_migrated() {
    match run_seeds(seeds(SHRINKING_SEEDS), |seed| Plan {
        shrinking: Shrinking::AsBuilt,
        adopting: true,
        ..as_built(seed)
    }) {
        Ok((count, totals)) => {
            println!(
                "{count} seeds without a violation: {} migrations, {} shrinks, {} runs of them cut off; {} appends and {} point writes acknowledged; {} reads checked; {} faults injected",
                totals.migrations,
                totals.shrinks,
                totals.cut_off,
                totals.acknowledged,
                totals.point_writes,
                totals.reads,
                totals.faults
            );
            assert!(
                totals.migrations > count && totals.cut_off > 0 && totals.reads > 100 * count,
                "the runs must do something: {totals:?}"
            );
        }
        Err((seed, violation)) => panic!("{violation}\nreplay with SIMULATION_SEED={seed}"),
    }
}

/// What the first of 40 seeds finds that notices a build which leaves out one of its waits. They begin with one that is known to.
fn caught(known: u64, broken: impl Fn(u64) -> Plan) -> String {
    let found = (known..known + 40).find_map(|seed| Some((seed, run(broken(seed)).err()?)));
    let (seed, violation) = found.expect("some of 40 seeds notices that the wait is missing");
    format!("seed {seed} finds: {violation}")
}

#[test]
#[ignore = "some minutes; .ci/run runs it"]
fn a_shrink_that_does_not_wait_for_writers_is_caught() {
    let broken = |seed| Plan { shrinking: Shrinking::WithoutWaitingForWriters, ..as_built(seed) };
    println!("shrinking without waiting for writers, {}", caught(5, broken));
}

#[test]
#[ignore = "some minutes; .ci/run runs it"]
fn a_shrink_that_does_not_wait_for_reads_is_caught() {
    let broken = |seed| Plan { shrinking: Shrinking::WithoutWaitingForReads, ..as_built(seed) };
    println!("shrinking without waiting for reads, {}", caught(2, broken));
}

#[test]
#[ignore = "some minutes; .ci/run runs it"]
fn a_settling_that_does_not_wait_for_writers_is_caught() {
    let broken = |seed| Plan { shrinking: Shrinking::WithoutWaitingForWriters, settling: true, ..as_built(seed) };
    println!("settling without waiting for writers, {}", caught(5, broken));
}

#[test]
#[ignore = "some minutes; .ci/run runs it"]
fn a_settling_that_does_not_wait_for_reads_is_caught() {
    let broken = |seed| Plan { shrinking: Shrinking::WithoutWaitingForReads, settling: true, ..as_built(seed) };
    println!("settling without waiting for reads, {}", caught(13, broken));
}

#[test]
#[ignore = "some minutes; .ci/run runs it"]
fn a_migration_that_does_not_wait_for_reads_is_caught() {
    let broken = |seed| Plan { shrinking: Shrinking::WithoutWaitingForReads, adopting: true, ..as_built(seed) };
    println!("migrating without waiting for reads, {}", caught(3, broken));
}

#[test]
fn a_growth_that_does_not_wait_is_caught() {
    let broken = |seed| Plan { without_waiting: true, ..as_built(seed) };
    println!("growing without the wait, {}", caught(0, broken));
}

#[test]
fn a_seed_is_a_run() {
    let shrinking = large_or(Shrinking::AsBuilt, Shrinking::Never);
    let plan = Plan { shrinking, ..as_built(7) };
    assert_eq!(run(plan), run(plan));
}
