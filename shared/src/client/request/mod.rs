//! The requests that the verbs of [`ShardedTable`] return, one type for each verb. `.await` sends a
//! request.
//!
//! Each request has a span of `tracing`, at the level `INFO`: `sharding_request`, with the
//! `operation`, which is the name of the verb, and the name of the main `table`. It has no key, and
//! nothing of an item. Of a stream, each page has a span, and of `batch_put`, `batch_delete` and
//! `batch_get` each item.
//!
//! ```
//! # mod in_process { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/in_process/mod.rs")); }
//! # in_process::with_table(async |table| {
//! use std::time::Duration;
//! use dynamodb_write_sharding::Attributes;
//!
//! let put =
//!     table.put("2014-07-09", "order-1147", Attributes::new()).timeout(Duration::from_secs(1));
//! let written = tokio::spawn(put.into_future()).await??;
//! assert_eq!(written.attempts, 1);
//! # Ok(()) });
//! ```

mod batch_write;
mod get;
mod query;
mod write;

use futures_util::future::BoxFuture;
use tracing::Span;

pub use crate::client::content::{FromValue, IntoValue};
pub use batch_write::BatchWrite;
pub(crate) use batch_write::Single;
pub use get::{BatchGet, Get};
pub use query::Query;
pub use write::{Append, Create, Delete, Put, Update};

use crate::client::ShardedTable;
use crate::client::content::item_attributes;
use crate::config::TableConfig;
use crate::engine::Within;
use crate::engine::error::InvalidRequest;
use crate::values::key::{IntoKey, KeyError, PartitionKey, SortKey, SortKeyType};
use crate::values::value::Item;

const BATCH_CONCURRENCY: usize = 64;

fn span(operation: &'static str, table: &ShardedTable) -> Span {
    tracing::info_span!("sharding_request", operation, table = table.config().table_name.as_str())
}

macro_rules! within {
    ($request:ident $(<$of:tt>)?) => {
        impl $(<$of>)? $request $(<$of>)? {
            /// The time limit of the request, from the `.await` on. The default is
            /// [`TableConfig::timeout`](crate::TableConfig::timeout).
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.within = crate::engine::Within::Timeout(timeout);
                self
            }

            /// The instant by which the request must have ended, from `std` or from tokio.
            pub fn deadline(mut self, deadline: impl Into<tokio::time::Instant>) -> Self {
                self.within = crate::engine::Within::Deadline(deadline.into());
                self
            }
        }
    };
}
pub(in crate::client) use within;

/// `.await` sends the request with its `send`, in the span of this operation and within its time
/// limit.
macro_rules! sent_as {
    ($request:ident $(<$of:ident>)?, $operation:literal, $output:ty) => {
        crate::client::request::within!($request $(<$of>)?);

        impl $(<$of: crate::client::content::FromValue + 'static>)? IntoFuture
            for $request $(<$of>)?
        {
            type Output = $output;
            type IntoFuture = crate::client::request::BoxFuture<'static, Self::Output>;

            fn into_future(self) -> Self::IntoFuture {
                let span = crate::client::request::span($operation, &self.table);
                let sent = async move {
                    let deadline = self.within.deadline(self.table.config());
                    self.send(deadline).await
                };
                Box::pin(tracing::Instrument::instrument(sent, span))
            }
        }
    };
}
pub(in crate::client) use sent_as;

/// The keys of one item, checked against the table's configuration.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    partition_key: PartitionKey,
    sort_key: SortKey,
}

pub(crate) fn target(
    config: &TableConfig,
    key: impl IntoKey,
    sort_key: impl IntoKey<SortKey>,
) -> Result<Target, InvalidRequest> {
    let partition_key = partition_key(config, key)?;
    Ok(Target { partition_key, sort_key: own_sort_key("sort key", config, sort_key)? })
}

/// An item to store, with its keys.
pub(crate) fn item(
    config: &TableConfig,
    key: impl IntoKey,
    sort_key: impl IntoKey<SortKey>,
    item: impl IntoValue,
) -> Result<Item, InvalidRequest> {
    let Target { partition_key, sort_key } = target(config, key, sort_key)?;
    Ok(Item { partition_key, sort_key, attributes: item_attributes(config, item)? })
}

/// A key whose longest shard key also fits.
fn partition_key(config: &TableConfig, key: impl IntoKey) -> Result<PartitionKey, InvalidRequest> {
    config.partition_key(key).map_err(|error| InvalidRequest::of("partition key", error))
}

/// A sort key of the table's type. In a table with numeric sort keys, text is parsed as a number.
fn own_sort_key(
    what: &str,
    config: &TableConfig,
    key: impl IntoKey<SortKey>,
) -> Result<SortKey, InvalidRequest> {
    let own = key.into_key().and_then(|key| match (config.sort_key_type, key) {
        (SortKeyType::Number, SortKey::String(text)) => SortKey::parse(SortKeyType::Number, &text),
        (SortKeyType::String, SortKey::Number(_)) => Err(KeyError::NotAString),
        (SortKeyType::String | SortKeyType::Number, key) => Ok(key),
    });
    own.map_err(|error| InvalidRequest::of(what, error))
}
