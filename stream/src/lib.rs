#![doc = include_str!("../README.md")]

mod change;
mod decode;
mod error;
mod record;
#[cfg(test)]
mod tests;
mod width_history;

pub use change::{Change, ChangeKind, Decoded, Position};
pub use decode::StreamDecoder;
pub use error::StreamError;
pub use record::{StreamRecord, failed_items, item_identifier};
pub use sharding_core::{
    Attributes, Item, PartitionKey, Placement, SortKey, SortKeyType, TableConfig, Value, Version,
    WidthHistory, Writes,
};
pub use width_history::width_history;
