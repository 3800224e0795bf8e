//! The decision about a key of a table whose number of partitions is known.
//!
//! Shards help only if there are partitions for them, and a new on-demand table has four. So the
//! demand follows from the rejected share at this width, and from the demand the fewest shards that
//! accept it, because shards on the same partition share its capacity. If no number of shards
//! accepts the demand, the key gets as many as still help, and the decision says what the table
//! lacks.

use super::collisions;
use super::decision::{LOOK_AGAIN, ScalingDecision};
use super::doubt::{self, Doubt, Growths};
use super::key::ShardCount;
use super::pressure::{CERTAIN, NEGLIGIBLE, Seen};
use super::sizing::{self, Sizing};
use super::throughput::PARTITION_WRITE_UNITS;

/// With this number of successes, the policy uses the estimate itself...
const FAIR_SUCCESSES: u64 = 32;
/// ...plus this number of standard deviations.
const MARGIN: f64 = 0.5;
/// The least factor of a growth if the partitions are known.
const LEAST_STEP: f64 = 1.2;
/// If a table has more than this many times the partitions that the demand fills, more partitions
/// hardly help: then the key is short of shards.
const MOST_FOR_A_DEMAND: f64 = 4.0;
/// If the table is short, the next decision is due after this time, because the number of
/// partitions may be higher by then.
const SHORT_SECONDS: u64 = 2;
/// A table should have this many times the partitions on which the maximum number of shards would
/// just suffice. Then fewer shards suffice, and a page is read from fewer.
const SPARE_PARTITIONS: f64 = 3.0;

/// A key that seems to have too few shards, or whose table has too few partitions.
pub(super) struct OnKnownPartitions<'a> {
    /// The table's partitions.
    pub(super) partitions: u32,
    pub(super) growths: Growths<'a>,
    pub(super) seen: Seen,
    /// At least this share of the demand counts as rejected.
    pub(super) backlog: f64,
    /// The policy's maximum.
    pub(super) max_shards: ShardCount,
    /// Standard deviations between the observed value and the one that the policy uses.
    pub(super) confidence: f64,
}

