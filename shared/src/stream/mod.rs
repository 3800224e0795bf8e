//! Decodes the table's stream: each change by a user, once, without the product's own operations.
//!
//! The stream of a sharded table contains more than its users' changes. A drain copies items to
//! another shard and removes the originals. Deletions leave tombstones, which are removed later.
//! Some records are equal although they mean different things: the removal by a user's deletion is,
//! byte for byte, the removal of an original by a drain. The difference is where the item's home
//! was at that time. So a record is decoded in two steps:
//!
//! 1. [`StreamDecoder::read`] parses the record, in either format that Lambda delivers: DynamoDB
//!    Streams, or a Kinesis data stream.
//! 2. [`StreamDecoder::decode`] decides its meaning from the [`WidthHistory`] of its partition key:
//!    the widths of the key, each with its start. They come from the key's metadata item, and may
//!    be cached for some minutes.
//!
//! A precision of minutes is enough, because no drain moves anything in the first quarter of an
//! hour of an era. So a record is judged by the era of half that time before it (eight minutes,
//! [`WidthHistory`]). By then every move of that era is certainly a move, and clocks may differ by
//! minutes.
//!
//! Streams deliver at least once, and in order only within each stored key. An item's changes in
//! different eras may be under different stored keys. [`Change::position`] orders an item's changes
//! in any order of arrival, and [`ChangeTracker`] detects repeated and late changes in memory.
//! [docs/streams.md]
//!
//! Everything here is pure: JSON values go in, changes come out.

mod change;
mod decode;
mod error;
mod json;
mod position;
mod record;
#[cfg(test)]
mod tests;
mod tracker;
mod widths;

pub use change::{Change, ChangeKind, Decoded, Doubt, Internal};
pub use decode::StreamDecoder;
pub use error::StreamError;
pub use position::Position;
pub use record::{Reading, StreamRecord, failed_items, item_identifier};
pub use tracker::{ChangeTracker, Tracked};
pub use widths::WidthHistory;
