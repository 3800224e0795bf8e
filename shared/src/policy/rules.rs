//! The number of shards that a key should have: one trigger, one formula, one guard.
//!
//! - *Trigger*: a share of the first attempts is certainly throttled. What repetitions achieve later
//!   does not count, because a client that waits for them sends nothing new.
//! - *Formula*: the fewest shards that lose nearly nothing of the demand ([`sizing`]). The demand
//!   is the one of which the observed share is rejected. Clients that wait hide a part of theirs,
//!   but not their throttles, so the key also grows by a multiple of the throttled share. The rate
//!   of the key's writes is an upper limit: a key with few writes is throttled because other keys
//!   fill its partitions, and more shards do not help it.
//! - *Guard*: growths after which as much is throttled as before are followed by longer waits.
//!
//! All instances of a key use the same shards, so the shares that one instance observes are those
//! of all. Only the rate is added up over instances.

use crate::policy::collisions;
use crate::policy::decision::{RECHECK_PERIOD, ScalingDecision};
use crate::policy::pressure::{CERTAIN_DEVIATIONS, NEGLIGIBLE_SHARE, Seen};
use crate::policy::sizing::{self, HEADROOM, SHARE_OF_OTHERS, Sizing};
use crate::protocol::growth::GrowthRecord;
use crate::protocol::metadata::{Phase, ShardMetadata};
use crate::values::key::ShardCount;
use crate::values::throughput::PARTITION_WRITE_UNITS;

/// The scaling policy: a pure function of metadata, observations and time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalingPolicy {
    /// The least number of seconds between two changes of one key.
    pub cooldown_seconds: u64,
    /// The largest width of a decision. A stored width is never reduced to it.
    pub max_shards: ShardCount,
    /// Write units a second of one partition: 1,000, unless a local edition has smaller ones.
    pub partition_write_units: f64,
}

impl Default for ScalingPolicy {
    fn default() -> Self {
        Self {
            cooldown_seconds: 1,
            max_shards: ShardCount::new(200).unwrap_or(ShardCount::ONE),
            partition_write_units: PARTITION_WRITE_UNITS as f64,
        }
    }
}

/// Clients that wait may hide this many times the demand that is observed, if all of their first
/// attempts are throttled.
const MAX_HIDDEN_FACTOR: f64 = 40.0;
/// An earlier growth says nothing about the present demand.
const GROWTH_MEMORY_SECONDS: u64 = 3_600;
/// A key that grew soon after a shrink keeps its width for this many times as long, because
/// shrinking costs more than it saves there.
const REGROWN_CALM_FACTOR: u64 = 4;

