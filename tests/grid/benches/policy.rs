//! The tables of the scaling policy. Each row ends with the bounds that it misses.
//!
//! `cargo bench -p policy-grid` prints all; names after `--` select some: `open`, `closed`,
//! `lambda`, `zipf`, `items`, `shapes`. It exits with 1 if a row misses a bound.

#![expect(clippy::print_stdout, reason = "the tables are the product of a benchmark")]

use std::process::ExitCode;

use policy_grid::{
    Contender, Fleet, Items, Scenario, Summary, bursts, closed, day, doubling_of, hot_items, items,
    lambda, open, oracle_of, provisioned, ramp, run, run_all, zipf,
};

/// Keys of a cell where luck decides.
const KEYS: u64 = 20;
/// Keys of a cell of an opponent.
const OPPONENTS: u64 = 8;
/// Keys of a cell that the table cannot serve, and of the long ones.
const FEW_KEYS: u64 = 3;

fn main() -> ExitCode {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let tables: [(&str, Table); 6] = [
        ("open", open_loop),
        ("closed", closed_loop),
        ("lambda", on_lambda),
        ("zipf", many_keys),
        ("items", items_and_limits),
        ("shapes", shapes),
    ];
    let mut report = Report::default();
    for (name, table) in tables {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            println!("\n## {name}\n");
            table(&mut report);
        }
    }
    for miss in &report.missed {
        println!("missed: {miss}");
    }
    if report.missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures a table, and prints it.
type Table = fn(&mut Report);

/// The rows that miss a bound.
#[derive(Default)]
struct Report {
    missed: Vec<String>,
}

impl Report {
    /// Prints the figures of a cell, and the bounds that they miss.
    fn row(&mut self, cell: &str, figures: &str, bounds: &[(bool, &str)]) {
        let misses: Vec<_> = bounds.iter().filter(|(holds, _)| !holds).map(|row| row.1).collect();
        if misses.is_empty() {
            println!("{cell}: {figures}");
        } else {
            println!("{cell}: {figures}; MISSES {misses:?}");
            self.missed.push(format!("{cell}: {misses:?}"));
        }
    }
}

/// A step from nothing to a demand, from 200 services, on a table of known partitions.
fn open_loop(report: &mut Report) {
    for demand in [2_000.0, 5_000.0, 20_000.0, 50_000.0] {
        for partitions in [4, 8, 20, 64, 200, 1_000] {
            // The table has room for the demand at all.
            let serves = demand / 1_000.0 < 0.75 * f64::from(partitions);
            let (seconds, keys) = if serves { (30, KEYS) } else { (60, FEW_KEYS) };
            let scenario = open(demand, partitions, seconds);
            let ours = Summary::of(&scenario, keys);
            let oracle = Summary::of(&oracle_of(&scenario, demand), keys.min(OPPONENTS));
            let doubling = Summary::of(&doubling_of(&scenario), FEW_KEYS);
            let figures = format!("{ours} / {oracle} / {doubling}");
            let best = doubling.mean_accepted().max(oracle.mean_accepted() - 0.01);
            let bounds = if serves {
                let widest = 1.6 * f64::from(oracle.median_width());
                vec![
                    (ours.mean_accepted() >= best, "accepted by all"),
                    (ours.mean_relief() <= oracle.mean_relief() + 3.0, "mean relief"),
                    (ours.longest_relief() <= 15.0, "longest relief"),
                    (ours.least_accepted() >= 0.999, "accepted"),
                    (f64::from(ours.median_width()) <= widest, "shards"),
                ]
            } else {
                let is_reported = ours.short_after.iter().all(|at| at.is_some_and(|at| at <= 30.0));
                vec![
                    (ours.mean_accepted() >= best, "accepted"),
                    (is_reported, "shortage is not reported"),
                ]
            };
            report.row(&format!("{demand} on {partitions}"), &figures, &bounds);
        }
    }
}

/// Clients that wait.
fn closed_loop(report: &mut Report) {
    for clients in [40, 400, 4_000] {
        for partitions in [20, 64, 1_000] {
            for is_lambda in [false, true] {
                let (scenario, demand) = closed(clients, partitions, is_lambda);
                let ours = Summary::of(&scenario, FEW_KEYS);
                let oracle = Summary::of(&oracle_of(&scenario, demand), FEW_KEYS);
                let of = f64::from(scenario.scale);
                let fleet = if is_lambda { "Lambda" } else { "one process" };
                let figures = format!(
                    "{:.0} of {demand:.0}/s, {} shards / {:.0}/s, {} shards",
                    ours.late_rate * of,
                    ours.median_width(),
                    oracle.late_rate * of,
                    oracle.median_width(),
                );
                let bounds = [(ours.late_rate >= 0.97 * oracle.late_rate, "rate")];
                let cell = format!("{clients} clients on {partitions}, {fleet}");
                report.row(&cell, &figures, &bounds);
            }
        }
    }
}

