//! Where this product's own policy would take a key.

use std::time::Duration;

use serde::Serialize;
use sharding::internal::{Pressure, PressureTracker, ScalingDecision, ScalingPolicy, Seen, ShardCount, ShardMetadata};

/// First attempts that a decision is made from. With this many, the widths are about those that `simulate` ends with.
const SEEN: f64 = 2_000.0;
/// More changes than this are not followed.
const CHANGES: usize = 30;

/// How the policy's last decision ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PolicyEnd {
    /// Too little is throttled to grow for.
    Calm,
    /// The key has the most shards that the policy gives.
    AtMaximum,
    /// More shards do not help: the table is short of partitions.
    ShortOfPartitions {
        /// Write units a second of warm throughput that the policy reports as enough; absent where it cannot tell.
        write_units: Option<u64>,
    },
}

/// The widths that the policy takes a key through, from one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyPath {
    /// Numbers of shards, in their order; the first is 1.
    pub widths: Vec<u32>,
    /// Why it goes no further.
    pub end: PolicyEnd,
}

impl PolicyPath {
    /// The number of shards that the key comes to.
    #[must_use]
    pub fn last(&self) -> u32 {
        self.widths.last().copied().unwrap_or(1)
    }
}

/// Lets the product's default policy, and what tracks the pressure for it, decide from what would be throttled at each
/// width, on a table of so many partitions: the shard-scaler reads the table's warm throughput, so the policy knows
/// them.
pub(super) fn follow(partitions: u32, throttled: impl Fn(u32) -> f64) -> PolicyPath {
    let policy = ScalingPolicy::default();
    let mut metadata = ShardMetadata::registered(0);
    let mut tracker = PressureTracker::default();
    let mut seconds = 1_000;
    tracker.observe_width(metadata.number_of_shards, Duration::from_secs(seconds));
    let mut widths = vec![1];
    for _ in 0..CHANGES {
        // The cooldown, and the second that fresh partitions have saved up.
        seconds += policy.cooldown_seconds + 1;
        let width = metadata.number_of_shards;
        let throttled = (throttled(width.get()) * SEEN).round() as u64;
        let attempts = SEEN as u64;
        let pressure = Pressure { attempts, throttled, accepted: attempts - throttled.min(attempts) };
        let now = Duration::from_secs(seconds);
        // A new width's first second says nothing, so what is told after it is recorded after it was asked for once.
        tracker.seen(now);
        // The throttle that an overload begins with is no part of the sample.
        tracker.record(width, Pressure::first_attempt(throttled > 0), now);
        tracker.record(width, pressure, now);
        let seen = Seen { partitions: Some(partitions), ..tracker.seen(now) };
        let end = match policy.decide(&metadata, seen, seconds) {
            ScalingDecision::ScaleOut(to) => {
                grow(&mut metadata, to, seconds);
                tracker.observe_width(to, now);
                widths.push(to.get());
                continue;
            }
            ScalingDecision::AtMaximum => PolicyEnd::AtMaximum,
            ScalingDecision::ShortOfPartitions { write_units, .. } => PolicyEnd::ShortOfPartitions { write_units },
            ScalingDecision::Calm
            | ScalingDecision::CoolingDown { .. }
            | ScalingDecision::Closing(_)
            | ScalingDecision::DirectoryFull => PolicyEnd::Calm,
        };
        return PolicyPath { widths, end };
    }
    PolicyPath { widths, end: PolicyEnd::AtMaximum }
}

fn grow(metadata: &mut ShardMetadata, to: ShardCount, seconds: u64) {
    metadata.number_of_shards = to;
    metadata.read_shards = to;
    metadata.last_updated = seconds;
    metadata.shard_history = std::mem::take(&mut metadata.shard_history).with(seconds, to);
    metadata.generation += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sharding::internal::collisions;

    /// What is throttled of a demand, in partitions, on so many of them.
    fn throttled(demand: f64, partitions: u32) -> impl Fn(u32) -> f64 {
        move |shards| collisions::throttled(demand, ShardCount::new(shards).unwrap(), Some(partitions))
    }

    #[test]
    fn a_key_within_one_partition_stays_at_one_shard() {
        assert_eq!(follow(4, |_| 0.0), PolicyPath { widths: vec![1], end: PolicyEnd::Calm });
        assert_eq!(follow(4, |_| 0.004).last(), 1);
    }

    #[test]
    fn a_cured_key_takes_one_change() {
        // Partitions, the demand in partitions, and about how many shards: fewer where there is room.
        for (partitions, demand, shards) in [(1_000, 5.0, 6..=10), (64, 5.0, 11..=17), (10, 5.0, 30..=60)] {
            let path = follow(partitions, throttled(demand, partitions));
            assert_eq!((path.widths.len(), path.end), (2, PolicyEnd::Calm), "{partitions}: {path:?}");
            assert!(shards.contains(&path.last()), "{partitions}: {path:?}");
        }
    }

    #[test]
    fn a_table_that_is_short_ends_it_with_the_units_that_would_do() {
        for (partitions, demand) in [(1, 5.0), (4, 5.0), (8, 10.0)] {
            let path = follow(partitions, throttled(demand, partitions));
            let PolicyEnd::ShortOfPartitions { write_units: Some(units) } = path.end else { panic!("{path:?}") };
            let demand_units = demand as u64 * 1_000;
            assert!((demand_units..=4 * demand_units).contains(&units) && units % 1_000 == 0, "{partitions}: {path:?}");
        }
    }

    #[test]
    fn it_stops_at_the_most_shards() {
        let path = follow(1_000, |width| (1.0 - f64::from(width) / 150.0).max(0.1));
        assert!(path.last() == 200 && path.end != PolicyEnd::Calm, "{path:?}");
    }

    proptest! {
        #[test]
        fn a_path_only_rises_to_the_most_shards(demand in 0.1f64..300.0, partitions in 1u32..1_000) {
            let path = follow(partitions, throttled(demand, partitions));
            let most = ScalingPolicy::default().max_shards.get();
            prop_assert!(path.widths.is_sorted() && path.last() <= most, "{path:?}");
        }
    }
}
