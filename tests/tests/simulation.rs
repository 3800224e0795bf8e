//! The seeded simulation. `SIMULATION_SEEDS` sets the number of seeds, and `SIMULATION_SEED`
//! replays one seed. `TEST_SIZE=large` runs more seeds. Each group prints a table
//! of the events of its runs.

#![expect(clippy::print_stdout, reason = "tests print what they have counted")]

use std::ops::Range;

use system_tests::large_or;
use system_tests::simulation::{Plan, Totals, run};
use tokio::time::Instant;

/// The number of seeds of a large run and of a small one.
const SEEDS: (u64, u64) = (8, 4);

/// The number of seeds in which keys shrink again. Such a run takes longer.
const SHRINKING_SEEDS: (u64, u64) = (4, 2);

/// The number of seeds in which requests arrive minutes late.
const MINUTES_LATE_SEEDS: (u64, u64) = (2, 1);

/// The number of seeds of an append-only table, which can find fewer faults: with growth only, and
/// with shrinking.
const APPENDING_SEEDS: [(u64, u64); 2] = [(2, 1), (1, 1)];

fn as_built(seed: u64) -> Plan {
    Plan { seed, ..Plan::default() }
}

fn shrinking(seed: u64) -> Plan {
    Plan { shrinking: true, ..as_built(seed) }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| {
        value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}; a whole number is needed"))
    })
}

/// The seeds to run: the default number of a large or small run, or what the variables set. A group
/// of longer runs has proportionally fewer.
fn seeds((large, small): (u64, u64)) -> Range<u64> {
    match variable("SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            0..variable("SIMULATION_SEEDS")
                .map_or_else(|| large_or(large, small), |seeds| (seeds * large).div_ceil(SEEDS.0))
        }
    }
}

/// Runs the seeds and prints their totals. The totals must be enough, unless one seed is replayed.
fn hold(
    about: &str,
    seeds: Range<u64>,
    plan: impl Fn(u64) -> Plan,
    enough: impl Fn(u64, &Totals) -> bool,
) {
    let (began, count) = (Instant::now(), seeds.end - seeds.start);
    let mut totals = Totals::default();
    for seed in seeds {
        match run(plan(seed)) {
            Ok(of_seed) => totals = totals.plus(&of_seed),
            Err(violation) => {
                panic!("{about}: {violation}\nreplay with SIMULATION_SEED={seed}")
            }
        }
    }
    let took = began.elapsed().as_secs();
    println!("{about}: {count} seeds without a violation, {took} s\n{totals}");
    if variable("SIMULATION_SEED").is_some() {
        return;
    }
    assert!(enough(count, &totals), "the runs must do something:\n{totals}");
    let are_most_decided = totals.undecided * 20 <= totals.registers.max(20);
    assert!(are_most_decided, "too few registers are decided:\n{totals}");
}

/// The number of seeds with clients of endpoints: with growth only, and with shrinking.
const ENDPOINT_SEEDS: [(u64, u64); 2] = [(6, 2), (2, 1)];

fn endpoint_enough(count: u64, totals: &Totals) -> bool {
    totals.native_applied > 50 * count
        && totals.native_refused > 5 * count
        && totals.native_unknown > count
        && totals.native_reads > 20 * count
}

#[test]
fn no_seed_finds_a_violation_through_endpoints() {
    let plan = |seed| Plan { endpoints: true, ..as_built(seed) };
    hold("endpoints, growth", seeds(ENDPOINT_SEEDS[0]), plan, |count, totals| {
        totals.changes >= count && endpoint_enough(count, totals)
    });
}

#[test]
fn no_seed_finds_a_violation_through_endpoints_as_keys_shrink() {
    let (some, about) = (seeds(ENDPOINT_SEEDS[1]), "endpoints, shrinking and settling");
    hold(about, some, shrinking_endpoints, |count, totals| {
        totals.shrinks + totals.settlings > 0 && endpoint_enough(count, totals)
    });
}

