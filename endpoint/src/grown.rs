//! The keys of a table that have several shards, as this process has read them last.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sharding::internal::TableEngine;
use sharding::internal::protocol::directory::KeyDigest;
use sharding::{PartitionKey, ShardCount};
use tokio::time::Instant;

use crate::reply::Failure;

/// How long new scans use what was read before. A key that has grown since comes as a scan finds it.
const READ_FOR: Duration = Duration::from_secs(60);
/// The metadata of very many keys takes longer than a request may. Later requests use it.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// The letters of a mark: 96 bits.
pub(crate) const MARK_LETTERS: usize = 16;

/// Stands for a key: the beginning of its digest.
pub(crate) fn mark(key: &PartitionKey) -> String {
    KeyDigest::of(key).to_string().chars().take(MARK_LETTERS).collect()
}

/// The keys that have several shards, or had them and are not settled.
#[derive(Debug, Default)]
pub(crate) struct Grown {
    /// With their read widths.
    keys: HashMap<String, (PartitionKey, ShardCount)>,
}

impl Grown {
    /// The marks of so many of the keys, those with the most shards.
    pub(crate) fn widest(&self, most: usize) -> BTreeSet<String> {
        let all = self.keys.iter().map(|(mark, (_, shards))| (*shards, mark));
        let mut widest: Vec<_> = all.collect();
        widest.sort_unstable_by(|one, other| other.cmp(one));
        widest.into_iter().take(most).map(|(_, mark)| mark.clone()).collect()
    }

    /// The keys of marks, in order. `None` if one is not known.
    pub(crate) fn keys(&self, marks: &BTreeSet<String>) -> Option<Vec<PartitionKey>> {
        let keys = marks.iter().map(|mark| self.keys.get(mark).map(|(key, _)| key.clone()));
        let mut keys = keys.collect::<Option<Vec<_>>>()?;
        keys.sort();
        Some(keys)
    }

    async fn read(engine: &TableEngine, deadline: Instant) -> Result<Self, Failure> {
        let (mut keys, mut after) = (HashMap::new(), None::<PartitionKey>);
        loop {
            let (page, next) = engine.until(deadline).list(after.as_ref()).await?;
            for (key, metadata) in page {
                let widths = metadata.widths().chain([metadata.read_shards]);
                let widest = widths.max().unwrap_or(ShardCount::ONE);
                if widest > ShardCount::ONE {
                    keys.insert(mark(&key), (key, widest));
                }
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(Self { keys }),
            }
        }
    }
}

/// What a read has found, and when it began.
type Last = Option<(Arc<Grown>, Instant)>;

/// The grown keys of a table as this process has read them last.
#[derive(Debug, Clone, Default)]
pub(crate) struct GrownKeys {
    last: Arc<Mutex<Last>>,
    /// One request reads at a time.
    reading: Arc<tokio::sync::Mutex<()>>,
}

impl GrownKeys {
    fn last(&self) -> Last {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For a scan that begins, or for one that shows the keys of these marks.
    pub(crate) async fn get(
        &self,
        engine: &TableEngine,
        marks: Option<&BTreeSet<String>>,
    ) -> Result<Arc<Grown>, Failure> {
        let arrived = Instant::now();
        if let Some((grown, read_at)) = self.last()
            && marks.map_or_else(
                || arrived.duration_since(read_at) < READ_FOR,
                |marks| grown.keys(marks).is_some(),
            )
        {
            return Ok(grown);
        }
        let (this, engine) = (self.clone(), engine.clone());
        let reading = tokio::spawn(async move {
            let _guard = this.reading.lock().await;
            if let Some((grown, _)) = this.last().filter(|(_, read_at)| *read_at >= arrived) {
                return Ok(grown);
            }
            let read_at = Instant::now();
            let grown = Arc::new(Grown::read(&engine, read_at + READ_TIMEOUT).await?);
            let last = Some((Arc::clone(&grown), read_at));
            *this.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
            Ok(grown)
        });
        let failed = |error| Failure::internal(format!("sharding-endpoint: {error}"));
        reading.await.map_err(failed)?
    }
}
