//! The report of a command, for people.

use std::fmt;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

/// What a command has found: sections, with an empty line between two.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<String>);

/// A line of a section: its name, which may be empty, and its text.
pub(crate) type Line = (&'static str, String);

impl Report {
    pub(crate) fn text(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }

    pub(crate) fn lines(&mut self, lines: impl IntoIterator<Item = Line>) {
        let lines = lines.into_iter().map(|(name, text)| format!("{name:<12}{text}"));
        self.text(lines.collect::<Vec<_>>().join("\n"));
    }

    /// Adds a table with a note below it, which may be empty.
    pub(crate) fn table(&mut self, table: &Table, note: &str) {
        self.text(format!("{table}\n{note}").trim_end());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.0.join("\n\n"))
    }
}

/// A table whose first column has names, and whose other columns have numbers.
pub(crate) fn table(names: &[&str]) -> Table {
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
