//! The cells of the measurement. None of them was used to choose a constant of the policy, unless
//! its name says so.

use std::time::Duration;

use crate::oracle::best_width;
use crate::scenario::{Contender, Fleet, Items, Load, Scenario, SortKeys};

/// The largest number of writes a second of a run. A larger demand is scaled down to it.
const WRITES: f64 = 1_000.0;
/// A partition takes at least this many writes a second, or chance would fill it.
const WRITES_OF_PARTITION: f64 = 40.0;
/// Write units a second of a partition.
pub(crate) const PARTITION: f64 = 1_000.0;

/// The scale for a demand.
#[must_use]
pub fn scale_of(demand: f64) -> u32 {
    (demand / WRITES).min(PARTITION / WRITES_OF_PARTITION).max(1.0) as u32
}

/// The oracle of a scenario with one key.
#[must_use]
pub fn oracle_of(scenario: &Scenario, demand: f64) -> Scenario {
    let width = best_width(demand / PARTITION, scenario.partitions);
    Scenario { contender: Contender::Once(width), ..scenario.clone() }
}

/// An open load on one key.
#[must_use]
pub fn open(demand: f64, partitions: u32, seconds: u32) -> Scenario {
    Scenario { scale: scale_of(demand), seconds, ..Scenario::open(demand, partitions) }
}

/// Clients that wait, and write again after 10 ms at the earliest. Returns what they send at most.
#[must_use]
pub fn closed(clients: u32, partitions: u32, is_lambda: bool) -> (Scenario, f64) {
    // 40 clients could send 2,600 writes a second, and 4,000 clients 39,000.
    let think = match clients {
        0..=100 => 10,
        101..=1_000 => 20,
        _ => 100,
    };
    let demand = f64::from(clients) * 1_000.0 / (think + 6) as f64;
    let fleet = if is_lambda { Fleet::Lambda(clients) } else { Fleet::Shared(1) };
    let scale = scale_of(demand).min(clients / 20).max(1);
    let think = Duration::from_millis(think);
    let load = Load::Closed { clients, think };
    (Scenario { load, fleet, scale, seconds: 60, ..Scenario::open(demand, partitions) }, demand)
}

/// An open load on Lambda.
#[must_use]
pub fn lambda(demand: f64, instances: u32, partitions: u32) -> Scenario {
    Scenario { fleet: Fleet::Lambda(instances), ..open(demand, partitions, 60) }
}

/// Many keys by Zipf's law with this exponent, which together fill this share of the table.
#[must_use]
pub fn zipf(keys: u32, exponent: f64, partitions: u32, filled: f64) -> Scenario {
    let shares: Vec<f64> = (1..=keys).map(|rank| f64::from(rank).powf(-exponent)).collect();
    let total: f64 = shares.iter().sum();
    let demand = filled * f64::from(partitions) * PARTITION;
    Scenario {
        keys: shares.into_iter().map(|share| share / total).collect(),
        fleet: Fleet::Shared(50 * 25),
        scale: 25,
        ..Scenario::open(demand, partitions)
    }
}

/// Few hot items.
#[must_use]
pub fn hot_items(count: u32, demand: f64) -> Scenario {
    Scenario { sort_keys: SortKeys::Few(count), ..open(demand, 64, 60) }
}

/// Items of this size.
#[must_use]
pub fn items(items: Items, partitions: u32) -> Scenario {
    Scenario { items, ..Scenario::open(10_000.0, partitions) }
}

/// A provisioned table whose partitions are not known: 3,000 units a second, on 20 partitions with
/// this share each.
#[must_use]
pub fn provisioned(share: f64) -> Scenario {
    Scenario {
        provisioned: Some(share),
        is_known: false,
        scale: 5,
        seconds: 600,
        ..Scenario::open(3_000.0, 20)
    }
}

/// A load that doubles each minute from 500 to 40,000 units a second.
#[must_use]
pub fn ramp(partitions: u32) -> Scenario {

    Scenario {
        load: Load::Open(40_000.0, |second| (2f64.powf((second / 60.0).floor()) / 80.0).min(1.0)),
        scale: 20,
        seconds: 440,
        ..Scenario::open(40_000.0, partitions)
    }
}
