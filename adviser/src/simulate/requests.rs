//! The write requests: those of a step, and the pending ones, which are held or will retry.

use std::collections::{BTreeMap, VecDeque};

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use sharding::internal::longest_pause;

use super::chance::share_of;
use super::instances::Held;
use super::step::STEP;

/// Cohorts distinguish requests by their time of birth, rounded to this many steps.
const BORN: u64 = 50;
/// Cohorts distinguish requests by their retries so far, up to this number, at which the pause
/// stops growing.
const TRIES: u32 = 6;

/// The number of requests that will retry, by time of birth and retries so far.
type Cohorts = BTreeMap<(u64, u32), u64>;

/// The requests of one step.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The number of first attempts, by time of birth.
    pub(super) first: BTreeMap<u64, u64>,
    /// The number of retries.
    pub(super) again: Cohorts,
}

impl Requests {
    pub(super) fn first(&self) -> u64 {
        self.first.values().sum()
    }

    pub(super) fn again(&self) -> u64 {
        self.again.values().sum()
    }
}

/// The requests that have neither been accepted nor failed.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The retries of each of the next steps.
    retries: VecDeque<Cohorts>,
    /// The requests of instances that have no view, or wait for an open.
    held: Requests,
}

impl Pending {
    /// Returns the number of pending requests.
    pub(super) fn count(&self) -> u64 {
        let retries: u64 = self.retries.iter().flat_map(BTreeMap::values).sum();
        retries + self.held.first() + self.held.again()
    }

    /// Returns the requests that are sent in a step: of the new ones, of those held, and of the due
    /// retries. Requests of instances that have no view, or wait for an open, are held until the
    /// instances may send.
    pub(super) fn send(
        &mut self,
        step: u64,
        arrivals: u64,
        instances: Held,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Requests {
        let Held { waiting, released, .. } = instances;
        let due = self.retries.pop_front().unwrap_or_default();
        let mut sent = Requests::default();
        let held = std::mem::take(&mut self.held);
        let fresh = part(arrivals, 1.0 - waiting, rng);
        sent.first.insert(step, fresh);
        *self.held.first.entry(step / BORN * BORN).or_default() += arrivals - fresh;
        for (born, count) in held.first {
            let freed = part(count, released, rng);
            *sent.first.entry(born).or_default() += freed;
            *self.held.first.entry(born).or_default() += count - freed;
        }
        for (of, count) in due {
            let free = part(count, 1.0 - waiting, rng);
            *sent.again.entry(of).or_default() += free;
            *self.held.again.entry(of).or_default() += count - free;
        }
        for (of, count) in held.again {
            let freed = part(count, released, rng);
            *sent.again.entry(of).or_default() += freed;
            *self.held.again.entry(of).or_default() += count - freed;
        }
        self.held.first.retain(|_, count| *count > 0);
        self.held.again.retain(|_, count| *count > 0);
        sent
    }

    /// Schedules the retries of throttled requests, with back-off.
    pub(super) fn retry(
        &mut self,
        born: u64,
        tries: u32,
        count: u64,
        rng: &mut Xoshiro256PlusPlus,
    ) {
        if count == 0 {
            return;
        }
        let longest = longest_pause(tries);
        // A few draws represent the requests of a cohort.
        let draws = count.min(4);
        for draw in 0..draws {
            let part = count / draws + u64::from(draw < count % draws);
            let pause = longest.mul_f64(rng.random()).as_millis() / STEP.as_millis();
            let pause = usize::try_from(pause).unwrap_or(0);
            while self.retries.len() <= pause {
                self.retries.push_back(Cohorts::new());
            }
            if let Some(cohorts) = self.retries.get_mut(pause) {
                *cohorts.entry((born / BORN * BORN, tries.min(TRIES))).or_default() += part;
            }
        }
    }
}

/// Returns a share of `count` requests. Chance decides only if the share is neither none nor all.
fn part(count: u64, share: f64, rng: &mut Xoshiro256PlusPlus) -> u64 {
    if share <= 0.0 {
        0
    } else if share >= 1.0 {
        count
    } else {
        share_of(count, share, rng)
    }
}
