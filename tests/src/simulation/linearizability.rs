//! An exact check: whether the responses of a register can be put into one order, each between its
//! request and its response.
//!
//! The search processes operations in the order of their responses. It keeps every possible state
//! of the register, with the operations in progress that have taken effect in it. An operation
//! takes effect only when a response needs it (G. Lowe, "Testing for linearizability", 2017).
//! Requests without a response may take effect at any later time, or never.
//!
//! One exception is documented: writes without a response may arrive late, at an old place, between
//! another creation's read and its put. They may be read and then lose to that creation, or to the
//! pull of a write with an expression. So both may find what was there when they were sent, or
//! later, before such a write. Another exception is a put or a creation whose item is deleted between
//! two of its attempts: it may be stored again until its response.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The position of an event in the run: requests and responses are numbered in the order in which
/// they happen.
pub(super) type Tick = u64;

/// The effect of an operation, and its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It stores this value, or removes the item.
    Set(Option<u64>),
    /// It stores this value if there is none, and fails if there is another value. Its own value is
    /// success.
    Create(u64),
    /// It stores this value if there is none, and otherwise changes nothing.
    Once(u64),
    /// It finds the first value, or none, and leaves the second one. On anything else it fails.
    Swap(Option<u64>, Option<u64>),
    /// It replaces any value by this one, or removes the item, and fails if there is none.
    Over(Option<u64>),
    /// It adds this number to the value, or stores it.
    Add(u64),
    /// Its response is that the value is not this one; there may be none.
    Differs(u64),
    /// Its response is that there is another value than this one.
    Exists(u64),
    /// It read this value, or none.
    Read(Option<u64>),
    /// It was rejected and changed nothing.
    Nothing,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) sent: Tick,
    /// `None` without a response.
    pub(super) ended: Option<Tick>,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = self.ended.map(|ended| ended.to_string()).unwrap_or_default();
        write!(f, "{}..{ended} {:?}", self.sent, self.kind)
    }
}

impl Kind {
    /// The value afterwards; `None` if it cannot take effect on this value.
    pub(super) fn applied(self, value: Option<u64>) -> Option<Option<u64>> {
        match self {
            Self::Set(left) => Some(left),
            Self::Create(own) => (value.is_none() || value == Some(own)).then_some(Some(own)),
            Self::Once(own) => Some(value.or(Some(own))),
            Self::Swap(from, to) => (value == from).then_some(to),
            Self::Over(left) => value.is_some().then_some(left),
            Self::Add(more) => Some(Some(value.unwrap_or_default() + more)),
            Self::Differs(from) => (value != Some(from)).then_some(value),
            Self::Exists(own) => value.is_some_and(|value| value != own).then_some(value),
            Self::Read(seen) => (value == seen).then_some(value),
            Self::Nothing => None,
        }
    }

    /// Whether it is a write with an expression, which may pull the item home.
    const fn is_expression(self) -> bool {
        matches!(self, Self::Swap(..) | Self::Over(_) | Self::Add(_))
    }

    /// Whether it changes nothing, so that it may take effect as early as possible.
    const fn only_reads(self) -> bool {
        matches!(self, Self::Differs(_) | Self::Exists(_) | Self::Read(_) | Self::Nothing)
    }
}

/// A state that the register can be in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    value: Option<u64>,
    /// The values that only requests without a response have replaced, and when each was there last.
    /// A creation that was sent before may have found nothing, and the pull of a write with an
    /// expression any of them.
    replaced: BTreeMap<Option<u64>, Tick>,
    /// The operations in progress that have taken effect.
    done: BTreeSet<usize>,
}

struct Search<'a> {
    operations: &'a [Operation],
    /// From this index on, the operations are second attempts, which may take effect until they end.
    second: usize,
    has_expressions: bool,
    /// Requests that were sent and have not ended yet.
    under_way: BTreeSet<usize>,
    states: Vec<State>,
    /// The current event.
    now: Tick,
}

/// The limit of states. Many requests without a response allow too many orders to search.
const MOST_STATES: usize = 400;

/// Checks the operations on one register, which begins empty. `false` if they allow too many orders
/// to decide.
///
/// # Errors
/// The index of the first operation, by the order of responses, whose response fits no order.
pub(super) fn check(operations: &[Operation]) -> Result<bool, usize> {
    let second = operations.len();
    let operations = &[operations, &repeated_puts(operations)].concat()[..];
    let mut events: Vec<(Tick, bool, usize)> = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        events.push((operation.sent, false, index));
        events.extend(operation.ended.map(|ended| (ended, true, index)));
    }
    events.sort_unstable();
    let empty = State { value: None, replaced: BTreeMap::new(), done: BTreeSet::new() };
    let has_expressions = operations.iter().any(|operation| operation.kind.is_expression());
    let mut search = Search {
        operations,
        second,
        has_expressions,
        under_way: BTreeSet::new(),
        states: vec![empty],
        now: 0,
    };
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

