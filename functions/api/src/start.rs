//! The start of a function: its configuration, one client for its whole life, and the deadline of
//! each invocation.

use std::time::{Duration, UNIX_EPOCH};

use aws_config::{BehaviorVersion, SdkConfig};
use aws_smithy_http_client::{Builder, tls};
use lambda_http::lambda_runtime::Context;
use sharding::{ShardedTable, TableError};
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
