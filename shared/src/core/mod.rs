//! The pure core: no IO, no clock, no randomness. Time and chance come in as arguments, decisions go out as values.

pub(crate) mod capacity;
pub mod collisions;
pub(crate) mod content;
pub mod cursor;
pub(crate) mod doubt;
pub(crate) mod growth;
pub(crate) mod idempotency;
pub(crate) mod key;
pub(crate) mod load;
pub(crate) mod merge;
pub(crate) mod number;
pub(crate) mod patch;
pub(crate) mod placement;
pub(crate) mod policy;
pub(crate) mod pressure;
pub(crate) mod query;
pub(crate) mod sizing;
pub(crate) mod spacing;
pub(crate) mod survey;
pub(crate) mod tag;
pub(crate) mod throughput;
pub(crate) mod value;
