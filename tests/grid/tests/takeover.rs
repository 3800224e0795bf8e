//! A metadata table that answers late: writers that wait for a change take it over, and must not
//! reject each other for ever.

use std::time::Duration;

use policy_grid::{FIRST_SEED, Fleet, Scenario, run};

#[test]
fn waiting_writers_let_one_of_them_finish() {
    for (instances, late) in [(64, 700), (64, 1_500), (256, 700), (256, 1_500)] {
        let scenario = Scenario {
            fleet: Fleet::Shared(instances),
            late_pages: Duration::from_millis(late),
            seconds: 30,
            seed: FIRST_SEED,
            ..Scenario::open(1_500.0, 64)
        };
        let outcome = run(&scenario);
        let first = outcome.changes.first().map(|change| change.0);
        let failed: u64 = outcome.seconds.iter().map(|second| second.failed).sum();
        println!("{instances} writers, {late} ms: open after {first:?} s, {failed} writes failed");
        assert!(first.is_some_and(|at| at <= 12.0), "{instances} {late}: {first:?}");
        assert_eq!(failed, 0, "{instances} {late}");
    }
}
