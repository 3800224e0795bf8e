//! The shard-scaler's function, woken by this one: it may raise what the table can serve at once, and a writer may not.
//! The only file that names the SDK of Lambda.

use std::error::Error;
use std::time::Duration;

use api::SdkConfig;
use aws_sdk_lambda::Client;
use aws_sdk_lambda::config::Builder;
use aws_sdk_lambda::config::retry::RetryConfig;
use aws_sdk_lambda::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_lambda::operation::invoke::InvokeError;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use serde_json::json;
use sharding::internal::config::Variables;
use sharding::internal::{Clock, ConfigError, SystemClock, TableEngine};
use tokio::time::timeout;

use crate::shortage;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest name or ARN of a function. [Lambda API reference, Invoke]
const LONGEST_NAME: usize = 170;

/// The shard-scaler's function.
#[derive(Debug, Clone)]
pub struct ShardScaler {
    client: Client,
    function: String,
}

/// The shard-scaler was not woken; the text says why. Leave it: the shortage is reported again while it lasts, and the
/// alarm wakes the shard-scaler, too.
#[derive(Debug, thiserror::Error)]
#[error("Invoke: {0}")]
pub struct NotWoken(String);

impl ShardScaler {
    /// Reads `SHARD_SCALER_FUNCTION`. `None` where it is not set: then the writer wakes nobody.
    ///
    /// # Errors
    /// [`ConfigError`] where it can be neither a name nor an ARN.
    pub fn function(lookup: impl Fn(&'static str) -> Option<String>) -> Result<Option<String>, ConfigError> {
        let read = Variables::new(lookup);
        let mut function = None;
        let allowed = "a function's name or ARN, of up to 170 letters, digits, '-', '_', '.', ':' and '$'";
        read.set(&mut function, "SHARD_SCALER_FUNCTION", allowed, |value| {
            is_function(value).then(|| Some(value.to_owned()))
        })?;
        Ok(function)
    }

    /// The function of this name or ARN.
    #[must_use]
    pub fn new(aws: &SdkConfig, function: String) -> Self {
        // A report that fails comes again in seconds.
        let config = Builder::from(aws).retry_config(RetryConfig::disabled()).build();
        Self { client: Client::from_conf(config), function }
    }

    /// Wakes the function whenever this instance has to report that the table is short of partitions.
    ///
    /// Lambda freezes a process between its invocations, and this with it: it goes on with the next one. A shortage is
    /// found by throttled writes, so as a rule an invocation is under way.
    pub async fn wake_when_short(self, table: &TableEngine) {
        let clock = SystemClock::default();
        let report = move |write_units: u64| {
            let scaler = self.clone();
            async move { scaler.wake(write_units).await }
        };
        shortage::watch(table.scaling_events(), move || clock.now().epoch_seconds(), report).await;
    }

    async fn wake(&self, write_units: u64) {
        match self.warm(write_units).await {
            Ok(()) => tracing::info!(write_units, "woke the shard-scaler: the table is short of partitions"),
            Err(error) => {
                tracing::warn!(%error, write_units, "could not wake the shard-scaler; the next report tries again");
            }
        }
    }

    /// Has the function make the table ready for so many write units a second, within its budget. It does not wait for
    /// the outcome, which is in the function's log.
    ///
    /// # Errors
    /// [`NotWoken`] where Lambda has not taken the event within three seconds.
    pub async fn warm(&self, write_units: u64) -> Result<(), NotWoken> {
        let event = json!({"action": "warm", "write_units": write_units}).to_string();
        let invoke = self
            .client
            .invoke()
            .function_name(&self.function)
            .invocation_type(InvocationType::Event)
            .payload(Blob::new(event));
        // Boxed: the SDK's futures nest deeply.
        match timeout(PATIENCE, Box::pin(invoke.send())).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(NotWoken(cause(&error))),
            Err(_) => Err(NotWoken(format!("no answer in {} s", PATIENCE.as_secs()))),
        }
    }
}

fn is_function(value: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '$');
    (1..=LONGEST_NAME).contains(&value.len()) && value.chars().all(is_allowed)
}

/// In one line, and without the response that the SDK's own text shows.
fn cause(error: &SdkError<InvokeError>) -> String {
    if let Some(code) = error.code() {
        return format!("{code}: {}", error.message().unwrap_or("no message"));
    }
    let causes = std::iter::successors(Some(error as &dyn Error), |error| Error::source(*error));
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(value: &str) -> Result<Option<String>, ConfigError> {
        ShardScaler::function(|name| (name == "SHARD_SCALER_FUNCTION").then(|| value.to_owned()))
    }

    #[test]
    fn the_function_is_named_or_there_is_none() {
        assert_eq!(ShardScaler::function(|_| None), Ok(None));
        assert_eq!(function(""), Ok(None));
        let longest = "f".repeat(LONGEST_NAME);
        let arn = "arn:aws:lambda:us-east-1:123456789012:function:f:$LATEST";
        for name in ["stack-ShardScalerFunction-1a2B", arn, &longest] {
            assert_eq!(function(name), Ok(Some(name.to_owned())));
        }
        for wrong in ["the shard-scaler", "f/invocations", "é", &format!("{longest}f")] {
            let error = function(wrong).unwrap_err().to_string();
            assert!(error.contains("SHARD_SCALER_FUNCTION") && error.contains("up to 170 letters"), "{error}");
        }
    }
}
