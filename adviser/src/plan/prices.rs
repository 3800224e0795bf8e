//! The published prices: one data file, `adviser/prices.json`, with the source and the date of each
//! price.

use serde::{Deserialize, Serialize};

/// The hours of a month in AWS's bills.
pub(super) const MONTH_HOURS: f64 = 730.0;
pub(super) const HOUR_SECONDS: f64 = 3_600.0;

const FILE: &str = include_str!("../../prices.json");

/// The price file is invalid. Repair `adviser/prices.json`.
#[derive(Debug, thiserror::Error)]
#[error("adviser/prices.json: {0}")]
pub struct PricesError(#[from] serde_json::Error);

/// The prices of one region.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// The region.
    pub region: String,
    /// The currency.
    pub currency: String,
    /// The day on which the prices were collected.
    pub assembled_on: String,
    /// The way in which they were collected.
    pub how: String,
    /// Writes of on-demand tables.
    pub dynamodb_write_request_units: Price,
    /// Reads of on-demand tables.
    pub dynamodb_read_request_units: Price,
    /// Write capacity of provisioned tables.
    pub dynamodb_write_capacity_hours: Price,
    /// Read capacity of provisioned tables.
    pub dynamodb_read_capacity_hours: Price,
    /// Write units per second added to the warm throughput of a table or an index; charged once.
    pub dynamodb_warm_write_units: Price,
    /// Read units per second added to the warm throughput of a table or an index; charged once.
    pub dynamodb_warm_read_units: Price,
    /// Storage, table class Standard.
    pub dynamodb_storage: Price,
    /// Point-in-time recovery, by the size of the table.
    pub dynamodb_point_in_time_recovery: Price,
    /// Rules of Contributor Insights, for each month.
    pub contributor_insights_rules: Price,
    /// Events of DynamoDB that Contributor Insights counts.
    pub contributor_insights_events: Price,
    /// Invocations.
    pub lambda_requests: Price,
    /// Memory times duration on Graviton.
    pub lambda_gb_seconds_arm64: Price,
    /// Memory times duration on Intel or AMD.
    pub lambda_gb_seconds_x86_64: Price,
    /// Requests of an HTTP API, in steps of 512 KB.
    pub http_api_requests: Price,
    /// Log ingestion.
    pub log_ingestion: Price,
    /// Log storage.
    pub log_storage: Price,
    /// Metrics of standard alarms, for each month.
    pub cloudwatch_alarm_metrics: Price,
    /// Dashboards, for each month.
    pub cloudwatch_dashboards: Price,
    /// Runs of a schedule.
    pub scheduler_invocations: Price,
    /// Traces that X-Ray records.
    pub xray_traces: Price,
    /// Requests to KMS.
    pub kms_requests: Price,
}

/// One price.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The unit.
    pub unit: String,
    /// The number of units that the price is for.
    pub per: f64,
    /// The price by the month's use.
    tiers: Vec<Tier>,
    /// The page that publishes the price.
    pub source: String,
    /// The day on which the page was read or, for third parties, on which their text was read.
    pub checked_on: String,
    /// The reliability of the price.
    pub evidence: Evidence,
    /// A note.
    pub note: String,
}

/// The reliability of a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Others read it on AWS's page or in its price list, for this region, on a known day.
    Transcript,
    /// Others name it; it is not verified.
    ThirdParty,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Tier {
    /// The month's use up to which the price applies; `None` for all further use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    up_to: Option<f64>,
    usd: f64,
}

impl Prices {
    /// Returns the prices of the data file.
    ///
    /// # Errors
    /// [`PricesError`] if the file is invalid.
    pub fn published() -> Result<Self, PricesError> {
        Ok(serde_json::from_str(FILE)?)
    }
}

impl Price {
    /// Returns the cost of a month's use of this quantity.
    #[must_use]
    pub fn of(&self, quantity: f64) -> f64 {
        let (mut below, mut cost) = (0.0, 0.0);
        for tier in &self.tiers {
            let end = tier.up_to.unwrap_or(f64::INFINITY).min(quantity);
            cost += (end - below).max(0.0) / self.per * tier.usd;
            below = end.max(below);
        }
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_data_file_fits_and_every_price_ends_without_a_bound() {
        let prices = serde_json::to_value(Prices::published().unwrap()).unwrap();
        let each: Vec<Price> = prices
            .as_object()
            .unwrap()
            .values()
            .filter(|value| value.is_object())
            .map(|value| serde_json::from_value(value.clone()).unwrap())
            .collect();
        assert_eq!(each.len(), 21);
        for price in each {
            assert!(price.tiers.last().is_some_and(|tier| tier.up_to.is_none()), "{price:?}");
            assert!(
                price.tiers.is_sorted_by_key(|tier| tier.up_to.unwrap_or(f64::INFINITY)),
                "{price:?}"
            );
            assert!(
                price.source.starts_with("https://aws.amazon.com/") && price.checked_on.len() == 10,
                "{price:?}"
            );
        }
    }

    #[test]
    fn tiers_are_paid_one_after_another() {
        let prices = Prices::published().unwrap();
        // AWS's own example: 432 million requests.
        assert!((prices.http_api_requests.of(432e6) - 418.8).abs() < 1e-6);
        // The tiers of logs are known from this example of 60 TB.
        assert!((prices.log_ingestion.of(60_000.0) - 12_500.0).abs() < 1e-6);
        assert!((prices.dynamodb_write_request_units.of(2e6) - 1.25).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn more_never_costs_less(quantity in 0.0f64..1e11, more in 0.0f64..1e11) {
            let prices = Prices::published().unwrap();
            for price in [
                &prices.http_api_requests,
                &prices.lambda_gb_seconds_arm64,
                &prices.log_ingestion,
            ] {
                prop_assert!(price.of(quantity + more) >= price.of(quantity));
            }
        }
    }
}
