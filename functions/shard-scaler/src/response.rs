//! Responses to events, and their parts.
//!
//! Each part has an `outcome`. The outcome `failed` is counted. If a repetition of the event may
//! succeed, the part has `"retry": true`, and the invocation ends in an error: then Lambda repeats
//! the event, and moves it to the failure queue if that does not help.

use std::fmt::Display;

use metrics::counter;
use serde::Serialize;
use serde_json::{Value, json};
use sharding::maintenance::ScaleOutcome;
use sharding::{PartitionKey, TableError};

use crate::clients::{ClientError, Units};
use crate::event::EventError;

/// The response to a direct event, or why the event is refused.
pub(crate) type Handled = Result<Report, EventError>;

/// The response to an event, or a part of it. Some parts are also lines of the audit log.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    /// The other fields: an object.
    #[serde(flatten)]
    pub(crate) details: Value,
}

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// What the event asks for is done.
    Handled,
    /// The event asks for nothing.
    Ignored { reason: String },
    /// There was nothing to do, or a reason not to do it.
    Unchanged { reason: String },
    /// What it would change, if the details do not have it.
    DryRun(Value),
    /// Writers use the new shards.
    Scaled { from: u32, to: u32 },
    /// A drain has begun.
    Begun { number_of_shards: u32, read_shards: u32 },
    /// The metadata of a key.
    Shown { metadata: Value },
    /// The keys are in the details.
    Listed,
    /// The drain goes on after this epoch second.
    Waiting { until: u64 },
    /// The drain has moved this number of items, and goes on.
    Working { items: u64 },
    /// The drain has ended.
    Done { from: u32, to: u32, items: u64 },
    /// The table's provisioned units.
    Raised { from: Units, to: Units },
    /// The capacity of the table is raised.
    Warming(Value),
    /// The alarms are OK again.
    Rearmed,
    /// There is no such alarm.
    NotFound { reason: &'static str },
    /// The cause, and whether a repetition of the event may succeed.
    Failed {
        detail: String,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        retry: bool,
    },
}

impl Report {
    /// An outcome without further fields.
    pub(crate) fn of(outcome: Outcome) -> Self {
        Self { outcome, details: json!({}) }
    }

    pub(crate) fn of_key(key: &PartitionKey, outcome: Outcome) -> Self {
        Self { outcome, details: json!({"partition_key": key.as_str()}) }
    }
}

impl Outcome {
    pub(crate) fn unchanged(reason: impl Display) -> Self {
        Self::Unchanged { reason: reason.to_string() }
    }

    /// The result of changing a key's width.
    pub(crate) fn of_change(outcome: ScaleOutcome) -> Self {
        match outcome {
            ScaleOutcome::Scaled { from, to } => Self::Scaled { from: from.get(), to: to.get() },
            ScaleOutcome::Unchanged(decision) => Self::unchanged(decision),
            ScaleOutcome::Superseded | _ => Self::unchanged("another actor changed it first"),
        }
    }

    pub(crate) fn not_scaled(error: &TableError) -> Self {
        Self::of_error(error, "a key could not be scaled")
    }

    /// Also counts the failure.
    pub(crate) fn failed(cause: impl Display, is_retryable: bool) -> Self {
        count_failure();
        Self::Failed { detail: cause.to_string(), retry: is_retryable }
    }

    /// Also counts the failure, and logs the error with its effect.
    pub(crate) fn of_error(error: &TableError, effect: &str) -> Self {
        tracing::error!(%error, "{effect}");
        Self::failed(error, error.is_retryable())
    }

    /// Also counts the failure.
    pub(crate) fn of_client_error(error: &ClientError) -> Self {
        Self::failed(error, error.is_retryable)
    }
}

/// Counts an outcome `failed` of an event, or of one of its keys, indexes or alarms.
pub(crate) fn count_failure() {
    counter!("ShardScalerFailures").increment(1);
}

pub(crate) fn without_nulls(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

pub(crate) fn to_json(part: &impl Serialize) -> Value {
    serde_json::to_value(part).expect("every key of its maps is text")
}

pub(crate) fn respond(action: &str, report: &Report) -> Value {
    let mut response = to_json(report);
    response["action"] = action.into();
    response
}
