//! How much of what is written at one time goes to a single key.
//!
//! Why not simply the shares of the whole file? A date takes no more than its share of a year, and yet every write of a day goes to one
//! key: the guide calls such keys bad. So the file is cut into stretches of as many write units as a partition takes in a second, and
//! the heaviest key of each stretch is what counts. That says something only where the lines are in the order of time.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::capacity::PARTITION_WRITE_UNITS;

/// Writers' clocks differ, and logs are flushed late: a line that is not further back is still in order.
const TOLERANCE_SECONDS: i64 = 60;
/// Of so many lines, one may be further back.
const LINES_PER_STRAY: u64 = 100;

/// The share of the heaviest key of a moment, over all moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Momentary {
    pub(super) mean_share: f64,
}

/// Follows the lines in the file's order.
#[derive(Default)]
pub(super) struct Moments {
    // By hash: two keys of one hash in one stretch would be a wonder, and would hardly matter.
    stretch: HashMap<u64, u64>,
    units: u64,
    stretches: u64,
    shares: f64,
    lines: u64,
    strays: u64,
    latest: i64,
}

impl Moments {
    pub(super) fn add(&mut self, key: &str, second: i64, units: u64) {
        self.lines += 1;
        self.strays += u64::from(second < self.latest - TOLERANCE_SECONDS);
        self.latest = self.latest.max(second);
        *self.stretch.entry(BuildHasherDefault::<DefaultHasher>::default().hash_one(key)).or_default() += units;
        self.units += units;
        if self.units >= PARTITION_WRITE_UNITS {
            let heaviest = self.stretch.values().max().copied().unwrap_or(0);
            self.shares += heaviest as f64 / self.units as f64;
            self.stretches += 1;
            self.units = 0;
            self.stretch.clear();
        }
    }

    /// `None` where the lines are not in the order of time, or are too few.
    pub(super) fn finish(&self) -> Option<Momentary> {
        let in_order = self.strays * LINES_PER_STRAY <= self.lines;
        (in_order && self.stretches > 0).then(|| Momentary { mean_share: self.shares / self.stretches as f64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(writes: impl Iterator<Item = (String, i64)>) -> Option<f64> {
        let mut moments = Moments::default();
        for (key, second) in writes {
            moments.add(&key, second, 1);
        }
        moments.finish().map(|momentary| momentary.mean_share)
    }

    #[test]
    fn a_date_takes_every_write_of_its_day() {
        let by_day = share((0..100_000).map(|i| (format!("day {}", i / 10_000), i)));
        assert_eq!(by_day, Some(1.0));
        let by_device = share((0..100_000).map(|i| (format!("device {}", i % 500), i)));
        assert!(by_device.is_some_and(|share| (share - 0.002).abs() < 1e-9), "{by_device:?}");
    }

    #[test]
    fn lines_that_are_sorted_by_key_say_nothing() {
        let by_key = share((0..100_000).map(|i| (format!("device {}", i / 1_000), i % 1_000)));
        assert_eq!(by_key, None);
        assert_eq!(share((0..999).map(|i| ("few".to_owned(), i))), None);
    }
}
