//! The advice as one object: the source of the text and the picture.

use sharding::PARTITION_WRITE_UNITS;

use super::counts::{Count, heaviest_first};
use super::over_time::{OverTime, over_time};
use super::passes::Totals;
use super::seconds::{Peak, Rates};
use super::source::Source;
use super::verdict::{Facts, Verdict, verdict};

const REPORTED_KEYS: usize = 10;

#[derive(Debug)]
pub(crate) struct Advice {
    pub(crate) file: String,
    pub(super) totals: Totals,
    pub(crate) verdict: Verdict,
    /// The write units per second of the table at which the hottest key exceeds its partition.
    pub(crate) breaking_rate: u64,
    /// The key that exceeds its partition. Absent if the hottest key of a moment has a larger share
    /// than the hottest key of the whole file.
    pub(crate) breaking_key: Option<String>,
    pub(crate) hottest_keys: Vec<HotKey>,
    pub(crate) over_time: Option<OverTime>,
}

#[derive(Debug)]
pub(crate) struct HotKey {
    pub(crate) partition_key: String,
    pub(crate) items: u64,
    pub(crate) write_units: u64,
    /// Its share of all write units, 0 to 1.
    pub(crate) share: f64,
    /// Its busiest second; absent without times.
    pub(crate) peak: Option<Peak>,
}

impl Advice {
    pub(super) fn hottest_share(&self) -> f64 {
        self.hottest_keys.first().map_or(0.0, |key| key.share)
    }

    pub(super) fn ten_hottest_share(&self) -> f64 {
        self.hottest_keys.iter().map(|key| key.share).sum()
    }
}

/// `keys` and `rates` are those of the hottest keys.
pub(super) fn advice(
    source: &Source,
    totals: Totals,
    keys: &[(String, Count)],
    rates: Option<&Rates>,
) -> Advice {
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
            peak: rates.map(|rates| rates.keys[at + 1].peak),
        }
    };
    let hottest_keys: Vec<HotKey> = ranked.iter().map(hot_key).collect();
    let over_time =
        rates.zip(totals.span).map(|(rates, span)| over_time(rates, span, totals.units, keys));
    let first = hottest_keys.first();
    let (hottest, hottest_share) =
        first.map_or(("", 0.0), |key| (key.partition_key.as_str(), key.share));
    let followed = rates.iter().flat_map(|rates| rates.keys.iter().skip(1));
    let facts = Facts {
        items: totals.items,
        distinct: totals.ranking.distinct,
        hottest,
        hottest_share,
        next_share: hottest_keys.get(1).map_or(0.0, |key| key.share),
        momentary_share: totals
            .momentary
            .filter(|momentary| momentary.exceeds(hottest_share))
            .map(|momentary| momentary.mean_share),
        peak_units: followed.map(|rate| rate.peak.write_units_per_second).max(),
        overloads: over_time.as_ref().map_or(&[], |over_time| over_time.overloads.as_slice()),
    };
    let share = facts.share();
    Advice {
        file: source.path.display().to_string(),
        verdict: verdict(&facts),
        breaking_rate: (PARTITION_WRITE_UNITS as f64 / share.max(f64::MIN_POSITIVE)) as u64,
        breaking_key: (share <= hottest_share).then(|| hottest.to_owned()),
        totals,
        hottest_keys,
        over_time,
    }
}
