//! How many shards a key should have.
//!
//! Why proportional? All writers of a key meet the same shards, so the fraction of the demand that one writer sees turned away
//! estimates the fraction for all of them, with no coordination. If f of the demand is turned away by n shards, n / (1 - f) shards
//! would take it: n f / (1 - f) are lacking. Adding one shard per cooldown, as the seed blog does, needs minutes to hours for a large step.
//!
//! Why a confidence bound? Five throttles of five attempts say f = 1 and would ask for infinitely many shards. The lower Wilson
//! bound of f says what five samples can vouch for.
//!
//! Why a guard? Shards only help where there are partitions to land on. A young on-demand table has four: a key that grows
//! there gets more shards on the same full partitions, and the throttled fraction asks for ever more. So a growth is judged
//! by what it brought: where much is still turned away and no instance saw it help, the growth stops for minutes, for the table is short
//! and only it can split; the next try is a small step.

use std::fmt;
use std::time::Duration;

use super::growth::GrowthRecord;
use super::key::ShardCount;
use super::metadata::ShardMetadata;
use super::pressure::Seen;

/// The rule that turns pressure into a width.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Growth {
    /// To the width that the throttled fraction asks for.
    #[default]
    Proportional,
    /// One shard more, as the seed blog does.
    PlusOne,
    /// Twice the width.
    Doubling,
}

impl Growth {
    /// Every rule with the name that configuration uses for it.
    pub const NAMES: [(&'static str, Self); 3] =
        [("proportional", Self::Proportional), ("plus-one", Self::PlusOne), ("doubling", Self::Doubling)];
}

/// The scaling policy: a pure function of metadata, pressure and time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalingPolicy {
    /// The rule.
    pub growth: Growth,
    /// The least seconds between two changes of one key.
    pub cooldown_seconds: u64,
    /// Decisions go no further; a width that was read is never clamped to it.
    pub max_shards: ShardCount,
    /// What the shards that are lacking are multiplied by: shards fall unevenly onto partitions (two on one must fit), and what has piled
    /// up must drain.
    pub headroom: f64,
    /// The most that one change may multiply the width by.
    pub max_step: u32,
    /// The fewest throttled first attempts that count as a hot key. A cold key that shares a hot partition meets one now and then.
    pub evidence: u64,
    /// Standard deviations between what was seen and what is acted on.
    pub confidence: f64,
}

/// So many first attempts make a decision sure enough; with fewer, it pays to wait a little.
const SURE_ATTEMPTS: u64 = 128;
/// The longest that a throttled writer waits for more samples.
pub(crate) const LONGEST_GATHERING: Duration = Duration::from_secs(1);

impl Default for ScalingPolicy {
    fn default() -> Self {
        Self {
            growth: Growth::Proportional,
            cooldown_seconds: 2,
            max_shards: ShardCount::new(200).unwrap_or(ShardCount::ONE),
            headroom: 4.0,
            max_step: 128,
            evidence: 3,
            confidence: 1.0,
        }
    }
}

/// What to do now. A "no" carries what the caller needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalingDecision {
    /// Grow to this count.
    ScaleOut(ShardCount),
    /// Too little was throttled for the key range to call the key hot.
    Calm,
    /// A change happened recently; the next is allowed from this epoch second on.
    CoolingDown {
        /// Epoch seconds.
        until: u64,
    },
    /// An expansion to this width waits to be activated: observe it, and take over if its actor died.
    Expanding(ShardCount),
    /// A shrink or a settling is under way, and nothing is hot.
    Draining,
    /// The key turned hot while a drain is under way: write to every shard that readers know, at once, and stop the drain.
    StopDraining,
    /// Already at the policy's maximum.
    AtMaximum,
    /// The last growths did not help: the table is short of partitions. The next try is allowed from this epoch second on.
    ShortOfPartitions {
        /// Epoch seconds.
        until: u64,
    },
}

