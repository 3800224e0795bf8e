//! The keys of a table that have had shards since an instant: the keys whose items a scan shows
//! together.
//!
//! Every page of a scan must decide alike, whichever process reads it. So the decision is about a
//! time that never changes: that of the key's second era. A key whose close is stored after the
//! metadata was read begins that era more than a second later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sharding::PartitionKey;
use sharding::internal::TableEngine;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::reply::Failure;

/// How long new scans use what was read before. A key that has grown since comes as a scan finds it.
const READ_FOR: Duration = Duration::from_secs(60);

/// The keys that have grown, with the epoch second since which they have.
#[derive(Debug, Default)]
pub(crate) struct Grown {
    /// Epoch seconds. What is said of keys that have grown before is complete.
    pub(crate) at: u64,
    keys: BTreeMap<PartitionKey, u64>,
}

impl Grown {
    /// The keys that had grown before an epoch second, not below a key.
    pub(crate) fn before(
        &self,
        at: u64,
        from: Option<&PartitionKey>,
    ) -> impl Iterator<Item = &PartitionKey> {
        let keys =
            self.keys.iter().skip_while(move |(key, _)| from.is_some_and(|from| *key < from));
        keys.filter(move |(_, since)| **since < at).map(|(key, _)| key)
    }

    /// Whether a key had grown before an epoch second.
    pub(crate) fn has(&self, key: &PartitionKey, at: u64) -> bool {
        self.keys.get(key).is_some_and(|since| *since < at)
    }

    /// Reads the metadata of all keys.
    async fn read(engine: &TableEngine, deadline: Instant) -> Result<Self, Failure> {
        let (mut at, mut keys, mut after) =
            (engine.now().wall.as_secs(), BTreeMap::new(), None::<PartitionKey>);
        loop {
            let (page, next) = engine.list_keys(after.as_ref(), deadline).await?;
            for (key, metadata) in page {
                match metadata.first_change() {
                    Some(since) => {
                        keys.insert(key, since);
                    }
                    // It may open at any time after its close.
                    None if metadata.closing().is_some() => {
                        let closed = metadata.shard_history.entries().next();
                        at = at.min(closed.map_or(0, |closed| closed.at));
                    }
                    None => {}
                }
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(Self { at, keys }),
            }
        }
    }
}

/// The grown keys of a table as this process has read them last.
#[derive(Debug, Clone, Default)]
pub(crate) struct GrownKeys(Arc<Mutex<Option<Known>>>);

#[derive(Debug)]
struct Known {
    grown: Arc<Grown>,
    read_at: Instant,
}

impl GrownKeys {
    /// For a scan that begins, or for one that began at an epoch second.
    pub(crate) async fn get(
        &self,
        engine: &TableEngine,
        began: Option<u64>,
        deadline: Instant,
    ) -> Result<Arc<Grown>, Failure> {
        let mut known = self.0.lock().await;
        let suffices = |known: &&Known| match began {
            Some(began) => began <= known.grown.at,
            None => known.read_at.elapsed() < READ_FOR,
        };
        if let Some(known) = known.as_ref().filter(suffices) {
            return Ok(Arc::clone(&known.grown));
        }
        let read_at = Instant::now();
        let mut grown = Grown::read(engine, deadline).await?;
        // A key that began its second era in this second is one of the grown from the next on.
        if grown.keys.values().any(|since| *since == grown.at) {
            let next = Duration::from_secs(grown.at + 1);
            sleep(next.saturating_sub(engine.now().wall)).await;
            grown = Grown::read(engine, deadline).await?;
        }
        let grown = Arc::new(grown);
        *known = Some(Known { grown: Arc::clone(&grown), read_at });
        Ok(grown)
    }
}
