//! One instance: its view of the key, its evidence, and the state of its relief.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use sharding::internal::{CROWD_BACKOFF, Pressure, PressureTracker, Seen};

use super::attempt::Attempt;
use super::key::{Entry, Key};
use super::relief::{Relief, Why};
use super::view::View;
use crate::plan::renewed_after;
use crate::simulate::scenario::{Scenario, Starts};

/// The instances that Lambda starts at once, and in each later second. (AWS Lambda developer guide,
/// "Lambda scaling behavior": 1,000 every 10 seconds, refilled continuously and not saved up.)
const STARTED_AT_ONCE: u32 = 1_000;
const STARTED_A_SECOND: u32 = 100;

/// The time in which a throttled instance makes no decision.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Quiet {
    until: Duration,
    /// Whether the reason is that the table was short of partitions.
    pub(super) is_short: bool,
}

#[derive(Debug)]
pub(super) struct Instance {
    pub(super) starts_at: Duration,
    /// Whether the instance may send writes in this step.
    pub(super) sends: bool,
    pub(super) view: View,
    pub(super) tracker: PressureTracker,
    pub(super) relief: Relief,
    pub(super) quiet: Quiet,
    /// The number of partitions of the main table, from the page.
    pub(super) partitions: Option<u32>,
    /// The shared evidence, after the instance has added its own or read it.
    pub(super) together: Option<Pressure>,
}

impl Instance {
    pub(super) fn new(number: u32, scenario: &Scenario, key: &mut Key) -> Self {
        let starts_at = match scenario.starts {
            Starts::Warm | Starts::AtOnce => Duration::ZERO,
            Starts::Lambda => {
                Duration::from_secs(1).saturating_mul((number + 1).saturating_sub(STARTED_AT_ONCE))
                    / STARTED_A_SECOND
            }
        };
        let is_warm = scenario.starts == Starts::Warm;
        // Warm instances have views of different ages.
        let age = f64::from(number + 1) / f64::from(scenario.instances.max(1));
        let first_look = if is_warm { renewed_after().mul_f64(age) } else { starts_at };
        let mut tracker = PressureTracker::default();
        tracker.observe_width(key.page.width, Duration::ZERO);
        Self {
            starts_at,
            sends: false,
            view: View::new(is_warm, first_look, key),
            tracker,
            relief: if number == 0 && key.once.is_some() {
                Relief::Reading { why: Why::Decide, attempt: Attempt::at(starts_at) }
            } else {
                Relief::Idle
            },
            quiet: Quiet::default(),
            partitions: key.partitions.filter(|_| is_warm),
            together: None,
        }
    }

    /// Makes no decision until this time.
    pub(super) const fn be_quiet(&mut self, until: Duration, is_short: bool) {
        self.quiet = Quiet { until, is_short };
    }

    /// Starts to gather evidence, unless a relief is in progress or the instance makes no decision
    /// now.
    pub(super) fn gather(&mut self, now: Duration, rng: &mut Xoshiro256PlusPlus) {
        if self.relief == Relief::Idle && now >= self.quiet.until {
            let until = now + CROWD_BACKOFF.mul_f64(rng.random());
            self.relief = Relief::Gathering { since: now, until };
        }
    }

    /// Reads the page if the read is due.
    pub(super) fn look_if_due(&mut self, key: &mut Key, now: Duration) {
        if !self.view.look_if_due(key, now) {
            return;
        }
        if self.partitions != key.partitions && self.quiet.until > Duration::ZERO {
            self.quiet = Quiet::default();
            self.tracker.forget(now);
        }
        self.partitions = key.partitions;
        self.see(key.seen_page, key, now);
    }

    /// Updates the view, and what depends on the width.
    pub(super) fn see(&mut self, entry: Entry, key: &mut Key, now: Duration) {
        if self.view.see(entry, key, now) {
            self.quiet = Quiet::default();
        }
        self.tracker.observe_width(self.view.entry.width, now);
    }

    /// Returns the evidence for a decision.
    pub(super) fn seen(&mut self, now: Duration) -> Seen {
        let own = self.tracker.seen(now);
        let together = self.together.filter(|together| together.attempts > own.pressure.attempts);
        Seen { pressure: together.unwrap_or(own.pressure), partitions: self.partitions, ..own }
    }

    /// Adds the instance's evidence to the shared evidence. Returns the shared evidence.
    pub(super) fn add_evidence(&mut self, key: &mut Key, now: Duration) -> Pressure {
        let own = self.tracker.take_unreported(now);
        let together = key.evidence.add(own, self.view.entry.generation, self.partitions, now);
        self.together = Some(together);
        together
    }

    /// Whether the table is known to be short of partitions. If so, the instance makes no decision
    /// for a while.
    pub(super) fn is_known_short(&mut self, key: &Key, now: Duration) -> bool {
        let until = key.short_until(self.partitions, now);
        if let Some(until) = until {
            self.be_quiet(until, true);
        }
        until.is_some()
    }
}
