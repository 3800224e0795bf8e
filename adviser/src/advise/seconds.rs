//! Counts write units by key and second in bounded memory, whatever the order of the lines.
//!
//! If the memory is full, the smaller half of the old counts is dropped, and only peaks are kept.
//! The peaks stay exact unless a later line belongs to a dropped second, which does not happen in a
//! file in the order of time. Otherwise the result includes the most that the dropped counts can
//! have added to a peak.

use std::collections::HashMap;

use super::series::Series;
use sharding::internal::PARTITION_WRITE_UNITS;

/// The counts of seconds this recent still grow in a file that is in the order of time.
const YOUNG_SECONDS: i64 = 60;

/// The number of a key among the analyzed keys.
pub(super) type KeyNumber = u32;

/// Consecutive seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) from: i64,
    pub(super) seconds: u64,
}

/// The rate of one key over time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct KeyRate {
    /// The write units of the busiest second; 0 if there is none.
    pub(super) peak_units: u64,
    /// The first of the busiest seconds.
    pub(super) peak_at: i64,
    /// Every run of seconds in which the key exceeded a partition's write units.
    pub(super) over: Vec<Run>,
}

/// The rates of all keys over time.
#[derive(Debug)]
pub(super) struct Rates {
    pub(super) keys: Vec<KeyRate>,
    /// The peaks may be higher by up to this number of write units: 0 if they are exact.
    pub(super) at_most_more: u64,
    pub(super) series: Series,
}

/// Counts the write units of each write.
pub(super) struct SecondCounts {
    room: usize,
    full_at: usize,
    counts: HashMap<(i64, KeyNumber), u64>,
    keys: Vec<KeyRate>,
    series: Series,
    latest: i64,
    /// The counts of seconds after this one are complete.
    forgotten_until: i64,
    forgotten_units: u64,
    is_late: bool,
}

impl SecondCounts {
    /// Creates the counts for keys 0 to `keys` (exclusive). The first `drawn` keys get a series.
    pub(super) fn new(keys: usize, drawn: usize, room: usize) -> Self {
        Self {
            room,
            full_at: room,
            counts: HashMap::new(),
            keys: vec![KeyRate::default(); keys],
            series: Series::new(drawn),
            latest: i64::MIN,
            forgotten_until: i64::MIN,
            forgotten_units: 0,
            is_late: false,
        }
    }

    pub(super) fn add(&mut self, key: KeyNumber, second: i64, units: u64) {
        self.latest = self.latest.max(second);
        if let Some(count) = self.counts.get_mut(&(second, key)) {
            *count += units;
            return;
        }
        self.is_late |= second <= self.forgotten_until;
        if self.counts.len() >= self.full_at {
            self.forget();
        }
        self.counts.insert((second, key), units);
    }

    fn forget(&mut self) {
        let old = self.latest.saturating_sub(YOUNG_SECONDS);
        // Counts above the limit are kept. There is at most one for every 1,000 write units of the
        // file.
        let small = |second: i64, units: u64, before: i64| {
            second < before && units <= PARTITION_WRITE_UNITS
        };
        let of_age =
            self.counts.iter().filter(|((second, _), units)| small(*second, **units, old)).count();
        let before = if of_age * 4 >= self.counts.len() { old } else { i64::MAX };
        let candidates =
            self.counts.iter().filter(|((second, _), units)| small(*second, **units, before));
        let mut sizes: Vec<u64> = candidates.map(|(_, units)| *units).collect();
        if !sizes.is_empty() {
            let middle = sizes.len() / 2;
            let (_, median, _) = sizes.select_nth_unstable(middle);
            let median = *median;
            let (keys, series) = (&mut self.keys, &mut self.series);
            let mut until = self.forgotten_until;
            self.counts.retain(|(second, key), units| {
                let goes = small(*second, *units, before) && *units <= median;
                if goes {
                    until = until.max(*second);
                    raise(keys, series, *key, *second, *units);
                }
                !goes
            });
            self.forgotten_until = until;
            self.forgotten_units += median;
        }
        // The limit rises, so that counts that cannot be dropped are not scanned again for every
        // line.
        self.full_at = self.room.max(self.counts.len() + self.counts.len() / 4 + 1);
    }

