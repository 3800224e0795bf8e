//! An exact linearizability check for one sort key: whether all returned outcomes can be true.
//!
//! A sort key is a register that is written, created, deleted and read. The monitor keeps every
//! order in which the operations so far can have taken effect, as the value that the order ends in.
//! An operation takes effect once: after it began and, if it got a response, before that response.
//! An operation without a response may take effect at any later time, or never: it stays pending
//! forever.

use std::collections::BTreeSet;

use super::state::Value;

/// The effect of an operation on the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Write(Value),
    CreateOnly(Value),
    Delete,
    /// Replaces an existing value.
    Swap(Value),
    /// Takes an existing value out.
    Take,
    Read,
}

/// The outcome that a caller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Done,
    Exists,
    /// The operation replaced this value, or took it out.
    Swapped(Value),
    /// There was no value to replace or to take out.
    Absent,
    Found(Option<Value>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Pending {
    operation: u8,
    kind: Kind,
}

/// An order of effects: the value it ends in, and the responses due to the pending operations in
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Order {
    value: Option<Value>,
    responses: Vec<(u8, Outcome)>,
}

impl Order {
    fn contains(&self, operation: u8) -> bool {
        self.responses.iter().any(|(other, _)| *other == operation)
    }

    fn then(&self, pending: Pending) -> Self {
        let (value, outcome) = match pending.kind {
            Kind::Write(value) => (Some(value), Outcome::Done),
            Kind::CreateOnly(value) => match self.value {
                None => (Some(value), Outcome::Done),
                Some(existing) => (Some(existing), Outcome::Exists),
            },
            Kind::Delete => (None, Outcome::Done),
            Kind::Swap(value) => match self.value {
                Some(existing) => (Some(value), Outcome::Swapped(existing)),
                None => (None, Outcome::Absent),
            },
            Kind::Take => (None, self.value.map_or(Outcome::Absent, Outcome::Swapped)),
            Kind::Read => (self.value, Outcome::Found(self.value)),
        };
        let mut responses = self.responses.clone();
        responses.push((pending.operation, outcome));
        responses.sort_unstable();
        Self { value, responses }
    }

    fn without(&self, operation: u8) -> Self {
        let responses =
            self.responses.iter().copied().filter(|(other, _)| *other != operation).collect();
        Self { value: self.value, responses }
    }
}

/// The history of one sort key, reduced to what limits later responses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Monitor {
    pending: Vec<Pending>,
    /// The set is closed: it contains every extension of an order by pending operations.
    orders: BTreeSet<Order>,
}

impl Monitor {
    pub(crate) fn starting_with(value: Option<Value>) -> Self {
        Self {
            pending: Vec::new(),
            orders: BTreeSet::from([Order { value, responses: Vec::new() }]),
        }
    }

    /// A caller begins an operation.
    pub(crate) fn invoke(&mut self, operation: u8, kind: Kind) {
        self.pending.push(Pending { operation, kind });
        self.pending.sort_unstable();
        let mut todo: Vec<Order> = self.orders.iter().cloned().collect();
        while let Some(order) = todo.pop() {
            for pending in &self.pending {
                if order.contains(pending.operation) {
                    continue;
                }
                let longer = order.then(*pending);
                if self.orders.insert(longer.clone()) {
                    todo.push(longer);
                }
            }
        }
    }

    /// A caller gets a response: only the orders in which it is true remain.
    pub(crate) fn respond(&mut self, operation: u8, outcome: Outcome) {
        self.pending.retain(|pending| pending.operation != operation);
        let response = (operation, outcome);
        self.orders = self
            .orders
            .iter()
            .filter(|order| order.responses.contains(&response))
            .map(|order| order.without(operation))
            .collect();
    }

    /// Whether an operation has no response yet.
    pub(crate) fn is_pending(&self, operation: u8) -> bool {
        self.pending.iter().any(|pending| pending.operation == operation)
    }

