//! The shard-scaler's reaction to alarms: more shards, by the policy, for the throttled keys, more
//! units for a provisioned table that is short of them, and advice; and the alarms' re-arming. An
//! alarm acts on a transition only: an alarm that stays in ALARM wakes no one again. So the
//! shard-scaler sets every alarm that woke it back to OK, whatever the outcome, and a schedule does
//! the same for alarms whose event was lost.
//!
//! A replica is an index with the table's own keys, so its throttled keys are the table's, and more
//! shards relieve them. Another index has other keys, so the table's shards do not matter for it.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use api::bare_table_name;
use aws_sdk_dynamodb::types::TableStatus;
use metrics::{counter, histogram};
use serde::Serialize;
use serde_json::{Value, json};
use sharding::maintenance::ScalingDecision;
use sharding::{PartitionKey, ScalingActors, TableError, WarmThroughput};
use tokio::task::JoinSet;
use tokio::time::{Instant as Deadline, Interval, MissedTickBehavior, interval};

use crate::Scaler;
use crate::clients::{
    ClientError, Insights, ThrottledKeys, Throttles, Units, in_time, provisioned,
};
use crate::event::{Alarm, AlarmMetric, AlarmNames, Cause, Limits};
use crate::response::{Outcome, Report, count_failure, to_json, without_nulls};

/// The part of an invocation's time that is reserved for setting the alarms back.
const REARM_TIME: Duration = Duration::from_secs(3);
const NOT_FOUND: &str = "there is no alarm of this name in this account and Region";
/// The time between two requests. CloudWatch accepts three `SetAlarmState` a second, from all
/// programs of an account and Region together. (CloudWatch service quotas.)
const PACE: Duration = Duration::from_millis(350);

/// The findings about the throttled table and indexes.
#[derive(Debug, Default)]
struct HotKeys {
    /// Keys whose writes are throttled.
    writes: ThrottledKeys,
    /// Keys for which only reads are throttled.
    reads: ThrottledKeys,
    /// `off`, `failed` or `enabling`, if Contributor Insights of the table reports no keys.
    insights: Option<&'static str>,
    /// How to make them visible.
    advice: Option<String>,
    indexes: Vec<IndexReport>,
}

