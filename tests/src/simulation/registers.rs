//! The reference for items that are put, created and deleted: each is a register, and all that was sent and answered is kept and checked.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Perhaps.
    Unknown,
}

/// All registers of one key, by sort key.
#[derive(Debug, Default)]
pub(super) struct Registers {
    now: Tick,
    operations: BTreeMap<String, Vec<Operation>>,
}

/// A write under way.
#[derive(Debug)]
pub(super) struct Sent {
    sort_key: String,
    index: usize,
}

impl Registers {
    /// The present place in the run.
    pub(super) fn now(&mut self) -> Tick {
        self.now += 1;
        self.now
    }

    pub(super) fn contains(&self, sort_key: &str) -> bool {
        self.operations.contains_key(sort_key)
    }

    /// A write begins.
    pub(super) fn sent(&mut self, sort_key: &str, kind: Kind) -> Sent {
        let sent = self.now();
        let operations = self.operations.entry(sort_key.to_owned()).or_default();
        operations.push(Operation { kind, sent, ended: None });
        Sent { sort_key: sort_key.to_owned(), index: operations.len() - 1 }
    }

    /// A write ends. So many of its attempts had no response, and may be applied any time later: each only where nothing stands, for what
    /// is stored since has a higher version.
    pub(super) fn ended(&mut self, write: &Sent, outcome: Outcome, unanswered: u32) {
        let now = self.now();
        let Some(operations) = self.operations.get_mut(&write.sort_key) else { return };
        let Some(operation) = operations.get_mut(write.index) else { return };
        let repeated = match (outcome, operation.kind) {
            (Outcome::Done, _) => {
                operation.ended = Some(now);
                unanswered
            }
            (Outcome::Unknown, _) => unanswered.saturating_sub(1),
            (Outcome::Exists, Kind::Create(own)) => {
                (operation.kind, operation.ended) = (Kind::Exists(own), Some(now));
                unanswered
            }
            (Outcome::Refused | Outcome::Exists, _) => {
                operation.kind = Kind::Nothing;
                0
            }
        };
        let lands_late = match operation.kind {
            Kind::Set(Some(value)) | Kind::Create(value) | Kind::Once(value) | Kind::Exists(value) => Some(value),
            // A deletion is sent once.
            Kind::Set(None) | Kind::Read(_) | Kind::Nothing => None,
        };
        let sent = operation.sent;
        for value in lands_late.into_iter().cycle().take(repeated as usize) {
            operations.push(Operation { kind: Kind::Create(value), sent, ended: None });
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
        let operations = self.operations.entry(sort_key.to_owned()).or_default();
        operations.push(Operation { kind: Kind::Read(seen), sent: began, ended: Some(ended) });
    }

    /// Checks that all responses of each register can be put into one order.
    pub(super) fn check(&self) -> Result<(), String> {
        self.operations.iter().try_for_each(|(sort_key, operations)| {
            let Err(index) = check(operations) else { return Ok(()) };
            let promise = match operations[index].kind {
                Kind::Create(_) | Kind::Exists(_) => "I3",
                Kind::Set(_) | Kind::Once(_) | Kind::Read(_) | Kind::Nothing => "I1",
            };
            let mut all: Vec<&Operation> = operations.iter().collect();
            all.sort_by_key(|operation| operation.sent);
            let all: Vec<String> = all.into_iter().map(Operation::to_string).collect();
            Err(format!("{promise}: {sort_key}: \"{}\" fits no order of all: {}", operations[index], all.join(", ")))
        })
    }
}
