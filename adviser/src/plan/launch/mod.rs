//! The settings before a launch, which is a demand that starts all at once, on a known day.
//!
//! The settings must come before the launch, because a table that has never served the demand has
//! too few partitions for it, and a raise takes minutes. The first writes would be throttled with
//! any number of shards.

mod choice;
mod steps;
mod text;
mod warming;

use serde::Serialize;

use super::directory;
use super::error::PlanError;
use super::launch_time::LEAD_SECONDS;
use super::options::PlanOptions;
use super::prices::{Evidence, Prices};
use super::ready::{self, Ready};
use super::usage::Usage;
use choice::Compared;

pub use choice::LaunchChoice;
pub use steps::{LaunchStep, StepKind, TemplateSetting};
pub use warming::{WarmUnits, Warming};

/// Partitions of a new on-demand table.
const NEW_TABLE: u32 = embedded_dynamodb::PartitionLimits::NEW_ON_DEMAND_TABLE.partitions;

/// The settings before a launch, with their times and costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LaunchPlan {
    /// The time at which the demand starts, in RFC 3339 and UTC.
    pub at: String,
    /// The time at which everything must be set, an hour earlier.
    pub ready_by: String,
    /// Whether that time is past. Then everything must be set at once.
    pub is_late: bool,
    /// Whether the table is new, because the user gave no number of partitions.
    pub is_new_table: bool,
    /// The partitions and shards of this plan.
    pub chosen: LaunchChoice,
    /// All choices, fewest partitions first.
    pub choices: Vec<LaunchChoice>,
    /// The raises of the table and each named index.
    pub warming: Vec<Warming>,
    /// The reliability of the price of warming.
    pub price_of_warming: Evidence,
    /// The steps in order; empty if nothing has to be set.
    pub steps: Vec<LaunchStep>,
}

/// Plans the launch of the options; `None` if they name none, or if no number of shards serves the
/// demand.
///
/// # Errors
/// [`PlanError::Past`] if the launch is not after `now_seconds`, an epoch second.
pub(super) fn plan(
    options: &PlanOptions,
    usage: &Usage<'_>,
    ready: &[Ready],
    prices: &Prices,
    now_seconds: u64,
) -> Result<Option<LaunchPlan>, PlanError> {
    let Some(launch) = options.launch else { return Ok(None) };
    let left =
        launch.seconds_from(now_seconds).ok_or_else(|| PlanError::past(launch, now_seconds))?;
    let Some(chosen) = ready::chosen(ready) else { return Ok(None) };
    let now = WarmUnits::of_partitions(options.partitions.unwrap_or(NEW_TABLE));
    let compared = Compared { options, usage, now, prices };
    let chosen = compared.choice(chosen);
    let warming = warming::warming(&options.index, now, chosen.warm, prices);
    let ready_by = launch.earlier_by(LEAD_SECONDS);
    let is_late = left < u64::from(LEAD_SECONDS);
    let needs = steps::Needs {
        options,
        demand: usage.demand,
        chosen: &chosen,
        now,
        copies: directory::need(usage, prices).event,
        ready_by: (!is_late).then_some(ready_by),
    };
    Ok(Some(LaunchPlan {
        at: launch.to_string(),
        ready_by: ready_by.to_string(),
        is_late,
        is_new_table: options.partitions.is_none(),
        chosen,
        choices: ready.iter().map(|ready| compared.choice(*ready)).collect(),
        warming,
        price_of_warming: prices.dynamodb_warm_write_units.evidence,
        steps: steps::steps(&needs),
    }))
}

#[cfg(test)]
mod tests {
    use crate::plan::options::tests::options;
    use crate::plan::{
        CapacityMode, LaunchPlan, PlanError, PlanOptions, StepKind, WarmUnits, plan,
    };

    const NOON: u64 = 1_803_902_400;
    /// Five hours after noon.
    const LAUNCH: &str = "2027-03-01T17:00:00Z";

    fn launching(options: PlanOptions) -> PlanOptions {
        PlanOptions { launch: Some(LAUNCH.parse().unwrap()), ..options }
    }

    fn of(options: PlanOptions) -> LaunchPlan {
        plan(&launching(options), NOON).unwrap().launch.unwrap()
    }

    fn kinds(launch: &LaunchPlan) -> Vec<StepKind> {
        launch.steps.iter().map(|step| step.kind).collect()
    }

