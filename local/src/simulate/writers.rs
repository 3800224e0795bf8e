//! Writer instances: what each sees, and what each does about it.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::{
    CROWD_BACKOFF, DRIFT_MARGIN, MAX_LEASE, OBSERVER_PAUSE, Pressure, PressureTracker, ScalingDecision, ScalingPolicy,
    ShardCount, ShardMetadata, THROTTLED_VIEW,
};

/// Wall-clock seconds at which a run begins; only differences matter.
pub(super) const EPOCH: u64 = 1_000_000;

/// What an instance is doing about the width.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Relief {
    Idle,
    Gathering { since: Duration, until: Duration },
    Expanded { until: Duration, generation: u64 },
    Observing { until: Duration, generation: u64 },
}

#[derive(Debug)]
struct Instance {
    view: ShardCount,
    looked_at: Duration,
    tracker: PressureTracker,
    relief: Relief,
    quiet_until: Duration,
}

/// All writers of the key, and its metadata item.
#[derive(Debug)]
pub(super) struct Writers {
    instances: Vec<Instance>,
    policy: Option<ScalingPolicy>,
    pub(super) metadata: ShardMetadata,
    pub(super) updates_tried: u64,
    pub(super) updates_made: u64,
    rng: StdRng,
}

impl Writers {
    pub(super) fn new(count: u32, policy: Option<ScalingPolicy>, seed: u64) -> Self {
        let instance = || {
            let mut tracker = PressureTracker::default();
            tracker.observe_width(ShardCount::ONE, Duration::ZERO);
            Instance {
                view: ShardCount::ONE,
                looked_at: Duration::ZERO,
                tracker,
                relief: Relief::Idle,
                quiet_until: Duration::ZERO,
            }
        };
        Self {
            instances: (0..count).map(|_| instance()).collect(),
            policy,
            metadata: ShardMetadata::registered(EPOCH - 3_600),
            updates_tried: 0,
            updates_made: 0,
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// The widths that instances write under, with the share of the instances.
    pub(super) fn widths(&self) -> Vec<(ShardCount, f64)> {
        let mut widths: Vec<(ShardCount, f64)> = Vec::new();
        let one = 1.0 / self.instances.len() as f64;
        for instance in &self.instances {
            match widths.iter_mut().find(|(width, _)| *width == instance.view) {
                Some((_, share)) => *share += one,
                None => widths.push((instance.view, one)),
            }
        }
        widths
    }

    /// Every instance learns what became of its part of a step's attempts; `refused` is the part that was throttled, by width.
    pub(super) fn learn(
        &mut self,
        first_attempts: f64,
        repetitions: f64,
        refused: &[(ShardCount, f64)],
        now: Duration,
    ) {
        let count = self.instances.len() as f64;
        for instance in &mut self.instances {
            let Some((width, refused)) = refused.iter().find(|(width, _)| *width == instance.view).copied() else {
                continue;
            };
            let attempts = whole(first_attempts / count, &mut self.rng);
            let throttled = (0..attempts).filter(|_| self.rng.random::<f64>() < refused).count() as u64;
            let late = whole(repetitions / count * (1.0 - refused), &mut self.rng);
            instance.tracker.record(
                width,
                Pressure { attempts, throttled, accepted: attempts - throttled + late },
                now,
            );
            // Repetitions, too, make an instance look at the metadata again.
            if throttled == 0 && self.rng.random::<f64>() >= refused * (repetitions / count) {
                continue;
            }
            if now.saturating_sub(instance.looked_at) >= THROTTLED_VIEW {
                instance.look(&self.metadata, now);
            }
            if self.policy.is_some() && throttled > 0 && instance.relief == Relief::Idle && now >= instance.quiet_until
            {
                let until = now + CROWD_BACKOFF.mul_f64(self.rng.random());
                instance.relief = Relief::Gathering { since: now, until };
            }
        }
    }

    /// Every instance whose pause is over takes its next step: `relieve`, `activate`, `take_over`.
    pub(super) fn act(&mut self, now: Duration) {
        let Some(policy) = self.policy else { return };
        // Updates within one step cross on their way: all but the first find another generation.
        let seen = self.metadata.clone();
        let seconds = EPOCH + now.as_secs();
        for instance in &mut self.instances {
            match instance.relief {
                Relief::Gathering { since, until } if now >= until => {
                    if !ScalingPolicy::is_sure(instance.tracker.seen(now), now.saturating_sub(since)) {
                        let until = now + CROWD_BACKOFF.mul_f64(self.rng.random());
                        instance.relief = Relief::Gathering { since, until };
                        continue;
                    }
                    instance.look(&seen, now);
                    let decision = policy.decide(&seen, instance.tracker.seen(now), seconds);
                    instance.relief = match decision {
                        ScalingDecision::ScaleOut(to) => {
                            self.updates_tried += 1;
                            if self.metadata.generation == seen.generation {
                                self.updates_made += 1;
                                self.metadata.read_shards = to;
                                self.metadata.growth = policy.record(&seen, instance.tracker.seen(now));
                                self.metadata.generation += 1;
                                Relief::Expanded {
                                    until: now + MAX_LEASE + DRIFT_MARGIN,
                                    generation: self.metadata.generation,
                                }
                            } else {
                                Relief::Idle
                            }
                        }
                        ScalingDecision::Expanding(_) => {
                            let pause = OBSERVER_PAUSE + CROWD_BACKOFF.mul_f64(self.rng.random());
                            Relief::Observing {
                                until: now + MAX_LEASE + DRIFT_MARGIN + pause,
                                generation: seen.generation,
                            }
                        }
                        ScalingDecision::CoolingDown { until } | ScalingDecision::ShortOfPartitions { until } => {
                            instance.quiet_until = Duration::from_secs(until.saturating_sub(EPOCH));
                            Relief::Idle
                        }
                        ScalingDecision::Calm
                        | ScalingDecision::Draining
                        | ScalingDecision::StopDraining
                        | ScalingDecision::AtMaximum => Relief::Idle,
                    };
                }
                Relief::Expanded { until, generation } | Relief::Observing { until, generation } if now >= until => {
                    if seen.generation == generation {
                        self.updates_tried += 1;
                        if self.metadata.generation == generation {
                            self.updates_made += 1;
                            activate(&mut self.metadata, seconds);
                        }
                    }
                    instance.look(&self.metadata, now);
                    instance.relief = Relief::Idle;
                }
                Relief::Idle | Relief::Gathering { .. } | Relief::Expanded { .. } | Relief::Observing { .. } => {}
            }
        }
    }
}

impl Instance {
    fn look(&mut self, metadata: &ShardMetadata, now: Duration) {
        if metadata.number_of_shards != self.view {
            self.quiet_until = Duration::ZERO;
        }
        self.view = metadata.number_of_shards;
        self.looked_at = now;
        self.tracker.observe_width(self.view, now);
    }
}

fn activate(metadata: &mut ShardMetadata, seconds: u64) {
    let to = metadata.read_shards;
    metadata.number_of_shards = to;
    metadata.last_updated = seconds;
    metadata.shard_history = std::mem::take(&mut metadata.shard_history).with(seconds, to);
    metadata.generation += 1;
}

/// A whole number with this mean.
pub(super) fn whole(mean: f64, rng: &mut StdRng) -> u64 {
    let floor = mean.floor();
    floor as u64 + u64::from(rng.random::<f64>() < mean - floor)
}
