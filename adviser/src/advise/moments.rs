//! How much of what is written at one time goes to a single key.
//!
//! Why not simply the shares of the whole file? A date takes no more than its share of a year, and yet every write of a day goes to one
//! key: the guide calls such keys bad. So the file is cut into stretches, and the heaviest key of each counts. That says something only
//! where the lines are in the order of time.
//!
//! Why halves? Among few writes some key is the heaviest by chance: of ten writes, one takes a tenth at the least. So every stretch is
//! divided at random; the heaviest key of one half is chosen there, and measured in the other, which knows nothing of the choice. Where
//! the keys do not change with time, what is measured is then no more than the share of the file's hottest key, but for noise.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use sharding::internal::PARTITION_WRITE_UNITS;

/// A stretch has as many write units as a partition takes in a second, and no fewer lines than this.
pub(super) const STRETCH_LINES: u64 = 1_000;
/// Writers' clocks differ, and logs are flushed late: a line that is not further back is still in order.
const TOLERANCE_SECONDS: i64 = 60;
/// Of so many lines, one may be further back.
const LINES_PER_STRAY: u64 = 100;
/// What is beyond so many standard deviations is not noise.
const DEVIATIONS: f64 = 3.0;

/// The share of the heaviest key of a moment, over all moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Momentary {
    pub(super) mean_share: f64,
    /// The standard deviation of the share of a key that takes half of all writes.
    noise_at_half: f64,
}

impl Momentary {
    /// Whether that is more than a key that takes such a share of the whole file explains.
    pub(super) fn exceeds(&self, share: f64) -> bool {
        let deviation = self.noise_at_half * 2.0 * (share * (1.0 - share)).max(0.0).sqrt();
        self.mean_share > share + DEVIATIONS * deviation
    }
}

/// Follows the lines in the file's order.
#[derive(Default)]
pub(super) struct Moments {
    // By hash: two keys of one hash in one stretch would be a wonder, and would hardly matter.
    stretch: HashMap<u64, [u64; 2]>,
    stretch_lines: u64,
    stretch_units: u64,
    stretch_squares: f64,
    /// Of all stretches: write units, the sum of their writes' squares, and what the heaviest keys took.
    units: u64,
    squares: f64,
    taken: f64,
    lines: u64,
    strays: u64,
    latest: i64,
}

impl Moments {
    pub(super) fn add(&mut self, key: &str, second: i64, units: u64) {
        self.lines += 1;
        self.strays += u64::from(second < self.latest - TOLERANCE_SECONDS);
        self.latest = self.latest.max(second);
        let halves = self.stretch.entry(BuildHasherDefault::<DefaultHasher>::default().hash_one(key)).or_default();
        let [one, other] = halves;
        *(if coin(self.lines) { other } else { one }) += units;
        self.stretch_lines += 1;
        self.stretch_units += units;
        self.stretch_squares += (units as f64).powi(2);
        if self.stretch_lines >= STRETCH_LINES && self.stretch_units >= PARTITION_WRITE_UNITS {
            let swapped = self.stretch.values().map(|[first, second]| [*second, *first]);
            self.taken += of_heaviest(self.stretch.values().copied()) + of_heaviest(swapped);
            self.units += std::mem::take(&mut self.stretch_units);
            self.squares += std::mem::take(&mut self.stretch_squares);
            self.stretch_lines = 0;
            self.stretch.clear();
        }
    }

    /// `None` where the lines are not in the order of time, or are too few.
    pub(super) fn finish(&self) -> Option<Momentary> {
        let in_order = self.strays * LINES_PER_STRAY <= self.lines;
        let units = self.units as f64;
        (in_order && self.units > 0)
            .then(|| Momentary { mean_share: self.taken / units, noise_at_half: self.squares.sqrt() / units / 2.0 })
    }
}

/// What the key that is the heaviest of the first half takes of the second; where several are, what they take on average.
fn of_heaviest(keys: impl Iterator<Item = [u64; 2]>) -> f64 {
    let (_, number, taken) = keys.fold((0, 0u64, 0), |(most, number, taken), [first, second]| match first.cmp(&most) {
        std::cmp::Ordering::Less => (most, number, taken),
        std::cmp::Ordering::Equal => (most, number + 1, taken + second),
        std::cmp::Ordering::Greater => (first, 1, second),
    });
    taken as f64 / number.max(1) as f64
}

/// A coin for each line, the same in each run and without a pattern that a file could share: SplitMix64 of the line's number.
fn coin(line: u64) -> bool {
    let mut mixed = line.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ mixed >> 31) >> 63 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    fn momentary(writes: impl Iterator<Item = (String, i64)>, units: u64) -> Option<Momentary> {
        let mut moments = Moments::default();
        for (key, second) in writes {
            moments.add(&key, second, units);
        }
        moments.finish()
    }

    #[test]
    fn a_date_takes_every_write_of_its_day() {
        for units in [1, 4, 10, 100, 400] {
            let by_day = momentary((0..100_000).map(|i| (format!("day {}", i / 10_000), i)), units).unwrap();
            assert!((by_day.mean_share - 1.0).abs() < 1e-9 && by_day.exceeds(0.1), "{by_day:?}");
            let by_device = momentary((0..100_000).map(|i| (format!("device {}", i % 500), i)), units).unwrap();
            assert!(!by_device.exceeds(0.002), "{by_device:?}");
        }
    }

    #[test]
    fn two_writers_in_turn_do_not_hide_a_date() {
        let turns = |i: i64| (format!("day {} {}", i / 10_000, i % 2), i);
        let found = momentary((0..100_000).map(turns), 1).unwrap();
        assert!((found.mean_share - 0.5).abs() < 0.05 && found.exceeds(0.05), "{found:?}");
    }

    #[test]
    fn lines_that_are_sorted_by_key_say_nothing() {
        let by_key = momentary((0..100_000).map(|i| (format!("device {}", i / 1_000), i % 1_000)), 1);
        assert_eq!(by_key, None);
        assert_eq!(momentary((0..999).map(|i| ("few".to_owned(), i)), 400), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn keys_that_do_not_change_with_time_are_not_hot_by_turns(
            keys in 1u32..2_000, hot in 0.0f64..0.5, large in 1u64..400, seed in any::<u64>(),
        ) {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut moments = Moments::default();
            let mut units_of_key = HashMap::<u32, u64>::new();
            for second in 0..20_000 {
                let key = if rng.random_bool(hot) { 0 } else { rng.random_range(0..keys) };
                let units = if rng.random_bool(0.1) { large } else { 1 };
                *units_of_key.entry(key).or_default() += units;
                moments.add(&key.to_string(), second, units);
            }
            let share = *units_of_key.values().max().unwrap() as f64 / units_of_key.values().sum::<u64>() as f64;
            let found = moments.finish().unwrap();
            prop_assert!(!found.exceeds(share), "{found:?} {share}");
        }
    }
}
