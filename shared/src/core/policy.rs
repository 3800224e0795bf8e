//! How many shards a key should have.
//!
//! Why proportional? All writers of a key meet the same shards, so the fraction of *first* attempts that one writer sees throttled
//! estimates the fraction for all of them, with no coordination. If f of the demand is turned away by n shards, n / (1 - f) shards
//! would take it. Adding one shard per cooldown, as the seed blog does, needs minutes to hours for a large step.
//!
//! Why a confidence bound? Five throttles of five attempts say f = 1 and would ask for infinitely many shards. The lower Wilson
//! bound of f says what five samples can vouch for. (E. B. Wilson, 1927.)

use super::key::ShardCount;
use super::metadata::ShardMetadata;

/// What one instance saw of a key's first attempts during the last seconds, under the present width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// First attempts.
    pub attempts: u64,
    /// First attempts that were throttled for the key range.
    pub throttled: u64,
}

impl Pressure {
    /// Counts one first attempt.
    pub const fn record(&mut self, throttled: bool) {
        self.attempts += 1;
        self.throttled += throttled as u64;
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { attempts: self.attempts + other.attempts, throttled: self.throttled + other.throttled }
    }

    /// The lower bound of the throttled fraction, `z` standard deviations below what was seen.
    #[must_use]
    pub fn lower_bound(self, z: f64) -> f64 {
        if self.attempts == 0 {
            return 0.0;
        }
        let n = self.attempts as f64;
        let p = self.throttled.min(self.attempts) as f64 / n;
        let centre = p + z * z / (2.0 * n);
        let spread = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        ((centre - spread) / (1.0 + z * z / n)).clamp(0.0, 1.0)
    }
}

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
}

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
    pub fn decide(&self, metadata: &ShardMetadata, seen: Pressure, now_seconds: u64) -> ScalingDecision {
        if metadata.draining {
            return ScalingDecision::Draining;
        }
        if let Some(width) = metadata.expansion() {
            return ScalingDecision::Expanding(width);
        }
        if seen.throttled < self.evidence.max(1) {
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
        let width = metadata.number_of_shards.get();
        let wanted = match self.growth {
            Growth::PlusOne => u64::from(width) + 1,
            Growth::Doubling => u64::from(width) * 2,
            Growth::Proportional => self.needed(width, seen),
        };
        let highest = (u64::from(width) * u64::from(self.max_step)).min(u64::from(self.max_shards.get()));
        let target = wanted.clamp(u64::from(width) + 1, highest.max(u64::from(width) + 1));
        u32::try_from(target)
            .ok()
            .and_then(ShardCount::new)
            .map_or(ScalingDecision::AtMaximum, ScalingDecision::ScaleOut)
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

        #[test]
        fn more_samples_of_one_fraction_vouch_for_more(attempts in 2u64..1_000) {
            let few = Pressure { attempts, throttled: attempts / 2 };
            let many = Pressure { attempts: attempts * 10, throttled: few.throttled * 10 };
            prop_assert!(many.lower_bound(2.0) >= few.lower_bound(2.0));
            prop_assert!(many.lower_bound(2.0) <= 0.5);
        }
    }
}
