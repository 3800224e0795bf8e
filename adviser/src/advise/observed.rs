//! The advice for keys that endpoints have seen throttled. They name no other keys, so how even the
//! partition key is cannot be judged.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::error::Error;

use cli::numbers::{count, counted};
use cli::observed::{HotKey, Observations};
use cli::output::table;
use cli::records::refused;
use sharding::internal::policy::rules::ScalingPolicy;

use super::shown::one_line;
use super::source::Source;
use crate::report::Report;

/// The most keys that are shown.
const SHOWN_KEYS: usize = 20;

/// Reads a line of each endpoint. A key that several have seen has their rates together.
pub(super) fn observed(source: &Source) -> Result<Vec<HotKey>, Box<dyn Error>> {
    let (mut lines, bar) = source.lines("reading what was observed")?;
    let (mut keys, mut is_empty) = (BTreeMap::<_, HotKey>::new(), true);
    while let Some((number, line)) = lines.next_trimmed()? {
        is_empty = false;
        let seen = Observations::of_line(line).map_err(|why| refused(&source.path, number, why))?;
        for hot in seen.not_armed {
            let none = HotKey { write_units: 0, ..hot.clone() };
            let sum = keys.entry((hot.table.clone(), hot.key.clone())).or_insert(none);
            sum.write_units = sum.write_units.saturating_add(hot.write_units);
            sum.refused.extend(hot.refused);
        }
    }
    bar.finish_and_clear();
    if is_empty {
        return Err(format!("{}: no endpoint's line is in it", source.path.display()).into());
    }
    let mut keys: Vec<HotKey> = keys.into_values().collect();
    keys.sort_by_key(|hot| Reverse(hot.write_units));
    Ok(keys)
}

pub(super) fn report(keys: &[HotKey]) -> Report {
    let mut report = Report::default();
    if keys.is_empty() {
        let verdict = "good: these endpoints have seen no throttled key in the last hour";
        report.lines([
            ("verdict", verdict.to_owned()),
            (
                "advice",
                "Ask again after a peak: an endpoint knows its own clients only.".to_owned(),
            ),
        ]);
        return report;
    }
    let number = counted(keys.len() as u64, "key");
    let advice = [
        "If their partitions are the limit and not the table (a batch or a transaction does not say), arm them: \
         `sharding-endpoint arm`. Then each gets more shards as soon as it is throttled.",
        "Before that, replace what is refused for armed keys.",
        "`plan` has the partitions and the costs, from the rates of such a key and its items' size.",
    ];
    let names = ["advice", "", ""];
    let verdict = format!("bad: these endpoints have seen {number} throttled in the last hour");
    let advice = names.into_iter().zip(advice.map(str::to_owned));
    report.lines([("verdict", verdict)].into_iter().chain(advice));

    let mut table = table(&["keys", "table", "write units/s", "shards", "refused once armed"]);
    for hot in keys.iter().take(SHOWN_KEYS) {
        // Whole, because the user copies it.
        let whole = |text: &str| one_line(text, usize::MAX);
        let shards = ScalingPolicy::default().shards_if_throttled(hot.write_units as f64);
        table.add_row([
            whole(&hot.key),
            whole(&hot.table),
            count(hot.write_units),
            shards.to_string(),
            whole(&hot.refused()),
        ]);
    }
    let more = match keys.len().saturating_sub(SHOWN_KEYS) {
        0 => String::new(),
        more => format!("and {}\n", counted(more as u64, "more key")),
    };
    let note = format!(
        "{more}Write units are the mean of a key's hottest minute. Those of several endpoints are added, which is an \
         upper limit if their minutes differ. The shards are those of a table with many partitions."
    );
    report.table(&table, &note);
    report
}
