//! The shard-scaler's reaction to alarms.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use sharding::ScalingActors;
use tokio::time::Instant as Deadline;
use tokio::time::timeout_at;

use crate::Scaler;
use crate::clients::{ClientError, bare_table_name};
use crate::event::{Alarm, AlarmMetric};
use crate::limits::{Cause, Limits};
use crate::relieve::CapacityOutcome;
use crate::response::{self, Failure, KeyOutcome, KeyReport};
use crate::throttled_keys::{IndexReport, ThrottledKeys};
use crate::warming::WarmReport;

/// The part of an invocation's time that is reserved for setting the alarms back.
const REARM_TIME: Duration = Duration::from_secs(3);

/// The response to alarms.
#[derive(Debug, Serialize)]
pub(crate) struct AlarmReport {
    /// The first name of the alarms.
    alarm: Option<String>,
    #[serde(flatten, serialize_with = "response::outcome")]
    outcome: Result<AlarmOutcome, Failure>,
    /// Whether every alarm is OK again. Absent if no alarm of this table is firing.
    #[serde(skip_serializing_if = "Option::is_none")]
    rearmed: Option<bool>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
enum AlarmOutcome {
    Ignored { reason: String },
    Handled(Box<AlarmActions>),
}

/// The findings, and the actions.
#[derive(Debug, Serialize)]
struct AlarmActions {
    /// The limits of the table that requests exceeded.
    causes: BTreeSet<Cause>,
    keys: Vec<KeyReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<CapacityOutcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warm: Option<WarmReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    advice: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contributor_insights: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<IndexReport>,
}

impl Scaler {
    /// An alarm is only a hint: it comes late, twice or not at all, and names a table but no key.
    pub(crate) async fn alarms(
        &self,
        alarms: &[Alarm],
        now_seconds: u64,
        deadline: Deadline,
    ) -> AlarmReport {
        let alarm = alarms.iter().find_map(|alarm| alarm.name.clone());
        let ignored = |reason: &str| Ok(AlarmOutcome::Ignored { reason: reason.to_owned() });
        let own: Vec<&Alarm> = alarms.iter().filter(|alarm| self.is_own(alarm)).collect();
        let is_of_other_table = own.is_empty();
        let firing: Vec<&Alarm> = own.into_iter().filter(|alarm| alarm.state == "ALARM").collect();
        if firing.is_empty() {
            let reason = if is_of_other_table {
                "the alarm is of another table"
            } else {
                "the state is not ALARM"
            };
            return AlarmReport { alarm, outcome: ignored(reason), rearmed: None };
        }
        let outcome = match self.why_not_acted_on(&firing, now_seconds) {
            Some(reason) => ignored(&reason),
            None => self.act_in_time(&firing, now_seconds, deadline - REARM_TIME).await,
        };
        // This is independent of the outcome, because only an alarm that is OK again can raise the
        // next event.
        let rearmed = Some(self.rearm_firing(&firing, deadline).await);
        AlarmReport { alarm, outcome, rearmed }
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

    async fn act_in_time(
        &self,
        firing: &[&Alarm],
        now_seconds: u64,
        deadline: Deadline,
    ) -> Result<AlarmOutcome, Failure> {
        match timeout_at(deadline, self.act(firing, now_seconds, deadline)).await {
            Ok(Ok(actions)) => Ok(AlarmOutcome::Handled(Box::new(actions))),
            Ok(Err(error)) => {
                tracing::error!(%error, "an alarm could not be acted on");
                Err(Failure::new(&error, error.is_retryable))
            }
            Err(_) => {
                tracing::error!("an alarm could not be acted on in time");
                Err(Failure::new("the time of the invocation ran out", true))
            }
        }
    }

    async fn act(
        &self,
        firing: &[&Alarm],
        now_seconds: u64,
        deadline: Deadline,
    ) -> Result<AlarmActions, ClientError> {
        let find = async {
            let limits = self.limits(firing, now_seconds).await?;
            let hot = self.hot_keys(&limits, now_seconds).await?;
            Ok::<_, ClientError>((limits, hot))
        };
        // Before the keys are relieved, because the policy uses it.
        let (found, known) = tokio::join!(find, self.learn_warm_throughput(deadline));
        let (limits, hot) = found?;
        let mut keys = reported(hot.reads, &hot.writes);
        let throttled = hot.writes.by_key;
        let (relieved, lacking) = self.relieve_all(throttled, known, deadline).await;
        keys.extend(relieved);
        let warm = match lacking {
            Some(write_units) => Some(self.relieve_table(write_units, deadline).await),
            None => None,
        };
        let capacity = self.raise_capacity(&limits.table).await?;

        let owners = limits.table.iter().filter(|cause| **cause >= Cause::OnDemandMaximum);
        let advice = owners.map(|cause| cause.advice().to_owned()).chain(hot.advice).collect();
        Ok(AlarmActions {
            causes: limits.table,
            keys,
            capacity,
            warm,
            advice,
            contributor_insights: hot.insights,
            indexes: hot.indexes,
        })
    }

    /// The limits that the alarms name. If they name none, the limits that the metrics of the table
    /// and of its indexes show.
    async fn limits(&self, firing: &[&Alarm], now_seconds: u64) -> Result<Limits, ClientError> {
        let metrics: Vec<&AlarmMetric> = firing.iter().flat_map(|alarm| &alarm.metrics).collect();
        let named = Limits::named(&metrics);
        if !named.is_empty() {
            return Ok(named);
        }
        let config = self.table.config();
        let about: BTreeSet<&str> =
            metrics.iter().filter_map(|metric| metric.index.as_deref()).collect();
        self.clients
            .limits_met(&config.table_name, &config.read_replicas, &about, now_seconds)
            .await
    }
}

/// Reports the keys whose reads were throttled: more shards do not help them.
fn reported(reads: ThrottledKeys, writes: &ThrottledKeys) -> Vec<KeyReport> {
    let only_read = reads.by_key.into_iter().filter(|(key, _)| !writes.by_key.contains_key(key));
    let reports = only_read.map(|(key, throttles)| KeyReport {
        action: Some("report"),
        throttled: Some(throttles.total()),
        ..KeyReport::new(&key, Ok(KeyOutcome::unchanged(Cause::HotReads.advice())))
    });
    reports.collect()
}
