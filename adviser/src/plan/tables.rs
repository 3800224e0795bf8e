//! The plan as text.

use std::fmt;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use embedded_dynamodb::PartitionLimits;
use sharding::internal::{MAX_COPIES, ScalingPolicy};

use super::at_rest::IdlePart;
use super::costs::{self, Bill, Service};
use super::report::Report;
use super::throttling::{MOST_SHARDS, NEGLIGIBLE};
use cli::numbers::{counted, decimal, dollars, percent, whole};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.verdict.text)?;
        self.write_demand(f)?;
        self.write_shards(f)?;
        self.write_policy(f)?;
        self.write_directory(f)?;
        self.write_throttling(f)?;
        self.write_page(f)?;
        self.write_costs(f)?;
        writeln!(f, "\nDynamoDB by itself: {}", self.verdict.split_for_heat)?;
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        Ok(())
    }
}

impl Report {
    fn write_demand(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let demand = &self.demand;
        let keys = if demand.keys == 1 {
            String::new()
        } else {
            format!(", shared by {}", counted(demand.keys, "key"))
        };
        writeln!(
            f,
            "demand      {} a second: {} of {} ({} bytes, started KBs){keys}",
            counted(demand.write_units_per_second.round() as u64, "write unit"),
            counted(demand.writes_per_second.round() as u64, "write"),
            counted(demand.units_per_write, "unit"),
            whole(f64::from(demand.item_bytes)),
        )?;
        let new_table = PartitionLimits::default().partitions;
        let origin = match (self.partitions.assumed, self.partitions.count == new_table) {
            (false, _) => String::new(),
            (true, _) if self.partitions.capped => {
                format!(
                    ", the most that this plan assumes (a table that has served this demand before has more, a new one \
                     has {new_table})"
                )
            }
            (true, true) => ", as in a new table".to_owned(),
            (true, false) => {
                format!(
                    ", as in a table that has served this demand before (a new one has {new_table})"
                )
            }
        };
        writeln!(
            f,
            "partitions  {} of {} write units a second{origin}",
            whole(f64::from(self.partitions.count)),
            whole(self.partitions.write_units)
        )
    }

    fn write_shards(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards = &self.shards;
        let fewest = match shards.fewest {
            Some(1) => "one is enough".to_owned(),
            Some(fewest) => {
                format!(
                    "{} in theory, but shards share partitions: under 2 % is throttled from {fewest} on",
                    shards.on_paper
                )
            }
            None => {
                format!(
                    "{} in theory, but on these partitions, more than 2 % is throttled even with {MOST_SHARDS}",
                    shards.on_paper
                )
            }
        };
        let requested = if shards.asked_for { ", as requested" } else { "" };
        let most = ScalingPolicy::default().max_shards.get();
        let raised = if shards.judged > most {
            format!(" (if MAX_SHARDS is raised: it is {most})")
        } else {
            String::new()
        };
        writeln!(f, "shards      {}{requested}{raised}; {fewest}", shards.judged)
    }

