//! The reference for items that are put, created and deleted: each is a register, and all that was sent and answered is kept and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::failure::Finding;
use super::linearizability::{Kind, Operation, Tick, check};

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Acknowledged.
    Done,
    /// Certainly not applied.
    Refused,
    /// A create-only write was told that an item stands.
    Exists,
    /// A change was told that the item is in another state.
    Differs,
    /// Perhaps.
    Unknown,
}

/// All registers of one key, by sort key.
#[derive(Debug)]
pub(super) struct Registers {
    began: Instant,
    /// By how much the clocks of two writers can differ.
    clocks_differ: Duration,
    now: Tick,
    operations: BTreeMap<String, Vec<Operation>>,
}

/// A write under way.
#[derive(Debug)]
pub(super) struct Sent {
    sort_key: String,
    index: usize,
    /// When this request was sent.
    tick: Tick,
}

impl Registers {
    pub(super) const fn new(began: Instant, clocks_differ: Duration) -> Self {
        Self { began, clocks_differ, now: 0, operations: BTreeMap::new() }
    }

    /// The present place in the run.
    pub(super) fn now(&mut self) -> Tick {
        self.now += 1;
        self.now
    }

    /// A write begins. Where its client has sent it before, under an idempotency key, and does not know what became of it, it is the same
    /// write: it takes effect between the first request and the last response.
    pub(super) fn sent(&mut self, sort_key: &str, kind: Kind, first: Option<&Sent>) -> Sent {
        let (tick, at) = (self.now(), self.began.elapsed());
        let operations = self.operations.entry(sort_key.to_owned()).or_default();
        operations.push(Operation { kind, at, sent: first.map_or(tick, |first| first.tick), ended: None });
        Sent { sort_key: sort_key.to_owned(), index: operations.len() - 1, tick }
    }

    /// A write ends. So many of its attempts had no response, and may be applied any time later: each only where nothing stands, or for a put
    /// a lower version.
    pub(super) fn ended(&mut self, write: &Sent, outcome: Outcome, unanswered: u32) {
        let (now, at) = (self.now(), self.began.elapsed());
        let Some(operations) = self.operations.get_mut(&write.sort_key) else { return };
        let Some(operation) = operations.get_mut(write.index) else { return };
        let repeated = match (outcome, operation.kind) {
            (Outcome::Done, _) => {
                operation.ended = Some(now);
                unanswered
            }
            (Outcome::Unknown, _) => unanswered.saturating_sub(1),
            (Outcome::Exists, Kind::Create(own)) => {
                // What this request was told is of its own time.
                *operation = Operation { kind: Kind::Exists(own), sent: write.tick, ended: Some(now), ..*operation };
                // Without a response to an earlier attempt, it would be unknown.
                0
            }
            (Outcome::Differs, Kind::Change(from, _)) => {
                *operation = Operation { kind: Kind::Differs(from), sent: write.tick, ended: Some(now), ..*operation };
                0
            }
            (Outcome::Refused | Outcome::Exists | Outcome::Differs, _) => {
                operation.kind = Kind::Nothing;
                0
            }
        };
        let lands_late = match operation.kind {
            // Its version was taken by now.
            Kind::Set(Some(value)) => Some(Kind::Late(value, at + self.clocks_differ)),
            // Its condition is that nothing stands. To the check it is one more request of the same creation.
            Kind::Create(value) | Kind::Once(value) => Some(Kind::Create(value)),
            // A deletion is sent once, or leaves a tombstone: a repetition of that is below all that follows.
            Kind::Set(None) | Kind::Late(..) | Kind::Exists(_) | Kind::Read(_) | Kind::Nothing => None,
            // An attempt of a change is applied only while that stands which it changes.
            Kind::Change(..) | Kind::Differs(_) => None,
        };
        let (sent, at) = (operation.sent, operation.at);
        for kind in lands_late.into_iter().cycle().take(repeated as usize) {
            operations.push(Operation { kind, at, sent, ended: None });
        }
    }

    /// A read from `began` to now has returned this for a sort key.
    pub(super) fn read(&mut self, sort_key: &str, seen: Option<u64>, began: Tick) {
        let ended = self.now();
        self.note(sort_key, seen, began, ended);
    }

    /// A whole scan from `began` to now has returned these.
    pub(super) fn read_all(&mut self, seen: &BTreeMap<String, u64>, began: Tick) {
        let ended = self.now();
        let sort_keys: BTreeSet<String> = self.operations.keys().chain(seen.keys()).cloned().collect();
        for sort_key in sort_keys {
            self.note(&sort_key, seen.get(&sort_key).copied(), began, ended);
        }
    }

    fn note(&mut self, sort_key: &str, seen: Option<u64>, began: Tick, ended: Tick) {
        let at = self.began.elapsed();
        let operations = self.operations.entry(sort_key.to_owned()).or_default();
        operations.push(Operation { kind: Kind::Read(seen), at, sent: began, ended: Some(ended) });
    }

    /// Checks that all responses of each register can be put into one order. How many registers were checked, and how many of them allow too
    /// many orders to decide.
    pub(super) fn check(&self) -> Result<(u64, u64), Finding> {
        self.operations.iter().try_fold((0, 0), |(checked, undecided), (sort_key, operations)| {
            let index = match check(operations) {
                Ok(is_decided) => return Ok((checked + 1, undecided + u64::from(!is_decided))),
                Err(index) => index,
            };
            let promise = match operations[index].kind {
                Kind::Create(_) | Kind::Exists(_) => "I3",
                Kind::Set(_)
                | Kind::Once(_)
                | Kind::Late(..)
                | Kind::Change(..)
                | Kind::Differs(_)
                | Kind::Read(_)
                | Kind::Nothing => "I1",
            };
            let mut all: Vec<&Operation> = operations.iter().collect();
            all.sort_by_key(|operation| operation.sent);
            let all: Vec<String> = all.into_iter().map(Operation::to_string).collect();
            let odd = operations[index];
            Err(Finding::of(
                sort_key,
                format!("{promise}: {sort_key}: \"{odd}\" fits no order of all: {}", all.join(", ")),
            ))
        })
    }
}
