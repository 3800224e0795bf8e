//! The shard-scaler. An alarm, a writer or a direct event wakes it.
//!
//! An alarm names a table and never a key, and comes late, twice or not at all. So it is only a
//! hint. The action follows from the throttled keys, the policy and the protocol, which make a
//! repetition harmless.

mod alarm;
mod clients;
mod config;
mod direct;
mod drain;
mod event;
mod response;
mod survey;
mod warm_throughput;

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use sharding::maintenance::Maintenance;
use sharding::{PartitionKey, ShardedTable};

pub use clients::Clients;
pub use config::{ScalerConfig, VARIABLES};

use event::ScalerEvent;
use response::{respond, to_json};
use tokio::time::Instant as Deadline;
use warm_throughput::Looks;

/// The shard-scaler of one table. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Scaler {
    table: ShardedTable,
    clients: Clients,
    config: ScalerConfig,
    /// The key after which the next run of the schedule continues, because the last one stopped
    /// there.
    looked_after: Arc<Mutex<Option<PartitionKey>>>,
    /// Held while the table's warm throughput is read or raised, so that concurrent callers raise it
    /// once.
    looks: Arc<tokio::sync::Mutex<Looks>>,
}

impl Scaler {
    /// The shard-scaler of this table, with these clients.
    #[must_use]
    pub fn new(table: ShardedTable, clients: Clients, config: ScalerConfig) -> Self {
        Self { table, clients, config, looked_after: Arc::default(), looks: Arc::default() }
    }

    /// The table whose keys it scales.
    #[must_use]
    pub const fn table(&self) -> &ShardedTable {
        &self.table
    }

    /// The work on the table and its keys, until this deadline.
    pub(crate) fn maintenance(&self, deadline: Deadline) -> Maintenance {
        self.table.maintenance().deadline(deadline)
    }

    /// Handles one event and returns what was done. An invalid event or a missing permission is a
    /// response, not an error, because repeating the event would not help.
    ///
    /// `now_seconds` is the time since the Unix epoch.
    ///
    /// # Errors
    /// [`Failed`] if a part of the event failed temporarily: throttled, or without a response from
    /// AWS. It contains the response.
    pub fn handle<'a>(
        &'a self,
        event: &'a Value,
        now_seconds: u64,
        deadline: Deadline,
    ) -> Pin<Box<dyn Future<Output = Result<Value, Failed>> + Send + 'a>> {
        Box::pin(async move {
            let response = match ScalerEvent::parse(event) {
                Ok(ScalerEvent::Direct(event)) => self.direct(event, now_seconds, deadline).await,
                Ok(ScalerEvent::Alarms(alarms)) => {
                    Ok(respond("alarm", &self.alarms(&alarms, now_seconds, deadline).await))
                }
                Err(refused) => Err(refused),
            };
            let response = response.unwrap_or_else(|refused| to_json(&refused));
            tracing::info!(audit = true, answer = %response, "event handled");
            Failed::check(response)
        })
    }
}

/// A part of the event failed temporarily: throttled, or without a response. Repeat the event.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{summary}")]
pub struct Failed {
    response: Value,
    summary: String,
}

impl Failed {
    /// The response, with what was done and what failed.
    #[must_use]
    pub fn into_response(self) -> Value {
        self.response
    }

    /// The response, unless a part of it asks for a repetition.
    fn check(response: Value) -> Result<Value, Self> {
        let Some(cause) = cause_to_repeat(&response) else { return Ok(response) };
        let action = response["action"].as_str().unwrap_or("event");
        let summary = format!("{action} failed: {cause}");
        Err(Self { response, summary })
    }
}

/// The cause of the first failure that asks for a repetition, in a response or a part of one.
fn cause_to_repeat(part: &Value) -> Option<&str> {
    match part {
        Value::Array(parts) => parts.iter().find_map(cause_to_repeat),
        Value::Object(fields) => {
            let own = part["detail"].as_str().filter(|_| part["retry"] == true);
            own.or_else(|| fields.values().find_map(cause_to_repeat))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::{Outcome, Report};
    use serde_json::json;

    #[test]
    fn only_a_failure_that_a_repetition_can_mend_is_an_error() {
        let failed = |key: &str, is_retryable| {
            let outcome = Outcome::failed("throttled (table)", is_retryable);
            to_json(&Report::of_key(&PartitionKey::new(key).unwrap(), outcome))
        };
        let expected = json!({
            "partition_key": "a", "outcome": "failed", "detail": "throttled (table)", "retry": true,
        });
        assert_eq!(failed("a", true), expected);

        let lasting = json!({"action": "drain", "keys": [failed("a", false)]});
        assert_eq!(Failed::check(lasting.clone()), Ok(lasting));

        let keys = [failed("a", true), failed("b", false), failed("c", true)];
        let momentary = json!({"action": "alarm", "keys": keys, "warm": failed("d", true)});
        let error = Failed::check(momentary.clone()).unwrap_err();
        assert_eq!(error.to_string(), "alarm failed: throttled (table)");
        assert_eq!(error.into_response(), momentary);
    }
}
