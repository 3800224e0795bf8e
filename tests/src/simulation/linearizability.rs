//! An exact check: whether the responses that a register gave can be put into one order, each between its request and its response.
//!
//! Operations are taken in the order of their responses. Kept is every state that the register can be in, with the operations under way that
//! have taken effect in it; an operation takes effect no earlier than a response needs it (G. Lowe, "Testing for linearizability", 2017).
//! Requests without a response may take effect at any time later, or never.
//!
//! Two exceptions are documented. A write without a response that arrives late, at an old place, between another creation's read and its put,
//! may be seen and then lose to that creation, or to a change that has read like a creation; so a creation replaces what such a write has left since the creation was sent. And an attempt
//! of a put that arrives after a deletion that has left nothing brings the item back ([`Kind::Late`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The place of an event in the run: requests and responses are numbered in the order in which they happen.
pub(super) type Tick = u64;

/// What an operation does, and what its response says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It leaves this value, or nothing.
    Set(Option<u64>),
    /// It leaves this value where nothing stands, and fails where another does. That its own stands is success.
    Create(u64),
    /// It leaves this value where nothing stands, and changes nothing where something does.
    Once(u64),
    /// An attempt of a put, besides the one that was acknowledged, which may arrive at any time: it leaves this value where nothing stands.
    ///
    /// After a deletion that has left nothing, it also replaces what has a lower version: what was sent before this time of the run at the
    /// latest, for the clocks of two writers differ.
    Late(u64, Duration),
    /// Where the first value stands, it leaves the second one; elsewhere it fails.
    Change(u64, u64),
    /// It was told that another value stands than this one, or none.
    Differs(u64),
    /// It was told that another value stands than this one.
    Exists(u64),
    /// It has seen this value, or nothing.
    Read(Option<u64>),
    /// It was rejected, and nothing was changed.
    Nothing,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    /// When it was sent, in the time of the run.
    pub(super) at: Duration,
    pub(super) sent: Tick,
    /// `None` without a response.
    pub(super) ended: Option<Tick>,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ended {
            Some(ended) => write!(f, "{}..{ended} {:?}", self.sent, self.kind),
            None => write!(f, "{}.. {:?}", self.sent, self.kind),
        }
    }
}

impl Kind {
    /// The value afterwards; `None` where it cannot take effect on this one.
    fn applied(self, value: Option<u64>) -> Option<Option<u64>> {
        match self {
            Self::Set(left) => Some(left),
            Self::Create(own) | Self::Late(own, _) => (value.is_none() || value == Some(own)).then_some(Some(own)),
            Self::Once(own) => Some(value.or(Some(own))),
            Self::Change(from, to) => (value == Some(from)).then_some(Some(to)),
            Self::Differs(from) => (value != Some(from)).then_some(value),
            Self::Exists(own) => value.is_some_and(|value| value != own).then_some(value),
            Self::Read(seen) => (value == seen).then_some(value),
            Self::Nothing => None,
        }
    }

    /// The value that it stores.
    const fn stored(self) -> Option<u64> {
        match self {
            Self::Set(stored) => stored,
            Self::Create(stored) | Self::Once(stored) | Self::Change(_, stored) => Some(stored),
            Self::Late(..) | Self::Differs(_) | Self::Exists(_) | Self::Read(_) | Self::Nothing => None,
        }
    }

    /// It changes nothing, so that it may take effect as soon as it can.
    const fn only_looks(self) -> bool {
        matches!(self, Self::Differs(_) | Self::Exists(_) | Self::Read(_) | Self::Nothing)
    }
}

/// A state that the register can be in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    value: Option<u64>,
    /// When a request without a response has left it, at the latest.
    late_since: Option<Tick>,
    /// Of the operations under way, those that have taken effect.
    done: BTreeSet<usize>,
}

struct Search<'a> {
    operations: &'a [Operation],
    /// What late attempts may replace after a deletion.
    below: BTreeMap<usize, BTreeSet<u64>>,
    /// Requests that were sent, and have not ended yet.
    under_way: BTreeSet<usize>,
    states: Vec<State>,
    /// The event that is looked at.
    now: Tick,
}

/// The most states that are kept. Many requests without a response allow more orders than can be looked at.
const MOST_STATES: usize = 400;

