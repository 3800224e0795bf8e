#![doc = include_str!("../README.md")]

mod change;
mod decode;
mod error;
mod json;
mod record;
#[cfg(test)]
mod tests;
mod tracker;
mod width_history;

pub use change::{Ambiguity, Change, ChangeKind, Decoded, Internal, Position};
pub use decode::StreamDecoder;
pub use error::StreamError;
pub use record::{Reading, StreamRecord, failed_items, item_identifier};
pub use sharding_core::{
    Attributes, Item, PartitionKey, Placement, ShardNumber, SortKey, SortKeyType, TableConfig,
    Value, Version, WidthHistory, Writes,
};
pub use tracker::{ChangeTracker, Tracked};
pub use width_history::width_history;
