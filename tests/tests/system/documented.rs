//! Checks that the documents show the measured numbers.

const COSTS: &str = include_str!("../../../docs/costs.md");

/// Prints a row of a table, and fails unless `docs/costs.md` has it.
#[track_caller]
#[expect(clippy::print_stdout, reason = "the rows are what the test is run for by hand")]
pub(crate) fn documented(row: &str) {
    println!("{row}");
    assert!(COSTS.lines().any(|line| line == row), "docs/costs.md does not have this row:\n{row}");
}
