//! The number of shards that a key should have.
//!
//! The default is proportional. All writers of a key use the same shards, so the share of the
//! demand that one writer sees rejected estimates the share for all writers, without coordination.
//! If n shards reject the share f of the demand, then n / (1 - f) shards would accept it: n f / (1
//! - f) are missing. Adding one shard per cooldown takes minutes to hours for a large step.
//!
//! The share is a confidence bound. Five throttles of five attempts mean f = 1, which would ask for
//! infinitely many shards. The lower Wilson bound of f is what five samples support.
//!
//! The table's partitions are part of the decision (`known_partitions`). If they are not known, a
//! key on a young table would ask for ever more shards on the same full partitions. So each growth
//! is judged by its effect: if much is still rejected and no instance observed an improvement,
//! growth stops for minutes, because only the table can split. The next try is a small step.

use std::time::Duration;

use super::decision::{ScalingDecision, ShrinkDecision};
use super::doubt::{DOUBT_SECONDS, DOUBTFUL_STEP, Growths, LONGEST_STRETCH, MOST_FRUITLESS};
use super::growth::GrowthRecord;
use super::key::ShardCount;
use super::known_partitions::OnKnownPartitions;
use super::pressure::{CERTAIN, NEGLIGIBLE, SAMPLES, Seen};
use crate::protocol::metadata::{Phase, ShardMetadata};

/// The rule that turns pressure into a width.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Growth {
    /// To the width that the rejected share asks for.
    #[default]
    Proportional,
    /// By one shard.
    PlusOne,
    /// To twice the width.
    Doubling,
}

impl Growth {
    /// Every rule with its name in the configuration.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("proportional", Self::Proportional),
        ("plus-one", Self::PlusOne),
        ("doubling", Self::Doubling),
    ];
}

/// The scaling policy: a pure function of metadata, pressure and time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalingPolicy {
    /// The rule.
    pub growth: Growth,
    /// The least number of seconds between two changes of one key.
    pub cooldown_seconds: u64,
    /// The largest width of a decision. A stored width is never reduced to it.
    pub max_shards: ShardCount,
    /// If the table's partitions are not known, the number of missing shards is multiplied by this:
    /// shards fall unevenly onto partitions (two on one must fit), and a backlog must drain.
    pub headroom: f64,
    /// The largest factor of one change, if the table's partitions are not known.
    pub max_step: u32,
    /// The least number of throttled first attempts of a hot key. A cold key that shares a hot
    /// partition is throttled now and then.
    pub evidence: u64,
    /// Standard deviations between the observed value and the one that the policy uses.
    pub confidence: f64,
    /// Write units a second of one partition.
    pub partition_write_units: f64,
}

/// The longest that a throttled writer waits for more samples.
pub const LONGEST_GATHERING: Duration = Duration::from_millis(500);
/// How long an instance that has added to the pooled observations waits for the others.
pub const TOGETHER: Duration = Duration::from_millis(250);

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
            partition_write_units: 1_000.0,
        }
    }
}

/// A key that grew soon after a shrink keeps its width for this many times as long, because
/// shrinking costs more than it saves there.
const ONCE_BITTEN: u64 = 4;

/// The least number of seconds between two tries if growing does not help: DynamoDB splits
/// partitions for heat within minutes.
const SHORT_TABLE_SECONDS: u64 = 600;
/// The least factor of a growth if the partitions are not known. A smaller one hardly changes which
/// shards share a partition.
const LEAST_STEP: f64 = 1.5;
/// A backlog from before a growth should drain within this time...
const DRAINING_SECONDS: u64 = 5;
/// ...otherwise the key gets room for this share of its demand on top.
const BACKLOG: f64 = 0.2;

