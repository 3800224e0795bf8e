//! The demand that a key's writers record, so that a key that needs its shards is not shrunk.
//!
//! A shard has no fixed capacity, because partitions are shared, split, and provisioned. But what a
//! shard has carried before is known. A key is busy if half of its shards would have to carry
//! nearly as much each.

use crate::values::key::ShardCount;
use crate::values::throughput::PARTITION_WRITE_UNITS;

/// A key's writes of one minute, and what they are compared with. All 0 if none were recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Load {
    /// The minute that is being counted: epoch seconds / 60.
    pub minute: u64,
    /// The write units in it so far.
    pub units: u64,
    /// The most write units that a shard took in a minute.
    pub per_shard: u64,
    /// The epoch second until which the key was busy.
    pub busy_at: u64,
}

/// The units a minute that every shard is assumed to carry: a tenth of a partition's.
const MIN_UNITS_PER_SHARD: u64 = MAX_UNITS_PER_SHARD / 10;
/// The most units a minute that a shard is assumed to carry: a partition's. The counted number may
/// be higher, because a width may have changed within the minute.
const MAX_UNITS_PER_SHARD: u64 = 60 * PARTITION_WRITE_UNITS;
/// Half of the shards may be left with this percentage of what shards have carried.
const MAX_LOAD_PERCENT: u64 = 80;
/// If a recorded minute is farther in the future than this, a clock was wrong.
const MAX_MINUTES_AHEAD: u64 = 5;

impl Load {
    /// Judges the recorded minute by the width under which it was written.
    pub fn judged(self, width: ShardCount) -> Self {
        let now = self.units / u64::from(width.get());
        let per_shard = self.per_shard.max(now).min(MAX_UNITS_PER_SHARD);
        let borne = per_shard.max(MIN_UNITS_PER_SHARD);
        let is_busy = now.saturating_mul(2 * 100) > borne.saturating_mul(MAX_LOAD_PERCENT);
        let busy_at =
            if is_busy { self.minute.saturating_add(1).saturating_mul(60) } else { self.busy_at };
        Self { per_shard, busy_at: busy_at.max(self.busy_at), ..self }
    }

    /// Begins another minute with this number of units.
    pub(crate) fn next(self, width: ShardCount, minute: u64, units: u64) -> Self {
        // A record for a future time only says that the key was busy until now: its clock was
        // wrong, or this one is late.
        let till_now = minute.saturating_mul(60).min(self.busy_at);
        let judged = if self.is_ahead_of(minute) {
            Self { busy_at: till_now, ..self }
        } else {
            self.judged(width)
        };
        Self { minute, units, ..judged }
    }

    /// Whether units of this minute count towards the recorded one: it is the same, or another
    /// instance's clock is a little ahead.
    pub(crate) fn takes(self, minute: u64) -> bool {
        self.minute >= minute && !self.is_ahead_of(minute)
    }

    fn is_ahead_of(self, minute: u64) -> bool {
        self.minute > minute.saturating_add(MAX_MINUTES_AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::count;
    use proptest::prelude::*;

    /// A day with this number of units a minute under each width. Returns the last epoch second at
    /// which the key was busy.
    fn busy_at(days: &[(u32, u64)]) -> u64 {
        let minutes = days.iter().flat_map(|day| [day; 1_440]).zip(1..);
        let load = minutes.fold(Load::default(), |load, ((width, units), at)| {
            load.next(count(*width), at, *units)
        });
        load.judged(count(days.last().unwrap().0)).busy_at
    }

    #[test]
    fn a_key_that_uses_its_shards_stays_busy_and_any_other_is_calm() {
        let end = |days: u64| (1_440 * days + 1) * 60;
        assert_eq!(busy_at(&[(16, 800_000)]), end(1), "steady, as from the growth on");
        assert_eq!(busy_at(&[(16, 800_000), (16, 500_000)]), end(2), "a little less");
        assert_eq!(busy_at(&[(16, 800_000), (16, 300_000)]), end(1), "8 shards take that");
        assert_eq!(busy_at(&[(16, 800_000), (16, 300_000), (8, 300_000)]), end(3), "and 4 do not");
        assert_eq!(busy_at(&[(64, 10_000)]), 0, "next to nothing, after a peak that never came");
        let narrower = busy_at(&[(64, 10_000), (8, 10_000), (4, 10_000)]);
        assert_eq!(narrower, end(3), "two shards would take more than is known of them");
    }

    #[test]
    fn what_was_counted_under_another_width_is_no_measure_for_ever() {
        let load = Load { minute: 100, units: 800_000, per_shard: 50_000, busy_at: 0 };
        let load = load.next(count(1), 101, 700_000);
        assert_eq!(load.per_shard, 60_000);
        // 43,750 a shard is more than 8 shards take.
        assert_eq!(load.next(count(16), 102, 0).busy_at, 102 * 60);
    }

    #[test]
    fn a_clock_that_is_far_ahead_does_not_count() {
        let load = Load { minute: 1_000, units: 900_000, per_shard: 10, busy_at: 60_060 };
        assert!(load.takes(997) && load.takes(1_000) && !load.takes(1_001) && !load.takes(900));
        let next = Load { minute: 900, units: 7, per_shard: 10, busy_at: 54_000 };
        assert_eq!(load.next(count(2), 900, 7), next);
    }

    proptest! {
        #[test]
        fn nothing_overflows(
            minute: u64, units: u64, per_shard: u64, busy_at: u64, at: u64, more: u64,
        ) {
            let load = Load { minute, units, per_shard, busy_at };
            let next = load.next(count(3), at, more);
            prop_assert!(next.per_shard >= per_shard.min(60_000) && next.minute == at);
            prop_assert!(load.judged(count(1)).busy_at >= busy_at);
        }
    }
}
