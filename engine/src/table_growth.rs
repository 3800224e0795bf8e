//! How a table's partitions multiply: with its traffic, and by a request for warm throughput. An index is
//! partitioned, and grows, like a table.
//!
//! Documented (DynamoDB developer guide, "DynamoDB on-demand capacity mode", "Understanding DynamoDB warm
//! throughput", "Increase your existing DynamoDB table's warm throughput"):
//! - a new on-demand table sustains 4,000 writes and 12,000 reads a second; it takes at once up to double its
//!   previous peak, and may throttle where traffic exceeds that within 30 minutes;
//! - warm throughput is what a table or an index can serve at once. Traffic raises it, or a request; a request is
//!   carried out while `Status` is `UPDATING`; nothing lowers it.
//!
//! Warm throughput is nominal: 1,000 write and 3,000 read units a second for each partition. That is what a partition
//! of DynamoDB gives, whatever it is configured to give here. Why? DynamoDB shows no partitions. Programs divide warm
//! throughput by 1,000 write units to learn how many there are, and ask for 1,000 for each that they want.
//! [`PartitionLimits`] may make partitions smaller, so that a laptop shows a hot one at 50 write units a second. If 64
//! such partitions had a warm throughput of 3,200 write units, they would be taken for four. So they have 64,000 write
//! and 192,000 read units, and an `UpdateTable` to 24,000 write units makes 24 partitions of a smaller table. All the
//! rest goes by the configured units: what a partition serves and throttles, and what a peak is.
//!
//! Assumed, because AWS gives no number or says nothing:
//! - a table of so much warm throughput has one partition for each 1,000 write or 3,000 read units, and a new table has
//!   four;
//! - a peak is what the table *served*, on average, for a minute. 30 minutes after the beginning of a minute in which
//!   that came to half of what its partitions are configured to give, every hash range is split in two, even if the
//!   traffic has ended. What was throttled does not count;
//! - a table is warmed all at once, after a minute. Others have measured 390 to 510 seconds in October 2026, and two
//!   seconds for a second, small increase. They also found that a request during an update is accepted
//!   ([`WhileWarming::Joins`]), where the API reference of `UpdateTable` says that a table that is being updated takes
//!   no other update ([`WhileWarming::Refuses`], the default);
//! - DynamoDB reports the units that were asked for. The model reports those of whole partitions, and so three read
//!   units for each write unit.
//!
//! Not modelled: the account's quota of units for a table; the share of a provisioned table's partitions, which should
//! fall when they multiply; the warm throughput of a provisioned table. DynamoDB reports the most units that were ever
//! provisioned; the model goes by the partitions, as for every table. What has grown is kept in memory, and forgotten
//! when the process ends.
//!
//! [`WhileWarming::Joins`]: crate::WhileWarming::Joins
//! [`WhileWarming::Refuses`]: crate::WhileWarming::Refuses

use std::time::Duration;

use crate::partition_limits::{NOMINAL_READ_UNITS, NOMINAL_WRITE_UNITS, PartitionLimits, WarmRequest};
use crate::partitions::Access;

/// A peak is the average of this time.
const SUSTAINED: Duration = Duration::from_secs(60);
/// At this part of what the partitions are configured to give, they are doubled.
const PEAK: f64 = 0.5;
/// The most hash ranges that can be asked for, or that doubling makes, so that growth does not exhaust the memory.
const MOST_PARTITIONS: usize = 65_536;

/// The warm throughput of a table or an index, in units a second: how many partitions it has, at 1,000 write and 3,000
/// read units for each, whatever a partition is configured to give.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmThroughput {
    /// Write units a second.
    pub write_units: f64,
    /// Read units a second.
    pub read_units: f64,
    /// When the increase that is under way ends; `None` where there is none.
    pub updating_until: Option<Duration>,
}

impl WarmThroughput {
    /// That of so many hash ranges.
    pub(crate) fn of(ranges: usize, updating_until: Option<Duration>) -> Self {
        let ranges = ranges as f64;
        let (write_units, read_units) = (ranges * NOMINAL_WRITE_UNITS, ranges * NOMINAL_READ_UNITS);
        Self { write_units, read_units, updating_until }
    }

    /// Whether it may be raised to so much. Whether an increase is under way is not looked at.
    pub(crate) fn check(&self, wanted: WarmRequest) -> Result<(), WarmRefusal> {
        let most = Self::of(MOST_PARTITIONS, None);
        let members = [
            (Access::Read, wanted.read_units, self.read_units, most.read_units),
            (Access::Write, wanted.write_units, self.write_units, most.write_units),
        ];
        for (access, wanted, current, most) in members {
            let (wanted, most) = (wanted.unwrap_or(current), most.max(current));
            if wanted < current {
                return Err(WarmRefusal::Lower { access, current });
            }
            if wanted > most {
                return Err(WarmRefusal::AboveQuota { access, most });
            }
        }
        Ok(())
    }
}

