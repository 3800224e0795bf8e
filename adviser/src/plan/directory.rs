//! The directory: the reads of its pages by instances, the copies that these reads need, and their
//! costs.
//!
//! A page needs copies because a copy is one item, whose partition serves 3,000 read units per
//! second. A busy instance renews a page after 0.8 of its lease of a second, so it reads the page
//! 1.25 times per second, whatever its number of requests. A copy that costs one unit may use 45 %
//! of its partition, which supports 1,080 instances. The rest is for bursts: instances that start
//! together, wait for an open, or happen to choose the same copy.

use std::time::Duration;

use embedded_dynamodb::PartitionLimits;
use serde::Serialize;
use sharding::internal::{MAX_COPIES, MAX_LEASE, PAGES};

use super::prices::{HOUR_SECONDS, MONTH_HOURS, Prices};
use super::usage::Usage;

/// The share of its lease after which an instance renews a page. (`RENEW_AT` in
/// `shared/src/sharded_table/views.rs`.)
const RENEW_AT: f64 = 0.8;
/// The share of a partition's read units that the renewals of a copy may take.
const SHARE: f64 = 0.45;
/// The most keys on a page that costs one read unit. ([`PAGES`])
const KEYS_PER_UNIT: u32 = 35;

/// The needs of the directory, and their costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DirectoryNeed {
    /// The number of busy instances of all functions and services that use the table.
    pub instances: u32,
    /// Whether the number is calculated from the demand. Otherwise the user gave it.
    pub assumed: bool,
    /// Read units of a page.
    pub units_per_read: u32,
    /// Read units per second of all instances, over all pages that list the hot keys.
    pub read_units_per_second: f64,
    /// Copies of each page. A table has at most [`MAX_COPIES`].
    pub copies: u32,
    /// The event for the shard-scaler that makes these copies; absent if the one copy of a new
    /// table is enough.
    pub event: Option<String>,
    /// The costs of the reads in a month.
    pub usd: f64,
}

/// The time after which a busy instance reads a page again.
fn renewed_after() -> Duration {
    MAX_LEASE.mul_f64(RENEW_AT)
}

/// The copies of each page that this number of busy instances needs to keep each copy's partition
/// below 45 % of its read units.
fn recommended_copies(instances: u32, units_per_read: u32) -> u32 {
    let read = f64::from(instances) * f64::from(units_per_read) / renewed_after().as_secs_f64();
    (read / (SHARE * PartitionLimits::default().read_units)).ceil().max(1.0) as u32
}

/// Calculates the needs of the directory for this use.
pub(super) fn need(usage: &Usage<'_>, prices: &Prices) -> DirectoryNeed {
    let instances = (busy(usage).ceil() as u32).max(1);
    let copies = recommended_copies(instances, units_per_read(usage));
    let event = format!(r#"{{"action":"copies","copies":{}}}"#, copies.min(MAX_COPIES));
    DirectoryNeed {
        instances,
        assumed: usage.instances.is_none(),
        units_per_read: units_per_read(usage),
        read_units_per_second: read_units(usage),
        copies,
        event: (copies > 1).then_some(event),
        usd: prices.dynamodb_read_request_units.of(read_units(usage) * MONTH_HOURS * HOUR_SECONDS),
    }
}

/// Read units per second of all instances.
pub(super) fn read_units(usage: &Usage<'_>) -> f64 {
    let renewals = busy(usage) * f64::from(pages(usage)) / renewed_after().as_secs_f64();
    // A request renews at most one page.
    renewals.min(usage.requests()) * f64::from(units_per_read(usage))
}

fn busy(usage: &Usage<'_>) -> f64 {
    usage.instances.map_or_else(|| usage.busy_instances(), f64::from)
}

/// The pages that list the hot keys.
fn pages(usage: &Usage<'_>) -> u32 {
    usage.demand.keys.clamp(1, PAGES)
}

fn units_per_read(usage: &Usage<'_>) -> u32 {
    usage.demand.keys.div_ceil(pages(usage)).div_ceil(KEYS_PER_UNIT).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::demand::Demand;
    use crate::plan::reads::page;
    use crate::plan::{Architecture, CapacityMode};

    fn of(instances: Option<u32>, keys: u32) -> DirectoryNeed {
        let (demand, page) = (Demand::new(5_000, 1_024, keys), page(100, 1_024, 1, false));
        let usage = Usage {
            demand: &demand,
            pages_per_second: 0.0,
            page: &page,
            throttled: 0.0,
            capacity: CapacityMode::OnDemand,
            items_per_request: 1,
            architecture: Architecture::Arm64,
            profile: None,
            instances,
        };
        need(&usage, &Prices::published().unwrap())
    }

    #[test]
    fn a_thousand_instances_need_one_copy() {
        let rows = [
            (1, 1, 1),
            (1_000, 1, 1),
            (1_080, 1, 1),
            (1_081, 1, 2),
            (10_000, 1, 10),
            (540, 2, 1),
            (10_000, 2, 19),
        ];
        for (instances, units, copies) in rows {
            assert_eq!(recommended_copies(instances, units), copies, "{instances} {units}");
        }
    }

    #[test]
    fn instances_follow_from_the_demand_unless_they_are_given() {
        let assumed = of(None, 1);
        // 5,000 requests a second of 6 ms each keep 30 instances busy, which read 1.25 units a
        // second.
        assert_eq!(
            (assumed.instances, assumed.assumed, assumed.copies, assumed.event),
            (30, true, 1, None)
        );
        assert!((assumed.read_units_per_second - 37.5).abs() < 1e-6);
        // For 2,628,000 seconds at 0.125 a million.
        assert!((assumed.usd - 12.32).abs() < 0.01, "{}", assumed.usd);
        let given = of(Some(2_000), 1);
        assert_eq!((given.instances, given.assumed, given.copies), (2_000, false, 2));
        assert_eq!(given.event.as_deref(), Some(r#"{"action":"copies","copies":2}"#));
        assert!((given.read_units_per_second - 2_500.0).abs() < 1e-6);
    }

    #[test]
    fn no_request_renews_more_than_one_page() {
        // 10,000 instances have half a request a second each.
        assert!((of(Some(10_000), 1).read_units_per_second - 5_000.0).abs() < 1e-6);
    }

    #[test]
    fn many_keys_are_on_every_page_and_make_it_larger() {
        let rows = [(4, 1, 4.0), (140, 1, 4.0), (141, 2, 8.0), (1_000, 8, 32.0)];
        for (keys, units, read_of_each_round) in rows {
            let need = of(Some(100), keys);
            assert_eq!(need.units_per_read, units, "{keys}");
            assert!(
                (need.read_units_per_second - 125.0 * read_of_each_round).abs() < 1e-6,
                "{keys}: {need:?}"
            );
        }
    }

    #[test]
    fn the_event_never_has_more_copies_than_a_table_may_have() {
        let need = of(Some(100_000), 1);
        assert_eq!(
            (need.copies, need.event.as_deref()),
            (93, Some(r#"{"action":"copies","copies":64}"#))
        );
    }
}
