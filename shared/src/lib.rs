#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(feature = "client"),
    expect(dead_code, reason = "the client uses the rest of the core")
)]

#[cfg(feature = "client")]
mod client;
mod config;
#[cfg(feature = "client")]
mod engine;
#[doc(hidden)]
pub mod internal;
// Hidden: most of their types are public only for `internal`, and need no documents of each field.
#[doc(hidden)]
mod policy;
#[doc(hidden)]
mod protocol;
#[cfg(feature = "client")]
mod table;
mod values;
/// Tables of variables: that of [`TableConfig`], and what functions need for their own.
#[doc(hidden)]
pub mod variables {
    pub use crate::config::setting::{Setting, number, read};
    pub use crate::config::variables::TABLE;
}

pub use crate::policy::capacity::CapacityScope;
pub use crate::protocol::tag::{Conditions, ETag, ETags};
pub use crate::protocol::version::Version;
pub use crate::values::idempotency::{IdempotencyKey, IdempotencyKeyError};
pub use crate::values::key::{
    IntoKey, KeyError, PartitionKey, ShardCount, ShardNumber, SortKey, SortKeyType,
};
pub use crate::values::number::{Number, NumberError};
pub use crate::values::patch::{Merge, Patch, PatchError};
pub use crate::values::placement::Placement;
pub use crate::values::query::Order;
pub use crate::values::throughput::{PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, WarmThroughput};
pub use crate::values::value::{Attributes, Item, MAX_ITEM_BYTES, Value};
pub use config::width_history::WidthHistory;
pub use config::{ConfigError, DrainPace, ScalingActors, TableConfig, Writes};
#[cfg(feature = "client")]
pub use {
    client::entry::{BatchOutcome, Counted, Entry, Page, Versioned},
    client::{ShardedTable, maintenance, request},
    engine::error::{InvalidRequest, ReadError, WriteError, WriteErrorKind},
    engine::write::{Updated, Written},
    table::error::{Cause, TableError},
    table::tables::create_tables,
};
