//! The tables of the scaling policy. Each row ends with the bounds that it misses.
//!
//! `cargo bench -p policy-grid` prints all; names after `--` select some: `open`, `closed`,
//! `lambda`, `zipf`, `items`, `shapes`. It exits with 1 if a row misses a bound.

#![expect(clippy::print_stdout, reason = "the tables are the product of a benchmark")]

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use policy_grid::{
    Fleet, Items, Scenario, Summary, bursts, closed, day, doubling_of, hot_items, items, lambda,
    open, oracle_of, provisioned, ramp, run, short, zipf,
};

/// Keys of a cell where luck decides.
const KEYS: u64 = 20;
/// Keys of a cell where it decides less.
const SOME_KEYS: u64 = 8;
/// Keys of an opponent that knows or does the same for all.
const OPPONENTS: u64 = 4;
/// Keys of a cell where all are alike.
const FEW_KEYS: u64 = 2;

#[expect(clippy::disallowed_methods, reason = "it says how long the whole takes")]
fn main() -> ExitCode {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let tables: [(&'static str, Vec<Cell>); 6] = [
        ("open", open_loop()),
        ("closed", closed_loop()),
        ("lambda", on_lambda()),
        ("zipf", many_keys()),
        ("items", items_and_limits()),
        ("shapes", shapes()),
    ];
    let mut cells = Vec::new();
    for (name, table) in tables {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            cells.extend(table.into_iter().map(|cell| (name, cell)));
        }
    }
    let began = Instant::now();
    let missed = print_all(cells);
    println!("\ntook {:.0?}", began.elapsed());
    for miss in &missed {
        println!("missed: {miss}");
    }
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures a row.
type Cell = Box<dyn FnOnce() -> Row + Send>;

/// A cell with its figures, and the bounds that they miss.
struct Row {
    cell: String,
    figures: String,
    misses: Vec<&'static str>,
}

impl Row {
    fn new(cell: String, figures: String, bounds: &[(bool, &'static str)]) -> Self {
        let misses = bounds.iter().filter(|(holds, _)| !holds).map(|bound| bound.1).collect();
        Self { cell, figures, misses }
    }
}

/// Rows that are printed in their order, each as soon as those before it are.
#[derive(Default)]
struct Report {
    waiting: Vec<Option<Row>>,
    printed: usize,
    missed: Vec<String>,
}

/// Measures cells, each with the name of its table, on all cores. Returns the rows that miss a
/// bound.
fn print_all(cells: Vec<(&'static str, Cell)>) -> Vec<String> {
    let names: Vec<&str> = cells.iter().map(|(name, _)| *name).collect();
    let waiting = cells.iter().map(|_| None).collect();
    let report = Mutex::new(Report { waiting, ..Report::default() });
    let left = Mutex::new(cells.into_iter().enumerate());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((index, (_, cell))) = next else { return };
                    let row = cell();
                    report.lock().unwrap_or_else(PoisonError::into_inner).add(index, row, &names);
                }
            });
        }
    });
    report.into_inner().unwrap_or_else(PoisonError::into_inner).missed
}

impl Report {
    fn add(&mut self, index: usize, row: Row, names: &[&str]) {
        self.waiting[index] = Some(row);
        while let Some(row) = self.waiting.get_mut(self.printed).and_then(Option::take) {
            if self.printed == 0 || names[self.printed] != names[self.printed - 1] {
                println!("\n## {}\n", names[self.printed]);
            }
            self.printed += 1;
            let Row { cell, figures, misses } = row;
            if misses.is_empty() {
                println!("{cell}: {figures}");
            } else {
                println!("{cell}: {figures}; MISSES {misses:?}");
                self.missed.push(format!("{cell}: {misses:?}"));
            }
        }
    }
}

/// A step from nothing to a demand, from 200 services, on a table of known partitions.
fn open_loop() -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for demand in [50_000.0, 20_000.0, 5_000.0, 2_000.0] {
        for partitions in [4, 8, 20, 64, 200, 1_000] {
            cells.push(Box::new(move || {
                // The table has room for the demand at all.
                if demand / 1_000.0 < 0.75 * f64::from(partitions) {
                    with_room(demand, partitions)
                } else {
                    without_room(demand, partitions)
                }
            }));
        }
    }
    cells
}

