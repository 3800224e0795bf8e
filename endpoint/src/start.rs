//! The start of the endpoint.

use std::time::Duration;

use api::SdkConfig;
use aws_sdk_dynamodb::Client;
use sharding::{ShardedTable, TableConfig, create_tables};

use crate::served::Service;
use crate::table::ServedTable;
use crate::upstream::{Upstream, UpstreamError};

/// How long the start waits for the metadata tables.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens the tables, and reads their patterns once.
///
/// # Errors
/// [`UpstreamError`] names the table that cannot be used.
pub async fn open(
    aws: &SdkConfig,
    upstream: Upstream,
    configurations: Vec<TableConfig>,
    creates_metadata: bool,
) -> Result<Service, UpstreamError> {
    let client = Client::new(&upstream.connected(aws));
    let mut tables = Vec::with_capacity(configurations.len());
    for config in configurations {
        let metadata = config.metadata_table_name.clone();
        let table = ServedTable::open(&client, &upstream, config).await?;
        let name = table.name.clone();
        if creates_metadata {
            create_tables(&client, table.engine.config())
                .await
                .map_err(|error| UpstreamError(format!("the table {metadata}: {error}")))?;
        }
        // If another process claimed an empty table later, it would arm all keys at once, and this
        // process would still pass their writes. That also refuses a table whose metadata is being
        // rebuilt.
        let maintenance = ShardedTable::over(table.engine.clone()).maintenance();
        let maintenance = maintenance.timeout(START_TIMEOUT);
        let claimed = match creates_metadata {
            false => maintenance.claim().await,
            true => maintenance.claim_unarmed().await,
        };
        claimed.map_err(|error| {
            UpstreamError(format!(
                "the table {name} cannot be served: {error}. If {metadata} does not exist, start \
                 once with --create-metadata-table"
            ))
        })?;
        let armed = maintenance.armed().await.map_err(|error| {
            UpstreamError(format!("the patterns of the table {name} cannot be read: {error}"))
        })?;
        let patterns: Vec<String> = armed.iter().map(|(pattern, _)| pattern.to_string()).collect();
        tracing::info!(
            table = name,
            patterns = patterns.join(", "),
            "no other program may write keys of these patterns, from when they count"
        );
        tables.push(table);
    }
    Ok(Service::new(tables, upstream))
}
