#![doc = include_str!("../README.md")]

mod client;
mod config;
mod core;
mod environment;
#[doc(hidden)]
pub mod internal;
#[doc(hidden)]
mod protocol;
pub mod request;
mod sharded_table;
pub mod stream;
mod table;
mod telemetry;

pub use client::ShardedTable;
pub use client::content::Attributes;
pub use client::entry::{Entry, Page, Tagged, Updated, Written};
pub use client::error::{InvalidRequest, ReadError, WriteError, WriteErrorKind};
pub use config::{ConfigError, TableConfig, Writes};
pub use core::key::{KeyError, PartitionKey, SortKey, SortKeyType};
pub use core::number::{Number, NumberError};
pub use core::placement::Placement;
pub use core::query::Order;
pub use core::tag::ItemTag;
pub use core::value::Value;