/// The puts and creations with a response during which a whole deletion takes place.
fn repeated_puts(operations: &[Operation]) -> Vec<Operation> {
    let is_deletion = |operation: &&Operation| {
        matches!(operation.kind, Kind::Set(None) | Kind::Swap(_, None) | Kind::Over(None))
    };
    let deletions: Vec<&Operation> = operations.iter().filter(is_deletion).collect();
    let is_repeated = |put: &&Operation| {
        matches!(put.kind, Kind::Set(Some(_)) | Kind::Create(_))
            && deletions.iter().any(|deletion| {
                put.sent < deletion.sent && deletion.ended.is_some() && deletion.ended < put.ended
            })
    };
    operations.iter().filter(is_repeated).copied().collect()
}

impl Search<'_> {
    fn begin(&mut self, index: usize) {
        self.under_way.insert(index);
        let kind = self.operations[index].kind;
        for state in &mut self.states {
            if kind.only_reads() && kind.applied(state.value).is_some() {
                state.done.insert(index);
            }
        }
    }

    /// Keeps the states in which the operation has taken effect by now; `false` if there are too
    /// many.
    fn end(&mut self, index: usize) -> bool {
        let mut kept = Vec::new();
        for state in std::mem::take(&mut self.states) {
            let reachable = self.reachable(state, index);
            if reachable.len().max(kept.len()) > MOST_STATES {
                return false;
            }
            for before in reachable {
                let mut reached = Vec::new();
                if !before.done.contains(&index) {
                    reached = self.steps(&before, index);
                }
                if before.done.contains(&index) || index >= self.second {
                    reached.push(before);
                }
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

    /// This state, and the states that other operations in progress lead to before this one takes
    /// effect.
    fn reachable(&self, state: State, index: usize) -> Vec<State> {
        if state.done.contains(&index) {
            return vec![state];
        }
        let (mut found, mut next) = (vec![state], 0);
        while let Some(state) = found.get(next).cloned()
            && found.len() <= MOST_STATES
        {
            next += 1;
            for undone in self.undone(&state) {
                self.add(&mut found, undone);
            }
            let under_way = self.under_way.iter();
            for other in under_way.filter(|other| **other != index && !state.done.contains(other)) {
                if !self.operations[*other].kind.only_reads() && !self.has_twin(*other, &state) {
                    for reached in self.steps(&state, *other) {
                        self.add(&mut found, reached);
                    }
                }
            }
        }
        found
    }

    /// The states after a pull of what late writes have replaced. A write with an expression has read
    /// it before, and may itself take effect later, or never.
    fn undone(&self, state: &State) -> Vec<State> {
        let under_way = self.under_way.iter().map(|index| self.operations[*index]);
        let pulls = under_way.filter(|operation| operation.kind.is_expression());
        let first_pull = pulls.map(|operation| operation.sent).min();
        state
            .replaced
            .iter()
            .filter(|(_, until)| first_pull.is_some_and(|sent| sent < **until))
            .map(|(value, _)| State {
                value: *value,
                replaced: BTreeMap::new(),
                done: state.done.union(&self.reads_of(*value)).copied().collect(),
            })
            .collect()
    }

    /// What is under way, changes nothing, and fits this value.
    fn reads_of(&self, value: Option<u64>) -> BTreeSet<usize> {
        let fits = |index: &&usize| {
            let kind = self.operations[**index].kind;
            kind.only_reads() && kind.applied(value).is_some()
        };
        self.under_way.iter().filter(fits).copied().collect()
    }

    /// Whether an earlier request with the same effect is also optional and has not taken effect.
    /// The search then needs to try only that one.
    fn has_twin(&self, index: usize, state: &State) -> bool {
        let operation = self.operations[index];
        operation.ended.is_none()
            && self.under_way.range(..index).any(|other| {
                let twin = self.operations[*other];
                twin.kind == operation.kind && twin.ended.is_none() && !state.done.contains(other)
            })
    }

    /// The states that this operation can lead to; none if it cannot take effect.
    fn steps(&self, state: &State, index: usize) -> Vec<State> {
        let operation = self.operations[index];
        let mut values: Vec<Option<u64>> =
            operation.kind.applied(state.value).into_iter().collect();
        if let Kind::Create(own) | Kind::Once(own) = operation.kind
            && state.value != Some(own)
            && state.replaced.get(&None).is_some_and(|until| *until > operation.sent)
        {
            values.push(Some(own));
        }
        values.into_iter().map(|value| self.reached(state, value, index)).collect()
    }

    fn reached(&self, state: &State, value: Option<u64>, index: usize) -> State {
        let operation = self.operations[index];
        let is_acknowledged = operation.ended.is_some()
            && matches!(
                operation.kind,
                Kind::Set(_) | Kind::Create(_) | Kind::Swap(..) | Kind::Over(_) | Kind::Add(_)
            );
        let is_late = operation.ended.is_none();
        let mut replaced = match value == state.value || is_late {
            true if !is_acknowledged => state.replaced.clone(),
            _ => BTreeMap::new(),
        };
        if is_late && value != state.value && (self.has_expressions || state.value.is_none()) {
            replaced.insert(state.value, self.now);
        }
        let mut done: BTreeSet<usize> = state.done.union(&self.reads_of(value)).copied().collect();
        done.insert(index);
        State { value, replaced, done }
    }

    /// Adds a state, unless a known state allows everything that it allows.
    fn add(&self, states: &mut Vec<State>, state: State) {
        if !states.iter().any(|known| self.allows_as_much(known, &state)) {
            states.push(state);
        }
    }

    /// Whether the first state allows everything that the second allows: it has the same value; late
    /// writes have replaced the same, at the same time or later; the same required writes have taken
    /// effect, no additional optional ones, and at least the same reads.
    fn allows_as_much(&self, one: &State, other: &State) -> bool {
        let may_stay =
            |index: &usize| *index >= self.second || self.operations[*index].ended.is_none();
        let reads = |index: &usize| self.operations[*index].kind.only_reads();
        one.value == other.value
            && other.replaced.iter().all(|(value, until)| one.replaced.get(value) >= Some(until))
            && one.done.difference(&other.done).all(reads)
            && other.done.difference(&one.done).all(may_stay)
    }
}

#[cfg(test)]
mod tests {
    use super::Kind::{Add, Create, Differs, Exists, Once, Over, Read, Set, Swap};
    use super::*;

    /// The end of an operation without a response.
    const NEVER: Tick = Tick::MAX;

    /// Operations by their kinds, and when they were sent and ended.
    fn checked(operations: &[(Kind, Tick, Tick)]) -> Result<bool, usize> {
        let ended = |tick: Tick| Some(tick).filter(|tick| *tick < NEVER);
        let operations =
            operations.iter().map(|&(kind, sent, end)| Operation { kind, sent, ended: ended(end) });
        check(&operations.collect::<Vec<_>>())
    }

    const fn put(value: u64) -> Kind {
        Set(Some(value))
    }

    const fn read(value: u64) -> Kind {
        Read(Some(value))
    }

    const fn swap(from: u64, to: u64) -> Kind {
        Swap(Some(from), Some(to))
    }

    #[track_caller]
    fn passes(operations: &[(Kind, Tick, Tick)]) {
        assert_eq!(checked(operations), Ok(true));
    }

    /// The last operation fits no order.
    #[track_caller]
    fn fails(operations: &[(Kind, Tick, Tick)]) {
        assert_eq!(checked(operations), Err(operations.len() - 1));
    }

    /// Those that are not in every run of the simulation.
    #[test]
    fn linearizable_histories_pass() {
        // A late addition is read, and a pull that had begun undoes it.
        passes(&[
            (put(5), 0, 1),
            (Add(1), 2, NEVER),
            (Add(1), 3, NEVER),
            (read(6), 4, 5),
            (read(5), 6, 7),
        ]);
        // Several late additions are read, and a pull that had begun undoes them.
        passes(&[
            (put(5), 0, 1),
            (Add(1), 2, NEVER),
            (Add(1), 3, NEVER),
            (Add(1), 4, NEVER),
            (read(6), 5, 6),
            (read(7), 7, 8),
            (read(5), 9, 10),
        ]);
        // A put or a creation whose item is deleted meanwhile may be stored again until its response.
        for write in [put(1), Create(1)] {
            passes(&[
                (write, 0, 7),
                (read(1), 1, 2),
                (Swap(Some(1), None), 3, 4),
                (Read(None), 5, 6),
                (read(1), 8, 9),
            ]);
        }
        // A write without a response may take effect late.
        passes(&[(put(1), 0, NEVER), (Read(None), 1, 2), (put(2), 3, 4), (read(1), 5, 6)]);
        // A repeated creation recognizes its own item.
        passes(&[(Create(1), 0, NEVER), (read(1), 1, 2), (Create(1), 3, 4)]);
        // A late write is read, and then loses to a creation that had begun.
        passes(&[(put(1), 0, NEVER), (Create(2), 1, 6), (read(1), 2, 3), (read(2), 7, 8)]);
        // A late write is read, and then loses to a keyed write that had begun.
        passes(&[(put(1), 0, NEVER), (Once(2), 1, 6), (read(1), 2, 3), (read(2), 7, 8)]);
        // A repeated keyed request changes nothing.
        passes(&[(Once(1), 0, 1), (put(2), 2, 3), (Once(1), 4, 5), (read(2), 6, 7)]);
    }

    #[test]
    fn other_histories_fail() {
        // Two changes of the same value are not both applied.
        fails(&[(put(1), 0, 1), (swap(1, 2), 2, 4), (swap(1, 3), 3, 5)]);
        // A change is not rejected without another change.
        fails(&[(put(1), 0, 1), (Differs(1), 2, 3)]);
        // A write returns the value that it has replaced.
        fails(&[(put(1), 0, 1), (Swap(Some(1), None), 2, 3), (swap(1, 2), 4, 5)]);
        // An item is replaced only if there is one.
        fails(&[(Over(Some(1)), 0, 1)]);
        // A lost addition is made once or never.
        fails(&[(Add(1), 0, NEVER), (swap(1, 2), 1, 2), (read(2), 3, 4), (read(3), 5, 6)]);
        // A pull does not undo a late addition that it has found.
        fails(&[
            (put(5), 0, 1),
            (Add(1), 2, NEVER),
            (Add(1), 3, NEVER),
            (read(6), 4, 5),
            (Add(1), 6, NEVER),
            (read(7), 7, 8),
            (read(8), 9, 10),
            (read(6), 11, 12),
            (read(5), 13, 14),
        ]);
        // A pull does not undo an addition with a response.
        fails(&[(put(5), 0, 1), (Add(1), 2, NEVER), (swap(5, 6), 3, 4), (read(5), 5, 6)]);
        // Two additions do not both find the same sum beside a lost one.
        fails(&[(put(4), 0, 1), (Add(1), 2, NEVER), (swap(4, 5), 3, 4), (swap(4, 5), 5, 6)]);
        // A read does not return the write before the last.
        fails(&[(put(1), 0, 1), (put(2), 2, 3), (read(1), 4, 5)]);
        // Neither is stored again after its response.
        for write in [put(1), Create(1)] {
            fails(&[
                (write, 0, 5),
                (read(1), 1, 2),
                (Swap(Some(1), None), 3, 4),
                (Read(None), 6, 7),
                (read(1), 8, 9),
            ]);
        }
        // A put is not stored again after a deletion that follows its response.
        fails(&[(put(1), 0, 3), (Set(None), 2, 4), (Set(None), 5, 6), (read(1), 7, 8)]);
        // All reads agree on the last of two concurrent writes.
        fails(&[(put(1), 0, 3), (put(2), 1, 2), (read(1), 4, 5), (read(2), 6, 7)]);
        // A write without a response takes effect only once.
        fails(&[(put(1), 0, NEVER), (read(1), 1, 2), (put(2), 3, 4), (read(1), 5, 6)]);
        // Two concurrent creations do not both succeed.
        fails(&[(Create(1), 0, 5), (Create(2), 1, 6)]);
        // A creation does not fail without an existing item.
        fails(&[(Exists(2), 1, 6)]);
        // A repeated creation does not succeed below another one.
        fails(&[(Create(1), 0, NEVER), (Create(2), 1, 2), (Create(1), 3, 4)]);
        // A late write does not lose to a creation that began later.
        fails(&[(put(1), 0, NEVER), (read(1), 1, 2), (Create(2), 3, 4)]);
        // A creation does not succeed once it can have found a late write.
        fails(&[
            (put(1), 0, NEVER),
            (put(3), 1, NEVER),
            (read(1), 2, 3),
            (read(3), 5, 6),
            (Create(2), 4, 9),
        ]);
        // An acknowledged creation does not lose, even with another request in flight.
        fails(&[(Create(1), 0, 3), (Create(1), 0, NEVER), (Create(2), 1, 6)]);
        // A repeated keyed request undoes nothing.
        fails(&[(Once(1), 0, 1), (put(2), 2, 3), (Once(1), 4, 5), (read(1), 6, 7)]);
    }

    #[test]
    fn many_requests_without_a_response_take_no_time() {
        let lost = (0..8).map(|n| (put(n), n, NEVER));
        let deleted = (0..8).map(|n| (Set(None), n, NEVER));
        let created = (8..16).map(|n| (Create(n), n, NEVER));
        let reads =
            (0..24).map(|n| (Read((n % 3 > 0).then_some(n % 16)), 1_000 + 2 * n, 1_001 + 2 * n));
        let operations: Vec<_> = lost.chain(deleted).chain(created).chain(reads).collect();
        let first = checked(&operations);
        assert!(first.is_err_and(|index| index >= 24), "each write takes effect once");
    }
}
