//! What a month costs: plain DynamoDB, this product's crate, and the three functions behind API Gateway.
//!
//! Left out: free allowances, savings plans, taxes, data transfer, backups, and what other keys of the table cost.

use serde::Serialize;

use super::demand::Demand;
use super::directory;
use super::options::{Architecture, CapacityMode};
use super::prices::{Evidence, Price, Prices};
use super::reads::PageCost;

/// AWS reckons a month as 730 hours.
pub(super) const MONTH_HOURS: f64 = 730.0;
const HOUR_SECONDS: f64 = 3_600.0;
/// The part of provisioned capacity that auto scaling lets be used (`TargetUtilization` of template.yaml).
pub(super) const TARGET_UTILISATION: f64 = 0.7;
/// Memory of the writer and the reader (template.yaml).
pub(super) const MEMORY_GB: f64 = 256.0 / 1_024.0;
/// How long a function waits for one DynamoDB request. Assumed: "single-digit milliseconds".
const REQUEST_SECONDS: f64 = 0.005;
/// What a function does besides. (README, "Deploy": the hundredth request takes half of it.)
const OWN_SECONDS: f64 = 0.001;
/// Items of a batch that are on their way at once.
const AT_ONCE: u32 = 64;
/// Lines of the log that one HTTP request makes: API Gateway's about 500 bytes, Lambda's own about 700, the metrics about 400. Assumed.
pub(super) const LOG_BYTES: f64 = 1_600.0;
/// API Gateway counts requests in steps of so many bytes.
const METERED_BYTES: f64 = 512.0 * 1_024.0;
/// What the throttled-keys mode of Contributor Insights makes for a table with a sort key.
pub(super) const INSIGHT_RULES: f64 = 2.0;
/// What DynamoDB counts as stored with each item, besides the item. (DynamoDB pricing, "Data storage".)
const STORED_WITH_ITEM: f64 = 100.0;
pub(super) const GB: f64 = 1e9;
/// The same in words.
pub(super) const ASSUMED: &str =
    "Assumed: 5 ms for a DynamoDB request, functions of 256 MB, 1,600 bytes of logs for an HTTP request.";

/// A service that is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Service {
    /// Tables.
    DynamoDB,
    /// Functions.
    Lambda,
    /// The HTTP API.
    #[serde(rename = "API Gateway")]
    ApiGateway,
    /// Logs and Contributor Insights.
    CloudWatch,
}

impl Service {
    /// Every service, in the order of the table.
    pub const ALL: [Self; 4] = [Self::DynamoDB, Self::Lambda, Self::ApiGateway, Self::CloudWatch];

    /// As it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DynamoDB => "DynamoDB",
            Self::Lambda => "Lambda",
            Self::ApiGateway => "API Gateway",
            Self::CloudWatch => "CloudWatch",
        }
    }
}

/// One line of a bill.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Who is paid.
    pub service: Service,
    /// For what.
    pub what: &'static str,
    /// How much of it in the time that is billed, mostly a month.
    pub quantity: f64,
    /// In what unit.
    pub unit: String,
    /// What it costs in that time.
    pub usd: f64,
    /// How sure the price is.
    pub evidence: Evidence,
}

/// What part of a bill one service makes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ServiceShare {
    /// The service.
    pub service: Service,
    /// Its part of the bill.
    pub share: f64,
}

/// A month of one way to do it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bill {
    /// The way.
    pub name: &'static str,
    /// What is paid for.
    pub lines: Vec<Line>,
    /// The sum.
    pub usd: f64,
    /// Who gets what part of it.
    pub shares: Vec<ServiceShare>,
}

/// The month, three ways.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MonthlyCost {
    /// One partition key, as it would be billed if DynamoDB took all of it.
    pub unsharded: Bill,
    /// This product's crate in a service of one's own.
    pub own_service: Bill,
    /// This product's functions behind API Gateway.
    pub functions: Bill,
    /// What each month's items cost for every month that they are kept, sharded or not.
    pub storage_of_a_months_items: Line,
}

