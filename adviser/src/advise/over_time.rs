//! The results over time: peaks, keys that exceed a partition, and series for the picture.

use std::cmp::Reverse;

use sharding::PARTITION_WRITE_UNITS;

use super::counts::Count;
use super::seconds::{KeyRate, Peak, Rates};
use crate::plan::unlimited_shards;

const REPORTED_SERIES: usize = 5;

#[derive(Debug)]
pub(crate) struct OverTime {
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Write units per second, on average from the first to the last second.
    pub(crate) mean_write_units_per_second: f64,
    pub(crate) peak: Peak,
    /// Whether the peaks are exact. They may be higher if the file is long and its lines are not in
    /// the order of time.
    pub(crate) peaks_are_exact: bool,
    /// Highest peak first.
    pub(crate) overloads: Vec<Overload>,
    pub(crate) bucket_seconds: u64,
    /// The series of all keys together, then those of the five keys with the highest peaks among
    /// the 200 hottest.
    pub(crate) series: Vec<RateSeries>,
}

/// A key that took more write units in a second than a partition serves.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) partition_key: String,
    pub(crate) peak: Peak,
    pub(crate) seconds: u64,
    /// The fewest shards that can take the peak: evenly loaded, and each on its own partition.
    pub(crate) fewest_shards: u64,
    /// Shards that the product's policy gives at this peak on an on-demand table that has taken it
    /// before, which has partitions for twice as much. Shards can share partitions, so it gives
    /// more than the fewest.
    pub(crate) shards_by_policy: u64,
}

/// The busiest second of each bucket of time.
#[derive(Debug)]
pub(crate) struct RateSeries {
    /// The key; absent for all keys together.
    pub(crate) partition_key: Option<String>,
    /// The first second of each bucket in epoch seconds, and the write units of the bucket's
    /// busiest second.
    pub(crate) peaks: Vec<(i64, u64)>,
}

impl RateSeries {
    pub(crate) fn highest(&self) -> u64 {
        self.peaks.iter().map(|(_, units)| *units).max().unwrap_or(0)
    }
}

/// Summarizes the rates of all keys (the first) and of each of `keys`.
pub(super) fn over_time(
    rates: &Rates,
    (from, to): (i64, i64),
    units: u64,
    keys: &[(String, Count)],
) -> OverTime {
    let over = keys.iter().zip(rates.keys.iter().skip(1)).filter(|(_, rate)| rate.seconds_over > 0);
    let mut overloads: Vec<Overload> = over.map(|((key, _), rate)| overload(key, rate)).collect();
    overloads.sort_by_cached_key(|overload| {
        (Reverse(overload.peak.write_units_per_second), overload.partition_key.clone())
    });
    let mut series: Vec<RateSeries> = (1..)
        .zip(keys)
        .map(|(at, (key, _))| RateSeries {
            partition_key: Some(key.clone()),
            peaks: rates.series.of(at),
        })
        .take_while(|series| !series.peaks.is_empty())
        .collect();
    series.sort_by_key(|series| Reverse(series.highest()));
    series.truncate(REPORTED_SERIES);
    series.insert(0, RateSeries { partition_key: None, peaks: rates.series.of(0) });
    OverTime {
        from,
        to,
        mean_write_units_per_second: units as f64 / (to - from + 1).max(1) as f64,
        peak: rates.keys[0].peak,
        peaks_are_exact: rates.are_exact,
        overloads,
        bucket_seconds: rates.series.bucket_seconds,
        series,
    }
}

pub(super) fn overload(key: &str, rate: &KeyRate) -> Overload {
    let units = rate.peak.write_units_per_second;
    Overload {
        partition_key: key.to_owned(),
        peak: rate.peak,
        seconds: rate.seconds_over,
        fewest_shards: units.div_ceil(PARTITION_WRITE_UNITS).max(1),
        shards_by_policy: unlimited_shards(units).into(),
    }
}