/// An open load on Lambda, by the longest time that a write repeats.
fn on_lambda(report: &mut Report) {
    for demand in [5_000.0, 20_000.0] {
        for instances in [1_000, 10_000] {
            for partitions in [64, 1_000] {
                let scenario = lambda(demand, instances, partitions);
                let ours = Summary::of(&scenario, FEW_KEYS);
                let patient = Scenario { throttled_for: policy_grid::PATIENCE, ..scenario.clone() };
                let patient = Summary::of(&patient, FEW_KEYS);
                let oracle = Summary::of(&oracle_of(&scenario, demand), FEW_KEYS);
                let figures = format!("{ours} / repeats 10 s: {patient} / oracle {oracle}");
                let bounds = [
                    (ours.least_accepted() >= 0.995, "accepted"),
                    (ours.longest_relief() <= 20.0, "relief"),
                ];
                let cell = format!("{demand} on {partitions}, {instances} instances");
                report.row(&cell, &figures, &bounds);
            }
        }
    }
}

/// Many keys that together fill 90 % of a table.
fn many_keys(report: &mut Report) {
    for keys in [100, 1_000] {
        for exponent in [0.8, 1.1] {
            let scenario = zipf(keys, exponent, 64, 0.9);
            let both = [Contender::Ours, Contender::Once(1)]
                .map(|contender| Scenario { contender, ..scenario.clone() });
            let runs = run_all(&both);
            let [ours, fixed] = &runs[..] else { continue };
            let rate = |units: f64| units * f64::from(scenario.scale) / f64::from(scenario.seconds);
            let cold: Vec<u32> =
                ours.keys.iter().filter(|key| rate(key.0) < 250.0).map(|key| key.1).collect();
            let grown = cold.iter().filter(|width| **width > 1).count();
            let widest = cold.iter().copied().max().unwrap_or(1);
            let figures = format!(
                "{:.2} % (one shard each: {:.2} %); {} keys grew; of {} cold ones {grown}, to at most {widest} shards",
                ours.accepted() * 100.0,
                fixed.accepted() * 100.0,
                ours.keys.iter().filter(|key| key.1 > 1).count(),
                cold.len(),
            );
            let bounds = [
                (grown as f64 <= 0.02 * cold.len() as f64, "cold keys grow"),
                (widest <= 2, "a cold key is wide"),
            ];
            report.row(&format!("{keys} keys, s = {exponent}"), &figures, &bounds);
        }
    }
}

/// Few hot items, large items, and provisioned tables.
fn items_and_limits(report: &mut Report) {
    for (count, demand) in [(3, 6_000.0), (8, 5_000.0), (20, 5_000.0), (100, 5_000.0)] {
        let ours = Summary::of(&hot_items(count, demand), FEW_KEYS);
        let is_few = count <= 8;
        let is_reported = ours.hot_items_after.iter().all(Option::is_some);
        let widest = ours.widths.last().copied().unwrap_or(1);
        let reported = ours.hot_items_after.iter().flatten().count();
        let bounds = [(!is_few || widest <= 8, "shards"), (!is_few || is_reported, "reported")];
        let figures = format!("{ours}; hot items reported for {reported} of {FEW_KEYS} keys");
        report.row(&format!("{count} items at {demand}"), &figures, &bounds);
    }
    for size in [Items::Kilobytes(4), Items::Kilobytes(20), Items::Kilobytes(100), Items::Mixed] {
        for partitions in [64, 1_000] {
            let ours = Summary::of(&items(size, partitions), FEW_KEYS);
            let bounds = [(ours.least_accepted() >= 0.995, "accepted")];
            let cell = format!("10000 in {size:?} on {partitions}");
            report.row(&cell, &ours.to_string(), &bounds);
        }
    }
    for share in [100.0, 200.0, 500.0] {
        let scenario = provisioned(share);
        let ours = Summary::of(&scenario, 2);
        let doubling = Summary::of(&doubling_of(&scenario), 2);
        let bounds = [(ours.mean_accepted() >= doubling.mean_accepted() - 0.0005, "accepted")];
        let cell = format!("3000 on 20 provisioned partitions of {share}, unknown");
        report.row(&cell, &format!("{ours} / doubling {doubling}"), &bounds);
    }
}

/// Loads that change, and fleets of other sizes.
fn shapes(report: &mut Report) {
    for partitions in [64, 1_000] {
        let cells = [
            ("doubles each minute, 500 to 40000", ramp(partitions), 0.985),
            ("a day in 12 minutes, 300 to 15000", day(partitions), 0.985),
            ("20 s of 20000 every 2 minutes", bursts(20_000.0, partitions), 0.985),
        ];
        for (name, scenario, least) in cells {
            let outcome = run(&scenario);
            let figures = format!(
                "{:.2} %, {} changes, {} shards",
                outcome.accepted() * 100.0,
                outcome.changes.len(),
                outcome.width()
            );
            let bounds = [(outcome.accepted() >= least, "accepted")];
            report.row(&format!("{name}, on {partitions}"), &figures, &bounds);
        }
    }
    for (name, fleet) in
        [("one process", Fleet::Shared(1)), ("10,000 services", Fleet::Shared(10_000))]
    {
        let scenario = Scenario { fleet, ..open(10_000.0, 64, 40) };
        let ours = Summary::of(&scenario, FEW_KEYS);
        let bounds = [(ours.least_accepted() >= 0.995, "accepted")];
        report.row(&format!("10000 on 64 from {name}"), &ours.to_string(), &bounds);
    }
}
