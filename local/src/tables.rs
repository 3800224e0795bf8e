//! Creates the two tables if they do not exist.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, TableStatus,
};
use sharding::{SortKeyType, TableConfig};

/// How long another server may take to create a table.
const CREATION_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// Creates the main table and the metadata table, on demand, as the template does. The main table
/// has a composite key and the configured read replicas; the metadata table has a partition key
/// only.
///
/// # Errors
/// Names the table that could not be created, and the cause.
pub async fn create_tables(client: &Client, config: &TableConfig) -> Result<(), String> {
    let sort_key = (config.sort_key_name.as_str(), config.sort_key_type);
    ensure(
        client,
        &config.table_name,
        &config.partition_key_name,
        Some(sort_key),
        &config.read_replicas,
    )
    .await?;
    ensure(client, &config.metadata_table_name, &config.partition_key_name, None, &[]).await
}

async fn ensure(
    client: &Client,
    table: &str,
    partition_key: &str,
    sort_key: Option<(&str, SortKeyType)>,
    replicas: &[String],
) -> Result<(), String> {
    let failed = |what: &str, cause: String| format!("the table {table} cannot be {what}: {cause}");
    match client.describe_table().table_name(table).send().await {
        Ok(_) => return Ok(()),
        Err(error)
            if error
                .as_service_error()
                .is_some_and(|error| error.is_resource_not_found_exception()) => {}
        Err(error) => return Err(failed("described", DisplayErrorContext(error).to_string())),
    }
    let mut create =
        client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    let mut schema = Vec::new();
    let keys = std::iter::once((partition_key, ScalarAttributeType::S, KeyType::Hash)).chain(
        sort_key.map(|(name, kind)| {
            let kind = match kind {
                SortKeyType::String => ScalarAttributeType::S,
                SortKeyType::Number => ScalarAttributeType::N,
            };
            (name, kind, KeyType::Range)
        }),
    );
    for (name, kind, role) in keys {
        let definition =
            AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build();
        let element = KeySchemaElement::builder().attribute_name(name).key_type(role).build();
        let unusable = |error: aws_sdk_dynamodb::error::BuildError| {
            failed("described to DynamoDB", error.to_string())
        };
        let element = element.map_err(unusable)?;
        create =
            create.attribute_definitions(definition.map_err(unusable)?).key_schema(element.clone());
        schema.push(element);
    }
    for name in replicas {
        let index = GlobalSecondaryIndex::builder()
            .index_name(name)
            .set_key_schema(Some(schema.clone()))
            .projection(Projection::builder().projection_type(ProjectionType::All).build())
            .build();
        let index = index.map_err(|error| failed("described to DynamoDB", error.to_string()))?;
        create = create.global_secondary_indexes(index);
    }
    create
        .send()
        .await
        .map_err(|error| failed("created", DisplayErrorContext(error).to_string()))?;
    let until = tokio::time::Instant::now() + CREATION_TIMEOUT;
    loop {
        let described = client.describe_table().table_name(table).send().await;
        let described = described
            .map_err(|error| failed("described", DisplayErrorContext(error).to_string()))?;
        match described.table.and_then(|table| table.table_status) {
            Some(TableStatus::Active) => return Ok(()),
            _ if tokio::time::Instant::now() > until => {
                return Err(failed("used", "it does not become active".into()));
            }
            _ => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
}