fn with_room(demand: f64, partitions: u32) -> Row {
    let (mut scenario, mut keys) = (open(demand, partitions), KEYS);
    if demand > 40_000.0 && partitions < 1_000 {
        // A partition takes three of 200 shards, and one of twenty keys can be served.
        keys = FEW_KEYS;
        scenario.scale *= 2;
    }
    let ours = Summary::of(&scenario, keys);
    let oracle = Summary::of(&oracle_of(&scenario, demand), keys.min(OPPONENTS));
    let doubling = Summary::of(&doubling_of(&scenario), 1);
    let widest = 1.6 * f64::from(oracle.median_width());
    let bounds = [
        (accepts_the_best(&ours, &oracle, &doubling), "accepted by all"),
        (ours.mean_relief() <= oracle.mean_relief() + 3.0, "mean relief"),
        (ours.longest_relief() <= 15.0, "longest relief"),
        (ours.least_accepted() >= 0.999, "accepted"),
        (f64::from(ours.median_width()) <= widest, "shards"),
    ];
    let cell = format!("{demand} on {partitions}");
    Row::new(cell, format!("{ours} / {oracle} / {doubling}"), &bounds)
}

fn without_room(demand: f64, partitions: u32) -> Row {
    // Of a table that takes half of the demand, all keys are alike.
    let keys = match demand / 1_000.0 / f64::from(partitions) {
        ..1.2 => SOME_KEYS,
        ..1.5 => KEYS,
        _ => FEW_KEYS,
    };
    let scenario = short(demand, partitions);
    let ours = Summary::of(&scenario, keys);
    let oracle = Summary::of(&oracle_of(&scenario, demand), keys);
    let doubling = Summary::of(&doubling_of(&scenario), 1);
    let is_reported = ours.short_after.iter().all(|at| at.is_some_and(|at| at <= 30.0));
    let bounds = [
        (accepts_the_best(&ours, &oracle, &doubling), "accepted"),
        (is_reported, "shortage is not reported"),
    ];
    let cell = format!("{demand} on {partitions}");
    Row::new(cell, format!("{ours} / {oracle} / {doubling}"), &bounds)
}

fn accepts_the_best(ours: &Summary, oracle: &Summary, doubling: &Summary) -> bool {
    ours.mean_accepted() >= doubling.mean_accepted().max(oracle.mean_accepted() - 0.01)
}

/// Clients that wait.
fn closed_loop() -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for clients in [4_000, 400, 40] {
        for partitions in [20, 64, 1_000] {
            for is_lambda in [true, false] {
                cells.push(Box::new(move || waiting(clients, partitions, is_lambda)));
            }
        }
    }
    cells
}

fn waiting(clients: u32, partitions: u32, is_lambda: bool) -> Row {
    let (scenario, demand) = closed(clients, partitions, is_lambda);
    let keys = match (clients, partitions, is_lambda) {
        (400.., 20, true) => SOME_KEYS,
        (400.., 20, false) => KEYS,
        _ => FEW_KEYS,
    };
    let ours = Summary::of(&scenario, keys);
    let oracle = Summary::of(&oracle_of(&scenario, demand), keys);
    let of = f64::from(scenario.scale);
    let figures = format!(
        "{:.0} of {demand:.0}/s, {} shards / {:.0}/s, {} shards",
        ours.late_rate * of,
        ours.median_width(),
        oracle.late_rate * of,
        oracle.median_width(),
    );
    let fleet = if is_lambda { "Lambda" } else { "one process" };
    let cell = format!("{clients} clients on {partitions}, {fleet}");
    Row::new(cell, figures, &[(ours.late_rate >= 0.97 * oracle.late_rate, "rate")])
}

/// An open load on Lambda.
fn on_lambda() -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for demand in [20_000.0, 5_000.0] {
        for partitions in [64, 1_000] {
            for instances in [1_000, 10_000] {
                cells.push(Box::new(move || one_at_a_time(demand, instances, partitions)));
            }
        }
    }
    cells
}

fn one_at_a_time(demand: f64, instances: u32, partitions: u32) -> Row {
    let scenario = lambda(demand, instances, partitions);
    let is_tight = demand > 10_000.0 && partitions == 64;
    let ours = Summary::of(&scenario, if is_tight { KEYS } else { FEW_KEYS });
    let oracle = Summary::of(&oracle_of(&scenario, demand), FEW_KEYS);
    let mut figures = format!("{ours} / {oracle}");
    if is_tight {
        // A writer that repeats a write as long as its caller waits.
        let patient = Scenario { throttled_for: policy_grid::PATIENCE, ..scenario };
        figures += &format!(" / repeats 10 s: {}", Summary::of(&patient, FEW_KEYS));
    }
    let bounds =
        [(ours.least_accepted() >= 0.995, "accepted"), (ours.longest_relief() <= 20.0, "relief")];
    let cell = format!("{demand} on {partitions}, {instances} instances");
    Row::new(cell, figures, &bounds)
}

/// Many keys that together fill 90 % of a table.
fn many_keys() -> Vec<Cell> {
    [(100, 0.8), (100, 1.1), (1_000, 0.8), (1_000, 1.1)]
        .map(|(keys, exponent)| -> Cell { Box::new(move || of_zipf(keys, exponent)) })
        .into()
}

