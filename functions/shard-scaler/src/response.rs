//! The response to an event, as a type. It becomes JSON where it leaves the shard-scaler.

use std::fmt::Display;

use serde::Serialize;
use serde_json::Value;
use sharding::internal::{PartitionKey, ScaleError, ScaleOutcome};

use crate::alarm::AlarmReport;
use crate::direct::{KeyDescription, Listed};
use crate::directory::CopiesReport;
use crate::drain::DrainReport;
use crate::event::EventError;
use crate::failure::{self, Failure};
use crate::rearm::RearmReport;
use crate::survey::{MigrateReport, RebuildReport};
use crate::warming::WarmReport;

/// The response to one event, by its action.
#[derive(Debug, Serialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub(crate) enum Response {
    Set {
        #[serde(flatten)]
        key: KeyReport,
        #[serde(skip_serializing_if = "Option::is_none")]
        warm: Option<WarmReport>,
    },
    Warm(WarmReport),
    Shrink(KeyReport),
    Settle(KeyReport),
    Drain(DrainReport),
    Migrate(MigrateReport),
    Rebuild(RebuildReport),
    Copies(CopiesReport),
    Rearm(RearmReport),
    Show(KeyReport),
    List(#[serde(serialize_with = "failure::outcome")] Result<Listed, Failure>),
    Alarm(AlarmReport),
    /// The event is not valid. A `set` may have raised the warm throughput all the same.
    #[serde(untagged)]
    Refused {
        #[serde(flatten)]
        error: EventError,
        #[serde(skip_serializing_if = "Option::is_none")]
        warm: Option<WarmReport>,
    },
}

/// The outcome of an event that is about more than one key.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Handled,
    DryRun,
    Unchanged { reason: String },
}

/// What became of one key. It is also the key's line in the audit log.
#[derive(Debug, Serialize)]
pub(crate) struct KeyReport {
    /// Given where a list holds keys of several actions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<KeyAction>,
    pub(crate) partition_key: String,
    #[serde(flatten, serialize_with = "failure::outcome")]
    pub(crate) outcome: Result<KeyOutcome, Failure>,
    /// Throttled requests that count for the key's present width.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) throttled: Option<u64>,
}

/// What was done with a key of an alarm or of a drain.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyAction {
    Open,
    Report,
    Scale,
}

#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum KeyOutcome {
    Scaled {
        from: u32,
        to: u32,
    },
    Unchanged {
        reason: String,
    },
    DryRun(Planned),
    /// The dry run of a drain, which names a width where it would begin a shrink.
    #[serde(rename = "dry-run")]
    WouldDrain {
        to: Option<u32>,
    },
    Begun {
        number_of_shards: u32,
        read_shards: u32,
    },
    Shown {
        metadata: Box<KeyDescription>,
    },
    Waiting {
        until: u64,
    },
    Working {
        items: u64,
    },
    Done {
        from: u32,
        to: u32,
        items: u64,
    },
    #[serde(untagged)]
    Refused(EventError),
}

/// The widths that a dry run would change, where the action names them.
#[derive(Debug, Serialize)]
pub(crate) struct Planned {
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<u32>,
}

impl Response {
    /// The failures of the event and of its parts.
    pub(crate) fn failures(&self) -> Vec<&Failure> {
        let (own, of_warm) = match self {
            Self::Drain(report) => return report.failures(),
            Self::Rearm(report) => return report.failures(),
            Self::Alarm(report) => return report.failures(),
            Self::Set { key, warm } => (key.failure(), warm.as_ref()),
            Self::Refused { warm, .. } => (None, warm.as_ref()),
            Self::Warm(warm) => (None, Some(warm)),
            Self::Shrink(key) | Self::Settle(key) | Self::Show(key) => (key.failure(), None),
            Self::Migrate(report) => (report.outcome.as_ref().err(), None),
            Self::Rebuild(report) => (report.outcome.as_ref().err(), None),
            Self::Copies(report) => (report.outcome.as_ref().err(), None),
            Self::List(listed) => (listed.as_ref().err(), None),
        };
        own.into_iter().chain(of_warm.and_then(WarmReport::failure)).collect()
    }
}

impl From<EventError> for Response {
    fn from(error: EventError) -> Self {
        Self::Refused { error, warm: None }
    }
}

impl KeyReport {
    pub(crate) fn new(key: &PartitionKey, outcome: Result<KeyOutcome, Failure>) -> Self {
        Self { action: None, partition_key: key.as_str().to_owned(), outcome, throttled: None }
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.outcome.as_ref().err()
    }
}

impl KeyOutcome {
    pub(crate) const fn dry_run(from: Option<u32>, to: Option<u32>) -> Self {
        Self::DryRun(Planned { from, to })
    }

    pub(crate) fn unchanged(reason: impl Display) -> Self {
        Self::Unchanged { reason: reason.to_string() }
    }

    /// What became of a change of the key's width.
    pub(crate) fn of(result: Result<ScaleOutcome, ScaleError>) -> Result<Self, Failure> {
        match result {
            Ok(ScaleOutcome::Scaled { from, to }) => {
                Ok(Self::Scaled { from: from.get(), to: to.get() })
            }
            Ok(ScaleOutcome::Unchanged(decision)) => Ok(Self::unchanged(decision)),
            Ok(ScaleOutcome::Superseded) => Ok(Self::unchanged("another actor changed it first")),
            Err(error @ (ScaleError::TooMany { .. } | ScaleError::Lower { .. })) => {
                Ok(Self::Refused(EventError::new("number_of_shards", error)))
            }
            Err(ScaleError::Table(error)) => {
                tracing::error!(%error, "a key could not be scaled");
                Err(Failure::new(&error, error.is_retryable()))
            }
        }
    }
}

/// A response, or a part of one, as JSON.
pub(crate) fn to_json(response: &impl Serialize) -> Value {
    serde_json::to_value(response).expect("every key of its maps is text")
}
