//! The local edition: engine, tables, functions and their two ports.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use clap::Parser;
use connection::hosts::Hosts;
use connection::server::LOCAL_PATTERN_LEASE;
use embedded_dynamodb::{Engine, InProcess, PartitionLimits};
use endpoint::{Server, Service, Upstream};
use shard_scaler::{Scaler, ScalerConfig, VARIABLES};
use sharding::internal::{ShardKeys, TableEngine};
use sharding::variables::read;
use sharding::{
    ConfigError, ScalingActors, ShardedTable, TableConfig, TableError, Writes, create_tables,
};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant as Deadline, sleep, timeout};

use crate::clients::{in_process_clients, remote_clients};
use crate::console::Console;
use crate::http_api::Functions;
use crate::traffic::Meter;
use crate::{dynamodb_port, guard, http_api, wake};

/// When the edition stops, open requests get this time to finish, and then background work does.
const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// How long the start waits for the metadata table.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The addresses and the storage of the edition.
#[derive(Debug, Clone, Parser)]
pub struct ServeOptions {
    /// Address to listen on; by default, only this machine can connect
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Another accepted host name of this machine; its addresses and localhost are always accepted
    #[arg(long, value_name = "NAME")]
    pub allowed_host: Vec<String>,
    /// Port of the API
    #[arg(long, default_value_t = 3000)]
    pub port: u16,
    /// Port of the DynamoDB-compatible endpoint
    #[arg(long, default_value_t = 8000)]
    pub dynamodb_port: u16,
    /// Port of the endpoint that spreads hot keys, in front of the same tables
    #[arg(long, default_value_t = 8001)]
    pub endpoint_port: u16,
    /// Keep the data in this directory; by default, all data is in memory
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Use another DynamoDB server instead of the embedded engine; a server on this machine needs
    /// no credentials
    #[arg(long, value_name = "URL", conflicts_with_all = [
        "data_dir", "partitions", "partition_write_units", "partition_read_units", "warming", "alarm_period",
        "drain_period", "drain_wait",
    ])]
    pub endpoint_url: Option<String>,
    /// Physical partitions of the main table
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub partitions: u32,
    /// Write units per second of each partition
    #[arg(long, default_value_t = 1_000, value_name = "UNITS",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub partition_write_units: u32,
    /// Read units per second of each partition
    #[arg(long, default_value_t = 3_000, value_name = "UNITS",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub partition_read_units: u32,
    /// Duration of a raise of the main table's warm throughput, in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub warming: u32,
    /// Seconds between evaluations of the alarm that wakes the shard-scaler (in CloudWatch: 60)
    #[arg(long, default_value_t = 60, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub alarm_period: u32,
    /// Seconds between runs that continue shrinking and settling
    #[arg(long, default_value_t = 60, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub drain_period: u32,
    /// Seconds that shrinking and settling wait for requests and for reads, instead of 960 and 120;
    /// unsafe while functions use the DynamoDB port
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(5..=3_600))]
    pub drain_wait: Option<u32>,
}

impl Default for ServeOptions {
    /// The defaults of the command line.
    fn default() -> Self {
        Self::parse_from(["local"])
    }
}