/// What an hour costs, in dollars.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HourlyCost {
    /// With this product's crate in a service of one's own.
    pub own_service_usd: f64,
    /// With this product's functions behind API Gateway.
    pub functions_usd: f64,
}

/// What the bills depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage<'a> {
    pub(super) demand: &'a Demand,
    pub(super) pages_per_second: f64,
    pub(super) page: &'a PageCost,
    pub(super) throttled: f64,
    pub(super) capacity: CapacityMode,
    pub(super) items_per_request: u32,
    pub(super) architecture: Architecture,
    /// Instances that are busy at once, where they are given.
    pub(super) instances: Option<u32>,
}

/// Reckons all three bills.
pub(super) fn month(usage: &Usage<'_>, prices: &Prices) -> MonthlyCost {
    let own_service = sharded(usage, prices, MONTH_HOURS);
    let functions = own_service.iter().cloned().chain(around(usage, prices, MONTH_HOURS)).collect();
    let items = usage.demand.writes_per_second * MONTH_HOURS * HOUR_SECONDS;
    let stored = items * (f64::from(usage.demand.item_bytes) + STORED_WITH_ITEM) / GB;
    MonthlyCost {
        unsharded: bill(
            "plain DynamoDB, one partition key",
            table(usage, usage.page.units.unsharded, prices, MONTH_HOURS),
        ),
        own_service: bill("the crate in a service of one's own", own_service),
        functions: bill("the functions behind API Gateway", functions),
        storage_of_a_months_items: line(Service::DynamoDB, "storage", stored, &prices.dynamodb_storage),
    }
}

/// What an hour costs by itself, where each write is also one of so many indexes.
pub(super) fn hour(usage: &Usage<'_>, indexes: u32, prices: &Prices) -> HourlyCost {
    let usd = |lines: &[Line]| lines.iter().map(|line| line.usd).sum::<f64>();
    let of_indexes = writes(usage, prices, 1.0).usd * f64::from(indexes);
    let own_service_usd = usd(&sharded(usage, prices, 1.0)) + of_indexes;
    HourlyCost { own_service_usd, functions_usd: own_service_usd + usd(&around(usage, prices, 1.0)) }
}

/// The sharded table and the directory.
fn sharded(usage: &Usage<'_>, prices: &Prices, hours: f64) -> Vec<Line> {
    let mut lines = table(usage, usage.page.units.uneven, prices, hours);
    lines.push(directory_reads(usage, prices, hours));
    lines
}

/// The table itself: the same writes, sharded or not, and pages of so many read units.
fn table(usage: &Usage<'_>, units_of_page: f64, prices: &Prices, hours: f64) -> Vec<Line> {
    let units = usage.pages_per_second * units_of_page;
    let (price, each) = match usage.capacity {
        CapacityMode::OnDemand => (&prices.dynamodb_read_request_units, hours * HOUR_SECONDS),
        CapacityMode::Provisioned => (&prices.dynamodb_read_capacity_hours, hours / TARGET_UTILISATION),
    };
    vec![writes(usage, prices, hours), line(Service::DynamoDB, "reads", units * each, price)]
}

fn writes(usage: &Usage<'_>, prices: &Prices, hours: f64) -> Line {
    let (price, each) = match usage.capacity {
        CapacityMode::OnDemand => (&prices.dynamodb_write_request_units, hours * HOUR_SECONDS),
        CapacityMode::Provisioned => (&prices.dynamodb_write_capacity_hours, hours / TARGET_UTILISATION),
    };
    line(Service::DynamoDB, "writes", usage.demand.write_units_per_second * each, price)
}

/// The metadata table, always on demand: every busy instance renews its pages.
pub(super) fn directory_reads(usage: &Usage<'_>, prices: &Prices, hours: f64) -> Line {
    let units = directory::read_units(usage) * hours * HOUR_SECONDS;
    line(Service::DynamoDB, "directory", units, &prices.dynamodb_read_request_units)
}

