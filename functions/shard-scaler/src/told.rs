//! Outcomes as answers.

use serde_json::{Value, json};
use sharding::{PartitionKey, ScaleError, ScaleOutcome, ScalingDecision};

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
            json!({"action": action, "partition_key": key, "outcome": "unchanged", "reason": reason(decision)})
        }
        Ok(ScaleOutcome::Outrun) => {
            json!({"action": action, "partition_key": key, "outcome": "unchanged", "reason": "another actor changed it first"})
        }
        Err(error @ (ScaleError::TooMany { .. } | ScaleError::Lower { .. })) => refused("number_of_shards", error),
        Err(ScaleError::Table(error)) => {
            tracing::error!(%error, "a key could not be scaled");
            json!({"action": action, "partition_key": key, "outcome": "failed", "detail": error.to_string()})
        }
    }
}

/// A decision in words.
pub(crate) fn reason(decision: ScalingDecision) -> String {
    match decision {
        ScalingDecision::CoolingDown { until } => format!("cooling down until {until}"),
        ScalingDecision::ShortOfPartitions { until } => {
            format!("growing did not help: the table is short of partitions; next try from {until}")
        }
        ScalingDecision::AtMaximum => "at MAX_SHARDS".to_owned(),
        ScalingDecision::Draining => "a shrink is under way".to_owned(),
        ScalingDecision::Expanding(to) => format!("an expansion to {to} is under way"),
        ScalingDecision::ScaleOut(to) => format!("it needs {to} shards"),
        ScalingDecision::Calm => "nothing to do".to_owned(),
    }
}
