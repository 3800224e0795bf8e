//! Re-arming. An alarm acts on a transition only: one that stays in ALARM wakes nobody again. So the shard-scaler sets every alarm that woke it back
//! to OK, whatever came of it, and a schedule does the same for alarms whose event was lost.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sharding::internal::Deadline;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use crate::Scaler;
use crate::alarm_event::Alarm;
use crate::clients::Rearmed;
use crate::failure::failed;

impl Scaler {
    /// Sets the named alarms back to OK, each whatever becomes of the others.
    pub(crate) async fn rearm(&self, names: &[String], deadline: Deadline) -> Value {
        let alarms = self.rearm_each(names.iter().map(String::as_str).collect(), deadline).await;
        json!({"action": "rearm", "outcome": "handled", "alarms": alarms})
    }

    /// Sets back the alarms that woke the shard-scaler; says whether all of them are OK now. A failure is no reason to repeat the event:
    /// the schedule sets them back, too.
    pub(crate) async fn rearm_firing(&self, firing: &[&Alarm], deadline: Deadline) -> bool {
        let names: BTreeSet<&str> = firing.iter().filter_map(|alarm| alarm.name.as_deref()).collect();
        let rearmed = self.rearm_each(names, deadline).await;
        !rearmed.is_empty() && rearmed.iter().all(|alarm| alarm.get("outcome").is_some_and(|told| told == "rearmed"))
    }

    async fn rearm_each(&self, names: BTreeSet<&str>, deadline: Deadline) -> Vec<Value> {
        let mut rearming = JoinSet::new();
        for name in names {
            let (scaler, name) = (self.clone(), name.to_owned());
            rearming.spawn(async move { scaler.rearm_one(&name, deadline).await });
        }
        let mut told = rearming.join_all().await;
        told.sort_by_key(|alarm| alarm.get("alarm").and_then(Value::as_str).map(str::to_owned));
        told
    }

    async fn rearm_one(&self, name: &str, deadline: Deadline) -> Value {
        let alarm = json!({"alarm": name});
        let (why, told) = match timeout_at(deadline, self.clients.rearm(name)).await {
            Ok(Ok(Rearmed::Done)) => return json!({"alarm": name, "outcome": "rearmed"}),
            Ok(Ok(Rearmed::NotFound)) => {
                let why = "there is no alarm of this name in this account and Region";
                (why.to_owned(), json!({"alarm": name, "outcome": "not-found", "reason": why}))
            }
            Ok(Err(error)) => (error.to_string(), failed(alarm, &error, error.is_retryable)),
            Err(_) => {
                let why = "SetAlarmState: no answer in time";
                (why.to_owned(), failed(alarm, why, true))
            }
        };
        tracing::warn!(
            error = why,
            alarm = name,
            "the alarm could not be re-armed: while it stays in ALARM, it raises no further event"
        );
        told
    }
}
