//! What is found, as one object: the JSON answer, and what the text and the picture are made from.

use serde::Serialize;
use sharding::internal::PARTITION_WRITE_UNITS;

use super::capacity::{fewest_shards, shards_by_policy};
use super::counts::{Count, Distinct, sort};
use super::evenness::Evenness;
use super::passes::{CloseLook, Totals};
use super::rows::FileFormat;
use super::seconds::{KeyRate, Rates};
use super::source::Source;
use super::time::rfc3339;
use super::verdict::{Facts, Verdict, verdict};

/// So many of the hottest keys are told.
const TOLD: usize = 10;
/// Of so many keys, the rates over time are told.
const TOLD_SERIES: usize = 5;

/// Everything that is found in a file.
#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    /// The file.
    pub file: String,
    /// What it is made of.
    pub format: FileFormat,
    /// Items, one on each line.
    pub items: u64,
    /// Write units that they take: one for each started KB of an item.
    pub write_units: u64,
    /// The judgement.
    pub verdict: Verdict,
    /// How many partition keys there are, and how even.
    pub partition_keys: PartitionKeys,
    /// How much the table can take until a key is in the way.
    pub breaking_rate: BreakingRate,
    /// The ten keys with the most write units, hottest first.
    pub hottest_keys: Vec<HotKey>,
    /// Where times are given.
    pub over_time: Option<OverTime>,
    /// Of the hottest keys, hottest first; empty where no sort key is given.
    pub spreads: Vec<KeySpread>,
}

/// How many partition keys there are, and how even. Shares are of write units, 0 to 1.
#[derive(Debug, Clone, Serialize)]
pub struct PartitionKeys {
    /// How many; an estimate unless `is_exact`.
    pub distinct: u64,
    /// Whether all keys were counted one by one.
    pub is_exact: bool,
    /// With 95 % confidence there are at least so many.
    pub distinct_at_least: u64,
    /// With 95 % confidence there are at most so many.
    pub distinct_at_most: u64,
    /// Of the hottest key.
    pub hottest_share: f64,
    /// Of the ten hottest together.
    pub ten_hottest_share: f64,
    /// Of the hottest key of a moment (a stretch of 1,000 lines and no fewer write units), on average over all moments: it is chosen in a
    /// random half of them and measured in the other. Absent without times, where the lines are not in their order, and where they are too
    /// few.
    pub momentary_share: Option<f64>,
    /// A key that is none of those looked at takes no more write units than this: 0 where all were.
    pub others_at_most_write_units: u64,
}

/// The rate at which the hottest key exceeds its partition.
#[derive(Debug, Clone, Serialize)]
pub struct BreakingRate {
    /// Write units a second of the whole table.
    pub write_units_per_second: u64,
    /// The key that is in the way; absent where each moment's hottest one takes more than any takes of the whole file.
    pub partition_key: Option<String>,
}

/// A hot key.
#[derive(Debug, Clone, Serialize)]
pub struct HotKey {
    /// The key.
    pub partition_key: String,
    /// Items written.
    pub items: u64,
    /// Write units that they took.
    pub write_units: u64,
    /// Of all write units, 0 to 1.
    pub share: f64,
    /// Its busiest second; absent without times.
    pub peak: Option<Peak>,
}

/// The busiest second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// Write units in that second.
    pub write_units_per_second: u64,
    /// Epoch seconds.
    pub at: i64,
}

/// What is found over time.
#[derive(Debug, Clone, Serialize)]
pub struct OverTime {
    /// The first second, of the epoch.
    pub from: i64,
    /// The last second, of the epoch.
    pub to: i64,
    /// Write units a second on average from the first to the last.
    pub mean_write_units_per_second: f64,
    /// The busiest second of all keys together.
    pub peak: Peak,
    /// Peaks may be higher by so much: 0 unless the file is long and not in the order of time.
    pub peaks_at_most_more: u64,
    /// So many keys were looked at, the hottest of all.
    pub followed_keys: u64,
    /// Keys that took more in a second than a partition gives, by peak.
    pub overloads: Vec<Overload>,
    /// Seconds for which each number of the series stands.
    pub bucket_seconds: u64,
    /// First that of all keys together, then those of the five keys with the highest peaks among the 200 hottest.
    pub series: Vec<RateSeries>,
}

