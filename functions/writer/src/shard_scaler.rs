//! The client of the shard-scaler's function. A writer invokes it, because only the shard-scaler
//! may raise the table's warm throughput. Only this file uses the Lambda SDK.

use std::sync::LazyLock;
use std::time::Duration;

use api::SdkConfig;
use aws_sdk_lambda::Client;
use aws_sdk_lambda::config::Builder;
use aws_sdk_lambda::config::retry::RetryConfig;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::InvocationType;
use serde_json::json;
use sharding::ShardedTable;
use sharding::variables::Setting;
use tokio::time::timeout;

use crate::shortage;

const TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum length of a function's name or ARN. [Lambda API reference, Invoke]
const MAX_NAME_CHARS: usize = 170;

/// The writer's own variable. If it is not set, the writer does not report shortages.
pub static VARIABLES: LazyLock<[Setting<Option<String>>; 1]> = LazyLock::new(|| {
    [Setting::parsed(
        "SHARD_SCALER_FUNCTION",
        "a function's name or ARN, of up to 170 letters, digits, '-', '_', '.', ':' and '$'",
        |function| function,
        |value| is_function(value).then(|| Some(value.to_owned())),
        |function| function.clone().unwrap_or_default(),
    )]
});

/// A client of the shard-scaler's function.
#[derive(Debug)]
pub struct ShardScaler {
    client: Client,
    function: String,
}

impl ShardScaler {
    /// Makes a client of the function with this name or ARN.
    #[must_use]
    pub fn new(aws: &SdkConfig, function: String) -> Self {
        // No retries: a failed report is repeated within seconds.
        let config = Builder::from(aws).retry_config(RetryConfig::disabled()).build();
        Self { client: Client::from_conf(config), function }
    }

    /// Wakes the function whenever this instance must report that the table is short of partitions.
    ///
    /// Lambda freezes the process, and with it this task, between invocations; the next invocation
    /// continues it. Throttled writes reveal a shortage, so an invocation is usually in progress.
    pub async fn wake_when_short(self, table: &ShardedTable) {
        let now_seconds = || api::since_epoch().as_secs();
        let report = |write_units| self.wake(write_units);
        shortage::watch(table.maintenance().events(), now_seconds, report).await;
    }

    async fn wake(&self, write_units: u64) {
        match self.warm(write_units).await {
            Ok(()) => {
                tracing::info!(
                    write_units,
                    "woke the shard-scaler: the table is short of partitions"
                );
            }
            Err(error) => {
                tracing::warn!(%error, write_units, "could not wake the shard-scaler; the next report tries again");
            }
        }
    }

    /// Asks the function to raise the table's warm throughput to this number of write units per
    /// second, within its budget. It does not wait for the outcome, which is in the function's log.
    ///
    /// # Errors
    /// The reason, if Lambda does not accept the event within three seconds. No action is needed: the
    /// writer reports the shortage again while it lasts, and the alarm also wakes the shard-scaler.
    pub async fn warm(&self, write_units: u64) -> Result<(), String> {
        let event = json!({"action": "warm", "write_units": write_units}).to_string();
        let invoke = self.client.invoke().function_name(&self.function).payload(Blob::new(event));
        let invoke = invoke.invocation_type(InvocationType::Event);
        // Boxed: the SDK's futures nest deeply.
        match timeout(TIMEOUT, Box::pin(invoke.send())).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("Invoke: {}", api::cause(&error))),
            Err(_) => Err(format!("Invoke: no response within {} s", TIMEOUT.as_secs())),
        }
    }
}

fn is_function(value: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '$');
    (1..=MAX_NAME_CHARS).contains(&value.len()) && value.chars().all(is_valid)
}

#[cfg(test)]
mod tests {
    use sharding::ConfigError;
    use sharding::variables::read;

    use super::*;

    fn function(value: &str) -> Result<Option<String>, ConfigError> {
        read(&*VARIABLES, None, |_| Some(value.to_owned()))
    }

    #[test]
    fn the_function_has_a_valid_name_or_is_absent() {
        assert_eq!(function(""), Ok(None));
        let longest = "f".repeat(MAX_NAME_CHARS);
        let arn = "arn:aws:lambda:us-east-1:123456789012:function:f:$LATEST";
        for name in ["stack-ShardScalerFunction-1a2B", arn, &longest] {
            assert_eq!(function(name), Ok(Some(name.to_owned())));
        }
        for wrong in ["the shard-scaler", "f/invocations", "é", &format!("{longest}f")] {
            let error = function(wrong).unwrap_err().to_string();
            let is_named = error.contains("SHARD_SCALER_FUNCTION");
            assert!(is_named && error.contains("up to 170 letters"), "{error}");
        }
    }
}