impl fmt::Display for ScalingDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ScaleOut(to) => write!(f, "it needs {to} shards"),
            Self::Calm => f.write_str("nothing to do"),
            Self::CoolingDown { until } => write!(f, "cooling down until {until}"),
            Self::Expanding(to) => write!(f, "an expansion to {to} is under way"),
            Self::Draining => f.write_str("a drain is under way"),
            Self::StopDraining => f.write_str("it is hot again: its drain stops"),
            Self::AtMaximum => f.write_str("at MAX_SHARDS"),
            Self::ShortOfPartitions { until } => {
                write!(f, "growing did not help: the table is short of partitions; next try from {until}")
            }
        }
    }
}

/// Whether a key that has been calm should give up shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShrinkDecision {
    /// To this width: half.
    To(ShardCount),
    /// Not before this epoch second.
    Wait {
        /// Epoch seconds.
        until: u64,
    },
    /// It has one shard, or is being changed.
    No,
}

/// A key that grew soon after a shrink is left alone for so many times as long: shrinking costs more than it saves there.
const ONCE_BITTEN: u64 = 4;

/// A lower part of the demand than this is ridden out by repetitions.
const NEGLIGIBLE: f64 = 0.01;
/// The least seconds between two tries where growing does not help: DynamoDB splits partitions for heat within minutes.
const SHORT_TABLE_SECONDS: u64 = 600;
/// So many growths in a row that did not help say that the table is short of partitions.
const MOST_FRUITLESS: u32 = 2;
/// The time between two tries is doubled so many times at most: to a day, about.
const LONGEST_STRETCH: u32 = 7;
/// A growth is doubted for so long.
const DOUBT_SECONDS: u64 = 3_600;
/// A growth is doubted where this part of the first attempts is still throttled: it was meant to let all of the demand in.
const STILL_THROTTLED: f64 = 0.3;
/// After a growth that is doubted, the next one multiplies the width by no more than this.
const DOUBTFUL_STEP: f64 = 1.25;
/// A growth multiplies the width by no less than this: a smaller one hardly changes which shards meet on one partition.
const LEAST_STEP: f64 = 1.5;

impl ScalingPolicy {
    /// Whether to decide now, when this much was seen and the first throttle is this long ago: a change made from a handful of samples is
    /// too small, and costs a whole cooldown.
    #[must_use]
    pub fn is_sure(seen: Seen, since_first_throttle: Duration) -> bool {
        seen.pressure.attempts >= SURE_ATTEMPTS || since_first_throttle >= LONGEST_GATHERING
    }

