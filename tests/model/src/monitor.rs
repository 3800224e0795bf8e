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
        let true_in = self.orders.iter().filter(|order| order.responses.contains(&response));
        self.orders = true_in.map(|order| order.without(operation)).collect();
    }

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

    #[test]
    fn one_of_two_deletions_takes_the_value_out() {
        let may_end = |first, second| {
            let mut monitor = Monitor::starting_with(Some('x'));
            [1, 2].iter().for_each(|operation| monitor.invoke(*operation, Kind::Take));
            monitor.respond(1, first);
            monitor.respond(2, second);
            !monitor.is_broken()
        };
        let (took, nothing) = (Outcome::Swapped('x'), Outcome::Absent);
        assert!(may_end(took, nothing) && may_end(nothing, took));
        assert!(!may_end(took, took) && !may_end(nothing, nothing));
    }
}
