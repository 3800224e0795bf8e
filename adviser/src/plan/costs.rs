//! The costs of a month: plain DynamoDB, this product's crate, and the three functions behind API
//! Gateway.
//!
//! Not included: free allowances, savings plans, taxes, data transfer, backups, and the costs of
//! the table's other keys.

use sharding::internal::protocol::view::MAX_LEASE;

use super::figures::Plan;
use super::options::CapacityMode;
use super::prices::Price;

const MONTH_HOURS: f64 = 730.0;
const MONTH_DAYS: f64 = MONTH_HOURS / 24.0;
const MONTH_SECONDS: f64 = MONTH_HOURS * 3_600.0;

/// The time that a function waits for one DynamoDB request. Assumed: "single-digit milliseconds".
const REQUEST_SECONDS: f64 = 0.005;
/// The time of a function's own work. (docs/costs.md, "How the functions start": the hundredth
/// request takes half of it.)
const OWN_SECONDS: f64 = 0.001;
/// The most items of a batch that are written at the same time.
const WRITE_CONCURRENCY: u32 = 64;
/// The share of its lease after which an instance renews a page of the directory.
/// (`RENEWAL_SHARE` in `shared/src/engine/views/mod.rs`.)
const RENEWAL_SHARE: f64 = 0.8;

/// The share of provisioned capacity that auto scaling aims for (`TargetUtilization` of
/// template.yaml).
const TARGET_UTILISATION: f64 = 0.7;
/// Memory of the writer and the reader (template.yaml).
const MEMORY_GB: f64 = 256.0 / 1_024.0;
/// Bytes of log lines for one HTTP request. Assumed: API Gateway writes about 500, Lambda about
/// 700, and the metrics have about 400.
const LOG_BYTES: f64 = 1_600.0;
/// API Gateway meters requests in steps of this many bytes.
const METERED_BYTES: f64 = 512.0 * 1_024.0;
/// The number of rules of the throttled-keys mode of Contributor Insights, for a table with a sort
/// key.
const INSIGHT_RULES: f64 = 2.0;
/// The bytes that DynamoDB adds to the stored size of each item. (DynamoDB pricing, "Data
/// storage".)
const STORED_WITH_ITEM: f64 = 100.0;
const GB: f64 = 1e9;
pub(super) const ASSUMED: &str = "Assumed: 5 ms for a DynamoDB request, functions of 256 MB, 1,600 bytes of logs for an HTTP request.";

/// The billed services, in the order of the table: tables; functions; the HTTP API; logs, Contributor
/// Insights and X-Ray.
pub(super) const SERVICES: [&str; 4] = [DYNAMODB, LAMBDA, API_GATEWAY, CLOUDWATCH];
const DYNAMODB: &str = "DynamoDB";
const LAMBDA: &str = "Lambda";
const API_GATEWAY: &str = "API Gateway";
const CLOUDWATCH: &str = "CloudWatch";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) service: &'static str,
    pub(crate) what: &'static str,
    pub(crate) quantity: f64,
    /// The cost of a month.
    pub(crate) usd: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bill {
    pub(crate) name: &'static str,
    pub(crate) lines: Vec<Line>,
    pub(crate) usd: f64,
}

#[derive(Debug)]
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

impl Plan {
    pub(super) fn monthly_cost(&self) -> MonthlyCost {
        let unsharded = self.table(self.page.units.unsharded);
        let mut own_service = self.table(self.page.units.uneven);
        // The metadata table is always on demand. Every busy instance renews its pages.
        let directory = self.directory_read_units() * MONTH_SECONDS;
        let price = &self.prices.dynamodb_read_request_units;
        own_service.push(line(DYNAMODB, "directory", directory, price));
        let functions = own_service.iter().cloned().chain(self.around()).collect();
        let items = self.demand.writes_per_second * MONTH_SECONDS;
        let stored = items * (f64::from(self.demand.item_bytes) + STORED_WITH_ITEM) / GB;
        let storage = line(DYNAMODB, "storage", stored, &self.prices.dynamodb_storage);
        MonthlyCost {
            unsharded: bill("plain DynamoDB, one partition key", unsharded),
            own_service: bill("the crate in a service of one's own", own_service),
            functions: bill("the functions behind API Gateway", functions),
            storage_of_a_months_items: storage,
        }
    }

    /// The lines of the table: writes, which cost the same sharded or not, and pages of these read
    /// units.
    fn table(&self, units_of_page: f64) -> Vec<Line> {
        let prices = &self.prices;
        let (write, read, each) = match self.options.capacity {
            CapacityMode::OnDemand => (
                &prices.dynamodb_write_request_units,
                &prices.dynamodb_read_request_units,
                MONTH_SECONDS,
            ),
            CapacityMode::Provisioned => (
                &prices.dynamodb_write_capacity_hours,
                &prices.dynamodb_read_capacity_hours,
                MONTH_HOURS / TARGET_UTILISATION,
            ),
        };
        let reads = self.pages_per_second() * units_of_page * each;
        let writes = self.demand.write_units_per_second * each;
        vec![line(DYNAMODB, "writes", writes, write), line(DYNAMODB, "reads", reads, read)]
    }