impl ScalingPolicy {
    /// Decides from the observations of one instance.
    ///
    /// ```
    /// use sharding::internal::{Pressure, ScalingDecision, ScalingPolicy};
    /// use sharding::internal::{ShardCount, ShardMetadata};
    /// let seen = Pressure { attempts: 80, throttled: 62, accepted: 18 };
    /// let key = ShardMetadata::unregistered();
    /// let decision = ScalingPolicy::default().decide(&key, seen, 1_562_858_912);
    /// assert_eq!(decision, ScalingDecision::ScaleOut(ShardCount::new(12).unwrap()));
    /// ```
    #[must_use]
    pub fn decide(
        &self,
        metadata: &ShardMetadata,
        seen: impl Into<Seen>,
        now_seconds: u64,
    ) -> ScalingDecision {
        let seen = seen.into();
        if let Some(width) = metadata.closing() {
            return ScalingDecision::Closing(width);
        }
        let settled_at = metadata.last_change().map_or(0, |at| at.saturating_add(DRAINING_SECONDS));
        let is_behind = seen.is_behind() && seen.partitions.is_some() && now_seconds >= settled_at;
        let backlog = if is_behind { BACKLOG } else { 0.0 };
        // With the maximum number of shards, even a lower rejected share means that there are too
        // few: it varies around the negligible share.
        let is_widest = metadata.number_of_shards >= self.max_shards;
        let least = match (seen.pressure.is_sure(), is_widest) {
            // Of ten thousand instances with few observations, some are unlucky.
            (false, _) if seen.is_sample => NEGLIGIBLE * 3.0,
            (_, true) => NEGLIGIBLE / 2.0,
            (_, false) => NEGLIGIBLE,
        };
        let certain = seen.pressure.rejected_bound(CERTAIN).max(backlog);
        let is_certain = certain >= least || seen.is_behind();
        let rejected = seen.pressure.rejected_bound(self.confidence).max(backlog);
        if !is_certain || seen.pressure.throttled < self.evidence.max(1) || rejected < least {
            return ScalingDecision::Calm;
        }
        let known = seen.partitions.filter(|_| self.growth == Growth::Proportional);
        if is_widest && known.is_none() {
            return ScalingDecision::AtMaximum;
        }
        if let Some(until) =
            metadata.last_change().map(|at| at.saturating_add(self.cooldown_seconds))
            && now_seconds < until
        {
            return ScalingDecision::CoolingDown { until };
        }
        let fruitless = self.record(metadata, seen).fruitless;
        if let Some(partitions) = known {
            let key = OnKnownPartitions {
                partitions,
                growths: Growths { metadata, fruitless, now_seconds },
                seen,
                backlog,
                max_shards: self.max_shards,
                confidence: self.confidence,
            };
            return key.decide();
        }
        // Whether the last growth should have been enough and was not, judged by the history, which
        // all instances share. A change that ended a shrink does not count. An instance that
        // observed an improvement is not asked.
        let is_recent =
            metadata.last_growth().is_some_and(|at| now_seconds.saturating_sub(at) < DOUBT_SECONDS);
        // A slow instance cannot tell, and does not doubt.
        let can_tell = seen.pressure.attempts >= SAMPLES;
        let is_doubtful = is_recent && can_tell && seen.is_behind() && !seen.growth_helped;
        let doubted =
            fruitless >= MOST_FRUITLESS || (self.growth == Growth::Proportional && is_doubtful);
        // Each further try that does not help makes the next one rarer.
        let stretch =
            SHORT_TABLE_SECONDS << fruitless.saturating_sub(MOST_FRUITLESS).min(LONGEST_STRETCH);
        let until = metadata.last_updated.saturating_add(stretch);
        if doubted && now_seconds < until {
            return ScalingDecision::ShortOfPartitions { until, write_units: None };
        }
        let width = u64::from(metadata.number_of_shards.get());
        // A float beyond the range of u64 saturates. The clamp below bounds it.
        let times = |factor: f64| width as f64 * factor;
        let lacking = rejected / (1.0 - rejected).max(f64::EPSILON);
        let wanted = match self.growth {
            Growth::PlusOne => width + 1,
            Growth::Doubling => width * 2,
            Growth::Proportional if doubted => times(DOUBTFUL_STEP) as u64,
            Growth::Proportional => {
                (times(1.0 + lacking * self.headroom).ceil() as u64).max(times(LEAST_STEP) as u64)
            }
        };
        // Readers still read the shards that a shrink has begun to give up.
        let wanted = wanted.max(u64::from(metadata.read_shards.get()));
        let highest =
            (width * u64::from(self.max_step)).min(u64::from(self.max_shards.get())).max(width + 1);
        let target = u32::try_from(wanted.clamp(width + 1, highest)).ok().and_then(ShardCount::new);
        target.map_or(ScalingDecision::AtMaximum, ScalingDecision::ScaleOut)
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
            ONCE_BITTEN
        } else {
            1
        });
        let busy_at = metadata.load.judged(metadata.number_of_shards).busy_at;
        let until = metadata.last_updated.max(busy_at).saturating_add(calm);
        if now_seconds < until { ShrinkDecision::Wait { until } } else { ShrinkDecision::To(half) }
    }

    /// The record of a growth that follows from observations, for later decisions.
    #[must_use]
    pub fn record(&self, metadata: &ShardMetadata, seen: impl Into<Seen>) -> GrowthRecord {
        let seen = seen.into();
        if self.growth != Growth::Proportional {
            return GrowthRecord::default();
        }
        let known = metadata.last_growth().is_some() && !seen.growth_helped;
        let before = if known { metadata.growth } else { GrowthRecord::default() };
        // A report has no share to compare. A report after a growth shows that the growth was not
        // enough.
        let sampled = ((1.0 - seen.pressure.accepted_share()) * 100.0).round() as u32;
        before.grown(if seen.is_sample { sampled } else { before.rejected_percent })
    }
}

