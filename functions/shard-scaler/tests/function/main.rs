//! The shard-scaler: as a library over AWS in this process, and as the binary that Lambda runs.

mod alarms;
mod aws;
mod events;
mod failing_services;
mod warming;

use serde_json::Value;

/// Asserts that an answer has these fields, and so on within objects. An absent field is null.
#[track_caller]
fn assert_has(answer: &Value, part: Value) {
    assert!(has(answer, &part), "{answer}\nhas not: {part}");
}

fn has(answer: &Value, part: &Value) -> bool {
    let Some(fields) = part.as_object() else { return answer == part };
    fields.iter().all(|(name, part)| has(&answer[name], part))
}
