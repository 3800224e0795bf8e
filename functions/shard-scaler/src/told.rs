//! Outcomes as answers.

use serde_json::{Value, json};
use sharding::internal::{PartitionKey, ScaleError, ScaleOutcome};

use crate::failure::failed;

pub(crate) fn refused(field: &str, detail: impl std::fmt::Display) -> Value {
    json!({"outcome": "refused", "field": field, "detail": detail.to_string()})
}

/// What became of one key, which is also its line in the audit log.
pub(crate) fn told(action: &str, key: &PartitionKey, result: Result<ScaleOutcome, ScaleError>) -> Value {
    let key = key.as_str();
    match result {
        Ok(ScaleOutcome::Scaled { from, to }) => {
            json!({"action": action, "partition_key": key, "outcome": "scaled", "from": from.get(), "to": to.get()})
        }
        Ok(ScaleOutcome::Unchanged(decision)) => {
            json!({"action": action, "partition_key": key, "outcome": "unchanged", "reason": decision.to_string()})
        }
        Ok(ScaleOutcome::Superseded) => {
            json!({"action": action, "partition_key": key, "outcome": "unchanged", "reason": "another actor changed it first"})
        }
        Err(error @ (ScaleError::TooMany { .. } | ScaleError::Lower { .. })) => refused("number_of_shards", error),
        Err(ScaleError::Table(error)) => {
            tracing::error!(%error, "a key could not be scaled");
            failed(json!({"action": action, "partition_key": key}), &error, error.is_retryable())
        }
    }
}
