//! One run of the simulation: what happens in each step.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::chance::{poisson, share_of};
use super::instances::Instances;
use super::outcome::Outcome;
use super::requests::{Pending, Requests};
use super::scaler::Scaler;
use super::scenario::Scenario;
use super::shards::Shards;
use super::step::{STEP, STEPS_A_SECOND};
use super::tally::Tally;

/// A request fails after this time: the writer's timeout in the template, less the margin for the
/// response.
const DEADLINE_STEPS: u64 = 960;

/// Simulates a scenario.
pub(super) fn run(scenario: &Scenario) -> Outcome {
    let mut world = World::new(scenario);
    let steps = u64::from(scenario.seconds) * STEPS_A_SECOND;
    for step in 0..steps {
        world.step(step);
    }
    world.outcome(steps)
}

struct World<'a> {
    scenario: &'a Scenario,
    shards: Shards,
    instances: Instances,
    scaler: Scaler,
    pending: Pending,
    tally: Tally,
    rng: Xoshiro256PlusPlus,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            shards: Shards::new(scenario),
            instances: Instances::new(scenario),
            scaler: Scaler::new(scenario.budget),
            pending: Pending::default(),
            tally: Tally::default(),
            rng: Xoshiro256PlusPlus::seed_from_u64(scenario.seed ^ 0x5EED),
        }
    }

    fn step(&mut self, step: u64) {
        let now = STEP.saturating_mul(u32::try_from(step).unwrap_or(u32::MAX));
        let mean = f64::from(self.scenario.demand) / STEPS_A_SECOND as f64;
        let arrivals = poisson(mean, &mut self.rng);
        self.tally.offer(arrivals);
        let held = self.instances.hold(now);
        self.tally.without_view += held.without_view;
        let sent = self.pending.send(step, arrivals, held, &mut self.rng);
        let (first, repeated) = (sent.first(), sent.again());
        let widths = self.instances.widths();
        let admitted = self.shards.admit(first + repeated, &widths, now, &mut self.rng);
        self.settle(step, sent, admitted.share);
        self.instances.learn(first as f64, repeated as f64, &admitted.by_width, now);
        self.instances.act(now);
        self.scale(now);
        if (step + 1).is_multiple_of(STEPS_A_SECOND) {
            self.tally.end_second(self.instances.width());
            self.instances.end_second();
        }
    }

    /// Accepts a share of the sent requests, and schedules the retries of the others.
    fn settle(&mut self, step: u64, sent: Requests, share: f64) {
        for (born, count) in sent.first {
            let accepted = share_of(count, share, &mut self.rng);
            // A write that waited for an open before it was sent was not accepted at once.
            self.tally.accept(accepted, born == step);
            self.pending.retry(born, 0, count - accepted, &mut self.rng);
        }
        for ((born, tries), count) in sent.again {
            let accepted = share_of(count, share, &mut self.rng);
            self.tally.accept(accepted, false);
            if step < born + DEADLINE_STEPS {
                self.pending.retry(born, tries + 1, count - accepted, &mut self.rng);
            }
        }
    }

    /// Reports a shortage of partitions to the shard-scaler, and lets the shard-scaler act.
    fn scale(&mut self, now: Duration) {
        if let Some(shortage) = self.instances.shortage() {
            self.tally.be_short(shortage, now);
            self.scaler.wake(shortage, now);
        }
        let partitions = self.scaler.act(&mut self.shards.partitions, now);
        if let Some(partitions) = partitions.filter(|_| self.scenario.knows_partitions) {
            self.instances.publish_partitions(partitions);
        }
    }

    fn outcome(self, steps: u64) -> Outcome {
        let (updates_made, updates_tried) = self.instances.updates();
        Outcome {
            scenario: self.scenario.clone(),
            relieved_after: self.tally.relieved_after(),
            accepted: self.tally.accepted(self.pending.count()),
            final_width: self.instances.width().get(),
            short_after: self.tally.short_after,
            at_maximum_after: self.instances.at_maximum_after().map(|after| after.as_secs_f64()),
            final_partitions: u32::try_from(self.shards.partitions.count()).unwrap_or(u32::MAX),
            updates_made,
            updates_tried,
            without_view: self.tally.without_view / steps.max(1) as f64,
            metadata: self.instances.metadata(),
            by_second: self.tally.by_second,
        }
    }
}
