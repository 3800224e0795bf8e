//! The steps of an instance's relief of the key.
//!
//! They follow `shared/src/sharded_table/scale.rs`. A request to the metadata table takes one step
//! of the simulated time.

use std::time::Duration;

use sharding::internal::protocol::metadata::Change;
use sharding::internal::{
    CROWD_BACKOFF, EVIDENCE_LASTS, LONGEST_GATHERING, ScalingPolicy, TOGETHER,
};

use super::attempt::Attempt;
use super::instance::Instance;
use super::key::{Entry, Key, OPENING_WAIT};
use super::relief::{Relief, Then, Why};
use crate::simulate::metadata::MetadataItem;
use crate::simulate::step::STEP;

impl Instance {
    /// Takes the next step of a relief if it is due. Returns whether another step may follow at
    /// once.
    pub(super) fn advance(&mut self, policy: &ScalingPolicy, key: &mut Key, now: Duration) -> bool {
        if !self.is_due(now) {
            return false;
        }
        let (next, may_follow) = match self.relief {
            Relief::Idle => (self.take_over(now), true),
            Relief::Gathering { since, .. } => self.end_gathering(since, key, now),
            Relief::Looking { then, .. } => (self.end_looking(then, now), true),
            Relief::Added { .. } => (self.look(Then::ReadEvidence, now), true),
            Relief::WaitingOut { generation, .. } => {
                let why = Why::WaitOut { generation };
                (Relief::Reading { why, attempt: Attempt::at(now) }, true)
            }
            // These steps are requests.
            Relief::ReadingShortage { attempt } => (self.read_shortage(attempt, key, now), false),
            Relief::Adding { attempt, until } => (self.add(attempt, until, key, now), false),
            Relief::ReadingEvidence { attempt } => (self.read_evidence(attempt, key, now), false),
            Relief::Reading { why, attempt } => (self.read(why, attempt, policy, key, now), false),
            Relief::Publishing { entry, attempt } => (publish(entry, attempt, key, now), false),
            Relief::Closed { generation, .. } => (self.open(generation, key, now), false),
        };
        self.relief = next;
        may_follow
    }

    /// Whether the next step is due.
    fn is_due(&self, now: Duration) -> bool {
        match self.relief {
            Relief::Idle => self.view.overdue(now).is_some(),
            Relief::Looking { since, .. } => self.view.is_of(since),
            Relief::Gathering { until, .. }
            | Relief::Added { until }
            | Relief::Closed { until, .. }
            | Relief::WaitingOut { until, .. } => now >= until,
            Relief::ReadingShortage { attempt }
            | Relief::Adding { attempt, .. }
            | Relief::ReadingEvidence { attempt }
            | Relief::Reading { attempt, .. }
            | Relief::Publishing { attempt, .. } => now >= attempt.at,
        }
    }

    /// Reads the item of a key whose closing the page has shown for longer than a change takes.
    fn take_over(&self, now: Duration) -> Relief {
        let Some(generation) = self.view.overdue(now) else { return Relief::Idle };
        Relief::Reading { why: Why::TakeOver { generation }, attempt: Attempt::at(now) }
    }

    /// Ends the gathering if there is enough evidence, or after a while. Returns also whether
    /// another step may follow at once.
    fn end_gathering(&mut self, since: Duration, key: &mut Key, now: Duration) -> (Relief, bool) {
        let seen = self.tracker.seen(now);
        let is_sure = seen.pressure.is_sure();
        if !is_sure && now.saturating_sub(since) < LONGEST_GATHERING {
            return (Relief::Gathering { since, until: now + key.jitter(CROWD_BACKOFF) }, false);
        }
        if seen.is_calm() {
            return (Relief::Idle, false);
        }
        let then = match (is_sure, self.quiet.is_short) {
            (true, _) => Then::Decide,
            (false, true) => Then::ReadShortage,
            (false, false) => Then::Add,
        };
        self.together = None;
        (self.look(then, now), true)
    }

