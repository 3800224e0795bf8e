//! What an alarm makes the shard-scaler do.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use sharding::{Deadline, PartitionKey, Pressure, ScalingActors, ScalingDecision, ShardMetadata};
use tokio::task::JoinSet;

use crate::Scaler;
use crate::cause::Cause;
use crate::clients::{ClientError, Units};
use crate::event::Alarm;
use crate::throttled_keys::Throttles;
use crate::told::told;

/// Write units a second that one partition gives. [DynamoDB developer guide]
pub(crate) const PARTITION_WRITE_UNITS: u64 = 1_000;
/// A report does not tell how much of its minutes the throttling lasted. The longer it is taken to have lasted, the smaller it looks; so
/// it is taken as short, and a long one is met again by the next alarm.
const OVERLOAD_SECONDS: u64 = 10;
/// Every item of a key that is not settled has shard 1 among its candidates. A report does not tell which writes were throttled there, so this is
/// said of keys whose writers have noted point writes.
const ONLY_SHARD_1: &str =
    "only shard 1 is throttled, which point writes use whatever the width: more shards do not help, settling does";

impl Scaler {
    /// Alarms are hints to look: they come late, twice or not at all, and name a table but no key.
    pub(crate) async fn alarms(&self, alarms: &[Alarm], now_seconds: u64, deadline: Deadline) -> Value {
        let name = alarms.iter().find_map(|alarm| alarm.name.as_deref());
        let ignored = |reason: &str| json!({"action": "alarm", "alarm": name, "outcome": "ignored", "reason": reason});
        if self.table.config().scaling == ScalingActors::Writer {
            return ignored("SCALING is writer: alarms do not scale");
        }
        let table_name = &self.table.config().table_name;
        let own =
            |alarm: &&Alarm| alarm.tables.is_empty() || alarm.tables.iter().any(|named| names_table(table_name, named));
        let own: Vec<&Alarm> = alarms.iter().filter(own).collect();
        if own.is_empty() {
            return ignored("the alarm is of another table");
        }
        let firing: Vec<&Alarm> = own.into_iter().filter(|alarm| alarm.state == "ALARM").collect();
        if firing.is_empty() {
            return ignored("the state is not ALARM");
        }
        let too_old = |alarm: &&Alarm| {
            alarm.changed_at.is_some_and(|at| now_seconds.saturating_sub(at) > self.config.max_event_age.as_secs())
        };
        if firing.iter().all(too_old) {
            return ignored(&format!("the event is older than {} seconds", self.config.max_event_age.as_secs()));
        }
        let mut answer = match self.act(&firing, now_seconds, deadline).await {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "an alarm could not be acted on");
                json!({"outcome": "failed", "detail": error.to_string()})
            }
        };
        if let Some(object) = answer.as_object_mut() {
            object.insert("action".into(), "alarm".into());
            object.insert("alarm".into(), name.into());
            // Also after a failure: only an alarm that is OK again can raise the next event.
            object.insert("rearmed".into(), self.rearm(&firing).await.into());
        }
        answer
    }

    async fn act(&self, firing: &[&Alarm], now_seconds: u64, deadline: Deadline) -> Result<Value, ClientError> {
        let config = self.table.config();
        let metrics: Vec<String> = firing.iter().flat_map(|alarm| alarm.metrics.iter().cloned()).collect();
        let named = Cause::named(&metrics);
        let causes = if named.is_empty() { self.clients.causes(&config.table_name, now_seconds).await? } else { named };
        let mut keys = Vec::new();
        if causes.contains(&Cause::HotWrites) || causes.contains(&Cause::HotReads) {
            // What an earlier event has looked at is not counted again, as far as this instance remembers it.
            let from = self.looked_until.fetch_max(now_seconds, Ordering::Relaxed);
            let throttled =
                self.clients.throttled_keys(&config.table_name, &config.shard_keys, from, now_seconds).await?;
            if throttled.foreign > 0 {
                tracing::warn!(keys = throttled.foreign, "throttled keys that are no shard keys of this table");
            }
            if causes.contains(&Cause::HotWrites) {
                keys = self.relieve_all(throttled.by_key, deadline).await;
            } else {
                let advice = Cause::HotReads.advice();
                keys.extend(throttled.by_key.into_iter().map(|(key, throttles)| {
                    let count = throttles.since(0);
                    json!({"action": "report", "partition_key": key.as_str(), "outcome": "unchanged", "throttled": count, "reason": advice})
                }));
            }
        }
        let capacity = self.raise_capacity(&causes).await?;
        let names: Vec<&str> = causes.iter().map(|cause| cause.name()).collect();
        let mut answer = json!({"outcome": "handled", "causes": names, "keys": keys});
        let advice: Vec<&str> =
            causes.iter().filter(|cause| **cause >= Cause::OnDemandMaximum).map(|cause| cause.advice()).collect();
        if let Some(object) = answer.as_object_mut() {
            if !capacity.is_null() {
                object.insert("capacity".into(), capacity);
            }
            if !advice.is_empty() {
                object.insert("advice".into(), advice.into());
            }
        }
        Ok(answer)
    }

    /// One decision for each logical key, all at the same time: most of a scale-out is waiting.
    async fn relieve_all(
        &self,
        throttled: impl IntoIterator<Item = (PartitionKey, Throttles)>,
        deadline: Deadline,
    ) -> Vec<Value> {
        let mut scaling = JoinSet::new();
        for (key, throttles) in throttled {
            let scaler = self.clone();
            scaling.spawn(async move { scaler.relieve(&key, &throttles, deadline).await });
        }
        let mut keys: Vec<Value> = scaling.join_all().await;
        keys.sort_by_key(|key| key.get("partition_key").and_then(Value::as_str).map(str::to_owned));
        keys
    }

    async fn relieve(&self, key: &PartitionKey, throttles: &Throttles, deadline: Deadline) -> Value {
        let metadata = match self.table.shards(key, deadline).await {
            Ok(metadata) => metadata,
            Err(error) => return told("scale", key, Err(error.into())),
        };
        let width =
            metadata.as_ref().map_or(self.table.config().adopt_shards, |metadata| metadata.number_of_shards).get();
        let throttled = throttles.since(metadata.as_ref().and_then(ShardMetadata::last_change).unwrap_or_default());
        let settling_helps =
            !self.table.config().cold_append && metadata.as_ref().is_some_and(ShardMetadata::wants_settling);
        if throttles.only_shard_1 && settling_helps {
            let answer = json!({"action": "scale", "partition_key": key.as_str(), "outcome": "unchanged", "throttled": throttled, "reason": ONLY_SHARD_1});
            tracing::info!(audit = true, %answer, "decision");
            return answer;
        }
        // What was turned away is known; what was let in is at most what the shards' partitions give.
        let accepted = u64::from(width) * PARTITION_WRITE_UNITS * OVERLOAD_SECONDS;
        let seen = Pressure { attempts: throttled.saturating_add(accepted), throttled, accepted };
        let mut answer = if self.config.dry_run {
            match self.table.decide(key, seen, deadline).await {
                Ok(ScalingDecision::ScaleOut(to)) => {
                    json!({"action": "scale", "partition_key": key.as_str(), "outcome": "dry-run", "from": width, "to": to.get()})
                }
                Ok(decision) => {
                    json!({"action": "scale", "partition_key": key.as_str(), "outcome": "unchanged", "reason": decision.to_string()})
                }
                Err(error) => told("scale", key, Err(error)),
            }
        } else {
            told("scale", key, self.table.scale_by_policy(key, seen, deadline).await)
        };
        if let Some(object) = answer.as_object_mut() {
            object.insert("throttled".into(), throttled.into());
        }
        tracing::info!(audit = true, %answer, "decision");
        answer
    }

    /// Doubles what the table is short of, up to the maximum that the deployment allows. Null where that is not the cause.
    async fn raise_capacity(&self, causes: &BTreeSet<Cause>) -> Result<Value, ClientError> {
        let short = |cause| causes.contains(&cause);
        if !short(Cause::ProvisionedWrites) && !short(Cause::ProvisionedReads) {
            return Ok(Value::Null);
        }
        let table = &self.table.config().table_name;
        let capacity = self.clients.capacity(table).await?;
        let unchanged = |reason: &str| json!({"outcome": "unchanged", "reason": reason});
        let Some(now) = capacity.provisioned else { return Ok(unchanged("the table is on demand")) };
        if !capacity.is_active {
            return Ok(unchanged("the table is being updated"));
        }
        let raised =
            |short: bool, now: u64, most: u64| if short { now.max(now.saturating_mul(2).min(most)) } else { now };
        let to = Units {
            read: raised(short(Cause::ProvisionedReads), now.read, self.config.max_read_units),
            write: raised(short(Cause::ProvisionedWrites), now.write, self.config.max_write_units),
        };
        let units = |units: Units| json!({"read": units.read, "write": units.write});
        let answer = if to == now {
            let cause =
                if short(Cause::ProvisionedWrites) { Cause::ProvisionedWrites } else { Cause::ProvisionedReads };
            unchanged(cause.advice())
        } else if self.config.dry_run {
            json!({"outcome": "dry-run", "from": units(now), "to": units(to)})
        } else {
            self.clients.provision(table, to).await?;
            json!({"outcome": "raised", "from": units(now), "to": units(to)})
        };
        tracing::info!(audit = true, %answer, "capacity decision");
        Ok(answer)
    }

    async fn rearm(&self, firing: &[&Alarm]) -> bool {
        if self.config.dry_run {
            return false;
        }
        let names: BTreeSet<&str> = firing.iter().filter_map(|alarm| alarm.name.as_deref()).collect();
        let mut rearmed = !names.is_empty();
        for name in names {
            if let Err(error) = self.clients.rearm(name).await {
                tracing::warn!(%error, alarm = name, "the alarm could not be re-armed: while it stays in ALARM, it raises no further event");
                rearmed = false;
            }
        }
        rearmed
    }
}

fn names_table(configured: &str, named: &str) -> bool {
    configured == named || configured.rsplit_once(":table/").is_some_and(|(_, bare)| bare == named)
}
