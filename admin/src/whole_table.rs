//! A table of a command: its client, its keys, and its number of items.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, KeyType, ScalarAttributeType, TableDescription,
};
use clap::Args;
use cli::output::bar_style;
use connection::server::configuration_for;
use indicatif::ProgressBar;
use sharding::{ShardedTable, SortKeyType, TableConfig, TableError};
use tokio::time::Duration;

/// The time limit for one request with its retries.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The endpoint of the tables, and the pace of the scan.
#[derive(Debug, Clone, Args)]
pub struct TableOptions {
    /// URL of a DynamoDB server [default: AWS, from the usual variables]. A server on this machine
    /// needs no credentials
    #[arg(long, value_name = "URL")]
    pub endpoint_url: Option<String>,
    /// Read units per second that the scan of the table may use; 0 for no limit
    #[arg(long, default_value_t = 1_000, value_name = "UNITS")]
    pub read_units: u32,
    /// Keys that are processed at the same time
    #[arg(long, default_value_t = 8, value_name = "KEYS",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
}

/// Takes the names and the type of the keys from the main table, and returns its description.
///
/// # Errors
/// [`TableError::Unusable`] if it cannot be described.
pub async fn take_key_names(
    client: &Client,
    config: &mut TableConfig,
) -> Result<TableDescription, TableError> {
    let unusable = |why: &dyn std::fmt::Display| {
        TableError::Unusable(format!("the main table {}: {why}", config.table_name).into())
    };
    let described = client.describe_table().table_name(&config.table_name).send().await;
    let described = described
        .map_err(|error| unusable(&aws_sdk_dynamodb::error::DisplayErrorContext(&error)))?;
    let table = described.table.ok_or_else(|| unusable(&"it has no description"))?;
    for key in table.key_schema() {
        if *key.key_type() == KeyType::Hash {
            key.attribute_name().clone_into(&mut config.partition_key_name);
            continue;
        }
        key.attribute_name().clone_into(&mut config.sort_key_name);
        let is_it = |it: &&AttributeDefinition| it.attribute_name() == key.attribute_name();
        let defined = table.attribute_definitions().iter().find(is_it);
        let kind = defined.map(AttributeDefinition::attribute_type);
        let is_number = kind == Some(&ScalarAttributeType::N);
        config.sort_key_type = if is_number { SortKeyType::Number } else { SortKeyType::String };
    }
    Ok(table)
}

/// Opens the table at this endpoint. Returns it with its client, and with its number of items
/// according to DynamoDB.
pub(crate) async fn open(
    endpoint_url: Option<&str>,
    mut config: TableConfig,
) -> Result<(ShardedTable, Client, u64), TableError> {
    let aws = match endpoint_url {
        Some(url) => configuration_for(url).await,
        None => api::aws_configuration().await,
    };
    let client = Client::new(&aws);
    let described = take_key_names(&client, &mut config).await?;
    let items = u64::try_from(described.item_count().unwrap_or_default()).unwrap_or_default();
    Ok((ShardedTable::new(&client, config), client, items))
}

/// A progress bar over the items of the table. DynamoDB counts them every six hours, so the end may
/// be inaccurate.
pub(crate) fn items_bar(items: u64, activity: &'static str) -> ProgressBar {
    let template =
        format!("{activity} {{wide_bar}} {{human_pos}}/{{human_len}} items {{msg}} {{eta}}");
    ProgressBar::new(items).with_style(bar_style(&template))
}
