//! The report of a command, for people.

use std::fmt;

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
    pub(crate) fn table(&mut self, table: &impl fmt::Display, note: &str) {
        self.text(format!("{table}\n{note}").trim_end());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.0.join("\n\n"))
    }
}
