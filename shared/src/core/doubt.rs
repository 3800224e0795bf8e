//! Reasons why a rejected share overstates a key's demand.
//!
//! A partition does not report whose writes fill it. A key that shares its partitions with other
//! keys is throttled because of their writes. A key whose shards are on one partition by bad luck
//! is throttled, too. Both look like a larger demand of the key, and more shards help against
//! neither. So if the table's partitions are known, a growth is no larger than the evidence
//! supports.
//!
//! The evidence is the number of attempts for each shard. A partition takes a thousand write units
//! a second, and an item has at most four hundred. So shards that the key's own writes fill get
//! several writes during the observed seconds. If they do not, other keys fill them.

use super::key::ShardCount;
use super::pressure::Seen;
use crate::protocol::metadata::ShardMetadata;

/// After this number of consecutive growths without effect, the table counts as short of
/// partitions.
pub(super) const MOST_FRUITLESS: u32 = 2;
/// The time between two tries is doubled at most this many times.
pub(super) const LONGEST_STRETCH: u32 = 7;
/// How long a growth is doubted.
pub(super) const DOUBT_SECONDS: u64 = 3_600;
/// After a doubted growth, the next one multiplies the width by at most this.
pub(super) const DOUBTFUL_STEP: f64 = 1.25;
/// Bad luck in the placement rejects at most this share of a demand.
const MOST_BY_BAD_LUCK: f64 = 0.25;
/// After a single growth without effect, its result is doubted for this long. The first try after
/// several of them waits as long.
const IN_VAIN_SECONDS: u64 = 30;
/// After a single growth without effect, the next one multiplies the width by at most this.
const STEP_AFTER_ONE: f64 = 1.5;
/// A growth without effect brings less than this share of its expected gain.
const LEAST_OF_PROMISED: f64 = 0.4;
/// With this number of shards for each partition, a key is on nineteen of twenty partitions. If
/// other keys fill them, more shards hardly help.
const MOST_BESIDE_OTHERS: u32 = 3;
/// If more than this share of such a key's demand is rejected, most partitions are full.
const MOST_PARTITIONS: f64 = 0.5;
/// If less than this share of the rate at the last growth is accepted, the demand has risen since.
const LEFT_OF_A_RISEN: f64 = 0.5;
/// A partition takes 2.5 of the largest items a second, and a throttled writer observes for two to
/// four seconds: three on average.
const ATTEMPTS_OF_FULL_SHARD: u64 = 8;
/// If the table has this many times the partitions that the key has shards, other keys hardly fill
/// all partitions of the key.
const PARTITIONS_FOR_EACH_SHARD: u32 = 2;
/// With this number of attempts there, the rejected share is the key's own: a partition that other
/// keys fill gets fewer of this key. With fewer attempts, a first growth is to at most 15 shards.
const OWN_ATTEMPTS: u64 = 128;
/// With this number of attempts, a rejected share is evidence that other keys fill the table.
const ENOUGH_ATTEMPTS: u64 = 100;

/// The growths of a key until now.
#[derive(Clone, Copy)]
pub(super) struct Growths<'a> {
    pub(super) metadata: &'a ShardMetadata,
    /// The number of consecutive growths without effect, including the last one.
    pub(super) fruitless: u32,
    pub(super) now_seconds: u64,
}

impl Growths<'_> {
    /// Whether the last growth had hardly any effect, if this share of the demand is rejected now.
    /// If the partitions serve this key only, the accepted rate grows with the number of shards.
    fn were_in_vain(self, rejected: f64) -> bool {
        let Self { metadata, fruitless, now_seconds } = self;
        let before =
            metadata.shard_history.entries().rev().nth(1).map(|entry| f64::from(entry.count.get()));
        let (Some(before), Some(at)) = (before, metadata.last_growth()) else { return false };
        let accepted = 1.0 - f64::from(metadata.growth.rejected_percent) / 100.0;
        let has_risen = 1.0 - rejected < accepted * LEFT_OF_A_RISEN;
        let is_lasting = fruitless >= MOST_FRUITLESS && !has_risen;
        let lasting = if is_lasting { DOUBT_SECONDS } else { IN_VAIN_SECONDS };
        let is_recent = now_seconds.saturating_sub(at) < lasting;
        let promised = (accepted * f64::from(metadata.number_of_shards.get()) / before).min(1.0);
        let is_hardly_more = 1.0 - rejected < accepted + LEAST_OF_PROMISED * (promised - accepted);
        metadata.growth.rejected_percent > 0 && is_recent && is_hardly_more
    }
}