impl ScalingPolicy {
    /// Decides from the observations of a key's instances.
    #[must_use]
    pub fn decide(
        &self,
        metadata: &ShardMetadata,
        seen: Seen,
        now_seconds: u64,
    ) -> ScalingDecision {
        let Seen { pressure, partitions, .. } = seen;
        let width = metadata.number_of_shards;
        if let Some(to) = metadata.closing() {
            return ScalingDecision::Closing(to);
        }
        if !pressure.is_throttled() || pressure.is_draining() {
            return ScalingDecision::Calm;
        }
        let fruitless = self.record(metadata, seen, now_seconds).fruitless;
        if let Some(until) = self.waits_until(metadata, fruitless, now_seconds) {
            // One growth may have been too small. Two in a row were of no use.
            return match fruitless {
                0 | 1 => ScalingDecision::CoolingDown { until },
                _ => ScalingDecision::ShortOfPartitions { until, write_units: None },
            };
        }
        let until = now_seconds.saturating_add(RECHECK_PERIOD.as_secs());
        if let Some(items) = seen.hot_items.filter(|items| *items <= width.get()) {
            return ScalingDecision::HotItems { items, until };
        }
        let crowded = || {
            let units = |partitions: u32| u64::from(partitions) * PARTITION_WRITE_UNITS * 3 / 2;
            ScalingDecision::Crowded { until, write_units: partitions.map(units) }
        };
        // Callers repeat what was rejected, which looks like a demand. Little of it is accepted.
        let accepted = seen.rate * (1.0 - pressure.rejected_bound(CERTAIN_DEVIATIONS));
        let own = seen.rate.min(2.0 * accepted) / self.partition_write_units;
        if partitions.is_some() && own < SHARE_OF_OTHERS {
            return crowded();
        }
        let demand = self.demand(width, seen, -1.0);
        let sizing = sizing::size(demand, partitions, self.max_shards);
        // A growth is worth the pause of its writers from the room on that every growth makes.
        let least = (f64::from(width.get()) * HEADROOM).ceil() as u32;
        // What clients that wait would lose shows in their throttles, and nothing is rejected.
        let hidden = collisions::demand(waiting_share(seen), width, partitions).max(demand);
        let gain = |shards| sizing::gain(hidden, partitions, (width, shards));
        let is_short = matches!(sizing, Sizing::Short(shards) if gain(shards) < NEGLIGIBLE_SHARE);
        if is_short || width >= self.max_shards {
            return self.short_of_partitions(width, seen, now_seconds);
        }
        let most = self.most_shards(width, seen);
        if most <= width.get() {
            return crowded();
        }
        let step = match sizing {
            Sizing::Enough(_) => f64::from(width.get()) * (1.0 + hidden_factor(seen)),
            Sizing::Short(shards) => shards.get().max(least).into(),
        };
        // What is hidden is uncertain. Two more growths to the maximum would stop the writers twice.
        let ends = step >= least.into() && step * HEADROOM.powi(2) > self.max_shards.get().into();
        let step = if ends { self.max_shards.get() } else { step.ceil() as u32 };
        let items = seen.hot_items.unwrap_or(u32::MAX);
        let wanted = sizing.shards().get().max(step).min(most).max(least).min(items);
        // Readers still read the shards that a shrink has begun to give up.
        let to = wanted.max(metadata.read_shards.get()).min(self.max_shards.get());
        let Some(to) = ShardCount::new(to) else { return ScalingDecision::AtMaximum };
        // The maximum may leave too little room to be worth the pause.
        if to == self.max_shards && to.get() < least && gain(to) < NEGLIGIBLE_SHARE {
            return self.short_of_partitions(width, seen, now_seconds);
        }
        ScalingDecision::ScaleOut(to)
    }

    /// What to report of the table when a key grows: no number of shards makes room on a table that
    /// is certainly short of partitions. Its raise takes minutes, and the units that its other
    /// partitions have saved would hide the shortage until they are used.
    #[must_use]
    pub fn lacking(
        &self,
        width: ShardCount,
        seen: Seen,
        now_seconds: u64,
    ) -> Option<ScalingDecision> {
        let certain = self.demand(width, seen, 1.0);
        let sizing = sizing::size(certain, seen.partitions, self.max_shards);
        let decision = matches!(sizing, Sizing::Short(_))
            .then(|| self.short_of_partitions(width, seen, now_seconds));
        decision.filter(|decision| matches!(decision, ScalingDecision::ShortOfPartitions { .. }))
    }

    /// More shards hardly help: the table lacks partitions, or the key has the maximum.
    fn short_of_partitions(
        &self,
        width: ShardCount,
        seen: Seen,
        now_seconds: u64,
    ) -> ScalingDecision {
        // A raise cannot be undone, so it is for what is certain.
        let certain = self.demand(width, seen, 1.0);
        let needed = sizing::needed_partitions(certain);
        let until = now_seconds.saturating_add(self.cooldown_seconds);
        match seen.partitions {
            Some(partitions) if needed > partitions => ScalingDecision::ShortOfPartitions {
                until,
                write_units: Some(u64::from(needed) * PARTITION_WRITE_UNITS),
            },
            _ if width < self.max_shards => ScalingDecision::NoGain { until },
            _ => ScalingDecision::AtMaximum,
        }
    }

    /// The most shards that the key's writes can use, by their rate. The rate says little about a
    /// table whose partitions are not known, because they may be smaller.
    fn most_shards(&self, width: ShardCount, seen: Seen) -> u32 {
        let most = self.max_shards;
        if seen.partitions.is_none() {
            return most.get();
        }
        // A demand of many partitions fills them evenly with many more shards.
        let own = seen.rate / self.partition_write_units;
        let filled = (own / SHARE_OF_OTHERS).powi(2).round() as u32;
        match sizing::size(self.most_demand(width, seen), seen.partitions, most) {
            // Shards may meet on a partition more often than the mean over all placements.
            Sizing::Enough(shards) => {
                (f64::from(shards.get().max(filled)) * HEADROOM).min(most.get().into()) as u32
            }
            Sizing::Short(_) => most.get(),
        }
    }

