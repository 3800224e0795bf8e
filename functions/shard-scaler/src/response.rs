//! The response to an event, as a type. It becomes JSON at the edge.

use serde::Serialize;

use crate::alarm::AlarmReport;
use crate::directory::CopiesReport;
use crate::drain::DrainReport;
use crate::event::EventError;
use crate::failure::{self, Failure};
use crate::rearm::RearmReport;
use crate::report::{KeyReport, Listed};
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
    /// The event is invalid. A `set` may still have raised the warm throughput.
    #[serde(untagged)]
    Refused {
        #[serde(flatten)]
        error: EventError,
        #[serde(skip_serializing_if = "Option::is_none")]
        warm: Option<WarmReport>,
    },
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
