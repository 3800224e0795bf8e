//! Peaks over time for a picture, in a bounded number of buckets, whatever the length of the file.

/// The most buckets. The picture could not show more of them.
const BUCKETS: u64 = 480;

/// The busiest second of each bucket of time, for several keys.
#[derive(Debug)]
pub(super) struct Series {
    first: i64,
    pub(super) bucket_seconds: u64,
    peaks: Vec<Vec<u64>>,
}

impl Series {
    /// Creates the series of this number of keys, from the first to the last second of the file.
    pub(super) fn new(keys: usize, (first, last): (i64, i64)) -> Self {
        let seconds = last.abs_diff(first) + 1;
        let bucket_seconds = seconds.div_ceil(BUCKETS);
        let buckets = seconds.div_ceil(bucket_seconds) as usize;
        Self { first, bucket_seconds, peaks: vec![vec![0; buckets]; keys] }
    }

    /// Adds the write units of a key in a second. Ignores a key without a series.
    pub(super) fn raise(&mut self, key: usize, second: i64, units: u64) {
        let bucket = second.abs_diff(self.first) / self.bucket_seconds;
        if let Some(peak) = self.peaks.get_mut(key).and_then(|peaks| peaks.get_mut(bucket as usize))
        {
            *peak = units.max(*peak);
        }
    }

    /// Returns the first second of each bucket, and the write units of its busiest second.
    pub(super) fn of(&self, key: usize) -> Vec<(i64, u64)> {
        let first = (self.first..).step_by(self.bucket_seconds as usize);
        first.zip(self.peaks.get(key).into_iter().flatten().copied()).collect()
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
            let seconds = || points.iter().map(|(second, _)| *second);
            let mut series = Series::new(1, (seconds().min().unwrap(), seconds().max().unwrap()));
            for (second, units) in &points {
                series.raise(0, *second, *units);
                series.raise(1, *second, 5_000);
            }
            let drawn = series.of(0);
            prop_assert!(drawn.len() <= BUCKETS as usize);
            for (from, peak) in drawn {
                let bucket = from..from + series.bucket_seconds as i64;
                let within = points.iter().filter(|(second, _)| bucket.contains(second));
                prop_assert_eq!(peak, within.map(|(_, units)| *units).max().unwrap_or(0));
            }
        }
    }
}