/// Why warm throughput is not raised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WarmRefusal {
    /// An increase is under way. Ask again from this instant on.
    Updating {
        /// When it ends.
        until: Duration,
    },
    /// Warm throughput never falls. Ask for at least the current units, or leave the member out.
    Lower {
        /// Of reads or of writes.
        access: Access,
        /// Units a second now.
        current: f64,
    },
    /// More than the model has partitions for. Ask for less.
    AboveQuota {
        /// Of reads or of writes.
        access: Access,
        /// The most units a second.
        most: f64,
    },
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Every hash range is split in two.
    Double,
    /// Hash ranges are split until there are so many.
    Warm { partitions: usize },
}

/// The units served since an instant.
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

/// When a table's partitions multiply next.
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

    /// Counts what was served.
    pub(crate) fn serve(&mut self, access: Access, units: f64) {
        match access {
            Access::Read => self.minute.read_units += units,
            Access::Write => self.minute.write_units += units,
        }
    }

    /// Begins an increase, or raises the goal of the one under way.
    pub(crate) fn warm(&mut self, partitions: usize, until: Duration) {
        let asked = Warming { partitions, until };
        let under_way = self.warming.unwrap_or(asked);
        self.warming = Some(Warming { partitions: partitions.max(under_way.partitions), ..under_way });
    }

    pub(crate) fn updating_until(&self) -> Option<Duration> {
        self.warming.map(|warming| warming.until)
    }

    /// The next step that is due on a table of so many hash ranges, in order of time; `None` where all is done.
    pub(crate) fn due(&mut self, limits: &PartitionLimits, ranges: usize, now: Duration) -> Option<Step> {
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
        // Whatever has grown is measured anew: a peak of before may be far from half of what there is now.
        self.doubles_at = None;
        self.minute = Served::since(now);
        Some(step)
    }

    fn note_peak(&mut self, limits: &PartitionLimits, ranges: usize, now: Duration) {
        let Some(doubles_after) = limits.doubles_after.filter(|_| limits.provisioned_write_units.is_none()) else {
            return;
        };
        let sustained = SUSTAINED.min(doubles_after).max(Duration::from_secs(1));
        if now.saturating_sub(self.minute.since) < sustained {
            return;
        }
        // Every request looks here before it is served. So a late look finds what was served within that time, and a
        // pause until then does not lower the average.
        let is_peak = |served: f64, ceiling: f64| {
            served > 0.0 && served / sustained.as_secs_f64() >= PEAK * ceiling * ranges as f64
        };
        let minute = std::mem::replace(&mut self.minute, Served::since(now));
        let peak = is_peak(minute.write_units, limits.write_units) || is_peak(minute.read_units, limits.read_units);
        if peak && self.doubles_at.is_none() && ranges <= MOST_PARTITIONS / 2 {
            self.doubles_at = Some(minute.since.saturating_add(doubles_after));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition_limits::WhileWarming;
    use crate::partitions::{Partitions, StoredKey};

    /// Four partitions of 100 write and 300 read units.
    const YOUNG: PartitionLimits = PartitionLimits {
        write_units: 100.0,
        read_units: 300.0,
        split_after: None,
        ..PartitionLimits::NEW_ON_DEMAND_TABLE
    };
    /// 64 partitions of 50 write units, as a laptop has them.
    const SMALL: PartitionLimits = PartitionLimits { partitions: 64, write_units: 50.0, ..YOUNG };

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// For each partition of a new table a key that is on it.
    fn keys(limits: PartitionLimits) -> Vec<StoredKey> {
        let partitions = Partitions::new(limits, Duration::ZERO);
        let on = |index: usize| {
            (0..).map(|i| StoredKey::new(format!("k{i}"))).find(|key| partitions.index_of(key) == index).expect("a key")
        };
        (0..partitions.count()).map(on).collect()
    }

    /// Serves so many units a second, spread over these keys, once a second.
    fn serve(partitions: &mut Partitions, keys: &[StoredKey], access: Access, a_second: f64, from: u64, to: u64) {
        for second in from..to {
            for key in keys {
                if partitions.is_open(key, None, access, seconds(second)) {
                    partitions.charge(key, None, access, a_second / keys.len() as f64);
                }
            }
        }
    }

    /// The write and the read units that are shown.
    fn shown(partitions: &mut Partitions, at: u64) -> (f64, f64) {
        let throughput = partitions.warm_throughput(seconds(at));
        (throughput.write_units, throughput.read_units)
    }

    fn writes(units: f64) -> WarmRequest {
        WarmRequest { write_units: Some(units), read_units: None }
    }

    fn reads(units: f64) -> WarmRequest {
        WarmRequest { write_units: None, read_units: Some(units) }
    }

    #[test]
    fn partitions_double_thirty_minutes_after_half_of_what_they_give_was_served() {
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
        assert_eq!(shown(&mut partitions, 1_801), (8_000.0, 24_000.0));
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
    fn warm_throughput_counts_partitions_whatever_they_give() {
        let mut partitions = Partitions::new(SMALL, Duration::ZERO);
        assert_eq!(shown(&mut partitions, 0), (64_000.0, 192_000.0));
        let lower = Err(WarmRefusal::Lower { access: Access::Write, current: 64_000.0 });
        assert_eq!(partitions.warm(writes(3_201.0), Duration::ZERO), lower, "64 partitions of 50 units give 3,200");
        assert_eq!(partitions.warm(writes(70_000.0), Duration::ZERO), Ok(()));
        assert_eq!(shown(&mut partitions, 60), (70_000.0, 210_000.0));
        assert_eq!(partitions.count(), 70);

        for write_units in [1.0, 50.0, 1_000.0, 1e9] {
            let limits = PartitionLimits { write_units, ..YOUNG };
            let mut partitions = Partitions::new(limits, Duration::ZERO);
            assert_eq!(shown(&mut partitions, 0), (4_000.0, 12_000.0), "{write_units}");
            assert_eq!(partitions.warm(writes(24_000.0), Duration::ZERO), Ok(()), "{write_units}");
            assert_eq!(shown(&mut partitions, 60), (24_000.0, 72_000.0), "{write_units}");
            assert_eq!(partitions.count(), 24, "{write_units}");
        }
    }

    #[test]
    fn warming_takes_its_time_and_what_it_gave_never_falls() {
        let mut partitions = Partitions::new(YOUNG, Duration::ZERO);
        assert_eq!(partitions.warm(writes(19_500.0), seconds(10)), Ok(()));
        let rows = [(10, 4_000.0, Some(seconds(70))), (69, 4_000.0, Some(seconds(70))), (70, 20_000.0, None)];
        for (at, shows, until) in rows {
            let throughput = partitions.warm_throughput(seconds(at));
            assert_eq!((throughput.write_units, throughput.updating_until), (shows, until), "at {at} s");
        }
        let lower = |access, current| Err(WarmRefusal::Lower { access, current });
        let most = 65_536.0 * 1_000.0;
        let rows = [
            (writes(19_999.0), lower(Access::Write, 20_000.0)),
            (reads(59_999.0), lower(Access::Read, 60_000.0)),
            (WarmRequest { read_units: Some(1.0), ..writes(30_000.0) }, lower(Access::Read, 60_000.0)),
            (writes(most + 1.0), Err(WarmRefusal::AboveQuota { access: Access::Write, most })),
            (writes(20_000.0), Ok(())),
            (WarmRequest::default(), Ok(())),
        ];
        for (request, expected) in rows {
            assert_eq!(partitions.warm(request, seconds(80)), expected, "{request:?}");
        }
        let throughput = partitions.warm_throughput(seconds(7_200));
        assert_eq!((throughput.write_units, throughput.updating_until), (20_000.0, None));
        assert_eq!(partitions.warm(reads(60_001.0), seconds(7_200)), Ok(()), "reads need a partition more");
        assert_eq!(shown(&mut partitions, 7_260), (21_000.0, 63_000.0));
    }

    #[test]
    fn during_an_increase_a_second_request_is_refused_or_joins_it() {
        let refusal = Err(WarmRefusal::Updating { until: seconds(60) });
        for (while_warming, answer, shows) in
            [(WhileWarming::Refuses, refusal, 8_000.0), (WhileWarming::Joins, Ok(()), 12_000.0)]
        {
            let mut partitions = Partitions::new(PartitionLimits { while_warming, ..YOUNG }, Duration::ZERO);
            assert_eq!(partitions.warm(writes(8_000.0), seconds(0)), Ok(()));
            assert_eq!(partitions.warm(writes(12_000.0), seconds(30)), answer, "{while_warming:?}");
            let throughput = partitions.warm_throughput(seconds(60));
            assert_eq!((throughput.write_units, throughput.updating_until), (shows, None), "{while_warming:?}");
        }
    }

    #[test]
    fn a_table_that_was_warmed_doubles_by_a_peak_of_its_new_size_only() {
        let mut partitions = Partitions::new(YOUNG, Duration::ZERO);
        let keys = keys(YOUNG);
        serve(&mut partitions, &keys, Access::Write, 400.0, 0, 120);
        assert_eq!(partitions.warm(writes(20_000.0), seconds(120)), Ok(()));
        serve(&mut partitions, &keys, Access::Write, 400.0, 120, 3_700);
        assert_eq!(partitions.count(), 20, "400 units are less than half of what 20 partitions of 100 give");
    }

    #[test]
    fn warming_cuts_where_hash_ranges_are_widest() {
        for count in [5u32, 10, 20, 64] {
            let mut partitions = Partitions::new(YOUNG, Duration::ZERO);
            assert_eq!(partitions.warm(writes(f64::from(count) * 1_000.0), Duration::ZERO), Ok(()));
            partitions.advance(seconds(60));
            let mut keys = vec![0u32; partitions.count()];
            assert_eq!(keys.len(), count as usize);
            for i in 0..count * 1_000 {
                keys[partitions.index_of(&StoredKey::new(format!("key.{i}")))] += 1;
            }
            // The least cut of the four ranges has a quarter of the parts, rounded down.
            let most = 1_200 * count / (4 * (count / 4));
            assert!(keys.iter().all(|of_part| *of_part < most), "{count}: {keys:?}");
        }
    }
}
