//! The choice between more partitions and more shards.

use serde::Serialize;

use super::warming::WarmUnits;
use crate::plan::costs::{self, HourlyCost};
use crate::plan::options::PlanOptions;
use crate::plan::prices::Prices;
use crate::plan::reads;
use crate::plan::ready::Ready;
use crate::plan::usage::Usage;

/// A number of partitions, with the shards that are enough on them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LaunchChoice {
    /// Partitions of the table.
    pub partitions: u32,
    /// The warm throughput of the table and of each index.
    pub warm: WarmUnits,
    /// Shards of each key.
    pub shards_per_key: u32,
    /// The expected share of the first attempts that is throttled.
    pub throttled: f64,
    /// Read units of a page over the shards, with uneven sort keys.
    pub page_read_units: f64,
    /// The one-time cost of warming the table and all indexes together.
    pub warming_usd: f64,
    /// The costs of an hour of the demand.
    pub hour: HourlyCost,
}

/// The facts that all choices have in common.
pub(super) struct Compared<'a> {
    pub(super) options: &'a PlanOptions,
    pub(super) usage: &'a Usage<'a>,
    pub(super) now: WarmUnits,
    pub(super) prices: &'a Prices,
}

impl Compared<'_> {
    pub(super) fn choice(&self, ready: Ready) -> LaunchChoice {
        let Ready { partitions, shards, throttled } = ready;
        let page = reads::page(
            self.options.page_size,
            self.options.item_size,
            shards,
            self.options.consistent,
        );
        let usage = Usage { page: &page, throttled, ..*self.usage };
        let indexes = u32::try_from(self.options.index.len()).unwrap_or(u32::MAX);
        let warm =
            WarmUnits::needed(partitions, usage.pages_per_second * page.units.uneven, self.now);
        LaunchChoice {
            partitions,
            warm,
            shards_per_key: shards,
            throttled,
            page_read_units: page.units.uneven,
            warming_usd: warm.usd_from(self.now, self.prices) * (1.0 + f64::from(indexes)),
            hour: costs::hour(&usage, indexes, self.prices),
        }
    }
}
