//! The reference for items that are put, created and deleted: each is a register, whose requests
//! and responses are all kept and checked.

use std::collections::{BTreeMap, BTreeSet};

use super::failure::Finding;
use super::linearizability::{Kind, Operation, Tick, check};

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Acknowledged.
    Done,
    /// Certainly not applied.
    Refused,
    /// A create-only write found an existing item.
    Exists,
    /// A change found the item in another state.
    Differs,
    /// Perhaps applied.
    Unknown,
}

/// All registers of one key, by sort key.
#[derive(Debug, Default)]
pub(super) struct Registers {
    now: Tick,
    operations: BTreeMap<String, Vec<Operation>>,
}

/// A write in progress.
#[derive(Debug)]
pub(super) struct Sent {
    sort_key: String,
    index: usize,
    /// When this request was sent.
    tick: Tick,
}

impl Registers {
    /// The current position in the run.
    pub(super) fn now(&mut self) -> Tick {
        self.now += 1;
        self.now
    }

    /// A write begins. If its client repeats it under an idempotency key after an unknown outcome,
    /// it is the same write: it takes effect between the first request and the last response.
    pub(super) fn sent(&mut self, sort_key: &str, kind: Kind, first: Option<&Sent>) -> Sent {
        let tick = self.now();
        let operations = self.operations.entry(sort_key.to_owned()).or_default();
        let sent = first.map_or(tick, |first| first.tick);
        operations.push(Operation { kind, sent, ended: None });
        Sent { sort_key: sort_key.to_owned(), index: operations.len() - 1, tick }
    }

    /// A write ends. Its attempts without a response change nothing that it did not change itself: an
    /// attempt that is applied after a deletion of the item is a violation.
    pub(super) fn ended(&mut self, write: &Sent, outcome: Outcome) {
        let now = self.now();
        match (outcome, self.operation(write).kind) {
            (Outcome::Done, _) => self.operation(write).ended = Some(now),
            (Outcome::Unknown, _) => {}
            (Outcome::Exists, Kind::Create(own)) => self.showed(write, Kind::Exists(own)),
            (Outcome::Differs, Kind::Swap(Some(from), _)) => {
                self.showed(write, Kind::Differs(from));
            }
            (Outcome::Refused | Outcome::Exists | Outcome::Differs, _) => {
                self.operation(write).kind = Kind::Nothing;
            }
        }
    }

    /// A write ends, and its response shows what it has found. That belongs to this request only,
    /// not to earlier attempts: if one of them had no response, the outcome would be unknown.
    pub(super) fn showed(&mut self, write: &Sent, kind: Kind) {
        let now = self.now();
        *self.operation(write) = Operation { kind, sent: write.tick, ended: Some(now) };
    }

    /// A write whose outcome is unknown has sent several attempts, and each may still arrive. If the
    /// item is deleted in between, it takes effect twice. docs/protocol.md does not promise more.
    pub(super) fn several_attempts(&mut self, write: &Sent) {
        let operation = *self.operation(write);
        if matches!(operation.kind, Kind::Set(Some(_)) | Kind::Create(_)) {
            self.operations.entry(write.sort_key.clone()).or_default().push(operation);
        }
    }

    /// Records a read from `began` to now that returned this value for a sort key.
    pub(super) fn read(&mut self, sort_key: &str, seen: Option<u64>, began: Tick) {
        let ended = self.now();
        self.note(sort_key, seen, began, ended);
    }

    /// Records a scan of the whole key from `began` to now that returned these values. If it shows
    /// all registers, the others have none.
    pub(super) fn read_all(&mut self, seen: &BTreeMap<String, u64>, began: Tick, shows_all: bool) {
        let ended = self.now();
        let known = self.operations.keys().filter(|_| shows_all);
        let sort_keys: BTreeSet<String> = known.chain(seen.keys()).cloned().collect();
        for sort_key in sort_keys {
            self.note(&sort_key, seen.get(&sort_key).copied(), began, ended);
        }
    }

    fn operation(&mut self, write: &Sent) -> &mut Operation {
        let operations = self.operations.get_mut(&write.sort_key).expect("it was sent");
        &mut operations[write.index]
    }

    fn note(&mut self, sort_key: &str, seen: Option<u64>, began: Tick, ended: Tick) {
        let operations = self.operations.entry(sort_key.to_owned()).or_default();
        operations.push(Operation { kind: Kind::Read(seen), sent: began, ended: Some(ended) });
    }

    /// Checks that the responses of each register can be put into one order. Returns the number of
    /// registers checked, and how many of them allow too many orders to decide.
    pub(super) fn check(&self) -> Result<(u64, u64), Finding> {
        let mut undecided = 0;
        for (sort_key, operations) in &self.operations {
            match check(operations) {
                Ok(is_decided) => undecided += u64::from(!is_decided),
                Err(index) => return Err(no_order(sort_key, operations, operations[index])),
            }
        }
        Ok((self.operations.len() as u64, undecided))
    }
}

fn no_order(sort_key: &str, operations: &[Operation], odd: Operation) -> Finding {
    let is_creation = matches!(odd.kind, Kind::Create(_) | Kind::Exists(_));
    let promise = if is_creation { "I3" } else { "I1" };
    let mut all = operations.to_vec();
    all.sort_by_key(|operation| operation.sent);
    let all: Vec<String> = all.iter().map(Operation::to_string).collect();
    let all = all.join(", ");
    Finding::of(sort_key, format!("{promise}: {sort_key}: \"{odd}\" fits no order of all: {all}"))
}
