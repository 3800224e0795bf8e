//! Table access. This is the only module that uses the SDK's operations.

pub(crate) mod attributes;
mod condition;
pub(crate) mod create;
mod drain;
pub(crate) mod error;
mod evidence;
mod items;
mod metadata;
mod metadata_item;
pub(crate) mod obstacles;
mod page;
mod scan;
mod table_item;
mod writes;

use std::collections::HashMap;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;

use crate::config::TableConfig;
use crate::values::key::{PartitionKey, ShardNumber, SortKey};
use attributes::SdkItem;
use condition::Expression;
use error::{Cause, TableError};

pub(crate) use attributes::Content;
pub(crate) use drain::StoredCopy;
pub(crate) use evidence::{Evidence, Pool, Together};
pub(crate) use items::{GetTarget, RawItem};
pub(crate) use metadata_item::RawMetadata;
pub(crate) use page::{PageCopy, StoredPage};
pub(crate) use scan::ScanPosition;
pub(crate) use table_item::{Mode, SHARED_SETTINGS, TABLE_KEY, TableItem};
pub(crate) use writes::{LeaseLasts, Place};

pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Sends a request. Boxed, so that the engine boxes none: the SDK's futures are large, and nest so
/// deeply that the compiler fails on futures that contain them.
fn sending<'a, T>(
    request: impl Future<Output = T> + Send + 'a,
) -> Pin<Box<dyn Future<Output = T> + Send + 'a>> {
    Box::pin(request)
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Table {
    Main,
    Metadata,
}

#[derive(Debug, Clone)]
pub(crate) struct Tables {
    client: Client,
    config: Arc<TableConfig>,
    /// Takes the puts of items instead of the main table.
    #[cfg(feature = "test-switches")]
    pub(crate) model: Option<Arc<dyn PartitionModel>>,
}

/// A model of the main table's partitions in place of the table, so that a measurement of the
/// scaling policy makes millions of writes: each passes the whole engine, and none is signed, sent
/// or stored. The metadata table stays real.
#[cfg(feature = "test-switches")]
pub trait PartitionModel: std::fmt::Debug + Send + Sync {
    /// A write of an item of this size under a stored key. `false` if its partition throttles it.
    fn write(&self, shard_key: String, units: u64) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}

impl Tables {
    /// The client's own retries are switched off. They hide throttles, which are the signal to
    /// scale, and they take seconds. Requests are retried where the deadline is known.
    pub(crate) fn new(client: &Client, config: Arc<TableConfig>) -> Self {
        let own = client
            .config()
            .to_builder()
            .retry_config(RetryConfig::disabled())
            .timeout_config(
                TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build(),
            )
            .build();
        Self {
            client: Client::from_conf(own),
            config,
            #[cfg(feature = "test-switches")]
            model: None,
        }
    }

    async fn get_item(
        &self,
        table: Table,
        key: SdkItem,
        consistent: bool,
    ) -> Result<Option<SdkItem>, TableError> {
        let get = self
            .client
            .get_item()
            .table_name(self.name(table))
            .set_key(Some(key))
            .consistent_read(consistent);
        Ok(self.ask(table, get.send()).await?.item)
    }

    fn name(&self, table: Table) -> &str {
        match table {
            Table::Main => &self.config.table_name,
            Table::Metadata => &self.config.metadata_table_name,
        }
    }

    /// Sends a request to a table, as [`sending`], and names the table in its error.
    fn ask<'a, T: 'a, E>(
        &'a self,
        table: Table,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send + 'a,
    ) -> Pin<Box<dyn Future<Output = Result<T, TableError>> + Send + 'a>>
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        sending(async move { request.await.map_err(|error| self.failed(table, error)) })
    }

    fn failed<E>(&self, table: Table, error: SdkError<E, HttpResponse>) -> TableError
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let error = TableError::from_sdk(error);
        if let TableError::Unusable(why) = error { self.unusable(table, why) } else { error }
    }

    /// The error of a table that cannot be used: which one, and why.
    pub(crate) fn unusable(&self, table: Table, why: impl Into<Cause>) -> TableError {
        let role = match table {
            Table::Main => "main",
            Table::Metadata => "metadata",
        };
        let what = format!("the {role} table {} cannot be used", self.name(table));
        TableError::Unusable(why.into()).about(&what)
    }

    /// An update of an item, if the condition holds. The caller can add to it.
    fn update(
        &self,
        table: Table,
        key: SdkItem,
        update: impl Into<String>,
        condition: Expression,
    ) -> UpdateItemFluentBuilder {
        let (condition, names, values) = condition.into_parts();
        self.client
            .update_item()
            .table_name(self.name(table))
            .set_key(Some(key))
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(values)
    }

    /// A query of all items under one value of the partition-key attribute. The caller can add to
    /// it.
    fn query(&self, shard_key: String) -> QueryFluentBuilder {
        self.client
            .query()
            .table_name(&self.config.table_name)
            .key_condition_expression("#p = :p")
            .expression_attribute_names("#p", &self.config.partition_key_name)
            .expression_attribute_values(":p", AttributeValue::S(shard_key))
    }

    fn shard_key(&self, key: &PartitionKey, shard: ShardNumber) -> Result<String, TableError> {
        self.config.shard_keys.build(key, shard).map_err(|error| {
            let why = format!("the partition key with its shard suffix: {error}");
            TableError::Rejected(Cause::by(why, error))
        })
    }

    fn key(&self, shard_key: String, sort_key: &SortKey) -> SdkItem {
        HashMap::from([
            (self.config.partition_key_name.clone(), AttributeValue::S(shard_key)),
            (self.config.sort_key_name.clone(), attributes::sort_key_to_sdk(sort_key)),
        ])
    }
}
