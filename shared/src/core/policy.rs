//! How many shards a key should have.
//!
//! Why proportional? All writers of a key meet the same shards, so the fraction of *first* attempts that one writer sees throttled
//! estimates the fraction for all of them, with no coordination. If f of the demand is turned away by n shards, n / (1 - f) shards
//! would take it. Adding one shard per cooldown, as the seed blog does, needs minutes to hours for a large step.
//!
//! Why a confidence bound? Five throttles of five attempts say f = 1 and would ask for infinitely many shards. The lower Wilson
//! bound of f says what five samples can vouch for.
//!
//! Why a guard? Shards only help where there are partitions to land on. A young on-demand table has four: a key that grows
//! there gets more shards on the same full partitions, and the throttled fraction asks for ever more. So a growth is judged
//! by what it brought. One that brought little makes the next step small; two in a row stop the growth for minutes, for the table
//! is short and only it can split.

use super::history::HistoryEntry;
use super::key::ShardCount;
use super::metadata::ShardMetadata;
use super::pressure::{Pressure, Seen};

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
    /// What is added to the needed width, as a factor: shards fall unevenly onto partitions.
    pub headroom: f64,
    /// The most that one change may multiply the width by.
    pub max_step: u32,
    /// The fewest throttled first attempts that count as a hot key. A cold key that shares a hot partition meets one now and then.
    pub evidence: u64,
    /// Standard deviations between what was seen and what is acted on.
    pub confidence: f64,
}

