//! The cost of a page over all shards, compared with the same page of an unsharded key.
//!
//! Each shard's response is rounded up to 4 KB, and an empty response costs as much as one of 4 KB.
//! So n shards cost at least n half units. The items of a page on each shard have a binomial
//! distribution, so the least cost is exact. The reader's overhead and the latency are measured
//! (docs/costs.md, "Reads by fan-out": 100 items of 1 KB, eventually consistent, each request 3
//! ms).

use sharding::internal::policy::collisions::binomial;

const READ_UNIT_BYTES: u64 = 4_096;
const QUERY_BYTES: u64 = 1_024 * 1_024;
/// This product ends a page here.
const PAGE_BYTES: u64 = 2 * 1_024 * 1_024;
/// The most shards that one page queries at the same time.
const FAN_OUT: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PageCost {
    /// The number of items: as many as requested, or as fit into about 2 MB.
    pub(crate) items: u32,
    /// Requests of the unsharded page. A `Query` reads at most 1 MB.
    pub(crate) unsharded_requests: u32,
    /// Requests of the page over shards, in its first round. If sort keys are uneven, shards that
    /// run out of items are queried again.
    pub(crate) requests: u32,
    pub(crate) units: PageUnits,
    pub(crate) latency: PageLatency,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PageUnits {
    pub(crate) unsharded: f64,
    /// Over the shards, for a reader that knows each shard's number of items in advance;
    /// calculated.
    pub(crate) least: f64,
    pub(crate) even: f64,
    /// Over the shards, with uneven sort keys, whose gaps have a heavy tail.
    pub(crate) uneven: f64,
}

/// Latency of a page over the shards, as a multiple of the unsharded page's, if every request takes
/// the same time; measured up to 64 shards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PageLatency {
    /// With even sort keys.
    pub(crate) even: f64,
    /// With uneven sort keys.
    pub(crate) uneven: f64,
}

/// docs/costs.md, "Reads by fan-out": the shards; units of even and of uneven sort keys as multiples
/// of the calculated ones; latency of even and of uneven sort keys as a multiple of the unsharded
/// one. One shard is the unsharded query.
const MEASURED: [[f64; 5]; 4] = [
    [1.0, 1.0, 1.0, 1.0, 1.0],
    [4.0, 1.02, 1.12, 1.09, 1.95],
    [16.0, 1.01, 1.20, 1.19, 2.16],
    [64.0, 1.00, 1.05, 1.60, 2.52],
];

/// Calculates the cost of a page of items of this size over this number of shards.
pub(super) fn page(items: u32, item_bytes: u32, shards: u32, consistent: bool) -> PageCost {
    let fitting = (PAGE_BYTES / u64::from(item_bytes.max(1))).max(1) as u32;
    let items = items.min(fitting);
    let per_unit = if consistent { 1.0 } else { 0.5 };
    let (requests, unsharded) = query(u64::from(items), item_bytes);
    let (mut requests_of_shard, mut units_of_shard) = (0.0, 0.0);
    for (count, probability) in binomial(u64::from(items), 1.0 / f64::from(shards)) {
        let (requests, units) = query(count, item_bytes);
        requests_of_shard += probability * requests as f64;
        units_of_shard += probability * units as f64;
    }
    let least = units_of_shard * f64::from(shards) * per_unit;
    let [_, units_even, units_uneven, latency_even, latency_uneven] = measured(shards);
    // More shards than the fan-out are queried in several rounds.
    let rounds = f64::from(shards.div_ceil(FAN_OUT));
    PageCost {
        items,
        unsharded_requests: u32::try_from(requests).unwrap_or(u32::MAX),
        requests: (requests_of_shard * f64::from(shards)).round() as u32,
        units: PageUnits {
            unsharded: unsharded as f64 * per_unit,
            least,
            even: least * units_even,
            uneven: least * units_uneven,
        },
        latency: PageLatency { even: latency_even * rounds, uneven: latency_uneven * rounds },
    }
}

/// The requests and whole units of one shard's items. Each request reads at most 1 MB and is
/// rounded up; an empty response costs as much as 4 KB.
fn query(items: u64, item_bytes: u32) -> (u64, u64) {
    let bytes = u64::from(item_bytes);
    let units = |items: u64| (items * bytes).div_ceil(READ_UNIT_BYTES).max(1);
    let of_one = (QUERY_BYTES / bytes.max(1)).max(1);
    let (full, rest) = (items / of_one, items % of_one);
    match (full, rest) {
        (0, _) => (1, units(rest)),
        (full, 0) => (full, full * units(of_one)),
        (full, rest) => (full + 1, full * units(of_one) + units(rest)),
    }
}

/// A page's units and latency, as in the columns of [`MEASURED`]. Interpolates by the logarithm of
/// the shards, and uses the last values beyond the last number.
fn measured(shards: u32) -> [f64; 5] {
    let shards = f64::from(shards);
    for pair in MEASURED.windows(2) {
        if let [low, high] = pair
            && shards <= high[0]
        {
            let place = (shards / low[0]).ln() / (high[0] / low[0]).ln();
            return std::array::from_fn(|at| low[at] + (high[at] - low[at]) * place);
        }
    }
    MEASURED[MEASURED.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_the_pages_that_were_measured() {
        // docs/costs.md, "Reads by fan-out": shards, the oracle's units, and ours for even and for
        // uneven sort keys. The oracle's units depend on the random draw.
        let rows = [(4, 13.28, 13.51, 14.80), (16, 15.48, 15.71, 18.63), (64, 32.68, 32.82, 34.50)];
        for (shards, least, even, uneven) in rows {
            let units = page(100, 1_024, shards, false).units;
            assert!((units.unsharded - 12.5).abs() < 1e-9);
            let all = [units.least, units.even, units.uneven];
            for (found, expected) in all.iter().zip([least, even, uneven]) {
                let off = (found / expected - 1.0).abs();
                assert!(off < 0.01, "{shards} shards: {found}, measured {expected}");
            }
        }
    }

    #[test]
    fn strong_consistency_doubles_the_units() {
        let (eventual, strong) = (page(50, 700, 8, false).units, page(50, 700, 8, true).units);
        assert!((strong.least - 2.0 * eventual.least).abs() < 1e-9);
        assert!((strong.unsharded - 2.0 * eventual.unsharded).abs() < 1e-9);
    }

    #[test]
    fn a_query_reads_a_megabyte_and_a_page_two() {
        let page = page(1_000, 409_600, 1, true);
        assert_eq!((page.items, page.unsharded_requests), (5, 3));
        assert!((page.units.unsharded - 500.0).abs() < 1e-9, "{page:?}");
    }
}
