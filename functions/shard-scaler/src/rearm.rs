//! Re-arming. An alarm acts on a transition only: an alarm that stays in ALARM wakes no one again.
//! So the shard-scaler sets every alarm that woke it back to OK, whatever the outcome, and a
//! schedule does the same for alarms whose event was lost.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant as Deadline, Interval, MissedTickBehavior, interval};

use crate::Scaler;
use crate::clients::{ClientError, in_time};
use crate::event::{Alarm, AlarmNames};
use crate::response::{Outcome, Report};
use crate::telemetry;

const NOT_FOUND: &str = "there is no alarm of this name in this account and Region";
/// The time between two requests. CloudWatch accepts three `SetAlarmState` a second, from all
/// programs of an account and Region together. (CloudWatch service quotas.)
const PACE: Duration = Duration::from_millis(350);

impl Scaler {
    /// Sets those of the named alarms that are in ALARM back to OK, one after another.
    pub(crate) async fn rearm(&self, names: &AlarmNames, deadline: Deadline) -> Report {
        let names: BTreeSet<&str> = names.0.iter().map(String::as_str).collect();
        let describe = self.clients.alarm_states(&names);
        let states = in_time(deadline, "DescribeAlarms", describe).await.map_err(|error| {
            tracing::warn!(%error, "the states of the alarms are not known");
            Outcome::of_client_error(&error)
        });
        let (mut alarms, mut pace) = (Vec::with_capacity(names.len()), pace());
        for name in names {
            let outcome = match states.as_ref().map(|states| states.get(name)) {
                Err(failed) => failed.clone(),
                Ok(None) => not_found(name),
                Ok(Some(state)) if state != "ALARM" => {
                    Outcome::unchanged(format_args!("its state is {state}"))
                }
                Ok(Some(_)) => {
                    pace.tick().await;
                    let rearmed = self.rearm_one(name, deadline).await;
                    rearmed.unwrap_or_else(|error| Outcome::of_client_error(&error))
                }
            };
            alarms.push(Report { outcome, details: json!({"alarm": name}) });
        }
        Report { outcome: Outcome::Handled, details: json!({"alarms": alarms}) }
    }

    /// Sets back the alarms that woke the shard-scaler, one after another. Returns whether all of
    /// them are OK now. A throttled request is no failure, because the schedule sets them back, too.
    pub(crate) async fn rearm_firing(&self, firing: &[&Alarm], deadline: Deadline) -> bool {
        let names: BTreeSet<&str> = firing.iter().filter_map(|it| it.name.as_deref()).collect();
        let (mut are_ok, mut pace) = (!names.is_empty(), pace());
        for name in names {
            pace.tick().await;
            let rearmed = self.rearm_one(name, deadline).await;
            are_ok &= matches!(rearmed, Ok(Outcome::Rearmed));
            if rearmed.is_err_and(|error| !error.is_retryable) {
                telemetry::failed();
            }
        }
        are_ok
    }

    async fn rearm_one(&self, name: &str, deadline: Deadline) -> Result<Outcome, ClientError> {
        let rearmed = in_time(deadline, "SetAlarmState", self.clients.rearm(name)).await;
        let is_known = rearmed.inspect_err(|error| warn(name, error))?;
        Ok(if is_known { Outcome::Rearmed } else { not_found(name) })
    }
}

fn pace() -> Interval {
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

fn not_found(name: &str) -> Outcome {
    warn(name, NOT_FOUND);
    Outcome::NotFound { reason: NOT_FOUND }
}

fn warn(alarm: &str, error: impl Display) {
    tracing::warn!(
        %error,
        alarm,
        "the alarm could not be re-armed: while it stays in ALARM, it raises no further event"
    );
}
