//! Creating the two tables.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, TableStatus,
};

use tokio::time::{Instant, sleep};

use crate::config::TableConfig;
use crate::table::error::{Cause, TableError};
use crate::table::obstacles::metadata_tag;
use crate::table::sending;
use crate::values::key::SortKeyType;

const CREATION_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_PERIOD: Duration = Duration::from_millis(500);

/// Creates the main table and the metadata table, on demand, unless they exist. The main table has
/// the configured read replicas as indexes, and a tag with the name of its metadata table. It waits
/// until both can be used, also if another process is creating them. Time to live, point-in-time
/// recovery and alarms are left to the caller.
///
/// # Errors
/// [`TableError`] names the table that could not be created.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # let engine = embedded_dynamodb::Engine::in_memory()?;
/// # let client = aws_sdk_dynamodb::Client::new(&engine.sdk_config());
/// # runtime.block_on(async {
/// use dynamodb_write_sharding::{ShardedTable, TableConfig, create_tables};
///
/// let config = TableConfig::new("orders", "orders-metadata");
/// create_tables(&client, &config).await?;
/// let table = ShardedTable::new(&client, config);
/// table.put("2014-07-09", "order-1147", dynamodb_write_sharding::Attributes::new()).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn create_tables(client: &Client, config: &TableConfig) -> Result<(), TableError> {
    let key = (config.partition_key_name.as_str(), ScalarAttributeType::S, KeyType::Hash);
    let kind = match config.sort_key_type {
        SortKeyType::String => ScalarAttributeType::S,
        SortKeyType::Number => ScalarAttributeType::N,
    };
    let sort_key = (config.sort_key_name.as_str(), kind, KeyType::Range);
    let keys = [key.clone(), sort_key];
    let (main, metadata) = (&config.table_name, &config.metadata_table_name);
    if status(client, main).await?.is_none() {
        create_table(client, main, &keys, &config.read_replicas, Some(metadata)).await?;
    }
    if status(client, metadata).await?.is_none() {
        create_table(client, metadata, &[key], &[], None).await?;
    }
    let until = Instant::now() + CREATION_TIMEOUT;
    for table in [main, metadata] {
        // A table that is being updated can be used.
        while matches!(status(client, table).await?, None | Some(TableStatus::Creating)) {
            if Instant::now() >= until {
                let why = format!("the table {table} does not become active");
                return Err(TableError::Transient(why.into()));
            }
            sleep(POLL_PERIOD).await;
        }
    }
    Ok(())
}

/// The status of a table. `None` if it does not exist.
async fn status(client: &Client, table: &str) -> Result<Option<TableStatus>, TableError> {
    let error = match sending(client.describe_table().table_name(table).send()).await {
        Ok(described) => {
            let stated = described.table.and_then(|table| table.table_status);
            // A server that states no status serves the table.
            return Ok(Some(stated.unwrap_or(TableStatus::Active)));
        }
        Err(error) => error,
    };
    if error.as_service_error().is_some_and(DescribeTableError::is_resource_not_found_exception) {
        return Ok(None);
    }
    Err(TableError::from_sdk(error).about(&format!("the table {table} cannot be described")))
}

async fn create_table(
    client: &Client,
    table: &str,
    keys: &[(&str, ScalarAttributeType, KeyType)],
    replicas: &[String],
    metadata_table: Option<&str>,
) -> Result<(), TableError> {
    let unbuilt = |error: BuildError| TableError::Rejected(Cause::from(error.to_string()));
    let mut create =
        client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    if let Some(name) = metadata_table {
        create = create.tags(metadata_tag(name).build().map_err(unbuilt)?);
    }
    let mut schema = Vec::new();
    for (name, kind, role) in keys {
        let definition = AttributeDefinition::builder()
            .attribute_name(*name)
            .attribute_type(kind.clone())
            .build()
            .map_err(unbuilt)?;
        let element = KeySchemaElement::builder()
            .attribute_name(*name)
            .key_type(role.clone())
            .build()
            .map_err(unbuilt)?;
        create = create.attribute_definitions(definition).key_schema(element.clone());
        schema.push(element);
    }
    for name in replicas {
        let index = GlobalSecondaryIndex::builder()
            .index_name(name)
            .set_key_schema(Some(schema.clone()))
            .projection(Projection::builder().projection_type(ProjectionType::All).build())
            .build()
            .map_err(unbuilt)?;
        create = create.global_secondary_indexes(index);
    }
    let Err(error) = sending(create.send()).await else { return Ok(()) };
    // Another process was first.
    if error.as_service_error().is_some_and(CreateTableError::is_resource_in_use_exception) {
        return Ok(());
    }
    Err(TableError::from_sdk(error).about(&format!("the table {table} cannot be created")))
}
