//! A metadata table that answers late: writers that wait for a change take it over, and must not
//! reject each other for ever.

use std::time::Duration;

use policy_grid::{Fleet, Scenario, run};

#[test]
fn waiting_writers_let_one_of_them_finish() {
    // From 3 s on, a request has no response: each instance reads whether it was applied.
    let rows = [(700, 12.0, 0.0), (1_500, 12.0, 0.01), (3_000, 25.0, 1.0)];
    let rows = [64, 256].map(|instances| rows.map(|row| (instances, row)));
    for (instances, (late, opens_by, may_fail)) in rows.into_iter().flatten() {
        let scenario = Scenario {
            fleet: Fleet::Shared(instances),
            late_pages: Duration::from_millis(late),
            seconds: 30,
            ..Scenario::open(1_500.0, 64)
        };
        let outcome = run(&scenario);
        let first = outcome.changes.first().map(|change| change.0);
        let failed: u64 = outcome.seconds.iter().map(|second| second.failed).sum();
        println!("{instances} writers, {late} ms: open after {first:?} s, {failed} writes failed");
        assert!(first.is_some_and(|at| at <= opens_by), "{instances} {late}: {first:?}");
        let may_fail = may_fail * 1_500.0 * f64::from(scenario.seconds);
        assert!(failed as f64 <= may_fail, "{instances} {late}: {failed}");
    }
}