/// Checks the operations on one register, which begins empty; `false` where they allow too many orders to decide.
///
/// # Errors
/// The index of the first operation, by the order of responses, whose response fits no order.
pub(super) fn check(operations: &[Operation]) -> Result<bool, usize> {
    let mut events: Vec<(Tick, bool, usize)> = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        events.push((operation.sent, false, index));
        events.extend(operation.ended.map(|ended| (ended, true, index)));
    }
    events.sort_unstable();
    let empty = State { value: None, late_since: None, done: BTreeSet::new() };
    let below =
        (0..operations.len()).map(|late| (late, may_be_below(operations, late))).filter(|(_, it)| !it.is_empty());
    let mut search =
        Search { operations, below: below.collect(), under_way: BTreeSet::new(), states: vec![empty], now: 0 };
    for (now, is_response, index) in events {
        search.now = now;
        if !is_response {
            search.begin(index);
        } else if !search.end(index) {
            return Ok(false);
        } else if search.states.is_empty() {
            return Err(index);
        }
    }
    Ok(true)
}

/// What was stored after a deletion, and may nevertheless have a lower version than this late attempt.
fn may_be_below(operations: &[Operation], late: usize) -> BTreeSet<u64> {
    let late = operations[late];
    let Kind::Late(own, until) = late.kind else { return BTreeSet::new() };
    let is_between = |deletion: &Operation, stored: &Operation| {
        deletion.kind == Kind::Set(None)
            && deletion.ended.is_none_or(|ended| ended > late.sent)
            && stored.ended.is_none_or(|ended| ended > deletion.sent)
    };
    let stored = operations
        .iter()
        .filter(|stored| stored.at < until && operations.iter().any(|deletion| is_between(deletion, stored)));
    stored.filter_map(|stored| stored.kind.stored()).filter(|stored| *stored != own).collect()
}

