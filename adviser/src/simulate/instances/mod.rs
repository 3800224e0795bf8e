//! The instances: their views of the key, and their actions to relieve it.

mod attempt;
mod decision;
mod evidence;
mod instance;
mod key;
mod relief;
mod steps;
mod view;

use std::time::Duration;

use rand::RngExt;
use sharding::internal::{Pressure, ScalingPolicy, ShardCount};

use self::instance::Instance;
use self::key::Key;
use super::chance::whole;
use super::metadata::MetadataLoad;
use super::scaler::Shortage;
use super::scenario::{Contender, Scenario};

/// All instances that use the key.
#[derive(Debug)]
pub(super) struct Instances {
    all: Vec<Instance>,
    policy: Option<ScalingPolicy>,
    key: Key,
}

/// The shares of the running instances that may not send writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Held {
    /// The share that may not send, because it has no view or waits for an open.
    pub(super) waiting: f64,
    /// The share of the instances held in the previous step that may send now.
    pub(super) released: f64,
    /// The share that needs a view and has none within its lease.
    pub(super) without_view: f64,
}

impl Instances {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let policy = match scenario.contender {
            Contender::Nothing => None,
            Contender::Policy(policy) => Some(policy),
            // The first instance makes the one change at once. The policy never makes another.
            Contender::Once(_) => {
                Some(ScalingPolicy { evidence: u64::MAX, ..ScalingPolicy::default() })
            }
        };
        let mut key = Key::new(scenario);
        let all = (0..scenario.instances)
            .map(|number| Instance::new(number, scenario, &mut key))
            .collect();
        Self { all, policy, key }
    }

    /// Takes the shortage of partitions that was reported since the last call.
    pub(super) const fn shortage(&mut self) -> Option<Shortage> {
        self.key.shortage.take()
    }

    /// Returns the time at which an instance first found that the key needs more than the maximum
    /// of shards.
    pub(super) const fn at_maximum_after(&self) -> Option<Duration> {
        self.key.at_maximum_after
    }

    /// Publishes the main table's number of partitions in the directory.
    pub(super) const fn publish_partitions(&mut self, partitions: u32) {
        self.key.partitions = Some(partitions);
    }

    /// Returns the write width.
    pub(super) const fn width(&self) -> ShardCount {
        self.key.item.number_of_shards
    }

    /// Returns the successful and all conditional updates of the key's item.
    pub(super) const fn updates(&self) -> (u64, u64) {
        (self.key.updates_made, self.key.updates_tried)
    }

    /// Returns the load on the metadata table; `None` without a policy, which does not use it.
    pub(super) fn metadata(&self) -> Option<MetadataLoad> {
        self.policy.is_some().then(|| self.key.table.load())
    }

    /// Ends a second of the metadata table's load.
    pub(super) fn end_second(&mut self) {
        self.key.table.end_second();
    }

    /// Determines the instances that may send writes in this step.
    pub(super) fn hold(&mut self, now: Duration) -> Held {
        let (mut running, mut waiting, mut waited, mut released, mut without_view) =
            (0, 0, 0, 0, 0);
        for instance in self.all.iter_mut().filter(|instance| now >= instance.starts_at) {
            let has_view = self.policy.is_none() || instance.view.is_current(now);
            let sends = has_view && !instance.view.entry.is_closing;
            running += 1;
            waiting += u32::from(!sends);
            waited += u32::from(!instance.sends);
            released += u32::from(sends && !instance.sends);
            // Without reads, an instance that waits for an open needs no view before it.
            without_view +=
                u32::from(!has_view && (self.key.is_read || !instance.view.entry.is_closing));
            instance.sends = sends;
        }
        let part =
            |some: u32, all: u32| if all == 0 { 0.0 } else { f64::from(some) / f64::from(all) };
        Held {
            waiting: if running == 0 { 1.0 } else { part(waiting, running) },
            released: part(released, waited),
            without_view: part(without_view, running),
        }
    }

    /// Returns the instances that send writes.
    fn active(&self) -> impl Iterator<Item = &Instance> {
        self.all.iter().filter(|instance| instance.sends)
    }

    /// Returns the widths that instances write under, with the share of the writing instances.
    pub(super) fn widths(&self) -> Vec<(ShardCount, f64)> {
        let mut widths: Vec<(ShardCount, f64)> = Vec::new();
        let one = 1.0 / self.active().count() as f64;
        for instance in self.active() {
            match widths.iter_mut().find(|(width, _)| *width == instance.view.entry.width) {
                Some((_, share)) => *share += one,
                None => widths.push((instance.view.entry.width, one)),
            }
        }
        widths
    }

    /// Records in every instance the results of its share of a step's attempts. `refused` is the
    /// throttled share by width.
    pub(super) fn learn(
        &mut self,
        first_attempts: f64,
        repetitions: f64,
        refused: &[(ShardCount, f64)],
        now: Duration,
    ) {
        let count = self.active().count() as f64;
        let rng = &mut self.key.rng;
        for instance in self.all.iter_mut().filter(|instance| instance.sends) {
            let Some((width, refused)) =
                refused.iter().find(|(width, _)| *width == instance.view.entry.width).copied()
            else {
                continue;
            };
            let attempts = whole(first_attempts / count, rng);
            let throttled = (0..attempts).filter(|_| rng.random::<f64>() < refused).count() as u64;
            let late = whole(repetitions / count * (1.0 - refused), rng);
            instance.tracker.record(
                width,
                Pressure { attempts, throttled, accepted: attempts - throttled + late },
                now,
            );
            // A throttled retry also starts a relief.
            let is_throttled =
                throttled > 0 || rng.random::<f64>() < refused * (repetitions / count);
            if is_throttled && self.policy.is_some() {
                instance.gather(now, rng);
            }
        }
    }

    /// Sends the due requests of every instance to the metadata table.
    pub(super) fn act(&mut self, now: Duration) {
        let Some(policy) = self.policy else { return };
        self.key.start_step();
        for instance in self.all.iter_mut().filter(|instance| now >= instance.starts_at) {
            instance.look_if_due(&mut self.key, now);
            while instance.advance(&policy, &mut self.key, now) {
                instance.look_if_due(&mut self.key, now);
            }
        }
    }
}
