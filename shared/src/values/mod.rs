//! Keys, items and what requests say of them, independent of metadata, tables and time.

pub(crate) mod content;
pub(crate) mod cursor;
#[cfg(feature = "dynamo")]
pub mod dynamo;
pub(crate) mod idempotency;
pub(crate) mod key;
pub(crate) mod number;
pub(crate) mod patch;
pub(crate) mod placement;
pub(crate) mod query;
pub(crate) mod spacing;
pub(crate) mod throughput;
pub(crate) mod value;
