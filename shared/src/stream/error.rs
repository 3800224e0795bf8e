//! Why a record cannot be decoded.

/// Why a record of a stream, or the metadata that it is judged by, cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// A field is missing, or has a value that it cannot have. Another attempt fails in the same way: set the record aside.
    #[error("{field} {problem}")]
    Field {
        /// Where it stands in the record, for example `dynamodb.NewImage._version.N`.
        field: String,
        /// What is wrong with it, and what is expected.
        problem: String,
    },
    /// The stream leaves out an image that decoding needs. Set the table's `StreamViewType` to `NEW_AND_OLD_IMAGES`.
    #[error(
        "dynamodb.StreamViewType is {view}, so the record has no {missing}: the stream must have NEW_AND_OLD_IMAGES"
    )]
    View {
        /// The stream's `StreamViewType`.
        view: String,
        /// The fields that are left out.
        missing: &'static str,
    },
    /// The record is younger than what is known of its key. Read the key's metadata item again, strongly consistent, and decode again.
    #[error("the record was made at {at}, and the widths of its key were read at {read_at}: read them again")]
    WidthsTooOld {
        /// Epoch seconds of the record.
        at: u64,
        /// Epoch seconds at which the widths were read.
        read_at: u64,
    },
}