/// A key that took more in a second than a partition gives.
#[derive(Debug, Clone, Serialize)]
pub struct Overload {
    /// The key.
    pub partition_key: String,
    /// Its busiest second.
    pub peak: Peak,
    /// The first second above the limit, of the epoch.
    pub first_at: i64,
    /// Seconds above the limit.
    pub seconds: u64,
    /// The longest run of seconds above the limit without a gap.
    pub longest_run_seconds: u64,
    /// Where that run began, in epoch seconds.
    pub longest_run_at: i64,
    /// Shards that take the peak if they are spread quite evenly, each on a partition of its own.
    pub fewest_shards: u64,
    /// Shards that the product's policy gives at this peak on an on-demand table that has taken it before, which has
    /// partitions for twice as much. Shards meet on partitions, so it gives more than the fewest.
    pub shards_by_policy: u64,
}

/// The busiest second of each bucket of time.
#[derive(Debug, Clone, Serialize)]
pub struct RateSeries {
    /// The key; absent for all keys together.
    pub partition_key: Option<String>,
    /// The first second of each bucket, of the epoch, and the write units of the busiest second in it.
    pub peaks: Vec<(i64, u64)>,
}

/// How placements spread one key's writes.
#[derive(Debug, Clone, Serialize)]
pub struct KeySpread {
    /// The key.
    pub partition_key: String,
    /// Writes that were spread.
    pub writes: u64,
    /// By number of shards and placement.
    pub placements: Vec<PlacementSpread>,
}

/// How one placement spreads one key's writes over one number of shards.
#[derive(Debug, Clone, Serialize)]
pub struct PlacementSpread {
    /// How many shards.
    pub shards: u32,
    /// The placement, as SHARD_PLACEMENT names it.
    pub placement: &'static str,
    /// How even that is.
    #[serde(flatten)]
    pub evenness: Evenness,
}

/// Puts together what both passes found.
pub(super) fn advice(source: &Source, totals: &Totals, close: CloseLook) -> Advice {
    let CloseLook { keys, rates, spreads } = close;
    let mut ranked = keys.clone();
    sort(&mut ranked);
    let position = |key: &str| keys.iter().position(|(known, _)| known == key);
    let rate = |key: &str| rates.as_ref()?.keys.get(position(key)? + 1);
    let share = |count: Count| count.units as f64 / totals.units.max(1) as f64;
    let hottest_keys: Vec<HotKey> = ranked
        .iter()
        .take(TOLD)
        .map(|(key, count)| HotKey {
            partition_key: key.clone(),
            items: count.items,
            write_units: count.units,
            share: share(*count),
            peak: rate(key).map(peak),
        })
        .collect();
    let spreads = hottest_keys
        .iter()
        .filter_map(|key| {
            let spread = spreads.get(position(&key.partition_key)?)?.finish();
            let placements = spread.into_iter().map(|(shards, placement, evenness)| PlacementSpread {
                shards: shards.get(),
                placement,
                evenness,
            });
            Some(KeySpread {
                partition_key: key.partition_key.clone(),
                writes: key.items,
                placements: placements.collect(),
            })
        })
        .collect();
    let over_time = rates.as_ref().zip(totals.span).map(|(rates, span)| over_time(rates, span, totals.units, &keys));
    let (distinct, at_least, at_most, is_exact) = match totals.ranking.distinct {
        Distinct::Exactly(distinct) => (distinct, distinct, distinct, true),
        Distinct::About { estimate, lower, upper } => (estimate, lower, upper, false),
    };
    let partition_keys = PartitionKeys {
        distinct,
        is_exact,
        distinct_at_least: at_least,
        distinct_at_most: at_most,
        hottest_share: hottest_keys.first().map_or(0.0, |key| key.share),
        ten_hottest_share: hottest_keys.iter().map(|key| key.share).sum(),
        momentary_share: totals.momentary.map(|momentary| momentary.mean_share),
        others_at_most_write_units: totals.ranking.unlisted_at_most,
    };
    let hottest = hottest_keys.first().map_or("", |key| key.partition_key.as_str());
    let followed = rates.iter().flat_map(|rates| rates.keys.iter().skip(1));
    let facts = Facts {
        items: totals.items,
        distinct,
        hottest,
        hottest_share: partition_keys.hottest_share,
        next_share: hottest_keys.get(1).map_or(0.0, |key| key.share),
        momentary_share: totals
            .momentary
            .filter(|momentary| momentary.exceeds(partition_keys.hottest_share))
            .map(|momentary| momentary.mean_share),
        peak_units: followed.map(|rate| rate.peak_units).max(),
        overloads: over_time.as_ref().map_or(&[], |over_time| over_time.overloads.as_slice()),
    };
    let breaking_rate = BreakingRate {
        write_units_per_second: (PARTITION_WRITE_UNITS as f64 / facts.share().max(f64::MIN_POSITIVE)) as u64,
        partition_key: (facts.share() <= facts.hottest_share).then(|| hottest.to_owned()),
    };
    Advice {
        file: source.path().display().to_string(),
        format: source.format(),
        items: totals.items,
        write_units: totals.units,
        verdict: verdict(&facts),
        partition_keys,
        breaking_rate,
        hottest_keys,
        over_time,
        spreads,
    }
}

