//! What the endpoint sees of keys that are not armed: which of them are throttled, and how many
//! shards they would need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quick_cache::sync::Cache;
use serde_json::Value;
use sharding::{CapacityScope, PARTITION_WRITE_UNITS};

use crate::reply::Members;

/// The largest number of keys that are counted. The cache keeps those that are written often.
const MAX_KEYS: usize = 4_096;
/// How often the log says which keys were throttled.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);
/// The most keys in one report.
const REPORTED_KEYS: usize = 20;

/// The counts of one key in a period.
#[derive(Debug, Default)]
struct Counts {
    units: AtomicU64,
    throttled: AtomicU64,
}

/// A key that was throttled in a period.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKey {
    /// The table.
    pub table: String,
    /// The partition key.
    pub key: String,
    /// The write units a second that its clients asked for, with those that were throttled.
    pub write_units: f64,
    /// The writes that were throttled because of its partition.
    pub throttled: u64,
    /// The number of shards that would carry these write units, with a fifth of room.
    pub shards: u32,
}

/// The counts of all keys. Clones share them.
#[derive(Debug, Clone)]
pub struct Observed(Arc<Cache<(String, String), Arc<Counts>>>);

impl Default for Observed {
    fn default() -> Self {
        Self(Arc::new(Cache::new(MAX_KEYS)))
    }
}

impl Observed {
    /// Counts a write.
    pub(crate) fn note(
        &self,
        table: &str,
        key: &str,
        item: &Members,
        throttled: Option<CapacityScope>,
    ) {
        let counted = self.0.get_or_insert_with(&(table.to_owned(), key.to_owned()), || {
            Ok::<_, std::convert::Infallible>(Arc::default())
        });
        let Ok(counts) = counted;
        let bytes: usize = item.values().map(|value: &Value| value.to_string().len()).sum();
        counts.units.fetch_add((bytes as u64).div_ceil(1_024).max(1), Ordering::Relaxed);
        if throttled.is_some_and(CapacityScope::is_cured_by_shards) {
            counts.throttled.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The keys that were throttled since the last call, hottest first, and begins a new period.
    #[must_use]
    pub fn take(&self, period: Duration) -> Vec<HotKey> {
        let mut hot: Vec<HotKey> = self
            .0
            .iter()
            .filter_map(|((table, key), counts)| {
                let units = counts.units.swap(0, Ordering::Relaxed) as f64;
                let throttled = counts.throttled.swap(0, Ordering::Relaxed);
                let write_units = units / period.as_secs_f64();
                let shards =
                    (write_units * 1.2 / PARTITION_WRITE_UNITS as f64).ceil().max(2.0) as u32;
                (throttled > 0).then_some(HotKey { table, key, write_units, throttled, shards })
            })
            .collect();
        hot.sort_by(|one, other| other.write_units.total_cmp(&one.write_units));
        hot.truncate(REPORTED_KEYS);
        hot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttled_key_is_reported_once_with_its_shards() {
        let (observed, item) = (Observed::default(), Members::new());
        for number in 0..3_000 {
            let throttled = (number % 3 == 0).then_some(CapacityScope::KeyRange);
            observed.note("t", "hot", &item, throttled);
            observed.note("t", "cold", &item, None);
            observed.note("t", "short", &item, Some(CapacityScope::Table));
        }
        let hot = observed.take(Duration::from_secs(1));
        let [hot] = &hot[..] else { panic!("{hot:?}") };
        assert_eq!((hot.key.as_str(), hot.throttled, hot.shards), ("hot", 1_000, 4));
        assert!(observed.take(Duration::from_secs(1)).is_empty(), "a new period");
    }
}
