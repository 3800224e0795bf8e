//! Counts the writes of each partition key in a hash map with a bound.
//!
//! If the map is full, the lighter half of its keys is dropped. The counts then may lack writes, but
//! no more than the heaviest dropped counts together. So no heavy key is missed (lossy counting).

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count {
    pub(super) items: u64,
    pub(super) units: u64,
}

impl Count {
    pub(super) fn add(&mut self, units: u64) {
        self.items += 1;
        self.units += units;
    }
}

/// The bytes that a key takes in the map besides its name, roughly.
const ENTRY_BYTES: usize = 64;

/// The keys by weight, heaviest first.
#[derive(Debug)]
pub(super) struct Ranking {
    /// The number of keys; the fewest possible unless `is_exact`.
    pub(super) distinct: u64,
    pub(super) heaviest: Vec<(String, Count)>,
    /// Whether every write was counted. Otherwise the counts may lack some.
    pub(super) is_exact: bool,
    /// A key that is not in `heaviest` takes no more write units than this.
    pub(super) unlisted_at_most: u64,
}

pub(super) struct KeyCounts {
    /// The most bytes of the keys in the map.
    room: usize,
    counts: HashMap<Box<str>, Count>,
    bytes: usize,
    /// The most keys that were in the map at once.
    most_keys: usize,
    /// The most write units that the counts of a key lack.
    dropped_units: u64,
}

impl KeyCounts {
    pub(super) fn new(room: usize) -> Self {
        Self { room, counts: HashMap::new(), bytes: 0, most_keys: 0, dropped_units: 0 }
    }

    pub(super) fn add(&mut self, key: &str, units: u64) {
        if let Some(count) = self.counts.get_mut(key) {
            return count.add(units);
        }
        let bytes = ENTRY_BYTES + key.len();
        if self.bytes + bytes > self.room {
            self.drop_lighter_half();
        }
        self.bytes += bytes;
        self.counts.insert(key.into(), Count { items: 1, units });
        self.most_keys = self.most_keys.max(self.counts.len());
    }

    fn drop_lighter_half(&mut self) {
        let mut units: Vec<u64> = self.counts.values().map(|count| count.units).collect();
        if units.is_empty() {
            return;
        }
        let middle = units.len() / 2;
        let median = *units.select_nth_unstable(middle).1;
        self.counts.retain(|_, count| count.units > median);
        self.bytes = self.counts.keys().map(|key| ENTRY_BYTES + key.len()).sum();
        self.dropped_units += median;
    }

    /// Returns up to `listed` of the heaviest keys.
    pub(super) fn rank(self, listed: usize) -> Ranking {
        let mut keys: Vec<(String, Count)> =
            self.counts.into_iter().map(|(key, count)| (key.into_string(), count)).collect();
        keys.sort_unstable_by(heaviest_first);
        let next = keys.get(listed).map_or(0, |(_, count)| count.units);
        keys.truncate(listed);
        Ranking {
            distinct: self.most_keys as u64,
            heaviest: keys,
            is_exact: self.dropped_units == 0,
            unlisted_at_most: next + self.dropped_units,
        }
    }
}

/// Keys of equal weight are in the order of their names, so that runs can be compared.
pub(super) fn heaviest_first(a: &(String, Count), b: &(String, Count)) -> Ordering {
    let weight = |count: &Count| (Reverse(count.units), Reverse(count.items));
    (weight(&a.1), &a.0).cmp(&(weight(&b.1), &b.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn writes() -> impl Strategy<Value = Vec<(u32, u64)>> {
        proptest::collection::vec((0u32..50, 1u64..9), 1..300)
    }

    /// The true counts, and the ranking.
    fn ranked(
        writes: &[(u32, u64)],
        room: usize,
        listed: usize,
    ) -> (HashMap<String, Count>, Ranking) {
        let (mut counts, mut all) = (KeyCounts::new(room), HashMap::<String, Count>::new());
        for (key, units) in writes {
            counts.add(&key.to_string(), *units);
            all.entry(key.to_string()).or_default().add(*units);
        }
        (all, counts.rank(listed))
    }

    proptest! {
        #[test]
        fn within_the_bound_all_is_exact(writes in writes(), listed in 1usize..60) {
            let (all, ranking) = ranked(&writes, 50 * (ENTRY_BYTES + 2), listed);
            prop_assert_eq!(ranking.distinct, all.len() as u64);
            prop_assert!(ranking.is_exact && ranking.heaviest.len() == listed.min(all.len()));
            prop_assert!(ranking.heaviest.windows(2).all(|two| two[0].1.units >= two[1].1.units));
            for (key, count) in &all {
                match ranking.heaviest.iter().find(|(listed, _)| listed == key) {
                    Some((_, listed)) => prop_assert_eq!(listed, count),
                    None => prop_assert!(count.units <= ranking.unlisted_at_most),
                }
            }
        }

        #[test]
        fn beyond_the_bound_no_heavy_key_is_missed(
            writes in writes(), room in 1usize..4_000, listed in 1usize..60,
        ) {
            let (all, ranking) = ranked(&writes, room, listed);
            prop_assert!(ranking.distinct <= all.len() as u64);
            for (key, count) in &all {
                let is_listed = ranking.heaviest.iter().any(|(listed, _)| listed == key);
                prop_assert!(is_listed || count.units <= ranking.unlisted_at_most, "{key}");
            }
        }
    }
}
