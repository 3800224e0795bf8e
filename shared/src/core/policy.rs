//! How many shards a key should have.
//!
//! Why proportional? All writers of a key meet the same shards, so the fraction of the demand that one writer sees turned away
//! estimates the fraction for all of them, with no coordination. If f of the demand is turned away by n shards, n / (1 - f) shards
//! would take it: n f / (1 - f) are lacking. Adding one shard per cooldown, as the seed blog does, needs minutes to hours for a large step.
//!
//! Why a confidence bound? Five throttles of five attempts say f = 1 and would ask for infinitely many shards. The lower Wilson
//! bound of f says what five samples can vouch for.
//!
//! Why a guard? Shards only help where there are partitions to land on. A young on-demand table has four: a key that grows there gets
//! more shards on the same full partitions, and asks for ever more. So a growth is judged by what it brought: where much is still turned
//! away and no instance saw it help, the growth stops for minutes, for only the table can split; the next try is a small step.

use std::fmt;
use std::time::Duration;

use super::growth::GrowthRecord;
use super::key::ShardCount;
use super::pressure::{SAMPLES, Seen};
use crate::protocol::metadata::{Phase, ShardMetadata};

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
    /// A change to this width is under way: observe it, and take over if its actor died.
    Closing(ShardCount),
    /// Already at the policy's maximum.
    AtMaximum,
    /// Nothing more can be listed on the key's page of the directory, and the key would have to be.
    DirectoryFull,
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
            Self::Closing(to) => write!(f, "a change to {to} shards is under way"),
            Self::AtMaximum => f.write_str("at MAX_SHARDS"),
            Self::DirectoryFull => f.write_str("its page of the directory is full"),
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
        if let Some(width) = metadata.closing() {
            return ScalingDecision::Closing(width);
        }
        let turned_away = seen.pressure.lower_bound(self.confidence);
        if seen.pressure.throttled < self.evidence.max(1) || turned_away < NEGLIGIBLE {
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
        let fruitless = self.record(metadata, seen).fruitless;
        // Whether the last growth should have sufficed and did not: by the history, which all instances share, and what a shrink ended
        // says nothing. Only an instance that saw the growth help knows better.
        let is_recent = metadata.last_growth().is_some_and(|at| now_seconds.saturating_sub(at) < DOUBT_SECONDS);
        // A slow instance cannot tell, and does not doubt.
        let can_tell = seen.pressure.attempts >= SAMPLES;
        let is_throttled = seen.pressure.throttled as f64 >= STILL_THROTTLED * seen.pressure.attempts as f64;
        let is_doubtful = is_recent && can_tell && is_throttled && !seen.growth_helped;
        let doubted = fruitless >= MOST_FRUITLESS || (self.growth == Growth::Proportional && is_doubtful);
        // Each further try that does not help makes the next one rarer.
        let stretch = SHORT_TABLE_SECONDS << fruitless.saturating_sub(MOST_FRUITLESS).min(LONGEST_STRETCH);
        let until = metadata.last_updated.saturating_add(stretch);
        if doubted && now_seconds < until {
            return ScalingDecision::ShortOfPartitions { until };
        }
        let width = u64::from(metadata.number_of_shards.get());
        // A float beyond the range of u64 saturates; the clamp below bounds it.
        let times = |factor: f64| width as f64 * factor;
        let lacking = turned_away / (1.0 - turned_away).max(f64::EPSILON);
        let wanted = match self.growth {
            Growth::PlusOne => width + 1,
            Growth::Doubling => width * 2,
            Growth::Proportional if doubted => times(DOUBTFUL_STEP) as u64,
            Growth::Proportional => (times(1.0 + lacking * self.headroom).ceil() as u64).max(times(LEAST_STEP) as u64),
        };
        // Readers still look at the shards that a shrink has begun to give up.
        let wanted = wanted.max(u64::from(metadata.read_shards.get()));
        let highest = (width * u64::from(self.max_step)).min(u64::from(self.max_shards.get())).max(width + 1);
        let target = u32::try_from(wanted.clamp(width + 1, highest)).ok().and_then(ShardCount::new);
        target.map_or(ScalingDecision::AtMaximum, ScalingDecision::ScaleOut)
    }

    /// Whether a key gives up half of its shards: for `calm_seconds` it has kept its width and taken no more writes than half of its shards
    /// are known to bear; longer where it last grew soon after a shrink, so that a key does not go up and down.
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
        let Some(half) = half.filter(|_| metadata.phase == Phase::Open) else { return ShrinkDecision::No };
        let grew_back = metadata.shrunk_at.is_some_and(|shrunk| {
            metadata.last_growth().is_some_and(|grown| grown.saturating_sub(shrunk) < calm_seconds)
        });
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
        let sampled = ((1.0 - seen.pressure.let_in()) * 100.0).round() as u32;
        before.grown(if seen.is_sample { sampled } else { before.rejected_percent })
    }
}