impl OnKnownPartitions<'_> {
    /// The decision about a key whose writes are throttled.
    pub(super) fn decide(&self) -> ScalingDecision {
        let Self { partitions, growths, seen, backlog, .. } = *self;
        let Growths { metadata, now_seconds, .. } = growths;
        let (width, most) = (metadata.number_of_shards, self.max_shards);
        let most_full = doubt::most_full_shards(seen, width).unwrap_or(most).min(most);
        let others_fill_the_table = ScalingDecision::ShortOfPartitions {
            until: now_seconds.saturating_add(LOOK_AGAIN.as_secs()),
            write_units: Some(u64::from(partitions) * PARTITION_WRITE_UNITS * 3 / 2),
        };
        if width > ShardCount::ONE && width >= most_full && most_full < most {
            let rejected = seen.pressure.rejected_bound(CERTAIN);
            return if doubt::others_fill_the_table(seen, width, rejected) {
                others_fill_the_table
            } else {
                ScalingDecision::Calm
            };
        }
        // An estimate from enough successes is too high as often as too low, and a width that is a
        // little too low costs another change.
        let is_fair = seen.pressure.accepted >= FAIR_SUCCESSES;
        let rejected = seen
            .pressure
            .rejected_bound(if is_fair { -MARGIN } else { self.confidence })
            .max(backlog);
        let certain = seen.pressure.rejected_bound(CERTAIN).max(backlog);
        let demand = collisions::demand(rejected, width, Some(partitions));
        let step = f64::from(width.get()) * LEAST_STEP;
        let wanted = match sizing::size(demand, partitions, most) {
            Sizing::Relieves(shards) => f64::from(shards.get()),
            Sizing::Helps(shards) if f64::from(shards.get()) > step => f64::from(shards.get()),
            Sizing::Helps(_) => {
                return self.short_of_partitions(certain);
            }
        };
        if width >= most {
            return self.short_of_partitions(certain);
        }
        let wanted = wanted.min(most_full.get().into());
        let bound = seen.pressure.rejected_bound(self.confidence);
        let wanted = match Doubt::of(growths, seen, bound, rejected) {
            Doubt::None => wanted,
            Doubt::BadLuck => wanted.min(sizing::unlucky(demand, rejected, width)),
            Doubt::InVain { step } => wanted.min(f64::from(width.get()) * step),
            Doubt::Crowded => return others_fill_the_table,
        };
        // Readers still read the shards that a shrink has begun to give up.
        let wanted = wanted.max(step).max(metadata.read_shards.get().into()).ceil() as u32;
        ScalingDecision::ScaleOut(ShardCount::new(wanted).unwrap_or(most).min(most))
    }

    /// More shards hardly help: either the table lacks partitions, or the key has the maximum and
    /// would need more.
    fn short_of_partitions(&self, certain: f64) -> ScalingDecision {
        let Self { partitions, growths: Growths { metadata, now_seconds, .. }, .. } = *self;
        // A raise cannot be undone, so it uses what is certain.
        let demand = collisions::demand(certain, metadata.number_of_shards, Some(partitions));
        let suffices = |partitions| {
            collisions::throttled(demand, self.max_shards, Some(partitions)) < NEGLIGIBLE
        };
        let needed = f64::from(collisions::fewest_partitions(suffices)) * SPARE_PARTITIONS;
        let needed = needed.min(demand * MOST_FOR_A_DEMAND).ceil();
        if needed <= partitions.into() {
            return ScalingDecision::AtMaximum;
        }
        ScalingDecision::ShortOfPartitions {
            until: now_seconds.saturating_add(SHORT_SECONDS),
            write_units: Some(needed as u64 * PARTITION_WRITE_UNITS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ScalingDecision::*;
    use super::*;
    use crate::core::growth::GrowthRecord;
    use crate::core::key::tests::count;
    use crate::core::policy::ScalingPolicy;
    use crate::core::policy::tests::{check, sample, settled};
    use crate::protocol::metadata::ShardMetadata;
    use proptest::prelude::*;

    /// The observations at this width of a demand, in partitions, on a known number of partitions.
    fn on(partitions: u32, demand: f64, width: u32) -> Seen {
        let throttled = collisions::throttled(demand, count(width), Some(partitions));
        Seen {
            partitions: Some(partitions),
            ..sample(100_000, (100_000.0 * throttled).round() as u64)
        }
    }

    #[test]
    fn on_known_partitions_a_key_gets_the_shards_that_its_demand_needs() {
        let rows = [
            // Partitions, demand in partitions, width, and the expected range of the new width.
            (1_000, 5.0, 1, 6..=8),
            (1_000, 20.0, 1, 40..=66),
            (64, 5.0, 1, 10..=18),
            (64, 20.0, 1, 100..=200),
            // Half of the demand at two shards, derived from what is throttled there.
            (1_000, 20.0, 8, 40..=66),
            // Nothing accepts all of it. This many shards accept what can be accepted.
            (4, 5.0, 1, 15..=32),
            (20, 20.0, 1, 60..=200),
        ];
        for (partitions, demand, width, expected) in rows {
            let decision = ScalingPolicy::default().decide(
                &settled(width, 1),
                on(partitions, demand, width),
                1_000,
            );
            let is_expected = matches!(decision, ScaleOut(to) if expected.contains(&to.get()));
            assert!(is_expected, "{demand} on {partitions}, at {width}: {decision:?}");
        }
    }

    #[test]
    fn on_known_partitions_a_key_that_is_nearly_relieved_gets_a_few_more() {
        let seen = Seen { partitions: Some(64), ..sample(10_000, 200) };
        check([
            (settled(40, 100), seen, 1_000, ScaleOut(count(53))),
            (settled(190, 100), Seen { partitions: Some(1_000), ..seen }, 1_000, AtMaximum),
            (settled(200, 100), Seen { partitions: Some(1_000), ..seen }, 1_000, AtMaximum),
            (settled(40, 995), seen, 1_000, CoolingDown { until: 1_005 }),
        ]);
    }

    #[test]
    fn a_table_short_of_partitions_is_told_what_it_lacks_and_the_growth_stops() {
        for (partitions, demand, width, least, most) in [
            (4, 5.0, 200, 10_000, 20_000),
            (4, 20.0, 200, 40_000, 80_000),
            (20, 50.0, 200, 100_000, 250_000),
            (4, 150.0, 16, 300_000, 700_000),
        ] {
            let decision = ScalingPolicy::default().decide(
                &settled(width, 1),
                on(partitions, demand, width),
                1_000,
            );
            let ShortOfPartitions { until: 1_002, write_units: Some(units) } = decision else {
                panic!("{demand} on {partitions}, at {width}: {decision:?}")
            };
            assert!((least..=most).contains(&units), "{demand} on {partitions}: {units}");
            // A table with this number accepts it.
            let grown = ScalingPolicy::default().decide(
                &settled(width, 1),
                on(u32::try_from(units / 1_000).unwrap(), demand, width),
                1_000,
            );
            assert!(matches!(grown, ScaleOut(_) | Calm), "{grown:?}");
        }
    }

    #[test]
    fn a_key_that_others_crowd_out_does_not_take_every_shard() {
        let grown = |fruitless, to| ShardMetadata {
            growth: GrowthRecord { rejected_percent: 80, fruitless },
            shard_history: ShardMetadata::registered(1)
                .shard_history
                .with(900, count(8))
                .with(990, count(to)),
            ..settled(to, 990)
        };
        let on_eight = |throttled| Seen { partitions: Some(8), ..sample(1_000, throttled) };
        check([
            // It was expected to accept everything, and accepts a quarter instead of a fifth.
            (grown(0, 16), on_eight(750), 1_001, ScaleOut(count(24))),
            (
                grown(1, 16),
                on_eight(750),
                1_001,
                ShortOfPartitions { until: 1_011, write_units: Some(12_000) },
            ),
        ]);
        // A growth with the expected effect, and one that is long ago, do not count.
        for (metadata, now) in [(grown(1, 9), 1_001), (grown(1, 16), 9_000)] {
            let decision = ScalingPolicy::default().decide(&metadata, on_eight(750), now);
            assert!(matches!(decision, ScaleOut(to) if to > count(20)), "{decision:?}");
        }
    }

    proptest! {
        #[test]
        fn on_known_partitions_growth_ends(partitions in 1u32..2_000, demand in 1.1f64..500.0) {
            let policy = ScalingPolicy::default();
            let (mut width, mut growths) = (1, 0);
            let decide = |width| {
                policy.decide(&settled(width, 1), on(partitions, demand, width), 1_000)
            };
            while let ScaleOut(to) = decide(width) {
                prop_assert!(to.get() > width && to <= policy.max_shards);
                (width, growths) = (to.get(), growths + 1);
            }
            prop_assert!(growths <= 4, "{growths}");
        }
    }
}
