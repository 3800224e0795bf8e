//! The cells of the measurement.
//!
//! The constants of the policy were chosen on the keys of seeds 1 to 8 of some of these cells. The
//! tables are of the keys of other seeds ([`FIRST_SEED`]).

use std::time::Duration;

use crate::oracle::best_width;
use crate::scenario::{Contender, Fleet, Items, Load, Scenario, SortKeys};

/// The first key of the tables.
pub const FIRST_SEED: u64 = 1_001;
/// Write units a second of a partition.
const PARTITION: f64 = 1_000.0;

/// A run has 2,500 writes a second. But a partition takes at least 100 of them, or chance would fill
/// it, and at most 250.
fn scale_of(demand: f64) -> u32 {
    (demand / 2_500.0).clamp(4.0, 10.0) as u32
}

/// The same scenario with the width that an oracle sets for a demand of its key.
#[must_use]
pub fn oracle_of(scenario: &Scenario, demand: f64) -> Scenario {
    let width = best_width(demand / PARTITION, scenario.partitions);
    Scenario { contender: Contender::Once(width), ..scenario.clone() }
}

/// The same scenario with a controller that doubles the shards.
#[must_use]
pub fn doubling_of(scenario: &Scenario) -> Scenario {
    Scenario { contender: Contender::Doubling, ..scenario.clone() }
}

/// An open load on one key, until it is relieved.
#[must_use]
pub fn open(demand: f64, partitions: u32) -> Scenario {
    let scale = scale_of(demand);
    Scenario { scale, seconds: 20, until_relieved: true, ..Scenario::open(demand, partitions) }
}

/// An open load of a minute on one key for which the table has no room. Its writes are repeated,
/// and the less room there is, the less depends on chance.
#[must_use]
pub fn short(demand: f64, partitions: u32) -> Scenario {
    let writes = if demand < 4.0 * PARTITION * f64::from(partitions) { 200.0 } else { 100.0 };
    Scenario { scale: (demand / writes) as u32, ..Scenario::open(demand, partitions) }
}

/// Clients that wait for each response, and the most that they could write.
#[must_use]
pub fn closed(clients: u32, partitions: u32, is_lambda: bool) -> (Scenario, f64) {
    let think_ms: u32 = match clients {
        0..=100 => 10,
        101..=1_000 => 20,
        _ => 100,
    };
    // A write takes five milliseconds, and a timer rounds up to a whole one.
    let demand = f64::from(clients) * 1_000.0 / f64::from(think_ms + 6);
    let fleet = if is_lambda { Fleet::Lambda(clients) } else { Fleet::Shared(1) };
    // On a full table, less depends on chance.
    let most = if demand < PARTITION * f64::from(partitions) { 10 } else { 20 };
    let scale = (demand as u32 / 2_000).clamp(2, most);
    let load = Load::Closed { clients, think: Duration::from_millis(think_ms.into()) };
    (Scenario { load, fleet, scale, seconds: 40, ..Scenario::open(demand, partitions) }, demand)
}

/// An open load on Lambda.
#[must_use]
pub fn lambda(demand: f64, instances: u32, partitions: u32) -> Scenario {
    Scenario { fleet: Fleet::Lambda(instances), seconds: 25, ..open(demand, partitions) }
}

/// Many keys by Zipf's law with this exponent, which together fill this share of the table.
#[must_use]
pub fn zipf(keys: u32, exponent: f64, partitions: u32, filled: f64) -> Scenario {
    let shares: Vec<f64> = (1..=keys).map(|rank| f64::from(rank).powf(-exponent)).collect();
    let total: f64 = shares.iter().sum();
    let demand = filled * f64::from(partitions) * PARTITION;
    Scenario {
        keys: shares.into_iter().map(|share| share / total).collect(),
        fleet: Fleet::Shared(500),
        scale: if keys > 100 { 40 } else { 10 },
        seconds: 20,
        ..Scenario::open(demand, partitions)
    }
}

/// A load on few items of one key.
#[must_use]
pub fn hot_items(count: u32, demand: f64) -> Scenario {
    let sort_keys = SortKeys::Few(count);
    Scenario { sort_keys, scale: 10, seconds: 30, ..Scenario::open(demand, 64) }
}

/// 10,000 units a second of items of other sizes.
#[must_use]
pub fn items(items: Items, partitions: u32) -> Scenario {
    let scale = match items {
        Items::Kilobytes(size) => (16 / size).max(1),
        Items::Mixed => 2,
    };
    Scenario { items, scale, seconds: 30, ..Scenario::open(10_000.0, partitions) }
}

/// A provisioned table whose partitions are not known: 3,000 units a second, on 20 partitions with
/// this share each.
#[must_use]
pub fn provisioned(share: f64) -> Scenario {
    let seconds = 600;
    Scenario {
        provisioned: Some(share),
        is_known: false,
        scale: 30,
        seconds,
        ..Scenario::open(3_000.0, 20)
    }
}

/// A load that doubles each minute from 500 to 40,000 units a second.
#[must_use]
pub fn ramp(partitions: u32) -> Scenario {
    let shape = |second: f64| (2f64.powf((second / 60.0).floor()) / 80.0).min(1.0);
    Scenario {
        load: Load::Open(40_000.0, shape),
        scale: 50,
        seconds: 440,
        ..Scenario::open(40_000.0, partitions)
    }
}

/// A day in twelve minutes: 300 units a second at night, 15,000 at noon.
#[must_use]
pub fn day(partitions: u32) -> Scenario {
    let shape = |second: f64| {
        let of_day = (1.0 - (second / 720.0 * std::f64::consts::TAU).cos()) / 2.0;
        0.02 + 0.98 * of_day
    };
    Scenario {
        load: Load::Open(15_000.0, shape),
        scale: 60,
        seconds: 720,
        ..Scenario::open(15_000.0, partitions)
    }
}

/// Bursts of twenty seconds every two minutes.
#[must_use]
pub fn bursts(demand: f64, partitions: u32) -> Scenario {
    let shape = |second: f64| if second % 120.0 < 20.0 { 1.0 } else { 0.01 };
    let load = Load::Open(demand, shape);
    Scenario { load, scale: scale_of(demand), seconds: 260, ..Scenario::open(demand, partitions) }
}