#[cfg(test)]
mod tests {
    use super::ScalingDecision::*;
    use super::*;
    use crate::core::key::tests::count;
    use crate::core::pressure::Pressure;
    use crate::protocol::metadata::Drain;
    use proptest::prelude::*;

    fn settled(width: u32, at: u64) -> ShardMetadata {
        let registered = ShardMetadata::registered(1);
        let shard_history = registered.shard_history.clone().with(at, count(width));
        let (number_of_shards, read_shards) = (count(width), count(width));
        ShardMetadata { number_of_shards, read_shards, last_updated: at, shard_history, ..registered }
    }

    fn report(attempts: u64, throttled: u64) -> Seen {
        Pressure { attempts, throttled, accepted: attempts - throttled }.into()
    }

    fn sample(attempts: u64, throttled: u64) -> Seen {
        Seen { is_sample: true, ..report(attempts, throttled) }
    }

    #[track_caller]
    fn check<const N: usize>(rows: [(ShardMetadata, Seen, u64, ScalingDecision); N]) {
        let policy = ScalingPolicy { cooldown_seconds: 10, ..Default::default() };
        for (metadata, seen, now, expected) in rows {
            assert_eq!(policy.decide(&metadata, seen, now), expected, "{metadata:?} {seen:?} at {now}");
        }
    }

    #[test]
    fn a_burst_of_capacity_errors_scales_out_once() {
        let hot = report(200, 190);
        check([
            (settled(4, 100), hot, 105, CoolingDown { until: 110 }),
            (settled(4, 100), hot, 110, ShortOfPartitions { until: 700 }),
            (settled(4, 100), hot, 9_000, ScaleOut(count(200))),
            (settled(4, 100), report(200, 2), 110, Calm),
            (settled(200, 100), hot, 110, AtMaximum),
            (settled(300, 100), hot, 110, AtMaximum),
        ]);
    }

    #[test]
    fn a_first_burst_grows_a_key_by_what_it_vouches_for() {
        let rows = [
            // Registration is no change and starts no cooldown.
            (ShardMetadata::registered(1_000), report(9, 9), 2..=200),
            // Five throttles do not multiply a key by fifty.
            (ShardMetadata::unregistered(), report(5, 5), 2..=24),
            // Heat after a shrink is no growth that did not help.
            (ShardMetadata { shrunk_at: Some(990), ..settled(4, 990) }, report(500, 400), 17..=200),
        ];
        for (metadata, seen, expected) in rows {
            let decision = ScalingPolicy::default().decide(&metadata, seen, 1_000);
            assert!(matches!(decision, ScaleOut(to) if expected.contains(&to.get())), "{metadata:?} {decision:?}");
        }
    }

    #[test]
    fn a_table_short_of_partitions_stops_the_growth() {
        let hot = sample(500, 400);
        check([
            (settled(20, 990), hot, 1_000, ShortOfPartitions { until: 1_590 }),
            (settled(20, 990), Seen { growth_helped: true, ..hot }, 1_000, ScaleOut(count(200))),
            (settled(20, 990), hot, 1_590, ScaleOut(count(25))),
            (settled(20, 990), hot, 9_000, ScaleOut(count(200))),
            // Ten thousand instances of ten writes a second each: none of them can tell whether the growth has helped.
            (settled(20, 990), sample(19, 15), 1_000, ScaleOut(count(193))),
        ]);
    }

