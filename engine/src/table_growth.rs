//! The growth of a table's partitions: with its traffic, and by a request for warm throughput. An
//! index is partitioned and grows like a table.
//!
//! AWS documents (DynamoDB developer guide, "DynamoDB on-demand capacity mode", "Understanding
//! DynamoDB warm throughput", "Increase your existing DynamoDB table's warm throughput"):
//! - A new on-demand table sustains 4,000 writes and 12,000 reads per second. It serves at once up
//!   to double its previous peak, and may throttle if traffic exceeds that within 30 minutes.
//! - Warm throughput is the number of units that a table or an index can serve at once. Traffic or
//!   a request raises it, and nothing lowers it. During a requested increase, `Status` is
//!   `UPDATING`.
//!
//! Warm throughput is nominal: 1,000 write and 3,000 read units per second for each partition,
//! whatever the configured limits are. Programs divide it by 1,000 to calculate the number of
//! partitions, which DynamoDB does not show. If 64 partitions of a laptop's 50 write units had a
//! warm throughput of 3,200, programs would count four. Everything else uses the configured limits.
//!
//! The model assumes, because AWS gives no number or does not document it:
//! - A table has one partition for each 1,000 write or 3,000 read units, and a new table has four.
//! - A peak is the average of the units *served* in a minute; throttled units do not count. 30
//!   minutes after the start of a minute whose average reached half of the configured limits, every
//!   hash range is split in two, even if the traffic has ended.
//! - A table is warmed all at once, after a minute. Others have measured 390 to 510 seconds in
//!   October 2026, and two seconds for a second, small increase.
//! - DynamoDB reports the requested units. The model reports those of whole partitions, and so
//!   three read units for each write unit.
//!
//! Not modelled:
//! - The account's quota of units for a table.
//! - The share of a provisioned table's partitions, which should fall when they multiply.
//! - The warm throughput of a provisioned table. DynamoDB reports the most units that were ever
//!   provisioned; the model uses the number of partitions, as for every table.
//!
//! The growth is kept in memory and lost when the process ends.

use std::time::Duration;

use crate::access::Access;
use crate::partition_limits::{
    NOMINAL_READ_UNITS, NOMINAL_WRITE_UNITS, PartitionLimits, WarmRequest,
};

/// A peak is the average over this time.
const SUSTAINED: Duration = Duration::from_secs(60);
/// Partitions are doubled at this share of their configured limits.
const PEAK: f64 = 0.5;
/// The most hash ranges that a request or doubling can make, so that growth does not exhaust the
/// memory.
const MOST_PARTITIONS: usize = 65_536;

/// The warm throughput of a table or an index, in nominal units per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmThroughput {
    /// Write units per second.
    pub write_units: f64,
    /// Read units per second.
    pub read_units: f64,
    /// The end of the current increase; `None` if there is none.
    pub updating_until: Option<Duration>,
}

impl WarmThroughput {
    /// The warm throughput of this number of hash ranges.
    pub(crate) fn of(ranges: usize, updating_until: Option<Duration>) -> Self {
        let ranges = ranges as f64;
        let (write_units, read_units) = (ranges * NOMINAL_WRITE_UNITS, ranges * NOMINAL_READ_UNITS);
        Self { write_units, read_units, updating_until }
    }

    /// Checks whether warm throughput may be raised to these units. It ignores a current increase.
    pub(crate) fn check(&self, wanted: WarmRequest) -> Result<(), WarmRefusal> {
        let most = Self::of(MOST_PARTITIONS, None);
        let members = [
            (Access::Read, wanted.read_units, self.read_units, most.read_units),
            (Access::Write, wanted.write_units, self.write_units, most.write_units),
        ];
        for (access, wanted, current, most) in members {
            let wanted = wanted.unwrap_or(current);
            if wanted < current {
                return Err(WarmRefusal::Lower(access));
            }
            if wanted > most.max(current) {
                return Err(WarmRefusal::AboveQuota(access));
            }
        }
        Ok(())
    }
}

/// The reason that warm throughput is not raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarmRefusal {
    /// An increase is in progress.
    Updating,
    /// Warm throughput never falls.
    Lower(Access),
    /// The request needs more partitions than the model allows.
    AboveQuota(Access),
}

/// A growth step that is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Every hash range is split in two.
    Double,
    /// Hash ranges are split until there are `partitions`.
    Warm { partitions: usize },
}

#[derive(Debug, Clone, Copy)]
struct Served {
    since: Duration,
    write_units: f64,
    read_units: f64,
}

