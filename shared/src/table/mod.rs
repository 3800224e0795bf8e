//! Table access: the only place that names the SDK.

pub(crate) mod attributes;
mod condition;
mod drain;
pub(crate) mod error;
mod items;
mod metadata;
mod point_writes;
mod scan;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;

use crate::config::TableConfig;

pub(crate) use drain::{Moved, StoredCopy};
pub(crate) use items::{FoundCopy, GetTarget, ShardQueryPage, newer};
pub(crate) use metadata::{ATTRIBUTES as METADATA_ATTRIBUTES, MetadataUpdate, RawMetadata};
pub(crate) use point_writes::{LeaseLasts, NewItem, PointAnswer, PointTarget};
pub use scan::ScanPosition;

/// The longest that one attempt of one request may take.
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// The two tables of one sharded table.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    client: Client,
    config: Arc<TableConfig>,
}

impl Tables {
    /// The client's own retries are switched off: they hide throttles, which are the signal to scale, and eat seconds.
    /// What may be retried is retried where the deadline is known.
    pub(crate) fn new(client: &Client, config: Arc<TableConfig>) -> Self {
        let own = client
            .config()
            .to_builder()
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build())
            .build();
        Self { client: Client::from_conf(own), config }
    }
}
