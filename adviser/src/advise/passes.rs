//! The two passes over the file.

use std::collections::HashMap;

use super::WriteOptions;
use super::counts::{Count, KeyCounts, Ranking};
use super::moments::{Momentary, Moments};
use super::seconds::{KeyNumber, Rates, SecondCounts, Series};
use super::source::Source;
use super::write::Write;
use cli::records::{RecordsError, refused};

/// The number of series: one for all keys together, and one for each of the 200 hottest keys. The
/// report has those with the highest peaks.
const SERIES: usize = 201;

/// The limits of the memory, by default about 200 MB.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The bytes of the counted keys.
    pub(super) keys: usize,
    /// The most keys that the second pass follows.
    pub(super) followed: usize,
    /// The most counts of a key in a second.
    pub(super) seconds: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { keys: 64 << 20, followed: 10_000, seconds: 900_000 }
    }
}

#[derive(Debug)]
pub(super) struct Totals {
    pub(super) items: u64,
    /// The write units of the items: one for each started KB of an item.
    pub(super) units: u64,
    /// The first and the last second, if times are given.
    pub(super) span: Option<(i64, i64)>,
    /// Absent without times, if the lines are not in the order of time, and if there are too few.
    pub(super) momentary: Option<Momentary>,
    pub(super) ranking: Ranking,
}

/// Counts the keys. Fails at the first invalid line.
pub(super) fn count(
    source: &Source,
    options: &WriteOptions,
    bounds: &Bounds,
) -> Result<Totals, RecordsError> {
    let mut counts = KeyCounts::new(bounds.keys);
    let mut moments = Moments::default();
    let (mut items, mut units, mut span) = (0, 0, None);
    each(source, "counting keys", options, u64::MAX, |write| {
        items += 1;
        units += write.units;
        counts.add(write.partition_key.as_str(), write.units);
        if let Some(second) = write.second {
            moments.add(write.partition_key.as_str(), second, write.units);
            let (first, last) = span.unwrap_or((second, second));
            span = Some((second.min(first), second.max(last)));
        }
    })?;
    let (momentary, ranking) = (moments.finish(), counts.rank(bounds.followed));
    Ok(Totals { items, units, span, momentary, ranking })
}

/// Keys with their counts.
type Keys = Vec<(String, Count)>;

/// Reads the file again for the hottest keys, unless the first pass has all results. Returns their
/// counts in the order of the ranking and, if times are given, the rates of all writes together, then
/// of each key.
pub(super) fn analyze_hottest(
    source: &Source,
    options: &WriteOptions,
    bounds: &Bounds,
    totals: &Totals,
) -> Result<(Keys, Option<Rates>), RecordsError> {
    let ranking = &totals.ranking;
    if ranking.is_exact && totals.span.is_none() {
        return Ok((ranking.heaviest.clone(), None));
    }
    let numbers: HashMap<&str, KeyNumber> =
        ranking.heaviest.iter().map(|(key, _)| key.as_str()).zip(0..).collect();
    let mut counts = vec![Count::default(); numbers.len()];
    let series = Series::new(SERIES.min(numbers.len() + 1), totals.span.unwrap_or((0, 0)));
    let mut seconds = SecondCounts::new(numbers.len() + 1, series, bounds.seconds);
    // The limit excludes lines that were appended after the first pass, which the totals do not
    // have.
    each(source, "analyzing the hottest keys", options, totals.items, |write| {
        if let Some(second) = write.second {
            seconds.add(0, second, write.units);
        }
        let Some(number) = numbers.get(write.partition_key.as_str()) else { return };
        counts[*number as usize].add(write.units);
        if let Some(second) = write.second {
            seconds.add(number + 1, second, write.units);
        }
    })?;
    let keys = ranking.heaviest.iter().map(|(key, _)| key.clone()).zip(counts).collect();
    Ok((keys, totals.span.map(|_| seconds.finish())))
}

fn each(
    source: &Source,
    activity: &str,
    options: &WriteOptions,
    most: u64,
    mut take: impl FnMut(Write),
) -> Result<(), RecordsError> {
    let (mut lines, bar) = source.lines(activity)?;
    for _ in 0..most {
        let Some((number, line)) = lines.next_trimmed()? else { break };
        take(Write::of(line, options).map_err(|why| refused(&source.path, number, why))?);
    }
    bar.finish_and_clear();
    Ok(())
}
