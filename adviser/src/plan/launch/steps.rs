//! The steps before a launch.

use std::fmt;

use serde::Serialize;
use sharding::internal::ScalingPolicy;

use super::choice::LaunchChoice;
use super::warming::{RaisedUnits, WarmUnits};
use crate::plan::costs::TARGET_UTILISATION;
use crate::plan::demand::Demand;
use crate::plan::launch_time::{LEAD_SECONDS, LaunchTime};
use crate::plan::options::{CapacityMode, PlanOptions};
use crate::plan::partitions::TABLE_QUOTA;
use cli::numbers::{counted, dollars, whole};

/// Requests per second that the API accepts on each route. (`ApiRateLimit` of the profile
/// `standard`.)
const API_RATE: f64 = 2_000.0;
/// Units per second that the stack's own table serves on demand. (`OnDemandMaxReadUnits` and
/// `OnDemandMaxWriteUnits` of the profile `standard`.)
const ON_DEMAND_MAXIMUM: u64 = 20_000;
/// The API must accept this multiple of the mean rate, because requests do not arrive evenly.
const UNEVEN: f64 = 1.2;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LaunchStep {
    /// The kind of the step.
    pub kind: StepKind,
    /// The latest time in RFC 3339; absent for at once.
    pub by: Option<String>,
    /// The step in sentences.
    pub what: String,
    /// The commands in order.
    pub commands: Vec<String>,
    /// The settings of the template.
    pub settings: Vec<TemplateSetting>,
}

/// A kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// Raise the account's quota.
    Quota,
    /// Provision the demand.
    Provision,
    /// Warm the table and its indexes.
    Warm,
    /// Make copies of the directory's pages.
    Copies,
    /// Give each key its shards.
    SetShards,
    /// Schedule the warming and the shards of a key in the stack.
    Schedule,
    /// Raise the limits of the stack.
    Limits,
}

/// A setting of template.yaml and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TemplateSetting {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
}

impl fmt::Display for TemplateSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// The facts that the steps depend on.
pub(super) struct Needs<'a> {
    pub(super) options: &'a PlanOptions,
    pub(super) demand: &'a Demand,
    pub(super) chosen: &'a LaunchChoice,
    /// The current warm throughput of the table.
    pub(super) now: WarmUnits,
    /// The event that makes the copies of the directory's pages; `None` if one copy is enough.
    pub(super) copies: Option<String>,
    /// The time at which all steps must be done; `None` for at once.
    pub(super) ready_by: Option<LaunchTime>,
}

/// Returns all steps in order.
pub(super) fn steps(needs: &Needs<'_>) -> Vec<LaunchStep> {
    let raised = needs.chosen.warm.raised_from(needs.now);
    let all = [
        quota(needs),
        provision(needs),
        warm(needs, &raised),
        copies(needs),
        set_shards(needs, &raised),
        schedule(needs, &raised),
        limits(needs),
    ];
    all.into_iter().flatten().collect()
}

impl Needs<'_> {
    fn step(&self, kind: StepKind, what: String) -> LaunchStep {
        let by = self.ready_by.map(|by| by.to_string());
        LaunchStep { kind, by, what, commands: Vec::new(), settings: Vec::new() }
    }
}