/// The state of a throttled index, and its remedy.
#[derive(Debug, Serialize)]
struct IndexReport {
    index: String,
    causes: BTreeSet<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contributor_insights: Option<&'static str>,
    advice: String,
    /// Why its keys are unknown.
    #[serde(flatten)]
    failure: Option<Outcome>,
}

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

    async fn hot_keys(&self, limits: &Limits, now_seconds: u64) -> Result<HotKeys, ClientError> {
        let mut found = HotKeys::default();
        (found.insights, found.advice) =
            self.find(&mut found, None, &limits.table, now_seconds).await?;
        for (index, causes) in &limits.indexes {
            let report = self.index(&mut found, index, causes, now_seconds).await;
            tracing::warn!(audit = true, answer = %to_json(&report), "an index throttles requests");
            found.indexes.push(report);
        }
        Ok(found)
    }

    /// Reports an index. If its keys are unknown, the table's keys are still relieved.
    async fn index(
        &self,
        found: &mut HotKeys,
        index: &str,
        causes: &BTreeSet<Cause>,
        now_seconds: u64,
    ) -> IndexReport {
        let is_replica = self.table.config().read_replicas.iter().any(|replica| replica == index);
        let advice: BTreeSet<&str> =
            causes.iter().map(|cause| cause.advice_of_index(is_replica)).collect();
        let mut advice: Vec<String> = advice.into_iter().map(str::to_owned).collect();
        let (mut contributor_insights, mut failure) = (None, None);
        if is_replica {
            match self.find(found, Some(index), causes, now_seconds).await {
                Ok((state, needed)) => {
                    advice.extend(needed);
                    contributor_insights = state;
                }
                Err(error) => {
                    tracing::error!(%error, index, "the throttled keys of an index could not be learnt");
                    failure = Some(Outcome::of_client_error(&error));
                }
            }
        }
        let advice = advice.join("; ");
        let (index, causes) = (index.to_owned(), causes.clone());
        IndexReport { index, causes, contributor_insights, advice, failure }
    }

    /// Adds the throttled keys of the table or of an index, if it has a hot partition. If they are
    /// not known, returns the state of Contributor Insights, and the remedy.
    async fn find(
        &self,
        found: &mut HotKeys,
        index: Option<&str>,
        causes: &BTreeSet<Cause>,
        now_seconds: u64,
    ) -> Result<(Option<&'static str>, Option<String>), ClientError> {
        let writes_are_hot = causes.contains(&Cause::HotWrites);
        if !writes_are_hot && !causes.contains(&Cause::HotReads) {
            return Ok((None, None));
        }
        match self.clients.throttled_keys(self.table.config(), index, now_seconds).await? {
            Insights::Keys(keys) => {
                let known = if writes_are_hot { &mut found.writes } else { &mut found.reads };
                for (key, throttles) in keys {
                    known.entry(key).or_default().merge(throttles);
                }
                Ok((None, None))
            }
            Insights::Unknown { state, advice } => {
                tracing::warn!(state, advice, "the throttled keys are not known");
                if advice.is_some() {
                    counter!("ContributorInsightsOff").increment(1);
                }
                Ok((Some(state), advice))
            }
        }
    }

    /// One decision for each logical key, all in parallel, because most of a scale-out is waiting.
    /// Returns the result for each key, and the units that the table would need for all keys that
    /// more shards do not help.
    async fn relieve_all(
        &self,
        throttled: impl IntoIterator<Item = (PartitionKey, Throttles)>,
        warm: Option<WarmThroughput>,
        deadline: Deadline,
    ) -> (Vec<Report>, Option<u64>) {
        let mut scaling = JoinSet::new();
        for (key, throttles) in throttled {
            let scaler = self.clone();
            scaling.spawn(async move {
                let relieved = scaler.relieve(&key, &throttles, warm, deadline).await;
                let failed = |error| (Report::of_key(&key, Outcome::not_scaled(&error)), None);
                let (mut report, lacking) = relieved.unwrap_or_else(failed);
                report.details["action"] = "scale".into();
                tracing::info!(audit = true, answer = %to_json(&report), "decision");
                (key, report, lacking)
            });
        }
        let mut relieved = scaling.join_all().await;
        relieved.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let lacking = relieved.iter().filter_map(|(.., lacking)| *lacking);
        let lacking = lacking.reduce(u64::saturating_add);
        (relieved.into_iter().map(|(_, report, _)| report).collect(), lacking)
    }

    /// Decides about a throttled key, and carries the decision out or, in a dry run, announces it.
    /// Also returns the write units a second that the table would need if more shards of the key do
    /// not help.
    async fn relieve(
        &self,
        key: &PartitionKey,
        throttles: &Throttles,
        warm: Option<WarmThroughput>,
        deadline: Deadline,
    ) -> Result<(Report, Option<u64>), TableError> {
        let maintenance = self.maintenance(deadline);
        let reported = maintenance.reported(key, warm).await?;
        let (metadata, decision) = (reported.metadata(), reported.decision());
        let (throttled, why_none) = throttles.since(metadata.last_change());
        let report = |outcome| {
            let mut report = Report::of_key(key, outcome);
            report.details["throttled"] = throttled.into();
            report
        };
        // A change whose actor stopped halfway is finished, whatever the report says.
        if let Some(reason) = why_none.filter(|_| metadata.closing().is_none()) {
            return Ok((report(Outcome::unchanged(reason)), None));
        }
        let outcome = if !self.config.dry_run {
            Outcome::of_change(reported.carry_out(throttled).await?)
        } else if let Some(from) = maintenance.not_armed_before(key).await? {
            Outcome::unchanged(ScalingDecision::NotArmed { from })
        } else if let ScalingDecision::ScaleOut(to) = decision {
            Outcome::DryRun(json!({"from": metadata.number_of_shards.get(), "to": to.get()}))
        } else {
            Outcome::unchanged(decision)
        };
        let lacking = if let ScalingDecision::ShortOfPartitions { write_units, .. } = decision {
            write_units
        } else {
            None
        };
        Ok((report(outcome), lacking))
    }

    /// Doubles the units that the table is short of, up to the maximum that the deployment allows.
    /// `None` if it is short of none.
    async fn raise_capacity(
        &self,
        causes: &BTreeSet<Cause>,
    ) -> Result<Option<Outcome>, ClientError> {
        let short = |cause| causes.contains(&cause);
        let mut remedied = [Cause::ProvisionedWrites, Cause::ProvisionedReads].into_iter();
        let Some(first) = remedied.find(|cause| short(*cause)) else { return Ok(None) };
        let table = &self.table.config().table_name;
        let described = self.clients.describe(table).await?;
        let unchanged = |reason: &str| Ok(Some(Outcome::unchanged(reason)));
        let Some(from) = provisioned(&described) else {
            return unchanged("the table is on demand");
        };
        if described.table_status() != Some(&TableStatus::Active) {
            return unchanged("the table is being updated");
        }
        let raised = |short: bool, now: u64, most: u64| {
            if short { now.max(now.saturating_mul(2).min(most)) } else { now }
        };
        let to = Units {
            read: raised(short(Cause::ProvisionedReads), from.read, self.config.max_read_units),
            write: raised(short(Cause::ProvisionedWrites), from.write, self.config.max_write_units),
        };
        let outcome = if to == from {
            Outcome::unchanged(first.advice())
        } else if self.config.dry_run {
            Outcome::DryRun(json!({"from": from, "to": to}))
        } else {
            self.clients.provision(table, to).await?;
            Outcome::Raised { from, to }
        };
        tracing::info!(audit = true, answer = %to_json(&outcome), "capacity decision");
        Ok(Some(outcome))
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
    async fn rearm_firing(&self, firing: &[&Alarm], deadline: Deadline) -> bool {
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