    /// The shards for a demand in write units a second, on a table with this many partitions.
    #[must_use]
    pub fn shards_for(&self, write_units: f64, partitions: Option<u32>) -> Sizing {
        sizing::size(write_units / self.partition_write_units, partitions, self.max_shards)
    }

    /// The shards for the demand of a throttled key in write units a second, if its table has many
    /// partitions. With fewer it needs more, because more of them share one.
    #[must_use]
    pub fn shards_if_throttled(&self, write_units: f64) -> u32 {
        self.shards_for(write_units, Some(1_000)).shards().get().max(2)
    }

    /// Warm throughput, in write units a second, of a table that serves a demand of one key in
    /// write units a second.
    #[must_use]
    pub fn needed_write_units(&self, write_units: f64) -> u64 {
        let demand = write_units / self.partition_write_units;
        u64::from(sizing::needed_partitions(demand)) * PARTITION_WRITE_UNITS
    }

    /// Whether more observations would hardly change the decision: the shares are certain, and the
    /// rate, which grows with each instance that adds its own, neither limits nor raises the demand
    /// that follows from them.
    #[must_use]
    pub fn is_sure(&self, width: ShardCount, seen: Seen) -> bool {
        let is_limited = self.demand(width, seen, -1.0) < rejected_demand(width, seen, -1.0);
        let is_raised = waiting_share(seen) > 0.0;
        seen.pressure.is_sure() && (!(is_limited || is_raised) || seen.partitions.is_none())
    }

    /// The demand, in partitions, less this many standard deviations of the rejected share. It is
    /// at least what is accepted.
    fn demand(&self, width: ShardCount, seen: Seen, z: f64) -> f64 {
        if seen.partitions.is_some() {
            let accepted =
                seen.rate / self.partition_write_units * (1.0 - seen.pressure.rejected_share());
            let least = rejected_demand(width, seen, z).max(accepted);
            return least.min(self.most_demand(width, seen));
        }
        // The rate says little, and a handful of writes vouches for little.
        rejected_demand(width, seen, if seen.pressure.is_sure() { z } else { 1.0 })
    }

    /// The largest demand of a key with these observations, in partitions. Clients that wait hide
    /// demand. A key that fills its partitions only in part causes a part of its throttles, and its
    /// clients hide as little as that.
    fn most_demand(&self, width: ShardCount, seen: Seen) -> f64 {
        let own = seen.rate / self.partition_write_units;
        let filled = (own / f64::from(width.get())).min(1.0);
        own * (1.0 + hidden_factor(seen) * filled.powi(3))
    }

    /// Decides about a key that a report names, which says neither the demand nor its throttled
    /// share: to twice the shards, unless they are on all partitions already.
    #[must_use]
    pub fn decide_reported(
        &self,
        metadata: &ShardMetadata,
        partitions: Option<u32>,
        now_seconds: u64,
    ) -> ScalingDecision {
        let width = metadata.number_of_shards;
        if let Some(to) = metadata.closing() {
            return ScalingDecision::Closing(to);
        }
        if let Some(until) = self.waits_until(metadata, 0, now_seconds) {
            return ScalingDecision::CoolingDown { until };
        }
        // The share of the partitions without a shard of the key.
        let unused = |of: u32| (1.0 - 1.0 / f64::from(of.max(1))).powf(width.get().into());
        if let Some(partitions) = partitions.filter(|of| unused(*of) < NEGLIGIBLE_SHARE) {
            let write_units = Some(u64::from(partitions) * PARTITION_WRITE_UNITS * 2);
            let until = now_seconds.saturating_add(RECHECK_PERIOD.as_secs());
            return ScalingDecision::ShortOfPartitions { until, write_units };
        }
        let to = width.get().saturating_mul(2).max(metadata.read_shards.get());
        let to = ShardCount::new(to.min(self.max_shards.get())).filter(|to| *to > width);
        to.map_or(ScalingDecision::AtMaximum, ScalingDecision::ScaleOut)
    }

