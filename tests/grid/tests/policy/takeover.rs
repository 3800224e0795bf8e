//! A metadata table that answers late: writers that wait for a change take it over, and must not
//! reject each other for ever.

#![expect(clippy::print_stdout, reason = "a test prints what it has measured")]

use std::time::Duration;

use policy_grid::{Fleet, Scenario, run};

/// How late the pages answer, in milliseconds; the second by which the change is open; and the
/// share of the writes that may fail.
type Row = (u64, u32, f64);

fn one_of_them_finishes(instances: u32, (late, opens_by, may_fail): Row) {
    let scenario = Scenario {
        fleet: Fleet::Shared(instances),
        late_pages: Duration::from_millis(late),
        seconds: opens_by + 5,
        ..Scenario::open(1_500.0, 64)
    };
    let outcome = run(&scenario);
    let first = outcome.changes.first().map(|change| change.0);
    let failed: u64 = outcome.seconds.iter().map(|second| second.failed).sum();
    println!("{instances} writers, {late} ms: open after {first:?} s, {failed} writes failed");
    assert!(first.is_some_and(|at| at <= f64::from(opens_by)), "{instances} {late}: {first:?}");
    let may_fail = may_fail * 1_500.0 * f64::from(scenario.seconds);
    assert!(failed as f64 <= may_fail, "{instances} {late}: {failed}");
}

// With 1.5 s, a change takes nine of the ten seconds that a caller repeats a write. From 3 s on, a
// request has no response: each instance reads whether it was applied.
const ROWS: [Row; 3] = [(700, 12, 0.0), (1_500, 12, 0.07), (3_000, 25, 1.0)];

#[test]
fn some_waiting_writers_let_one_of_them_finish() {
    ROWS.into_iter().for_each(|row| one_of_them_finishes(64, row));
}

#[test]
fn many_waiting_writers_let_one_of_them_finish() {
    ROWS.into_iter().for_each(|row| one_of_them_finishes(256, row));
}