    /// A read ends without a result for this sort key.
    pub(crate) fn cancel(&mut self, operation: u8) {
        self.pending.retain(|pending| pending.operation != operation);
        self.orders = self.orders.iter().map(|order| order.without(operation)).collect();
    }

    /// Whether no order is left: a caller got a wrong response.
    pub(crate) fn is_broken(&self) -> bool {
        self.orders.is_empty()
    }

    /// Whether a read that begins and ends now may return this value.
    pub(crate) fn allows(&self, value: Option<Value>) -> bool {
        self.orders.iter().any(|order| order.value == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a history is linearizable: `None` begins an operation, an outcome ends it.
    fn is_linearizable(first: Option<Value>, steps: &[(u8, Kind, Option<Outcome>)]) -> bool {
        let mut monitor = Monitor::starting_with(first);
        for (operation, kind, outcome) in steps {
            match outcome {
                None => monitor.invoke(*operation, *kind),
                Some(outcome) => monitor.respond(*operation, *outcome),
            }
        }
        !monitor.is_broken()
    }

    #[test]
    fn a_read_after_an_acknowledged_write_must_return_it() {
        let write = Kind::Write('x');
        let read = |found| {
            let steps = [
                (1, write, None),
                (1, write, Some(Outcome::Done)),
                (2, Kind::Read, None),
                (2, Kind::Read, Some(found)),
            ];
            is_linearizable(None, &steps)
        };
        assert!(read(Outcome::Found(Some('x'))));
        assert!(!read(Outcome::Found(None)));
    }

    #[test]
    fn an_unanswered_write_may_take_effect_late_but_only_once() {
        let (late, read) = (Kind::Write('x'), Kind::Read);
        let found = |value| Some(Outcome::Found(Some(value)));
        let mut steps = vec![(1, late, None), (2, read, None), (2, read, found('o'))];
        steps.extend([(3, read, None), (3, read, found('x'))]);
        assert!(is_linearizable(Some('o'), &steps));
        steps.extend([(4, read, None), (4, read, found('o'))]);
        assert!(!is_linearizable(Some('o'), &steps));
    }

    #[test]
    fn of_two_swaps_one_replaces_the_other() {
        let began = [
            (1, Kind::Swap('a'), None),
            (2, Kind::Swap('b'), None),
            (1, Kind::Swap('a'), Some(Outcome::Swapped('x'))),
        ];
        let ended = |outcome| {
            is_linearizable(
                Some('x'),
                &[&began[..], &[(2, Kind::Swap('b'), Some(outcome))]].concat(),
            )
        };
        assert!(ended(Outcome::Swapped('a')));
        assert!(!ended(Outcome::Swapped('x')) && !ended(Outcome::Absent));
    }

    #[test]
    fn of_two_deletions_one_takes_the_value_out() {
        let began = [(1, Kind::Take, None), (2, Kind::Take, None)];
        let ended = |one, two| {
            let ends = [(1, Kind::Take, Some(one)), (2, Kind::Take, Some(two))];
            is_linearizable(Some('x'), &[began, ends].concat())
        };
        assert!(ended(Outcome::Swapped('x'), Outcome::Absent));
        assert!(ended(Outcome::Absent, Outcome::Swapped('x')));
        assert!(!ended(Outcome::Swapped('x'), Outcome::Swapped('x')));
        assert!(!ended(Outcome::Absent, Outcome::Absent));
    }

    #[test]
    fn of_two_creations_one_gets_exists() {
        let (x, y) = (Kind::CreateOnly('x'), Kind::CreateOnly('y'));
        let began = [(1, x, None), (2, y, None), (1, x, Some(Outcome::Done))];
        let ended =
            |outcome| is_linearizable(None, &[&began[..], &[(2, y, Some(outcome))]].concat());
        assert!(ended(Outcome::Exists));
        assert!(!ended(Outcome::Done));
    }
}