fn of_zipf(keys: u32, exponent: f64) -> Row {
    let scenario = zipf(keys, exponent, 64, 0.9);
    let outcome = run(&scenario);
    let accepted = outcome.accepted();
    let grown = outcome.keys.iter().filter(|key| key.1 > 1).count();
    let rate_of = |units: f64| units * f64::from(scenario.scale) / f64::from(scenario.seconds);
    let is_cold = |key: &&(f64, u32)| rate_of(key.0) < 250.0;
    let cold: Vec<u32> = outcome.keys.iter().filter(is_cold).map(|key| key.1).collect();
    let cold_grown = cold.iter().filter(|width| **width > 1).count();
    let widest = cold.iter().copied().max().unwrap_or(1);
    let figures = format!(
        "{:.2} %; {grown} keys grew; of {} cold ones {cold_grown}, to at most {widest} shards",
        accepted * 100.0,
        cold.len(),
    );
    let bounds = [
        // A point less than the lowest of the four when the bound was set.
        (accepted >= 0.976, "accepted"),
        (cold_grown as f64 <= 0.02 * cold.len() as f64, "cold keys grow"),
        (widest <= 2, "a cold key is wide"),
    ];
    Row::new(format!("{keys} keys, s = {exponent}"), figures, &bounds)
}

/// Few hot items, large items, and provisioned tables.
fn items_and_limits() -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for (share, keys) in [(200.0, KEYS), (100.0, 1), (500.0, FEW_KEYS)] {
        cells.push(Box::new(move || of_provisioned(share, keys)));
    }
    for (count, demand) in [(3, 6_000.0), (8, 5_000.0), (20, 5_000.0), (100, 5_000.0)] {
        cells.push(Box::new(move || of_hot_items(count, demand)));
    }
    for size in [Items::Kilobytes(4), Items::Kilobytes(20), Items::Kilobytes(100), Items::Mixed] {
        for partitions in [64, 1_000] {
            cells.push(Box::new(move || {
                let ours = Summary::of(&items(size, partitions), FEW_KEYS);
                let cell = format!("10000 in {size:?} on {partitions}");
                Row::new(cell, ours.to_string(), &[(ours.least_accepted() >= 0.995, "accepted")])
            }));
        }
    }
    cells
}

fn of_provisioned(share: f64, keys: u64) -> Row {
    let scenario = provisioned(share);
    let ours = Summary::of(&scenario, keys);
    let doubling = Summary::of(&doubling_of(&scenario), keys);
    let bounds = [(ours.mean_accepted() >= doubling.mean_accepted() - 0.0005, "accepted")];
    let cell = format!("3000 on 20 provisioned partitions of {share}, unknown");
    Row::new(cell, format!("{ours} / doubling {doubling}"), &bounds)
}

fn of_hot_items(count: u32, demand: f64) -> Row {
    let ours = Summary::of(&hot_items(count, demand), FEW_KEYS);
    let is_few = count <= 8;
    let is_reported = ours.hot_items_after.iter().all(Option::is_some);
    let widest = ours.widths.last().copied().unwrap_or(1);
    let reported = ours.hot_items_after.iter().flatten().count();
    let bounds = [(!is_few || widest <= 8, "shards"), (!is_few || is_reported, "reported")];
    let figures = format!("{ours}; hot items reported for {reported} of {FEW_KEYS} keys");
    Row::new(format!("{count} items at {demand}"), figures, &bounds)
}

/// Loads that change, and fleets of other sizes.
fn shapes() -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for (name, fleet) in
        [("one process", Fleet::Shared(1)), ("10,000 services", Fleet::Shared(10_000))]
    {
        cells.push(Box::new(move || {
            let ours = Summary::of(&Scenario { fleet, scale: 10, ..open(10_000.0, 64) }, FEW_KEYS);
            let bounds = [(ours.least_accepted() >= 0.995, "accepted")];
            Row::new(format!("10000 on 64 from {name}"), ours.to_string(), &bounds)
        }));
    }
    for partitions in [64, 1_000] {
        for (name, scenario) in [
            ("a day in 12 minutes, 300 to 15000", day(partitions)),
            ("doubles each minute, 500 to 40000", ramp(partitions)),
            ("20 s of 20000 every 2 minutes", bursts(20_000.0, partitions)),
        ] {
            cells.push(Box::new(move || {
                let outcome = run(&scenario);
                let (accepted, changes) = (outcome.accepted(), outcome.changes.len());
                let shards = outcome.width();
                let figures =
                    format!("{:.2} %, {changes} changes, {shards} shards", accepted * 100.0);
                let bounds = [(accepted >= 0.985, "accepted")];
                Row::new(format!("{name}, on {partitions}"), figures, &bounds)
            }));
        }
    }
    cells
}
