//! Writer instances: what each sees, and what each does about it.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::protocol::metadata::Change;
use sharding::{
    CROWD_BACKOFF, DRIFT_MARGIN, MAX_LEASE, OBSERVER_PAUSE, Pressure, PressureTracker, ScalingDecision, ScalingPolicy,
    ShardCount, ShardMetadata, THROTTLED_VIEW,
};

/// Wall-clock seconds at which a run begins; only differences matter.
pub(super) const EPOCH: u64 = 1_000_000;

/// A writer looks at the metadata again when its view is this old; the lease of its views ends later.
const LOOKS_AFTER: Duration = Duration::from_millis(700);
/// Between two looks of an instance that waits for an open, and the longest random pause on top.
const POLL: Duration = Duration::from_millis(100);

/// What an instance is doing about the width.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Relief {
    Idle,
    Gathering { since: Duration, until: Duration },
    Closed { until: Duration, generation: u64 },
    Observing { until: Duration, generation: u64 },
}

#[derive(Debug)]
struct Instance {
    view: ShardCount,
    /// It has seen a closing, and sends nothing until it sees the open.
    is_paused: bool,
    looked_at: Duration,
    looks_at: Duration,
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
        // Their views are of different ages.
        let looks_at = |number: u32| LOOKS_AFTER.mul_f64(f64::from(number + 1) / f64::from(count.max(1)));
        let instance = |number: u32| {
            let mut tracker = PressureTracker::default();
            tracker.observe_width(ShardCount::ONE, Duration::ZERO);
            Instance {
                view: ShardCount::ONE,
                is_paused: false,
                looked_at: Duration::ZERO,
                looks_at: looks_at(number),
                tracker,
                relief: Relief::Idle,
                quiet_until: Duration::ZERO,
            }
        };
        Self {
            instances: (0..count).map(instance).collect(),
            policy,
            metadata: ShardMetadata::registered(EPOCH - 3_600),
            updates_tried: 0,
            updates_made: 0,
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// The part of the instances that wait for an open.
    pub(super) fn paused(&self) -> f64 {
        let paused = self.instances.iter().filter(|instance| instance.is_paused).count();
        paused as f64 / self.instances.len() as f64
    }

    /// The instances that write.
    fn active(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|instance| !instance.is_paused)
    }

    /// The widths that instances write under, with the share of the instances that write.
    pub(super) fn widths(&self) -> Vec<(ShardCount, f64)> {
        let mut widths: Vec<(ShardCount, f64)> = Vec::new();
        let one = 1.0 / self.active().count() as f64;
        for instance in self.active() {
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
        let count = self.active().count() as f64;
        for instance in self.instances.iter_mut().filter(|instance| !instance.is_paused) {
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
                instance.look(&self.metadata, now, &mut self.rng);
            }
            if self.policy.is_some() && throttled > 0 && instance.relief == Relief::Idle && now >= instance.quiet_until
            {
                let until = now + CROWD_BACKOFF.mul_f64(self.rng.random());
                instance.relief = Relief::Gathering { since: now, until };
            }
        }
    }

    /// Every instance whose view is old renews it, and every instance whose pause is over takes its next step: `relieve`, `open`, `take_over`.
    pub(super) fn act(&mut self, now: Duration) {
        let Some(policy) = self.policy else { return };
        // Updates within one step cross on their way: all but the first find another generation.
        let seen = self.metadata.clone();
        let seconds = EPOCH + now.as_secs();
        for instance in &mut self.instances {
            if now >= instance.looks_at {
                instance.look(&seen, now, &mut self.rng);
            }
            match instance.relief {
                Relief::Gathering { since, until } if now >= until => {
                    if !ScalingPolicy::is_sure(instance.tracker.seen(now), now.saturating_sub(since)) {
                        let until = now + CROWD_BACKOFF.mul_f64(self.rng.random());
                        instance.relief = Relief::Gathering { since, until };
                        continue;
                    }
                    instance.look(&seen, now, &mut self.rng);
                    let decision = policy.decide(&seen, instance.tracker.seen(now), seconds);
                    instance.relief = match decision {
                        ScalingDecision::ScaleOut(to) => {
                            self.updates_tried += 1;
                            let close = Change::Close { to, growth: policy.record(&seen, instance.tracker.seen(now)) };
                            match seen.apply(&close, seconds) {
                                Some(closed) if self.metadata.generation == seen.generation => {
                                    self.updates_made += 1;
                                    let (until, generation) = (now + MAX_LEASE + DRIFT_MARGIN, closed.generation);
                                    instance.look(&closed, now, &mut self.rng);
                                    self.metadata = closed;
                                    Relief::Closed { until, generation }
                                }
                                Some(_) | None => Relief::Idle,
                            }
                        }
                        ScalingDecision::Closing(_) => {
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
                        ScalingDecision::Calm | ScalingDecision::AtMaximum => Relief::Idle,
                    };
                }
                Relief::Closed { until, generation } | Relief::Observing { until, generation } if now >= until => {
                    if seen.generation == generation {
                        self.updates_tried += 1;
                        if self.metadata.generation == generation
                            && let Some(opened) = seen.apply(&Change::Open, seconds)
                        {
                            self.updates_made += 1;
                            self.metadata = opened;
                        }
                    }
                    instance.look(&self.metadata, now, &mut self.rng);
                    instance.relief = Relief::Idle;
                }
                Relief::Idle | Relief::Gathering { .. } | Relief::Closed { .. } | Relief::Observing { .. } => {}
            }
        }
    }
}

impl Instance {
    fn look(&mut self, metadata: &ShardMetadata, now: Duration, rng: &mut StdRng) {
        if metadata.number_of_shards != self.view {
            self.quiet_until = Duration::ZERO;
        }
        self.view = metadata.number_of_shards;
        self.is_paused = metadata.closing().is_some();
        self.looked_at = now;
        self.looks_at = now + if self.is_paused { POLL + POLL.mul_f64(rng.random()) } else { LOOKS_AFTER };
        self.tracker.observe_width(self.view, now);
    }
}

/// A whole number with this mean.
pub(super) fn whole(mean: f64, rng: &mut StdRng) -> u64 {
    let floor = mean.floor();
    floor as u64 + u64::from(rng.random::<f64>() < mean - floor)
}
