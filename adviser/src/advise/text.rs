//! The advice as text.

use cli::numbers::{count, counted, decimal, percent};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use super::moments::STRETCH_LINES;
use super::over_time::OverTime;
use super::report::Advice;
use super::rows::FileFormat;
use super::shown::{plain, quoted};
use super::time::rfc3339;
use super::verdict::Verdict;
use sharding::internal::PARTITION_WRITE_UNITS;

/// The most keys above a partition's limit that are shown. JSON has all.
const SHOWN_OVERLOADS: usize = 20;

fn mean_rate(units_per_second: f64) -> String {
    if units_per_second >= 1.0 {
        return format!("{} write units a second", decimal(units_per_second));
    }
    format!("a write unit every {} s", decimal(1.0 / units_per_second.max(f64::MIN_POSITIVE)))
}

/// Formats the advice as text.
#[must_use]
pub fn text(advice: &Advice) -> String {
    let mut out = String::new();
    for paragraph in [Some(head(advice)), Some(hottest(advice)), overloads(advice), spread(advice)]
        .into_iter()
        .flatten()
    {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&paragraph);
        out.push('\n');
    }
    out
}

/// A line of the first paragraph: its name, which may be empty, and its text.
type Line = (&'static str, String);

fn head(advice: &Advice) -> String {
    let mut lines = verdict_lines(&advice.verdict);
    lines.extend(key_lines(advice));
    lines.extend(advice.over_time.iter().flat_map(|time| time_lines(advice, time)));
    lines.iter().map(|(name, text)| format!("{name:<12}{text}")).collect::<Vec<_>>().join("\n")
}

fn verdict_lines(verdict: &Verdict) -> Vec<Line> {
    let mut lines = vec![("verdict", format!("{}: {}", verdict.uniformity.name(), verdict.reason))];
    for (index, advice) in verdict.advice.iter().enumerate() {
        lines.push((if index == 0 { "advice" } else { "" }, advice.clone()));
    }
    lines
}

fn key_lines(advice: &Advice) -> [Line; 4] {
    let keys = &advice.partition_keys;
    let format = match advice.format {
        FileFormat::JsonLines => "JSON Lines",
        FileFormat::Csv => "CSV",
    };
    let (items, units) = (counted(advice.items, "item"), counted(advice.write_units, "write unit"));
    let distinct = if keys.is_exact {
        format!("{} distinct, counted one by one", count(keys.distinct))
    } else {
        let (from, to) = (count(keys.distinct_at_least), count(keys.distinct_at_most));
        format!("about {} distinct (estimated; 95 % sure: {from} to {to})", count(keys.distinct))
    };
    let (one, ten) = (percent(keys.hottest_share), percent(keys.ten_hottest_share));
    let momentary = keys.momentary_share.map_or_else(String::new, |share| {
        format!(
            "; the hottest of a moment ({} lines in a row) {} on average",
            count(STRETCH_LINES),
            percent(share)
        )
    });
    let limiting = advice.breaking_rate.partition_key.as_deref();
    let limiting = limiting.map_or_else(|| "the key of the moment".to_owned(), quoted);
    let (rate, partition) =
        (count(advice.breaking_rate.write_units_per_second), count(PARTITION_WRITE_UNITS));
    [
        ("file", format!("{} ({format}): {items}, {units}", plain(&advice.file))),
        ("keys", distinct),
        (
            "shares",
            format!(
                "the hottest key takes {one} of the write units, the ten hottest {ten}{momentary}"
            ),
        ),
        (
            "breaks",
            format!(
                "above {rate} write units a second in total, {limiting} exceeds a partition ({partition})"
            ),
        ),
    ]
}

fn time_lines(advice: &Advice, time: &OverTime) -> Vec<Line> {
    let (from, to) = (rfc3339(time.from), rfc3339(time.to));
    let (mean, peak) =
        (mean_rate(time.mean_write_units_per_second), count(time.peak.write_units_per_second));
    let at = time.peak.at_rfc3339();
    let mut lines = vec![(
        "time",
        format!("{from} to {to}: {mean} on average, at most {peak} in a second ({at})"),
    )];
    if advice.partition_keys.momentary_share.is_none() {
        let few = advice.items < STRETCH_LINES;
        let why = if few { "too few lines" } else { "the lines are not in the order of time" };
        lines.push((
            "",
            format!("{why}, so keys that are hot by turns, as dates are, cannot be found"),
        ));
    }
    if time.peaks_at_most_more > 0 {
        let more = count(time.peaks_at_most_more);
        lines.push((
            "",
            format!(
                "the file is long and not in the order of time: peaks may be higher by up to {more}"
            ),
        ));
    }
    lines
}

fn hottest(advice: &Advice) -> String {
    let timed = advice.over_time.is_some();
    let mut header = vec!["hottest keys", "items", "write units", "share"];
    if timed {
        header.extend(["peak units/s", "at"]);
    }
    let mut table = table(&header);
    for key in &advice.hottest_keys {
        let mut row = vec![
            plain(&key.partition_key),
            count(key.items),
            count(key.write_units),
            percent(key.share),
        ];
        if let Some(peak) = key.peak {
            row.extend([count(peak.write_units_per_second), peak.at_rfc3339()]);
        }
        table.add_row(row);
    }
    let keys = &advice.partition_keys;
    let note = match (keys.is_exact, keys.others_at_most_write_units) {
        (false, most) => {
            format!(
                "\nCounts are exact; a key of at most {} may be missing.",
                counted(most, "write unit")
            )
        }
        (true, _) => String::new(),
    };
    format!("{table}{note}")
}

fn overloads(advice: &Advice) -> Option<String> {
    let time = advice.over_time.as_ref()?;
    let partition = count(PARTITION_WRITE_UNITS);
    let blind = blind_spot(advice, time);
    if time.overloads.is_empty() {
        return Some(format!("No key takes more than {partition} write units in a second.{blind}"));
    }
    let mut table = table(&[
        &format!("keys above {partition} units/s"),
        "peak units/s",
        "at",
        "first above",
        "seconds above",
        "longest run",
        "shards at least",
        "by policy",
    ]);
    for overload in time.overloads.iter().take(SHOWN_OVERLOADS) {
        table.add_row([
            plain(&overload.partition_key),
            count(overload.peak.write_units_per_second),
            overload.peak.at_rfc3339(),
            rfc3339(overload.first_at),
            count(overload.seconds),
            format!("{} s", count(overload.longest_run_seconds)),
            count(overload.fewest_shards),
            count(overload.shards_by_policy),
        ]);
    }
    let more = match time.overloads.len().saturating_sub(SHOWN_OVERLOADS) {
        0 => String::new(),
        more => format!("\nand {}", counted(more as u64, "more key")),
    };
    Some(format!(
        "{table}{more}\nBy policy: on a table that has served the peak before. DynamoDB may absorb peaks of some seconds \
         with the saved burst capacity of a partition, but does not guarantee it.{blind}"
    ))
}

/// A note on keys that were not analyzed, if they could have been above the limit.
fn blind_spot(advice: &Advice, time: &OverTime) -> String {
    let most = advice.partition_keys.others_at_most_write_units;
    if most <= PARTITION_WRITE_UNITS {
        return String::new();
    }
    let (followed, most) = (count(time.followed_keys), count(most));
    format!(
        " Only the {followed} hottest keys were analyzed. Any other key takes at most {most} write units."
    )
}

fn spread(advice: &Advice) -> Option<String> {
    let key = advice.spreads.first()?;
    let of = format!("{} of {} on", counted(key.writes, "write"), quoted(&key.partition_key));
    let header = [
        of.as_str(),
        "placement",
        "busiest shard",
        "its share",
        "even share",
        "worth shards",
        "chi²/df",
    ];
    let mut table = table(&header);
    for row in &key.placements {
        let even = 1.0 / f64::from(row.shards);
        table.add_row([
            format!("{} shards", count(row.shards.into())),
            row.placement.to_owned(),
            count(row.evenness.busiest_shard),
            percent(row.evenness.busiest_share),
            percent(even),
            format!("{:.1}", row.evenness.worth_shards),
            decimal(row.evenness.chi_squared_per_degree),
        ]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    Some(format!(
        "{table}\nThe busiest shard limits the write units of a key. \"worth shards\" is the number of evenly loaded shards \
         with the same throughput. A chi²/df of about 1 is chance."
    ))
}

/// A table whose first column has names, and whose other columns have numbers.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(header.iter().copied());
    for column in 1..header.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
