//! Calculates the plan, as data.

use embedded_dynamodb::PartitionLimits;
use serde::Serialize;
use sharding::internal::ScalingPolicy;

use super::admission::Admission;
use super::at_rest::{self, AtRest};
use super::costs::{self, MonthlyCost};
use super::demand::Demand;
use super::directory::{self, DirectoryNeed};
use super::heat::{SplitForHeat, split_for_heat};
use super::notes;
use super::options::PlanOptions;
use super::partitions::{TablePartitions, partitions};
use super::policy::{self, PolicyShards};
use super::prices::{Prices, PricesError};
use super::reads::{self, PageCost};
use super::throttling::{MOST_SHARDS, ThrottlingRow, fewest_partitions, fewest_shards, throttled};
use super::usage::Usage;
use super::verdict::{Case, Reads, Verdict, judge};

/// The plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Whether to shard the key.
    pub verdict: Verdict,
    /// The demand.
    pub demand: Demand,
    /// The table's partitions.
    pub partitions: TablePartitions,
    /// The number of shards that each key needs.
    pub shards: ShardChoice,
    /// The throttled share, by number of shards.
    pub throttling: Vec<ThrottlingRow>,
    /// The cost of a page.
    pub page: PageCost,
    /// The needs of the directory.
    pub directory: DirectoryNeed,
    /// The effect of DynamoDB's own split.
    pub split_for_heat: SplitForHeat,
    /// The costs of a month.
    pub monthly_cost: MonthlyCost,
    /// The costs of a month of an idle stack.
    pub at_rest: AtRest,
    /// The region of the prices, and the day on which they were collected.
    pub prices: String,
    /// Further notes.
    pub notes: Vec<String>,
}

/// Numbers of shards of each key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShardChoice {
    /// The number that this plan judges: the requested one, or the policy's.
    pub judged: u32,
    /// Whether the user requested the number.
    pub asked_for: bool,
    /// The number that would be enough if each shard had its own partition.
    pub on_paper: u32,
    /// The fewest with which less than 2 % is throttled on these partitions; absent if no number is
    /// enough.
    pub fewest: Option<u32>,
    /// The fewest partitions on which less than 2 % is throttled with the judged number; absent if
    /// no number is enough.
    pub fewest_partitions: Option<u32>,
    /// The number that this product's policy gives a key.
    pub policy: PolicyShards,
    /// The expected share of the first attempts that is throttled with the judged number.
    pub throttled: f64,
}

/// Calculates the plan for a demand.
///
/// # Errors
/// The price file is invalid.
pub fn plan(options: &PlanOptions) -> Result<Report, PricesError> {
    let prices = Prices::published()?;
    let demand = Demand::new(options.write_rate, options.item_size, options.keys);
    let partitions = partitions(options, &demand);
    let admission = Admission::new(partitions.write_units, demand.units_per_write);
    let shards = shard_choice(options, &demand, &admission, &partitions);
    let page = reads::page(options.page_size, options.item_size, shards.judged, options.consistent);
    let unsharded = throttled(&demand, &admission, 1, partitions.count);
    let split_for_heat =
        split_for_heat(&demand, &admission, unsharded, options.sort_key_order, partitions.count);
    let reads = reads(options, &page, partitions.read_units);
    let usage = Usage {
        demand: &demand,
        pages_per_second: f64::from(options.read_rate),
        page: &page,
        throttled: shards.throttled,
        capacity: options.capacity,
        items_per_request: options.items_per_request,
        architecture: options.architecture,
        profile: options.profile.map(at_rest::Profile::of),
        instances: options.instances,
    };
    let directory = directory::need(&usage, &prices);
    let monthly_cost = costs::month(&usage, &prices);
    let in_batches = costs::month(&Usage { items_per_request: notes::BATCH, ..usage }, &prices);
    let case = Case {
        demand: &demand,
        rate: admission.rate(),
        partitions: partitions.count,
        unsharded,
        shards: shards.judged,
        throttled: shards.throttled,
        fewest_shards: shards.fewest,
        enough: policy::enough(&demand, &admission, partitions.count),
        usd_per_warm_unit: prices.dynamodb_warm_write_units.of(1.0),
        heat: &split_for_heat,
        reads: &reads,
    };
    Ok(Report {
        verdict: judge(&case),
        notes: notes::notes(&notes::Known {
            options,
            demand: &demand,
            partitions: &partitions,
            page: &page,
            cost: &monthly_cost,
            in_batches: &in_batches.functions,
        }),
        prices: format!(
            "{}, {}, collected on {}",
            prices.region, prices.currency, prices.assembled_on
        ),
        throttling: throttling(&demand, &admission, &shards, partitions.count),
        demand,
        partitions,
        shards,
        page,
        directory,
        split_for_heat,
        monthly_cost,
        at_rest: at_rest::at_rest(options.architecture, &prices),
    })
}