fn peak(rate: &KeyRate) -> Peak {
    Peak { write_units_per_second: rate.peak_units, at: rate.peak_at }
}

fn over_time(rates: &Rates, (from, to): (i64, i64), units: u64, keys: &[(String, Count)]) -> OverTime {
    let names = || keys.iter().map(|(key, _)| key);
    let mut overloads: Vec<Overload> =
        names().zip(rates.keys.iter().skip(1)).filter_map(|(key, rate)| overload(key, rate)).collect();
    overloads.sort_by(|a, b| {
        let peaks = b.peak.write_units_per_second.cmp(&a.peak.write_units_per_second);
        peaks.then_with(|| a.partition_key.cmp(&b.partition_key))
    });
    let mut series: Vec<RateSeries> = names()
        .enumerate()
        .map(|(number, key)| RateSeries { partition_key: Some(key.clone()), peaks: rates.series.of(number + 1) })
        .take_while(|series| !series.peaks.is_empty())
        .collect();
    series.sort_by_key(|series| std::cmp::Reverse(series.highest()));
    series.truncate(TOLD_SERIES);
    series.insert(0, RateSeries { partition_key: None, peaks: rates.series.of(0) });
    OverTime {
        from,
        to,
        mean_write_units_per_second: units as f64 / (to - from + 1).max(1) as f64,
        peak: rates.keys.first().map_or(Peak { write_units_per_second: 0, at: from }, peak),
        peaks_at_most_more: rates.at_most_more,
        followed_keys: keys.len() as u64,
        overloads,
        bucket_seconds: rates.series.bucket_seconds(),
        series,
    }
}

fn overload(key: &str, rate: &KeyRate) -> Option<Overload> {
    let first = rate.over.first()?;
    // Of several longest ones, the first.
    let longest = rate.over.iter().rev().max_by_key(|run| run.seconds)?;
    Some(Overload {
        partition_key: key.to_owned(),
        peak: peak(rate),
        first_at: first.from,
        seconds: rate.over.iter().map(|run| run.seconds).sum(),
        longest_run_seconds: longest.seconds,
        longest_run_at: longest.from,
        fewest_shards: fewest_shards(rate.peak_units),
        shards_by_policy: shards_by_policy(rate.peak_units),
    })
}

impl RateSeries {
    /// The highest of the peaks.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.peaks.iter().map(|(_, units)| *units).max().unwrap_or(0)
    }
}

impl Peak {
    /// When, as RFC 3339 writes it.
    #[must_use]
    pub fn at_rfc3339(&self) -> String {
        rfc3339(self.at)
    }
}
