//! The costs of a month: plain DynamoDB, this product's crate, and the three functions behind API
//! Gateway.
//!
//! Not included: free allowances, savings plans, taxes, data transfer, backups, and the costs of
//! the table's other keys.

use serde::Serialize;

use super::case::Case;
use super::options::CapacityMode;
use super::prices::{HOUR_SECONDS, MONTH_DAYS, MONTH_HOURS, Price};
use super::profile::Profile;

/// The share of provisioned capacity that auto scaling aims for (`TargetUtilization` of
/// template.yaml).
const TARGET_UTILISATION: f64 = 0.7;
/// Memory of the writer and the reader (template.yaml).
pub(super) const MEMORY_GB: f64 = 256.0 / 1_024.0;
/// Bytes of log lines for one HTTP request. Assumed: API Gateway writes about 500, Lambda about
/// 700, and the metrics have about 400.
pub(super) const LOG_BYTES: f64 = 1_600.0;
/// API Gateway meters requests in steps of this many bytes.
const METERED_BYTES: f64 = 512.0 * 1_024.0;
/// The number of rules of the throttled-keys mode of Contributor Insights, for a table with a sort
/// key.
pub(super) const INSIGHT_RULES: f64 = 2.0;
/// The bytes that DynamoDB adds to the stored size of each item. (DynamoDB pricing, "Data
/// storage".)
const STORED_WITH_ITEM: f64 = 100.0;
pub(super) const GB: f64 = 1e9;
/// The line of the logs that a profile keeps.
pub(super) const STORED_LOGS: &str = "stored logs";
pub(super) const ASSUMED: &str = "Assumed: 5 ms for a DynamoDB request, functions of 256 MB, 1,600 bytes of logs for an HTTP request.";

