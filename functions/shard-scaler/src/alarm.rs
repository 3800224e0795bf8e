//! The shard-scaler's reaction to alarms.

use std::collections::BTreeSet;
use std::time::Duration;

use api::bare_table_name;
use serde_json::{Value, json};
use sharding::{ScalingActors, WarmThroughput};
use tokio::time::{Instant as Deadline, timeout_at};

use crate::Scaler;
use crate::clients::ClientError;
use crate::event::{Alarm, AlarmMetric};
use crate::limits::{Cause, Limits};
use crate::response::{Outcome, Report, without_nulls};
use crate::telemetry;
use crate::throttled_keys::ThrottledKeys;

/// The part of an invocation's time that is reserved for setting the alarms back.
const REARM_TIME: Duration = Duration::from_secs(3);

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
        let mut report = match self.why_not_acted_on(&firing, now_seconds) {
            Some(reason) => ignored(reason),
            None => self.act_in_time(&firing, now_seconds, deadline - REARM_TIME).await,
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

    async fn act_in_time(&self, firing: &[&Alarm], now_seconds: u64, deadline: Deadline) -> Report {
        match timeout_at(deadline, self.act(firing, now_seconds, deadline)).await {
            Ok(Ok(actions)) => Report { outcome: Outcome::Handled, details: actions },
            Ok(Err(error)) => {
                tracing::error!(%error, "an alarm could not be acted on");
                Report::of(Outcome::of_client_error(&error))
            }
            Err(_) => {
                tracing::error!("an alarm could not be acted on in time");
                Report::of(Outcome::failed("the time of the invocation ran out", true))
            }
        }
    }

    async fn act(
        &self,
        firing: &[&Alarm],
        now_seconds: u64,
        deadline: Deadline,
    ) -> Result<Value, ClientError> {
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
            // The table has too few partitions for its keys.
            Some(write_units) => {
                telemetry::short_of_partitions(write_units);
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

    /// The limits that the alarms name. If they name none, the limits that the metrics of the table
    /// and of its indexes show.
    async fn limits(&self, firing: &[&Alarm], now_seconds: u64) -> Result<Limits, ClientError> {
        let metrics: Vec<&AlarmMetric> = firing.iter().flat_map(|alarm| &alarm.metrics).collect();
        let named = Limits::named(&metrics);
        if !named.is_empty() {
            return Ok(named);
        }
        let about: BTreeSet<&str> =
            metrics.iter().filter_map(|metric| metric.index.as_deref()).collect();
        self.clients.limits_met(self.table.config(), &about, now_seconds).await
    }
}

/// Reports the keys whose reads were throttled: more shards do not help them.
fn reported(reads: ThrottledKeys, writes: &ThrottledKeys) -> Vec<Report> {
    let only_read = reads.by_key.into_iter().filter(|(key, _)| !writes.by_key.contains_key(key));
    let reports = only_read.map(|(key, throttles)| {
        let mut report = Report::of_key(&key, Outcome::unchanged(Cause::HotReads.advice()));
        report.details["action"] = "report".into();
        report.details["throttled"] = throttles.total().into();
        report
    });
    reports.collect()
}
