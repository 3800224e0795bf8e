//! A write in an append-only table (`WRITES=appends`): an item is stored, and the later one by its writer's clock wins.
//!
//! Appends wait for nobody: a view is good for [`APPEND_LEASE`](super::view::APPEND_LEASE), an instance without one writes to shard 1,
//! which stays a place of every item, and a growth leaves appends harmlessly behind. Only a drain waits them out.

use std::time::Duration;

use super::copies::{Answer, Condition, Effect, Request};
use super::version::Version;
use super::view::{Moment, View};
use super::write::Outcome;
use crate::core::key::ShardNumber;

const VIEW_RAN_OUT: &str = "an attempt got no response, and the view that it was placed by has run out";

/// One append with its attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Append {
    /// Taken once, and kept by every attempt. Its era is 0: the clock decides.
    version: Version,
    lease: Duration,
    /// Where an attempt without a response went, and when the view was requested that led there; `None` for shard 1 without a view.
    unanswered: Option<(ShardNumber, Option<Moment>)>,
    /// Some attempt got no response: whatever comes later, the item may be stored.
    is_in_doubt: bool,
    over: Option<Outcome>,
}

/// What the driver does next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AppendNext {
    /// Send this to a shard.
    Send(ShardNumber, Request),
    /// It is over.
    Done(Outcome),
}

impl Append {
    /// An append that begins. One that its client may repeat takes the lowest version: nobody else uses its sort key.
    pub fn new(lease: Duration, tie_breaker: u32, may_be_repeated: bool, now: Moment) -> Self {
        let micros = u64::try_from(now.wall.as_micros()).unwrap_or(u64::MAX);
        let version = if may_be_repeated { Version::LOWEST } else { Version::new(0, micros, tie_breaker) };
        Self { version, lease, unanswered: None, is_in_doubt: false, over: None }
    }

    /// The next step. Without a view, `home` is shard 1. A repetition goes to the same shard, while the view lasts that led there.
    pub fn next(&self, view: Option<&View>, home: ShardNumber, now: Moment) -> AppendNext {
        if let Some(outcome) = self.over {
            return AppendNext::Done(outcome);
        }
        let (shard, asked_at) = self.unanswered.unwrap_or((home, view.map(|view| view.asked_at)));
        let lasts = |asked_at: Moment| now.since(asked_at).is_some_and(|age| age < self.lease);
        if self.unanswered.is_some() && !asked_at.is_none_or(lasts) {
            return AppendNext::Done(Outcome::Unknown(VIEW_RAN_OUT));
        }
        let version = self.version;
        let effect = Effect::Put { version, write_id: None };
        AppendNext::Send(shard, Request { effect, condition: Condition::AbsentOrBelow(version) })
    }

    /// When the view was requested under whose lease the next attempt is sent; `None` where it needs none.
    pub fn placed_by(&self, view: Option<&View>) -> Option<Moment> {
        self.unanswered.map_or(view.map(|view| view.asked_at), |(_, asked_at)| asked_at)
    }

    /// The version that it stores.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Whether an attempt may have been applied.
    pub const fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// What became of an attempt on a shard.
    pub fn answered(&mut self, shard: ShardNumber, view: Option<&View>, answer: &Answer) {
        match answer {
            // A version as high stands there: this very append, applied before, or a later one that has replaced it.
            Answer::Applied | Answer::Refused(_) => self.over = Some(Outcome::Done),
            // Its shard is hot: the next attempt may go elsewhere. Two copies of one version are one item.
            Answer::Rejected => self.unanswered = None,
            Answer::Unanswered => {
                self.is_in_doubt = true;
                self.unanswered.get_or_insert((shard, view.map(|view| view.asked_at)));
            }
        }
    }
}