/// Instances that are busy at once, on average: requests a second times the seconds of each. (AWS Lambda developer guide, "Understanding
/// Lambda function scaling".)
pub(super) fn busy_instances(usage: &Usage<'_>) -> f64 {
    requests_of_writer(usage) * seconds_of_writer(usage) + usage.pages_per_second * seconds_of_reader(usage)
}

/// Requests a second that an instance serves: writes, or batches of them, and pages.
pub(super) fn requests(usage: &Usage<'_>) -> f64 {
    requests_of_writer(usage) + usage.pages_per_second
}

/// What stands around the table.
fn around(usage: &Usage<'_>, prices: &Prices, hours: f64) -> Vec<Line> {
    let seconds = hours * HOUR_SECONDS;
    let (writes, pages) = (requests_of_writer(usage), usage.pages_per_second);
    let gb_seconds = MEMORY_GB * (writes * billed(seconds_of_writer(usage)) + pages * billed(seconds_of_reader(usage)));
    let steps = |items: u32| (f64::from(items) * f64::from(usage.demand.item_bytes) / METERED_BYTES).ceil().max(1.0);
    let metered = writes * steps(usage.items_per_request) + pages * steps(usage.page.items);
    let per_gb_second = match usage.architecture {
        Architecture::Arm64 => &prices.lambda_gb_seconds_arm64,
        Architecture::X86 => &prices.lambda_gb_seconds_x86_64,
    };
    let throttles = usage.demand.writes_per_second * usage.throttled;
    vec![
        line(Service::Lambda, "requests", (writes + pages) * seconds, &prices.lambda_requests),
        line(Service::Lambda, "compute", gb_seconds * seconds, per_gb_second),
        line(Service::ApiGateway, "requests", metered * seconds, &prices.http_api_requests),
        line(Service::CloudWatch, "logs", (writes + pages) * LOG_BYTES * seconds / GB, &prices.log_ingestion),
        line(
            Service::CloudWatch,
            "Contributor Insights",
            INSIGHT_RULES * hours / MONTH_HOURS,
            &prices.contributor_insights_rules,
        ),
        line(Service::CloudWatch, "throttles counted", throttles * seconds, &prices.contributor_insights_events),
    ]
}

fn requests_of_writer(usage: &Usage<'_>) -> f64 {
    usage.demand.writes_per_second / f64::from(usage.items_per_request.max(1))
}

fn seconds_of_writer(usage: &Usage<'_>) -> f64 {
    REQUEST_SECONDS * f64::from(usage.items_per_request.div_ceil(AT_ONCE)) + OWN_SECONDS
}

fn seconds_of_reader(usage: &Usage<'_>) -> f64 {
    REQUEST_SECONDS * f64::from(usage.page.unsharded_requests) * usage.page.latency.uneven + OWN_SECONDS
}

/// Lambda bills started milliseconds.
fn billed(seconds: f64) -> f64 {
    (seconds * 1_000.0).ceil() / 1_000.0
}

fn line(service: Service, what: &'static str, quantity: f64, price: &Price) -> Line {
    Line { service, what, quantity, unit: price.unit.clone(), usd: price.of(quantity), evidence: price.evidence }
}

