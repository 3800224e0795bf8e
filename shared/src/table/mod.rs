//! The only module that uses the SDK's operations.

pub(crate) mod attributes;
mod directory;
mod drain;
pub(crate) mod error;
mod evidence;
mod items;
mod metadata;
pub(crate) mod tables;
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
use aws_sdk_dynamodb::operation::delete_item::builders::DeleteItemFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;

use crate::config::TableConfig;
use crate::values::key::{PartitionKey, ShardNumber, SortKey};
use attributes::{SdkItem, number};
use error::{Cause, TableError};

pub(crate) use attributes::Content;
pub(crate) use directory::{PageCopy, SHARED_SETTINGS, StoredPage, TABLE_KEY, TableItem};
pub(crate) use drain::StoredCopy;
pub(crate) use evidence::{Pool, Together};
pub(crate) use items::{GetTarget, RawItem};
pub(crate) use metadata::RawMetadata;
pub(crate) use writes::{LeaseLasts, Place};

pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Boxed, so that the engine boxes none: the SDK's futures are large, and nest so deeply that the
/// compiler fails on futures that contain them.
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

/// A model of the main table's partitions, so that a measurement of the scaling policy makes
/// millions of writes: each passes the whole engine, and none is signed, sent or stored. The
/// metadata table stays real.
#[cfg(feature = "test-switches")]
pub trait PartitionModel: std::fmt::Debug + Send + Sync {
    /// A write of this many units under a stored key. `false` if its partition throttles it.
    fn write(&self, shard_key: String, units: u64) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}

impl Tables {
    /// The client's own retries are switched off. They hide throttles, which are the signal to
    /// scale, and they take seconds.
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

    /// Strongly consistent.
    async fn get_metadata_item(&self, key: &str) -> Result<Option<SdkItem>, TableError> {
        self.get_item(Table::Metadata, self.metadata_key(key), true).await
    }

    /// Changes an item of the metadata table if the condition holds.
    /// [`TableError::ConditionFailed`] if it does not.
    async fn change_metadata(&self, key: &str, change: Expression) -> Result<(), TableError> {
        let update = self.update(Table::Metadata, self.metadata_key(key), change);
        self.ask(Table::Metadata, update.send()).await.map(drop)
    }

    fn metadata_key(&self, key: &str) -> SdkItem {
        HashMap::from([(self.config.partition_key_name.clone(), AttributeValue::S(key.to_owned()))])
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

    /// The update of an item, if the condition holds. The caller can add to it.
    fn update(
        &self,
        table: Table,
        key: SdkItem,
        expression: Expression,
    ) -> UpdateItemFluentBuilder {
        self.client
            .update_item()
            .table_name(self.name(table))
            .set_key(Some(key))
            .set_expression_attribute_values(Expression::some_values(expression.values))
            .set_expression_attribute_names(Some(expression.names))
            .condition_expression(expression.condition)
            .update_expression(expression.update)
    }

    /// The deletion of an item of the main table, if the condition holds.
    fn deletion(&self, key: SdkItem, expression: Expression) -> DeleteItemFluentBuilder {
        self.client
            .delete_item()
            .table_name(&self.config.table_name)
            .set_key(Some(key))
            .set_expression_attribute_values(Expression::some_values(expression.values))
            .set_expression_attribute_names(Some(expression.names))
            .condition_expression(expression.condition)
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

/// The largest number of attributes to compare. DynamoDB allows 300 operators in an expression.
const MAX_COMPARED_ATTRIBUTES: usize = 100;

/// With the names and values of both.
#[derive(Debug, Clone, Default)]
struct Expression {
    condition: String,
    update: String,
    names: HashMap<String, String>,
    values: SdkItem,
}

impl Expression {
    fn of(condition: &str) -> Self {
        Self { condition: condition.to_owned(), ..Self::default() }
    }

    fn name(self, placeholder: &str, name: &str) -> Self {
        self.names([(placeholder, name)])
    }

    /// Names by their placeholders.
    fn names<const COUNT: usize>(mut self, names: [(&str, &str); COUNT]) -> Self {
        self.names.extend(names.map(|(of, name)| (of.to_owned(), name.to_owned())));
        self
    }

    fn value(mut self, placeholder: &str, value: AttributeValue) -> Self {
        self.values.insert(placeholder.to_owned(), value);
        self
    }

    /// Numbers by their placeholders.
    fn numbers<const COUNT: usize>(mut self, numbers: [(&str, u64); COUNT]) -> Self {
        self.values.extend(numbers.map(|(of, value)| (of.to_owned(), number(value))));
        self
    }

    /// Also requires these attributes to have these values, or to be absent. Call it once, on a
    /// condition without an outer `OR`.
    fn and_same<'a, 'b>(
        mut self,
        attributes: impl IntoIterator<Item = (&'a str, Option<&'b AttributeValue>)>,
    ) -> Self {
        for (index, (name, value)) in
            attributes.into_iter().take(MAX_COMPARED_ATTRIBUTES).enumerate()
        {
            let (placeholder, named) = (format!("#a{index}"), format!(":a{index}"));
            self.condition += &match value {
                Some(_) => format!(" AND {placeholder} = {named}"),
                None => format!(" AND attribute_not_exists({placeholder})"),
            };
            self.names.insert(placeholder, name.to_owned());
            self.values.extend(value.map(|value| (named, value.clone())));
        }
        self
    }

    /// The update sets each attribute that has a value, and removes the others.
    fn setting<'a>(
        mut self,
        attributes: impl IntoIterator<Item = (&'a str, Option<AttributeValue>)>,
    ) -> Self {
        let (mut sets, mut removes) = (Vec::new(), Vec::new());
        for (index, (name, value)) in attributes.into_iter().enumerate() {
            let (placeholder, named) = (format!("#u{index}"), format!(":u{index}"));
            match &value {
                Some(_) => sets.push(format!("{placeholder} = {named}")),
                None => removes.push(placeholder.clone()),
            }
            self.names.insert(placeholder, name.to_owned());
            self.values.extend(value.map(|value| (named, value)));
        }
        let clauses =
            [("SET", sets), ("REMOVE", removes)].into_iter().filter(|(_, terms)| !terms.is_empty());
        let clauses: Vec<String> =
            clauses.map(|(verb, terms)| format!("{verb} {}", terms.join(", "))).collect();
        self.updating(&clauses.join(" "))
    }

    fn updating(self, update: &str) -> Self {
        Self { update: update.to_owned(), ..self }
    }

    /// The update adds to attributes in place.
    fn adding<'a>(
        mut self,
        additions: impl IntoIterator<Item = (&'a str, AttributeValue)>,
    ) -> Self {
        let mut terms = Vec::new();
        for (index, (name, value)) in additions.into_iter().enumerate() {
            let (placeholder, named) = (format!("#n{index}"), format!(":n{index}"));
            terms.push(format!("{placeholder} {named}"));
            self.names.insert(placeholder, name.to_owned());
            self.values.insert(named, value);
        }
        self.updating(&format!("ADD {}", terms.join(", ")))
    }

    /// DynamoDB refuses an empty map of values.
    fn some_values(values: SdkItem) -> Option<SdkItem> {
        (!values.is_empty()).then_some(values)
    }
}
