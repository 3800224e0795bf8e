//! What the endpoint sees of keys that are not armed: which of them are throttled, how many shards
//! they would need, and what would be refused for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::counter;
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use sharding::CapacityScope;
use sharding::internal::policy::rules::ScalingPolicy;

/// The largest number of keys that are counted. The cache keeps those that are written often.
const MAX_KEYS: usize = 4_096;
/// How often the log says which keys were throttled.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);
/// The most keys in one report.
const REPORTED_KEYS: usize = 20;
/// The reports that are kept: those of an hour.
const REPORTS: usize = 60;

/// The counts of one key in a period.
#[derive(Debug, Default)]
struct Counts {
    units: AtomicU64,
    throttled: AtomicU64,
    /// What its clients use that is refused for armed keys.
    refused: Mutex<BTreeSet<String>>,
}

/// A table with fewer partitions needs more shards, because more of them share one.
const MANY_PARTITIONS: u32 = 1_000;

/// A key that was throttled in a period, as `GET /observed` returns it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotKey {
    /// The table.
    pub table: String,
    /// The partition key.
    pub key: String,
    /// The write units a second that its clients asked for, with those that were throttled.
    pub write_units: f64,
    /// The writes that were throttled because of its partition.
    pub throttled: u64,
    /// The shards that the policy gives these write units on a table with many partitions.
    pub shards: u32,
    /// Operations and parameters that its clients have used, and that are refused once it is armed.
    pub refused: BTreeSet<String>,
}

/// The counts of all keys. Clones share them.
#[derive(Debug, Clone)]
pub struct Observed {
    keys: Arc<Cache<(String, String), Arc<Counts>>>,
    reports: Arc<Mutex<VecDeque<Vec<HotKey>>>>,
}

impl Default for Observed {
    fn default() -> Self {
        Self { keys: Arc::new(Cache::new(MAX_KEYS)), reports: Arc::default() }
    }
}

impl Observed {
    fn counts(&self, table: &str, key: &str) -> Arc<Counts> {
        let of_key = (table.to_owned(), key.to_owned());
        let Ok(counts) =
            self.keys.get_or_insert_with(&of_key, || Ok::<_, Infallible>(Arc::default()));
        counts
    }

    /// Counts a write of this many write units.
    pub(crate) fn note(
        &self,
        (table, key): (&str, &str),
        units: u64,
        throttled: Option<CapacityScope>,
    ) {
        let counts = self.counts(table, key);
        counts.units.fetch_add(units, Ordering::Relaxed);
        if throttled.is_some_and(CapacityScope::is_cured_by_shards) {
            counts.throttled.fetch_add(1, Ordering::Relaxed);
            counter!("ShardingThrottlesOfUnarmedKeys").increment(1);
        }
    }

    /// Notes what is refused for armed keys.
    pub(crate) fn note_refused(&self, (table, key): (&str, &str), what: &str) {
        locked(&self.counts(table, key).refused).insert(what.to_owned());
    }

    /// The keys that were throttled since the last call, hottest first, and begins a new period.
    #[must_use]
    pub fn take(&self, period: Duration) -> Vec<HotKey> {
        let mut hot: Vec<HotKey> = self
            .keys
            .iter()
            .filter_map(|((table, key), counts)| {
                let units = counts.units.swap(0, Ordering::Relaxed) as f64;
                let throttled = counts.throttled.swap(0, Ordering::Relaxed);
                let write_units = units / period.as_secs_f64();
                let sizing =
                    ScalingPolicy::default().shards_for(write_units, Some(MANY_PARTITIONS));
                let shards = sizing.shards().get().max(2);
                let refused = locked(&counts.refused).clone();
                let hot = HotKey { table, key, write_units, throttled, shards, refused };
                (throttled > 0).then_some(hot)
            })
            .collect();
        hot.sort_by(|one, other| other.write_units.total_cmp(&one.write_units));
        hot.truncate(REPORTED_KEYS);
        let mut reports = locked(&self.reports);
        reports.push_back(hot.clone());
        let old = reports.len().saturating_sub(REPORTS);
        reports.drain(..old);
        hot
    }

    /// The keys of the reports of the last hour, hottest first, each with its hottest period.
    #[must_use]
    pub fn hottest(&self) -> Vec<HotKey> {
        let mut by_key = BTreeMap::<(String, String), HotKey>::new();
        for hot in locked(&self.reports).iter().flatten() {
            let of_key = (hot.table.clone(), hot.key.clone());
            let known = by_key.entry(of_key).or_insert_with(|| hot.clone());
            if hot.write_units > known.write_units {
                (known.write_units, known.shards) = (hot.write_units, hot.shards);
                known.throttled = hot.throttled;
            }
            known.refused.extend(hot.refused.iter().cloned());
        }
        let mut hot: Vec<HotKey> = by_key.into_values().collect();
        hot.sort_by(|one, other| other.write_units.total_cmp(&one.write_units));
        hot
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_period_of_an_hour_is_kept() {
        let observed = Observed::default();
        for writes in [10, 5_000, 20] {
            for _ in 0..writes {
                observed.note(("t", "hot"), 1, Some(CapacityScope::KeyRange));
                observed.note(("t", "cold"), 1, None);
                observed.note(("t", "short"), 1, Some(CapacityScope::Table));
            }
            assert_eq!(observed.take(Duration::from_secs(1)).len(), 1);
        }
        let hottest = observed.hottest();
        assert_eq!((hottest.len(), hottest[0].throttled, hottest[0].shards), (1, 5_000, 9));
        for _ in 0..REPORTS {
            assert!(observed.take(Duration::from_secs(1)).is_empty());
        }
        assert!(observed.hottest().is_empty(), "an hour later");
    }
}
