//! The cost of sharding: writes, merge and placement, each compared in one run with its
//! alternative.
//!
//! `cargo bench -p system-tests --bench costs` prints all tables; a name after `--` selects one.
//! Valgrind counts instructions, if it is installed. Latencies are medians of calls that alternate
//! between the two sides.

#![expect(clippy::print_stdout, reason = "the tables are the product of a benchmark")]

mod never_grown;
mod pure;
mod writes;

use std::time::Duration;

/// The service time of a request over a network, in the latency tables.
const SERVICE_TIME: Duration = Duration::from_millis(3);

fn main() {
    // The benchmark starts itself under valgrind, which counts the instructions of one side.
    if system_tests::warm_write::run_side() {
        return;
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let runs = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    if runs("instructions") {
        writes::instructions();
    }
    if runs("writes") {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(writes::latency());
    }
    if runs("pure") {
        pure::merge();
        pure::placement();
    }
    if runs("never-grown") {
        never_grown::compare();
    }
}

/// The median of durations, in milliseconds.
fn median(mut durations: Vec<Duration>) -> f64 {
    durations.sort_unstable();
    durations.get(durations.len() / 2).map_or(f64::NAN, |middle| middle.as_secs_f64() * 1_000.0)
}