fn shard_choice(
    options: &PlanOptions,
    demand: &Demand,
    admission: &Admission,
    partitions: &TablePartitions,
) -> ShardChoice {
    let most = ScalingPolicy::default().max_shards.get();
    let policy = policy::shards(demand, admission, partitions.count, most);
    let judged = options.shards.unwrap_or(policy.shards);
    ShardChoice {
        judged,
        asked_for: options.shards.is_some(),
        on_paper: on_paper(demand, partitions.write_units),
        fewest: fewest_shards(demand, admission, partitions.count),
        fewest_partitions: fewest_partitions(demand, admission, judged),
        policy,
        throttled: throttled(demand, admission, judged, partitions.count),
    }
}

/// The throttled shares around the judged number of shards.
fn throttling(
    demand: &Demand,
    admission: &Admission,
    shards: &ShardChoice,
    partitions: u32,
) -> Vec<ThrottlingRow> {
    let new_table = PartitionLimits::default().partitions;
    neighbours(shards)
        .into_iter()
        .map(|shards| ThrottlingRow {
            shards,
            units_per_shard: demand.units_per_shard(shards),
            throttled: throttled(demand, admission, shards, partitions),
            throttled_on_a_new_table: throttled(demand, admission, shards, new_table),
        })
        .collect()
}

/// The read units that the pages take from one partition.
fn reads(options: &PlanOptions, page: &PageCost, rate: f64) -> Reads {
    let pages = f64::from(options.read_rate) / f64::from(options.keys);
    let of_key = pages * page.units.unsharded;
    let over = |shards: u32| {
        let page = reads::page(options.page_size, options.item_size, shards, options.consistent);
        pages * page.units.uneven
    };
    let fewest = || {
        (2..=MOST_SHARDS)
            .map(|shards| (shards, over(shards)))
            .find(|(shards, all)| all / f64::from(*shards) <= rate)
    };
    Reads {
        of_key,
        of_shard: if page.shards == 1 {
            of_key
        } else {
            pages * page.units.uneven / f64::from(page.shards)
        },
        rate,
        consistent: options.consistent,
        fewest_shards: if of_key > rate { fewest() } else { None },
    }
}

fn on_paper(demand: &Demand, rate: f64) -> u32 {
    (demand.units_per_key() / rate).ceil().max(1.0) as u32
}

