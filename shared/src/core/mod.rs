//! The pure core: no IO, no clock, no randomness. Callers pass time and random values in as
//! arguments, and the core returns its decisions as values.
//!
//! - Requests and items: `capacity`, `content`, `cursor`, `idempotency`, `key`, `merge`, `number`,
//!   `patch`, `query`, `spacing`, `tag`, `value`.
//! - Where items are stored: `placement`, `survey`.
//! - The number of shards of a key: `pressure` and `load` (observations), `policy` and
//!   `known_partitions` (the rules), `decision` (their result), `doubt` and `growth` (whether more
//!   shards help), `sizing`, `collisions` and `throughput` (the table's partitions).

pub(crate) mod capacity;
pub mod collisions;
pub(crate) mod content;
pub mod cursor;
pub(crate) mod decision;
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
