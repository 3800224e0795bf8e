//! The command line of `sharding-endpoint`.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use admin::{ArmOptions, ArmingTable, DisarmOptions, arm, disarm, status};
use api::Telemetry;
use clap::{Args, Parser, Subcommand};
use cli::output::{exit_code, write_out};
use connection::configuration;
use connection::server::{LOCAL_PATTERN_LEASE, configuration_for, is_on_this_machine};
use connection::signals::stop_signal;
use endpoint::{Server, Upstream, observations, open};
use sharding::TableConfig;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// How often metrics are written.
const METRICS_PERIOD: Duration = Duration::from_secs(60);

/// A DynamoDB endpoint on this machine that spreads armed hot keys over shards
///
/// Set AWS_ENDPOINT_URL_DYNAMODB of a program to it. Keys that are not armed pass as they came, and
/// the log says which of them are hot.
#[derive(Parser)]
#[command(
    name = "sharding-endpoint",
    version,
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Option<ServeOptions>,
}

/// The tables, and the address.
#[derive(Args)]
struct ServeOptions {
    /// A table to serve; may be repeated. Requests to all other tables pass as they came
    #[arg(long, value_name = "NAME", required = true)]
    table: Vec<String>,
    /// The metadata table of each table, in the same order [default: the table's name and
    /// -metadata]
    #[arg(long, value_name = "NAME")]
    metadata_table: Vec<String>,
    /// Create metadata tables that do not exist
    #[arg(long)]
    create_metadata_table: bool,
    /// URL of the DynamoDB server behind [default: AWS, from the usual variables]
    #[arg(long, value_name = "URL")]
    endpoint_url: Option<String>,
    /// Address to listen on; by default, only this machine can connect
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Another accepted host name of this machine; its addresses and localhost are always accepted
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
    /// Write metrics to stdout once a minute, in CloudWatch's embedded metric format
    #[arg(long)]
    metrics: bool,
    /// Seconds for which a throttled write is repeated; then the client gets DynamoDB's error
    #[arg(long, default_value_t = 2, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(0..=60))]
    throttled_for: u32,
}

impl ServeOptions {
    /// The configuration of each table, from that of all.
    fn configurations(&self, config: &TableConfig) -> Result<Vec<TableConfig>, String> {
        let (tables, metadata) = (self.table.len(), self.metadata_table.len());
        if metadata != 0 && metadata != tables {
            let why = format!("--metadata-table is given {metadata} times, and --table {tables}");
            return Err(format!("{why}: give it for every table, or for none"));
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

#[derive(Subcommand)]
enum Command {
    /// Arm keys: the product writes them from then on, and they may be spread over shards
    Arm(ArmOptions),
    /// Remove a pattern of armed keys that does not count yet
    Disarm(DisarmOptions),
    /// Show the patterns of armed keys, and what an endpoint saw of keys that are not armed
    Status {
        #[command(flatten)]
        table: ArmingTable,
        /// Address of the running endpoint whose observations are shown
        #[arg(long, default_value = "127.0.0.1:8000", value_name = "ADDRESS")]
        endpoint: SocketAddr,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    exit_code(match (cli.command, cli.serve) {
        (Some(command), _) => run(command).await,
        (None, Some(options)) => serve(&options).await,
        (None, None) => Err("--table NAME is missing: name the table to serve".into()),
    })
}

async fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    let config = configuration()?;
    write_out(&match command {
        Command::Arm(options) => arm(&options, config).await?,
        Command::Disarm(options) => disarm(&options, config).await?,
        Command::Status { table, endpoint } => {
            status(&table, config).await? + &observations(endpoint).await
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(options: &ServeOptions) -> Result<ExitCode, Box<dyn Error>> {
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(
            EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy(),
        )
        .with_writer(std::io::stderr)
        .init();
    let aws = match &options.endpoint_url {
        Some(url) => configuration_for(url).await,
        None => api::aws_configuration().await,
    };
    let configurations = options.configurations(&configuration()?)?;
    let upstream = Upstream::new(&aws).await?;
    let service = open(&aws, upstream, configurations, options.create_metadata_table).await?;
    let address = SocketAddr::new(options.host, options.port);
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("cannot listen on {address}: {error}; choose another --port"))?;
    let (address, region) = (listener.local_addr()?, service.region().to_owned());
    let tables = options.table.join(", ");
    write_out(&format!("DynamoDB endpoint http://{address} for {tables} in {region}\n"))?;
    let server = Server::new(service, &options.allowed_host);
    let metrics = options.metrics.then(|| Telemetry::start(&tables)).transpose();
    let metrics = metrics.map_err(|error| error.to_string())?;
    // Not beside the server: stdout may block.
    tokio::spawn(flush_each_period(metrics));
    server.serve(listener, stop_signal()).await?;
    metrics.inspect(|metrics| metrics.flush_period());
    Ok(ExitCode::SUCCESS)
}

async fn flush_each_period(metrics: Option<Telemetry>) {
    loop {
        sleep(METRICS_PERIOD).await;
        metrics.inspect(|metrics| metrics.flush_period());
    }
}
