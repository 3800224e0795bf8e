//! Counts write units by key and second in bounded memory.
//!
//! If the memory is full, the counts of old seconds are settled: their peaks and overloads are kept,
//! and they no longer grow. So the results are exact if the lines are in the order of time, or if all
//! counts fit. Otherwise peaks may be too low, and the result says so. The peaks over time, for a
//! picture, are in a bounded number of buckets, whatever the length of the file.

use std::collections::HashMap;

use sharding::PARTITION_WRITE_UNITS;

/// The counts of seconds this recent still grow in a file that is in the order of time.
const YOUNG_SECONDS: i64 = 60;
/// The most buckets. The picture could not show more of them.
const BUCKETS: u64 = 480;

pub(super) type KeyNumber = u32;

/// The first of the busiest seconds; 0 write units if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Peak {
    pub(crate) write_units_per_second: u64,
    pub(crate) at: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct KeyRate {
    pub(super) peak: Peak,
    /// The seconds in which the key exceeded a partition's write units.
    pub(super) seconds_over: u64,
}

#[derive(Debug)]
pub(super) struct Rates {
    pub(super) keys: Vec<KeyRate>,
    /// Whether the peaks are exact. Otherwise they may be higher.
    pub(super) are_exact: bool,
    pub(super) series: Series,
}

pub(super) struct SecondCounts {
    room: usize,
    counts: HashMap<(i64, KeyNumber), u64>,
    rates: Rates,
    latest: i64,
    /// The counts of seconds up to this one are settled.
    settled_until: i64,
}

impl SecondCounts {
    /// Creates the counts for keys 0 to `keys` (exclusive).
    pub(super) fn new(keys: usize, series: Series, room: usize) -> Self {
        let rates = Rates { keys: vec![KeyRate::default(); keys], are_exact: true, series };
        Self { room, counts: HashMap::new(), rates, latest: i64::MIN, settled_until: i64::MIN }
    }

    pub(super) fn add(&mut self, key: KeyNumber, second: i64, units: u64) {
        self.latest = self.latest.max(second);
        self.rates.are_exact &= second > self.settled_until;
        *self.counts.entry((second, key)).or_default() += units;
        if self.counts.len() > self.room {
            let old = self.latest.saturating_sub(YOUNG_SECONDS);
            let of_age = self.counts.keys().filter(|(second, _)| *second < old).count();
            // If few are old, settling only these would repeat soon.
            self.settle(if of_age * 4 >= self.counts.len() { old } else { i64::MAX });
        }
    }

    fn settle(&mut self, before: i64) {
        let mut old: Vec<((i64, KeyNumber), u64)> =
            self.counts.extract_if(|(second, _), _| *second < before).collect();
        old.sort_unstable();
        for ((second, key), units) in old {
            self.settled_until = self.settled_until.max(second);
            self.rates.record(second, key, units);
        }
    }

    pub(super) fn finish(mut self) -> Rates {
        self.settle(i64::MAX);
        self.rates
    }
}

impl Rates {
    fn record(&mut self, second: i64, key: KeyNumber, units: u64) {
        self.series.raise(key as usize, second, units);
        let Some(rate) = self.keys.get_mut(key as usize) else { return };
        let Peak { write_units_per_second: most, at } = rate.peak;
        if units > most || (units == most && second < at) {
            rate.peak = Peak { write_units_per_second: units, at: second };
        }
        rate.seconds_over += u64::from(units > PARTITION_WRITE_UNITS);
    }
}

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

    /// Raises the peak of a second's bucket to a key's write units in it. Ignores a key without a
    /// series.
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

    fn peaks(writes: &[(u32, i64, u64)]) -> [u64; 4] {
        let mut counts: HashMap<(u32, i64), u64> = HashMap::new();
        let mut peaks = [0; 4];
        for (key, second, units) in writes {
            let count = counts.entry((*key, *second)).or_default();
            *count += units;
            peaks[*key as usize] = peaks[*key as usize].max(*count);
        }
        peaks
    }

    fn rates(writes: &[(u32, i64, u64)], room: usize) -> Rates {
        let mut counts = SecondCounts::new(4, Series::new(1, (0, 300)), room);
        for (key, second, units) in writes {
            counts.add(*key, *second, *units);
        }
        counts.finish()
    }

    fn writes() -> impl Strategy<Value = Vec<(u32, i64, u64)>> {
        proptest::collection::vec((0u32..4, 0i64..300, 1u64..600), 1..400)
    }

    proptest! {
        #[test]
        fn with_room_for_all_peaks_are_exact(writes in writes()) {
            let rates = rates(&writes, 1_200);
            prop_assert!(rates.are_exact);
            let found = rates.keys.iter().map(|rate| rate.peak.write_units_per_second);
            prop_assert_eq!(found.collect::<Vec<_>>(), peaks(&writes));
        }

        #[test]
        fn without_room_peaks_are_too_low_at_most_and_it_says_so(
            writes in writes(), room in 1usize..40,
        ) {
            let rates = rates(&writes, room);
            for (rate, truth) in rates.keys.iter().zip(peaks(&writes)) {
                let found = rate.peak.write_units_per_second;
                prop_assert!(found == truth || found < truth && !rates.are_exact);
            }
        }

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

    #[test]
    fn a_long_file_in_order_is_exact_in_little_room() {
        let mut counts = SecondCounts::new(1, Series::new(1, (0, 10_000)), 100);
        for second in 0..10_000 {
            counts.add(0, second, if second == 1_234 { 900 } else { 7 });
            assert!(counts.counts.len() <= 100, "{}", counts.counts.len());
        }
        let rates = counts.finish();
        let peak = Peak { write_units_per_second: 900, at: 1_234 };
        assert_eq!((rates.keys[0].peak, rates.are_exact), (peak, true));
    }

    #[test]
    fn seconds_above_the_limit_are_counted() {
        let of_first = [(10, 1_001), (11, 2_000), (12, 1_000), (13, 1_500), (11, 1)];
        let mut rows = of_first.map(|(second, units)| (0, second, units)).to_vec();
        rows.push((1, 12, 9_000));
        let rates = rates(&rows, 100);
        assert_eq!([0, 1, 2].map(|key| rates.keys[key].seconds_over), [3, 1, 0]);
        assert_eq!(rates.keys[0].peak, Peak { write_units_per_second: 2_001, at: 11 });
    }
}