impl Default for ScalingPolicy {
    fn default() -> Self {
        Self {
            growth: Growth::Proportional,
            cooldown_seconds: 2,
            max_shards: ShardCount::new(200).unwrap_or(ShardCount::ONE),
            headroom: 1.5,
            max_step: 64,
            evidence: 3,
            confidence: 2.0,
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
    /// A shrink is under way.
    Draining,
    /// Already at the policy's maximum.
    AtMaximum,
    /// The last growths did not help: the table is short of partitions. The next try is allowed from this epoch second on.
    ShortOfPartitions {
        /// Epoch seconds.
        until: u64,
    },
}

/// The least seconds between two tries where growing does not help: DynamoDB splits partitions for heat within minutes.
const SHORT_TABLE_SECONDS: u64 = 600;
/// After a growth that brought little, the next one multiplies the width by no more than this.
const DOUBTFUL_STEP: f64 = 1.5;
/// An instance that has not seen the last growths itself goes by their dates: two within this time...
const RECENT_GROWTH_SECONDS: u64 = 60;
/// ...and still this fraction throttled.
const STILL_THROTTLED: f64 = 0.5;

impl ScalingPolicy {
    /// Decides from what one instance saw.
    ///
    /// ```
    /// use sharding::{Pressure, ScalingDecision, ScalingPolicy, ShardCount, ShardMetadata};
    /// let seen = Pressure { attempts: 80, throttled: 62 };
    /// let decision = ScalingPolicy::default().decide(&ShardMetadata::unregistered(), seen, 1_562_858_912);
    /// assert_eq!(decision, ScalingDecision::ScaleOut(ShardCount::new(5).unwrap()));
    /// ```
    #[must_use]
    pub fn decide(&self, metadata: &ShardMetadata, seen: impl Into<Seen>, now_seconds: u64) -> ScalingDecision {
        let seen = seen.into();
        if metadata.draining {
            return ScalingDecision::Draining;
        }
        if let Some(width) = metadata.expansion() {
            return ScalingDecision::Expanding(width);
        }
        if seen.pressure.throttled < self.evidence.max(1) {
            return ScalingDecision::Calm;
        }
        if metadata.number_of_shards >= self.max_shards {
            return ScalingDecision::AtMaximum;
        }
        if let Some(until) = metadata.last_change().map(|at| at.saturating_add(self.cooldown_seconds))
            && now_seconds < until
        {
            return ScalingDecision::CoolingDown { until };
        }
        let ineffective = self.ineffective_growths(metadata, seen, now_seconds);
        if ineffective >= 2 && self.growth == Growth::Proportional {
            let until = metadata.last_updated.saturating_add(SHORT_TABLE_SECONDS);
            if now_seconds < until {
                return ScalingDecision::ShortOfPartitions { until };
            }
        }
        let width = metadata.number_of_shards.get();
        let wanted = match self.growth {
            Growth::PlusOne => u64::from(width) + 1,
            Growth::Doubling => u64::from(width) * 2,
            Growth::Proportional if ineffective > 0 => {
                self.needed(width, seen.pressure).min((f64::from(width) * DOUBTFUL_STEP) as u64)
            }
            Growth::Proportional => self.needed(width, seen.pressure),
        };
        let highest = (u64::from(width) * u64::from(self.max_step)).min(u64::from(self.max_shards.get()));
        let target = wanted.clamp(u64::from(width) + 1, highest.max(u64::from(width) + 1));
        u32::try_from(target)
            .ok()
            .and_then(ShardCount::new)
            .map_or(ScalingDecision::AtMaximum, ScalingDecision::ScaleOut)
    }

    /// How many growths in a row have not helped, as this instance saw it, or as the history suggests to one that was not there.
    fn ineffective_growths(&self, metadata: &ShardMetadata, seen: Seen, now_seconds: u64) -> u32 {
        seen.ineffective_growths.unwrap_or_else(|| {
            let mut latest = metadata.shard_history.entries().rev();
            let recent = |entry: HistoryEntry| now_seconds.saturating_sub(entry.at) < RECENT_GROWTH_SECONDS;
            // The oldest entry is the registration, not a growth.
            let two_growths = latest.len() > 2 && latest.by_ref().take(2).all(recent);
            let still = seen.pressure.lower_bound(self.confidence) >= STILL_THROTTLED;
            if two_growths && still { 2 } else { 0 }
        })
    }

    fn needed(&self, width: u32, seen: Pressure) -> u64 {
        let accepted = (1.0 - seen.lower_bound(self.confidence)).max(f64::EPSILON);
        let needed = (f64::from(width) / accepted * self.headroom).ceil();
        // A float beyond the range of u64 saturates; the clamp that follows bounds it.
        needed as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let hot = Pressure { attempts: 200, throttled: 190 };
        let rows = [
            (settled(4, 100), hot, 105, ScalingDecision::CoolingDown { until: 110 }),
            (settled(4, 100), hot, 110, ScalingDecision::ScaleOut(count(67))),
            (settled(4, 100), Pressure { attempts: 200, throttled: 2 }, 110, ScalingDecision::Calm),
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
            Pressure { attempts: 9, throttled: 9 },
            100,
        );
        assert!(matches!(decision, ScalingDecision::ScaleOut(_)));
    }

    #[test]
    fn five_throttles_do_not_multiply_a_key_by_fifty() {
        let decision = ScalingPolicy::default().decide(
            &ShardMetadata::unregistered(),
            Pressure { attempts: 5, throttled: 5 },
            100,
        );
        assert_eq!(decision, ScalingDecision::ScaleOut(count(4)));
    }

    #[test]
    fn a_table_short_of_partitions_stops_the_growth() {
        let policy = ScalingPolicy::default();
        let hot = |ineffective| Seen {
            pressure: Pressure { attempts: 500, throttled: 400 },
            ineffective_growths: ineffective,
        };
        let rows = [
            (Some(0), 1_000, ScalingDecision::ScaleOut(count(200))),
            (Some(1), 1_000, ScalingDecision::ScaleOut(count(90))),
            (Some(2), 1_000, ScalingDecision::ShortOfPartitions { until: 1_590 }),
            (Some(3), 1_590, ScalingDecision::ScaleOut(count(90))),
            // An instance that has just started sees one growth long ago: no reason to doubt.
            (None, 1_000, ScalingDecision::ScaleOut(count(200))),
        ];
        for (ineffective, now, expected) in rows {
            assert_eq!(policy.decide(&settled(60, 990), hot(ineffective), now), expected, "{ineffective:?} at {now}");
        }
        let mut twice = settled(60, 990);
        twice.shard_history = twice.shard_history.with(985, count(8));
        assert_eq!(policy.decide(&twice, hot(None), 1_000), ScalingDecision::ShortOfPartitions { until: 1_590 });
        assert!(matches!(policy.decide(&twice, hot(Some(0)), 1_000), ScalingDecision::ScaleOut(_)));
    }

    #[test]
    fn the_seeds_policies_stay_available() {
        let hot = Pressure { attempts: 100, throttled: 99 };
        for (growth, to) in [(Growth::PlusOne, 5), (Growth::Doubling, 8)] {
            let policy = ScalingPolicy { growth, ..Default::default() };
            assert_eq!(policy.decide(&settled(4, 1), hot, 100), ScalingDecision::ScaleOut(count(to)));
        }
    }

    proptest! {
        #[test]
        fn a_scale_out_grows_and_stays_within_the_clamps(width in 1u32..250, attempts in 1u64..5_000, share in 0.0f64..=1.0) {
            let policy = ScalingPolicy::default();
            let seen = Pressure { attempts, throttled: (attempts as f64 * share) as u64 };
            if let ScalingDecision::ScaleOut(to) = policy.decide(&settled(width, 1), seen, 1_000) {
                prop_assert!(to.get() > width && to <= policy.max_shards && to.get() <= width * policy.max_step);
            }
        }
    }
}
