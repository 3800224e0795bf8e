//! Re-arming. An alarm acts on a transition only: an alarm that stays in ALARM wakes no one again.
//! So the shard-scaler sets every alarm that woke it back to OK, whatever the outcome, and a
//! schedule does the same for alarms whose event was lost.

use std::collections::BTreeSet;

use serde::Serialize;
use sharding::internal::Deadline;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use crate::Scaler;
use crate::alarm_event::Alarm;
use crate::clients::Rearmed;
use crate::event::AlarmNames;
use crate::failure::{self, Failure};
use crate::report::Outcome;

const NOT_FOUND: &str = "there is no alarm of this name in this account and Region";
const LATE: &str = "SetAlarmState: no answer in time";

/// The response to `rearm`.
#[derive(Debug, Serialize)]
pub(crate) struct RearmReport {
    #[serde(flatten)]
    outcome: Outcome,
    alarms: Vec<AlarmRearm>,
}

/// The result for one alarm.
#[derive(Debug, Serialize)]
struct AlarmRearm {
    alarm: String,
    #[serde(flatten, serialize_with = "failure::outcome")]
    outcome: Result<RearmOutcome, Failure>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
enum RearmOutcome {
    Rearmed,
    NotFound { reason: &'static str },
}

impl RearmReport {
    pub(crate) fn failures(&self) -> Vec<&Failure> {
        self.alarms.iter().filter_map(|alarm| alarm.outcome.as_ref().err()).collect()
    }
}

impl Scaler {
    /// Sets the named alarms back to OK, independently of each other.
    pub(crate) async fn rearm(&self, names: &AlarmNames, deadline: Deadline) -> RearmReport {
        let alarms = self.rearm_each(names.iter().collect(), deadline).await;
        RearmReport { outcome: Outcome::Handled, alarms }
    }

    /// Sets back the alarms that woke the shard-scaler. Returns whether all of them are OK now. A
    /// failure does not repeat the event, because the schedule sets them back, too.
    pub(crate) async fn rearm_firing(&self, firing: &[&Alarm], deadline: Deadline) -> bool {
        let names: BTreeSet<&str> =
            firing.iter().filter_map(|alarm| alarm.name.as_deref()).collect();
        let alarms = self.rearm_each(names, deadline).await;
        let is_ok = |alarm: &AlarmRearm| matches!(alarm.outcome, Ok(RearmOutcome::Rearmed));
        !alarms.is_empty() && alarms.iter().all(is_ok)
    }

    async fn rearm_each(&self, names: BTreeSet<&str>, deadline: Deadline) -> Vec<AlarmRearm> {
        let mut rearming = JoinSet::new();
        for name in names {
            let (scaler, alarm) = (self.clone(), name.to_owned());
            rearming.spawn(async move {
                let outcome = scaler.rearm_one(&alarm, deadline).await;
                AlarmRearm { alarm, outcome }
            });
        }
        let mut alarms = rearming.join_all().await;
        alarms.sort_by(|one, other| one.alarm.cmp(&other.alarm));
        alarms
    }

    async fn rearm_one(&self, name: &str, deadline: Deadline) -> Result<RearmOutcome, Failure> {
        let (why, outcome) = match timeout_at(deadline, self.clients.rearm(name)).await {
            Ok(Ok(Rearmed::Done)) => return Ok(RearmOutcome::Rearmed),
            Ok(Ok(Rearmed::NotFound)) => {
                let outcome = RearmOutcome::NotFound { reason: NOT_FOUND };
                (NOT_FOUND.to_owned(), Ok(outcome))
            }
            Ok(Err(error)) => (error.to_string(), Err(Failure::new(&error, error.is_retryable))),
            Err(_) => (LATE.to_owned(), Err(Failure::new(LATE, true))),
        };
        tracing::warn!(
            error = why,
            alarm = name,
            "the alarm could not be re-armed: while it stays in ALARM, it raises no further event"
        );
        outcome
    }
}
