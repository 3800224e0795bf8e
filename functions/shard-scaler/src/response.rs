//! Responses to events, and their parts.
//!
//! Each part has an `outcome`. The outcome `failed` is counted. If a repetition of the event may
//! succeed, the part has `"retry": true`, and the invocation ends in an error: then Lambda repeats
//! the event, and moves it to the failure queue if that does not help.

use std::fmt::Display;

use serde::{Serialize, Serializer};
use serde_json::Value;
use sharding::maintenance::ScaleOutcome;
use sharding::{PartitionKey, TableError};

use crate::telemetry;

/// The response to an event that is not about one key.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten, serialize_with = "outcome")]
    pub(crate) outcome: Result<Outcome, Failure>,
    /// The other fields: an object.
    #[serde(flatten)]
    pub(crate) details: Value,
}

/// The outcome of an event that is not about one key.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Handled,
    DryRun,
    Unchanged { reason: String },
}

/// The result for one key. It is also the key's line in the audit log.
#[derive(Debug, Serialize)]
pub(crate) struct KeyReport {
    /// `open`, `report` or `scale`, if a list has keys of several actions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<&'static str>,
    pub(crate) partition_key: String,
    #[serde(flatten, serialize_with = "outcome")]
    pub(crate) outcome: Result<KeyOutcome, Failure>,
    /// Throttled requests under the key's present width.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) throttled: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum KeyOutcome {
    /// Writers use the new shards.
    Scaled { from: u32, to: u32 },
    /// There was nothing to do, or a reason not to do it.
    Unchanged { reason: String },
    /// The widths that it would change, if the action names them.
    DryRun(Value),
    /// A drain has begun.
    Begun { number_of_shards: u32, read_shards: u32 },
    /// The key's metadata.
    Shown { metadata: Value },
    /// The drain goes on after this epoch second.
    Waiting { until: u64 },
    /// The drain has moved this number of items, and goes on.
    Working { items: u64 },
    /// The drain has ended.
    Done { from: u32, to: u32, items: u64 },
}

/// The outcome `failed`, with its cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename = "failed")]
pub(crate) struct Failure {
    detail: String,
    /// Whether to repeat the event.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    retry: bool,
}

impl KeyReport {
    pub(crate) fn new(key: &PartitionKey, outcome: Result<KeyOutcome, Failure>) -> Self {
        Self { action: None, partition_key: key.as_str().to_owned(), outcome, throttled: None }
    }
}

impl KeyOutcome {
    pub(crate) fn unchanged(reason: impl Display) -> Self {
        Self::Unchanged { reason: reason.to_string() }
    }

    /// The result of changing the key's width.
    pub(crate) fn of(result: Result<ScaleOutcome, TableError>) -> Result<Self, Failure> {
        let failure = |error| Failure::of(&error, "a key could not be scaled");
        result.map(Self::of_change).map_err(failure)
    }

    /// The same for a request that succeeded.
    pub(crate) fn of_change(outcome: ScaleOutcome) -> Self {
        match outcome {
            ScaleOutcome::Scaled { from, to } => Self::Scaled { from: from.get(), to: to.get() },
            ScaleOutcome::Unchanged(decision) => Self::unchanged(decision),
            ScaleOutcome::Superseded | _ => Self::unchanged("another actor changed it first"),
        }
    }
}

impl Failure {
    /// Also counts the failure.
    pub(crate) fn new(cause: impl Display, is_retryable: bool) -> Self {
        telemetry::failed();
        Self { detail: cause.to_string(), retry: is_retryable }
    }

    /// Also counts the failure, and logs the error with its effect.
    pub(crate) fn of(error: &TableError, effect: &str) -> Self {
        tracing::error!(%error, "{effect}");
        Self::new(error, error.is_retryable())
    }
}

/// Serializes a successful outcome or the failure.
pub(crate) fn outcome<T, S>(result: &Result<T, Failure>, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Serialize,
    S: Serializer,
{
    match result {
        Ok(done) => done.serialize(serializer),
        Err(failure) => failure.serialize(serializer),
    }
}

/// A response, or a part of one, as JSON.
pub(crate) fn to_json(part: &impl Serialize) -> Value {
    serde_json::to_value(part).expect("every key of its maps is text")
}

/// The response to an event of this action.
pub(crate) fn respond(action: &str, report: &impl Serialize) -> Value {
    let mut response = to_json(report);
    response["action"] = action.into();
    response
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
    pub(crate) fn check(response: Value) -> Result<Value, Self> {
        let causes = causes_to_repeat(&response);
        let Some((first, others)) = causes.split_first() else { return Ok(response) };
        let action = response["action"].as_str().unwrap_or("event");
        let more = match others.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let summary = format!("{action} failed: {first}{more}");
        Err(Self { response, summary })
    }
}

/// The causes of the failures that ask for a repetition, in a response or a part of one.
fn causes_to_repeat(part: &Value) -> Vec<&str> {
    match part {
        Value::Array(parts) => parts.iter().flat_map(causes_to_repeat).collect(),
        Value::Object(fields) => {
            let own = part["detail"].as_str().filter(|_| part["retry"] == true);
            own.into_iter().chain(fields.values().flat_map(causes_to_repeat)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_failure_that_a_repetition_can_mend_is_an_error() {
        let failed = |key: &str, is_retryable| {
            let failure = Failure::new("throttled (table)", is_retryable);
            to_json(&KeyReport::new(&PartitionKey::new(key).unwrap(), Err(failure)))
        };
        let expected = json!({
            "partition_key": "a", "outcome": "failed", "detail": "throttled (table)", "retry": true,
        });
        assert_eq!(failed("a", true), expected);

        let lasting = respond("drain", &json!({"keys": [failed("a", false)]}));
        assert_eq!(Failed::check(lasting.clone()), Ok(lasting));

        let keys = [failed("a", true), failed("b", false), failed("c", true)];
        let momentary = respond("alarm", &json!({"keys": keys, "warm": failed("d", true)}));
        let error = Failed::check(momentary.clone()).unwrap_err();
        assert_eq!(error.to_string(), "alarm failed: throttled (table), and 2 more");
        assert_eq!(error.into_response(), momentary);
    }
}