#[cfg(test)]
pub(in crate::core) mod tests {
    use super::ScalingDecision::*;
    use super::*;
    use crate::core::key::tests::count;
    use crate::core::pressure::Pressure;
    use crate::protocol::metadata::Drain;
    use proptest::prelude::*;

    pub(in crate::core) fn settled(width: u32, at: u64) -> ShardMetadata {
        let registered = ShardMetadata::registered(1);
        let shard_history = registered.shard_history.clone().with(at, count(width));
        let (number_of_shards, read_shards) = (count(width), count(width));
        ShardMetadata {
            number_of_shards,
            read_shards,
            last_updated: at,
            shard_history,
            ..registered
        }
    }

    fn report(attempts: u64, throttled: u64) -> Seen {
        Pressure { attempts, throttled, accepted: attempts - throttled }.into()
    }

    pub(in crate::core) fn sample(attempts: u64, throttled: u64) -> Seen {
        Seen { is_sample: true, ..report(attempts, throttled) }
    }

    #[track_caller]
    pub(in crate::core) fn check<const N: usize>(
        rows: [(ShardMetadata, Seen, u64, ScalingDecision); N],
    ) {
        let policy = ScalingPolicy { cooldown_seconds: 10, ..Default::default() };
        for (metadata, seen, now, expected) in rows {
            assert_eq!(
                policy.decide(&metadata, seen, now),
                expected,
                "{metadata:?} {seen:?} at {now}"
            );
        }
    }

    #[test]
    fn a_burst_of_capacity_errors_scales_out_once() {
        let hot = report(200, 190);
        check([
            (settled(4, 100), hot, 105, CoolingDown { until: 110 }),
            (settled(4, 100), hot, 110, ShortOfPartitions { until: 700, write_units: None }),
            (settled(4, 100), hot, 9_000, ScaleOut(count(200))),
            (settled(4, 100), report(200, 2), 110, Calm),
            (settled(200, 100), hot, 110, AtMaximum),
            (settled(300, 100), hot, 110, AtMaximum),
        ]);
    }

    #[test]
    fn a_first_burst_grows_a_key_by_what_it_vouches_for() {
        let rows = [
            // Registration is not a change and starts no cooldown.
            (ShardMetadata::registered(1_000), report(9, 9), 2..=200),
            // Five throttles do not multiply a key by fifty.
            (ShardMetadata::unregistered(), report(5, 5), 2..=24),
            // Load after a shrink does not mean that a growth failed.
            (ShardMetadata { shrunk_at: Some(990), ..settled(4, 990) }, report(500, 400), 17..=200),
        ];
        for (metadata, seen, expected) in rows {
            let decision = ScalingPolicy::default().decide(&metadata, seen, 1_000);
            assert!(
                matches!(decision, ScaleOut(to) if expected.contains(&to.get())),
                "{metadata:?} {decision:?}"
            );
        }
    }

