//! The shard-scaler: woken by an alarm or by a writer, or told directly.
//!
//! An alarm names a table and never a key, comes late, twice or not at all; so it is taken as a hint to look, and what is done
//! follows from the throttled keys, the policy and the protocol, which make a repetition harmless.

mod alarm;
mod alarm_event;
mod cause;
mod clients;
mod config;
mod direct;
mod directory;
mod drain;
mod event;
mod failure;
mod hot_keys;
mod limits;
mod raise_capacity;
mod rearm;
mod relieve;
mod survey;
mod telemetry;
mod throttled_keys;
mod told;
mod warm_throughput;
mod warming;

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sharding::internal::{Deadline, PartitionKey, TableEngine};

pub use alarm_event::{Alarm, AlarmMetric};
pub use cause::Cause;
pub use clients::Clients;
pub use config::ScalerConfig;
pub use event::{After, EventError, ScalerEvent, WarmUnits};
pub use failure::Failed;

use warm_throughput::Looks;

/// The shard-scaler of one table. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Scaler {
    table: TableEngine,
    clients: Clients,
    config: ScalerConfig,
    /// The key after which the next run of the schedule looks on: the last one came no farther.
    looked_after: Arc<Mutex<Option<PartitionKey>>>,
    /// What is known of the table's warm throughput. Held while it is looked at or raised, so that many callers
    /// do it once.
    looks: Arc<tokio::sync::Mutex<Looks>>,
}

impl Scaler {
    /// The shard-scaler of this table, which learns and acts by these clients.
    #[must_use]
    pub fn new(table: TableEngine, clients: Clients, config: ScalerConfig) -> Self {
        Self { table, clients, config, looked_after: Arc::default(), looks: Arc::default() }
    }

    /// The table whose keys it scales.
    #[must_use]
    pub const fn table(&self) -> &TableEngine {
        &self.table
    }

    /// Carries out one event and says what was done. A wrong event or a missing permission is an answer, not an error: repeating the event would
    /// not mend it.
    ///
    /// `now_seconds` is the time since the Unix epoch.
    ///
    /// # Errors
    /// [`Failed`] where a part of the event failed for a moment: throttled, or without an answer from AWS. It has the answer.
    pub async fn handle(&self, event: &Value, now_seconds: u64, deadline: Deadline) -> Result<Value, Failed> {
        let answer = match ScalerEvent::parse(event) {
            Err(error) => json!({"outcome": "refused", "field": error.field, "detail": error.why}),
            Ok(ScalerEvent::Set { partition_key, number_of_shards, warm }) => {
                self.set(&partition_key, number_of_shards, warm, deadline).await
            }
            Ok(ScalerEvent::Warm(units)) => self.warm_as_asked(units, deadline).await,
            Ok(ScalerEvent::Shrink { partition_key, number_of_shards }) => {
                self.shrink(&partition_key, number_of_shards, deadline).await
            }
            Ok(ScalerEvent::Settle { partition_key }) => self.settle(&partition_key, deadline).await,
            Ok(ScalerEvent::Migrate { after }) => self.migrate(after, deadline).await,
            Ok(ScalerEvent::Rebuild) => self.rebuild(deadline).await,
            Ok(ScalerEvent::Copies { copies }) => self.raise_copies(copies, deadline).await,
            Ok(ScalerEvent::Drain) => self.drain_all(now_seconds, deadline).await,
            Ok(ScalerEvent::Show { partition_key }) => self.show(&partition_key, deadline).await,
            Ok(ScalerEvent::List { after }) => self.list(after.as_deref(), deadline).await,
            Ok(ScalerEvent::Rearm { alarms }) => {
                // Every stack has this schedule, so writers know the table's partitions before a key is hot.
                tokio::join!(self.rearm(&alarms, deadline), self.learn_warm_throughput(deadline)).0
            }
            Ok(ScalerEvent::Alarms(alarms)) => self.alarms(&alarms, now_seconds, deadline).await,
        };
        tracing::info!(audit = true, %answer, "event handled");
        Failed::check(answer)
    }
}
