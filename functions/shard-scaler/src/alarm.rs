//! What an alarm makes the shard-scaler do.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use sharding::internal::{Deadline, ScalingActors};
use tokio::time::timeout_at;

use crate::Scaler;
use crate::alarm_event::{Alarm, AlarmMetric};
use crate::cause::Cause;
use crate::clients::{ClientError, bare_table_name};
use crate::failure::failed;
use crate::limits::Limits;
use crate::throttled_keys::ThrottledKeys;

/// What is kept of an invocation's time for setting the alarms back.
const REARM_TIME: Duration = Duration::from_secs(3);

impl Scaler {
    /// Alarms are hints to look: they come late, twice or not at all, and name a table but no key.
    pub(crate) async fn alarms(&self, alarms: &[Alarm], now_seconds: u64, deadline: Deadline) -> Value {
        let name = alarms.iter().find_map(|alarm| alarm.name.as_deref());
        let ignored = |reason: &str| json!({"action": "alarm", "alarm": name, "outcome": "ignored", "reason": reason});
        let own: Vec<&Alarm> = alarms.iter().filter(|alarm| self.is_own(alarm)).collect();
        if own.is_empty() {
            return ignored("the alarm is of another table");
        }
        let firing: Vec<&Alarm> = own.into_iter().filter(|alarm| alarm.state == "ALARM").collect();
        if firing.is_empty() {
            return ignored("the state is not ALARM");
        }
        let mut answer = match self.why_not_acted_on(&firing, now_seconds) {
            Some(reason) => ignored(&reason),
            None => self.act_in_time(&firing, now_seconds, deadline - REARM_TIME).await,
        };
        // Whatever came of it: only an alarm that is OK again can raise the next event.
        let rearmed = self.rearm_firing(&firing, deadline).await;
        if let Some(object) = answer.as_object_mut() {
            object.insert("action".into(), "alarm".into());
            object.insert("alarm".into(), name.into());
            object.insert("rearmed".into(), rearmed.into());
        }
        answer
    }

    /// Whether an alarm is of this table. Metric math and composite alarms name none, and are taken to be.
    fn is_own(&self, alarm: &Alarm) -> bool {
        let table = &self.table.config().table_name;
        alarm.tables.is_empty() || alarm.tables.iter().any(|named| named == table || named == bare_table_name(table))
    }

    fn why_not_acted_on(&self, firing: &[&Alarm], now_seconds: u64) -> Option<String> {
        if self.table.config().scaling == ScalingActors::Writer {
            return Some("SCALING is writer: alarms do not scale".into());
        }
        let oldest = self.config.max_event_age.as_secs();
        let is_too_old = |alarm: &&Alarm| alarm.changed_at.is_some_and(|at| now_seconds.saturating_sub(at) > oldest);
        firing.iter().all(is_too_old).then(|| format!("the event is older than {oldest} seconds"))
    }

    async fn act_in_time(&self, firing: &[&Alarm], now_seconds: u64, deadline: Deadline) -> Value {
        match timeout_at(deadline, self.act(firing, now_seconds, deadline)).await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => {
                tracing::error!(%error, "an alarm could not be acted on");
                failed(json!({}), &error, error.is_retryable)
            }
            Err(_) => {
                tracing::error!("an alarm could not be acted on in time");
                failed(json!({}), "the time of the invocation ran out", true)
            }
        }
    }

    async fn act(&self, firing: &[&Alarm], now_seconds: u64, deadline: Deadline) -> Result<Value, ClientError> {
        let find = async {
            let limits = self.limits(firing, now_seconds).await?;
            let hot = self.hot_keys(&limits, now_seconds).await?;
            Ok::<_, ClientError>((limits, hot))
        };
        // Before the keys are relieved, for the policy goes by it.
        let (found, warm) = tokio::join!(find, self.learn_warm_throughput(deadline));
        let (limits, hot) = found?;
        let mut keys = reported(hot.reads, &hot.writes);
        let (relieved, lacking) = self.relieve_all(hot.writes.by_key, warm, now_seconds, deadline).await;
        keys.extend(relieved);
        let warming = match lacking {
            Some(write_units) => self.relieve_table(write_units, deadline).await,
            None => Value::Null,
        };
        let capacity = self.raise_capacity(&limits.table).await?;

        let causes: Vec<&str> = limits.table.iter().map(|cause| cause.name()).collect();
        let of_causes =
            limits.table.iter().filter(|cause| **cause >= Cause::OnDemandMaximum).map(|cause| cause.advice());
        let advice: Vec<String> = of_causes.map(str::to_owned).chain(hot.advice).collect();
        let mut answer = json!({"outcome": "handled", "causes": causes, "keys": keys});
        if let Some(object) = answer.as_object_mut() {
            let parts = [
                ("capacity", capacity),
                ("warm", warming),
                ("advice", if advice.is_empty() { Value::Null } else { advice.into() }),
                ("contributor_insights", hot.insights.into()),
                ("indexes", if hot.indexes.is_empty() { Value::Null } else { hot.indexes.into() }),
            ];
            object
                .extend(parts.into_iter().filter(|(_, part)| !part.is_null()).map(|(name, part)| (name.into(), part)));
        }
        Ok(answer)
    }

    /// The limits that the alarms name; where they name none, those that the metrics of the table and of its indexes tell.
    async fn limits(&self, firing: &[&Alarm], now_seconds: u64) -> Result<Limits, ClientError> {
        let metrics: Vec<&AlarmMetric> = firing.iter().flat_map(|alarm| &alarm.metrics).collect();
        let named = Limits::named(&metrics);
        if !named.is_empty() {
            return Ok(named);
        }
        let config = self.table.config();
        let about: BTreeSet<&str> = metrics.iter().filter_map(|metric| metric.index.as_deref()).collect();
        self.clients.limits_met(&config.table_name, &config.read_replicas, &about, now_seconds).await
    }
}

/// What is told of the keys that only reads met: more shards do not help them.
fn reported(reads: ThrottledKeys, writes: &ThrottledKeys) -> Vec<Value> {
    let only_read = reads.by_key.into_iter().filter(|(key, _)| !writes.by_key.contains_key(key));
    let told = only_read.map(|(key, throttles)| {
        json!({
            "action": "report",
            "partition_key": key.as_str(),
            "outcome": "unchanged",
            "throttled": throttles.total(),
            "reason": Cause::HotReads.advice(),
        })
    });
    told.collect()
}
