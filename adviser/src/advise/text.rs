//! The answer for people.

use std::fmt::Write;

use cli::numbers::{count, counted, decimal, percent};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use super::moments::STRETCH_LINES;
use super::report::{Advice, OverTime};
use super::rows::FileFormat;
use super::time::rfc3339;
use sharding::internal::PARTITION_WRITE_UNITS;

/// A longer key is cut in tables.
const KEY_CHARACTERS: usize = 48;
/// So many keys that exceed a partition are shown; JSON has all.
const SHOWN_OVERLOADS: usize = 20;

fn mean_rate(units_per_second: f64) -> String {
    if units_per_second >= 1.0 {
        return format!("{} write units a second", decimal(units_per_second));
    }
    format!("a write unit every {} s", decimal(1.0 / units_per_second.max(f64::MIN_POSITIVE)))
}

/// The start of a text on one line, without characters that a terminal would obey or that XML does not allow.
pub(super) fn one_line(text: &str, characters: usize) -> String {
    let one = |char: char| match char {
        control if control.is_control() => control.escape_debug().to_string(),
        harmful if turns_text(harmful) || ends_line(harmful) || is_not_xml(harmful) => {
            harmful.escape_unicode().to_string()
        }
        harmless => harmless.to_string(),
    };
    let mut shown: String = text.chars().take(characters).map(one).collect();
    if text.chars().nth(characters).is_some() {
        shown.push('…');
    }
    shown
}

/// The bidirectional controls (Unicode, UAX #9): they let text look like another.
const fn turns_text(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

const fn ends_line(char: char) -> bool {
    matches!(char, '\u{2028}' | '\u{2029}')
}

/// Beside control characters, these two are no characters of XML 1.0.
const fn is_not_xml(char: char) -> bool {
    matches!(char, '\u{fffe}' | '\u{ffff}')
}

/// A key as tables show it.
pub(super) fn plain(key: &str) -> String {
    one_line(key, KEY_CHARACTERS)
}

/// A key within a sentence.
pub(super) fn quoted(key: &str) -> String {
    format!("\"{}\"", plain(key))
}

/// The answer as text.
#[must_use]
pub fn text(advice: &Advice) -> String {
    let mut out = String::new();
    for paragraph in [head(advice), hottest(advice), overloads(advice), spread(advice)].into_iter().flatten() {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&paragraph);
        out.push('\n');
    }
    out
}

fn head(advice: &Advice) -> Option<String> {
    let keys = &advice.partition_keys;
    let mut out = String::new();
    let mut line = |name: &str, what: String| writeln!(out, "{name:<12}{what}");
    let verdict = &advice.verdict;
    line("verdict", format!("{}: {}", verdict.uniformity.name(), verdict.reason)).ok()?;
    for (index, advice) in verdict.advice.iter().enumerate() {
        line(if index == 0 { "advice" } else { "" }, advice.clone()).ok()?;
    }
    let format = match advice.format {
        FileFormat::JsonLines => "JSON Lines",
        FileFormat::Csv => "CSV",
    };
    let (items, units) = (counted(advice.items, "item"), counted(advice.write_units, "write unit"));
    line("file", format!("{} ({format}): {items}, {units}", plain(&advice.file))).ok()?;
    let distinct = if keys.is_exact {
        format!("{} distinct, counted one by one", count(keys.distinct))
    } else {
        let (from, to) = (count(keys.distinct_at_least), count(keys.distinct_at_most));
        format!("about {} distinct (estimated; 95 % sure: {from} to {to})", count(keys.distinct))
    };
    line("keys", distinct).ok()?;
    let (one, ten) = (percent(keys.hottest_share), percent(keys.ten_hottest_share));
    let momentary = keys.momentary_share.map_or_else(String::new, |share| {
        format!("; the hottest of a moment ({} lines in a row) {} on average", count(STRETCH_LINES), percent(share))
    });
    line("shares", format!("the hottest key takes {one} of the write units, the ten hottest {ten}{momentary}")).ok()?;
    let who = advice.breaking_rate.partition_key.as_deref().map_or_else(|| "the key of the moment".to_owned(), quoted);
    let (rate, partition) = (count(advice.breaking_rate.write_units_per_second), count(PARTITION_WRITE_UNITS));
    line("breaks", format!("above {rate} write units a second in total, {who} exceeds a partition ({partition})"))
        .ok()?;
    if let Some(time) = &advice.over_time {
        let (from, to) = (rfc3339(time.from), rfc3339(time.to));
        let (mean, peak) = (mean_rate(time.mean_write_units_per_second), count(time.peak.write_units_per_second));
        let at = time.peak.at_rfc3339();
        line("time", format!("{from} to {to}: {mean} on average, at most {peak} in a second ({at})")).ok()?;
        if keys.momentary_share.is_none() {
            let few = advice.items < STRETCH_LINES;
            let why = if few { "too few lines" } else { "the lines are not in the order of time" };
            line("", format!("{why}: keys that are hot by turns, as dates are, would not be seen")).ok()?;
        }
        if time.peaks_at_most_more > 0 {
            let more = count(time.peaks_at_most_more);
            line("", format!("long and not in the order of time: peaks may be higher by up to {more}")).ok()?;
        }
    }
    out.pop();
    Some(out)
}

fn hottest(advice: &Advice) -> Option<String> {
    let timed = advice.over_time.is_some();
    let mut header = vec!["hottest keys", "items", "write units", "share"];
    if timed {
        header.extend(["peak units/s", "at"]);
    }
    let mut table = table(&header);
    for key in &advice.hottest_keys {
        let mut row = vec![plain(&key.partition_key), count(key.items), count(key.write_units), percent(key.share)];
        if let Some(peak) = key.peak {
            row.extend([count(peak.write_units_per_second), peak.at_rfc3339()]);
        }
        table.add_row(row);
    }
    let keys = &advice.partition_keys;
    let note = match (keys.is_exact, keys.others_at_most_write_units) {
        (false, most) => {
            format!("\nCounts are exact; a key of at most {} may be missing.", counted(most, "write unit"))
        }
        (true, _) => String::new(),
    };
    Some(format!("{table}{note}"))
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
        "{table}{more}\nBy policy: on a table that has taken the peak before. DynamoDB may carry peaks of some \
         seconds from capacity that a partition has saved up; nothing promises it.{blind}"
    ))
}

/// Keys that were not looked at and could have been above the limit all the same.
fn blind_spot(advice: &Advice, time: &OverTime) -> String {
    let most = advice.partition_keys.others_at_most_write_units;
    if most <= PARTITION_WRITE_UNITS {
        return String::new();
    }
    let (followed, most) = (count(time.followed_keys), count(most));
    format!(" Only the {followed} hottest keys were looked at; another one takes {most} write units at the most.")
}

fn spread(advice: &Advice) -> Option<String> {
    let key = advice.spreads.first()?;
    let of = format!("{} of {} on", counted(key.writes, "write"), quoted(&key.partition_key));
    let header = [of.as_str(), "placement", "busiest shard", "its share", "even share", "worth shards", "chi²/df"];
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
        "{table}\nA key takes as many write units as its busiest shard lets it: \"worth\" is how many even shards give as much. A chi²/df of about 1 is chance."
    ))
}

/// A table whose columns, all but the first, are numbers.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_command_the_terminal() {
        assert_eq!(plain("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(plain("a\u{202e}b\u{2066}\u{fffe}\u{2028}é"), "a\\u{202e}b\\u{2066}\\u{fffe}\\u{2028}é");
        assert_eq!(plain(&"é".repeat(60)).chars().count(), KEY_CHARACTERS + 1);
    }
}
