//! The figures of a plan.

use std::collections::BTreeSet;

use serde::Serialize;

use super::at_rest::{AtRest, at_rest};
use super::case::Case;
use super::costs::{MonthlyCost, month};
use super::demand::Demand;
use super::options::PlanOptions;
use super::partitions::{NEW_TABLE, TABLE_QUOTA, TablePartitions, partitions};
use super::prices::Prices;
use super::reads::{PageCost, page};
use super::shards::{ShardChoice, shard_choice};
use super::throttling::{MOST_SHARDS, ThrottlingRow, throttled};
use super::verdict::{Verdict, judge};
use cli::numbers::whole;

/// From this number of units on, a few writes that coincide exceed a partition.
const LARGE_WRITE: u32 = 100;

#[derive(Debug, Serialize)]
pub(crate) struct Plan {
    pub(crate) verdict: Verdict,
    pub(crate) demand: Demand,
    pub(crate) partitions: TablePartitions,
    pub(crate) shards: ShardChoice,
    pub(crate) throttling: Vec<ThrottlingRow>,
    pub(crate) page: PageCost,
    pub(crate) monthly_cost: MonthlyCost,
    pub(crate) at_rest: AtRest,
    /// The region of the prices, and the day on which they were collected.
    pub(crate) prices: String,
    pub(crate) notes: Vec<String>,
}

pub(crate) fn plan(options: &PlanOptions) -> Plan {
    let prices = Prices::published();
    let demand = Demand::new(options.write_rate, options.item_size, options.keys);
    let partitions = partitions(options, &demand);
    let shards = shard_choice(options, &demand, &partitions);
    let page = page(options.page_size, options.item_size, shards.judged, options.consistent);
    let case = Case {
        options,
        demand: &demand,
        partitions: &partitions,
        shards: &shards,
        page: &page,
        prices: &prices,
    };
    Plan {
        verdict: judge(&case),
        monthly_cost: month(&case),
        at_rest: at_rest(&prices),
        notes: notes(options, &demand, &page),
        prices: format!(
            "{}, {}, collected on {}",
            prices.region, prices.currency, prices.assembled_on
        ),
        throttling: throttling(&demand, &shards, partitions.count),
        demand,
        partitions,
        shards,
        page,
    }
}

fn notes(options: &PlanOptions, demand: &Demand, page: &PageCost) -> Vec<String> {
    let quota = (demand.write_units_per_second > TABLE_QUOTA).then(|| {
        let quota = whole(TABLE_QUOTA);
        format!("A table serves {quota} write units a second until its quota is raised.")
    });
    let units = demand.units_per_write;
    let large = (units >= LARGE_WRITE).then(|| {
        format!(
            "A partition takes writes of {units} units only until it has spent the units of a second. Writes that \
             coincide are throttled below its rate, which this plan does not count."
        )
    });
    let short = page.ends_early.then(|| {
        format!("A page ends at about 2 MB: {} of the {} items.", page.items, options.page_size)
    });
    [quota, large, short].into_iter().flatten().collect()
}

/// Rows of the judged number of shards, its half, double and quadruple, and of the other numbers
/// that the plan names.
fn throttling(demand: &Demand, choice: &ShardChoice, partitions: u32) -> Vec<ThrottlingRow> {
    let judged = choice.judged;
    let all = [1, choice.on_paper, judged / 2, judged, judged * 2, judged * 4];
    let all: BTreeSet<u32> = all.into_iter().chain(choice.fewest).collect();
    all.range(1..=MOST_SHARDS)
        .map(|&shards| ThrottlingRow {
            shards,
            units_per_shard: demand.units_per_shard(shards),
            throttled: throttled(demand, shards, partitions),
            throttled_on_a_new_table: throttled(demand, shards, NEW_TABLE),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::verdict::VerdictKind;

    #[test]
    fn each_case_has_its_verdict() {
        use VerdictKind::{Leave, ReadsOverrun, Shard, ShortOfPartitions, TooMuch};
        let of = PlanOptions::of;
        let large = PlanOptions { item_size: 2_000, ..of(1_000_000, None) };
        let short = PlanOptions { shards: Some(5), ..of(10_000, Some(8)) };
        let eight = PlanOptions { keys: 8, ..of(2_400, None) };
        let read = PlanOptions { read_rate: 5_000, ..of(300, None) };
        let both = PlanOptions { read_rate: 5_000, shards: Some(2), ..of(5_000, None) };
        let rows = [
            (of(300, None), Leave, "takes 1,000 write units a second, and this key needs 300"),
            (of(1_005, None), Leave, "Retries absorb the small excess"),
            (of(5_000, None), Shard, "this key needs 5,000 write units a second"),
            (of(5_000, Some(1)), ShortOfPartitions, "1 partition gives 1,000 write units a second"),
            (of(5_000, Some(4)), ShortOfPartitions, "4 partitions give 4,000 write units a second"),
            (of(200_000, Some(1_000)), Shard, "200,000 write units"),
            (of(1_000_000, Some(100_000)), Shard, "1,000,000"),
            (of(210_000, Some(3_000)), Shard, "(if MAX_SHARDS is raised: it is 200)"),
            (large, TooMuch, "take 1,000,000."),
            (short, ShortOfPartitions, "on 30 partitions would be enough: before the peak, raise"),
            (eight, Shard, "each of these keys needs 300"),
            (read, ReadsOverrun, "the pages of the key take 62,500 read units a second, and one"),
            (both, Shard, "Reads also exceed a partition: the pages of each shard take"),
        ];
        for (options, kind, part) in rows {
            let plan = plan(&options);
            assert_eq!(plan.verdict.kind, kind, "{options:?}: {}", plan.verdict.text);
            assert!(plan.verdict.text.contains(part), "{}", plan.verdict.text);
            assert!(plan.report().to_string().starts_with(&plan.verdict.text));
        }
    }

    #[test]
    fn the_requested_number_is_judged() {
        let report = plan(&PlanOptions { shards: Some(5), ..PlanOptions::of(5_000, Some(8)) });
        assert_eq!((report.shards.judged, report.page.shards), (5, 5));
        let text = report.report().to_string();
        let verdict = "With 5 shards it is 22.1 %, and under 2 % with";
        for part in [verdict, "5, as requested", "| > 5 ", "| 2 ", "| 10 ", "| 20 "] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_plan_has_notes() {
        let large = PlanOptions { item_size: 102_400, ..PlanOptions::of(50_000, None) };
        let notes = plan(&large).notes.join("\n");
        for part in ["40,000 write units", "writes of 100 units", "20 of the 100 items"] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
        assert_eq!(plan(&PlanOptions::of(300, None)).notes, Vec::<String>::new());
    }

    #[test]
    fn the_json_has_every_part() {
        let json = serde_json::to_value(plan(&PlanOptions::of(5_000, None))).unwrap();
        for path in [
            "/verdict/kind",
            "/demand/write_units_per_second",
            "/partitions/assumed",
            "/shards/policy/shards",
            "/shards/policy/is_short",
            "/throttling/0/throttled",
            "/page/units/even",
            "/monthly_cost/functions/lines/0/usd",
            "/at_rest/profiles/0/usd",
            "/at_rest/usd_per_stored_gb",
        ] {
            assert!(json.pointer(path).is_some(), "{path}: {json}");
        }
        assert_eq!(json["verdict"]["kind"], "shard");
    }
}