    /// The lines of the functions, the HTTP API and their logs.
    fn around(&self) -> Vec<Line> {
        let prices = &self.prices;
        let (writes, pages) = (self.requests_of_writer(), self.pages_per_second());
        let requests = (writes + pages) * MONTH_SECONDS;
        let busy =
            writes * billed(self.seconds_of_writer()) + pages * billed(self.seconds_of_reader());
        let gb_seconds = MEMORY_GB * busy * MONTH_SECONDS;
        let steps = |items: u32| {
            (f64::from(items) * f64::from(self.demand.item_bytes) / METERED_BYTES).ceil().max(1.0)
        };
        let metered =
            writes * steps(self.options.items_per_request) + pages * steps(self.page.items);
        let throttles = self.demand.writes_per_second * self.throttled * MONTH_SECONDS;
        let logs = requests * LOG_BYTES / GB;
        let rules = &prices.contributor_insights_rules;
        let mut lines = vec![
            line(LAMBDA, "requests", requests, &prices.lambda_requests),
            line(LAMBDA, "compute", gb_seconds, &prices.lambda_gb_seconds_arm64),
            line(API_GATEWAY, "requests", metered * MONTH_SECONDS, &prices.http_api_requests),
            line(CLOUDWATCH, "logs", logs, &prices.log_ingestion),
            line(CLOUDWATCH, "Contributor Insights", INSIGHT_RULES, rules),
            line(CLOUDWATCH, "throttles counted", throttles, &prices.contributor_insights_events),
        ];
        let stored = logs * f64::from(self.options.log_days) / MONTH_DAYS;
        lines.push(line(CLOUDWATCH, "stored logs", stored, &prices.log_storage));
        if self.options.traced {
            let traces = self.traces() * MONTH_SECONDS;
            lines.push(line(CLOUDWATCH, "X-Ray", traces, &prices.xray_traces));
        }
        lines
    }

    /// The average number of instances that are busy at once: requests per second times the seconds
    /// of each. (AWS Lambda developer guide, "Understanding Lambda function scaling".)
    fn busy_instances(&self) -> f64 {
        self.requests_of_writer() * self.seconds_of_writer()
            + self.pages_per_second() * self.seconds_of_reader()
    }

    fn pages_per_second(&self) -> f64 {
        self.options.read_rate.into()
    }

    /// Read units of the directory per second. A busy instance renews the page that lists the key,
    /// which takes one unit, before its lease ends. A request renews it at most once.
    fn directory_read_units(&self) -> f64 {
        let renewals = self.busy_instances() / (MAX_LEASE.as_secs_f64() * RENEWAL_SHARE);
        renewals.min(self.requests_of_writer() + self.pages_per_second())
    }

    /// Traces that X-Ray records per second. Each function samples one request a second, and 5
    /// percent of the others. (AWS Lambda developer guide, "Visualize Lambda function invocations
    /// using AWS X-Ray".)
    fn traces(&self) -> f64 {
        let sampled = |requests: f64| requests.min(1.0) + 0.05 * (requests - 1.0).max(0.0);
        sampled(self.requests_of_writer()) + sampled(self.pages_per_second())
    }

    fn requests_of_writer(&self) -> f64 {
        self.demand.writes_per_second / f64::from(self.options.items_per_request.max(1))
    }

    fn seconds_of_writer(&self) -> f64 {
        REQUEST_SECONDS * f64::from(self.options.items_per_request.div_ceil(WRITE_CONCURRENCY))
            + OWN_SECONDS
    }

    fn seconds_of_reader(&self) -> f64 {
        REQUEST_SECONDS * f64::from(self.page.unsharded_requests) * self.page.latency.uneven
            + OWN_SECONDS
    }
}

/// Rounds up to milliseconds, as Lambda's bill does.
fn billed(seconds: f64) -> f64 {
    (seconds * 1_000.0).ceil() / 1_000.0
}

fn line(service: &'static str, what: &'static str, quantity: f64, price: &Price) -> Line {
    Line { service, what, quantity, usd: price.of(quantity) }
}

fn bill(name: &'static str, lines: Vec<Line>) -> Bill {
    Bill { name, usd: lines.iter().map(|line| line.usd).sum(), lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::options::PlanOptions;
    use crate::plan::plan;

    fn cost(options: &PlanOptions) -> MonthlyCost {
        plan(options).monthly_cost()
    }

    fn options() -> PlanOptions {
        PlanOptions { item_size: 1_024, shards: Some(16), ..PlanOptions::of(5_000, None) }
    }

    fn usd(bill: &Bill, service: &'static str, what: &str) -> f64 {
        let own = |line: &&Line| line.service == service && line.what == what;
        bill.lines.iter().filter(own).map(|line| line.usd).sum()
    }

    #[test]
    fn stored_logs_and_traces_are_added_to_the_functions() {
        let without = cost(&options());
        // 5,020 requests a second with 1,600 bytes of logs are 21,108 GB a month, at 0.03 for each
        // 30.4 days. Of 5,000 and 20 requests a second, 250.95 and 1.95 are traced, at 5.00 a
        // million.
        let stored = 21_108.1 * 0.03 / (730.0 / 24.0);
        let traced = 252.9 * 2_628_000.0 * 5.0 / 1e6;
        let with = cost(&PlanOptions { log_days: 365, traced: true, ..options() });
        assert_eq!(with.own_service, without.own_service);
        let added = with.functions.usd - without.functions.usd;
        assert!((added - 365.0 * stored - traced).abs() < 1.0, "{added}");
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
    fn a_busy_instance_renews_a_page_before_its_lease_ends() {
        // 5,000 requests a second of 6 ms each keep 30 instances busy, which each read the page
        // 1.25 times a second.
        let options = PlanOptions { read_rate: 0, ..PlanOptions::of(5_000, None) };
        let found = plan(&options).directory_read_units();
        assert!((found - 37.5).abs() < 1e-6, "{found}");
    }
}
