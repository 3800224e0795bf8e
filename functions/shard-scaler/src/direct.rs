//! Direct events, including those about one key or the list of keys: set, show, list.

use sharding::PartitionKey;
use sharding::internal::{Deadline, ShardCount, ShardMetadata, WarmThroughput};

use crate::Scaler;
use crate::event::{DirectEvent, EventError, WarmUnits, WholeNumber};
use crate::failure::Failure;
use crate::report::{KeyDescription, KeyOutcome, KeyReport, Listed, ListedKey};
use crate::response::Response;
use crate::warming::checked;

impl Scaler {
    pub(crate) async fn direct(
        &self,
        event: DirectEvent,
        now_seconds: u64,
        deadline: Deadline,
    ) -> Result<Response, EventError> {
        Ok(match event {
            DirectEvent::Set { partition_key, number_of_shards, write_units, read_units } => {
                let warm = WarmUnits { write_units, read_units };
                self.set(&partition_key, number_of_shards, warm, deadline).await?
            }
            DirectEvent::Warm(units) => Response::Warm(self.warm_as_asked(units, deadline).await?),
            DirectEvent::Shrink { partition_key, number_of_shards } => {
                Response::Shrink(self.shrink(&partition_key, number_of_shards, deadline).await?)
            }
            DirectEvent::Settle { partition_key: key } => {
                Response::Settle(self.settle(&key, deadline).await?)
            }
            DirectEvent::Drain {} => Response::Drain(self.drain_all(now_seconds, deadline).await),
            DirectEvent::Migrate { after } => {
                Response::Migrate(self.migrate(after, deadline).await?)
            }
            DirectEvent::Rebuild {} => Response::Rebuild(self.rebuild(deadline).await),
            DirectEvent::Copies { copies } => {
                Response::Copies(self.raise_copies(copies, deadline).await?)
            }
            DirectEvent::Rearm { alarms } => {
                // Every stack has this schedule, so writers know the table's partitions before a
                // key is hot.
                let learnt = self.learn_warm_throughput(deadline);
                Response::Rearm(tokio::join!(self.rearm(&alarms, deadline), learnt).0)
            }
            DirectEvent::Show { partition_key: key } => {
                Response::Show(self.show(&key, deadline).await?)
            }
            DirectEvent::List { after } => {
                Response::List(self.list(after.as_deref(), deadline).await?)
            }
        })
    }

    /// Gives a key its shards, and prepares the table for its load if requested. The two run in
    /// parallel and fail independently.
    async fn set(
        &self,
        key: &str,
        asked: WholeNumber,
        warm: WarmUnits,
        deadline: Deadline,
    ) -> Result<Response, EventError> {
        let key = self.logical_key(key)?;
        let highest = self.table.config().policy.max_shards;
        let Some(count) = asked.shard_count() else {
            let why = format_args!("it is {asked}; allowed: 1 to {highest}");
            return Err(EventError::new("number_of_shards", why));
        };
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
        Ok(match outcome {
            Ok(KeyOutcome::Refused(error)) => Response::Refused { error, warm },
            outcome => Response::Set { key: KeyReport::new(&key, outcome), warm },
        })
    }

    async fn set_to(
        &self,
        key: &PartitionKey,
        count: ShardCount,
        deadline: Deadline,
    ) -> Result<KeyOutcome, Failure> {
        if !self.config.dry_run {
            return KeyOutcome::of(self.table.set_shards(key, count, deadline).await);
        }
        match self.table.shards(key, deadline).await {
            Ok(metadata) => {
                let adopted = self.table.config().adopt_shards;
                let from = metadata.map_or(adopted, |metadata| metadata.number_of_shards);
                Ok(KeyOutcome::dry_run(Some(from.get()), Some(count.get())))
            }
            Err(error) => KeyOutcome::of(Err(error.into())),
        }
    }

    async fn show(&self, key: &str, deadline: Deadline) -> Result<KeyReport, EventError> {
        let key = self.logical_key(key)?;
        let outcome = match self.table.shards(&key, deadline).await {
            Ok(metadata) => {
                let metadata = Box::new(self.described(metadata.as_ref()));
                Ok(KeyOutcome::Shown { metadata })
            }
            Err(error) => KeyOutcome::of(Err(error.into())),
        };
        Ok(KeyReport::new(&key, outcome))
    }

    /// A page of the keys that have metadata, in no order, and the state of all others.
    async fn list(
        &self,
        after: Option<&str>,
        deadline: Deadline,
    ) -> Result<Result<Listed, Failure>, EventError> {
        let after = after.map(|key| self.logical_key(key)).transpose()?;
        let page = self.table.list_keys(after.as_ref(), deadline).await;
        let listed = page.map(|(keys, next)| {
            let listed = keys.iter().map(|(key, metadata)| ListedKey {
                partition_key: key.as_str().to_owned(),
                metadata: self.described(Some(metadata)),
            });
            let next = next.map(|key| key.as_str().to_owned());
            Listed { keys: listed.collect(), next, unlisted: self.described(None) }
        });
        Ok(listed.map_err(|error| Failure::new(&error, error.is_retryable())))
    }

    pub(crate) fn logical_key(&self, key: &str) -> Result<PartitionKey, EventError> {
        let config = self.table.config();
        let fits = |key: PartitionKey| {
            config.shard_keys.check(&key, config.policy.max_shards).map(|()| key)
        };
        let key = PartitionKey::new(key).and_then(fits);
        key.map_err(|error| EventError::new("partition_key", error))
    }

    fn described(&self, metadata: Option<&ShardMetadata>) -> KeyDescription {
        KeyDescription::of(metadata, self.table.config().adopt_shards)
    }
}
