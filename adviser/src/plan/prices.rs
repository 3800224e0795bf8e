//! The published prices: one data file, `adviser/prices.json`. It also has the source and the date
//! of each price, and the prices of a stack at rest (docs/costs.md), which only a test reads.

use serde::Deserialize;

const FILE: &str = include_str!("../../prices.json");

#[derive(Debug, Deserialize)]
pub(crate) struct Prices {
    pub(crate) region: String,
    pub(crate) currency: String,
    pub(crate) assembled_on: String,
    pub(crate) dynamodb_write_request_units: Price,
    pub(crate) dynamodb_read_request_units: Price,
    pub(crate) dynamodb_write_capacity_hours: Price,
    pub(crate) dynamodb_read_capacity_hours: Price,
    /// Write units per second added to the warm throughput of a table or an index; charged once.
    pub(crate) dynamodb_warm_write_units: Price,
    pub(crate) dynamodb_storage: Price,
    pub(crate) contributor_insights_rules: Price,
    pub(crate) contributor_insights_events: Price,
    pub(crate) lambda_requests: Price,
    pub(crate) lambda_gb_seconds_arm64: Price,
    pub(crate) http_api_requests: Price,
    pub(crate) log_ingestion: Price,
    pub(crate) log_storage: Price,
    pub(crate) xray_traces: Price,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Price {
    /// The number of units that the price is for.
    per: f64,
    tiers: Vec<Tier>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tier {
    /// The month's use up to which the price applies; `None` for all further use.
    up_to: Option<f64>,
    usd: f64,
}

impl Prices {
    pub(crate) fn published() -> Self {
        serde_json::from_str(FILE).expect("a test reads the same file")
    }
}

impl Price {
    /// Returns the cost of a month's use of this quantity.
    pub(crate) fn of(&self, quantity: f64) -> f64 {
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
    use serde_json::Value;

    #[test]
    fn every_price_ends_without_a_bound_and_has_its_source() {
        let file: Value = serde_json::from_str(FILE).unwrap();
        let each: Vec<&Value> =
            file.as_object().unwrap().values().filter(|value| value.is_object()).collect();
        assert_eq!(each.len(), 20);
        for price in each {
            let tiers = Price::deserialize(price).unwrap().tiers;
            let ends: Vec<f64> =
                tiers.iter().map(|tier| tier.up_to.unwrap_or(f64::INFINITY)).collect();
            assert!(ends.is_sorted() && ends.last() == Some(&f64::INFINITY), "{price}");
            let text = |field: &str| price[field].as_str().unwrap();
            assert!(text("source").starts_with("https://aws.amazon.com/"), "{price}");
            assert!(text("checked_on").len() == 10 && !text("note").is_empty(), "{price}");
            assert!(["transcript", "third-party"].contains(&text("evidence")), "{price}");
        }
    }

    #[test]
    fn tiers_are_paid_one_after_another() {
        let prices = Prices::published();
        // AWS's own example: 432 million requests.
        assert!((prices.http_api_requests.of(432e6) - 418.8).abs() < 1e-6);
        // The tiers of logs are known from this example of 60 TB.
        assert!((prices.log_ingestion.of(60_000.0) - 12_500.0).abs() < 1e-6);
        assert!((prices.dynamodb_write_request_units.of(2e6) - 1.25).abs() < 1e-9);
    }
}
