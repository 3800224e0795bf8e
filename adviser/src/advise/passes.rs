//! The two passes over the file.

use std::collections::HashMap;

use sharding::internal::ShardCount;

use super::AdviseOptions;
use super::counts::{Count, KeyCounts, Ranking, Room};
use super::evenness::Spread;
use super::moments::{Momentary, Moments};
use super::seconds::{KeyNumber, Rates, SecondCounts};
use super::source::Source;
use super::write::{Roles, Write};
use cli::records::{RecordsError, refused};

/// Keys whose spread is looked at: more than are told, for an estimated ranking is not quite in order.
const SPREAD_KEYS: usize = 20;
/// Series that are kept: one for all keys together, and one each for the hottest, of which those with the highest peaks are told.
const SERIES: usize = 201;

/// What bounds the memory: by default to some 200 MB.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) keys: Room,
    /// Hottest keys that are looked at closely.
    pub(super) followed: usize,
    /// Counts of a key and a second.
    pub(super) seconds: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            keys: Room { exact_keys: 500_000, exact_bytes: 32 << 20, heavy_keys: 1 << 16 },
            followed: 10_000,
            seconds: 900_000,
        }
    }
}

/// What the first pass tells.
pub(super) struct Totals {
    pub(super) items: u64,
    pub(super) units: u64,
    /// The first and the last second, where times are given.
    pub(super) span: Option<(i64, i64)>,
    pub(super) momentary: Option<Momentary>,
    pub(super) ranking: Ranking,
}

/// What the second pass tells of the hottest keys, in the order of the ranking.
pub(super) struct CloseLook {
    pub(super) keys: Vec<(String, Count)>,
    /// Of all writes together, then of each key; only where times are given.
    pub(super) rates: Option<Rates>,
    /// Of the hottest keys, where sort keys are given.
    pub(super) spreads: Vec<Spread>,
}

/// Counts the keys; finds every line that is not an item.
pub(super) fn count(source: &Source, roles: &Roles, bounds: &Bounds) -> Result<Totals, RecordsError> {
    let mut counts = KeyCounts::new(bounds.keys);
    let mut moments = Moments::default();
    let (mut items, mut units, mut span) = (0, 0, None);
    each(source, "counting keys", roles, u64::MAX, |write| {
        items += 1;
        units += write.units;
        counts.add(write.partition_key.as_str(), write.units);
        if let Some(second) = write.second {
            moments.add(write.partition_key.as_str(), second, write.units);
            let (first, last) = span.unwrap_or((second, second));
            span = Some((second.min(first), second.max(last)));
        }
    })?;
    Ok(Totals { items, units, span, momentary: moments.finish(), ranking: counts.rank(bounds.followed) })
}

/// Looks at the hottest keys once more, where there is anything to learn from that.
pub(super) fn look_closely(
    source: &Source,
    roles: &Roles,
    options: &AdviseOptions,
    bounds: &Bounds,
    totals: &Totals,
) -> Result<CloseLook, RecordsError> {
    let ranking = &totals.ranking;
    if ranking.is_exact && options.time.is_none() && options.sort_key.is_empty() {
        return Ok(CloseLook { keys: ranking.heaviest.clone(), rates: None, spreads: Vec::new() });
    }
    let numbers: HashMap<&str, KeyNumber> = ranking.heaviest.iter().map(|(key, _)| key.as_str()).zip(0..).collect();
    let mut counts = vec![Count::default(); numbers.len()];
    let mut seconds = SecondCounts::new(numbers.len() + 1, SERIES, bounds.seconds);
    let widths: Vec<ShardCount> = options.shards.iter().filter_map(|width| ShardCount::new(*width)).collect();
    let mut spreads: Vec<Spread> = match options.sort_key.is_empty() {
        true => Vec::new(),
        false => numbers.keys().take(SPREAD_KEYS).map(|_| Spread::new(&widths)).collect(),
    };
    // Lines that were appended to the file since the first pass are none of its totals.
    each(source, "looking at the hottest", roles, totals.items, |write| {
        if let Some(second) = write.second {
            seconds.add(0, second, write.units);
        }
        let Some(number) = numbers.get(write.partition_key.as_str()) else { return };
        if let Some(count) = counts.get_mut(*number as usize) {
            count.items += 1;
            count.units += write.units;
        }
        if let Some(second) = write.second {
            seconds.add(number + 1, second, write.units);
        }
        if let (Some(sort_key), Some(spread)) = (&write.sort_key, spreads.get_mut(*number as usize)) {
            spread.add(&write.partition_key, sort_key);
        }
    })?;
    let keys = ranking.heaviest.iter().map(|(key, _)| key.clone()).zip(counts).collect();
    Ok(CloseLook { keys, rates: options.time.as_ref().map(|_| seconds.finish()), spreads })
}

fn each(
    source: &Source,
    doing: &str,
    roles: &Roles,
    most: u64,
    mut take: impl FnMut(Write),
) -> Result<(), RecordsError> {
    let (mut rows, bar) = source.rows(doing, roles.names())?;
    let mut left = most;
    while left > 0
        && let Some(row) = rows.next()?
    {
        take(roles.write(&row).map_err(|why| refused(source.path(), row.line, why))?);
        left -= 1;
    }
    bar.finish_and_clear();
    Ok(())
}
