//! Failed outcomes. Each is counted. If a repetition of the event may succeed, the invocation ends
//! in an error: then Lambda repeats the event, and moves it to the failure queue if that does not
//! help.

use std::fmt::Display;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::telemetry;

/// The outcome `failed`, with its cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename = "failed")]
pub(crate) struct Failure {
    detail: String,
    /// Whether to repeat the event.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    retry: bool,
}

impl Failure {
    /// Also counts the failure.
    pub(crate) fn new(cause: impl Display, is_retryable: bool) -> Self {
        telemetry::failed();
        Self { detail: cause.to_string(), retry: is_retryable }
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

    /// The response as JSON, unless one of its failures asks for a repetition.
    pub(crate) fn check(failures: Vec<&Failure>, json: Value) -> Result<Value, Self> {
        let mut to_repeat = failures.into_iter().filter(|failure| failure.retry);
        let Some(first) = to_repeat.next() else { return Ok(json) };
        let action = json.get("action").and_then(Value::as_str).unwrap_or("event");
        let more = match to_repeat.count() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let summary = format!("{action} failed: {}{more}", first.detail);
        Err(Self { response: json, summary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarm::{AlarmActions, AlarmOutcome, AlarmReport};
    use crate::report::{KeyOutcome, KeyReport, to_json};
    use crate::response::Response;
    use serde_json::json;
    use sharding::PartitionKey;

    fn of_key(key: &str, outcome: Result<KeyOutcome, Failure>) -> KeyReport {
        KeyReport::new(&PartitionKey::new(key).unwrap(), outcome)
    }

    #[test]
    fn only_a_failure_that_a_repetition_can_mend_is_an_error_and_its_summary_is_one_line() {
        let lasting = Response::Show(of_key("a", Err(Failure::new("not authorized", false))));
        let detail = "not authorized";
        let expected = json!({
            "action": "show", "partition_key": "a", "outcome": "failed", "detail": detail,
        });
        assert_eq!(Failed::check(lasting.failures(), to_json(&lasting)), Ok(expected));

        let momentary = || of_key("a", Err(Failure::new("throttled (table)", true)));
        let scaled = of_key("b", Ok(KeyOutcome::Scaled { from: 1, to: 2 }));
        let keys = vec![momentary(), scaled, momentary()];
        let actions = AlarmActions { keys, ..AlarmActions::default() };
        let outcome = Ok(AlarmOutcome::Handled(Box::new(actions)));
        let response = Response::Alarm(AlarmReport { alarm: None, outcome, rearmed: Some(true) });
        let failed = json!({
            "partition_key": "a", "outcome": "failed", "detail": "throttled (table)", "retry": true,
        });
        let scaled = json!({"partition_key": "b", "outcome": "scaled", "from": 1, "to": 2});
        let expected = json!({
            "action": "alarm", "alarm": null, "outcome": "handled", "causes": [],
            "keys": [failed, scaled, failed], "rearmed": true,
        });
        let error = Failed::check(response.failures(), to_json(&response)).unwrap_err();
        assert_eq!(error.to_string(), "alarm failed: throttled (table), and 1 more");
        assert_eq!(error.into_response(), expected);
    }
}
