//! Direct events, including those about one key, the list of keys, armed keys and the directory.

use serde_json::{Map, Value, json};
use sharding::maintenance::{
    ArmingObstacle, KeyPattern, MAX_COPIES, ScaleError, ScalingDecision, ShardMetadata,
};
use sharding::{PartitionKey, ShardCount, TableError, WarmThroughput};
use tokio::time::Instant as Deadline;

use crate::Scaler;
use crate::event::{DirectEvent, EventError, WarmUnits, WholeNumber};
use crate::response::{Handled, Outcome, Report, respond, to_json};
use crate::warm_throughput::checked;

const ARMING_FAILED: &str = "the armed keys could not be read or changed";

impl Scaler {
    pub(crate) async fn direct(
        &self,
        event: DirectEvent,
        now_seconds: u64,
        deadline: Deadline,
    ) -> Result<Value, EventError> {
        let (action, report) = match event {
            DirectEvent::Set { partition_key, number_of_shards, write_units, read_units } => {
                let warm = WarmUnits { write_units, read_units };
                return self.set(&partition_key, number_of_shards, warm, deadline).await;
            }
            DirectEvent::Warm(units) => ("warm", self.warm_as_asked(units, deadline).await?),
            DirectEvent::Shrink { partition_key, number_of_shards } => {
                ("shrink", self.shrink(&partition_key, number_of_shards, deadline).await?)
            }
            DirectEvent::Settle { partition_key: key } => {
                ("settle", self.settle(&key, deadline).await?)
            }
            DirectEvent::Drain {} => ("drain", self.drain_all(now_seconds, deadline).await),
            DirectEvent::Rebuild {} => ("rebuild", self.rebuild(deadline).await),
            DirectEvent::Copies { copies: n } => ("copies", self.raise_copies(n, deadline).await?),
            DirectEvent::Rearm { alarms } => {
                // Every stack has this schedule, so writers know the table's partitions before a
                // key is hot.
                let learnt = self.learn_warm_throughput(deadline);
                ("rearm", tokio::join!(self.rearm(&alarms, deadline), learnt).0)
            }
            DirectEvent::Arm { pattern, allow } => {
                ("arm", self.arm(&pattern, &allow, deadline).await?)
            }
            DirectEvent::Disarm { pattern } => ("disarm", self.disarm(&pattern, deadline).await?),
            DirectEvent::Status {} => ("status", self.status(deadline).await),
            DirectEvent::Show { partition_key: key } => ("show", self.show(&key, deadline).await?),
            DirectEvent::List { after } => ("list", self.list(after.as_deref(), deadline).await?),
        };
        Ok(respond(action, &report))
    }

    /// Gives a key its shards, and prepares the table for its load if requested. The two run in
    /// parallel and fail independently.
    async fn set(
        &self,
        key: &str,
        asked: WholeNumber,
        warm: WarmUnits,
        deadline: Deadline,
    ) -> Result<Value, EventError> {
        let key = self.logical_key(key)?;
        let highest = self.table.config().policy.max_shards;
        let refused = || asked.refused("number_of_shards", format_args!("1 to {highest}"));
        let count = asked.shard_count().ok_or_else(refused)?;
        let need = checked(warm)?;
        // A rejected request costs nothing.
        let is_allowed = count <= highest;
        let ready = async {
            if need != WarmThroughput::default() && is_allowed {
                return Some(self.warm(need, deadline).await);
            }
            self.learn_warm_throughput(deadline).await;
            None
        };
        let (outcome, warm) = tokio::join!(self.set_to(&key, count, deadline), ready);
        let mut response = match outcome {
            Ok(outcome) => respond("set", &Report::of_key(&key, outcome)),
            Err(refused) => to_json(&refused),
        };
        if let Some(warm) = warm {
            response["warm"] = to_json(&warm);
        }
        Ok(response)
    }

    async fn set_to(
        &self,
        key: &PartitionKey,
        count: ShardCount,
        deadline: Deadline,
    ) -> Result<Outcome, EventError> {
        let maintenance = self.maintenance(deadline);
        if self.config.dry_run {
            if let Ok(Some(from)) = maintenance.not_armed_before(key).await {
                return Ok(Outcome::unchanged(ScalingDecision::NotArmed { from }));
            }
            return Ok(match maintenance.metadata(key).await {
                Ok(metadata) => {
                    let adopted = self.table.config().adopt_shards;
                    let from = metadata.map_or(adopted, |metadata| metadata.number_of_shards);
                    Outcome::DryRun(json!({"from": from.get(), "to": count.get()}))
                }
                Err(error) => Outcome::not_scaled(&error),
            });
        }
        match maintenance.grow(key, count).await {
            Ok(outcome) => Ok(Outcome::of_change(outcome)),
            Err(ScaleError::Table(error)) => Ok(Outcome::not_scaled(&error)),
            Err(error @ (ScaleError::TooMany { .. } | ScaleError::Lower { .. } | _)) => {
                Err(EventError::new("number_of_shards", error))
            }
        }
    }

    async fn show(&self, key: &str, deadline: Deadline) -> Handled {
        let key = self.logical_key(key)?;
        let outcome = match self.maintenance(deadline).metadata(&key).await {
            Ok(metadata) => Outcome::Shown { metadata: self.described(metadata.as_ref()) },
            Err(error) => Outcome::not_scaled(&error),
        };
        Ok(Report::of_key(&key, outcome))
    }

