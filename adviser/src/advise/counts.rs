//! Counts the writes of each partition key: exactly while the counts fit into memory, and then by
//! sketches of fixed size.
//!
//! The sketches are those of Apache DataSketches: HyperLogLog for the number of keys, and a
//! Misra-Gries variant for heavy keys, which never misses a key whose writes exceed its error.

use std::cmp::Reverse;
use std::collections::HashMap;

use datasketches::common::NumStdDev;
use datasketches::frequencies::{ErrorType, FrequentItemsSketch};
use datasketches::hll::{HllSketch, HllType};

/// 2^16 registers of a byte each: a standard error of a third of a percent.
const REGISTERS_LOG2: u8 = 16;

/// The writes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count {
    pub(super) items: u64,
    pub(super) units: u64,
}

/// The limits of the memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// The most keys that are counted exactly.
    pub(super) exact_keys: usize,
    /// The most bytes of the names of these keys together.
    pub(super) exact_bytes: usize,
    /// The number of keys of the sketch of heavy keys: a power of two, at least 8.
    pub(super) heavy_keys: usize,
}

/// The number of keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Distinct {
    Exactly(u64),
    /// An estimate. The number is between the bounds with 95 % confidence.
    About {
        estimate: u64,
        lower: u64,
        upper: u64,
    },
}

/// The keys by weight, heaviest first.
#[derive(Debug)]
pub(super) struct Ranking {
    pub(super) distinct: Distinct,
    pub(super) heaviest: Vec<(String, Count)>,
    /// Whether the counts are exact. Otherwise they have write units within the sketch's error, and
    /// no items.
    pub(super) is_exact: bool,
    /// A key that is not in `heaviest` takes no more write units than this.
    pub(super) unlisted_at_most: u64,
}

/// Counts the writes of each key.
pub(super) struct KeyCounts {
    room: Room,
    exact: HashMap<Box<str>, Count>,
    bytes: usize,
    items: u64,
    sketches: Option<Sketches>,
}

struct Sketches {
    distinct: HllSketch,
    heavy: FrequentItemsSketch<String>,
}

impl KeyCounts {
    pub(super) fn new(room: Room) -> Self {
        Self { room, exact: HashMap::new(), bytes: 0, items: 0, sketches: None }
    }

    pub(super) fn add(&mut self, key: &str, units: u64) {
        self.items += 1;
        if let Some(sketches) = &mut self.sketches {
            return sketches.add(key, units);
        }
        if let Some(count) = self.exact.get_mut(key) {
            count.items += 1;
            count.units += units;
            return;
        }
        if self.exact.len() < self.room.exact_keys
            && self.bytes + key.len() <= self.room.exact_bytes
        {
            self.bytes += key.len();
            self.exact.insert(key.into(), Count { items: 1, units });
            return;
        }
        let mut sketches = Sketches::new(self.room.heavy_keys);
        // The errors of the sketches depend on the order of the keys. Sorting them makes runs
        // reproducible.
        let mut exact: Vec<(Box<str>, Count)> =
            std::mem::take(&mut self.exact).into_iter().collect();
        exact.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (key, count) in exact {
            sketches.add(&key, count.units);
        }
        sketches.add(key, units);
        self.sketches = Some(sketches);
    }

    /// Returns up to `listed` of the heaviest keys.
    pub(super) fn rank(self, listed: usize) -> Ranking {
        match self.sketches {
            Some(sketches) => sketches.rank(listed, self.items),
            None => {
                let distinct = Distinct::Exactly(self.exact.len() as u64);
                let mut keys: Vec<(String, Count)> =
                    self.exact.into_iter().map(|(key, count)| (key.into_string(), count)).collect();
                sort(&mut keys);
                let unlisted_at_most = keys.get(listed).map_or(0, |(_, count)| count.units);
                keys.truncate(listed);
                Ranking { distinct, heaviest: keys, is_exact: true, unlisted_at_most }
            }
        }
    }
}

impl Sketches {
    fn new(heavy_keys: usize) -> Self {
        Self {
            distinct: HllSketch::new(REGISTERS_LOG2, HllType::Hll8)
                .expect("a number of registers that is allowed"),
            heavy: FrequentItemsSketch::new(heavy_keys).expect("a power of two"),
        }
    }

    fn add(&mut self, key: &str, units: u64) {
        self.distinct.update(key);
        self.heavy.update_with_count_ref(key, units);
    }

