//! Checks that the documents show the measured numbers.

/// Prints a row of a table, and fails unless the document has it.
#[track_caller]
#[expect(clippy::print_stdout, reason = "the rows are what the test is run for by hand")]
pub(crate) fn documented(document: &str, row: &str) {
    println!("{row}");
    assert!(document.lines().any(|line| line == row), "the documents do not have this row:\n{row}");
}
