//! Measures the share of the writes at one time that goes to a single key.
//!
//! The shares of the whole file are not enough. A date takes only its share of a year, but every
//! write of a day goes to one key. So the file is cut into stretches, and the heaviest key of each
//! stretch counts. This works only if the lines are in the order of time.
//!
//! Each stretch is divided into two random halves, because some key is always the heaviest of few
//! writes by chance: one of ten writes takes at least a tenth. The heaviest key is chosen in one
//! half and measured in the other, which is independent of the choice. If the keys do not change
//! with time, the result is then no more than the share of the file's hottest key, except for
//! noise.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use sharding::PARTITION_WRITE_UNITS;

/// The fewest lines of a stretch. A stretch also has at least as many write units as a partition
/// serves in a second.
pub(super) const STRETCH_LINES: u64 = 1_000;
/// A line may be this late and still count as in order, because writers' clocks differ and logs are
/// flushed late.
const TOLERANCE_SECONDS: i64 = 60;
/// One in this many lines may be later.
const LINES_PER_LATE_LINE: u64 = 100;
/// A deviation beyond this number of standard deviations is not noise.
const DEVIATIONS: f64 = 3.0;

/// The share of the heaviest key of a moment, over all moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Momentary {
    pub(super) mean_share: f64,
    /// The standard deviation of the share of a key that takes half of all writes.
    noise_at_half: f64,
}

impl Momentary {
    /// Whether a key with this share of the whole file does not explain the momentary share.
    pub(super) fn exceeds(&self, share: f64) -> bool {
        let deviation = self.noise_at_half * 2.0 * (share * (1.0 - share)).max(0.0).sqrt();
        self.mean_share > share + DEVIATIONS * deviation
    }
}

/// Measures the moments, line by line in the file's order.
#[derive(Default)]
pub(super) struct Moments {
    // The units of both halves, by the hash of the key. A collision within a stretch is very
    // unlikely, and hardly matters.
    stretch: HashMap<u64, [u64; 2]>,
    stretch_lines: u64,
    stretch_units: u64,
    stretch_squares: f64,
    /// The write units of all stretches.
    units: u64,
    /// The sum of the squares of their writes' units.
    squares: f64,
    /// The units of their heaviest keys.
    taken: f64,
    lines: u64,
    late_lines: u64,
    latest: i64,
}

impl Moments {
    pub(super) fn add(&mut self, key: &str, second: i64, units: u64) {
        self.lines += 1;
        self.late_lines += u64::from(second < self.latest - TOLERANCE_SECONDS);
        self.latest = self.latest.max(second);
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        let [one, other] = self.stretch.entry(hash).or_default();
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

    /// Returns the result; `None` if the lines are not in the order of time, or if there are too
    /// few.
    pub(super) fn finish(&self) -> Option<Momentary> {
        let in_order = self.late_lines * LINES_PER_LATE_LINE <= self.lines;
        let units = self.units as f64;
        (in_order && self.units > 0).then(|| Momentary {
            mean_share: self.taken / units,
            noise_at_half: self.squares.sqrt() / units / 2.0,
        })
    }
}

/// The units in the second half of the key that is the heaviest of the first half; the average if
/// several keys are.
fn of_heaviest(keys: impl Iterator<Item = [u64; 2]>) -> f64 {
    let (_, number, taken) =
        keys.fold((0, 0u64, 0), |(most, number, taken), [first, second]| match first.cmp(&most) {
            Ordering::Less => (most, number, taken),
            Ordering::Equal => (most, number + 1, taken + second),
            Ordering::Greater => (first, 1, second),
        });
    taken as f64 / number.max(1) as f64
}

/// Tosses a coin for each line: SplitMix64 of the line's number. It is the same in each run, and
/// has no pattern that a file could share.
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
            let by_day =
                momentary((0..100_000).map(|i| (format!("day {}", i / 10_000), i)), units).unwrap();
            assert!((by_day.mean_share - 1.0).abs() < 1e-9 && by_day.exceeds(0.1), "{by_day:?}");
            let by_device =
                momentary((0..100_000).map(|i| (format!("device {}", i % 500), i)), units).unwrap();
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
    fn lines_that_are_sorted_by_key_have_no_momentary_share() {
        let by_key =
            momentary((0..100_000).map(|i| (format!("device {}", i / 1_000), i % 1_000)), 1);
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
            let (most, all) = (units_of_key.values().max(), units_of_key.values().sum::<u64>());
            let share = *most.unwrap() as f64 / all as f64;
            let found = moments.finish().unwrap();
            prop_assert!(!found.exceeds(share), "{found:?} {share}");
        }
    }
}