impl Served {
    const fn since(now: Duration) -> Self {
        Self { since: now, write_units: 0.0, read_units: 0.0 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Warming {
    partitions: usize,
    until: Duration,
}

#[derive(Debug)]
pub(crate) struct TableGrowth {
    minute: Served,
    doubles_at: Option<Duration>,
    warming: Option<Warming>,
}

impl TableGrowth {
    pub(crate) const fn new(now: Duration) -> Self {
        Self { minute: Served::since(now), doubles_at: None, warming: None }
    }

    pub(crate) fn serve(&mut self, access: Access, units: f64) {
        match access {
            Access::Read => self.minute.read_units += units,
            Access::Write => self.minute.write_units += units,
        }
    }

    /// Starts an increase, or raises the goal of the current one.
    pub(crate) fn warm(&mut self, partitions: usize, until: Duration) {
        let requested = Warming { partitions, until };
        let current = self.warming.unwrap_or(requested);
        self.warming = Some(Warming { partitions: partitions.max(current.partitions), ..current });
    }

    pub(crate) fn updating_until(&self) -> Option<Duration> {
        self.warming.map(|warming| warming.until)
    }

    /// Returns the next step that is due on a table with this number of hash ranges, in order of
    /// time; `None` if no step is left.
    pub(crate) fn due(
        &mut self,
        limits: &PartitionLimits,
        ranges: usize,
        now: Duration,
    ) -> Option<Step> {
        self.note_peak(limits, ranges, now);
        let doubling = self.doubles_at.filter(|at| *at <= now);
        let warming = self.warming.filter(|warming| warming.until <= now);
        let step = match (doubling, warming) {
            (Some(at), Some(warming)) if at <= warming.until => Step::Double,
            (_, Some(Warming { partitions, .. })) => Step::Warm { partitions },
            (Some(_), None) => Step::Double,
            (None, None) => return None,
        };
        if matches!(step, Step::Warm { .. }) {
            self.warming = None;
        }
        // A table that has grown is measured anew: an earlier peak may be far below half of the new
        // limits.
        self.doubles_at = None;
        self.minute = Served::since(now);
        Some(step)
    }

    fn note_peak(&mut self, limits: &PartitionLimits, ranges: usize, now: Duration) {
        let Some(doubles_after) = limits.doubles_after else { return };
        if limits.provisioned_write_units.is_some() {
            return;
        }
        let sustained = SUSTAINED.min(doubles_after).max(Duration::from_secs(1));
        if now.saturating_sub(self.minute.since) < sustained {
            return;
        }
        // Every request calls this before it is served. So a late call finds only units that were
        // served within `sustained`, and a pause before the call does not lower the average.
        let is_peak = |served: f64, ceiling: f64| {
            served > 0.0 && served / sustained.as_secs_f64() >= PEAK * ceiling * ranges as f64
        };
        let minute = std::mem::replace(&mut self.minute, Served::since(now));
        let peak = is_peak(minute.write_units, limits.write_units)
            || is_peak(minute.read_units, limits.read_units);
        if peak && self.doubles_at.is_none() && ranges <= MOST_PARTITIONS / 2 {
            self.doubles_at = Some(minute.since.saturating_add(doubles_after));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partitions::{Partitions, StoredKey};

    /// Four partitions of 100 write and 300 read units.
    const YOUNG: PartitionLimits = PartitionLimits {
        write_units: 100.0,
        read_units: 300.0,
        split_after: None,
        ..PartitionLimits::NEW_ON_DEMAND_TABLE
    };
    /// 64 partitions of 50 write units, as in the laptop edition.
    const SMALL: PartitionLimits = PartitionLimits { partitions: 64, write_units: 50.0, ..YOUNG };

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// One key for each partition of a new table.
    fn keys(limits: PartitionLimits) -> Vec<StoredKey> {
        let partitions = Partitions::new(limits, Duration::ZERO);
        let on = |index: usize| {
            (0..)
                .map(|i| StoredKey::new(format!("k{i}")))
                .find(|key| partitions.index_of(key) == index)
                .expect("a key")
        };
        (0..partitions.count()).map(on).collect()
    }

    /// Serves `a_second` units every second, spread over these keys.
    fn serve(
        partitions: &mut Partitions,
        keys: &[StoredKey],
        access: Access,
        a_second: f64,
        from: u64,
        to: u64,
    ) {
        for second in from..to {
            for key in keys {
                if partitions.is_open(key, None, access, seconds(second)) {
                    partitions.charge(key, None, access, a_second / keys.len() as f64);
                }
            }
        }
    }

    fn writes(units: f64) -> WarmRequest {
        WarmRequest { write_units: Some(units), read_units: None }
    }

    #[test]
    fn partitions_double_thirty_minutes_after_they_were_half_used() {
        let never = PartitionLimits { doubles_after: None, ..YOUNG };
        let provisioned = PartitionLimits { provisioned_write_units: Some(90.0), ..YOUNG };
        let sooner = PartitionLimits { doubles_after: Some(seconds(10)), ..YOUNG };
        let nothing = PartitionLimits { write_units: 0.0, ..YOUNG };
        let rows = [
            ("nothing", YOUNG, Access::Write, 0.0, 7_200, [4, 4, 4, 4]),
            ("less than half", YOUNG, Access::Write, 180.0, 7_200, [4, 4, 4, 4]),
            ("half", YOUNG, Access::Write, 200.0, 7_200, [4, 4, 8, 8]),
            ("half, and then nothing", YOUNG, Access::Write, 200.0, 120, [4, 4, 8, 8]),
            ("half for one minute", YOUNG, Access::Write, 200.0, 60, [4, 4, 8, 8]),
            ("half of the reads", YOUNG, Access::Read, 600.0, 120, [4, 4, 8, 8]),
            ("half for too short a time", YOUNG, Access::Write, 200.0, 20, [4, 4, 4, 4]),
            ("all, which is half of the double", YOUNG, Access::Write, 400.0, 7_200, [4, 4, 8, 16]),
            ("never", never, Access::Write, 400.0, 7_200, [4, 4, 4, 4]),
            ("provisioned", provisioned, Access::Write, 340.0, 7_200, [4, 4, 4, 4]),
            ("after ten seconds", sooner, Access::Write, 200.0, 120, [4, 8, 8, 8]),
            ("partitions that give nothing", nothing, Access::Write, 200.0, 120, [4, 4, 4, 4]),
            ("half of 64 small partitions", SMALL, Access::Write, 1_600.0, 120, [64, 64, 128, 128]),
            ("less than half of them", SMALL, Access::Write, 1_500.0, 7_200, [64, 64, 64, 64]),
        ];
        for (name, limits, access, a_second, ends, expected) in rows {
            let (mut partitions, keys) = (Partitions::new(limits, Duration::ZERO), keys(limits));
            let mut at = 0u64;
            let counts = [9u64, 1_799, 1_801, 3_700].map(|look| {
                serve(&mut partitions, &keys, access, a_second, at.min(ends), look.min(ends));
                at = look;
                partitions.advance(seconds(look));
                partitions.count()
            });
            assert_eq!(counts, expected, "{name}");
        }
    }

    #[test]
    fn a_doubled_table_serves_twice_as_much() {
        let mut partitions = Partitions::new(YOUNG, Duration::ZERO);
        let keys = keys(YOUNG);
        serve(&mut partitions, &keys, Access::Write, 400.0, 0, 1_801);
        let starts: Vec<usize> = keys.iter().map(|key| partitions.index_of(key) / 2).collect();
        assert_eq!(starts, [0, 1, 2, 3], "every range is split in two, and stays where it was");
        let ids: Vec<u64> = partitions.heat_by_partition().iter().map(|heat| heat.id).collect();
        assert_eq!(ids, [0, 4, 1, 5, 2, 6, 3, 7], "a partition keeps its number");
        assert_eq!(partitions.warm_throughput(seconds(1_801)), WarmThroughput::of(8, None));
    }

    #[test]
    fn doubling_ends_before_it_exhausts_the_memory() {
        for (ranges, expected) in [(32_768, Some(Step::Double)), (32_769, None)] {
            let mut growth = TableGrowth::new(Duration::ZERO);
            growth.serve(Access::Write, 1e12);
            assert_eq!(growth.due(&YOUNG, ranges, seconds(60)), None);
            assert_eq!(growth.due(&YOUNG, ranges, seconds(1_800)), expected, "{ranges}");
        }
    }

    #[test]
    fn a_warmed_table_doubles_only_by_a_peak_of_its_new_size() {
        let mut partitions = Partitions::new(YOUNG, Duration::ZERO);
        let keys = keys(YOUNG);
        serve(&mut partitions, &keys, Access::Write, 400.0, 0, 120);
        partitions.warm(writes(20_000.0), seconds(120));
        serve(&mut partitions, &keys, Access::Write, 400.0, 120, 3_700);
        // 400 units are less than half of what 20 partitions of 100 give.
        assert_eq!(partitions.count(), 20);
    }

    #[test]
    fn warming_cuts_where_hash_ranges_are_widest() {
        for count in [5u32, 10, 20, 64] {
            let mut partitions = Partitions::new(YOUNG, Duration::ZERO);
            partitions.warm(writes(f64::from(count) * 1_000.0), Duration::ZERO);
            partitions.advance(seconds(60));
            let mut keys = vec![0u32; partitions.count()];
            assert_eq!(keys.len(), count as usize);
            for i in 0..count * 1_000 {
                keys[partitions.index_of(&StoredKey::new(format!("key.{i}")))] += 1;
            }
            // The range with the fewest cuts has a quarter of the parts, rounded down, and the one
            // with the most has a quarter, rounded up.
            let [most, least] = [1_200 * count / (count / 4), 800 * count / count.div_ceil(4)];
            let is_even = |keys: &u32| (least / 4..most / 4).contains(keys);
            assert!(keys.iter().all(is_even), "{count}: {keys:?}");
        }
    }
}