/// An error of the edition's start or its servers. The text contains the remedy.
#[derive(Debug, thiserror::Error)]
pub enum EditionError {
    /// A variable of the environment is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Listening on an address failed.
    #[error("cannot listen on {address}: {cause}; choose another port with {option}")]
    Port {
        /// The address.
        address: SocketAddr,
        /// The option that sets it.
        option: &'static str,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// The data directory cannot be used.
    #[error("--data-dir {path}: {cause}")]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// The tables cannot be created or used.
    #[error("{0}")]
    Tables(String),
    /// A server stopped.
    #[error("the server stopped: {0}")]
    Server(#[from] std::io::Error),
}

/// A started edition.
#[derive(Debug)]
pub struct Edition {
    functions: Functions,
    engine: Option<Engine>,
    api: TcpListener,
    dynamodb: Option<TcpListener>,
    /// The endpoint, unless the table is one that it does not serve.
    pub(crate) endpoint: Option<(TcpListener, Server)>,
    options: ServeOptions,
    /// Whether the shard-scaler may raise the table's warm throughput.
    may_warm: bool,
}

impl Edition {
    /// Binds the ports, opens the engine and creates the tables. It does not serve requests yet.
    ///
    /// # Errors
    /// [`EditionError`] with the cause.
    pub async fn start(options: &ServeOptions, config: TableConfig) -> Result<Self, EditionError> {
        let scaler = read(&*VARIABLES, ScalerConfig::default(), |name| std::env::var(name).ok())?;
        Self::start_with(options, config, scaler).await
    }

    /// Like [`start`](Self::start), with this configuration of the shard-scaler.
    pub(crate) async fn start_with(
        options: &ServeOptions,
        mut config: TableConfig,
        of_scaler: ScalerConfig,
    ) -> Result<Self, EditionError> {
        config.policy.partition_write_units = f64::from(options.partition_write_units);
        if let Some(seconds) = options.drain_wait {
            config = config.drain_wait(Duration::from_secs(seconds.into()))?;
        }
        // A command on this machine may arm keys within seconds.
        config.pattern_lease = config.pattern_lease.min(LOCAL_PATTERN_LEASE);
        let api = listen(options.host, options.port, "--port").await?;
        let (clients, engine) = match &options.endpoint_url {
            Some(url) => (remote_clients(url).await, None),
            None => {
                let engine = open(options, &config)?;
                (in_process_clients(&InProcess::new(engine.clone())), Some(engine))
            }
        };
        let dynamodb = match engine {
            Some(_) => Some(listen(options.host, options.dynamodb_port, "--dynamodb-port").await?),
            None => None,
        };
        let unusable = |error: TableError| EditionError::Tables(api::with_sources(&error));
        create_tables(&clients.dynamodb, &config).await.map_err(unusable)?;
        let serves_endpoint =
            config.writes() == Writes::Items && config.shard_keys == ShardKeys::KeyFirst;
        let table = ShardedTable::new(&clients.dynamodb, of_scaler.with_pace(config));
        table.maintenance().timeout(START_TIMEOUT).claim().await.map_err(unusable)?;
        let scaler = Scaler::new(table.clone(), clients, of_scaler);
        // In an AWS account, a schedule does this before the first request.
        Box::pin(scaler.learn_warm_throughput(Deadline::now() + START_TIMEOUT)).await;
        let functions = Functions { table, scaler, meter: Meter::default() };
        let may_warm = of_scaler.max_warm_write_units > 0;
        let endpoint = match engine.as_ref().filter(|_| serves_endpoint) {
            Some(engine) => {
                let listener =
                    listen(options.host, options.endpoint_port, "--endpoint-port").await?;
                let service = endpoint_over(engine, functions.table.engine()).await?;
                Some((listener, Server::new(service, &options.allowed_host)))
            }
            None => None,
        };
        Ok(Self { functions, engine, api, dynamodb, endpoint, options: options.clone(), may_warm })
    }

    /// Returns the address of the API, that of the DynamoDB-compatible endpoint if the engine is
    /// embedded, and that of the endpoint that spreads hot keys, if there is one.
    ///
    /// # Errors
    /// Fails if the operating system does not report an address.
    pub fn addresses(
        &self,
    ) -> std::io::Result<(SocketAddr, Option<SocketAddr>, Option<SocketAddr>)> {
        let endpoint = self.endpoint.as_ref().map(|(listener, _)| listener);
        Ok((
            self.api.local_addr()?,
            self.dynamodb.as_ref().map(TcpListener::local_addr).transpose()?,
            endpoint.map(TcpListener::local_addr).transpose()?,
        ))
    }

    /// The embedded engine, if there is one.
    #[must_use]
    pub const fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    pub(crate) const fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The table that the functions use.
    #[must_use]
    pub const fn table(&self) -> &ShardedTable {
        &self.functions.table
    }

    /// Serves requests until `stop` resolves. Then it finishes open requests and background work,
    /// with a time limit for each.
    ///
    /// # Errors
    /// [`EditionError::Server`] if a listener fails.
    pub async fn serve(
        self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), EditionError> {
        let (stopping, stopped) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            stop.await;
            stopping.send_replace(true);
        });
        let until = |mut stopped: tokio::sync::watch::Receiver<bool>| async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let table = self.functions.table.clone();
        let (mut watching, hosts) = (JoinSet::new(), Hosts::new(&self.options.allowed_host));
        if self.may_warm {
            watching.spawn(wake::by_shortage(self.functions.scaler.clone()));
        }
        if let Some(engine) = &self.engine {
            let scaler = &self.functions.scaler;
            if table.config().scaling != ScalingActors::Writer {
                let period = Duration::from_secs(self.options.alarm_period.into());
                watching.spawn(wake::by_alarm(engine.clone(), scaler.clone(), period));
            }
            let period = Duration::from_secs(self.options.drain_period.into());
            watching.spawn(wake::by_schedule(scaler.clone(), period));
        }
        let console = Console::new(self.functions.clone(), stopped.clone());
        console.watch(self.engine.clone(), &mut watching);
        let routes = console.clone().router().merge(http_api::router(self.functions));
        let routes = guard::guard(hosts.clone(), routes);
        let mut servers = JoinSet::new();
        let api = axum::serve(self.api, routes).with_graceful_shutdown(until(stopped.clone()));
        servers.spawn(api.into_future());
        if let Some((listener, engine)) = self.dynamodb.zip(self.engine) {
            let routes = guard::guard(hosts, dynamodb_port::router(engine));
            let port = axum::serve(listener, routes).with_graceful_shutdown(until(stopped.clone()));
            servers.spawn(port.into_future());
        }
        if let Some((listener, server)) = self.endpoint {
            servers.spawn(server.serve(listener, until(stopped.clone())));
        }
        let served = async {
            while let Some(served) = servers.join_next().await {
                served.map_err(std::io::Error::other)??;
            }
            Ok::<_, std::io::Error>(())
        };
        let too_long = async {
            until(stopped).await;
            sleep(GRACE_PERIOD).await;
        };
        tokio::select! {
            served = served => served?,
            // A client that does not read its response or complete its request must not keep the
            // edition running.
            () = too_long => tracing::warn!("some requests were still open and were aborted"),
        }
        servers.shutdown().await;
        console.stop_load();
        watching.shutdown().await;
        if timeout(GRACE_PERIOD, table.close()).await.is_err() {
            tracing::warn!("some background work is unfinished; the next start continues it");
        }
        Ok(())
    }
}

