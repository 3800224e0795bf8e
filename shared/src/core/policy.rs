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

use std::time::Duration;

use super::collisions;
use super::decision::{LOOK_AGAIN, ScalingDecision, ShrinkDecision};
use super::growth::GrowthRecord;
use super::key::ShardCount;
use super::pressure::Seen;
use super::sizing::{self, Sizing};
use super::throughput::PARTITION_WRITE_UNITS;
use crate::protocol::metadata::{Phase, ShardMetadata};

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

/// The longest that a throttled writer waits for more samples.
pub const LONGEST_GATHERING: Duration = Duration::from_millis(500);
/// How long an instance that has added to the pooled observations waits for the others.
pub const TOGETHER: Duration = Duration::from_millis(250);

impl Default for ScalingPolicy {
    fn default() -> Self {
        Self {
            cooldown_seconds: 2,
            max_shards: ShardCount::new(200).unwrap_or(ShardCount::ONE),
            partition_write_units: PARTITION_WRITE_UNITS as f64,
        }
    }
}

/// Clients that wait may hide this many times the demand that is observed, if all of their first
/// attempts are throttled.
const HIDDEN: f64 = 7.0;
/// A key whose own writes fill less than this part of a partition does not grow: it is throttled
/// because other keys fill the rest.
const LEAST_OWN: f64 = 1.0 / 3.0;
/// On a table that is short of partitions, a growth is worth its pause from this factor on.
const LEAST_STEP: f64 = 1.2;
/// So many growths in a row may have no effect before the next one waits...
const FREE_TRIES: u32 = 2;
/// ...for this long, and twice as long after each further one.
const WAIT_SECONDS: u64 = 15;
/// The wait is doubled at most this many times.
const MOST_DOUBLINGS: u32 = 7;
/// An earlier growth says nothing about the present demand.
const FORGOTTEN_SECONDS: u64 = 3_600;
/// A table whose partitions a key's shards fill has at most a third as many partitions.
const SPREAD: u32 = 3;
/// A key that grew soon after a shrink keeps its width for this many times as long, because
/// shrinking costs more than it saves there.
const REGROWN_CALM_FACTOR: u64 = 4;

