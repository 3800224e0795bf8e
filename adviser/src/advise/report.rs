//! The report of the advice.

use cli::numbers::{count, counted, decimal, percent};
use cli::output::table;
use sharding::PARTITION_WRITE_UNITS;

use super::advice::Advice;
use super::moments::STRETCH_LINES;
use super::over_time::OverTime;
use super::seconds::Peak;
use super::shown::{plain, quoted};
use super::time::rfc3339;
use crate::report::{Line, Report};

/// The most keys above a partition's limit that are shown.
const SHOWN_OVERLOADS: usize = 20;

impl Advice {
    pub(crate) fn report(&self) -> Report {
        let mut report = Report::default();
        let time = self.over_time.iter().flat_map(|time| self.time_lines(time));
        report.lines(self.verdict_lines().into_iter().chain(self.key_lines()).chain(time));
        self.report_hottest(&mut report);
        if let Some(time) = &self.over_time {
            self.report_overloads(time, &mut report);
        }
        report
    }

    fn verdict_lines(&self) -> Vec<Line> {
        let verdict = &self.verdict;
        let judged = format!("{}: {}", verdict.uniformity.name(), verdict.reason);
        let names = ["verdict", "advice"].into_iter().chain(std::iter::repeat(""));
        names.zip(std::iter::once(judged).chain(verdict.advice.iter().cloned())).collect()
    }

    fn key_lines(&self) -> [Line; 4] {
        let (totals, keys) = (&self.totals, &self.totals.ranking);
        let (items, units) = (counted(totals.items, "item"), counted(totals.units, "write unit"));
        let how =
            if keys.is_exact { ", counted one by one" } else { " or more, too many to count" };
        let momentary = totals.momentary.map_or_else(String::new, |momentary| {
            format!(
                "; the hottest of a moment ({} lines in a row) {} on average",
                count(STRETCH_LINES),
                percent(momentary.mean_share)
            )
        });
        let shares = format!(
            "the hottest key takes {} of the write units, the ten hottest {}{momentary}",
            percent(self.hottest_share()),
            percent(self.ten_hottest_share()),
        );
        let limiting = self.breaking_key.as_deref();
        let breaks = format!(
            "above {} write units a second in total, {} exceeds a partition ({})",
            count(self.breaking_rate),
            limiting.map_or_else(|| "the key of the moment".to_owned(), quoted),
            count(PARTITION_WRITE_UNITS),
        );
        [
            ("file", format!("{}: {items}, {units}", plain(&self.file))),
            ("keys", format!("{} distinct{how}", count(keys.distinct))),
            ("shares", shares),
            ("breaks", breaks),
        ]
    }

    fn time_lines(&self, time: &OverTime) -> Vec<Line> {
        let mut lines = vec![(
            "time",
            format!(
                "{} to {}: {} on average, at most {} in a second ({})",
                rfc3339(time.from),
                rfc3339(time.to),
                mean_rate(time.mean_write_units_per_second),
                count(time.peak.write_units_per_second),
                rfc3339(time.peak.at),
            ),
        )];
        if self.totals.momentary.is_none() {
            let few = self.totals.items < STRETCH_LINES;
            let why = if few { "too few lines" } else { "the lines are not in the order of time" };
            lines.push((
                "",
                format!("{why}, so keys that are hot by turns, as dates are, cannot be found"),
            ));
        }
        if !time.peaks_are_exact {
            let why = "the file is long and not in the order of time: peaks may be higher";
            lines.push(("", why.to_owned()));
        }
        lines
    }

    fn report_hottest(&self, report: &mut Report) {
        let names = ["hottest keys", "items", "write units", "share", "peak units/s", "at"];
        let columns = if self.over_time.is_some() { 6 } else { 4 };
        let mut table = table(&names[..columns]);
        for key in &self.hottest_keys {
            let row = [
                plain(&key.partition_key),
                count(key.items),
                count(key.write_units),
                percent(key.share),
            ];
            let peak = |peak: &Peak| [count(peak.write_units_per_second), rfc3339(peak.at)];
            table.add_row(row.into_iter().chain(key.peak.iter().flat_map(peak)));
        }
        let keys = &self.totals.ranking;
        let others = counted(keys.unlisted_at_most, "write unit");
        let missing = format!("Counts are exact; a key of at most {others} may be missing.");
        report.table(&table, if keys.is_exact { "" } else { &missing });
    }

    fn report_overloads(&self, time: &OverTime, report: &mut Report) {
        let partition = count(PARTITION_WRITE_UNITS);
        let blind = self.blind_spot();
        if time.overloads.is_empty() {
            let none =
                format!("No key takes more than {partition} write units in a second.{blind}");
            return report.text(none);
        }
        let mut table = table(&[
            &format!("keys above {partition} units/s"),
            "peak units/s",
            "at",
            "seconds above",
            "shards at least",
            "by policy",
        ]);
        for overload in time.overloads.iter().take(SHOWN_OVERLOADS) {
            table.add_row([
                plain(&overload.partition_key),
                count(overload.peak.write_units_per_second),
                rfc3339(overload.peak.at),
                count(overload.seconds),
                count(overload.fewest_shards),
                count(overload.shards_by_policy),
            ]);
        }
        let more = match time.overloads.len().saturating_sub(SHOWN_OVERLOADS) {
            0 => String::new(),
            more => format!("and {}\n", counted(more as u64, "more key")),
        };
        let note = format!(
            "{more}By policy: on a table that has served the peak before. DynamoDB may absorb peaks of some seconds \
             with the saved burst capacity of a partition, but does not guarantee it.{blind}"
        );
        report.table(&table, &note);
    }

    /// A note on keys that were not analyzed, if they could have been above the limit.
    fn blind_spot(&self) -> String {
        let ranking = &self.totals.ranking;
        let most = ranking.unlisted_at_most;
        if most <= PARTITION_WRITE_UNITS {
            return String::new();
        }
        let (followed, most) = (count(ranking.heaviest.len() as u64), count(most));
        format!(
            " Only the {followed} hottest keys were analyzed. Any other key takes at most {most} write units."
        )
    }
}

fn mean_rate(units_per_second: f64) -> String {
    if units_per_second >= 1.0 {
        return format!("{} write units a second", decimal(units_per_second));
    }
    format!("a write unit every {} s", decimal(1.0 / units_per_second.max(f64::MIN_POSITIVE)))
}