    /// A page of the keys that have metadata, in no order, and the state of all others.
    async fn list(&self, after: Option<&str>, deadline: Deadline) -> Handled {
        let after = after.map(|key| self.logical_key(key)).transpose()?;
        let (keys, next) = match self.maintenance(deadline).list(after.as_ref()).await {
            Ok(page) => page,
            Err(error) => return Ok(Report::of(Outcome::failed(&error, error.is_retryable()))),
        };
        let listed = keys.iter().map(|(key, metadata)| {
            let mut listed = self.described(Some(metadata));
            listed["partition_key"] = key.as_str().into();
            listed
        });
        let details = json!({
            "keys": listed.collect::<Vec<_>>(),
            "next": next.as_ref().map(PartitionKey::as_str),
            "unlisted": self.described(None),
        });
        Ok(Report { outcome: Outcome::Listed, details })
    }

    pub(crate) fn logical_key(&self, key: &str) -> Result<PartitionKey, EventError> {
        let key = self.table.config().partition_key(key);
        key.map_err(|error| EventError::new("partition_key", error))
    }

    /// The state of a key. A key without metadata has never grown.
    fn described(&self, metadata: Option<&ShardMetadata>) -> Value {
        let first = self.table.config().adopt_shards;
        let Some(metadata) = metadata else {
            let shards = first.get();
            return json!({"number_of_shards": shards, "read_shards": shards, "grown": false});
        };
        let drain = metadata.draining().map(|drain| {
            json!({
                "began": drain.began,
                "busy_until": drain.busy_until,
                "in_doubt": drain.in_doubt,
                "emptied_at": drain.emptied_at,
            })
        });
        let mut described = json!({
            "number_of_shards": metadata.number_of_shards.get(),
            "read_shards": metadata.read_shards.get(),
            "grown": metadata.layout().is_listed(first),
            "last_updated": metadata.last_updated,
            "shard_history": metadata.shard_history.to_strings(),
            "era": metadata.era,
            "generation": metadata.generation,
            "draining": drain.is_some(),
            "drain": drain,
            "settled": metadata.settled,
        });
        if let Some(closing) = metadata.closing() {
            described["closing"] = closing.get().into();
        }
        described
    }

    /// Raises the number of copies of each page. A lower number changes nothing.
    async fn raise_copies(&self, asked: WholeNumber, deadline: Deadline) -> Handled {
        let copies = u32::try_from(asked.0).ok().filter(|copies| (1..=MAX_COPIES).contains(copies));
        let allowed = format!("1 to {MAX_COPIES}");
        let copies = copies.ok_or_else(|| asked.refused("copies", allowed))?;
        let details = json!({"copies": copies});
        if self.config.dry_run {
            return Ok(Report { outcome: Outcome::DryRun(json!({})), details });
        }
        let raised = self.maintenance(deadline).raise_directory_copies(copies).await;
        let effect = "the copies of the directory could not be raised";
        let failed = |error| Outcome::of_error(&error, effect);
        Ok(Report { outcome: raised.map_or_else(failed, |()| Outcome::Handled), details })
    }

    /// Arms the keys of a pattern, unless the table has something that does not fit, and the event
    /// does not allow it.
    async fn arm(&self, pattern: &str, allow: &[String], deadline: Deadline) -> Handled {
        let pattern = parsed(pattern)?;
        let is_known = |name: &String| ArmingObstacle::NAMES.iter().any(|(known, _)| known == name);
        if let Some(unknown) = allow.iter().find(|name| !is_known(name)) {
            let why = format!("it has {unknown:?}; allowed: replicas, stream, index and metadata");
            return Err(EventError::new("allow", why));
        }
        let maintenance = self.maintenance(deadline);
        let mut details = json!({"pattern": pattern.to_string()});
        let armed = async {
            let found = maintenance.arming_obstacles().await?;
            let names = found.into_iter().map(ArmingObstacle::as_str);
            let not_allowed: Vec<_> =
                names.filter(|it| !allow.iter().any(|name| name == it)).collect();
            if !not_allowed.is_empty() {
                let names = not_allowed.join(", ");
                let reason = format!("the table has {names}: see docs/adopting.md, and allow it");
                return Ok(Outcome::Unchanged { reason });
            }
            if self.config.dry_run {
                return Ok(Outcome::DryRun(json!({})));
            }
            let from = maintenance.arm(&pattern).await?;
            tracing::info!(audit = true, pattern = %pattern, %from, "keys are armed");
            details["counts_from"] = from.into();
            Ok::<_, TableError>(Outcome::Handled)
        };
        let outcome = armed.await.unwrap_or_else(|error| Outcome::of_error(&error, ARMING_FAILED));
        Ok(Report { outcome, details })
    }

    async fn disarm(&self, pattern: &str, deadline: Deadline) -> Handled {
        let pattern = parsed(pattern)?;
        let details = json!({"pattern": pattern.to_string()});
        if self.config.dry_run {
            return Ok(Report { outcome: Outcome::DryRun(json!({})), details });
        }
        let outcome = match self.maintenance(deadline).disarm(&pattern).await {
            Ok(()) => Outcome::Handled,
            Err(TableError::ConditionFailed) => {
                let reason = "the table has no such pattern, or it counts, or will within minutes";
                Outcome::unchanged(reason)
            }
            Err(error) => Outcome::of_error(&error, ARMING_FAILED),
        };
        Ok(Report { outcome, details })
    }

    async fn status(&self, deadline: Deadline) -> Report {
        match self.maintenance(deadline).armed().await {
            Ok(armed) => {
                let patterns: Map<_, _> = armed
                    .into_iter()
                    .map(|(pattern, from)| (pattern.to_string(), from.into()))
                    .collect();
                Report { outcome: Outcome::Handled, details: json!({ "armed": patterns }) }
            }
            Err(error) => Report::of(Outcome::of_error(&error, ARMING_FAILED)),
        }
    }
}

fn parsed(pattern: &str) -> Result<KeyPattern, EventError> {
    pattern.parse().map_err(|error| EventError::new("pattern", error))
}
