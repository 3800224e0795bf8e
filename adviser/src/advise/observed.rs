//! The advice for keys that an endpoint has seen throttled. It sees no other keys, so it cannot
//! judge how even the partition key is.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::error::Error;

use cli::numbers::{count, counted};
use cli::observed::{HotKey, Observations};
use cli::output::table;
use cli::records::refused;
use sharding::PARTITION_WRITE_UNITS;

use super::shown::{plain, quoted};
use super::source::Source;
use crate::plan::unlimited_shards;
use crate::report::{Line, Report};

/// Reads the lines of one or more endpoints. A key that several have seen has their rates together.
pub(super) fn observed(source: &Source) -> Result<Vec<HotKey>, Box<dyn Error>> {
    let (mut lines, bar) = source.lines("reading what was observed")?;
    let (mut keys, mut is_empty) = (BTreeMap::<_, HotKey>::new(), true);
    while let Some((number, line)) = lines.next_trimmed()? {
        is_empty = false;
        let seen = Observations::of_line(line).map_err(|why| refused(&source.path, number, why))?;
        for hot in seen.not_armed {
            let none = HotKey { write_units: 0, throttled: 0, ..hot.clone() };
            let sum = keys.entry((hot.table.clone(), hot.key.clone())).or_insert(none);
            sum.write_units = sum.write_units.saturating_add(hot.write_units);
            sum.throttled = sum.throttled.saturating_add(hot.throttled);
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
    let Some(hottest) = keys.first() else {
        report.lines([
            ("verdict", "good: no key was throttled because of its partition".to_owned()),
            ("advice", "Keep it: a key that never gets hot needs one shard.".to_owned()),
        ]);
        return report;
    };
    report.lines(lines(keys, hottest));
    let columns =
        ["keys", "table", "write units/s", "throttled writes", "shards at least", "by policy"];
    let mut table = table(&columns);
    for hot in keys {
        table.add_row([
            plain(&hot.key),
            plain(&hot.table),
            count(hot.write_units),
            count(hot.throttled),
            count(hot.write_units.div_ceil(PARTITION_WRITE_UNITS)),
            count(unlimited_shards(hot.write_units).into()),
        ]);
    }
    let note = "Write units are those of each key's hottest minute, on average: some of its seconds have more. \
                By policy: on a table that has served them before.";
    report.table(&table, note);
    report
}

fn lines(keys: &[HotKey], hottest: &HotKey) -> Vec<Line> {
    let (number, units) = (counted(keys.len() as u64, "key"), hottest.write_units);
    let verdict = format!(
        "bad: {number} had throttled writes because of a partition, the hottest, {} of {}, at {} write units a second",
        quoted(&hottest.key),
        plain(&hottest.table),
        count(units)
    );
    let mut lines = vec![("verdict", verdict)];
    let arm = "Arm them (`sharding-endpoint arm`): then each gets more shards as soon as it is throttled.";
    lines.push(("advice", arm.to_owned()));
    let plan =
        format!("`plan --write-rate {units}` has the partitions and the costs of the hottest.");
    lines.push(("", plan));
    lines.extend(keys.iter().filter(|hot| !hot.refused.is_empty()).map(|hot| {
        let (key, refused) = (quoted(&hot.key), plain(&hot.refused()));
        ("", format!("Before you arm {key} of {}, replace {refused}.", plain(&hot.table)))
    }));
    lines
}
