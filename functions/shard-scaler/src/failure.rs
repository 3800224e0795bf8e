//! Failed outcomes. Each is counted. One that a repetition of the event can mend ends the invocation in an error: then Lambda repeats the event,
//! and keeps it in the failure queue where that does not help.

use std::fmt::Display;

use serde_json::Value;

use crate::telemetry;

/// The mark of a failed outcome for which the event is to be repeated.
const RETRY: &str = "retry";

/// An event of which at least a part failed for a moment: throttled, or without an answer. Repeat it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{summary}")]
pub struct Failed {
    answer: Value,
    summary: String,
}

impl Failed {
    /// What was done, and what failed.
    #[must_use]
    pub fn into_answer(self) -> Value {
        self.answer
    }

    /// The answer as it is, unless a part of it asks for a repetition.
    pub(crate) fn check(answer: Value) -> Result<Value, Self> {
        let mut details = Vec::new();
        to_repeat(&answer, &mut details);
        let Some(first) = details.first() else { return Ok(answer) };
        let action = answer.get("action").and_then(Value::as_str).unwrap_or("event");
        let more = if details.len() > 1 { format!(", and {} more", details.len() - 1) } else { String::new() };
        let summary = format!("{action} failed: {first}{more}");
        Err(Self { answer, summary })
    }
}

/// The outcome `failed` of what `subject` names, with its cause.
pub(crate) fn failed(mut subject: Value, cause: impl Display, is_retryable: bool) -> Value {
    telemetry::failed();
    if let Some(answer) = subject.as_object_mut() {
        answer.insert("outcome".into(), "failed".into());
        answer.insert("detail".into(), cause.to_string().into());
        if is_retryable {
            answer.insert(RETRY.into(), true.into());
        }
    }
    subject
}

/// The causes of the failures within an answer that a repetition may mend.
fn to_repeat<'a>(answer: &'a Value, details: &mut Vec<&'a str>) {
    match answer {
        Value::Array(parts) => parts.iter().for_each(|part| to_repeat(part, details)),
        Value::Object(parts) => {
            if parts.get(RETRY) == Some(&Value::Bool(true)) {
                details.push(parts.get("detail").and_then(Value::as_str).unwrap_or_default());
            }
            parts.values().for_each(|part| to_repeat(part, details));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_failure_that_a_repetition_can_mend_is_an_error_and_its_summary_is_one_line() {
        let lasting = failed(json!({"action": "show"}), "not authorized", false);
        assert_eq!(lasting, json!({"action": "show", "outcome": "failed", "detail": "not authorized"}));
        assert_eq!(Failed::check(lasting.clone()), Ok(lasting));

        let momentary = failed(json!({"partition_key": "a"}), "throttled (table)", true);
        let answer =
            json!({"action": "alarm", "outcome": "handled", "keys": [momentary, {"outcome": "scaled"}, momentary]});
        let error = Failed::check(answer.clone()).unwrap_err();
        assert_eq!(error.to_string(), "alarm failed: throttled (table), and 1 more");
        assert_eq!(error.into_answer(), answer);
    }
}
