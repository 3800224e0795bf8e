//! The reference for items that are put, created and deleted: each is a register, whose requests
//! and responses are all kept and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::Plan;
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

/// When the version of a put was taken, by its writer's clock.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct VersionTaken {
    /// Not before: when the put was first sent and not certainly rejected.
    pub(super) since: Option<Duration>,
    /// Exactly, if the response has the version.
    pub(super) at: Option<Duration>,
}

/// All registers of one key, by sort key.
#[derive(Debug)]
pub(super) struct Registers {
    began: Instant,
    plan: Plan,
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
    pub(super) const fn new(began: Instant, plan: Plan) -> Self {
        Self { began, plan, now: 0, operations: BTreeMap::new() }
    }

    /// The current position in the run.
    pub(super) fn now(&mut self) -> Tick {
        self.now += 1;
        self.now
    }

    /// A write begins. If its client repeats it under an idempotency key after an unknown outcome,
    /// it is the same write: it takes effect between the first request and the last response.
    pub(super) fn sent(&mut self, sort_key: &str, kind: Kind, first: Option<&Sent>) -> Sent {
        let (tick, at) = (self.now(), self.began.elapsed());
        let operations = self.operations.entry(sort_key.to_owned()).or_default();
        operations.push(Operation {
            kind,
            at,
            sent: first.map_or(tick, |first| first.tick),
            ended: None,
        });
        Sent { sort_key: sort_key.to_owned(), index: operations.len() - 1, tick }
    }

    /// A write ends. `unacknowledged` of its attempts had no response, and may be applied at any
    /// later time: each only if there is no item or, for a put, an item with a lower version.
    pub(super) fn ended(
        &mut self,
        write: &Sent,
        outcome: Outcome,
        (unacknowledged, taken): (u32, VersionTaken),
    ) {
        let (now, at) = (self.now(), self.began.elapsed());
        let Some(operations) = self.operations.get_mut(&write.sort_key) else { return };
        let Some(operation) = operations.get_mut(write.index) else { return };
        operation.at = taken.since.unwrap_or(operation.at);
        let repeated = match (outcome, operation.kind) {
            (Outcome::Done, _) => {
                operation.ended = Some(now);
                unacknowledged
            }
            (Outcome::Unknown, _) => unacknowledged.saturating_sub(1),
            (Outcome::Exists, Kind::Create(own)) => {
                // The response belongs to this request only, not to the earlier attempts.
                *operation = Operation {
                    kind: Kind::Exists(own),
                    sent: write.tick,
                    ended: Some(now),
                    ..*operation
                };
                // If an earlier attempt had no response, the outcome would be unknown.
                0
            }
            (Outcome::Differs, Kind::Change(from, _)) => {
                *operation = Operation {
                    kind: Kind::Differs(from),
                    sent: write.tick,
                    ended: Some(now),
                    ..*operation
                };
                0
            }
            (Outcome::Refused | Outcome::Exists | Outcome::Differs, _) => {
                operation.kind = Kind::Nothing;
                0
            }
        };
        let lands_late = match operation.kind {
            // The attempt's version was chosen before now.
            Kind::Set(Some(value)) => {
                let latest = at + self.plan.largest_difference();
                Some(Kind::Late(value, taken.at.map_or(latest, |at| at + Duration::from_micros(1))))
            }
            // Its condition is that no item exists. For the check, it is another request of the
            // same creation.
            Kind::Create(value) | Kind::Once(value) => Some(Kind::Create(value)),
            // A deletion is sent once, or it leaves a tombstone. A repetition of it has a lower
            // version than everything later.
            Kind::Set(None) | Kind::Late(..) | Kind::Exists(_) | Kind::Read(_) | Kind::Nothing => {
                None
            }
            // It is applied only while the value that it replaces is stored. If that is at another
            // place, it is applied only while home is empty, and the item may be deleted meanwhile.
            Kind::Change(_, value) => Some(Kind::Late(value, Duration::ZERO)),
            Kind::Differs(_) => None,
        };
        let repeated = if matches!(operation.kind, Kind::Change(..)) && outcome == Outcome::Unknown
        {
            unacknowledged
        } else {
            repeated
        };
        // A late duplicate brings the item back only after it was deleted.
        let repeated = if self.plan.late_duplicates_of_deleted_items { 0 } else { repeated };
        let (sent, at) = (operation.sent, operation.at);
        for kind in lands_late.into_iter().cycle().take(repeated as usize) {
            operations.push(Operation { kind, at, sent, ended: None });
        }
    }

    /// Records a read from `began` to now that returned this value for a sort key.
    pub(super) fn read(&mut self, sort_key: &str, seen: Option<u64>, began: Tick) {
        let ended = self.now();
        self.note(sort_key, seen, began, ended);
    }

    /// Records a scan of the whole key from `began` to now that returned these values.
    pub(super) fn read_all(&mut self, seen: &BTreeMap<String, u64>, began: Tick) {
        let ended = self.now();
        let sort_keys: BTreeSet<String> =
            self.operations.keys().chain(seen.keys()).cloned().collect();
        for sort_key in sort_keys {
            self.note(&sort_key, seen.get(&sort_key).copied(), began, ended);
        }
    }

    fn note(&mut self, sort_key: &str, seen: Option<u64>, began: Tick, ended: Tick) {
        let at = self.began.elapsed();
        let operations = self.operations.entry(sort_key.to_owned()).or_default();
        operations.push(Operation { kind: Kind::Read(seen), at, sent: began, ended: Some(ended) });
    }

    /// Checks that the responses of each register can be put into one order. Returns the number of
    /// registers checked, and how many of them allow too many orders to decide.
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
                format!(
                    "{promise}: {sort_key}: \"{odd}\" fits no order of all: {}",
                    all.join(", ")
                ),
            ))
        })
    }
}
