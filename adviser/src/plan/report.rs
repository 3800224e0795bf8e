//! The report of a plan.

use std::collections::BTreeSet;

use cli::numbers::{counted, decimal, dollars, percent, whole};
use cli::output::table;

use super::costs::{self, Bill, SERVICES};
use super::demand::{NEW_TABLE, PARTITION};
use super::figures::Plan;
use super::policy::{MAX_SHARDS, NEGLIGIBLE, throttled};
use super::verdict::raised;
use crate::report::Report;

/// Write units per second that a table serves unless its quota is raised, and as many read units.
/// (DynamoDB developer guide, "Quotas".)
const TABLE_QUOTA: f64 = 40_000.0;
/// From this number of units on, a few writes that coincide exceed a partition.
const LARGE_WRITE: u32 = 100;

impl Plan {
    pub(crate) fn report(&self) -> Report {
        let mut report = Report::default();
        report.text(self.verdict());
        report.lines([
            ("demand", self.demand_line()),
            ("partitions", self.partitions_line()),
            ("shards", self.shards_line()),
            ("the policy", self.policy_line()),
        ]);
        self.report_throttling(&mut report);
        self.report_page(&mut report);
        self.report_costs(&mut report);
        let notes = self.notes();
        if !notes.is_empty() {
            report.text(notes.join("\n"));
        }
        report
    }

    fn demand_line(&self) -> String {
        let demand = &self.demand;
        format!(
            "{} a second: {} of {} ({} bytes, started KBs)",
            counted(demand.write_units_per_second.round() as u64, "write unit"),
            counted(demand.writes_per_second.round() as u64, "write"),
            counted(demand.units_per_write, "unit"),
            whole(f64::from(demand.item_bytes)),
        )
    }

    fn partitions_line(&self) -> String {
        let origin = match (self.options.partitions, self.partitions) {
            (Some(_), _) => String::new(),
            (None, NEW_TABLE) => ", as in a new table".to_owned(),
            (None, _) => format!(
                ", as in a table that has served this demand before (a new one has {NEW_TABLE})"
            ),
        };
        let count = whole(f64::from(self.partitions));
        format!("{count} of {} write units a second{origin}", whole(PARTITION))
    }

    fn shards_line(&self) -> String {
        let on_paper = self.demand.shards_on_paper();
        let fewest = match self.fewest {
            Some(1) => "one is enough".to_owned(),
            Some(fewest) => format!(
                "{on_paper} in theory, but shards share partitions: under 2 % is throttled from {fewest} on"
            ),
            None => format!(
                "{on_paper} in theory, but on these partitions, more than 2 % is throttled even with {MAX_SHARDS}"
            ),
        };
        let requested = if self.options.shards.is_some() { ", as requested" } else { "" };
        format!("{}{requested}{}; {fewest}", self.shards, raised(self.shards))
    }

    fn policy_line(&self) -> String {
        let policy = &self.policy;
        let why = match policy.needed_write_units {
            Some(units) => format!(
                "more hardly help: the table is short of partitions, and the policy asks for a warm throughput of {} \
                 write units a second",
                whole(units as f64)
            ),
            None if policy.is_short => "more shards or partitions hardly help".to_owned(),
            None if policy.shards == 1 => "it is hardly throttled".to_owned(),
            None => "enough on these partitions, with a reserve for unlucky placements".to_owned(),
        };
        format!("gives the key {} ({why})", counted(policy.shards, "shard"))
    }

    /// The judged number of shards, its half, double and quadruple, and the other numbers that the
    /// plan names.
    fn report_throttling(&self, report: &mut Report) {
        let judged = self.shards;
        let all = [1, self.demand.shards_on_paper(), judged / 2, judged, judged * 2, judged * 4];
        let all: BTreeSet<u32> = all.into_iter().chain(self.fewest).collect();
        let here = format!("throttled on {}", counted(self.partitions, "partition"));
        let there = format!("on {NEW_TABLE} (a new table)");
        // On a new table, both columns would be the same.
        let columns = if self.partitions == NEW_TABLE { 3 } else { 4 };
        let mut table = table(&["shards", "units/s of each", &here, &there][..columns]);
        for shards in all.range(1..=MAX_SHARDS) {
            let throttled_on =
                |partitions: u32| percent(throttled(&self.demand, *shards, partitions));
            let mark = if *shards == judged { "> " } else { "" };
            let cells = [
                format!("{mark}{shards}"),
                decimal(self.demand.units_per_shard(*shards)),
                throttled_on(self.partitions),
                throttled_on(NEW_TABLE),
            ];
            table.add_row(&cells[..columns]);
        }
        let note = format!(
            "Expected share of the first attempts that is throttled, over all placements of the shards, without retries, \
             after partitions have spent their saved burst capacity. The plan tolerates less than {} %.",
            decimal(NEGLIGIBLE * 100.0),
        );
        report.table(&table, &note);
    }

    fn report_page(&self, report: &mut Report) {
        let (page, units, latency) = (&self.page, &self.page.units, &self.page.latency);
        let mut table = table(&["a page", "requests", "read units", "times", "latency, times"]);
        let mut add = |name: &str, requests: u32, units: f64, latency: f64| {
            table.add_row([
                name.to_owned(),
                requests.to_string(),
                decimal(units),
                format!("{:.2}", units / page.units.unsharded),
                format!("{latency:.2}"),
            ]);
        };
        add("unsharded", page.unsharded_requests, units.unsharded, 1.0);
        let size = whole(f64::from(self.demand.item_bytes));
        let items = format!("{} of {size} bytes.", counted(page.items, "item"));
        if self.shards == 1 {
            return report.table(&table, &items);
        }
        let shards = counted(self.shards, "shard");
        add(&format!("{shards}, even sort keys"), page.requests, units.even, latency.even);
        add(&format!("{shards}, uneven sort keys"), page.requests, units.uneven, latency.uneven);
        let note = format!(
            "{items} Units: calculated (at least {}), times the overhead measured in docs/costs.md. Latency: as measured \
             there, if every request takes the same time{}.",
            decimal(page.units.least),
            if self.shards > 64 { ", 64 at once (measured up to 64 shards)" } else { "" },
        );
        report.table(&table, &note);
    }