/// How to interpret the rejected share of a demand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Doubt {
    /// It is the key's own demand.
    None,
    /// Shards that collide by bad luck look like a larger demand.
    BadLuck,
    /// The last growth had hardly any effect. The next one may multiply the width by at most this.
    InVain {
        /// At least 1.
        step: f64,
    },
    /// Several consecutive growths had hardly any effect: other keys fill the partitions, and the
    /// next try must wait.
    Crowded,
}

impl Doubt {
    /// The doubt about the observations of a key on a known number of partitions, if this share of
    /// its demand is rejected, and at least `bound` of it.
    pub(super) fn of(growths: Growths<'_>, seen: Seen, bound: f64, rejected: f64) -> Self {
        let Growths { metadata, fruitless, now_seconds } = growths;
        let width = metadata.number_of_shards;
        if growths.were_in_vain(bound) {
            if fruitless < MOST_FRUITLESS {
                return Self::InVain { step: STEP_AFTER_ONE };
            }
            let stretch = IN_VAIN_SECONDS << (fruitless - MOST_FRUITLESS).min(LONGEST_STRETCH);
            let may_try =
                metadata.last_growth().is_some_and(|at| now_seconds >= at.saturating_add(stretch));
            return if may_try && !is_spread(width, seen.partitions) {
                Self::InVain { step: DOUBTFUL_STEP }
            } else {
                Self::Crowded
            };
        }
        let is_lucky = width == ShardCount::ONE || rejected >= MOST_BY_BAD_LUCK || seen.is_behind();
        if is_lucky { Self::None } else { Self::BadLuck }
    }
}

/// The largest number of shards that the key's own writes can fill, judged by the number of
/// observed writes. `None` if enough were observed to use the rejected share.
pub(super) fn most_full_shards(seen: Seen, width: ShardCount) -> Option<ShardCount> {
    let full = u32::try_from(seen.pressure.attempts / ATTEMPTS_OF_FULL_SHARD).unwrap_or(u32::MAX);
    let has_room = seen.partitions.is_some_and(|partitions| {
        partitions >= width.get().saturating_mul(PARTITIONS_FOR_EACH_SHARD)
    });
    let is_own = has_room && seen.pressure.attempts >= OWN_ATTEMPTS;
    let is_few = seen.is_sample && !is_own && !seen.pressure.is_sure();
    is_few.then(|| ShardCount::new(full).unwrap_or(ShardCount::ONE))
}

/// Whether other keys fill most of the table, if a key with this width has too few writes to fill
/// its own shards, and this share of its demand is certainly rejected nevertheless. A single full
/// partition rejects less, and a handful of writes shows nothing.
pub(super) fn others_fill_the_table(seen: Seen, width: ShardCount, rejected: f64) -> bool {
    let is_spread = is_spread(width, seen.partitions);
    seen.pressure.attempts >= ENOUGH_ATTEMPTS && is_spread && rejected > MOST_PARTITIONS
}

