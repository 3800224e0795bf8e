//! The options of the endpoint, and its start.

use std::net::IpAddr;
use std::time::Duration;

use api::SdkConfig;
use aws_sdk_dynamodb::Client;
use clap::Args;
use connection::server::{LOCAL_PATTERN_LEASE, is_on_this_machine};
use sharding::{ShardedTable, TableConfig, create_tables};

use crate::served::Service;
use crate::table::ServedTable;
use crate::upstream::{Upstream, UpstreamError};

/// How long the start waits for the metadata tables.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The tables, and the address.
#[derive(Debug, Clone, Args)]
pub struct ServeOptions {
    /// A table to serve; may be repeated. Requests to all other tables pass as they came
    #[arg(long, value_name = "NAME", required = true)]
    pub table: Vec<String>,
    /// The metadata table of each table, in the same order [default: the table's name and
    /// -metadata]
    #[arg(long, value_name = "NAME")]
    pub metadata_table: Vec<String>,
    /// Create metadata tables that do not exist
    #[arg(long)]
    pub create_metadata_table: bool,
    /// URL of the DynamoDB server behind [default: AWS, from the usual variables]
    #[arg(long, value_name = "URL")]
    pub endpoint_url: Option<String>,
    /// Address to listen on; by default, only this machine can connect
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen on
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Another accepted host name of this machine; its addresses and localhost are always accepted
    #[arg(long, value_name = "NAME")]
    pub allowed_host: Vec<String>,
    /// Write metrics to stdout once a minute, in CloudWatch's embedded metric format
    #[arg(long)]
    pub metrics: bool,
    /// Seconds for which a throttled write is repeated; then the client gets DynamoDB's error
    #[arg(long, default_value_t = 2, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(0..=60))]
    pub throttled_for: u32,
}

impl ServeOptions {
    /// The configuration of each table, from that of all.
    ///
    /// # Errors
    /// [`UpstreamError`] if the numbers of tables and metadata tables differ.
    pub fn configurations(&self, config: &TableConfig) -> Result<Vec<TableConfig>, UpstreamError> {
        let (tables, metadata) = (self.table.len(), self.metadata_table.len());
        if metadata != 0 && metadata != tables {
            let why = format!("--metadata-table is given {metadata} times, and --table {tables}");
            return Err(UpstreamError(format!("{why}: give it for every table, or for none")));
        }
        let configured = self.table.iter().enumerate().map(|(index, name)| {
            config.clone().with(|config| {
                config.table_name.clone_from(name);
                let metadata = self.metadata_table.get(index).cloned();
                config.metadata_table_name = metadata.unwrap_or_else(|| format!("{name}-metadata"));
                config.throttled_for = Duration::from_secs(self.throttled_for.into());
                // There, a command may arm keys within seconds.
                if self.endpoint_url.as_deref().is_some_and(is_on_this_machine) {
                    config.pattern_lease = config.pattern_lease.min(LOCAL_PATTERN_LEASE);
                }
            })
        });
        Ok(configured.collect())
    }
}

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
        if !table.can_be_armed {
            tracing::info!(
                table = name,
                "every request passes: keys of this table cannot be armed"
            );
            tables.push(table);
            continue;
        }
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