    fn report_costs(&self, report: &mut Report) {
        let (cost, prices) = (self.monthly_cost(), &self.prices);
        let mut table = table(&[&["a month"], &SERVICES[..], &["together"]].concat());
        for bill in [&cost.unsharded, &cost.own_service, &cost.functions] {
            let each = SERVICES.map(|service| of_service(bill, service));
            let name = std::iter::once(bill.name.to_owned());
            table.add_row(name.chain(each).chain([dollars(bill.usd)]));
        }
        let storage = &cost.storage_of_a_months_items;
        let left_out = match (self.options.log_days, self.options.traced) {
            (0, false) => "Stored logs and X-Ray are left out (--log-days, --traced). ",
            (0, true) => "Stored logs are left out (--log-days). ",
            _ => "",
        };
        let note = format!(
            "Prices of {}, {}, collected on {}; adviser/prices.json has the source of each, and how sure it is. The first line is DynamoDB's bill if one key could take the whole demand. Reads assume uneven \
             sort keys. {} {left_out}Storing each month's items adds {} a month ({} GB), sharded or not.",
            prices.region,
            prices.currency,
            prices.assembled_on,
            costs::ASSUMED,
            dollars(storage.usd),
            whole(storage.quantity),
        );
        report.table(&table, &note);
    }

    fn notes(&self) -> Vec<String> {
        let quota = (self.demand.write_units_per_second > TABLE_QUOTA).then(|| {
            let quota = whole(TABLE_QUOTA);
            format!("A table serves {quota} write units a second until its quota is raised.")
        });
        let units = self.demand.units_per_write;
        let large = (units >= LARGE_WRITE).then(|| {
            format!(
                "A partition takes writes of {units} units only until it has spent the units of a second. Writes that \
                 coincide are throttled below its rate, which this plan does not count."
            )
        });
        let (items, wanted) = (self.page.items, self.options.page_size);
        let short = (items < wanted)
            .then(|| format!("A page ends at about 2 MB: {items} of the {wanted} items."));
        [quota, large, short].into_iter().flatten().collect()
    }
}

fn of_service(bill: &Bill, service: &str) -> String {
    let usd: f64 =
        bill.lines.iter().filter(|line| line.service == service).map(|line| line.usd).sum();
    if usd > 0.0 {
        format!("{} ({:.0} %)", dollars(usd), usd / bill.usd * 100.0)
    } else {
        "-".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::{PlanOptions, plan};

    #[test]
    fn each_case_has_its_verdict() {
        let of = PlanOptions::of;
        let large = PlanOptions { item_size: 2_000, ..of(1_000_000, None) };
        let short = PlanOptions { shards: Some(5), ..of(10_000, Some(8)) };
        let read = PlanOptions { read_rate: 5_000, ..of(300, None) };
        let both = PlanOptions { read_rate: 5_000, shards: Some(2), ..of(5_000, None) };
        let (leave, shard, short_of) = ("Leave it: ", "Shard it: ", "Short of partitions: ");
        let rows = [
            (of(300, None), leave, "takes 1,000 write units a second, and this key needs 300"),
            (of(1_005, None), leave, "Retries absorb the small excess"),
            (of(5_000, None), shard, "this key needs 5,000 write units a second"),
            (of(5_000, Some(1)), short_of, "1 partition gives 1,000 write units a second"),
            (of(5_000, Some(4)), short_of, "4 partitions give 4,000 write units a second"),
            (of(200_000, Some(1_000)), shard, "200,000 write units"),
            (of(1_000_000, Some(100_000)), shard, "1,000,000"),
            (of(210_000, Some(3_000)), shard, "(if MAX_SHARDS is raised: it is 200)"),
            (large, "Too much for one key: ", "take 1,000,000."),
            (short, short_of, "on 30 partitions would be enough: before the peak, raise"),
            (
                read,
                "Reads exceed a partition: ",
                "the pages of the key take 62,500 read units a second, and one",
            ),
            (both, shard, "Reads also exceed a partition: the pages of each shard take"),
        ];
        for (options, verdict, part) in rows {
            let text = plan(&options).verdict();
            assert!(text.starts_with(verdict), "{options:?}: {text}");
            assert!(text.contains(part), "{options:?}: {text}");
        }
    }

    #[test]
    fn the_requested_number_is_judged() {
        let options = PlanOptions { shards: Some(5), ..PlanOptions::of(5_000, Some(8)) };
        let text = plan(&options).report().to_string();
        let verdict = "With 5 shards it is 22.1 %, and under 2 % with";
        for part in
            [verdict, "5, as requested", "| 5 shards, even", "| > 5 ", "| 2 ", "| 10 ", "| 20 "]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_plan_has_notes() {
        let large = PlanOptions { item_size: 102_400, ..PlanOptions::of(50_000, None) };
        let notes = plan(&large).notes().join("\n");
        for part in ["40,000 write units", "writes of 100 units", "20 of the 100 items"] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
        assert_eq!(plan(&PlanOptions::of(300, None)).notes(), Vec::<String>::new());
    }
}
