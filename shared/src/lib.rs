#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(feature = "client"),
    expect(dead_code, reason = "the client uses the rest of the core")
)]

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod config;
mod core;
#[cfg(feature = "client")]
mod environment;
#[doc(hidden)]
pub mod internal;
// Hidden: its types are public only for `internal`, and their fields need no documents.
#[doc(hidden)]
mod protocol;
#[cfg(feature = "client")]
pub mod request;
#[cfg(feature = "client")]
mod sharded_table;
#[cfg(feature = "client")]
pub mod stream;
#[cfg(feature = "client")]
mod table;
#[cfg(feature = "client")]
mod telemetry;

pub use crate::core::key::{KeyError, PartitionKey, SortKey, SortKeyType};
pub use crate::core::number::{Number, NumberError};
pub use crate::core::placement::Placement;
pub use crate::core::query::Order;
pub use crate::core::tag::ItemTag;
pub use crate::core::value::Value;
#[cfg(feature = "client")]
pub use client::ShardedTable;
#[cfg(feature = "client")]
pub use client::content::Attributes;
#[cfg(feature = "client")]
pub use client::entry::{Entry, Page, PutAllOutcome, Tagged, Updated, Written};
#[cfg(feature = "client")]
pub use client::error::{InvalidRequest, ReadError, WriteError, WriteErrorKind};
#[cfg(feature = "client")]
pub use config::{ConfigError, TableConfig, Writes};