    /// Until when a key that changed recently keeps its width. Each growth in vain after a first one
    /// doubles the wait.
    fn waits_until(
        &self,
        metadata: &ShardMetadata,
        fruitless: u32,
        now_seconds: u64,
    ) -> Option<u64> {
        let doublings = fruitless.saturating_sub(1).min(16);
        let wait = self.cooldown_seconds.saturating_mul(1 << doublings);
        let wait = wait.min(GROWTH_MEMORY_SECONDS.max(self.cooldown_seconds));
        let until = metadata.last_change()?.saturating_add(wait);
        (now_seconds < until).then_some(until)
    }

    /// The record of a growth that follows from observations, for later decisions.
    #[must_use]
    pub fn record(&self, metadata: &ShardMetadata, seen: Seen, now_seconds: u64) -> GrowthRecord {
        let is_recent = metadata
            .last_growth()
            .is_some_and(|at| now_seconds < at.saturating_add(GROWTH_MEMORY_SECONDS));
        let before = if is_recent { metadata.growth } else { GrowthRecord::default() };
        before.grown(seen.pressure.throttled_percent())
    }

    /// The width of a key that gives up half of its shards: for `calm_seconds` it has kept its
    /// width, and has taken no more writes than half of its shards have carried before. The time is
    /// longer if it last grew soon after a shrink, so that a key does not oscillate.
    #[must_use]
    pub fn decide_shrink(
        &self,
        metadata: &ShardMetadata,
        calm_seconds: u64,
        now_seconds: u64,
    ) -> Option<ShardCount> {
        if metadata.phase != Phase::Open {
            return None;
        }
        let half = ShardCount::new(metadata.number_of_shards.get() / 2)?;
        let grew_back = metadata.shrunk_at.is_some_and(|shrunk| {
            metadata.last_growth().is_some_and(|grown| grown.saturating_sub(shrunk) < calm_seconds)
        });
        let calm = calm_seconds.max(self.cooldown_seconds).saturating_mul(if grew_back {
            REGROWN_CALM_FACTOR
        } else {
            1
        });
        let busy_at = metadata.load.judged(metadata.number_of_shards).busy_at;
        let until = metadata.last_updated.max(busy_at).saturating_add(calm);
        (now_seconds >= until).then_some(half)
    }
}

/// The demand, in partitions, of which the observed share is rejected, less this many standard
/// deviations.
fn rejected_demand(width: ShardCount, seen: Seen, z: f64) -> f64 {
    collisions::demand(seen.pressure.rejected_bound(z), width, seen.partitions)
}

/// How many times the observed demand clients that wait hide: the more of their first attempts are
/// throttled, the more for each.
fn hidden_factor(seen: Seen) -> f64 {
    let share = waiting_share(seen);
    MAX_HIDDEN_FACTOR * share * (1.0 + share) / 2.0
}

