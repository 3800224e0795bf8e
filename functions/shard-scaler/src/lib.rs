//! The shard-scaler: woken by an alarm, or told directly.
//!
//! An alarm names a table and never a key, comes late, twice or not at all; so it is taken as a hint to look, and what is done
//! follows from the throttled keys, the policy and the protocol, which make a repetition harmless.

mod event;
mod throttled_keys;

use serde_json::{Value, json};
use sharding::{
    Deadline, PartitionKey, Pressure, ScaleError, ScaleOutcome, ScalingActors, ScalingDecision, ShardCount,
    ShardMetadata, ShardedTable,
};
use tokio::task::JoinSet;

pub use event::{Alarm, EventError, ScalerEvent};
pub use throttled_keys::Insights;

/// Write units a second that one partition gives. [DynamoDB developer guide]
const PARTITION_WRITE_UNITS: u64 = 1_000;
/// A report does not tell how much of its minutes the throttling lasted. The longer it is taken to have lasted, the smaller it looks; so
/// it is taken as short, and a long one is met again by the next alarm.
const OVERLOAD_SECONDS: u64 = 10;

/// Carries out one event and says what was done. A wrong event is an answer, not an error: repeating it would not mend it.
///
/// `now_seconds` is the time since the Unix epoch.
pub async fn handle(
    table: &ShardedTable,
    insights: &Insights,
    event: &Value,
    now_seconds: u64,
    deadline: Deadline,
) -> Value {
    let answer = match ScalerEvent::parse(event) {
        Err(error) => json!({"outcome": "refused", "field": error.field, "detail": error.why}),
        Ok(ScalerEvent::Set { partition_key, number_of_shards }) => {
            set(table, &partition_key, number_of_shards, deadline).await
        }
        Ok(ScalerEvent::Show { partition_key }) => show(table, &partition_key, deadline).await,
        Ok(ScalerEvent::Alarms(alarms)) => alarms_fired(table, insights, &alarms, now_seconds, deadline).await,
    };
    tracing::info!(%answer, "event handled");
    answer
}

fn refused(field: &str, detail: impl std::fmt::Display) -> Value {
    json!({"outcome": "refused", "field": field, "detail": detail.to_string()})
}

async fn set(table: &ShardedTable, key: &str, number_of_shards: i128, deadline: Deadline) -> Value {
    let key = match logical_key(table, key) {
        Ok(key) => key,
        Err(refusal) => return refusal,
    };
    let Some(count) = u32::try_from(number_of_shards).ok().and_then(ShardCount::new) else {
        let highest = table.config().policy.max_shards;
        return refused("number_of_shards", format_args!("it is {number_of_shards}; allowed: 1 to {highest}"));
    };
    let result = table.set_shards(&key, count, deadline).await;
    told("set", &key, result)
}

async fn show(table: &ShardedTable, key: &str, deadline: Deadline) -> Value {
    let key = match logical_key(table, key) {
        Ok(key) => key,
        Err(refusal) => return refusal,
    };
    match table.shards(&key, deadline).await {
        Ok(metadata) => {
            let metadata = metadata.as_ref().map(describe);
            json!({"action": "show", "partition_key": key.as_str(), "outcome": "shown", "metadata": metadata})
        }
        Err(error) => {
            json!({"action": "show", "partition_key": key.as_str(), "outcome": "failed", "detail": error.to_string()})
        }
    }
}

fn describe(metadata: &ShardMetadata) -> Value {
    json!({
        "number_of_shards": metadata.number_of_shards.get(),
        "read_shards": metadata.read_shards.get(),
        "last_updated": metadata.last_updated,
        "shard_history": metadata.shard_history.to_strings(),
        "generation": metadata.generation,
        "draining": metadata.draining,
    })
}

fn logical_key(table: &ShardedTable, key: &str) -> Result<PartitionKey, Value> {
    let config = table.config();
    let fits = |key: PartitionKey| config.shard_keys.check(&key, config.policy.max_shards).map(|()| key);
    PartitionKey::new(key).and_then(fits).map_err(|error| refused("partition_key", error))
}