    #[test]
    fn a_table_short_of_partitions_stops_the_growth() {
        let hot = sample(500, 400);
        check([
            (settled(20, 990), hot, 1_000, ShortOfPartitions { until: 1_590, write_units: None }),
            (settled(20, 990), Seen { growth_helped: true, ..hot }, 1_000, ScaleOut(count(200))),
            (settled(20, 990), hot, 1_590, ScaleOut(count(25))),
            (settled(20, 990), hot, 9_000, ScaleOut(count(200))),
            // Ten thousand instances with ten writes a second each: none of them can tell whether
            // the growth has helped.
            (settled(20, 990), sample(19, 15), 1_000, ScaleOut(count(193))),
        ]);
    }

    /// A table that rejects this share of the demand at any width: the widths that the key goes
    /// through, with the seconds between them.
    fn grown_in_vain(rejected: f64, hours: u64) -> Vec<(u64, u32)> {
        let (policy, begun) = (ScalingPolicy::default(), 1_000_000);
        let seen = sample(1_000, (rejected * 1_000.0) as u64);
        let mut metadata = ShardMetadata::registered(begun);
        let mut changes = Vec::new();
        for now in (begun..begun + hours * 3_600).step_by(2) {
            if let ScaleOut(to) = policy.decide(&metadata, seen, now) {
                changes.push((now - metadata.last_updated, to.get()));
                metadata.growth = policy.record(&metadata, seen);
                (metadata.number_of_shards, metadata.read_shards, metadata.last_updated) =
                    (to, to, now);
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
            assert!(
                day.len() <= 9 && day.windows(2).skip(2).all(|pair| pair[1].0 > pair[0].0),
                "{rejected} {day:?}"
            );
        }
    }

    #[test]
    fn growth_that_helps_goes_on() {
        let grown = |fruitless| ShardMetadata {
            growth: GrowthRecord { rejected_percent: 20, fruitless },
            ..settled(20, 990)
        };
        check([
            (grown(1), sample(500, 60), 1_000, ScaleOut(count(30))),
            (grown(0), sample(500, 100), 1_000, ScaleOut(count(38))),
            (
                grown(1),
                sample(500, 100),
                1_000,
                ShortOfPartitions { until: 1_590, write_units: None },
            ),
            (
                grown(3),
                sample(500, 100),
                1_000,
                ShortOfPartitions { until: 990 + 2_400, write_units: None },
            ),
            // A report is no sample. It counts as a growth that has not helped, and if nothing is
            // known, it does not count.
            (
                grown(1),
                report(500, 60),
                1_000,
                ShortOfPartitions { until: 1_590, write_units: None },
            ),
            (grown(0), report(500, 100), 1_000, ScaleOut(count(38))),
            (settled(20, 990), report(500, 100), 1_000, ScaleOut(count(38))),
            (
                ShardMetadata { shrunk_at: Some(990), ..grown(1) },
                sample(500, 100),
                1_000,
                ScaleOut(count(38)),
            ),
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
        let shrunk =
            || ShardMetadata { read_shards: count(8), shrunk_at: Some(100), ..settled(2, 100) };
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
        fn a_scale_out_grows_and_stays_within_the_clamps(
            width in 1u32..250, attempts in 1u64..5_000, share in 0.0f64..=1.0,
        ) {
            let policy = ScalingPolicy::default();
            let seen = report(attempts, (attempts as f64 * share) as u64);
            if let ScaleOut(to) = policy.decide(&settled(width, 1), seen, 1_000) {
                prop_assert!(to.get() > width && to.get() <= width * policy.max_step);
                prop_assert!(to <= policy.max_shards);
            }
        }
    }
}
