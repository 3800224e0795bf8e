//! The advice as one object: the JSON output, and the source of the text and the picture.

use serde::Serialize;
use sharding::PARTITION_WRITE_UNITS;

use super::counts::{Count, heaviest_first};
use super::evenness::PlacementSpread;
use super::over_time::{OverTime, over_time};
use super::passes::{HottestKeys, Totals};
use super::rows::FileFormat;
use super::seconds::Peak;
use super::source::Source;
use super::verdict::{Facts, Verdict, verdict};

const REPORTED_KEYS: usize = 10;

#[derive(Debug, Serialize)]
pub(crate) struct Advice {
    pub(crate) file: String,
    pub(crate) format: FileFormat,
    pub(crate) items: u64,
    /// The write units of the items: one for each started KB of an item.
    pub(crate) write_units: u64,
    pub(crate) verdict: Verdict,
    pub(crate) partition_keys: PartitionKeys,
    pub(crate) breaking_rate: BreakingRate,
    pub(crate) hottest_keys: Vec<HotKey>,
    pub(crate) over_time: Option<OverTime>,
    /// The spreads of the hottest keys, hottest first; empty without sort keys.
    pub(crate) spreads: Vec<KeySpread>,
}

/// The number and the evenness of the partition keys. Shares are of write units, 0 to 1.
#[derive(Debug, Serialize)]
pub(crate) struct PartitionKeys {
    /// The number of keys; the fewest possible unless `is_exact`.
    pub(crate) distinct: u64,
    /// Whether all keys were counted one by one.
    pub(crate) is_exact: bool,
    pub(crate) hottest_share: f64,
    pub(crate) ten_hottest_share: f64,
    /// The share of the hottest key of a moment, on average over all moments. A moment is a stretch
    /// of at least 1,000 lines and 1,000 write units. Its hottest key is chosen in a random half of
    /// its writes and measured in the other half. Absent without times, if the lines are not in the
    /// order of time, and if there are too few.
    pub(crate) momentary_share: Option<f64>,
    /// A key that was not analyzed takes no more write units than this: 0 if all keys were.
    pub(crate) others_at_most_write_units: u64,
}

/// The rate at which the hottest key exceeds its partition.
#[derive(Debug, Serialize)]
pub(crate) struct BreakingRate {
    pub(crate) write_units_per_second: u64,
    /// The key that exceeds its partition. Absent if the hottest key of a moment has a larger share
    /// than the hottest key of the whole file.
    pub(crate) partition_key: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct HotKey {
    pub(crate) partition_key: String,
    pub(crate) items: u64,
    pub(crate) write_units: u64,
    /// Its share of all write units, 0 to 1.
    pub(crate) share: f64,
    /// Its busiest second; absent without times.
    pub(crate) peak: Option<Peak>,
}

#[derive(Debug, Serialize)]
pub(crate) struct KeySpread {
    pub(crate) partition_key: String,
    pub(crate) writes: u64,
    pub(crate) placements: Vec<PlacementSpread>,
}

pub(super) fn advice(source: &Source, totals: &Totals, hottest: HottestKeys) -> Advice {
    let HottestKeys { keys, rates, spreads } = hottest;
    // A ranking that is not exact is only roughly in order.
    let mut ranked: Vec<usize> = (0..keys.len()).collect();
    ranked.sort_unstable_by(|a, b| heaviest_first(&keys[*a], &keys[*b]));
    ranked.truncate(REPORTED_KEYS);
    let hot_key = |at: &usize| {
        let (key, Count { items, units }) = &keys[*at];
        HotKey {
            partition_key: key.clone(),
            items: *items,
            write_units: *units,
            share: *units as f64 / totals.units.max(1) as f64,
            peak: rates.as_ref().map(|rates| rates.keys[at + 1].peak),
        }
    };
    let hottest_keys: Vec<HotKey> = ranked.iter().map(hot_key).collect();
    let spread = |at: &usize| {
        let (placements, (key, count)) = (spreads.get(*at)?.finish(), &keys[*at]);
        Some(KeySpread { partition_key: key.clone(), writes: count.items, placements })
    };
    let spreads = ranked.iter().filter_map(spread).collect();
    let over_time = rates
        .as_ref()
        .zip(totals.span)
        .map(|(rates, span)| over_time(rates, span, totals.units, &keys));
    let partition_keys = PartitionKeys {
        distinct: totals.ranking.distinct,
        is_exact: totals.ranking.is_exact,
        hottest_share: hottest_keys.first().map_or(0.0, |key| key.share),
        ten_hottest_share: hottest_keys.iter().map(|key| key.share).sum(),
        momentary_share: totals.momentary.map(|momentary| momentary.mean_share),
        others_at_most_write_units: totals.ranking.unlisted_at_most,
    };
    let hottest = hottest_keys.first().map_or("", |key| key.partition_key.as_str());
    let followed = rates.iter().flat_map(|rates| rates.keys.iter().skip(1));
    let facts = Facts {
        items: totals.items,
        distinct: partition_keys.distinct,
        hottest,
        hottest_share: partition_keys.hottest_share,
        next_share: hottest_keys.get(1).map_or(0.0, |key| key.share),
        momentary_share: totals
            .momentary
            .filter(|momentary| momentary.exceeds(partition_keys.hottest_share))
            .map(|momentary| momentary.mean_share),
        peak_units: followed.map(|rate| rate.peak.write_units_per_second).max(),
        overloads: over_time.as_ref().map_or(&[], |over_time| over_time.overloads.as_slice()),
    };
    let breaking_rate = BreakingRate {
        write_units_per_second: (PARTITION_WRITE_UNITS as f64
            / facts.share().max(f64::MIN_POSITIVE)) as u64,
        partition_key: (facts.share() <= facts.hottest_share).then(|| hottest.to_owned()),
    };
    Advice {
        file: source.path.display().to_string(),
        format: source.format,
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
