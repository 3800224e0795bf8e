//! Creating the two tables.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::client::Waiters;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType,
};

use crate::config::TableConfig;
use crate::table::error::{Cause, TableError};
use crate::table::sending;
use crate::values::key::SortKeyType;

/// How long DynamoDB may take to create a table.
const CREATION_TIME: Duration = Duration::from_secs(120);

/// Creates the main table and the metadata table, on demand, unless they exist. The main table has
/// the configured read replicas as indexes. Time to live, point-in-time recovery and alarms are left
/// to the caller.
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
    create_table(client, &config.table_name, &keys, &config.read_replicas).await?;
    create_table(client, &config.metadata_table_name, &[key], &[]).await
}

async fn create_table(
    client: &Client,
    table: &str,
    keys: &[(&str, ScalarAttributeType, KeyType)],
    replicas: &[String],
) -> Result<(), TableError> {
    let unusable = |what: &str, error: TableError| {
        TableError::Unusable(format!("the table {table} cannot be {what}: {error}").into())
    };
    let unbuilt = |error: BuildError| TableError::Rejected(Cause::from(error.to_string()));
    match sending(client.describe_table().table_name(table).send()).await {
        Ok(_) => return Ok(()),
        Err(error)
            if error
                .as_service_error()
                .is_some_and(|error| error.is_resource_not_found_exception()) => {}
        Err(error) => return Err(unusable("described", TableError::from_sdk(error))),
    }
    let mut create =
        client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
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
    let created = sending(create.send()).await;
    created.map_err(|error| unusable("created", TableError::from_sdk(error)))?;
    let exists = client.wait_until_table_exists().table_name(table);
    exists.wait(CREATION_TIME).await.map(drop).map_err(|error| {
        let why = format!("the table {table} did not become active");
        TableError::Unusable(Cause::by(why, error))
    })
}