    /// Looks at the page. Most of a crowd of instances find that another has already closed the
    /// key, and do not read the key's items.
    fn look(&mut self, then: Then, now: Duration) -> Relief {
        self.view.look_at_once(now);
        Relief::Looking { since: now, then }
    }

    fn end_looking(&self, then: Then, now: Duration) -> Relief {
        let attempt = Attempt::at(now);
        match then {
            _ if self.view.entry.is_closing => Relief::Idle,
            Then::Add => Relief::Adding { attempt, until: now + TOGETHER },
            Then::ReadShortage => Relief::ReadingShortage { attempt },
            Then::ReadEvidence => Relief::ReadingEvidence { attempt },
            Then::Decide => Relief::Reading { why: Why::Decide, attempt },
        }
    }

    fn read_shortage(&mut self, attempt: Attempt, key: &mut Key, now: Duration) -> Relief {
        if !key.table.read(MetadataItem::Evidence, now) {
            Relief::ReadingShortage { attempt: attempt.repeated(now, &mut key.rng) }
        } else if self.is_known_short(key, now) {
            Relief::Idle
        } else {
            Relief::Adding { attempt: Attempt::at(now + STEP), until: now + TOGETHER }
        }
    }

    fn add(&mut self, attempt: Attempt, until: Duration, key: &mut Key, now: Duration) -> Relief {
        if !key.table.write(MetadataItem::Evidence, now) {
            // Enough other instances add their evidence.
            if now >= until {
                self.be_quiet(now + EVIDENCE_LASTS, false);
                return Relief::Idle;
            }
            return Relief::Adding { attempt: attempt.repeated(now, &mut key.rng), until };
        }
        if self.is_known_short(key, now) {
            Relief::Idle
        } else if self.add_evidence(key, now).is_sure() {
            self.decide_together(now)
        } else {
            Relief::Added { until: now + TOGETHER }
        }
    }

    fn read_evidence(&mut self, attempt: Attempt, key: &mut Key, now: Duration) -> Relief {
        if !key.table.read(MetadataItem::Evidence, now) {
            Relief::ReadingEvidence { attempt: attempt.repeated(now, &mut key.rng) }
        } else if self.is_known_short(key, now) {
            Relief::Idle
        } else {
            self.together = key.evidence.of(self.view.entry.generation, self.partitions);
            self.decide_together(now)
        }
    }

    /// Returns the next state after a read of the shared evidence.
    fn decide_together(&mut self, now: Duration) -> Relief {
        if self.seen(now).is_calm() {
            self.be_quiet(now + EVIDENCE_LASTS, false);
            return Relief::Idle;
        }
        Relief::Reading { why: Why::Decide, attempt: Attempt::at(now + STEP) }
    }

    fn read(
        &mut self,
        why: Why,
        attempt: Attempt,
        policy: &ScalingPolicy,
        key: &mut Key,
        now: Duration,
    ) -> Relief {
        if key.table.read(MetadataItem::Key, now) {
            self.judge(why, policy, key, now)
        } else {
            Relief::Reading { why, attempt: attempt.repeated(now, &mut key.rng) }
        }
    }

    /// Opens the key that the instance has closed, if no other instance has changed it since.
    fn open(&mut self, generation: u64, key: &mut Key, now: Duration) -> Relief {
        if key.seen_item.generation == generation {
            self.change(&Change::Open, key, now)
        } else {
            Relief::Idle
        }
    }
}

fn publish(entry: Entry, attempt: Attempt, key: &mut Key, now: Duration) -> Relief {
    if !key.publish(entry, now) {
        Relief::Publishing { entry, attempt: attempt.repeated(now, &mut key.rng) }
    } else if entry.is_closing {
        Relief::Closed { until: now + OPENING_WAIT, generation: entry.generation }
    } else {
        Relief::Idle
    }
}
