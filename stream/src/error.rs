//! Why a record cannot be decoded.

/// Why a record of a stream, or its key's metadata, cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// A field is missing or has an invalid value. Another attempt fails in the same way: set the
    /// record aside.
    #[error("{field} {problem}")]
    Field {
        /// The path in the record, for example `dynamodb.NewImage._sh:v`.
        field: String,
        /// The problem, and the expected value.
        problem: String,
    },
    /// The record is younger than the known state of its key. Read the key's metadata item again,
    /// strongly consistent, and decode again.
    #[error(
        "the record is of epoch second {at}, and its key's widths of {read_at}: read them again"
    )]
    WidthsTooOld {
        /// Epoch seconds of the record.
        at: u64,
        /// Epoch seconds at which the widths were read.
        read_at: u64,
    },
}

impl StreamError {
    pub(crate) fn field(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { field: field.into(), problem: problem.into() }
    }
}