    /// Decides from what one instance saw.
    ///
    /// ```
    /// use sharding::{Pressure, ScalingDecision, ScalingPolicy, ShardCount, ShardMetadata};
    /// let seen = Pressure { attempts: 80, throttled: 62, accepted: 18 };
    /// let decision = ScalingPolicy::default().decide(&ShardMetadata::unregistered(), seen, 1_562_858_912);
    /// assert_eq!(decision, ScalingDecision::ScaleOut(ShardCount::new(12).unwrap()));
    /// ```
    #[must_use]
    pub fn decide(&self, metadata: &ShardMetadata, seen: impl Into<Seen>, now_seconds: u64) -> ScalingDecision {
        let seen = seen.into();
        if let Some(width) = metadata.expansion() {
            return ScalingDecision::Expanding(width);
        }
        let turned_away = seen.pressure.lower_bound(self.confidence);
        if seen.pressure.throttled < self.evidence.max(1) || turned_away < NEGLIGIBLE {
            return if metadata.draining { ScalingDecision::Draining } else { ScalingDecision::Calm };
        }
        if metadata.draining {
            if metadata.number_of_shards == metadata.read_shards && metadata.number_of_shards >= self.max_shards {
                return ScalingDecision::AtMaximum;
            }
            let until = metadata.last_updated.saturating_add(self.cooldown_seconds);
            let cooling = now_seconds < until;
            return if cooling { ScalingDecision::CoolingDown { until } } else { ScalingDecision::StopDraining };
        }
        if metadata.number_of_shards >= self.max_shards {
            return ScalingDecision::AtMaximum;
        }
        if let Some(until) = metadata.last_change().map(|at| at.saturating_add(self.cooldown_seconds))
            && now_seconds < until
        {
            return ScalingDecision::CoolingDown { until };
        }
        let fruitless = self.record(metadata, seen).fruitless;
        let doubted = fruitless >= MOST_FRUITLESS
            || (self.growth == Growth::Proportional && is_doubted(metadata, seen, now_seconds));
        // Each further try that does not help makes the next one rarer.
        let stretch = SHORT_TABLE_SECONDS << fruitless.saturating_sub(MOST_FRUITLESS).min(LONGEST_STRETCH);
        let until = metadata.last_updated.saturating_add(stretch);
        if doubted && now_seconds < until {
            return ScalingDecision::ShortOfPartitions { until };
        }
        let width = metadata.number_of_shards.get();
        let wanted = match self.growth {
            Growth::PlusOne => u64::from(width) + 1,
            Growth::Doubling => u64::from(width) * 2,
            Growth::Proportional if doubted => (f64::from(width) * DOUBTFUL_STEP) as u64,
            Growth::Proportional => self.needed(width, turned_away).max((f64::from(width) * LEAST_STEP) as u64),
        };
        let highest = (u64::from(width) * u64::from(self.max_step)).min(u64::from(self.max_shards.get()));
        let target = wanted.clamp(u64::from(width) + 1, highest.max(u64::from(width) + 1));
        u32::try_from(target)
            .ok()
            .and_then(ShardCount::new)
            .map_or(ScalingDecision::AtMaximum, ScalingDecision::ScaleOut)
    }

    /// Whether a key gives up half of its shards: for `calm_seconds` it has kept its width, and has taken no more writes than half of its shards
    /// are known to bear; longer where it last grew soon after a shrink. Growing takes seconds and this takes hours, so that a key does not go
    /// up and down.
    ///
    /// ```
    /// use sharding::{ScalingPolicy, ShardCount, ShardMetadata, ShrinkDecision};
    /// let mut metadata = ShardMetadata::registered(1_000);
    /// metadata.number_of_shards = ShardCount::new(12).unwrap();
    /// metadata.read_shards = metadata.number_of_shards;
    /// let policy = ScalingPolicy::default();
    /// assert_eq!(policy.decide_shrink(&metadata, 3_600, 2_000), ShrinkDecision::Wait { until: 4_600 });
    /// assert_eq!(policy.decide_shrink(&metadata, 3_600, 5_000), ShrinkDecision::To(ShardCount::new(6).unwrap()));
    /// ```
    #[must_use]
    pub fn decide_shrink(&self, metadata: &ShardMetadata, calm_seconds: u64, now_seconds: u64) -> ShrinkDecision {
        let half = ShardCount::new(metadata.number_of_shards.get() / 2);
        let Some(half) = half.filter(|_| !metadata.draining && metadata.expansion().is_none()) else {
            return ShrinkDecision::No;
        };
        let grew_back = metadata.shrunk_at > 0
            && metadata.last_growth().is_some_and(|at| at.saturating_sub(metadata.shrunk_at) < calm_seconds);
        let calm = calm_seconds.max(self.cooldown_seconds).saturating_mul(if grew_back { ONCE_BITTEN } else { 1 });
        let busy_at = metadata.load.judged(metadata.number_of_shards).busy_at;
        let until = metadata.last_updated.max(busy_at).saturating_add(calm);
        if now_seconds < until { ShrinkDecision::Wait { until } } else { ShrinkDecision::To(half) }
    }

    /// What is noted with a growth that follows from what was seen, for the decisions after it.
    #[must_use]
    pub fn record(&self, metadata: &ShardMetadata, seen: impl Into<Seen>) -> GrowthRecord {
        let seen = seen.into();
        if self.growth != Growth::Proportional {
            return GrowthRecord::default();
        }
        let known = metadata.last_growth().is_some() && !seen.growth_helped;
        let before = if known { metadata.growth } else { GrowthRecord::default() };
        // A report has no fraction to compare; that there is one after a growth says that it has not sufficed.
        let rejected = match seen.is_sample {
            true => ((1.0 - seen.pressure.let_in()) * 100.0).round() as u32,
            false => before.rejected_percent,
        };
        before.grown(rejected)
    }

