//! A write in an append-only table: docs/protocol.md, "Append-only tables".

use std::time::Duration;

use crate::protocol::copies::{Answer, Condition, Effect, Request};
use crate::protocol::version::Version;
use crate::protocol::view::{Moment, View};
use crate::protocol::write::Outcome;
use crate::values::key::ShardNumber;

const VIEW_EXPIRED: &str =
    "an attempt got no response, and the view that it was placed by has run out";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Append {
    /// Taken once, and kept by every attempt. Its era is 0, so the clock decides.
    pub version: Version,
    lease: Duration,
    /// Where an attempt without a response was sent.
    unanswered: Option<Placed>,
    over: Option<Outcome>,
}

/// The shard of an attempt, and when the view that led there was requested; `None` for shard 1
/// without a view.
pub type Placed = (ShardNumber, Option<Moment>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AppendNext {
    Send(Placed, Request),
    Done(Outcome),
}

impl Append {
    /// An append that its client may repeat takes the lowest version, because no other write uses
    /// its sort key.
    pub fn new(lease: Duration, tie_breaker: u32, may_be_repeated: bool, now: Moment) -> Self {
        let of_now = Version::new(0, now.epoch_micros(), tie_breaker);
        let version = if may_be_repeated { Version::LOWEST } else { of_now };
        Self { version, lease, unanswered: None, over: None }
    }

    /// Without a view, `home` is shard 1. A repetition goes to the same shard while the view that
    /// led there is valid.
    pub fn next(&self, view: Option<&View>, home: ShardNumber, now: Moment) -> AppendNext {
        if let Some(outcome) = self.over {
            return AppendNext::Done(outcome);
        }
        let placed = self.unanswered.unwrap_or((home, view.map(|view| view.asked_at)));
        let lasts = |asked_at: Moment| now.since(asked_at).is_some_and(|age| age < self.lease);
        if self.unanswered.is_some() && !placed.1.is_none_or(lasts) {
            return AppendNext::Done(Outcome::Unknown(VIEW_EXPIRED));
        }
        let version = self.version;
        let effect = Effect::Put { version, write_id: None };
        AppendNext::Send(placed, Request::unmarked(effect, Condition::AbsentOrBelow(version)))
    }

    pub fn answered(&mut self, placed: Placed, answer: &Answer) {
        match answer {
            // A version at least as high is stored: this append, or a later write that replaced it.
            Answer::Applied | Answer::Refused(_) => self.over = Some(Outcome::Done),
            // The shard is hot, so the next attempt may go to another one. Two copies of one
            // version are one item.
            Answer::Rejected => self.unanswered = None,
            Answer::Unanswered => self.unanswered = Some(placed),
        }
    }
}