    fn rank(self, listed: usize, items: u64) -> Ranking {
        // Each key has at least one item, so there are no more keys than items.
        let bound = |bound: f64| (bound.round().max(0.0) as u64).min(items);
        let distinct = Distinct::About {
            estimate: bound(self.distinct.estimate()),
            lower: bound(self.distinct.lower_bound(NumStdDev::Two)),
            upper: bound(self.distinct.upper_bound(NumStdDev::Two)),
        };
        let mut rows = self.heavy.frequent_items_with_threshold(ErrorType::NoFalseNegatives, 0);
        rows.sort_by(|a, b| {
            b.upper_bound().cmp(&a.upper_bound()).then_with(|| a.item().cmp(b.item()))
        });
        let next = rows.get(listed).map_or(0, |row| row.upper_bound());
        let unlisted_at_most = next.max(self.heavy.maximum_error());
        let heaviest = rows.iter().take(listed);
        let heaviest = heaviest
            .map(|row| (row.item().clone(), Count { items: 0, units: row.estimate() }))
            .collect();
        Ranking { distinct, heaviest, is_exact: false, unlisted_at_most }
    }
}

/// Sorts the heaviest key first. Keys of equal weight are sorted by name, so that runs can be
/// compared.
pub(super) fn sort(keys: &mut [(String, Count)]) {
    keys.sort_unstable_by(|a, b| {
        (Reverse(a.1.units), Reverse(a.1.items), &a.0).cmp(&(
            Reverse(b.1.units),
            Reverse(b.1.items),
            &b.0,
        ))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(writes: &[(u32, u64)], room: Room) -> KeyCounts {
        let mut counts = KeyCounts::new(room);
        for (key, units) in writes {
            counts.add(&key.to_string(), *units);
        }
        counts
    }

    fn truth(writes: &[(u32, u64)]) -> HashMap<String, Count> {
        let mut all: HashMap<String, Count> = HashMap::new();
        for (key, units) in writes {
            let count = all.entry(key.to_string()).or_default();
            count.items += 1;
            count.units += units;
        }
        all
    }

    proptest! {
        #[test]
        fn within_the_bound_all_is_exact(
            writes in proptest::collection::vec((0u32..50, 1u64..9), 1..300), listed in 1usize..60,
        ) {
            let all = truth(&writes);
            let room = Room { exact_keys: 50, exact_bytes: 1_000, heavy_keys: 8 };
            let ranking = counted(&writes, room).rank(listed);
            prop_assert_eq!(ranking.distinct, Distinct::Exactly(all.len() as u64));
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
            writes in proptest::collection::vec((0u32..50, 1u64..9), 1..300),
            keys in 0usize..60,
            bytes in 0usize..60,
            log2 in 3u32..6,
            listed in 1usize..60,
        ) {
            let all = truth(&writes);
            let room = Room { exact_keys: keys, exact_bytes: bytes, heavy_keys: 1 << log2 };
            let ranking = counted(&writes, room).rank(listed);
            for (key, count) in &all {
                let is_listed = ranking.heaviest.iter().any(|(listed, _)| listed == key);
                prop_assert!(is_listed || count.units <= ranking.unlisted_at_most, "{key}");
            }
        }
    }

    #[test]
    fn there_are_never_more_keys_than_items() {
        for draw in 0..4 {
            let mut counts =
                KeyCounts::new(Room { exact_keys: 10, exact_bytes: usize::MAX, heavy_keys: 8 });
            for i in 0..50_000u32 {
                counts.add(&format!("{draw}-{i}"), 1);
            }
            let Distinct::About { estimate, lower, upper } = counts.rank(10).distinct else {
                panic!("{draw}")
            };
            assert!(
                lower <= estimate && estimate <= upper && upper <= 50_000,
                "{lower} {estimate} {upper}"
            );
        }
    }

    #[test]
    fn a_million_keys_are_counted_to_a_percent_and_the_heavy_ones_found() {
        let mut counts = KeyCounts::new(Room {
            exact_keys: 1_000,
            exact_bytes: usize::MAX,
            heavy_keys: 1 << 16,
        });
        for i in 0..1_000_000u32 {
            counts.add(&format!("key-{i}"), 1);
            counts.add(&format!("heavy-{}", i % 20), u64::from(i % 20 + 1));
        }
        let ranking = counts.rank(20);
        let Distinct::About { estimate, lower, upper } = ranking.distinct else {
            panic!("{:?}", ranking.distinct)
        };
        assert!(
            (990_000..1_010_000).contains(&estimate) && lower <= estimate && estimate <= upper,
            "{estimate}"
        );
        let mut names: Vec<_> = ranking.heaviest.iter().map(|(key, _)| key.clone()).collect();
        names.sort();
        let mut expected: Vec<_> = (0..20).map(|i| format!("heavy-{i}")).collect();
        expected.sort();
        assert_eq!(names, expected);
        assert!(ranking.unlisted_at_most < 1_000, "{}", ranking.unlisted_at_most);
    }
}