async fn listen(ip: IpAddr, port: u16, option: &'static str) -> Result<TcpListener, EditionError> {
    let address = SocketAddr::new(ip, port);
    TcpListener::bind(address).await.map_err(|cause| EditionError::Port { address, option, cause })
}

/// The endpoint over the engine of the table.
async fn endpoint_over(engine: &Engine, table: &TableEngine) -> Result<Service, EditionError> {
    let connector = SharedHttpConnector::new(InProcess::new(engine.clone()));
    let upstream = Upstream::over(&engine.sdk_config(), connector).await;
    let upstream = upstream.map_err(|error| EditionError::Tables(error.to_string()))?;
    Ok(Service::of_table(table.clone(), upstream.of_any_region()))
}

fn open(options: &ServeOptions, config: &TableConfig) -> Result<Engine, EditionError> {
    let engine = match &options.data_dir {
        None => Engine::in_memory().map_err(|error| EditionError::Tables(error.to_string()))?,
        Some(path) => {
            let failed = |cause: String| EditionError::DataDir { path: path.clone(), cause };
            std::fs::create_dir_all(path).map_err(|error| failed(error.to_string()))?;
            let file = path.join("dynamodb.sqlite");
            Engine::in_file(&file).map_err(|error| failed(error.to_string()))?
        }
    };
    let limits = PartitionLimits {
        partitions: options.partitions,
        write_units: f64::from(options.partition_write_units),
        read_units: f64::from(options.partition_read_units),
        warming: Duration::from_secs(options.warming.into()),
        ..PartitionLimits::default()
    };
    engine.set_limits([(config.table_name.clone(), limits)]);
    Ok(engine)
}