impl ScalingPolicy {
    /// Decides from the observations of a key's instances.
    ///
    /// ```
    /// use sharding::internal::{Pressure, ScalingDecision, ScalingPolicy, Seen};
    /// use sharding::internal::{ShardCount, ShardMetadata};
    /// // Of 4,000 units a second, three quarters are rejected.
    /// let pressure =
    ///     Pressure { writes: 800, attempts: 800, throttled: 700, accepted: 200, throttles: 2_000 };
    /// let seen = Seen { pressure, rate: 4_000.0, partitions: Some(1_000), hot_items: None };
    /// let key = ShardMetadata::unregistered();
    /// let decision = ScalingPolicy::default().decide(&key, seen, 1_562_858_912);
    /// assert_eq!(decision, ScalingDecision::ScaleOut(ShardCount::new(7).unwrap()));
    /// ```
    #[must_use]
    pub fn decide(
        &self,
        metadata: &ShardMetadata,
        seen: Seen,
        now_seconds: u64,
    ) -> ScalingDecision {
        let Seen { pressure, rate, partitions, hot_items } = seen;
        let width = metadata.number_of_shards;
        if let Some(to) = metadata.closing() {
            return ScalingDecision::Closing(to);
        }
        if !pressure.is_throttled() || pressure.is_draining() {
            return ScalingDecision::Calm;
        }
        let record = self.record(metadata, seen, now_seconds);
        if let Some(until) = self.waits_until(metadata, record.fruitless, now_seconds) {
            return if record.fruitless < FREE_TRIES {
                ScalingDecision::CoolingDown { until }
            } else {
                ScalingDecision::ShortOfPartitions { until, write_units: None }
            };
        }
        let again = now_seconds.saturating_add(LOOK_AGAIN.as_secs());
        if let Some(items) = hot_items
            && items <= width.get()
        {
            return ScalingDecision::HotItems { items, until: again };
        }
        let demand = demand(width, seen);
        let sizing = sizing::size(demand, partitions, self.max_shards);
        // Where clients do not wait, repetitions throttle up to as many first attempts again as are
        // rejected. The rest are of clients that wait.
        let waiting = (pressure.throttled_bound(1.0) - 2.0 * pressure.rejected()).max(0.0);
        let hidden = 1.0 + HIDDEN * waiting;
        let step = match sizing {
            Sizing::Enough(_) => (f64::from(width.get()) * hidden).ceil() as u32,
            Sizing::Short(_) => 0,
        };
        let least = f64::from(width.get()) * LEAST_STEP;
        let is_short =
            matches!(sizing, Sizing::Short(shards) if f64::from(shards.get()) < least);
        if is_short || width >= self.max_shards {
            let needed = sizing::needed_partitions(demand, self.max_shards);
            if partitions.is_none_or(|partitions| needed <= partitions) {
                return ScalingDecision::AtMaximum;
            }
            let write_units = Some(u64::from(needed) * PARTITION_WRITE_UNITS);
            let until = now_seconds.saturating_add(self.cooldown_seconds);
            return ScalingDecision::ShortOfPartitions { until, write_units };
        }
        // The rate says little about a table whose partitions are not known: they may be smaller.
        let most = partitions.map_or(self.max_shards, |_| {
            if rate < LEAST_OWN * self.partition_write_units {
                return ShardCount::ONE;
            }
            match sizing::size(self.most_demand(rate), partitions, self.max_shards) {
                Sizing::Enough(shards) => shards,
                Sizing::Short(_) => self.max_shards,
            }
        });
        if most <= width {
            let units = |partitions: u32| u64::from(partitions) * PARTITION_WRITE_UNITS * 3 / 2;
            return ScalingDecision::Crowded { until: again, write_units: partitions.map(units) };
        }
        let items = hot_items.and_then(ShardCount::new).unwrap_or(self.max_shards);
        // Readers still read the shards that a shrink has begun to give up.
        let wanted = sizing.shards().get().max(step).min(most.min(items).get());
        let to = wanted.max(width.get() + 1).max(metadata.read_shards.get());
        ShardCount::new(to.min(self.max_shards.get()))
            .map_or(ScalingDecision::AtMaximum, ScalingDecision::ScaleOut)
    }

    /// The shards for a demand in write units a second, on a table with this many partitions.
    ///
    /// ```
    /// use sharding::internal::{ScalingPolicy, ShardCount, Sizing};
    /// let policy = ScalingPolicy::default();
    /// let shards = |count| ShardCount::new(count).unwrap();
    /// assert_eq!(policy.shards_for(800.0, Some(4)), Sizing::Enough(shards(1)));
    /// assert!(matches!(policy.shards_for(5_000.0, Some(64)), Sizing::Enough(_)));
    /// assert!(matches!(policy.shards_for(5_000.0, Some(4)), Sizing::Short(_)));
    /// ```
    #[must_use]
    pub fn shards_for(&self, write_units: f64, partitions: Option<u32>) -> Sizing {
        sizing::size(write_units / self.partition_write_units, partitions, self.max_shards)
    }

    /// Warm throughput, in write units a second, of a table that serves a demand of one key in
    /// write units a second.
    #[must_use]
    pub fn needed_write_units(&self, write_units: f64) -> u64 {
        let demand = write_units / self.partition_write_units;
        u64::from(sizing::needed_partitions(demand, self.max_shards)) * PARTITION_WRITE_UNITS
    }

    /// Whether more observations would hardly change the decision: the shares are certain, and the
    /// rate does not limit the demand that follows from them.
    #[must_use]
    pub fn is_sure(&self, width: ShardCount, seen: Seen) -> bool {
        let is_limited = self.most_demand(seen.rate) < demand(width, seen);
        seen.pressure.is_sure() && (!is_limited || seen.partitions.is_none())
    }

