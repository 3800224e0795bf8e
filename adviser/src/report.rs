//! The report of a command: text for people, and the same figures as JSON for programs.

use std::fmt;

use clap::ValueEnum;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

/// What a command has found. Its text is the sections, with an empty line between two.
#[derive(Debug)]
pub(crate) struct Report {
    sections: Vec<String>,
    json: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people
    Text,
    /// One JSON object, for programs
    Json,
}

/// A line of a section: its name, which may be empty, and its text.
pub(crate) type Line = (&'static str, String);

impl Report {
    /// Creates a report with no section. All names of the figures are strings.
    pub(crate) fn of(figures: &impl Serialize) -> Self {
        let json = serde_json::to_string_pretty(figures).expect("names are strings");
        Self { sections: Vec::new(), json }
    }

    pub(crate) fn text(&mut self, text: impl Into<String>) {
        self.sections.push(text.into());
    }

    pub(crate) fn lines(&mut self, lines: impl IntoIterator<Item = Line>) {
        let lines = lines.into_iter().map(|(name, text)| format!("{name:<12}{text}"));
        self.text(lines.collect::<Vec<_>>().join("\n"));
    }

    /// Adds a table with a note below it, which may be empty.
    pub(crate) fn table(&mut self, table: &Table, note: &str) {
        self.text(format!("{table}\n{note}").trim_end());
    }

    /// Returns the report in a format, with a line break at its end.
    pub(crate) fn formatted(&self, format: OutputFormat) -> String {
        match format {
            OutputFormat::Text => self.to_string(),
            OutputFormat::Json => format!("{}\n", self.json),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.sections.join("\n\n"))
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
