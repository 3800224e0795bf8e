//! The costs of an idle stack: alarms, the dashboard, Contributor Insights, and one schedule.
//!
//! The functions, the API, the queue and on-demand tables cost nothing without requests. The
//! functions also publish no custom metrics then, because the embedded metric format only writes
//! events. This module counts the other parts for each profile of the template.

use serde::Serialize;
use sharding::internal::protocol::directory::PAGES;

use super::costs::{GB, INSIGHT_RULES, LOG_BYTES, MEMORY_GB};
use super::prices::{MONTH_DAYS, MONTH_HOURS, Prices};
use super::profile::{PROFILES, Profile};

/// The metrics of the alarms of every stack. AWS bills an alarm on a metric-math expression once
/// for each of its metrics, here 5xx and requests of the API. (CloudWatch user guide, "CloudWatch
/// billing and cost".)
const ALARM_METRICS: u32 = 24;
/// The metrics of the alarms of a canary deployment, one for each function.
const CANARY_ALARM_METRICS: u32 = 3;
/// Minutes between two runs of the schedule that sets alarms back to OK.
const REARM_MINUTES: f64 = 5.0;
/// The duration of such a run. Assumed: it waits for a few requests to CloudWatch and DynamoDB.
const REARM_SECONDS: f64 = 1.0;
/// DynamoDB's requests to KMS for the metadata table's key during such a run. Assumed: DynamoDB
/// caches a key for about the time between two runs.
const KMS_REQUESTS: f64 = 1.0;

/// The costs of a month of idle stacks, at list prices without free allowances.
#[derive(Debug, Serialize)]
pub(crate) struct AtRest {
    /// The costs of each profile of the template with its default settings.
    pub(crate) profiles: [IdleStack; 3],
    /// The costs of each stored GB: storage and point-in-time recovery.
    pub(crate) usd_per_stored_gb: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct IdleStack {
    pub(crate) profile: &'static str,
    /// The parts of the stack that cost something, each with a month's dollars.
    pub(crate) parts: [(&'static str, f64); 4],
    pub(crate) usd: f64,
}

pub(super) fn at_rest(prices: &Prices) -> AtRest {
    AtRest {
        profiles: PROFILES.each_ref().map(|profile| idle(profile, prices)),
        usd_per_stored_gb: prices.dynamodb_storage.of(1.0)
            + prices.dynamodb_point_in_time_recovery.of(1.0),
    }
}

fn idle(profile: &Profile, prices: &Prices) -> IdleStack {
    let alarm_metrics = ALARM_METRICS + if profile.canary { CANARY_ALARM_METRICS } else { 0 };
    let parts = [
        ("alarms", prices.cloudwatch_alarm_metrics.of(alarm_metrics.into())),
        ("dashboard", prices.cloudwatch_dashboards.of(u32::from(profile.dashboard).into())),
        ("Contributor Insights", prices.contributor_insights_rules.of(INSIGHT_RULES)),
        ("schedule that re-arms the alarms", schedule(profile, prices)),
    ];
    IdleStack { profile: profile.name, usd: parts.iter().map(|(_, usd)| usd).sum(), parts }
}

/// The runs of the schedule, and their use of the function and the tables.
fn schedule(profile: &Profile, prices: &Prices) -> f64 {
    let runs = MONTH_HOURS * 60.0 / REARM_MINUTES;
    // Each run reads the table's item and every page of the directory. A new table has one copy of
    // each page.
    let read_units = runs * f64::from(1 + PAGES);
    let logs = runs * LOG_BYTES / GB;
    let if_traced = if profile.traced { runs } else { 0.0 };
    let if_encrypted = if profile.encrypted_by_kms { runs * KMS_REQUESTS } else { 0.0 };
    prices.scheduler_invocations.of(runs)
        + prices.lambda_requests.of(runs)
        + prices.lambda_gb_seconds_arm64.of(runs * REARM_SECONDS * MEMORY_GB)
        + prices.dynamodb_read_request_units.of(read_units)
        + prices.log_ingestion.of(logs)
        + prices.log_storage.of(logs * f64::from(profile.log_days) / MONTH_DAYS)
        + prices.xray_traces.of(if_traced)
        + prices.kms_requests.of(if_encrypted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_costs_what_its_parts_do() {
        let at_rest = at_rest(&Prices::published());
        // 8,760 runs a month at 1.00 a million, their requests at 0.20 and 2,190 GB-seconds; five
        // read units and 1,600 bytes of logs each.
        let runs = 0.008_76 + 0.001_752 + 0.029_2 + 0.005_475 + 0.007_008;
        // 0.014016 GB of logs a month at 0.03 a GB-month, for 7, 30 and 365 days.
        let kept = [0.000_097, 0.000_415, 0.005_046];
        // 8,760 traces at 5.00 a million, and requests to KMS at 0.03 for 10,000.
        let production = 0.043_8 + 0.026_28;
        let rows = [
            ("development", [2.40, 0.0, 1.00, runs + kept[0]]),
            ("standard", [2.40, 3.00, 1.00, runs + kept[1]]),
            ("production", [2.70, 3.00, 1.00, runs + kept[2] + production]),
        ];
        for (stack, (profile, usd)) in at_rest.profiles.iter().zip(rows) {
            assert_eq!(stack.profile, profile);
            for ((name, found), usd) in stack.parts.iter().zip(usd) {
                assert!((found - usd).abs() < 0.000_01, "{profile}, {name}: {found}");
            }
            assert!((stack.usd - usd.iter().sum::<f64>()).abs() < 0.000_1, "{stack:?}");
        }
        assert!((at_rest.usd_per_stored_gb - 0.45).abs() < 1e-9);
    }
}
