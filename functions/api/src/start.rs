//! The process of a function: its configuration, one client for its whole life, its log, its
//! metrics in CloudWatch's embedded metric format, and the deadline of each invocation.

use std::time::{Duration, UNIX_EPOCH};

use aws_config::{BehaviorVersion, SdkConfig};
use aws_smithy_http_client::{Builder, tls};
use lambda_http::{Body, Context, Error, Request, RequestExt, Response, service_fn};
use metrics_cloudwatch_embedded::Collector;
use sharding::{ShardedTable, TableConfig, TableError};
use tokio::time::Instant as Deadline;

/// The part of an invocation's time that is reserved for sending the response.
const RESPONSE_MARGIN: Duration = Duration::from_millis(400);
/// The time limit if the context has no real deadline, as in emulators. The template sets the same
/// timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(9);
/// Lambda's limit of an invocation.
const MAX_INVOCATION_TIME: Duration = Duration::from_secs(15 * 60);

/// How long the start waits for the metadata table. Lambda limits the start to ten seconds.
const START_TIMEOUT: Duration = Duration::from_secs(8);
/// The pause between two attempts of a start that lacks a permission. A new role takes some time to
/// propagate.
const PERMISSION_PAUSE: Duration = Duration::from_secs(1);

/// A function's access to its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read items and metadata.
    Read,
    /// Also change them.
    Write,
}

/// Loads the SDK's configuration from the standard `AWS_*` variables, with one HTTP client.
pub async fn aws_configuration() -> SdkConfig {
    let http = Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https();
    aws_config::defaults(BehaviorVersion::latest()).http_client(http).load().await
}

/// Checks that the function and the table agree on which writes the table accepts. On an error, the
/// function must not start; the error is logged.
///
/// # Errors
/// The errors of [`Maintenance::claim`](sharding::maintenance::Maintenance::claim).
pub async fn agree(table: &ShardedTable, access: Access) -> Result<(), TableError> {
    let deadline = Deadline::now() + START_TIMEOUT;
    loop {
        let maintenance = table.maintenance().deadline(deadline);
        let agreed = match access {
            Access::Read => maintenance.check().await,
            Access::Write => maintenance.claim().await,
        };
        let Err(error) = agreed else { return Ok(()) };
        if !error.is_access_denied() || Deadline::now() + PERMISSION_PAUSE >= deadline {
            tracing::error!(%error, "the function does not start");
            return Err(error);
        }
        tokio::time::sleep(PERMISSION_PAUSE).await;
    }
}

/// The time since the Unix epoch.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "time enters the functions here")]
pub fn since_epoch() -> Duration {
    std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The instant by which an invocation must have its response, with a margin for sending it.
#[must_use]
pub fn invocation_deadline(context: &Context) -> Deadline {
    let left = Duration::from_millis(context.deadline).saturating_sub(since_epoch());
    let usable = if left.is_zero() || left > MAX_INVOCATION_TIME {
        DEFAULT_TIMEOUT
    } else {
        left.saturating_sub(RESPONSE_MARGIN)
    };
    Deadline::now() + usable
}

/// Serves the routes of one function on Lambda, with the table that the environment describes.
/// `started` is called once, before the first invocation, and may start background tasks.
///
/// # Errors
/// Fails if a variable is wrong, if the function and the table disagree on which writes the table
/// accepts, or if the runtime API fails.
pub async fn serve<S, H, F>(access: Access, started: S, handle: H) -> Result<(), Error>
where
    S: FnOnce(&'static ShardedTable, &SdkConfig),
    H: Fn(&'static ShardedTable, Request, Deadline) -> F + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    lambda_http::tracing::init_default_subscriber();
    let config = TableConfig::from_variables(|name| std::env::var(name).ok())?;
    let aws = aws_configuration().await;
    let table = ShardedTable::new(&aws_sdk_dynamodb::Client::new(&aws), config);
    agree(&table, access).await?;
    // The table lives as long as the process.
    let table: &'static ShardedTable = Box::leak(Box::new(table));
    let telemetry = Telemetry::start(&table.config().table_name)?;
    started(table, &aws);
    lambda_http::run(service_fn(move |request: Request| {
        let context = request.lambda_context();
        table.invoked(Duration::from_millis(context.deadline));
        let handled = handle(table, request, invocation_deadline(&context));
        async move {
            let response = handled.await;
            telemetry.flush(&context);
            Ok::<_, Error>(response)
        }
    }))
    .await
}

/// The namespace of all metrics.
const NAMESPACE: &str = "DynamoDBWriteSharding";

/// The name within an ARN, or the name itself. CloudWatch identifies a table by it.
#[must_use]
pub fn bare_table_name(configured: &str) -> &str {
    configured.rsplit_once(":table/").map_or(configured, |(_, bare)| bare)
}

/// Collects the table's metrics.
#[derive(Clone, Copy)]
pub struct Telemetry(&'static Collector);

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Telemetry").finish()
    }
}

impl Telemetry {
    /// Collects all metrics of this process, with the table as their dimension. Call it once in a
    /// process.
    ///
    /// # Errors
    /// Fails if a recorder is already installed.
    pub fn start(table_name: &str) -> Result<Self, Error> {
        let name = bare_table_name(table_name).to_owned();
        let collector = metrics_cloudwatch_embedded::Builder::new()
            .cloudwatch_namespace(NAMESPACE)
            .with_dimension("TableName", name)
            .init();
        collector.map(Self).map_err(|error| error.to_string().into())
    }

    /// Writes the metrics since the last call, in a process that is not invoked.
    pub fn flush_period(self) {
        if let Err(error) = self.0.flush(std::io::stdout()) {
            tracing::warn!(%error, "the metrics could not be written");
        }
    }

    /// Writes the metrics of one invocation, with its request and trace as properties.
    pub fn flush(self, context: &Context) {
        self.0.set_property("RequestId", context.request_id.clone());
        if let Some(trace) = &context.xray_trace_id {
            self.0.set_property("XRayTraceId", trace.clone());
        }
        self.flush_period();
    }
}
