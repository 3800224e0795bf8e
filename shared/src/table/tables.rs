//! The two tables themselves: creating them, and what stands against arming keys of a table that
//! other programs use.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, TableDescription, TableStatus, Tag,
};

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};

use crate::config::TableConfig;
use crate::table::error::TableError;
use crate::table::{Table, Tables, sending};
use crate::values::key::SortKeyType;

const CREATION_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_PERIOD: Duration = Duration::from_millis(500);
/// On the main table.
const METADATA_TAG: &str = "dynamodb-write-sharding:metadata-table";

/// Something that does not fit keys with several shards. Look at it before arming keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArmingObstacle {
    /// Replicas in other regions resolve concurrent writes by the last one, and the product's
    /// conditions do not hold between regions.
    Replicas,
    /// Its consumers will see the product's attributes, tombstones and moves.
    Stream,
    /// An index sorts by the table's partition key, and will show the keys of shards.
    Index,
    /// The table's tag names another metadata table: another deployment writes keys of the table,
    /// and neither would know where the other one puts their items.
    Metadata,
}

impl ArmingObstacle {
    /// Every obstacle with its name.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("replicas", Self::Replicas),
        ("stream", Self::Stream),
        ("index", Self::Index),
        ("metadata", Self::Metadata),
    ];

    /// `replicas`, `stream`, `index` or `metadata`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::NAMES.iter().find(|(_, named)| *named == self).map_or("", |(name, _)| *name)
    }
}

/// Creates the main table and the metadata table, on demand, unless they exist. The main table has
/// the configured read replicas as indexes, and a tag with the name of its metadata table. It waits
/// until both can be used. Time to live, point-in-time recovery and alarms are left to the caller.
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
pub fn create_tables<'a>(
    client: &'a Client,
    config: &'a TableConfig,
) -> BoxFuture<'a, Result<(), TableError>> {
    Box::pin(async move {
        let key = (config.partition_key_name.as_str(), ScalarAttributeType::S, KeyType::Hash);
        let kind = match config.sort_key_type {
            SortKeyType::String => ScalarAttributeType::S,
            SortKeyType::Number => ScalarAttributeType::N,
        };
        let sort_key = (config.sort_key_name.as_str(), kind, KeyType::Range);
        let keys = [key.clone(), sort_key];
        let (main, metadata) = (&config.table_name, &config.metadata_table_name);
        if status(client, main).await?.is_none() {
            let create = client.create_table().tags(metadata_tag(metadata)?);
            create_table(create, main, &keys, &config.read_replicas).await?;
        }
        if status(client, metadata).await?.is_none() {
            create_table(client.create_table(), metadata, &[key], &[]).await?;
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
    })
}

/// `None` if it does not exist.
async fn status(client: &Client, table: &str) -> Result<Option<TableStatus>, TableError> {
    let is_absent = DescribeTableError::is_resource_not_found_exception;
    match sending(client.describe_table().table_name(table).send()).await {
        Ok(described) => {
            let stated = described.table.and_then(|table| table.table_status);
            // A server that states no status serves the table.
            Ok(Some(stated.unwrap_or(TableStatus::Active)))
        }
        Err(error) if error.as_service_error().is_some_and(is_absent) => Ok(None),
        Err(error) => {
            Err(TableError::from_sdk(error)
                .about(&format!("the table {table} cannot be described")))
        }
    }
}

async fn create_table(
    create: CreateTableFluentBuilder,
    table: &str,
    keys: &[(&str, ScalarAttributeType, KeyType)],
    replicas: &[String],
) -> Result<(), TableError> {
    let mut create = create.table_name(table).billing_mode(BillingMode::PayPerRequest);
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

fn metadata_tag(metadata_table: &str) -> Result<Tag, TableError> {
    Tag::builder().key(METADATA_TAG).value(metadata_table).build().map_err(unbuilt)
}

fn unbuilt(error: BuildError) -> TableError {
    TableError::Rejected(error.to_string().into())
}

impl Tables {
    pub(crate) async fn arming_obstacles(&self) -> Result<Vec<ArmingObstacle>, TableError> {
        let Some(table) = self.described().await? else { return Ok(Vec::new()) };
        let sorts_by_key = table.global_secondary_indexes().iter().any(|index| {
            index.key_schema().iter().any(|element| {
                *element.key_type() == KeyType::Range
                    && element.attribute_name() == self.config.partition_key_name
            })
        });
        let has_stream = table.stream_specification().is_some_and(|it| it.stream_enabled());
        let tagged = self.tagged_metadata_table(table.table_arn.as_deref()).await?;
        let found = [
            (!table.replicas().is_empty(), ArmingObstacle::Replicas),
            (has_stream, ArmingObstacle::Stream),
            (sorts_by_key, ArmingObstacle::Index),
            (
                tagged.is_some_and(|it| it != self.config.metadata_table_name),
                ArmingObstacle::Metadata,
            ),
        ];
        Ok(found.into_iter().filter_map(|(is_there, it)| is_there.then_some(it)).collect())
    }

    /// A server that states no ARN of the table has no tags either.
    pub(crate) async fn tag(&self) -> Result<(), TableError> {
        let described = self.described().await?;
        let Some(arn) = described.and_then(|table| table.table_arn) else { return Ok(()) };
        let tag = metadata_tag(&self.config.metadata_table_name)?;
        let tag = self.client.tag_resource().resource_arn(arn).tags(tag);
        self.ask(Table::Main, tag.send()).await.map(drop)
    }

    async fn described(&self) -> Result<Option<TableDescription>, TableError> {
        let describe = self.client.describe_table().table_name(&self.config.table_name);
        Ok(self.ask(Table::Main, describe.send()).await?.table)
    }

    /// The metadata table that the main table's tag names.
    async fn tagged_metadata_table(&self, arn: Option<&str>) -> Result<Option<String>, TableError> {
        let Some(arn) = arn else { return Ok(None) };
        let mut next = None;
        loop {
            let list = self.client.list_tags_of_resource().resource_arn(arn).set_next_token(next);
            let listed = self.ask(Table::Main, list.send()).await?;
            if let Some(tag) = listed.tags().iter().find(|tag| tag.key() == METADATA_TAG) {
                return Ok(Some(tag.value().to_owned()));
            }
            next = listed.next_token;
            if next.is_none() {
                return Ok(None);
            }
        }
    }
}
