//! The shard-scaler. An alarm, a writer or a direct event wakes it.
//!
//! An alarm names a table and never a key, and comes late, twice or not at all. So it is only a
//! hint. The action follows from the throttled keys, the policy and the protocol, which make a
//! repetition harmless.

mod alarm;
mod clients;
mod config;
mod direct;
mod drain;
mod event;
mod limits;
mod relieve;
mod response;
mod survey;
mod throttled_keys;
mod warm_throughput;

use std::sync::{Arc, Mutex};

use serde_json::Value;
use sharding::maintenance::Maintenance;
use sharding::{PartitionKey, ShardedTable};

pub use clients::Clients;
pub use config::{ScalerConfig, VARIABLES};
pub use response::Failed;

use event::ScalerEvent;
use response::{respond, to_json};
use tokio::time::Instant as Deadline;
use warm_throughput::Looks;

/// The shard-scaler of one table. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Scaler {
    table: ShardedTable,
    clients: Clients,
    config: ScalerConfig,
    /// The key after which the next run of the schedule continues, because the last one stopped
    /// there.
    looked_after: Arc<Mutex<Option<PartitionKey>>>,
    /// Held while the table's warm throughput is read or raised, so that concurrent callers raise it
    /// once.
    looks: Arc<tokio::sync::Mutex<Looks>>,
}

impl Scaler {
    /// The shard-scaler of this table, with these clients.
    #[must_use]
    pub fn new(table: ShardedTable, clients: Clients, config: ScalerConfig) -> Self {
        Self { table, clients, config, looked_after: Arc::default(), looks: Arc::default() }
    }

    /// The table whose keys it scales.
    #[must_use]
    pub const fn table(&self) -> &ShardedTable {
        &self.table
    }

    /// The work on the table and its keys, until this deadline.
    pub(crate) fn maintenance(&self, deadline: Deadline) -> Maintenance {
        self.table.maintenance().deadline(deadline)
    }

    /// Handles one event and returns what was done. An invalid event or a missing permission is a
    /// response, not an error, because repeating the event would not help.
    ///
    /// `now_seconds` is the time since the Unix epoch.
    ///
    /// # Errors
    /// [`Failed`] if a part of the event failed temporarily: throttled, or without a response from
    /// AWS. It contains the response.
    pub async fn handle(
        &self,
        event: &Value,
        now_seconds: u64,
        deadline: Deadline,
    ) -> Result<Value, Failed> {
        let response = match ScalerEvent::parse(event) {
            Ok(ScalerEvent::Direct(event)) => self.direct(event, now_seconds, deadline).await,
            Ok(ScalerEvent::Alarms(alarms)) => {
                Ok(respond("alarm", &self.alarms(&alarms, now_seconds, deadline).await))
            }
            Err(refused) => Err(refused),
        };
        let response = response.unwrap_or_else(|refused| to_json(&refused));
        tracing::info!(audit = true, answer = %response, "event handled");
        Failed::check(response)
    }
}