    /// The largest demand of a key with this rate, in partitions.
    fn most_demand(&self, rate: f64) -> f64 {
        (1.0 + HIDDEN) * rate / self.partition_write_units
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
        if let Some(partitions) = partitions.filter(|of| width.get() >= of.saturating_mul(SPREAD)) {
            let write_units = Some(u64::from(partitions) * PARTITION_WRITE_UNITS * 2);
            let until = now_seconds.saturating_add(LOOK_AGAIN.as_secs());
            return ScalingDecision::ShortOfPartitions { until, write_units };
        }
        let to = width.get().saturating_mul(2).max(metadata.read_shards.get());
        let to = ShardCount::new(to.min(self.max_shards.get())).filter(|to| *to > width);
        to.map_or(ScalingDecision::AtMaximum, ScalingDecision::ScaleOut)
    }

    /// Until when a key that changed recently keeps its width.
    fn waits_until(
        &self,
        metadata: &ShardMetadata,
        fruitless: u32,
        now_seconds: u64,
    ) -> Option<u64> {
        let wait = fruitless.checked_sub(FREE_TRIES).map_or(self.cooldown_seconds, |further| {
            self.cooldown_seconds.max(WAIT_SECONDS << further.min(MOST_DOUBLINGS))
        });
        let until = metadata.last_change()?.saturating_add(wait);
        (now_seconds < until).then_some(until)
    }

    /// The record of a growth that follows from observations, for later decisions.
    #[must_use]
    pub fn record(
        &self,
        metadata: &ShardMetadata,
        seen: Seen,
        now_seconds: u64,
    ) -> GrowthRecord {
        let last = metadata.last_growth();
        let is_recent = last.is_some_and(|at| now_seconds < at.saturating_add(FORGOTTEN_SECONDS));
        let before = if is_recent { metadata.growth } else { GrowthRecord::default() };
        before.grown(seen.pressure.throttled_percent())
    }

    /// Whether a key gives up half of its shards: for `calm_seconds` it has kept its width, and has
    /// taken no more writes than half of its shards have carried before. The time is longer if it
    /// last grew soon after a shrink, so that a key does not oscillate.
    ///
    /// ```
    /// use sharding::internal::{ScalingPolicy, ShardCount, ShardMetadata, ShrinkDecision};
    /// let mut metadata = ShardMetadata::registered(1_000);
    /// metadata.number_of_shards = ShardCount::new(12).unwrap();
    /// metadata.read_shards = metadata.number_of_shards;
    /// let decided_at = |now| ScalingPolicy::default().decide_shrink(&metadata, 3_600, now);
    /// assert_eq!(decided_at(2_000), ShrinkDecision::Wait { until: 4_600 });
    /// assert_eq!(decided_at(5_000), ShrinkDecision::To(ShardCount::new(6).unwrap()));
    /// ```
    #[must_use]
    pub fn decide_shrink(
        &self,
        metadata: &ShardMetadata,
        calm_seconds: u64,
        now_seconds: u64,
    ) -> ShrinkDecision {
        let half = ShardCount::new(metadata.number_of_shards.get() / 2);
        let Some(half) = half.filter(|_| metadata.phase == Phase::Open) else {
            return ShrinkDecision::No;
        };
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
        if now_seconds < until { ShrinkDecision::Wait { until } } else { ShrinkDecision::To(half) }
    }
}

/// The demand, in partitions, of which the observed share is rejected.
fn demand(width: ShardCount, seen: Seen) -> f64 {
    let Seen { pressure, partitions, .. } = seen;
    let rejected = pressure.rejected_bound(if pressure.is_sure() { -1.0 } else { 1.0 });
    collisions::demand(rejected, width, partitions)
}