/// Endpoints, while keys also shrink.
fn shrinking_endpoints(seed: u64) -> Plan {
    Plan { endpoints: true, settling: seed.is_multiple_of(2), ..shrinking(seed) }
}

/// Clients race with `If-Match`, and add to counters under keys that they repeat.
fn updates_enough(count: u64, totals: &Totals) -> bool {
    totals.changed > 5 * count
        && totals.differed >= count
        && totals.added > 10 * count
        && totals.repeated_additions > 0
}

#[test]
fn no_seed_finds_a_violation() {
    let plan = |seed| Plan { updates: true, ..as_built(seed) };
    hold("growth", seeds(SEEDS), plan, |count, totals| {
        totals.changes >= count
            && totals.point_writes > 10 * count
            && totals.deleted > count
            && totals.existed > count
            && totals.reads > 10 * count
            && totals.faults > 10 * count
            && updates_enough(count, totals)
    });
}

#[test]
fn no_seed_finds_a_violation_while_keys_shrink_again() {
    let plan = |seed| Plan { updates: true, settling: seed % 2 == 0, ..shrinking(seed) };
    hold("updates, shrinking and settling", seeds(SHRINKING_SEEDS), plan, |count, totals| {
        // Keys of the first seed settle, and those of the second shrink.
        totals.settlings > 0
            && (count == 1 || totals.shrinks > 0)
            && totals.interrupted > 0
            && totals.reads > 100 * count
            && updates_enough(count, totals)
    });
}

#[test]
fn no_seed_finds_a_violation_while_requests_are_minutes_late() {
    let plan = |seed| Plan { updates: true, settling: true, minutes_late: true, ..shrinking(seed) };
    hold("minutes late", seeds(MINUTES_LATE_SEEDS), plan, |count, totals| {
        totals.very_late_requests > 50 * count
            && totals.settlings + totals.shrinks > 0
            && totals.deleted > 50 * count
            && updates_enough(count, totals)
    });
}

#[test]
fn no_seed_finds_a_violation_in_an_append_only_table() {
    let plan = |seed| Plan { appends: true, ..as_built(seed) };
    hold("growth, append-only", seeds(APPENDING_SEEDS[0]), plan, |count, totals| {
        totals.changes >= count && totals.acknowledged > 100 * count && totals.reads > 10 * count
    });
}

#[test]
fn no_seed_finds_a_violation_while_keys_of_appends_shrink_again() {
    // Seeds 2 and 3 use shorter views, so more of their drains finish.
    let mut some = seeds(APPENDING_SEEDS[1]);
    if variable("SIMULATION_SEED").is_none() {
        some = 2..2 + some.end;
    }
    let plan = |seed| Plan { appends: true, ..shrinking(seed) };
    hold("shrinking, append-only", some, plan, |count, totals| {
        totals.shrinks > 0 && totals.reads > 100 * count
    });
}

/// Runs seeds of a build without one of its waits until one finds a violation, and prints it. The
/// first seed is a known one, or `SIMULATION_SEED`.
fn caught(about: &str, known: u64, broken: impl Fn(u64) -> Plan) {
    let (began, first) = (Instant::now(), variable("SIMULATION_SEED").unwrap_or(known));
    for seed in first..first + 40 {
        if let Err(violation) = run(broken(seed)) {
            let took = began.elapsed().as_secs();
            println!("{about}: seed {seed} finds, after {took} s: {violation}");
            return;
        }
    }
    panic!("{about}: none of 40 seeds from {first} on detects the missing wait");
}

#[test]
fn a_growth_that_does_not_wait_is_caught() {
    let broken = |seed| Plan { without_waiting: true, ..as_built(seed) };
    caught("growing without the wait", 3, broken);
}

#[test]
fn an_endpoint_without_eras_is_caught() {
    let broken = |seed| Plan { without_eras: true, ..shrinking_endpoints(seed) };
    caught("an endpoint that accepts items of any era", 1, broken);
}

#[test]
fn a_seed_is_a_run() {
    assert_eq!(run(as_built(7)), run(as_built(7)));
}
