//! The start of a function: configuration, one client for its whole life, and the deadline of each invocation.

use std::time::{Duration, UNIX_EPOCH};

use aws_config::BehaviorVersion;
use aws_smithy_http_client::{Builder, tls};
use lambda_http::lambda_runtime::Context;
use sharding::{ConfigError, Deadline, ShardedTable, TableConfig};

/// What is kept of an invocation's time for the answer to get out.
const ANSWER_MARGIN: Duration = Duration::from_millis(400);
/// Emulators give contexts without a real deadline; then the time that the template gives a function.
const WITHOUT_DEADLINE: Duration = Duration::from_secs(9);
/// No function runs longer.
const LONGEST_INVOCATION: Duration = Duration::from_secs(15 * 60);

/// The SDK's configuration by the standard `AWS_*` variables, over one HTTP client.
pub async fn aws_configuration() -> aws_config::SdkConfig {
    let http = Builder::new().tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring)).build_https();
    aws_config::defaults(BehaviorVersion::latest()).http_client(http).load().await
}

/// The sharded table that the environment describes.
///
/// # Errors
/// [`ConfigError`] names the variable that is missing or wrong.
pub fn table_from_environment(client: &aws_sdk_dynamodb::Client) -> Result<ShardedTable, ConfigError> {
    let config = TableConfig::from_variables(|name| std::env::var(name).ok())?;
    Ok(ShardedTable::new(client, config))
}

/// The sharded table that the environment describes, over a client of its own.
///
/// # Errors
/// As [`table_from_environment`].
pub(crate) async fn start_table() -> Result<ShardedTable, ConfigError> {
    table_from_environment(&aws_sdk_dynamodb::Client::new(&aws_configuration().await))
}

/// The instant by which an invocation must have its answer, with a margin for sending it.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the edge where time comes in: Lambda gives the deadline as wall-clock time"
)]
pub fn invocation_deadline(context: &Context) -> Deadline {
    let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_millis(context.deadline).saturating_sub(now);
    let usable =
        if left.is_zero() || left > LONGEST_INVOCATION { WITHOUT_DEADLINE } else { left.saturating_sub(ANSWER_MARGIN) };
    tokio::time::Instant::now() + usable
}
