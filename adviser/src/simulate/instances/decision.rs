//! An instance's decisions on a change of the key's item, and its changes.

use std::time::Duration;

use sharding::internal::protocol::metadata::Change;
use sharding::internal::{GrowthRecord, LOOK_AGAIN, ScalingDecision, ScalingPolicy};

use super::attempt::Attempt;
use super::instance::Instance;
use super::key::{EPOCH, Entry, Key};
use super::relief::{Relief, Why};
use crate::simulate::scaler::Shortage;
use crate::simulate::step::STEP;

impl Instance {
    /// Returns the next state after a read of the key's item.
    pub(super) fn judge(
        &mut self,
        why: Why,
        policy: &ScalingPolicy,
        key: &mut Key,
        now: Duration,
    ) -> Relief {
        let stored = key.seen_item.generation;
        // If this attempt fails, the next read of the page starts a new wait.
        self.view.stop_watching();
        match why {
            Why::Decide => self.decide(policy, key, now),
            Why::TakeOver { generation } | Why::WaitOut { generation } if stored == generation => {
                self.change(&Change::CloseAgain, key, now)
            }
            // The actor of the change did not publish it to the page.
            Why::TakeOver { .. } => {
                self.view.look_at_once(now + 2 * STEP);
                Relief::Publishing {
                    entry: Entry::of(&key.seen_item, now),
                    attempt: Attempt::at(now + STEP),
                }
            }
            Why::WaitOut { .. } => Relief::Idle,
        }
    }

    fn decide(&mut self, policy: &ScalingPolicy, key: &mut Key, now: Duration) -> Relief {
        if let Some(to) = key.once {
            return self.change(&Change::Close { to, growth: GrowthRecord::default() }, key, now);
        }
        let seen = self.seen(now);
        match policy.decide(&key.seen_item, seen, EPOCH + now.as_secs()) {
            ScalingDecision::ScaleOut(to) => {
                let close = Change::Close { to, growth: policy.record(&key.seen_item, seen) };
                return self.change(&close, key, now);
            }
            ScalingDecision::Closing(_) => {
                let generation = key.seen_item.generation;
                return Relief::WaitingOut { until: key.patience(now), generation };
            }
            ScalingDecision::CoolingDown { until } => self.be_quiet(since_start(until), false),
            ScalingDecision::ShortOfPartitions { until, write_units } => {
                let until = since_start(until);
                self.be_quiet(until, true);
                key.report_shortage(Shortage { write_units }, self.partitions, until, now);
            }
            ScalingDecision::AtMaximum | ScalingDecision::DirectoryFull => {
                key.at_maximum_after.get_or_insert(now);
                self.be_quiet(now + LOOK_AGAIN, false);
            }
            ScalingDecision::Calm => {}
        }
        Relief::Idle
    }

    /// Changes the key's item, and updates the instance's own view.
    pub(super) fn change(&mut self, change: &Change, key: &mut Key, now: Duration) -> Relief {
        let Some(entry) = key.change(change, now) else { return Relief::Idle };
        self.see(entry, key, now);
        Relief::Publishing { entry, attempt: Attempt::at(now + STEP) }
    }
}

/// Returns the time from the start of the run to a wall-clock second.
const fn since_start(second: u64) -> Duration {
    Duration::from_secs(second.saturating_sub(EPOCH))
}