    #[test]
    fn each_case_has_its_steps() {
        use StepKind::{Copies, Limits, Provision, Quota, Schedule, SetShards, Warm};
        let read_replica = vec!["read-replica-1".to_owned()];
        let rows = [
            // A new table and one shard serve the demand.
            (options(300, None), vec![]),
            (options(3_000, None), vec![Warm, SetShards, Schedule, Limits]),
            (
                PlanOptions { index: read_replica, ..options(3_000, None) },
                vec![Warm, SetShards, Schedule, Limits],
            ),
            // The table has enough partitions.
            (options(3_000, Some(20)), vec![SetShards, Schedule, Limits]),
            (PlanOptions { keys: 4, ..options(2_000, None) }, vec![SetShards, Schedule, Limits]),
            (
                PlanOptions { capacity: CapacityMode::Provisioned, ..options(3_000, None) },
                vec![Provision, Warm, SetShards, Schedule, Limits],
            ),
            (
                PlanOptions { instances: Some(5_000), ..options(3_000, None) },
                vec![Warm, Copies, SetShards, Schedule, Limits],
            ),
            (options(50_000, None), vec![Quota, Warm, SetShards, Schedule, Limits]),
            (
                PlanOptions { items_per_request: 25, ..options(50_000, None) },
                vec![Quota, Warm, SetShards, Schedule, Limits],
            ),
            (
                PlanOptions { items_per_request: 25, ..options(5_000, None) },
                vec![Warm, SetShards, Schedule],
            ),
        ];
        for (options, expected) in rows {
            let launch = of(options.clone());
            assert_eq!(kinds(&launch), expected, "{options:?}: {launch}");
            assert!(launch.chosen.throttled < 0.01 && !launch.is_late, "{launch:?}");
            assert!(launch.choices.contains(&launch.chosen), "{launch:?}");
        }
    }

    #[test]
    fn a_new_table_is_warmed_for_twice_the_demand() {
        let launch = of(options(5_000, None));
        let (from, to) = (launch.warming[0].from, launch.warming[0].to);
        assert_eq!(from, WarmUnits { write_units: 4_000, read_units: 12_000 });
        assert_eq!(to, WarmUnits { write_units: 10_000, read_units: 12_000 });
        // 6,000 write units at 0.00065.
        assert!((launch.chosen.warming_usd - 3.9).abs() < 1e-9, "{launch:?}");
        // 18 million write units at 0.625 a million, and some reads.
        assert!((11.25..12.5).contains(&launch.chosen.hour.own_service_usd), "{launch:?}");
        assert_eq!(
            (launch.at.as_str(), launch.ready_by.as_str()),
            (LAUNCH, "2027-03-01T16:00:00Z")
        );
        let choices: Vec<(u32, u64)> = launch
            .choices
            .iter()
            .map(|choice| (choice.partitions, choice.warm.write_units))
            .collect();
        assert_eq!(choices, [(10, 10_000), (15, 15_000), (20, 20_000)]);
    }

    #[test]
    fn each_index_is_warmed_and_paid_as_the_table_is() {
        let index = vec!["read-replica-1".to_owned(), "read-replica-2".to_owned()];
        let (without, with) =
            (of(options(5_000, None)), of(PlanOptions { index, ..options(5_000, None) }));
        assert_eq!(with.warming.len(), 3);
        assert!(
            (with.chosen.warming_usd - 3.0 * without.chosen.warming_usd).abs() < 1e-9,
            "{with:?}"
        );
        // Two indexes add the cost of the writes twice.
        let more = with.chosen.hour.own_service_usd - without.chosen.hour.own_service_usd;
        assert!((more - 22.5).abs() < 1e-6, "{more}");
    }