/// Whether a key with this width has shards on nearly all partitions.
fn is_spread(width: ShardCount, partitions: Option<u32>) -> bool {
    width.get() / MOST_BESIDE_OTHERS >= partitions.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::decision::ScalingDecision;
    use crate::core::key::tests::count;
    use crate::core::policy::ScalingPolicy;
    use crate::core::policy::tests::settled;
    use crate::core::pressure::Pressure;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    /// The observations of a key with this demand, in partitions, if other keys send this load to
    /// each partition.
    fn crowded(demand: f64, others: f64, partitions: u32, width: u32) -> Seen {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut placed = vec![0_u32; partitions as usize];
        (0..width).for_each(|_| placed[rng.random_range(0..partitions) as usize] += 1);
        let of_partition = |shards: u32| {
            let own = f64::from(shards) * demand / f64::from(width);
            own * (1.0 - 1.0 / (others + own).max(1.0))
        };
        let rejected = placed.into_iter().map(of_partition).sum::<f64>() / demand;
        // Each rejected write is repeated, and takes the place of first attempts.
        let throttled = (rejected * 4.0).min(1.0);
        let of = |part: f64| (part * 10_000.0).round() as u64;
        let pressure =
            Pressure { attempts: 10_000, throttled: of(throttled), accepted: of(1.0 - rejected) };
        Seen { pressure, is_sample: true, growth_helped: false, partitions: Some(partitions) }
    }

    #[test]
    fn a_key_whose_partitions_others_fill_does_not_grow_again_and_again() {
        let policy = ScalingPolicy::default();
        // A key that needs less than half a partition, and one that needs two, beside other keys
        // that fill their partitions to different degrees.
        for (demand, others, widest) in
            [(0.3, 0.9, 5), (0.3, 1.0, 24), (0.3, 1.1, 24), (0.3, 1.5, 24), (2.0, 1.5, 54)]
        {
            let (mut metadata, mut now) = (ShardMetadata::registered(1_000), 1_000);
            let mut changes = Vec::new();
            while now < 2_800 {
                let seen = crowded(demand, others, 8, metadata.number_of_shards.get());
                let decision = policy.decide(&metadata, seen, now);
                if let ScalingDecision::ScaleOut(to) = decision {
                    changes.push((now - 1_000, to.get()));
                    metadata.growth = policy.record(&metadata, seen);
                    (metadata.number_of_shards, metadata.read_shards, metadata.last_updated) =
                        (to, to, now);
                    metadata.shard_history =
                        std::mem::take(&mut metadata.shard_history).with(now, to);
                }
                now += if matches!(decision, ScalingDecision::ScaleOut(_)) { 2 } else { 10 };
            }
            let later = changes.iter().filter(|(at, _)| *at >= 60).count();
            assert!(later <= 5, "tries become rare: {demand} beside {others}: {changes:?}");
            assert!(
                metadata.number_of_shards <= count(widest),
                "{demand} beside {others}: {changes:?}"
            );
        }
    }

    #[test]
    fn few_attempts_vouch_for_few_shards() {
        let seen = |attempts, throttled, accepted| Seen {
            pressure: Pressure { attempts, throttled, accepted },
            is_sample: true,
            growth_helped: false,
            partitions: Some(8),
        };
        let roomy = |seen| Seen { partitions: Some(1_000), ..seen };
        let short = ScalingDecision::ShortOfPartitions { until: 1_010, write_units: Some(12_000) };
        // The observations for a key of the audit log with a thirtieth of a full table's writes.
        let rows = [
            (1, seen(3, 3, 0), ScalingDecision::ScaleOut(count(2))),
            (1, seen(18, 15, 4), ScalingDecision::ScaleOut(count(2))),
            (1, seen(120, 115, 5), ScalingDecision::ScaleOut(count(15))),
            (1, roomy(seen(127, 122, 5)), ScalingDecision::ScaleOut(count(15))),
            (1, roomy(seen(128, 123, 5)), ScalingDecision::ScaleOut(count(35))),
            (13, seen(28, 13, 21), ScalingDecision::Calm),
            (5, seen(9, 3, 8), ScalingDecision::Calm),
            (5, seen(64, 15, 52), ScalingDecision::ScaleOut(count(8))),
            // A key on nearly all partitions whose few writes are mostly rejected: other keys fill
            // the table.
            (55, seen(103, 94, 9), short),
            (24, seen(103, 94, 35), short),
            // A growing share of its writes is accepted, there is too little evidence, or the key is
            // not on nearly all partitions.
            (24, seen(103, 94, 45), ScalingDecision::Calm),
            (24, seen(5, 5, 0), ScalingDecision::Calm),
            (24, seen(99, 94, 5), ScalingDecision::Calm),
            (23, seen(103, 94, 9), ScalingDecision::Calm),
        ];
        for (width, seen, expected) in rows {
            let decision = ScalingPolicy::default().decide(&settled(width, 900), seen, 1_000);
            assert_eq!(decision, expected, "{width}: {seen:?}");
        }
        // The same shares of more attempts are the key's own demand.
        let many = Pressure { attempts: 2_800, throttled: 1_300, accepted: 2_100 };
        let many = Seen { pressure: many, ..seen(0, 0, 0) };
        let decision = ScalingPolicy::default().decide(&settled(13, 900), many, 1_000);
        assert!(
            matches!(decision, ScalingDecision::ScaleOut(to) if to > count(20)),
            "{decision:?}"
        );
    }
}
