//! One line of a file, of either format.

use std::borrow::Cow;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scalar<'a> {
    pub(super) text: Cow<'a, str>,
    /// Whether it is a JSON number. CSV has only texts.
    pub(super) is_number: bool,
}

/// A line's wanted fields, in the order in which they were requested.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) line: u64,
    pub(super) values: Vec<Scalar<'a>>,
    /// The length of the JSON text, or of all names and values of a CSV record.
    pub(super) bytes: u64,
}
