//! Direct events about one key, and the list of keys: set, show, list.

use serde_json::{Value, json};
use sharding::internal::{Deadline, PartitionKey, ShardCount, ShardMetadata, WarmThroughput};

use crate::Scaler;
use crate::event::WarmUnits;
use crate::failure::failed;
use crate::told::{refused, told};
use crate::warming::checked;

impl Scaler {
    /// Gives a key its shards, and makes the table ready for its load where that is asked for. Neither waits for
    /// the other, and neither fails for the other.
    pub(crate) async fn set(&self, key: &str, number_of_shards: i128, warm: WarmUnits, deadline: Deadline) -> Value {
        let key = match self.logical_key(key) {
            Ok(key) => key,
            Err(refusal) => return refusal,
        };
        let Some(count) = u32::try_from(number_of_shards).ok().and_then(ShardCount::new) else {
            let highest = self.table.config().policy.max_shards;
            return refused("number_of_shards", format_args!("it is {number_of_shards}; allowed: 1 to {highest}"));
        };
        let need = match checked(warm) {
            Ok(need) => need,
            Err(refusal) => return refusal,
        };
        // What is refused costs nothing.
        let is_allowed = count <= self.table.config().policy.max_shards;
        let ready = async {
            if need != WarmThroughput::default() && is_allowed {
                return Some(self.warm(need, deadline).await);
            }
            self.learn_warm_throughput(deadline).await;
            None
        };
        let (mut answer, warm) = tokio::join!(self.set_to(&key, count, deadline), ready);
        if let (Some(warm), Some(answer)) = (warm, answer.as_object_mut()) {
            answer.insert("warm".into(), warm);
        }
        answer
    }

    async fn set_to(&self, key: &PartitionKey, count: ShardCount, deadline: Deadline) -> Value {
        if !self.config.dry_run {
            return told("set", key, self.table.set_shards(key, count, deadline).await);
        }
        match self.table.shards(key, deadline).await {
            Ok(metadata) => {
                let from =
                    metadata.map_or(self.table.config().adopt_shards, |metadata| metadata.number_of_shards).get();
                json!({"action": "set", "partition_key": key.as_str(), "outcome": "dry-run", "from": from, "to": count.get()})
            }
            Err(error) => told("set", key, Err(error.into())),
        }
    }

    pub(crate) async fn show(&self, key: &str, deadline: Deadline) -> Value {
        let key = match self.logical_key(key) {
            Ok(key) => key,
            Err(refusal) => return refusal,
        };
        match self.table.shards(&key, deadline).await {
            Ok(metadata) => {
                let metadata = self.described(metadata.as_ref());
                json!({"action": "show", "partition_key": key.as_str(), "outcome": "shown", "metadata": metadata})
            }
            Err(error) => told("show", &key, Err(error.into())),
        }
    }

    /// A page of the keys that have metadata, in no order, and what holds for all others.
    pub(crate) async fn list(&self, after: Option<&str>, deadline: Deadline) -> Value {
        let after = match after.map(|key| self.logical_key(key)).transpose() {
            Ok(after) => after,
            Err(refusal) => return refusal,
        };
        match self.table.list_keys(after.as_ref(), deadline).await {
            Ok((keys, next)) => {
                let keys: Vec<Value> = keys
                    .iter()
                    .map(|(key, metadata)| {
                        let mut described = self.described(Some(metadata));
                        if let Some(object) = described.as_object_mut() {
                            object.insert("partition_key".into(), key.as_str().into());
                        }
                        described
                    })
                    .collect();
                let (next, unlisted) = (next.as_ref().map(PartitionKey::as_str), self.described(None));
                json!({"action": "list", "outcome": "listed", "keys": keys, "next": next, "unlisted": unlisted})
            }
            Err(error) => failed(json!({"action": "list"}), &error, error.is_retryable()),
        }
    }

    pub(crate) fn logical_key(&self, key: &str) -> Result<PartitionKey, Value> {
        let config = self.table.config();
        let fits = |key: PartitionKey| config.shard_keys.check(&key, config.policy.max_shards).map(|()| key);
        PartitionKey::new(key).and_then(fits).map_err(|error| refused("partition_key", error))
    }

    /// What is known of a key. One without metadata has never grown.
    fn described(&self, metadata: Option<&ShardMetadata>) -> Value {
        let first = self.table.config().adopt_shards;
        let Some(metadata) = metadata else {
            return json!({"number_of_shards": first.get(), "read_shards": first.get(), "grown": false});
        };
        let drain = metadata
            .draining()
            .map(|drain| json!({"began": drain.began, "busy_until": drain.busy_until, "in_doubt": drain.in_doubt, "emptied_at": drain.emptied_at}));
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
        if let (Some(to), Some(object)) = (metadata.closing(), described.as_object_mut()) {
            object.insert("closing".into(), to.get().into());
        }
        described
    }
}