async fn alarms_fired(
    table: &ShardedTable,
    insights: &Insights,
    alarms: &[Alarm],
    now_seconds: u64,
    deadline: Deadline,
) -> Value {
    let name = alarms.iter().find_map(|alarm| alarm.name.as_deref());
    let ignored = |reason: &str| json!({"action": "alarm", "alarm": name, "outcome": "ignored", "reason": reason});
    if table.config().scaling == ScalingActors::Writer {
        return ignored("SCALING is writer: alarms do not scale");
    }
    let own = |alarm: &&Alarm| {
        alarm.tables.is_empty() || alarm.tables.iter().any(|named| names_table(&table.config().table_name, named))
    };
    let own: Vec<&Alarm> = alarms.iter().filter(own).collect();
    if own.is_empty() {
        return ignored("the alarm is of another table");
    }
    if !own.iter().any(|alarm| alarm.state == "ALARM") {
        return ignored("the state is not ALARM");
    }
    let config = table.config();
    let throttled = match insights.throttled_keys(&config.table_name, &config.shard_keys, now_seconds).await {
        Ok(throttled) => throttled,
        Err(error) => {
            tracing::error!(%error, "the throttled keys could not be learned");
            return json!({"action": "alarm", "alarm": name, "outcome": "failed", "detail": error.to_string()});
        }
    };
    if throttled.foreign > 0 {
        tracing::warn!(keys = throttled.foreign, "throttled keys that are no shard keys of this table");
    }
    let mut scaling = JoinSet::new();
    for (key, count) in throttled.by_key {
        let table = table.clone();
        scaling.spawn(async move { relieve(&table, &key, count, deadline).await });
    }
    let mut keys: Vec<Value> = scaling.join_all().await;
    keys.sort_by_key(|key| key.get("partition_key").and_then(Value::as_str).map(str::to_owned));
    json!({"action": "alarm", "alarm": name, "outcome": "handled", "keys": keys})
}

fn names_table(configured: &str, named: &str) -> bool {
    configured == named || configured.rsplit_once(":table/").is_some_and(|(_, bare)| bare == named)
}

async fn relieve(table: &ShardedTable, key: &PartitionKey, throttled: u64, deadline: Deadline) -> Value {
    let width = match table.shards(key, deadline).await {
        Ok(metadata) => metadata.map_or(1, |metadata| metadata.number_of_shards.get()),
        Err(error) => return told("scale", key, Err(error.into())),
    };
    // What was turned away is known; what was let in is at most what the shards' partitions give.
    let accepted = u64::from(width) * PARTITION_WRITE_UNITS * OVERLOAD_SECONDS;
    let seen = Pressure { attempts: throttled.saturating_add(accepted), throttled, accepted };
    let mut answer = told("scale", key, table.scale_by_policy(key, seen, deadline).await);
    if let Some(object) = answer.as_object_mut() {
        object.insert("throttled".into(), throttled.into());
    }
    answer
}

fn told(action: &str, key: &PartitionKey, result: Result<ScaleOutcome, ScaleError>) -> Value {
    let key = key.as_str();
    match result {
        Ok(ScaleOutcome::Scaled { from, to }) => {
            json!({"action": action, "partition_key": key, "outcome": "scaled", "from": from.get(), "to": to.get()})
        }
        Ok(ScaleOutcome::Unchanged(decision)) => {
            let reason = match decision {
                ScalingDecision::CoolingDown { until } => format!("cooling down until {until}"),
                ScalingDecision::ShortOfPartitions { until } => {
                    format!("growing did not help: the table is short of partitions; next try from {until}")
                }
                ScalingDecision::AtMaximum => "at MAX_SHARDS".to_owned(),
                ScalingDecision::Draining => "a shrink is under way".to_owned(),
                ScalingDecision::Expanding(to) => format!("an expansion to {to} is under way"),
                ScalingDecision::Calm | ScalingDecision::ScaleOut(_) => "nothing to do".to_owned(),
            };
            json!({"action": action, "partition_key": key, "outcome": "unchanged", "reason": reason})
        }
        Ok(ScaleOutcome::Outrun) => {
            json!({"action": action, "partition_key": key, "outcome": "unchanged", "reason": "another actor changed it first"})
        }
        Err(error @ (ScaleError::TooMany { .. } | ScaleError::Lower { .. })) => refused("number_of_shards", error),
        Err(ScaleError::Table(error)) => {
            tracing::error!(%error, "a key could not be scaled");
            json!({"action": action, "partition_key": key, "outcome": "failed", "detail": error.to_string()})
        }
    }
}
