//! The notes of a plan.

use super::costs::{Bill, MonthlyCost};
use super::demand::{Demand, started_kbs};
use super::options::PlanOptions;
use super::partitions::TABLE_QUOTA;
use super::reads::PageCost;
use cli::numbers::{counted, dollars, whole};

/// The bytes that this product adds to an item: names, version and suffix, and the partition key
/// again, here of 20 bytes.
const OWN_BYTES: u32 = 38 + 20;
/// From this number of units on, a few writes that coincide exceed a partition.
const LARGE_WRITE: u32 = 100;
/// The items of a request for which a note gives the price.
pub(super) const BATCH: u32 = 25;

/// The facts that the notes depend on.
pub(super) struct Known<'a> {
    pub(super) options: &'a PlanOptions,
    pub(super) demand: &'a Demand,
    pub(super) page: &'a PageCost,
    pub(super) cost: &'a MonthlyCost,
    /// The functions' bill for [`BATCH`] items in each request.
    pub(super) in_batches: &'a Bill,
}

/// Returns the notes, one for each topic.
pub(super) fn notes(known: &Known<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let plain = started_kbs(known.options.item_size.saturating_sub(OWN_BYTES));
    if plain < known.demand.units_per_write {
        notes.push(format!(
            "This product's own attributes take about {OWN_BYTES} of the {} bytes; a plain item without them would take \
             {} and not {}, so plain DynamoDB costs less than shown here.",
            whole(f64::from(known.options.item_size)),
            counted(plain, "write unit"),
            known.demand.units_per_write,
        ));
    }
    if known.demand.write_units_per_second > TABLE_QUOTA {
        notes.push(format!(
            "A table serves {} write units a second until its quota is raised.",
            whole(TABLE_QUOTA)
        ));
    }
    if known.demand.units_per_write >= LARGE_WRITE {
        notes.push(format!(
            "A partition takes writes of {} units only until it has spent the units of a second. Writes that coincide are \
             throttled below its rate, which this plan does not count.",
            known.demand.units_per_write,
        ));
    }
    if known.page.ends_early {
        notes.push(format!(
            "A page ends at about 2 MB: {} of the {} items.",
            known.page.items, known.options.page_size
        ));
    }
    if known.options.items_per_request < BATCH {
        notes.push(format!(
            "With the functions, {BATCH} items in each request (POST /items/batch) cost {} a month instead of {}.",
            dollars(known.in_batches.usd),
            dollars(known.cost.functions.usd),
        ));
    }
    notes
}
