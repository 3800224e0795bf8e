//! What a plan is calculated from, and the use of a table that its bills depend on.

use sharding::internal::{protocol::directory::PAGES, protocol::view::MAX_LEASE};

use super::demand::Demand;
use super::options::PlanOptions;
use super::partitions::TablePartitions;
use super::prices::Prices;
use super::reads::PageCost;
use super::shards::ShardChoice;

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
/// The most keys on a page that costs one read unit. ([`PAGES`])
const KEYS_PER_UNIT: u32 = 25;

/// What a plan is calculated from.
pub(super) struct Case<'a> {
    pub(super) options: &'a PlanOptions,
    pub(super) demand: &'a Demand,
    pub(super) partitions: &'a TablePartitions,
    pub(super) shards: &'a ShardChoice,
    pub(super) page: &'a PageCost,
    pub(super) prices: &'a Prices,
}

impl Case<'_> {
    /// The average number of instances that are busy at once: requests per second times the seconds
    /// of each. (AWS Lambda developer guide, "Understanding Lambda function scaling".)
    fn busy_instances(&self) -> f64 {
        self.requests_of_writer() * self.seconds_of_writer()
            + self.pages_per_second() * self.seconds_of_reader()
    }

    pub(super) fn pages_per_second(&self) -> f64 {
        self.options.read_rate.into()
    }

    /// Read units of the directory per second. A busy instance renews each page that lists a hot
    /// key before its lease ends, and a request renews at most one page.
    pub(super) fn directory_read_units(&self) -> f64 {
        let pages = self.demand.keys.clamp(1, PAGES);
        let units = self.demand.keys.div_ceil(pages).div_ceil(KEYS_PER_UNIT).max(1);
        let renewed_after = MAX_LEASE.as_secs_f64() * RENEWAL_SHARE;
        let renewals = self.busy_instances() * f64::from(pages) / renewed_after;
        renewals.min(self.requests_of_writer() + self.pages_per_second()) * f64::from(units)
    }

    /// Traces that X-Ray records per second. Each function samples one request a second, and 5
    /// percent of the others. (AWS Lambda developer guide, "Visualize Lambda function invocations
    /// using AWS X-Ray".)
    pub(super) fn traces(&self) -> f64 {
        let sampled = |requests: f64| requests.min(1.0) + 0.05 * (requests - 1.0).max(0.0);
        sampled(self.requests_of_writer()) + sampled(self.pages_per_second())
    }

    pub(super) fn requests_of_writer(&self) -> f64 {
        self.demand.writes_per_second / f64::from(self.options.items_per_request.max(1))
    }

    pub(super) fn seconds_of_writer(&self) -> f64 {
        REQUEST_SECONDS * f64::from(self.options.items_per_request.div_ceil(WRITE_CONCURRENCY))
            + OWN_SECONDS
    }

    pub(super) fn seconds_of_reader(&self) -> f64 {
        REQUEST_SECONDS * f64::from(self.page.unsharded_requests) * self.page.latency.uneven
            + OWN_SECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;

    #[test]
    fn many_keys_are_on_every_page_and_make_it_larger() {
        // 5,000 requests a second of 6 ms each keep 30 instances busy, which each read a page 1.25
        // times a second: one unit for each 25 keys of a page, on four pages.
        for (keys, units) in [(1, 37.5), (4, 150.0), (100, 150.0), (101, 300.0), (1_000, 1_500.0)] {
            let options = PlanOptions { read_rate: 0, keys, ..PlanOptions::of(5_000, None) };
            let lines = plan(&options).monthly_cost.own_service.lines;
            let directory = lines.iter().find(|line| line.what == "directory").unwrap();
            let found = directory.quantity / (730.0 * 3_600.0);
            assert!((found - units).abs() < 1e-6, "{keys}: {found}");
        }
    }
}
