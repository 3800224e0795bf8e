//! The table's stream, decoded: each change that a user made, once, and nothing that the product does for itself.
//!
//! A stream of a sharded table carries more than its users' changes. A drain copies items to another shard and removes the originals;
//! deletions leave tombstones, which are removed later. And some records look alike whatever they mean: the removal that a user's
//! deletion leaves is, byte for byte, the removal of an original by a drain. What tells them apart is where the item's home was at
//! that time. So a record is decoded in two steps:
//!
//! 1. [`StreamDecoder::read`] reads the record, in either shape that Lambda delivers: of DynamoDB Streams, or of a Kinesis data stream.
//! 2. [`StreamDecoder::decode`] decides what it means, by the [`KeyWidths`] of its partition key: which widths the key has had, and since
//!    when. They come from the key's metadata item, and may be kept for some minutes.
//!
//! Why does a moment of some minutes decide, and not the exact instant of a change of the width? No drain moves anything in the first
//! quarter of an hour of an era. So a record is judged by the era that was in force half as long before it was made
//! (eight minutes, [`KeyWidths`]): by then every move of that era is certainly a move, and clocks may differ by minutes.
//!
//! Streams deliver at least once, and in order for each stored key only. An item's changes of different eras may stand under different
//! stored keys. [`Change::position`] orders an item's changes whatever order they come in, and [`ChangeTracker`] finds repeated
//! and late ones in memory. [docs/streams.md]
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
pub use widths::KeyWidths;