    #[test]
    fn the_commands_are_complete() {
        let index = vec!["read-replica-1".to_owned()];
        let launch = of(PlanOptions { index, read_rate: 600, ..options(5_000, None) });
        let (shards, reads) = (launch.chosen.shards_per_key, launch.chosen.warm.read_units);
        let commands: Vec<&str> =
            launch.steps.iter().flat_map(|step| &step.commands).map(String::as_str).collect();
        let expected = [
            format!(
                "aws dynamodb update-table --table-name MAIN-TABLE \
                 --warm-throughput WriteUnitsPerSecond=10000,ReadUnitsPerSecond={reads} \
                 --global-secondary-index-updates '[{{\"Update\":{{\"IndexName\":\"read-replica-1\",\
                 \"WarmThroughput\":{{\"WriteUnitsPerSecond\":10000,\"ReadUnitsPerSecond\":{reads}}}}}}}]'"
            ),
            "aws dynamodb describe-table --table-name MAIN-TABLE \
             --query 'Table.[WarmThroughput,GlobalSecondaryIndexes[].[IndexName,WarmThroughput]]'"
                .to_owned(),
            format!(
                "echo '{{\"action\":\"set\",\"partition_key\":\"KEY\",\"number_of_shards\":{shards},\
                 \"write_units\":10000,\"read_units\":{reads}}}' > event.json"
            ),
            "aws lambda invoke --function-name SHARD-SCALER --payload fileb://event.json answer.json"
                .to_owned(),
        ];
        assert_eq!(commands, expected);
        let settings =
            &launch.steps.iter().find(|step| step.kind == StepKind::Schedule).unwrap().settings;
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        assert_eq!(
            settings,
            [
                "MaxWarmWriteUnits=10000".to_owned(),
                "PeakSchedule=cron(0 16 1 3 ? 2027)".to_owned(),
                "PeakTimezone=UTC".to_owned(),
                "PeakPartitionKey=KEY".to_owned(),
                format!("PeakShards={shards}"),
                "PeakWriteUnits=10000".to_owned(),
            ]
        );
    }

    #[test]
    fn more_shards_than_by_default_need_a_setting() {
        let launch = of(options(100_000, None));
        let shards = launch.chosen.shards_per_key;
        assert!(shards > 200, "{launch:?}");
        let set = launch.steps.iter().find(|step| step.kind == StepKind::SetShards).unwrap();
        assert_eq!(
            set.settings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [format!("MaxShards={shards}")]
        );
    }

    #[test]
    fn within_the_last_hour_all_steps_are_due_at_once() {
        let options = launching(options(5_000, None));
        for (now, is_late) in
            [(NOON + 4 * 3_600, false), (NOON + 4 * 3_600 + 1, true), (NOON + 5 * 3_600 - 1, true)]
        {
            let launch = plan(&options, now).unwrap().launch.unwrap();
            assert_eq!(launch.is_late, is_late, "{now}");
            assert_eq!(kinds(&launch).contains(&StepKind::Schedule), !is_late, "{now}");
            assert_eq!(
                launch.steps.iter().all(|step| step.by.is_none()),
                is_late,
                "{now}: {launch:?}"
            );
            assert_eq!(launch.to_string().contains("less than an hour"), is_late, "{launch}");
        }
    }

    #[test]
    fn a_launch_that_is_past_is_refused_with_both_times() {
        let options = launching(options(5_000, None));
        for now in [NOON + 5 * 3_600, NOON + 6 * 3_600] {
            let error = plan(&options, now).unwrap_err();
            assert!(matches!(error, PlanError::Past { .. }), "{error}");
            let error = error.to_string();
            for part in
                ["--launch 2027-03-01T17:00:00Z", "it is 2027-03-01T1", "a later date or date-time"]
            {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
    }

    #[test]
    fn a_demand_that_no_number_of_shards_serves_has_no_launch_plan() {
        for options in [
            PlanOptions { item_size: 2_000, ..options(1_000_000, None) },
            PlanOptions { warm_write_units: Some(4_000), ..options(5_000, None) },
        ] {
            let report = plan(&launching(options), NOON).unwrap();
            assert_eq!(report.launch, None);
            assert!(
                report.notes.iter().any(|note| note.starts_with("--launch: ")),
                "{:?}",
                report.notes
            );
        }
    }

    #[test]
    fn the_text_has_times_commands_and_what_cannot_be_undone() {
        let launch =
            of(PlanOptions { index: vec!["read-replica-1".to_owned()], ..options(5_000, None) })
                .to_string();
        for part in [
            "Before launch day, 2027-03-01T17:00:00Z",
            "| the table ",
            "| read-replica-1 ",
            "> 10 ",
            "1. By 2027-03-01T16:00:00Z. ",
            "cannot be undone",
            "388 to 514 s",
            "PeakSchedule=cron(0 16 1 3 ? 2027)",
            "MAIN-TABLE and SHARD-SCALER",
        ] {
            assert!(launch.contains(part), "{part}: {launch}");
        }
        let nothing = of(options(300, None)).to_string();
        assert!(nothing.contains("Nothing to prepare"), "{nothing}");
    }
}
