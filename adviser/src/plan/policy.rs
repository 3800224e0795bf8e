//! The numbers of shards that this product's policy takes a key through.

use std::time::Duration;

use serde::Serialize;
use sharding::internal::{
    Pressure, PressureTracker, ScalingDecision, ScalingPolicy, Seen, ShardCount, ShardMetadata,
};

/// The first attempts of each decision. With this number, the widths are about those at the end of
/// `simulate`.
const SEEN: f64 = 2_000.0;
/// The most changes that are followed.
const CHANGES: usize = 30;

/// The last decision of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PolicyEnd {
    /// The throttled share is too small for growth.
    Calm,
    /// The key has the most shards that the policy gives.
    AtMaximum,
    /// More shards do not help: the table is short of partitions.
    ShortOfPartitions {
        /// The warm throughput that the policy reports as enough, in write units per second; absent
        /// if it is unknown.
        write_units: Option<u64>,
    },
}

/// The widths of a key under the policy, from one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyPath {
    /// The numbers of shards in order; the first is 1.
    pub widths: Vec<u32>,
    /// The reason that the growth ends.
    pub end: PolicyEnd,
}

impl PolicyPath {
    /// Returns the last number of shards.
    #[must_use]
    pub fn last(&self) -> u32 {
        self.widths.last().copied().unwrap_or(1)
    }
}

/// Follows the decisions of the product's default policy and its pressure tracker, given the
/// throttled share at each width. The policy knows the number of partitions, because the
/// shard-scaler reads the table's warm throughput.
pub(super) fn follow(partitions: u32, throttled: impl Fn(u32) -> f64) -> PolicyPath {
    let policy = ScalingPolicy::default();
    let mut metadata = ShardMetadata::registered(0);
    let mut tracker = PressureTracker::default();
    let mut seconds = 1_000;
    tracker.observe_width(metadata.number_of_shards, Duration::from_secs(seconds));
    let mut widths = vec![1];
    for _ in 0..CHANGES {
        // The next decision comes after the cooldown, and after the second that fresh partitions
        // have saved up.
        seconds += policy.cooldown_seconds + 1;
        let width = metadata.number_of_shards;
        let throttled = (throttled(width.get()) * SEEN).round() as u64;
        let attempts = SEEN as u64;
        let pressure =
            Pressure { attempts, throttled, accepted: attempts - throttled.min(attempts) };
        let now = Duration::from_secs(seconds);
        // The tracker ignores the first second of a new width, so `seen` is called once before the
        // sample is recorded.
        tracker.seen(now);
        // The tracker excludes the throttle that starts an overload from the sample.
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
            ScalingDecision::ShortOfPartitions { write_units, .. } => {
                PolicyEnd::ShortOfPartitions { write_units }
            }
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

    /// The throttled share of a demand, which is given as a multiple of a partition's rate.
    fn throttled(demand: f64, partitions: u32) -> impl Fn(u32) -> f64 {
        move |shards| {
            collisions::throttled(demand, ShardCount::new(shards).unwrap(), Some(partitions))
        }
    }

    #[test]
    fn a_key_within_one_partition_stays_at_one_shard() {
        assert_eq!(follow(4, |_| 0.0), PolicyPath { widths: vec![1], end: PolicyEnd::Calm });
        assert_eq!(follow(4, |_| 0.004).last(), 1);
    }

    #[test]
    fn a_cured_key_takes_one_change() {
        // Partitions, the demand as a multiple of a partition's rate, and a range of shards.
        for (partitions, demand, shards) in
            [(1_000, 5.0, 6..=10), (64, 5.0, 11..=17), (10, 5.0, 30..=60)]
        {
            let path = follow(partitions, throttled(demand, partitions));
            assert_eq!(
                (path.widths.len(), path.end),
                (2, PolicyEnd::Calm),
                "{partitions}: {path:?}"
            );
            assert!(shards.contains(&path.last()), "{partitions}: {path:?}");
        }
    }

    #[test]
    fn a_table_that_is_short_ends_it_with_the_units_that_would_do() {
        for (partitions, demand) in [(1, 5.0), (4, 5.0), (8, 10.0)] {
            let path = follow(partitions, throttled(demand, partitions));
            let PolicyEnd::ShortOfPartitions { write_units: Some(units) } = path.end else {
                panic!("{path:?}")
            };
            let demand_units = demand as u64 * 1_000;
            assert!(
                (demand_units..=4 * demand_units).contains(&units) && units % 1_000 == 0,
                "{partitions}: {path:?}"
            );
        }
    }

    #[test]
    fn it_stops_at_the_most_shards() {
        let path = follow(1_000, |width| (1.0 - f64::from(width) / 150.0).max(0.1));
        assert!(path.last() == 200 && path.end != PolicyEnd::Calm, "{path:?}");
    }

    proptest! {
        #[test]
        fn a_path_only_rises_to_the_most_shards(
            demand in 0.1f64..300.0, partitions in 1u32..1_000,
        ) {
            let path = follow(partitions, throttled(demand, partitions));
            let most = ScalingPolicy::default().max_shards.get();
            prop_assert!(path.widths.is_sorted() && path.last() <= most, "{path:?}");
        }
    }
}
