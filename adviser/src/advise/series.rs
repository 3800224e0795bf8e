//! Peaks over time for a picture, in a bounded number of buckets, whatever the length of the file.

use std::collections::BTreeMap;

/// The most buckets. The picture could not show more of them.
const BUCKETS: i64 = 480;

/// The busiest second of each bucket of time, for several keys.
#[derive(Debug)]
pub(super) struct Series {
    width: i64,
    first: i64,
    last: i64,
    peaks: Vec<BTreeMap<i64, u64>>,
}

impl Series {
    pub(super) fn new(keys: usize) -> Self {
        Self { width: 1, first: i64::MAX, last: i64::MIN, peaks: vec![BTreeMap::new(); keys] }
    }

    /// Adds the write units of a key in a second. Ignores a key without a series.
    pub(super) fn raise(&mut self, key: usize, second: i64, units: u64) {
        if key >= self.peaks.len() {
            return;
        }
        self.first = self.first.min(second);
        self.last = self.last.max(second);
        while self.last.div_euclid(self.width) - self.first.div_euclid(self.width) >= BUCKETS {
            self.width *= 2;
            for peaks in &mut self.peaks {
                let mut wider: BTreeMap<i64, u64> = BTreeMap::new();
                for (bucket, units) in std::mem::take(peaks) {
                    let peak = wider.entry(bucket.div_euclid(2)).or_default();
                    *peak = units.max(*peak);
                }
                *peaks = wider;
            }
        }
        if let Some(peaks) = self.peaks.get_mut(key) {
            let peak = peaks.entry(second.div_euclid(self.width)).or_default();
            *peak = units.max(*peak);
        }
    }

    /// The length of a bucket in seconds.
    pub(super) fn bucket_seconds(&self) -> u64 {
        self.width.unsigned_abs()
    }

    /// Returns the first second of each bucket, and the write units of its busiest second.
    pub(super) fn of(&self, key: usize) -> Vec<(i64, u64)> {
        let Some(peaks) = self.peaks.get(key).filter(|_| self.first <= self.last) else {
            return Vec::new();
        };
        let buckets = self.first.div_euclid(self.width)..=self.last.div_euclid(self.width);
        buckets
            .map(|bucket| (bucket * self.width, peaks.get(&bucket).copied().unwrap_or(0)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bucket_is_lost_and_no_peak(
            points in proptest::collection::vec((0i64..10_000_000, 1u64..1_000), 1..100),
        ) {
            let mut series = Series::new(1);
            for (second, units) in &points {
                series.raise(0, *second, *units);
                series.raise(1, *second, 5_000);
            }
            let drawn = series.of(0);
            prop_assert!(drawn.len() <= BUCKETS as usize);
            let width = series.bucket_seconds() as i64;
            for (from, peak) in drawn {
                let truth = points
                    .iter()
                    .filter(|(second, _)| (from..from + width).contains(second))
                    .map(|(_, units)| *units)
                    .max();
                prop_assert_eq!(peak, truth.unwrap_or(0));
            }
        }
    }
}