    /// A table that rejects this part of the demand at any width: the widths that the key goes through, with the seconds between them.
    fn grown_in_vain(rejected: f64, hours: u64) -> Vec<(u64, u32)> {
        let (policy, begun) = (ScalingPolicy::default(), 1_000_000);
        let seen = sample(1_000, (rejected * 1_000.0) as u64);
        let mut metadata = ShardMetadata::registered(begun);
        let mut changes = Vec::new();
        for now in (begun..begun + hours * 3_600).step_by(2) {
            if let ScaleOut(to) = policy.decide(&metadata, seen, now) {
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
            let soon = changes.iter().filter(|(waited, _)| *waited < 600).count();
            assert_eq!(soon, 2, "the first growth, and one more try: {rejected} {changes:?}");
            assert!(changes.last().unwrap().1 <= widest, "{rejected} {changes:?}");
            let day = grown_in_vain(rejected, 24);
            assert!(day.len() <= 9 && day.windows(2).skip(2).all(|pair| pair[1].0 > pair[0].0), "{rejected} {day:?}");
        }
    }

    #[test]
    fn growth_that_helps_goes_on() {
        let grown =
            |fruitless| ShardMetadata { growth: GrowthRecord { rejected_percent: 20, fruitless }, ..settled(20, 990) };
        check([
            (grown(1), sample(500, 60), 1_000, ScaleOut(count(30))),
            (grown(0), sample(500, 100), 1_000, ScaleOut(count(38))),
            (grown(1), sample(500, 100), 1_000, ShortOfPartitions { until: 1_590 }),
            (grown(3), sample(500, 100), 1_000, ShortOfPartitions { until: 990 + 2_400 }),
            // A report is no sample: it counts as a growth that has not helped, and where nothing is known, for nothing.
            (grown(1), report(500, 60), 1_000, ShortOfPartitions { until: 1_590 }),
            (grown(0), report(500, 100), 1_000, ScaleOut(count(38))),
            (settled(20, 990), report(500, 100), 1_000, ScaleOut(count(38))),
            (ShardMetadata { shrunk_at: Some(990), ..grown(1) }, sample(500, 100), 1_000, ScaleOut(count(38))),
        ]);
        for (metadata, seen, rejected_percent, fruitless) in [
            (grown(1), sample(500, 100), 20, 2),
            (grown(1), sample(500, 60), 12, 0),
            (grown(0), Seen::default(), 20, 1),
            (settled(20, 990), Seen::default(), 0, 0),
        ] {
            let record = ScalingPolicy::default().record(&metadata, seen);
            assert_eq!(record, GrowthRecord { rejected_percent, fruitless });
        }
    }

    #[test]
    fn a_key_that_turns_hot_while_it_shrinks_gets_all_its_shards_back() {
        let drain = Drain { began: 100, busy_until: Some(200), in_doubt: false, emptied_at: None };
        let shrunk = || ShardMetadata { read_shards: count(8), shrunk_at: Some(100), ..settled(2, 100) };
        let draining = || ShardMetadata { phase: Phase::Draining(drain), ..shrunk() };
        check([
            (draining(), Seen::default(), 900, Calm),
            (draining(), report(200, 20), 105, CoolingDown { until: 110 }),
            (draining(), report(200, 20), 110, ScaleOut(count(8))),
        ]);
    }

    #[test]
    fn a_key_that_grew_back_is_left_alone_for_longer() {
        let grown = |shrunk_at, at| ShardMetadata { shrunk_at: Some(shrunk_at), ..settled(8, at) };
        let closing = ShardMetadata { phase: Phase::Closing(count(9)), ..settled(8, 1_000) };
        let rows = [
            (settled(8, 1_000), 4_600, ShrinkDecision::To(count(4))),
            (grown(900, 1_000), 4_600, ShrinkDecision::Wait { until: 15_400 }),
            (grown(900, 1_000), 15_400, ShrinkDecision::To(count(4))),
            (grown(1_000, 1_000), 4_600, ShrinkDecision::To(count(4))),
            (settled(1, 1_000), 99_999, ShrinkDecision::No),
            (closing, 99_999, ShrinkDecision::No),
        ];
        for (metadata, now, expected) in rows {
            let decision = ScalingPolicy::default().decide_shrink(&metadata, 3_600, now);
            assert_eq!(decision, expected, "{metadata:?} at {now}");
        }
    }

    #[test]
    fn the_blogs_policies_stay_available() {
        for (growth, to) in [(Growth::PlusOne, 5), (Growth::Doubling, 8)] {
            let policy = ScalingPolicy { growth, ..Default::default() };
            assert_eq!(policy.decide(&settled(4, 1), report(100, 99), 100), ScaleOut(count(to)));
        }
    }

    proptest! {
        #[test]
        fn a_scale_out_grows_and_stays_within_the_clamps(width in 1u32..250, attempts in 1u64..5_000, share in 0.0f64..=1.0) {
            let policy = ScalingPolicy::default();
            let seen = report(attempts, (attempts as f64 * share) as u64);
            if let ScaleOut(to) = policy.decide(&settled(width, 1), seen, 1_000) {
                prop_assert!(to.get() > width && to <= policy.max_shards && to.get() <= width * policy.max_step);
            }
        }
    }
}