    /// What the width lacks, times the headroom, on top of what it has.
    fn needed(&self, width: u32, turned_away: f64) -> u64 {
        let lacking = turned_away / (1.0 - turned_away).max(f64::EPSILON);
        let needed = (f64::from(width) * (1.0 + lacking * self.headroom)).ceil();
        // A float beyond the range of u64 saturates; the clamp that follows bounds it.
        needed as u64
    }
}

/// Whether the last growth should have sufficed and did not. Goes by the history, which all instances share; only one that saw the
/// growth help knows better.
fn is_doubted(metadata: &ShardMetadata, seen: Seen, now_seconds: u64) -> bool {
    // That it is hot after a shrink says nothing of a growth.
    let recent = metadata.last_growth().is_some_and(|at| now_seconds.saturating_sub(at) < DOUBT_SECONDS);
    recent && !seen.growth_helped && seen.pressure.throttled as f64 >= STILL_THROTTLED * seen.pressure.attempts as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::pressure::Pressure;
    use proptest::prelude::*;

    fn count(n: u32) -> ShardCount {
        ShardCount::new(n).unwrap()
    }

    fn settled(width: u32, at: u64) -> ShardMetadata {
        let mut metadata = ShardMetadata::registered(1);
        metadata.number_of_shards = count(width);
        metadata.read_shards = count(width);
        metadata.last_updated = at;
        metadata.shard_history = metadata.shard_history.with(at, count(width));
        metadata
    }

    #[test]
    fn a_burst_of_capacity_errors_scales_out_once() {
        let policy = ScalingPolicy { cooldown_seconds: 10, ..Default::default() };
        let hot = Pressure { attempts: 200, throttled: 190, accepted: 10 };
        let rows = [
            (settled(4, 100), hot, 105, ScalingDecision::CoolingDown { until: 110 }),
            (settled(4, 100), hot, 110, ScalingDecision::ShortOfPartitions { until: 700 }),
            (settled(4, 100), hot, 9_000, ScalingDecision::ScaleOut(count(200))),
            (settled(4, 100), Pressure { attempts: 200, throttled: 2, accepted: 198 }, 110, ScalingDecision::Calm),
            (settled(200, 100), hot, 110, ScalingDecision::AtMaximum),
            (settled(300, 100), hot, 110, ScalingDecision::AtMaximum),
        ];
        for (metadata, seen, now, expected) in rows {
            assert_eq!(policy.decide(&metadata, seen, now), expected, "{metadata:?} {seen:?} {now}");
        }
    }

    #[test]
    fn registration_is_no_change_and_starts_no_cooldown() {
        let decision = ScalingPolicy::default().decide(
            &ShardMetadata::registered(100),
            Pressure { attempts: 9, throttled: 9, accepted: 0 },
            100,
        );
        assert!(matches!(decision, ScalingDecision::ScaleOut(_)));
    }

    #[test]
    fn five_throttles_do_not_multiply_a_key_by_fifty() {
        let decision = ScalingPolicy::default().decide(
            &ShardMetadata::unregistered(),
            Pressure { attempts: 5, throttled: 5, accepted: 0 },
            100,
        );
        assert!(matches!(decision, ScalingDecision::ScaleOut(to) if to.get() < 25), "{decision:?}");
    }

    #[test]
    fn a_table_short_of_partitions_stops_the_growth() {
        let policy = ScalingPolicy::default();
        let pressure = Pressure { attempts: 500, throttled: 400, accepted: 100 };
        let hot = |growth_helped| Seen { pressure, growth_helped, is_sample: true };
        let grown = settled(20, 990);
        let rows = [
            (&grown, false, 1_000, ScalingDecision::ShortOfPartitions { until: 1_590 }),
            (&grown, true, 1_000, ScalingDecision::ScaleOut(count(200))),
            (&grown, false, 1_590, ScalingDecision::ScaleOut(count(25))),
            (&grown, false, 9_000, ScalingDecision::ScaleOut(count(200))),
        ];
        for (metadata, helped, now, expected) in rows {
            assert_eq!(
                policy.decide(metadata, hot(helped), now),
                expected,
                "{} at {now}, helped: {helped}",
                metadata.number_of_shards
            );
        }
    }

    /// A table that rejects this part of the demand at any width: the widths that the key goes through, with the seconds between them.
    fn grown_in_vain(rejected: f64, hours: u64) -> Vec<(u64, u32)> {
        let policy = ScalingPolicy::default();
        let (attempts, now) = (1_000, 1_000_000);
        let throttled = (rejected * attempts as f64) as u64;
        let pressure = Pressure { attempts, throttled, accepted: attempts - throttled };
        let seen = Seen { pressure, growth_helped: false, is_sample: true };
        let mut metadata = ShardMetadata::registered(now);
        let mut changes = Vec::new();
        for now in (now..now + hours * 3_600).step_by(2) {
            if let ScalingDecision::ScaleOut(to) = policy.decide(&metadata, seen, now) {
                changes.push((now - metadata.last_updated, to.get()));
                metadata.growth = policy.record(&metadata, seen);
                (metadata.number_of_shards, metadata.read_shards, metadata.last_updated) = (to, to, now);
                metadata.shard_history = std::mem::take(&mut metadata.shard_history).with(now, to);
            }
        }
        changes
    }

    #[test]
    fn growth_that_has_not_helped_twice_stops() {
        for (rejected, widest) in [(0.10, 6), (0.15, 8), (0.20, 10), (0.25, 12)] {
            let changes = grown_in_vain(rejected, 1);
            let soon: Vec<_> = changes.iter().filter(|(waited, _)| *waited < 600).collect();
            assert_eq!(soon.len(), 2, "the first growth, and one more try: {rejected} {changes:?}");
            assert!(changes.last().unwrap().1 <= widest, "{rejected} {changes:?}");
            let day = grown_in_vain(rejected, 24);
            assert!(day.len() <= 9 && day.windows(2).skip(2).all(|pair| pair[1].0 > pair[0].0), "{rejected} {day:?}");
        }
    }

    #[test]
    fn growth_that_helps_goes_on() {
        let policy = ScalingPolicy::default();
        let seen = |throttled| Seen {
            pressure: Pressure { attempts: 500, throttled, accepted: 500 - throttled },
            growth_helped: false,
            is_sample: true,
        };
        let grown =
            |fruitless| ShardMetadata { growth: GrowthRecord { rejected_percent: 20, fruitless }, ..settled(20, 990) };
        let rows = [
            (grown(1), seen(60), ScalingDecision::ScaleOut(count(30))),
            (grown(0), seen(100), ScalingDecision::ScaleOut(count(38))),
            (grown(1), seen(100), ScalingDecision::ShortOfPartitions { until: 1_590 }),
            (grown(3), seen(100), ScalingDecision::ShortOfPartitions { until: 990 + 2_400 }),
            // A report is no sample: it counts as a growth that has not helped, and where nothing is known, for nothing.
            (grown(1), Seen { is_sample: false, ..seen(60) }, ScalingDecision::ShortOfPartitions { until: 1_590 }),
            (grown(0), Seen { is_sample: false, ..seen(100) }, ScalingDecision::ScaleOut(count(38))),
            (settled(20, 990), Seen { is_sample: false, ..seen(100) }, ScalingDecision::ScaleOut(count(38))),
            (ShardMetadata { shrunk_at: 990, ..grown(1) }, seen(100), ScalingDecision::ScaleOut(count(38))),
        ];
        for (metadata, seen, expected) in rows {
            assert_eq!(policy.decide(&metadata, seen, 1_000), expected, "{:?} {seen:?}", metadata.growth);
        }
        assert_eq!(policy.record(&grown(1), seen(100)), GrowthRecord { rejected_percent: 20, fruitless: 2 });
        assert_eq!(policy.record(&grown(1), seen(60)), GrowthRecord { rejected_percent: 12, fruitless: 0 });
        assert_eq!(policy.record(&grown(0), Pressure::default()), GrowthRecord { rejected_percent: 20, fruitless: 1 });
        assert_eq!(policy.record(&settled(20, 990), Pressure::default()), GrowthRecord::default());
    }

    #[test]
    fn a_key_that_turns_hot_while_it_is_drained_is_widened_at_once() {
        let policy = ScalingPolicy { cooldown_seconds: 10, ..Default::default() };
        let draining = ShardMetadata { draining: true, read_shards: count(8), ..settled(2, 100) };
        let hot = Pressure { attempts: 200, throttled: 190, accepted: 10 };
        assert_eq!(policy.decide(&draining, Pressure::default(), 900), ScalingDecision::Draining);
        assert_eq!(policy.decide(&draining, hot, 105), ScalingDecision::CoolingDown { until: 110 });
        assert_eq!(policy.decide(&draining, hot, 110), ScalingDecision::StopDraining);
    }

    #[test]
    fn a_key_that_grew_back_is_left_alone_for_longer() {
        let policy = ScalingPolicy::default();
        let grown = |shrunk_at, at| ShardMetadata { shrunk_at, ..settled(8, at) };
        let rows = [
            (grown(0, 1_000), 4_600, ShrinkDecision::To(count(4))),
            (grown(900, 1_000), 4_600, ShrinkDecision::Wait { until: 15_400 }),
            (grown(900, 1_000), 15_400, ShrinkDecision::To(count(4))),
            (grown(1_000, 1_000), 4_600, ShrinkDecision::To(count(4))),
            (settled(1, 1_000), 99_999, ShrinkDecision::No),
            (ShardMetadata { draining: true, ..settled(8, 1_000) }, 99_999, ShrinkDecision::No),
            (ShardMetadata { read_shards: count(9), ..settled(8, 1_000) }, 99_999, ShrinkDecision::No),
        ];
        for (metadata, now, expected) in rows {
            assert_eq!(policy.decide_shrink(&metadata, 3_600, now), expected, "{metadata:?} at {now}");
        }
    }

    #[test]
    fn heat_after_a_shrink_is_no_growth_that_did_not_help() {
        let shrunk = ShardMetadata { shrunk_at: 990, ..settled(4, 990) };
        let hot = Pressure { attempts: 500, throttled: 400, accepted: 100 };
        let decision = ScalingPolicy::default().decide(&shrunk, hot, 1_000);
        assert!(matches!(decision, ScalingDecision::ScaleOut(to) if to.get() > 16), "{decision:?}");
    }

    #[test]
    fn the_seeds_policies_stay_available() {
        let hot = Pressure { attempts: 100, throttled: 99, accepted: 1 };
        for (growth, to) in [(Growth::PlusOne, 5), (Growth::Doubling, 8)] {
            let policy = ScalingPolicy { growth, ..Default::default() };
            assert_eq!(policy.decide(&settled(4, 1), hot, 100), ScalingDecision::ScaleOut(count(to)));
        }
    }

    proptest! {
        #[test]
        fn a_scale_out_grows_and_stays_within_the_clamps(width in 1u32..250, attempts in 1u64..5_000, share in 0.0f64..=1.0) {
            let policy = ScalingPolicy::default();
            let throttled = (attempts as f64 * share) as u64;
            let seen = Pressure { attempts, throttled, accepted: attempts - throttled };
            if let ScalingDecision::ScaleOut(to) = policy.decide(&settled(width, 1), seen, 1_000) {
                prop_assert!(to.get() > width && to <= policy.max_shards && to.get() <= width * policy.max_step);
            }
        }
    }
}