/// The billed services, in the order of the table: tables; functions; the HTTP API; logs, Contributor
/// Insights and X-Ray.
pub(super) const SERVICES: [&str; 4] = [DYNAMODB, LAMBDA, API_GATEWAY, CLOUDWATCH];
const DYNAMODB: &str = "DynamoDB";
const LAMBDA: &str = "Lambda";
const API_GATEWAY: &str = "API Gateway";
const CLOUDWATCH: &str = "CloudWatch";

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Line {
    pub(crate) service: &'static str,
    pub(crate) what: &'static str,
    pub(crate) quantity: f64,
    pub(crate) unit: String,
    /// The cost of a month.
    pub(crate) usd: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Bill {
    pub(crate) name: &'static str,
    pub(crate) lines: Vec<Line>,
    pub(crate) usd: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct MonthlyCost {
    /// One partition key, if DynamoDB served the whole demand.
    pub(crate) unsharded: Bill,
    /// This product's crate in the user's own service.
    pub(crate) own_service: Bill,
    /// This product's functions behind API Gateway.
    pub(crate) functions: Bill,
    /// The cost of storing one month's items for a month, sharded or not.
    pub(crate) storage_of_a_months_items: Line,
}

pub(super) fn month(case: &Case<'_>) -> MonthlyCost {
    let unsharded = table(case, case.page.units.unsharded);
    let mut own_service = table(case, case.page.units.uneven);
    // The metadata table is always on demand. Every busy instance renews its pages.
    let directory = case.directory_read_units() * MONTH_HOURS * HOUR_SECONDS;
    let price = &case.prices.dynamodb_read_request_units;
    own_service.push(line(DYNAMODB, "directory", directory, price));
    let functions = own_service.iter().cloned().chain(around(case)).collect();
    let items = case.demand.writes_per_second * MONTH_HOURS * HOUR_SECONDS;
    let stored = items * (f64::from(case.demand.item_bytes) + STORED_WITH_ITEM) / GB;
    MonthlyCost {
        unsharded: bill("plain DynamoDB, one partition key", unsharded),
        own_service: bill("the crate in a service of one's own", own_service),
        functions: bill("the functions behind API Gateway", functions),
        storage_of_a_months_items: line(DYNAMODB, "storage", stored, &case.prices.dynamodb_storage),
    }
}

/// The lines of the table: writes, which cost the same sharded or not, and pages of these read
/// units.
fn table(case: &Case<'_>, units_of_page: f64) -> Vec<Line> {
    let prices = case.prices;
    let (write, read, each) = match case.options.capacity {
        CapacityMode::OnDemand => (
            &prices.dynamodb_write_request_units,
            &prices.dynamodb_read_request_units,
            MONTH_HOURS * HOUR_SECONDS,
        ),
        CapacityMode::Provisioned => (
            &prices.dynamodb_write_capacity_hours,
            &prices.dynamodb_read_capacity_hours,
            MONTH_HOURS / TARGET_UTILISATION,
        ),
    };
    let reads = case.pages_per_second() * units_of_page * each;
    let writes = case.demand.write_units_per_second * each;
    vec![line(DYNAMODB, "writes", writes, write), line(DYNAMODB, "reads", reads, read)]
}

/// The lines of the functions, the HTTP API and their logs.
fn around(case: &Case<'_>) -> Vec<Line> {
    let prices = case.prices;
    let seconds = MONTH_HOURS * HOUR_SECONDS;
    let (writes, pages) = (case.requests_of_writer(), case.pages_per_second());
    let gb_seconds = MEMORY_GB
        * (writes * billed(case.seconds_of_writer()) + pages * billed(case.seconds_of_reader()));
    let steps = |items: u32| {
        (f64::from(items) * f64::from(case.demand.item_bytes) / METERED_BYTES).ceil().max(1.0)
    };
    let metered = writes * steps(case.options.items_per_request) + pages * steps(case.page.items);
    let throttles = case.demand.writes_per_second * case.shards.throttled * seconds;
    let logs = (writes + pages) * LOG_BYTES * seconds / GB;
    let mut lines = vec![
        line(LAMBDA, "requests", (writes + pages) * seconds, &prices.lambda_requests),
        line(LAMBDA, "compute", gb_seconds * seconds, &prices.lambda_gb_seconds_arm64),
        line(API_GATEWAY, "requests", metered * seconds, &prices.http_api_requests),
        line(CLOUDWATCH, "logs", logs, &prices.log_ingestion),
        line(CLOUDWATCH, "Contributor Insights", INSIGHT_RULES, &prices.contributor_insights_rules),
        line(CLOUDWATCH, "throttles counted", throttles, &prices.contributor_insights_events),
    ];
    if let Some(profile) = case.options.profile.map(Profile::of) {
        let stored = logs * f64::from(profile.log_days) / MONTH_DAYS;
        lines.push(line(CLOUDWATCH, STORED_LOGS, stored, &prices.log_storage));
        if profile.traced {
            let traces = case.traces() * seconds;
            lines.push(line(CLOUDWATCH, "X-Ray", traces, &prices.xray_traces));
        }
    }
    lines
}

/// Rounds up to milliseconds, as Lambda's bill does.
fn billed(seconds: f64) -> f64 {
    (seconds * 1_000.0).ceil() / 1_000.0
}

fn line(service: &'static str, what: &'static str, quantity: f64, price: &Price) -> Line {
    Line { service, what, quantity, unit: price.unit.clone(), usd: price.of(quantity) }
}

fn bill(name: &'static str, lines: Vec<Line>) -> Bill {
    Bill { name, usd: lines.iter().map(|line| line.usd).sum(), lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::options::{PlanOptions, ProfileName};
    use crate::plan::plan;

    fn cost(options: &PlanOptions) -> MonthlyCost {
        plan(options).monthly_cost
    }

    fn options() -> PlanOptions {
        PlanOptions { item_size: 1_024, shards: Some(16), ..PlanOptions::of(5_000, None) }
    }

    fn usd(bill: &Bill, service: &'static str, what: &str) -> f64 {
        let own = |line: &&Line| line.service == service && line.what == what;
        bill.lines.iter().filter(own).map(|line| line.usd).sum()
    }

    #[test]
    fn a_profile_adds_its_logs_and_traces_to_the_functions() {
        let without = cost(&options());
        // 5,020 requests a second with 1,600 bytes of logs are 21,108 GB a month, at 0.03 for each
        // 30.4 days. Of 5,000 and 20 requests a second, 250.95 and 1.95 are traced, at 5.00 a
        // million.
        let stored = 21_108.1 * 0.03 / (730.0 / 24.0);
        let traced = 252.9 * 2_628_000.0 * 5.0 / 1e6;
        let rows = [
            (ProfileName::Development, 7.0, 0.0),
            (ProfileName::Standard, 30.0, 0.0),
            (ProfileName::Production, 365.0, traced),
        ];
        for (profile, days, traces) in rows {
            let with = cost(&PlanOptions { profile: Some(profile), ..options() });
            assert_eq!(with.own_service, without.own_service);
            let added = with.functions.usd - without.functions.usd;
            assert!((added - days * stored - traces).abs() < 1.0, "{profile:?}: {added}");
        }
        // X-Ray alone adds a tenth.
        let share = traced / without.functions.usd;
        assert!((0.09..0.11).contains(&share), "{share}");
    }

    #[test]
    fn a_month_is_the_rate_times_the_price() {
        let month = cost(&options());
        // 5,000 units for 2,628,000 seconds at 0.625 a million; 20 pages of 12.5 units at 0.125 a
        // million.
        assert!((usd(&month.unsharded, DYNAMODB, "writes") - 8_212.5).abs() < 0.01);
        assert!((usd(&month.unsharded, DYNAMODB, "reads") - 82.125).abs() < 0.01);
        // 13,192.56 million requests, 300 million of them at 1.00 and the others at 0.90 a million.
        assert!((usd(&month.functions, API_GATEWAY, "requests") - 11_903.3).abs() < 0.1);
        assert!((month.storage_of_a_months_items.usd - 3_692.34).abs() < 0.01);
        // Sharding leaves the writes and makes reads dearer.
        let of = |bill: &Bill, what: &str| usd(bill, DYNAMODB, what);
        for bill in [&month.own_service, &month.functions] {
            assert_eq!(of(bill, "writes"), of(&month.unsharded, "writes"));
            assert!(of(bill, "reads") > of(&month.unsharded, "reads"));
        }
        assert!(of(&month.own_service, "directory") < 0.01 * month.own_service.usd);
    }

    #[test]
    fn batches_save_on_functions_and_provisioned_units_on_tables() {
        let single = cost(&options());
        let batches = cost(&PlanOptions { items_per_request: 25, ..options() });
        assert!(batches.functions.usd < 0.6 * single.functions.usd);
        let provisioned = PlanOptions { capacity: CapacityMode::Provisioned, ..options() };
        let provisioned = cost(&provisioned);
        // 5,000 / 0.7 capacity units for 730 hours at 0.00065.
        assert!((usd(&provisioned.unsharded, DYNAMODB, "writes") - 3_389.29).abs() < 0.01);
        assert!(provisioned.unsharded.usd < single.unsharded.usd);
    }
}