impl Search<'_> {
    fn begin(&mut self, index: usize) {
        self.under_way.insert(index);
        let kind = self.operations[index].kind;
        for state in &mut self.states {
            if kind.only_looks() && kind.applied(state.value).is_some() {
                state.done.insert(index);
            }
        }
    }

    /// Keeps the states in which the operation has taken effect, now at the latest; `false` where they are too many.
    fn end(&mut self, index: usize) -> bool {
        let mut kept = Vec::new();
        for state in std::mem::take(&mut self.states) {
            let reachable = self.reachable(state, index);
            if reachable.len().max(kept.len()) > MOST_STATES {
                return false;
            }
            for before in reachable {
                let reached = if before.done.contains(&index) { vec![before] } else { self.steps(&before, index) };
                for mut state in reached {
                    state.done.remove(&index);
                    self.add(&mut kept, state);
                }
            }
        }
        self.under_way.remove(&index);
        self.states = kept;
        true
    }

    /// This state, and those that other operations under way lead to before this one takes effect.
    fn reachable(&self, state: State, index: usize) -> Vec<State> {
        if state.done.contains(&index) {
            return vec![state];
        }
        let (mut found, mut next) = (vec![state], 0);
        while let Some(state) = found.get(next).cloned()
            && found.len() <= MOST_STATES
        {
            next += 1;
            for other in self.under_way.iter().filter(|other| **other != index && !state.done.contains(other)) {
                if !self.operations[*other].kind.only_looks() && !self.has_twin(*other, &state) {
                    for reached in self.steps(&state, *other) {
                        self.add(&mut found, reached);
                    }
                }
            }
        }
        found
    }

    /// Whether an earlier request does the same, need not take effect either, and has not yet: it can as well be that one.
    fn has_twin(&self, index: usize, state: &State) -> bool {
        let operation = self.operations[index];
        operation.ended.is_none()
            && self.under_way.range(..index).any(|other| {
                let twin = self.operations[*other];
                twin.kind == operation.kind && twin.ended.is_none() && !state.done.contains(other)
            })
    }

    /// The states that this operation can lead to; none where it cannot take effect.
    fn steps(&self, state: &State, index: usize) -> Vec<State> {
        let operation = self.operations[index];
        let mut values: Vec<Option<u64>> = operation.kind.applied(state.value).into_iter().collect();
        if let Kind::Create(own) | Kind::Once(own) | Kind::Late(own, _) = operation.kind
            && state.value != Some(own)
            && state.late_since.is_some_and(|since| since > operation.sent)
        {
            values.push(Some(own));
        }
        if let Kind::Late(own, _) = operation.kind
            && let (Some(value), Some(below)) = (state.value, self.below.get(&index))
            && below.contains(&value)
        {
            values.push(Some(own));
        }
        if let Kind::Change(from, to) = operation.kind
            && state.value != Some(from)
            && state.late_since.is_some_and(|since| since > operation.sent)
        {
            values.push(Some(to));
        }
        values.into_iter().map(|value| self.reached(state, value, index)).collect()
    }

    fn reached(&self, state: &State, value: Option<u64>, index: usize) -> State {
        let operation = self.operations[index];
        let is_acknowledged =
            operation.ended.is_some() && matches!(operation.kind, Kind::Set(_) | Kind::Create(_) | Kind::Change(..));
        let late_since = match (value == state.value, operation.ended) {
            _ if is_acknowledged => None,
            (true, _) => state.late_since,
            (false, None) => Some(self.now),
            (false, Some(_)) => None,
        };
        let mut done = state.done.clone();
        done.insert(index);
        let looks = |other: &&usize| {
            let kind = self.operations[**other].kind;
            kind.only_looks() && kind.applied(value).is_some()
        };
        done.extend(self.under_way.iter().filter(looks));
        State { value, late_since, done }
    }

    /// Adds a state, unless one is there from which everything can follow that can follow from it.
    fn add(&self, states: &mut Vec<State>, state: State) {
        if !states.iter().any(|known| self.allows_as_much(known, &state)) {
            states.push(state);
        }
    }

    /// The same value, left as late; the same writes that will end have taken effect, no more of those that need not, and no fewer looks.
    fn allows_as_much(&self, one: &State, other: &State) -> bool {
        let may_stay = |index: &usize| self.operations[*index].ended.is_none();
        let looks = |index: &usize| self.operations[*index].kind.only_looks();
        one.value == other.value
            && one.late_since >= other.late_since
            && one.done.difference(&other.done).all(looks)
            && other.done.difference(&one.done).all(may_stay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(kind: Kind, sent: Tick, ended: impl Into<Option<Tick>>) -> Operation {
        Operation { kind, at: Duration::from_secs(sent), sent, ended: ended.into() }
    }

    #[test]
    fn what_can_be_put_in_order_holds_and_nothing_else_does() {
        use Kind::{Change, Create, Differs, Exists, Late, Once, Read, Set};
        let until = Duration::from_secs;
        let put = |value| Set(Some(value));
        let rows: Vec<(&str, Vec<Operation>, Result<bool, usize>)> = vec![
            (
                "of two changes of one value one is told that it differs",
                vec![operation(put(1), 0, 1), operation(Change(1, 2), 2, 4), operation(Differs(1), 3, 5)],
                Ok(true),
            ),
            (
                "and not both are done",
                vec![operation(put(1), 0, 1), operation(Change(1, 2), 2, 4), operation(Change(1, 3), 3, 5)],
                Err(2),
            ),
            (
                "nor is either refused before anything else is done",
                vec![operation(put(1), 0, 1), operation(Differs(1), 2, 3)],
                Err(1),
            ),
            ("a read sees the last write", vec![operation(put(1), 0, 1), operation(Read(Some(1)), 2, 3)], Ok(true)),
            (
                "and not the one before",
                vec![operation(put(1), 0, 1), operation(put(2), 2, 3), operation(Read(Some(1)), 4, 5)],
                Err(2),
            ),
            (
                "of two writes at once, either is the last",
                vec![operation(put(1), 0, 3), operation(put(2), 1, 2), operation(Read(Some(1)), 4, 5)],
                Ok(true),
            ),
            (
                "but the same for all",
                vec![
                    operation(put(1), 0, 3),
                    operation(put(2), 1, 2),
                    operation(Read(Some(1)), 4, 5),
                    operation(Read(Some(2)), 6, 7),
                ],
                Err(3),
            ),
            (
                "a read may be before a write that ends before it",
                vec![operation(Read(None), 0, 5), operation(put(1), 1, 2)],
                Ok(true),
            ),
            (
                "a write without a response may come late",
                vec![
                    operation(put(1), 0, None),
                    operation(Read(None), 1, 2),
                    operation(put(2), 3, 4),
                    operation(Read(Some(1)), 5, 6),
                ],
                Ok(true),
            ),
            (
                "once",
                vec![
                    operation(put(1), 0, None),
                    operation(Read(Some(1)), 1, 2),
                    operation(put(2), 3, 4),
                    operation(Read(Some(1)), 5, 6),
                ],
                Err(3),
            ),
            ("two creations that overlap", vec![operation(Create(1), 0, 5), operation(Create(2), 1, 6)], Err(1)),
            (
                "one of them is told of the other",
                vec![operation(Create(1), 0, 5), operation(Exists(2), 1, 6)],
                Ok(true),
            ),
            ("which has to stand", vec![operation(Exists(2), 1, 6)], Err(0)),
            (
                "a creation that knows its own item",
                vec![operation(Create(1), 0, None), operation(Read(Some(1)), 1, 2), operation(Create(1), 3, 4)],
                Ok(true),
            ),
            (
                "not below another",
                vec![operation(Create(1), 0, None), operation(Create(2), 1, 2), operation(Create(1), 3, 4)],
                Err(2),
            ),
            (
                "a late write is seen, and loses to a creation that had begun",
                vec![
                    operation(put(1), 0, None),
                    operation(Create(2), 1, 6),
                    operation(Read(Some(1)), 2, 3),
                    operation(Read(Some(2)), 7, 8),
                ],
                Ok(true),
            ),
            (
                "not to one that began later",
                vec![operation(put(1), 0, None), operation(Read(Some(1)), 1, 2), operation(Create(2), 3, 4)],
                Err(2),
            ),
            (
                "nor does an acknowledged one, of which a request is still under way",
                vec![operation(Create(1), 0, 3), operation(Create(1), 0, None), operation(Create(2), 1, 6)],
                Err(2),
            ),
            (
                "or to a keyed write that had begun",
                vec![
                    operation(put(1), 0, None),
                    operation(Once(2), 1, 6),
                    operation(Read(Some(1)), 2, 3),
                    operation(Read(Some(2)), 7, 8),
                ],
                Ok(true),
            ),
            (
                "a put that arrives again after a deletion, above what a slower clock has stored since",
                vec![
                    operation(put(1), 0, 1),
                    operation(Late(1, until(5)), 0, None),
                    operation(Set(None), 2, 3),
                    operation(put(2), 4, 5),
                    operation(Read(Some(1)), 6, 7),
                ],
                Ok(true),
            ),
            (
                "not above what was certainly stored later",
                vec![
                    operation(put(1), 0, 1),
                    operation(Late(1, until(4)), 0, None),
                    operation(Set(None), 2, 3),
                    operation(put(2), 4, 5),
                    operation(Read(Some(1)), 6, 7),
                ],
                Err(4),
            ),
            (
                "nor without a deletion",
                vec![
                    operation(put(1), 0, 1),
                    operation(Late(1, until(5)), 0, None),
                    operation(put(2), 4, 5),
                    operation(Read(Some(1)), 6, 7),
                ],
                Err(3),
            ),
            (
                "created again after a deletion",
                vec![operation(Create(1), 0, 1), operation(Set(None), 2, 3), operation(Create(2), 4, 5)],
                Ok(true),
            ),
            (
                "a repeated request changes nothing",
                vec![
                    operation(Once(1), 0, 1),
                    operation(put(2), 2, 3),
                    operation(Once(1), 4, 5),
                    operation(Read(Some(2)), 6, 7),
                ],
                Ok(true),
            ),
            (
                "and undoes nothing",
                vec![
                    operation(Once(1), 0, 1),
                    operation(put(2), 2, 3),
                    operation(Once(1), 4, 5),
                    operation(Read(Some(1)), 6, 7),
                ],
                Err(3),
            ),
        ];
        for (about, operations, expected) in rows {
            assert_eq!(check(&operations), expected, "{about}");
        }
    }

    #[test]
    fn many_requests_without_a_response_take_no_time() {
        let lost = (0..8).map(|n| operation(Kind::Set(Some(n)), n, None));
        let deleted = (0..8).map(|n| operation(Kind::Set(None), n, None));
        let created = (8..16).map(|n| operation(Kind::Create(n), n, None));
        let reads = (0..24).map(|n| operation(Kind::Read((n % 3 > 0).then_some(n % 16)), 1_000 + 2 * n, 1_001 + 2 * n));
        let operations: Vec<_> = lost.chain(deleted).chain(created).chain(reads).collect();
        assert!(check(&operations).is_err_and(|index| index >= 24), "each takes effect once");
    }
}