fn quota(needs: &Needs<'_>) -> Option<LaunchStep> {
    let WarmUnits { write_units, read_units } = needs.chosen.warm;
    let beyond = |units: u64, now: u64, kind: &str| {
        (units > now && units as f64 > TABLE_QUOTA)
            .then(|| format!("{} {kind} units a second", whole(units as f64)))
    };
    let beyond: Vec<String> = [
        beyond(write_units, needs.now.write_units, "write"),
        beyond(read_units, needs.now.read_units, "read"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let what = format!(
        "Request a quota of {} for a table from Service Quotas: the default is {}. It may take days. Until then, \
         DynamoDB refuses to warm the table further.",
        beyond.join(" and "),
        whole(TABLE_QUOTA),
    );
    (!beyond.is_empty()).then(|| LaunchStep { by: None, ..needs.step(StepKind::Quota, what) })
}

fn provision(needs: &Needs<'_>) -> Option<LaunchStep> {
    let writes = units(needs.demand.write_units_per_second / TARGET_UTILISATION);
    let pages = f64::from(needs.options.read_rate);
    let reads = units(pages * needs.chosen.page_read_units / TARGET_UTILISATION);
    let what = format!(
        "Provision the demand: warm throughput prepares partitions but is not capacity. Auto scaling follows after \
         minutes, so provision {} write units and {} read units a second for the launch.",
        whole(writes as f64),
        whole(reads as f64),
    );
    let command = format!(
        "aws dynamodb update-table --table-name MAIN-TABLE \
         --provisioned-throughput ReadCapacityUnits={reads},WriteCapacityUnits={writes}"
    );
    let step = LaunchStep { commands: vec![command], ..needs.step(StepKind::Provision, what) };
    (needs.options.capacity == CapacityMode::Provisioned).then_some(step)
}

/// Whole units, at least one. A float beyond the range of u64 saturates.
fn units(units: f64) -> u64 {
    (units.ceil() as u64).max(1)
}

fn warm(needs: &Needs<'_>, raised: &[RaisedUnits]) -> Option<LaunchStep> {
    if raised.is_empty() {
        return None;
    }
    let indexes =
        if needs.options.index.is_empty() { "" } else { " and its indexes, in one update" };
    let what = format!(
        "Warm the table{indexes}, preferably a day earlier. It takes minutes (others measured 388 to 514 s), and the \
         table serves requests meanwhile. It is charged once ({}) and cannot be undone: warm throughput never goes \
         down. It is complete when the second command shows ACTIVE.",
        dollars(needs.chosen.warming_usd),
    );
    let joined =
        |with: fn(&RaisedUnits) -> String| raised.iter().map(with).collect::<Vec<_>>().join(",");
    let of_table = joined(|units| format!("{}={}", units.sdk_name, units.to));
    let of_index = joined(|units| format!("\"{}\":{}", units.sdk_name, units.to));
    let of_indexes = needs.options.index.iter().map(|name| {
        format!("{{\"Update\":{{\"IndexName\":\"{name}\",\"WarmThroughput\":{{{of_index}}}}}}}")
    });
    let of_indexes = of_indexes.collect::<Vec<_>>().join(",");
    let of_indexes = if of_indexes.is_empty() {
        String::new()
    } else {
        format!(" --global-secondary-index-updates '[{of_indexes}]'")
    };
    let commands = vec![
        format!(
            "aws dynamodb update-table --table-name MAIN-TABLE --warm-throughput {of_table}{of_indexes}"
        ),
        "aws dynamodb describe-table --table-name MAIN-TABLE \
         --query 'Table.[WarmThroughput,GlobalSecondaryIndexes[].[IndexName,WarmThroughput]]'"
            .to_owned(),
    ];
    Some(LaunchStep { commands, ..needs.step(StepKind::Warm, what) })
}

fn copies(needs: &Needs<'_>) -> Option<LaunchStep> {
    let event = needs.copies.as_deref()?;
    let what =
        "Make copies of the directory's pages: this many instances read a single copy too often."
            .to_owned();
    Some(LaunchStep { commands: invoke(event), ..needs.step(StepKind::Copies, what) })
}

/// The two versions of the AWS CLI take a payload in the same form only from a file.
fn invoke(event: &str) -> Vec<String> {
    vec![
        format!("echo '{event}' > event.json"),
        "aws lambda invoke --function-name SHARD-SCALER --payload fileb://event.json answer.json"
            .to_owned(),
    ]
}

fn set_shards(needs: &Needs<'_>, raised: &[RaisedUnits]) -> Option<LaunchStep> {
    let shards = needs.chosen.shards_per_key;
    if shards == 1 {
        return None;
    }
    let most = ScalingPolicy::default().max_shards.get();
    let keys = needs.demand.keys;
    let whose = if keys == 1 {
        "the key its".to_owned()
    } else {
        format!("each of the {} its", counted(keys, "key"))
    };
    let raise_most = if shards > most {
        format!(
            " Deploy with the setting first: \"set\" refuses more than MaxShards, {most} by default."
        )
    } else {
        String::new()
    };
    let what = format!(
        "Give {whose} {}.{raise_most} If ShrinkAfterSeconds is not 0, keep it above {} until the launch: a key gives \
         up shards that it has not needed for that time.",
        counted(shards, "shard"),
        2 * LEAD_SECONDS,
    );
    // With the units, the shard-scaler also checks whether the table is warm enough.
    let units: String =
        raised.iter().map(|units| format!(",\"{}\":{}", units.event_name, units.to)).collect();
    let event = format!(
        "{{\"action\":\"set\",\"partition_key\":\"KEY\",\"number_of_shards\":{shards}{units}}}"
    );
    let settings = if shards > most { vec![setting("MaxShards", shards)] } else { Vec::new() };
    Some(LaunchStep { commands: invoke(&event), settings, ..needs.step(StepKind::SetShards, what) })
}

/// The template's scheduled peak, which does the same automatically.
fn schedule(needs: &Needs<'_>, raised: &[RaisedUnits]) -> Option<LaunchStep> {
    let ready_by = needs.ready_by?;
    let shards = needs.chosen.shards_per_key;
    if shards == 1 {
        return None;
    }
    let write_units =
        raised.iter().find(|units| units.event_name == "write_units").map(|units| units.to);
    let what = format!(
        "Or deploy these settings instead, and the stack {} at that time. The schedule is for one key{}.",
        if write_units.is_some() {
            "warms the table and gives the key its shards"
        } else {
            "gives the key its shards"
        },
        if raised.len() > usize::from(write_units.is_some()) {
            ", and warms for writes only"
        } else {
            ""
        },
    );
    let mut settings = Vec::new();
    settings.extend(write_units.map(|units| setting("MaxWarmWriteUnits", units)));
    settings.push(setting("PeakSchedule", ready_by.cron()));
    settings.push(setting("PeakTimezone", "UTC"));
    settings.push(setting("PeakPartitionKey", "KEY"));
    settings.push(setting("PeakShards", shards));
    settings.extend(write_units.map(|units| setting("PeakWriteUnits", units)));
    Some(LaunchStep { settings, ..needs.step(StepKind::Schedule, what) })
}

fn limits(needs: &Needs<'_>) -> Option<LaunchStep> {
    let writes = needs.demand.writes_per_second / f64::from(needs.options.items_per_request.max(1));
    let of_route = writes.max(f64::from(needs.options.read_rate)) * UNEVEN;
    let mut settings = Vec::new();
    if of_route > API_RATE {
        settings.push(setting("ApiRateLimit", units(of_route)));
    }
    if needs.options.capacity == CapacityMode::OnDemand {
        let WarmUnits { read_units, write_units } = needs.chosen.warm;
        let rows = [("OnDemandMaxReadUnits", read_units), ("OnDemandMaxWriteUnits", write_units)];
        let limited = rows.into_iter().filter(|(_, units)| *units > ON_DEMAND_MAXIMUM);
        settings.extend(limited.map(|(name, units)| setting(name, units)));
    }
    let what =
        "If the stack serves the demand, raise its limits: by default its API accepts fewer requests, or its table fewer units."
            .to_owned();
    (!settings.is_empty()).then(|| LaunchStep { settings, ..needs.step(StepKind::Limits, what) })
}

fn setting(name: &'static str, value: impl fmt::Display) -> TemplateSetting {
    TemplateSetting { name, value: value.to_string() }
}
