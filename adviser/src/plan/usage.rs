//! The use of a table that the bills and the directory depend on.

use super::at_rest::Profile;
use super::demand::Demand;
use super::options::{Architecture, CapacityMode};
use super::reads::PageCost;

/// The time that a function waits for one DynamoDB request. Assumed: "single-digit milliseconds".
const REQUEST_SECONDS: f64 = 0.005;
/// The time of a function's own work. (docs/costs.md, "How the functions start": the hundredth
/// request takes half of it.)
const OWN_SECONDS: f64 = 0.001;
/// The most items of a batch that are written at the same time.
const AT_ONCE: u32 = 64;

/// The use of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage<'a> {
    pub(super) demand: &'a Demand,
    pub(super) pages_per_second: f64,
    pub(super) page: &'a PageCost,
    pub(super) throttled: f64,
    pub(super) capacity: CapacityMode,
    pub(super) items_per_request: u32,
    pub(super) architecture: Architecture,
    /// The profile of the functions' stack, if its own costs are wanted.
    pub(super) profile: Option<&'static Profile>,
    /// The number of instances that are busy at once, if the user gave it.
    pub(super) instances: Option<u32>,
}

impl Usage<'_> {
    /// The average number of instances that are busy at once: requests per second times the seconds
    /// of each. (AWS Lambda developer guide, "Understanding Lambda function scaling".)
    pub(super) fn busy_instances(&self) -> f64 {
        self.requests_of_writer() * self.seconds_of_writer()
            + self.pages_per_second * self.seconds_of_reader()
    }

    /// HTTP requests per second: writes, or batches of them, and pages.
    pub(super) fn requests(&self) -> f64 {
        self.requests_of_writer() + self.pages_per_second
    }

    /// Traces that X-Ray records per second. Each function samples one request a second, and 5
    /// percent of the others. (AWS Lambda developer guide, "Visualize Lambda function invocations
    /// using AWS X-Ray".)
    pub(super) fn traces(&self) -> f64 {
        let sampled = |requests: f64| requests.min(1.0) + 0.05 * (requests - 1.0).max(0.0);
        sampled(self.requests_of_writer()) + sampled(self.pages_per_second)
    }

    /// HTTP requests to the writer per second.
    pub(super) fn requests_of_writer(&self) -> f64 {
        self.demand.writes_per_second / f64::from(self.items_per_request.max(1))
    }

    /// The duration of a request to the writer.
    pub(super) fn seconds_of_writer(&self) -> f64 {
        REQUEST_SECONDS * f64::from(self.items_per_request.div_ceil(AT_ONCE)) + OWN_SECONDS
    }

    /// The duration of a request to the reader.
    pub(super) fn seconds_of_reader(&self) -> f64 {
        REQUEST_SECONDS * f64::from(self.page.unsharded_requests) * self.page.latency.uneven
            + OWN_SECONDS
    }
}
