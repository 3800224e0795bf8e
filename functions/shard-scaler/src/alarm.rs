//! The shard-scaler's reaction to alarms, and their re-arming. An alarm acts on a transition only:
//! an alarm that stays in ALARM wakes no one again. So the shard-scaler sets every alarm that woke
//! it back to OK, whatever the outcome, and a schedule does the same for alarms whose event was
//! lost.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use api::bare_table_name;
use metrics::histogram;
use serde_json::{Value, json};
use sharding::{ScalingActors, WarmThroughput};
use tokio::time::{Instant as Deadline, Interval, MissedTickBehavior, interval};

use crate::Scaler;
use crate::clients::{ClientError, in_time};
use crate::event::{Alarm, AlarmMetric, AlarmNames};
use crate::limits::{Cause, Limits};
use crate::response::{Outcome, Report, count_failure, without_nulls};
use crate::throttled_keys::ThrottledKeys;

/// The part of an invocation's time that is reserved for setting the alarms back.
const REARM_TIME: Duration = Duration::from_secs(3);
const NOT_FOUND: &str = "there is no alarm of this name in this account and Region";
/// The time between two requests. CloudWatch accepts three `SetAlarmState` a second, from all
/// programs of an account and Region together. (CloudWatch service quotas.)
const PACE: Duration = Duration::from_millis(350);

impl Scaler {
    pub(crate) async fn alarms(
        &self,
        alarms: &[Alarm],
        now_seconds: u64,
        deadline: Deadline,
    ) -> Report {
        let name = alarms.iter().find_map(|alarm| alarm.name.as_deref());
        let ignored = |reason: String| Report {
            outcome: Outcome::Ignored { reason },
            details: json!({"alarm": name}),
        };
        let own: Vec<&Alarm> = alarms.iter().filter(|alarm| self.is_own(alarm)).collect();
        if own.is_empty() {
            return ignored("the alarm is of another table".into());
        }
        let firing: Vec<&Alarm> = own.into_iter().filter(|alarm| alarm.state == "ALARM").collect();
        if firing.is_empty() {
            return ignored("the state is not ALARM".into());
        }
        let mut report = if let Some(reason) = self.why_not_acted_on(&firing, now_seconds) {
            ignored(reason)
        } else {
            let act_until = deadline - REARM_TIME;
            let acting = self.act(&firing, now_seconds, act_until);
            match in_time(act_until, "the invocation", acting).await {
                Ok(details) => Report { outcome: Outcome::Handled, details },
                Err(error) => {
                    tracing::error!(%error, "an alarm could not be acted on");
                    Report::of(Outcome::of_client_error(&error))
                }
            }
        };
        report.details["alarm"] = name.into();
        // This is independent of the outcome, because only an alarm that is OK again can raise the
        // next event.
        report.details["rearmed"] = self.rearm_firing(&firing, deadline).await.into();
        report
    }

    /// Whether an alarm belongs to this table. Metric math and composite alarms name no table, and
    /// count as its own.
    fn is_own(&self, alarm: &Alarm) -> bool {
        let table = &self.table.config().table_name;
        alarm.tables.is_empty()
            || alarm.tables.iter().any(|named| named == table || named == bare_table_name(table))
    }

    fn why_not_acted_on(&self, firing: &[&Alarm], now_seconds: u64) -> Option<String> {
        if self.table.config().scaling == ScalingActors::Writer {
            return Some("SCALING is writer: alarms do not scale".into());
        }
        let oldest = self.config.max_event_age.as_secs();
        let is_too_old = |alarm: &&Alarm| {
            alarm.changed_at.is_some_and(|at| now_seconds.saturating_sub(at) > oldest)
        };
        firing.iter().all(is_too_old).then(|| format!("the event is older than {oldest} seconds"))
    }

    async fn act(
        &self,
        firing: &[&Alarm],
        now_seconds: u64,
        deadline: Deadline,
    ) -> Result<Value, ClientError> {
        let metrics: Vec<&AlarmMetric> = firing.iter().flat_map(|alarm| &alarm.metrics).collect();
        let limits = Limits::of(&metrics);
        // Before the keys are relieved, because the policy uses it.
        let (hot, known) =
            tokio::join!(self.hot_keys(&limits, now_seconds), self.learn_warm_throughput(deadline));
        let hot = hot?;
        let mut keys = reported(hot.reads, &hot.writes);
        let (relieved, lacking) = self.relieve_all(hot.writes, known, deadline).await;
        keys.extend(relieved);
        let warm = match lacking {
            // The table has too few partitions for its keys.
            Some(write_units) => {
                histogram!("ShardingShortOfPartitions").record(write_units as f64);
                Some(self.warm(WarmThroughput { write_units, read_units: 0 }, deadline).await)
            }
            None => None,
        };
        let capacity = self.raise_capacity(&limits.table).await?;

        let owners = limits.table.range(Cause::OnDemandMaximum..);
        let advice: Vec<String> =
            owners.map(|cause| cause.advice().to_owned()).chain(hot.advice).collect();
        Ok(without_nulls(json!({
            "causes": limits.table,
            "keys": keys,
            "capacity": capacity,
            "warm": warm,
            "advice": (!advice.is_empty()).then_some(advice),
            "contributor_insights": hot.insights,
            "indexes": (!hot.indexes.is_empty()).then_some(hot.indexes),
        })))
    }

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
                count_failure();
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

/// Reports the keys whose reads were throttled: more shards do not help them.
fn reported(reads: ThrottledKeys, writes: &ThrottledKeys) -> Vec<Report> {
    let only_read = reads.into_iter().filter(|(key, _)| !writes.contains_key(key));
    let reports = only_read.map(|(key, throttles)| {
        let mut report = Report::of_key(&key, Outcome::unchanged(Cause::HotReads.advice()));
        report.details["action"] = "report".into();
        report.details["throttled"] = throttles.total().into();
        report
    });
    reports.collect()
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
