//! A short form of the tables: some cells, a few keys each. `cargo bench -p policy-grid` measures
//! the others.

use policy_grid::{Scenario, Summary, closed, hot_items, lambda, open, oracle_of, run, zipf};

const KEYS: u64 = 3;

#[test]
fn a_step_is_relieved_in_seconds_with_few_shards() {
    for (demand, partitions) in [(2_000.0, 4), (5_000.0, 64), (20_000.0, 1_000)] {
        let scenario = open(demand, partitions);
        let ours = Summary::of(&scenario, KEYS);
        let oracle = Summary::of(&oracle_of(&scenario, demand), KEYS);
        let row = format!("{demand} on {partitions}: {ours} / oracle {oracle}");
        println!("{row}");
        assert!(ours.longest_relief() <= 15.0, "{row}");
        assert!(ours.least_accepted() >= 0.999, "{row}");
        assert!(f64::from(ours.median_width()) <= 2.0 * f64::from(oracle.median_width()), "{row}");
    }
}

#[test]
fn a_short_table_is_reported_and_used() {
    let scenario = Scenario { scale: 10, seconds: 20, ..Scenario::open(5_000.0, 4) };
    let ours = Summary::of(&scenario, KEYS);
    let oracle = Summary::of(&oracle_of(&scenario, 5_000.0), KEYS);
    let row = format!("{ours} / oracle {oracle}");
    assert!(ours.short_after.iter().all(Option::is_some), "{:?}", ours.short_after);
    // The oracle acts a second earlier, which is a twentieth of the run.
    assert!(ours.mean_accepted() >= oracle.mean_accepted() - 0.08, "{row}");
}

#[test]
fn clients_that_wait_get_what_an_oracle_gives_them() {
    for is_lambda in [false, true] {
        let (scenario, demand) = closed(400, 1_000, is_lambda);
        let (ours, oracle) = (run(&scenario), run(&oracle_of(&scenario, demand)));
        let (ours, oracle) = (ours.rate_from(26), oracle.rate_from(26));
        assert!(ours >= 0.95 * oracle, "Lambda: {is_lambda}: {ours} and {oracle} writes a second");
    }
}

#[test]
fn a_fleet_of_one_request_at_a_time_is_relieved() {
    let outcome = run(&lambda(5_000.0, 1_000, 64));
    assert!(outcome.accepted() >= 0.995, "{}", outcome.accepted());
    assert!(outcome.relieved_after().is_some_and(|at| at <= 20.0), "{:?}", outcome.changes);
}

#[test]
fn cold_keys_on_a_full_table_do_not_grow() {
    let scenario = Scenario { seconds: 10, ..zipf(100, 1.1, 20, 0.9) };
    let outcome = run(&scenario);
    let rate = |units: f64| units * f64::from(scenario.scale) / f64::from(scenario.seconds);
    let cold: Vec<_> = outcome.keys.iter().filter(|key| rate(key.0) < 200.0).collect();
    let grown = cold.iter().filter(|key| key.1 > 1).count();
    assert!(cold.len() > 50 && grown <= 1, "{grown} of {}", cold.len());
    assert!(outcome.width() > 1, "the hottest key grows");
}

#[test]
fn few_hot_items_are_reported_and_take_few_shards() {
    let outcome = run(&Scenario { seconds: 20, ..hot_items(3, 6_000.0) });
    assert!(outcome.width() <= 8, "{:?}", outcome.changes);
    assert!(outcome.hot_items_after.is_some());
}