    fn write_policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        writeln!(f, "the policy  gives {keys} {} ({why})", counted(policy.shards, "shard"))
    }

    fn write_directory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let need = &self.directory;
        let origin = if need.assumed { ", as many as the demand keeps busy" } else { "" };
        let copies = match &need.event {
            None => "one copy of each page is enough".to_owned(),
            Some(_) if need.copies > MAX_COPIES => {
                format!(
                    "{} copies of each page would be needed, and a table has at most {MAX_COPIES}",
                    need.copies
                )
            }
            Some(event) => format!(
                "{} copies of each page (a new table has one; to raise them, invoke the shard-scaler with {event})",
                need.copies
            ),
        };
        let read = counted(need.read_units_per_second.round() as u64, "unit");
        writeln!(
            f,
            "directory   {} at once{origin}: {copies}; the pages are read for {read} a second, {} a month\n",
            counted(need.instances, "instance"),
            dollars(need.usd),
        )
    }

    fn write_throttling(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let new_table = PartitionLimits::default().partitions;
        let here = format!("throttled on {}", counted(self.partitions.count, "partition"));
        let there = format!("on {new_table} (a new table)");
        let mut names = vec!["shards", "units/s of each", &here];
        let both = self.partitions.count != new_table;
        names.extend(both.then_some(there.as_str()));
        let mut table = table(&names);
        for row in &self.throttling {
            let mark = if row.shards == self.shards.judged { "> " } else { "" };
            let mut cells = vec![
                format!("{mark}{}", row.shards),
                decimal(row.units_per_shard),
                percent(row.throttled),
            ];
            cells.extend(both.then(|| percent(row.throttled_on_a_new_table)));
            table.add_row(cells);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "Expected share of the first attempts that is throttled, over all placements of the shards, without retries, \
             after partitions have spent their saved burst capacity. The policy tolerates less than {} %.\n",
            decimal(NEGLIGIBLE * 100.0),
        )
    }

    fn write_page(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = &self.page;
        let mut table = table(&[
            "a page",
            "requests",
            "read units",
            "times",
            "latency, times",
            "slowest request, times",
        ]);
        let times = |units: f64| format!("{:.2}", units / page.units.unsharded);
        table.add_row(
            [
                "unsharded",
                &page.unsharded_requests.to_string(),
                &decimal(page.units.unsharded),
                "1.00",
                "1.00",
                "1.00",
            ]
            .map(str::to_owned),
        );
        let rows = [
            ("even sort keys", page.units.even, page.latency.even),
            ("uneven sort keys", page.units.uneven, page.latency.uneven),
        ];
        for (name, units, latency) in rows.into_iter().filter(|_| page.shards > 1) {
            table.add_row([
                format!("{}, {name}", counted(page.shards, "shard")),
                page.requests.to_string(),
                decimal(units),
                times(units),
                format!("{latency:.2}"),
                format!("{:.2}", page.latency.slowest_of_all),
            ]);
        }
        writeln!(f, "{table}")?;
        let items = format!(
            "{} of {} bytes",
            counted(page.items, "item"),
            whole(f64::from(self.demand.item_bytes))
        );
        if page.shards == 1 {
            return writeln!(f, "{items}.\n");
        }
        writeln!(
            f,
            "{items}. Units: calculated (at least {}), times the overhead measured in docs/costs.md. Latency: as measured \
             there, if every request takes the same time{}. The slowest request comes on top, if one in a hundred takes \
             three times the median (assumed).\n",
            decimal(page.units.least),
            if page.shards > 64 { ", 64 at once (measured up to 64 shards)" } else { "" },
        )
    }

    fn write_costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cost = &self.monthly_cost;
        let mut names = vec!["a month"];
        names.extend(Service::ALL.map(Service::name));
        names.push("together");
        let mut table = table(&names);
        for bill in [&cost.unsharded, &cost.own_service, &cost.functions] {
            let mut row = vec![bill.name.to_owned()];
            row.extend(Service::ALL.map(|service| of_service(bill, service)));
            row.push(dollars(bill.usd));
            table.add_row(row);
        }
        writeln!(f, "{table}")?;
        let storage = &cost.storage_of_a_months_items;
        let of_profile = cost.functions.lines.iter().any(|line| line.what == costs::STORED_LOGS);
        let left_out =
            if of_profile { "" } else { "Stored logs and X-Ray are left out (--profile). " };
        writeln!(
            f,
            "Prices of {}. The first line is DynamoDB's bill if one key could take the whole demand. Reads assume uneven \
             sort keys. {} {left_out}Storing each month's items adds {} a month ({} GB), sharded or not.",
            self.prices,
            costs::ASSUMED,
            dollars(storage.usd),
            whole(storage.quantity),
        )?;
        self.write_at_rest(f)
    }

    fn write_at_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profiles = &self.at_rest.profiles;
        let mut names = vec!["at rest, a month"];
        names.extend(profiles.iter().map(|stack| stack.profile));
        let mut table = table(&names);
        let cell = |usd: f64| if usd > 0.0 { dollars(usd) } else { "-".to_owned() };
        for part in IdlePart::ALL {
            let mut row = vec![part.name().to_owned()];
            row.extend(profiles.iter().map(|stack| cell(stack.usd_of(part))));
            table.add_row(row);
        }
        let mut together = vec!["together".to_owned()];
        together.extend(profiles.iter().map(|stack| dollars(stack.usd)));
        table.add_row(together);
        writeln!(f, "\n{table}")?;
        writeln!(
            f,
            "The costs of a stack of each profile without requests. The month above also includes Contributor Insights. \
             Each stored GB adds {}, with point-in-time recovery.",
            dollars(self.at_rest.usd_per_stored_gb),
        )
    }
}

fn of_service(bill: &Bill, service: Service) -> String {
    let usd: f64 =
        bill.lines.iter().filter(|line| line.service == service).map(|line| line.usd).sum();
    let share =
        bill.shares.iter().find(|share| share.service == service).map_or(0.0, |share| share.share);
    if usd > 0.0 { format!("{} ({:.0} %)", dollars(usd), share * 100.0) } else { "-".to_owned() }
}

/// A table whose first column has names, and whose other columns have numbers.
fn table(names: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(names);
    for column in 1..names.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
