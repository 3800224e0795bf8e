//! The command line of `sharding-endpoint`.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use admin::{ArmOptions, ArmingTable, DisarmOptions, arm, disarm, status};
use clap::{Args, Parser, Subcommand};
use cli::output::{exit_code, write_out};
use connection::configuration;
use connection::server::configuration_for;
use connection::signals::stop_signal;
use endpoint::{ServeOptions, Server, Upstream, observations, open};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
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

#[derive(Subcommand)]
enum Command {
    /// Arm keys: the product writes them from then on, and they may be spread over shards
    Arm(ArmOptions),
    /// Remove a pattern of armed keys that does not count yet
    Disarm(DisarmOptions),
    /// Show the patterns of armed keys, and what an endpoint saw of keys that are not armed
    Status(StatusOptions),
}

#[derive(Args)]
struct StatusOptions {
    #[command(flatten)]
    table: ArmingTable,
    /// Address of the running endpoint whose observations are shown
    #[arg(long, default_value = "127.0.0.1:8000", value_name = "ADDRESS")]
    endpoint: SocketAddr,
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
        Command::Status(options) => {
            let patterns = status(&options.table, config).await?;
            format!("{patterns}{}", observations(options.endpoint).await)
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
    let metrics = options.metrics.then(|| api::Telemetry::start(&tables)).transpose();
    let metrics = metrics.map_err(|error| error.to_string())?;
    let flushes = metrics.map(|metrics| {
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(METRICS_PERIOD).await;
                metrics.flush_period();
            }
        })
    });
    let served = server.serve(listener, stop_signal()).await;
    flushes.inspect(JoinHandle::abort);
    metrics.inspect(|metrics| metrics.flush_period());
    served?;
    Ok(ExitCode::SUCCESS)
}