    pub(super) fn finish(mut self) -> Rates {
        let mut counts: Vec<((i64, KeyNumber), u64)> =
            std::mem::take(&mut self.counts).into_iter().collect();
        counts.sort_unstable();
        for ((second, key), units) in counts {
            raise(&mut self.keys, &mut self.series, key, second, units);
            if units > PARTITION_WRITE_UNITS
                && let Some(rate) = self.keys.get_mut(key as usize)
            {
                match rate.over.last_mut() {
                    Some(run) if second - run.from == run.seconds as i64 => run.seconds += 1,
                    _ => rate.over.push(Run { from: second, seconds: 1 }),
                }
            }
        }
        let at_most_more = if self.is_late { self.forgotten_units } else { 0 };
        Rates { keys: self.keys, at_most_more, series: self.series }
    }
}

fn raise(keys: &mut [KeyRate], series: &mut Series, key: KeyNumber, second: i64, units: u64) {
    series.raise(key as usize, second, units);
    if let Some(rate) = keys.get_mut(key as usize)
        && (units > rate.peak_units || (units == rate.peak_units && second < rate.peak_at))
    {
        (rate.peak_units, rate.peak_at) = (units, second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn peaks(writes: &[(u32, i64, u64)]) -> Vec<u64> {
        let mut counts: BTreeMap<(u32, i64), u64> = BTreeMap::new();
        for (key, second, units) in writes {
            *counts.entry((*key, *second)).or_default() += units;
        }
        (0..4)
            .map(|key| {
                counts
                    .range((key, i64::MIN)..=(key, i64::MAX))
                    .map(|(_, units)| *units)
                    .max()
                    .unwrap_or(0)
            })
            .collect()
    }

    fn rates(writes: &[(u32, i64, u64)], room: usize) -> Rates {
        let mut counts = SecondCounts::new(4, 1, room);
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
            prop_assert_eq!(rates.at_most_more, 0);
            prop_assert_eq!(
                rates.keys.iter().map(|rate| rate.peak_units).collect::<Vec<_>>(),
                peaks(&writes),
            );
        }

        #[test]
        fn without_room_the_true_peak_is_within_the_reported_bounds(
            writes in writes(), room in 1usize..40,
        ) {
            let rates = rates(&writes, room);
            for (rate, truth) in rates.keys.iter().zip(peaks(&writes)) {
                let reported = rate.peak_units..=rate.peak_units + rates.at_most_more;
                prop_assert!(reported.contains(&truth), "{truth} in {reported:?}");
            }
        }

        #[test]
        fn in_the_order_of_time_a_small_room_suffices(mut writes in writes(), step in 1i64..40) {
            writes.sort_by_key(|(_, second, _)| *second);
            let spread: Vec<_> =
                writes.iter().map(|(key, second, units)| (*key, second * step, *units)).collect();
            // The room is four times the number of recent counts.
            let rates = rates(&spread, 1_000);
            prop_assert_eq!(rates.at_most_more, 0);
            prop_assert_eq!(
                rates.keys.iter().map(|rate| rate.peak_units).collect::<Vec<_>>(),
                peaks(&spread),
            );
        }
    }

    #[test]
    fn a_long_file_in_order_is_exact_in_little_room() {
        let mut counts = SecondCounts::new(1, 1, 100);
        for second in 0..10_000 {
            counts.add(0, second, if second == 1_234 { 900 } else { 7 });
            assert!(counts.counts.len() <= 130, "{}", counts.counts.len());
        }
        let rates = counts.finish();
        assert_eq!(
            (rates.keys[0].peak_units, rates.keys[0].peak_at, rates.at_most_more),
            (900, 1_234, 0)
        );
    }

    #[test]
    fn runs_above_the_limit_are_separate() {
        let rows = [
            (0, 10, 1_001),
            (0, 11, 2_000),
            (0, 12, 1_000),
            (0, 13, 1_500),
            (1, 12, 9_000),
            (0, 11, 1),
        ];
        let rates = rates(&rows, 100);
        assert_eq!(
            rates.keys[0].over,
            [Run { from: 10, seconds: 2 }, Run { from: 13, seconds: 1 }]
        );
        assert_eq!((rates.keys[0].peak_units, rates.keys[0].peak_at), (2_001, 11));
        assert_eq!(rates.keys[1].over, [Run { from: 12, seconds: 1 }]);
        assert!(rates.keys[2].over.is_empty());
    }
}
