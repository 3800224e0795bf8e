//! The start of a function: configuration, one client for its whole life, and the deadline of each invocation.

use std::time::{Duration, UNIX_EPOCH};

use aws_config::{BehaviorVersion, SdkConfig};
use aws_smithy_http_client::{Builder, tls};
use lambda_http::Error;
use lambda_http::lambda_runtime::Context;
use sharding::internal::{Deadline, TableConfig, TableEngine, TableError};

/// What is kept of an invocation's time for the answer to get out.
const ANSWER_MARGIN: Duration = Duration::from_millis(400);
/// Emulators give contexts without a real deadline; then the time that the template gives a function.
const WITHOUT_DEADLINE: Duration = Duration::from_secs(9);
/// No function runs longer.
const LONGEST_INVOCATION: Duration = Duration::from_secs(15 * 60);

/// How long the start waits for the metadata table. Lambda gives a start ten seconds.
const START_PATIENCE: Duration = Duration::from_secs(8);
/// Between two tries of a start that lacks a right. A role that was made a moment ago may not be known everywhere yet.
const RIGHT_PAUSE: Duration = Duration::from_secs(1);

/// What a function may do with its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read items and metadata.
    Read,
    /// Change them, too.
    Write,
}

/// The SDK's configuration by the standard `AWS_*` variables, over one HTTP client.
pub async fn aws_configuration() -> SdkConfig {
    let http = Builder::new().tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring)).build_https();
    aws_config::defaults(BehaviorVersion::latest()).http_client(http).load().await
}

/// The sharded table that the environment describes, and the SDK's configuration of its client.
///
/// # Errors
/// [`ConfigError`](sharding::internal::ConfigError) names the variable that is missing or wrong; else as [`agree`].
pub(crate) async fn start_table(access: Access) -> Result<(TableEngine, SdkConfig), Error> {
    let config = TableConfig::from_variables(|name| std::env::var(name).ok())?;
    let aws = aws_configuration().await;
    let table = TableEngine::new(&aws_sdk_dynamodb::Client::new(&aws), config);
    agree(&table, access).await?;
    Ok((table, aws))
}

/// Makes sure that the function and the table agree on what the table takes. What is in the way is logged: the function must not start.
///
/// # Errors
/// As [`TableEngine::claim_mode`].
pub async fn agree(table: &TableEngine, access: Access) -> Result<(), TableError> {
    let deadline = Deadline::now() + START_PATIENCE;
    loop {
        // Boxed: the SDK's futures nest deeply.
        let agreed = match access {
            Access::Read => Box::pin(table.check_mode(deadline)).await,
            Access::Write => Box::pin(table.claim_mode(deadline)).await,
        };
        match agreed {
            Ok(()) => return Ok(()),
            Err(error) if error.is_access_denied() && Deadline::now() + RIGHT_PAUSE < deadline => {
                tokio::time::sleep(RIGHT_PAUSE).await;
            }
            Err(error) => {
                tracing::error!(%error, "the function does not start");
                return Err(error);
            }
        }
    }
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