fn bill(name: &'static str, lines: Vec<Line>) -> Bill {
    let usd: f64 = lines.iter().map(|line| line.usd).sum();
    let shares = Service::ALL.map(|service| {
        let own: f64 = lines.iter().filter(|line| line.service == service).map(|line| line.usd).sum();
        ServiceShare { service, share: if usd > 0.0 { own / usd } else { 0.0 } }
    });
    Bill { name, lines, usd, shares: shares.into_iter().filter(|share| share.share > 0.0).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::reads::page;

    fn with_usage<T>(capacity: CapacityMode, items: u32, shards: u32, reckon: impl Fn(&Usage<'_>, &Prices) -> T) -> T {
        let demand = Demand::new(5_000, 1_024, 1);
        let page = page(100, 1_024, shards, false);
        let usage = Usage {
            demand: &demand,
            pages_per_second: 20.0,
            page: &page,
            throttled: 0.01,
            capacity,
            items_per_request: items,
            architecture: Architecture::Arm64,
            instances: None,
        };
        reckon(&usage, &Prices::published().unwrap())
    }

    fn cost(capacity: CapacityMode, items_per_request: u32, shards: u32) -> MonthlyCost {
        with_usage(capacity, items_per_request, shards, month)
    }

    fn usd(bill: &Bill, service: Service, what: &str) -> f64 {
        bill.lines.iter().filter(|line| line.service == service && line.what == what).map(|line| line.usd).sum()
    }

    #[test]
    fn a_month_is_the_rate_times_the_price() {
        let month = cost(CapacityMode::OnDemand, 1, 16);
        // 5,000 units for 2,628,000 seconds at 0.625 a million; 20 pages of 12.5 units at 0.125 a million.
        assert!((usd(&month.unsharded, Service::DynamoDB, "writes") - 8_212.5).abs() < 0.01);
        assert!((usd(&month.unsharded, Service::DynamoDB, "reads") - 82.125).abs() < 0.01);
        // 13,192.56 million requests, 300 million of them at 1.00 and the others at 0.90 a million.
        assert!((usd(&month.functions, Service::ApiGateway, "requests") - 11_903.3).abs() < 0.1);
        assert!((month.storage_of_a_months_items.usd - 3_692.34).abs() < 0.01);
    }

    #[test]
    fn sharding_leaves_the_writes_and_makes_reads_dearer() {
        let month = cost(CapacityMode::OnDemand, 1, 16);
        for bill in [&month.own_service, &month.functions] {
            assert_eq!(usd(bill, Service::DynamoDB, "writes"), usd(&month.unsharded, Service::DynamoDB, "writes"));
            assert!(usd(bill, Service::DynamoDB, "reads") > usd(&month.unsharded, Service::DynamoDB, "reads"));
            let shares: f64 = bill.shares.iter().map(|share| share.share).sum();
            assert!(
                (shares - 1.0).abs() < 1e-9
                    && (bill.lines.iter().map(|line| line.usd).sum::<f64>() - bill.usd).abs() < 1e-6
            );
        }
        assert!(usd(&month.own_service, Service::DynamoDB, "directory") < 0.01 * month.own_service.usd);
    }

    #[test]
    fn an_hour_has_its_part_of_a_month_and_each_index_takes_the_writes_once_more() {
        for capacity in [CapacityMode::OnDemand, CapacityMode::Provisioned] {
            let month = cost(capacity, 25, 16);
            let hour = |indexes| with_usage(capacity, 25, 16, |usage, prices| hour(usage, indexes, prices));
            let of_month = month.own_service.usd / MONTH_HOURS;
            assert!((hour(0).own_service_usd - of_month).abs() < 1e-6, "{capacity:?}: {:?}", hour(0));
            // An hour is too little for the lower tiers of a month.
            assert!(hour(0).functions_usd >= month.functions.usd / MONTH_HOURS - 1e-6, "{capacity:?}: {:?}", hour(0));
            let writes = usd(&month.unsharded, Service::DynamoDB, "writes") / MONTH_HOURS;
            let more = hour(2).own_service_usd - hour(0).own_service_usd;
            assert!((more - 2.0 * writes).abs() < 1e-6, "{capacity:?}: {more}");
        }
    }

    #[test]
    fn batches_make_the_functions_cheaper_and_a_steady_load_is_cheaper_provisioned() {
        let single = cost(CapacityMode::OnDemand, 1, 16);
        assert!(cost(CapacityMode::OnDemand, 25, 16).functions.usd < 0.6 * single.functions.usd);
        let provisioned = cost(CapacityMode::Provisioned, 1, 16);
        // 5,000 / 0.7 capacity units for 730 hours at 0.00065.
        assert!((usd(&provisioned.unsharded, Service::DynamoDB, "writes") - 3_389.29).abs() < 0.01);
        assert!(provisioned.unsharded.usd < single.unsharded.usd);
    }
}