/// The judged number, its half, double and quadruple, and the numbers that the plan names.
fn neighbours(shards: &ShardChoice) -> Vec<u32> {
    let judged = shards.judged;
    let mut all: Vec<u32> = [1, shards.on_paper, judged / 2, judged, judged * 2, judged * 4]
        .into_iter()
        .chain(shards.fewest)
        .filter(|shards| (1..=MOST_SHARDS).contains(shards))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::options::tests::options;
    use crate::plan::{SortKeyOrder, VerdictKind};

    fn plan_now(options: &PlanOptions) -> Report {
        plan(options).unwrap()
    }

    #[test]
    fn each_case_has_its_verdict() {
        let rows = [
            (
                options(300, None),
                VerdictKind::Leave,
                "one partition takes 1,000 write units a second, and this key needs 300",
            ),
            (options(1_005, None), VerdictKind::Leave, "Retries absorb the small excess"),
            (options(5_000, None), VerdictKind::Shard, "this key needs 5,000 write units a second"),
            (
                options(5_000, Some(1)),
                VerdictKind::ShortOfPartitions,
                "1 partition gives 1,000 write units a second",
            ),
            (
                options(5_000, Some(4)),
                VerdictKind::ShortOfPartitions,
                "4 partitions give 4,000 write units a second",
            ),
            (
                PlanOptions { sort_key_order: SortKeyOrder::Scattered, ..options(2_500, None) },
                VerdictKind::SplitForHeat,
                "DynamoDB's own split is enough after about",
            ),
            (
                PlanOptions {
                    sort_key_order: SortKeyOrder::Scattered,
                    ..options(200_000, Some(1_000))
                },
                VerdictKind::Shard,
                "200,000 write units",
            ),
            (options(1_000_000, Some(100_000)), VerdictKind::Shard, "1,000,000"),
            (
                PlanOptions { item_size: 2_000, ..options(1_000_000, None) },
                VerdictKind::TooMuch,
                "take 1,000,000.",
            ),
            (
                PlanOptions { shards: Some(5), ..options(10_000, Some(8)) },
                VerdictKind::ShortOfPartitions,
                "on 30 partitions would be enough: before the peak, raise the table's warm throughput to 30,000 write units a second (about $14.30, charged once)",
            ),
            (
                PlanOptions { keys: 8, ..options(2_400, None) },
                VerdictKind::Shard,
                "each of these keys needs 300",
            ),
            (
                PlanOptions { read_rate: 5_000, ..options(300, None) },
                VerdictKind::ReadsOverrun,
                "Reads exceed a partition: the pages of the key take 62,500 read units a second, and one partition \
                 serves 3,000, so 95.2 %",
            ),
            (
                PlanOptions { read_rate: 5_000, shards: Some(2), ..options(5_000, None) },
                VerdictKind::Shard,
                "Reads also exceed a partition: the pages of each shard take",
            ),
            (
                options(210_000, Some(3_000)),
                VerdictKind::Shard,
                "(if MAX_SHARDS is raised: it is 200)",
            ),
        ];
        for (options, kind, part) in rows {
            let report = plan_now(&options);
            assert_eq!(report.verdict.kind, kind, "{options:?}: {}", report.verdict.text);
            assert!(report.verdict.text.contains(part), "{}", report.verdict.text);
            assert!(report.to_string().starts_with(&report.verdict.text));
        }
    }

    #[test]
    fn large_writes_are_judged_as_single_writes_and_not_as_a_flow() {
        for order in [SortKeyOrder::Scattered, SortKeyOrder::Rising] {
            let large =
                PlanOptions { item_size: 409_600, sort_key_order: order, ..options(2, None) };
            let report = plan_now(&large);
            let Verdict { kind, text, split_for_heat } = &report.verdict;
            assert_eq!(*kind, VerdictKind::Shard, "{text}");
            let unsharded = cli::numbers::percent(report.throttling[0].throttled);
            assert!(
                text.contains(&format!("takes 400 of them: when writes coincide, {unsharded} of")),
                "{text}"
            );
            assert!(
                split_for_heat.contains(&unsharded) && !split_for_heat.contains("0 minutes"),
                "{split_for_heat}"
            );
        }
    }

    #[test]
    fn keys_that_share_a_partition_are_not_relieved_at_once() {
        // Eight keys with 300 units each on five partitions: in some placements, they fit.
        let options = PlanOptions {
            keys: 8,
            sort_key_order: SortKeyOrder::Scattered,
            ..options(2_400, None)
        };
        let verdict = plan_now(&options).verdict;
        assert!(
            !verdict.text.contains("0 minutes") && !verdict.text.contains("until then, 0 %"),
            "{}",
            verdict.text
        );
    }

    #[test]
    fn the_bound_of_assumed_partitions_is_reported() {
        let report =
            plan_now(&PlanOptions { item_size: 204_800, keys: 1_000, ..options(1_000_000, None) });
        assert!(report.partitions.capped);
        let text = report.to_string();
        assert!(
            text.contains("100,000 of 1,000 write units a second, the most that this plan assumes (a table that has"),
            "{text}"
        );
    }

    #[test]
    fn the_requested_number_is_judged() {
        let report = plan_now(&PlanOptions { shards: Some(5), ..options(5_000, Some(8)) });
        assert_eq!((report.shards.judged, report.page.shards), (5, 5));
        assert!(
            report.verdict.text.contains("With 5 shards it is 22.1 %, and under 2 % with"),
            "{}",
            report.verdict.text
        );
        let text = report.to_string();
        for part in
            ["5, as requested", "| > 5 ", "| 2 ", "| 10 ", "| 20 ", "assume uneven sort keys"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_plan_has_notes() {
        let large = PlanOptions {
            item_size: 1_050,
            read_rate: 600,
            page_size: 1_000,
            ..options(50_000, None)
        };
        let notes = plan_now(&large).notes.join("\n");
        for part in [
            "would take 1 write unit and not 2",
            "40,000 write units",
            "from one partition, which serves 3,000; over",
            "25 items in each",
            "not verified",
        ] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
    }

    #[test]
    fn the_copies_that_the_instances_need_are_named_with_the_event_that_makes_them() {
        let few = plan_now(&options(5_000, None)).to_string();
        assert!(
            few.contains(
                "\ndirectory   31 instances at once, as many as the demand keeps busy: one copy"
            ),
            "{few}"
        );
        let many = PlanOptions { instances: Some(10_000), ..options(100_000, None) };
        let many = plan_now(&many).to_string();
        let expected = "\ndirectory   10,000 instances at once: 10 copies of each page (a new table has one; to raise them, invoke the \
                        shard-scaler with {\"action\":\"copies\",\"copies\":10}); the pages are read for 12,500 units a second, $4,106 a month";
        assert!(many.contains(expected), "{many}");
        let too_many =
            plan_now(&PlanOptions { instances: Some(100_000), ..options(500_000, None) })
                .to_string();
        assert!(
            too_many.contains("93 copies of each page would be needed, and a table has at most 64"),
            "{too_many}"
        );
    }

    #[test]
    fn the_json_has_every_part() {
        let json = serde_json::to_value(plan_now(&options(5_000, None))).unwrap();
        for path in [
            "/verdict/kind",
            "/demand/write_units_per_second",
            "/partitions/assumed",
            "/shards/policy/shards",
            "/shards/policy/is_short",
            "/throttling/0/throttled",
            "/page/units/even",
            "/directory/copies",
            "/split_for_heat/throttled_before",
            "/monthly_cost/functions/shares/0/share",
            "/monthly_cost/functions/lines/0/evidence",
            "/at_rest/profiles/0/usd",
            "/at_rest/profiles/0/lines/0/evidence",
            "/at_rest/usd_per_stored_gb",
        ] {
            assert!(json.pointer(path).is_some(), "{path}: {json}");
        }
        assert_eq!(json["verdict"]["kind"], "shard");
    }
}
