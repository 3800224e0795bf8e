//! Standard output, progress bars and exit codes.
#![expect(clippy::print_stderr, reason = "a command-line program prints errors there")]

use std::error::Error;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use indicatif::ProgressStyle;

/// Prints a command's result. A pipe that the reader closes early (`| head`) is not an error.
///
/// # Errors
/// Standard output cannot be written.
pub fn write_out(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Returns the exit code of a command, and prints its error to standard error.
pub fn exit_code(result: Result<ExitCode, Box<dyn Error>>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// Returns success if all is done, and failure otherwise.
pub fn success_if(all_done: bool) -> ExitCode {
    if all_done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The style of a progress bar, from a template of `indicatif`.
pub fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A table whose first column has names, and whose other columns have numbers.
pub fn table(names: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(names);
    for column in 1..names.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
