//! The report of a plan.

use cli::numbers::{counted, decimal, dollars, percent, whole};

use super::costs::{self, Bill, SERVICES};
use super::figures::Plan;
use super::partitions::NEW_TABLE;
use super::throttling::{MOST_SHARDS, NEGLIGIBLE};
use super::verdict::raised;
use crate::report::{Report, table};

impl Plan {
    pub(crate) fn report(&self) -> Report {
        let mut report = Report::of(self);
        report.text(&self.verdict.text);
        report.lines([
            ("demand", self.demand_line()),
            ("partitions", self.partitions_line()),
            ("shards", self.shards_line()),
            ("the policy", self.policy_line()),
        ]);
        self.report_throttling(&mut report);
        self.report_page(&mut report);
        self.report_costs(&mut report);
        self.report_at_rest(&mut report);
        if !self.notes.is_empty() {
            report.text(self.notes.join("\n"));
        }
        report
    }

    fn demand_line(&self) -> String {
        let demand = &self.demand;
        let keys = match demand.keys {
            1 => String::new(),
            keys => format!(", shared by {}", counted(keys, "key")),
        };
        format!(
            "{} a second: {} of {} ({} bytes, started KBs){keys}",
            counted(demand.write_units_per_second.round() as u64, "write unit"),
            counted(demand.writes_per_second.round() as u64, "write"),
            counted(demand.units_per_write, "unit"),
            whole(f64::from(demand.item_bytes)),
        )
    }

    fn partitions_line(&self) -> String {
        let partitions = &self.partitions;
        let origin = match (partitions.assumed, partitions.count == NEW_TABLE) {
            (false, _) => String::new(),
            (true, true) => ", as in a new table".to_owned(),
            (true, false) => format!(
                ", as in a table that has served this demand before (a new one has {NEW_TABLE})"
            ),
        };
        let count = whole(f64::from(partitions.count));
        format!("{count} of {} write units a second{origin}", whole(partitions.write_units))
    }

    fn shards_line(&self) -> String {
        let shards = &self.shards;
        let on_paper = shards.on_paper;
        let fewest = match shards.fewest {
            Some(1) => "one is enough".to_owned(),
            Some(fewest) => format!(
                "{on_paper} in theory, but shards share partitions: under 2 % is throttled from {fewest} on"
            ),
            None => format!(
                "{on_paper} in theory, but on these partitions, more than 2 % is throttled even with {MOST_SHARDS}"
            ),
        };
        let requested = if shards.asked_for { ", as requested" } else { "" };
        format!("{}{requested}{}; {fewest}", shards.judged, raised(shards.judged))
    }

    fn policy_line(&self) -> String {
        let policy = &self.shards.policy;
        let keys = if self.demand.keys == 1 { "the key" } else { "each key" };
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
        format!("gives {keys} {} ({why})", counted(policy.shards, "shard"))
    }

    fn report_throttling(&self, report: &mut Report) {
        let here = format!("throttled on {}", counted(self.partitions.count, "partition"));
        let there = format!("on {NEW_TABLE} (a new table)");
        // On a new table, both columns would be the same.
        let columns = if self.partitions.count == NEW_TABLE { 3 } else { 4 };
        let mut table = table(&["shards", "units/s of each", &here, &there][..columns]);
        for row in &self.throttling {
            let mark = if row.shards == self.shards.judged { "> " } else { "" };
            let cells = [
                format!("{mark}{}", row.shards),
                decimal(row.units_per_shard),
                percent(row.throttled),
                percent(row.throttled_on_a_new_table),
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
        let names = ["requests", "read units", "times", "latency, times", "slowest request, times"];
        let mut table = table(&[&["a page"], &names[..]].concat());
        let mut add = |name: &str, requests: u32, units: f64, latency: f64, slowest: f64| {
            table.add_row([
                name.to_owned(),
                requests.to_string(),
                decimal(units),
                format!("{:.2}", units / page.units.unsharded),
                format!("{latency:.2}"),
                format!("{slowest:.2}"),
            ]);
        };
        add("unsharded", page.unsharded_requests, units.unsharded, 1.0, 1.0);
        let size = whole(f64::from(self.demand.item_bytes));
        let items = format!("{} of {size} bytes.", counted(page.items, "item"));
        if page.shards == 1 {
            return report.table(&table, &items);
        }
        let (shards, slowest) = (counted(page.shards, "shard"), latency.slowest_of_all);
        add(&format!("{shards}, even sort keys"), page.requests, units.even, latency.even, slowest);
        let uneven = format!("{shards}, uneven sort keys");
        add(&uneven, page.requests, units.uneven, latency.uneven, slowest);
        let note = format!(
            "{items} Units: calculated (at least {}), times the overhead measured in docs/costs.md. Latency: as measured \
             there, if every request takes the same time{}. The slowest request comes on top, if one in a hundred takes \
             three times the median (assumed).",
            decimal(page.units.least),
            if page.shards > 64 { ", 64 at once (measured up to 64 shards)" } else { "" },
        );
        report.table(&table, &note);
    }

    fn report_costs(&self, report: &mut Report) {
        let cost = &self.monthly_cost;
        let mut table = table(&[&["a month"], &SERVICES[..], &["together"]].concat());
        for bill in [&cost.unsharded, &cost.own_service, &cost.functions] {
            let each = SERVICES.map(|service| of_service(bill, service));
            let name = std::iter::once(bill.name.to_owned());
            table.add_row(name.chain(each).chain([dollars(bill.usd)]));
        }
        let storage = &cost.storage_of_a_months_items;
        let of_profile = cost.functions.lines.iter().any(|line| line.what == costs::STORED_LOGS);
        let left_out =
            if of_profile { "" } else { "Stored logs and X-Ray are left out (--profile). " };
        let note = format!(
            "Prices of {}; adviser/prices.json has the source of each, and how sure it is. The first line is DynamoDB's bill if one key could take the whole demand. Reads assume uneven \
             sort keys. {} {left_out}Storing each month's items adds {} a month ({} GB), sharded or not.",
            self.prices,
            costs::ASSUMED,
            dollars(storage.usd),
            whole(storage.quantity),
        );
        report.table(&table, &note);
    }

    fn report_at_rest(&self, report: &mut Report) {
        let profiles = self.at_rest.profiles.each_ref();
        let names = profiles.map(|stack| stack.profile);
        let mut table = table(&[&["at rest, a month"], &names[..]].concat());
        for (part, (name, _)) in profiles[0].parts.iter().enumerate() {
            let cell = |usd: f64| if usd > 0.0 { dollars(usd) } else { "-".to_owned() };
            let [first, second, third] = profiles.map(|stack| cell(stack.parts[part].1));
            table.add_row([(*name).to_owned(), first, second, third]);
        }
        let [first, second, third] = profiles.map(|stack| dollars(stack.usd));
        table.add_row(["together".to_owned(), first, second, third]);
        let note = format!(
            "The costs of a stack of each profile without requests. The month above also includes Contributor Insights. \
             Each stored GB adds {}, with point-in-time recovery.",
            dollars(self.at_rest.usd_per_stored_gb),
        );
        report.table(&table, &note);
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
