#![doc = include_str!("../README.md")]

mod client;
mod config;
mod core;
mod environment;
#[doc(hidden)]
pub mod internal;
// Hidden: its types are public only for `internal`, and their fields need no documents.
#[doc(hidden)]
mod protocol;
pub mod request;
mod sharded_table;
pub mod stream;
mod table;
mod telemetry;

pub use crate::core::key::{KeyError, PartitionKey, SortKey, SortKeyType};
pub use crate::core::number::{Number, NumberError};
pub use crate::core::placement::Placement;
pub use crate::core::query::Order;
pub use crate::core::tag::ItemTag;
pub use crate::core::value::Value;
pub use client::ShardedTable;
pub use client::content::Attributes;
pub use client::entry::{Entry, Page, PutAllOutcome, Tagged, Updated, Written};
pub use client::error::{InvalidRequest, ReadError, WriteError, WriteErrorKind};
pub use config::{ConfigError, TableConfig, Writes};