/// The share of the first attempts whose throttles show clients that wait. Where clients do not
/// wait, repetitions throttle up to as many first attempts again as are rejected in the end; and in
/// the first second, when the writes that met the first throttles are just being accepted, up to
/// twice as many.
fn waiting_share(Seen { pressure, .. }: Seen) -> f64 {
    (pressure.throttled_bound(1.0) - 3.0 * pressure.rejected_share()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::ScalingDecision::*;
    use super::*;
    use crate::policy::pressure::Pressure;
    use crate::policy::pressure::tests::pressure;
    use crate::protocol::metadata::{Change, Drain};
    use crate::values::key::tests::count;
    use proptest::prelude::*;

    fn settled(width: u32, at: u64) -> ShardMetadata {
        let mut metadata = ShardMetadata::unregistered().apply(&Change::Register, 1).unwrap();
        (metadata.number_of_shards, metadata.read_shards) = (count(width), count(width));
        metadata.shard_history = metadata.shard_history.with(at, count(width));
        metadata.last_updated = at;
        metadata
    }

    /// A demand in write units a second, on this many partitions: its observations at a width, if
    /// each write is sent three times.
    fn on(partitions: u32, demand: f64, width: u32) -> Seen {
        let rejected =
            collisions::throttled(demand / 1_000.0, count(width), Some(partitions)).min(0.99);
        let of = |share: f64| (10_000.0 * share).round() as u64;
        let throttled = of((rejected * 1.5).min(1.0));
        let pressure = Pressure {
            writes: 10_000,
            attempts: 10_000,
            throttled,
            accepted: of(1.0 - rejected),
            throttles: throttled + of(rejected) * 2,
        };
        Seen { pressure, rate: demand, partitions: Some(partitions), ..Seen::default() }
    }

    /// Clients that wait: so many of a hundred first attempts are throttled, and none is rejected.
    fn waiting(partitions: u32, throttled: u64, rate: f64) -> Seen {
        let pressure = Pressure {
            writes: 10_000,
            attempts: 10_000,
            throttled: throttled * 100,
            accepted: 10_000,
            throttles: throttled * 300,
        };
        Seen { pressure, rate, partitions: Some(partitions), ..Seen::default() }
    }

    fn decide(metadata: &ShardMetadata, seen: Seen) -> ScalingDecision {
        ScalingPolicy::default().decide(metadata, seen, 1_000)
    }

    #[track_caller]
    fn assert_grows(decision: ScalingDecision, expected: std::ops::RangeInclusive<u32>) {
        let is_expected = matches!(decision, ScaleOut(to) if expected.contains(&to.get()));
        assert!(is_expected, "{decision:?}, expected {expected:?}");
    }

    #[test]
    fn a_key_gets_the_shards_that_its_demand_needs() {
        let rows = [
            // Partitions, demand, width, and about the shards.
            (1_000, 2_000.0, 1, 3..=4),
            (1_000, 5_000.0, 1, 7..=11),
            (1_000, 20_000.0, 1, 45..=75),
            (64, 5_000.0, 1, 14..=25),
            (64, 20_000.0, 1, 110..=200),
            (1_000, 20_000.0, 8, 45..=75),
            // Nothing serves all of it. This many shards serve what can be served.
            (4, 5_000.0, 1, 120..=200),
            (4, 20_000.0, 1, 15..=60),
        ];
        for (partitions, demand, width, expected) in rows {
            let decision = decide(&settled(width, 1), on(partitions, demand, width));
            assert_grows(decision, expected);
        }
    }

    #[test]
    fn clients_that_wait_are_seen_by_their_throttles() {
        let at = |width, throttled| {
            decide(&settled(width, 1), waiting(1_000, throttled, 1_000.0 * f64::from(width)))
        };
        assert_grows(at(1, 100), 41..=41);
        assert_grows(at(1, 20), 6..=6);
        assert_grows(at(10, 30), 82..=90);
        assert_eq!(at(10, 0), Calm);
    }

    #[test]
    fn a_key_grows_further_whose_shards_meet_on_partitions() {
        let unlucky = |width| decide(&settled(width, 1), waiting(1_000, 3, 50_000.0));
        assert_grows(unlucky(139), 195..=200);
        assert!(matches!(unlucky(200), AtMaximum));
        // Ten shards more would save less than the pause of the writers costs.
        assert!(matches!(unlucky(190), NoGain { .. }), "{:?}", unlucky(190));
        let seen = waiting(1_000, 3, 5_000.0);
        assert_grows(decide(&settled(9, 1), seen), 13..=20);
        // Other keys fill its partitions, but many shards fill them more evenly.
        assert_grows(decide(&settled(40, 1), seen), 56..=75);
        let seen = waiting(1_000, 3, 1_500.0);
        assert!(matches!(decide(&settled(40, 1), seen), Crowded { .. }));
    }

    #[test]
    fn a_key_that_drains_a_backlog_is_calm() {
        let mut seen = on(1_000, 5_000.0, 4);
        assert_grows(decide(&settled(4, 1), seen), 7..=12);
        seen.pressure.accepted = 12_000;
        assert_eq!(decide(&settled(4, 1), seen), Calm);
    }

    #[test]
    fn a_key_of_few_writes_does_not_grow_when_others_fill_the_table() {
        let crowded = Crowded { until: 1_010, write_units: Some(96_000) };
        for (rate, width) in [(10.0, 1), (300.0, 1), (300.0, 6)] {
            let seen = Seen { rate, ..on(64, 5_000.0, width) };
            assert_eq!(decide(&settled(width, 1), seen), crowded, "{rate} at {width}");
        }
        // Two thirds of a partition of its own: a few shards, and no more.
        let two_thirds = |demand| Seen { rate: 700.0, ..on(64, demand, 1) };
        assert_grows(decide(&settled(1, 1), two_thirds(2_000.0)), 2..=4);
        // Its callers repeat what was rejected, and a seventh of a partition is accepted.
        assert_eq!(decide(&settled(1, 1), two_thirds(5_000.0)), crowded);
        assert_eq!(decide(&settled(20, 1), Seen { rate: 500.0, ..on(64, 30_000.0, 20) }), crowded);
        // Partitions that are not known may be small ones.
        let unknown = Seen { rate: 50.0, partitions: None, ..on(64, 5_000.0, 1) };
        assert_grows(decide(&settled(1, 1), unknown), 6..=60);
    }

    #[test]
    fn few_hot_items_get_one_shard_each() {
        let hot = |items| Seen { hot_items: Some(items), ..on(64, 6_000.0, 1) };
        assert_grows(decide(&settled(1, 1), hot(3)), 3..=3);
        let reported = HotItems { items: 3, until: 1_010 };
        assert_eq!(decide(&settled(3, 1), hot(3)), reported);
        assert_eq!(decide(&settled(8, 1), hot(3)), reported);
        // Also where that is less room than other growths make.
        let seen = Seen { hot_items: Some(120), ..waiting(1_000, 3, 50_000.0) };
        assert_grows(decide(&settled(118, 1), seen), 120..=120);
    }

    #[test]
    fn a_short_table_is_reported_with_what_it_lacks() {
        for (partitions, demand, width) in
            [(4, 5_000.0, 88), (4, 5_000.0, 200), (4, 20_000.0, 60), (20, 50_000.0, 200)]
        {
            let decision = decide(&settled(width, 1), on(partitions, demand, width));
            let ShortOfPartitions { until: 1_001, write_units: Some(units) } = decision else {
                panic!("{demand} on {partitions}, at {width}: {decision:?}")
            };
            let lacking = units as f64 / demand;
            assert!((1.5..=4.5).contains(&lacking), "{demand} on {partitions}: {units}");
        }
        // Of clients that wait, what is accepted is certain.
        let least = ShortOfPartitions { until: 1_001, write_units: Some(10_000) };
        assert_eq!(decide(&settled(180, 1), waiting(4, 41, 2_450.0)), least);
        // With room on the table, it is the key's maximum.
        assert_eq!(decide(&settled(200, 1), waiting(1_000, 5, 200_000.0)), AtMaximum);
    }

    #[test]
    fn what_is_accepted_is_a_part_of_the_demand() {
        // Clients that wait hide the rest. Their throttles alone would ask for 63 shards.
        assert_grows(decide(&settled(20, 1), waiting(64, 12, 18_000.0)), 100..=200);
    }

    #[test]
    fn a_short_table_takes_the_maximum_where_no_later_growth_would() {
        // 165 shards lose hardly more, and a second growth stops the writers once more.
        assert_grows(decide(&settled(1, 1), on(64, 20_000.0, 1)), 200..=200);
        assert_grows(decide(&settled(1, 1), on(4, 20_000.0, 1)), 10..=30);
    }

    #[test]
    fn a_growth_reports_a_table_that_is_certainly_short() {
        let lacking = |seen, width| ScalingPolicy::default().lacking(count(width), seen, 1_000);
        for width in [1, 20] {
            let seen = on(4, 5_000.0, width);
            assert_grows(decide(&settled(width, 1), seen), 24..=200);
            let reported = lacking(seen, width);
            assert!(matches!(reported, Some(ShortOfPartitions { write_units: Some(_), .. })));
        }
        assert_eq!(lacking(on(1_000, 50_000.0, 20), 20), None, "it has room");
        // A few writes vouch for little.
        let pressure =
            Pressure { writes: 12, attempts: 12, throttled: 9, accepted: 4, throttles: 20 };
        let few = Seen { pressure, ..on(4, 5_000.0, 1) };
        assert_grows(decide(&settled(1, 1), few), 2..=200);
        assert_eq!(lacking(few, 1), None, "a few writes");
        // Waiting clients hide a demand of which nobody is certain.
        assert_eq!(lacking(waiting(4, 100, 1_000.0), 1), None, "clients that wait");
    }

    #[test]
    fn growths_in_vain_become_rare() {
        let after = |fruitless, since: u64| {
            let growth = GrowthRecord { rejected_percent: 60, fruitless };
            let metadata = ShardMetadata { growth, ..settled(8, 1_000 - since) };
            decide(&metadata, waiting(1_000, 50, 8_000.0))
        };
        // 150 of 250 attempts are throttled, as before.
        assert_eq!(after(0, 0), CoolingDown { until: 1_001 });
        assert_grows(after(0, 1), 200..=200);
        assert_eq!(after(1, 1), ShortOfPartitions { until: 1_001, write_units: None });
        assert_grows(after(1, 2), 200..=200);
        assert_eq!(after(5, 20), ShortOfPartitions { until: 1_012, write_units: None });
        // A growth that helped does not delay the next one.
        let helped = GrowthRecord { rejected_percent: 90, fruitless: 3 };
        let metadata = ShardMetadata { growth: helped, ..settled(8, 996) };
        assert_grows(decide(&metadata, waiting(1_000, 50, 8_000.0)), 200..=200);
    }

    #[test]
    fn a_handful_of_throttles_is_no_reason() {
        let few = |writes, throttled| {
            let pressure = pressure((writes, throttled));
            Seen { pressure, rate: 2_000.0, partitions: Some(1_000), ..Seen::default() }
        };
        assert_eq!(decide(&settled(1, 1), few(200, 2)), Calm);
        assert_grows(decide(&settled(1, 1), few(9, 9)), 2..=30);
        assert_eq!(decide(&settled(1, 1), Seen::default()), Calm);
    }

    #[test]
    fn a_report_doubles_the_shards_while_that_can_help() {
        let reported = |width, at, partitions| {
            ScalingPolicy::default().decide_reported(&settled(width, at), partitions, 1_000)
        };
        assert_grows(reported(1, 1, None), 2..=2);
        assert_grows(reported(8, 1, Some(64)), 16..=16);
        assert_eq!(reported(8, 1_000, Some(64)), CoolingDown { until: 1_001 });
        assert_grows(reported(150, 1, Some(64)), 200..=200);
        assert_eq!(reported(200, 1, Some(64)), AtMaximum);
        let short = ShortOfPartitions { until: 1_010, write_units: Some(8_000) };
        assert_eq!(reported(17, 1, Some(4)), short);
    }

    #[test]
    fn a_key_that_turns_hot_while_it_shrinks_gets_its_shards_back() {
        let drain = Drain { began: 100, busy_until: Some(200), in_doubt: false, emptied_at: None };
        let shrunk = ShardMetadata {
            read_shards: count(8),
            shrunk_at: Some(100),
            phase: Phase::Draining(drain),
            ..settled(2, 100)
        };
        assert_eq!(decide(&shrunk, Seen::default()), Calm);
        assert_grows(decide(&shrunk, waiting(1_000, 5, 2_000.0)), 8..=8);
        let policy = ScalingPolicy::default();
        assert_grows(policy.decide_reported(&shrunk, None, 1_000), 8..=8);
        assert_eq!(policy.shards_for(800.0, Some(4)), Sizing::Enough(ShardCount::ONE));
    }

    #[test]
    fn a_key_that_grew_back_is_left_alone_for_longer() {
        let grown = |shrunk_at, at| ShardMetadata { shrunk_at: Some(shrunk_at), ..settled(8, at) };
        let closing = ShardMetadata { phase: Phase::Closing(count(9)), ..settled(8, 1_000) };
        let rows = [
            (settled(8, 1_000), 4_599, None),
            (settled(8, 1_000), 4_600, Some(count(4))),
            (grown(900, 1_000), 15_399, None),
            (grown(900, 1_000), 15_400, Some(count(4))),
            (grown(1_000, 1_000), 4_600, Some(count(4))),
            (settled(1, 1_000), 99_999, None),
            (closing, 99_999, None),
        ];
        for (metadata, now, expected) in rows {
            let decision = ScalingPolicy::default().decide_shrink(&metadata, 3_600, now);
            assert_eq!(decision, expected, "{metadata:?} at {now}");
        }
    }

    proptest! {
        #[test]
        fn growth_is_within_the_limits_and_ends(
            partitions in 1u32..2_000, demand in 400.0f64..300_000.0,
        ) {
            let policy = ScalingPolicy::default();
            let (mut width, mut growths) = (1, 0);
            while let ScaleOut(to) = decide(&settled(width, 1), on(partitions, demand, width)) {
                prop_assert!(to.get() > width && to <= policy.max_shards);
                (width, growths) = (to.get(), growths + 1);
            }
            prop_assert!(growths <= 8, "{growths}");
        }
    }
}
