//! The actors' programs: each actor runs one operation after another.

use sharding::internal::protocol::expressed::Operation;

use super::expressing::Expects;
use super::state::{Key, Value};

/// One operation. A write concerns its actor's sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Put(Value),
    /// Create-only.
    Create(Value),
    /// A client repeats the create-only write before this one, which had an unknown outcome, under
    /// its idempotency key.
    CreateAgain(Value),
    Delete {
        may_look: bool,
    },
    /// A read-modify-write update: it replaces an existing item by this value.
    Swap(Value),
    /// An update in place, and whether it has an idempotency key, under which its client may repeat
    /// it.
    Add(Value, bool),
    /// A client repeats the update before this one, which had an unknown outcome, under its
    /// idempotency key.
    AddAgain(Value),
    /// A write with an expression. The value of a deletion identifies it.
    Express(Value, Operation, Expects),
    /// A write of an append-only table.
    Append(Value),
    Get(Key),
    /// All sort keys on one page.
    Query,
    /// All sort keys, with one item per page.
    Scan,
    /// Get a view.
    Look,
    /// Close, wait, open.
    Scale(u32),
    /// Find the key closing, and take the closing over.
    TakeOver,
    /// Drain the key, take a drain over, or finish one.
    Drain,
    /// Add an incomplete copy of the page.
    AddCopy,
    /// Write the metadata item to every copy of the page, and mark the copies as complete.
    Fill,
    /// Arm the key, in two steps.
    Arm,
    /// Disarm the key.
    Disarm,
    /// Another program writes the item, without a version.
    Plain(Value),
    /// Replace one more of the first copies by a mark that its entries are on the last copy. Once
    /// all are replaced, they are written no more.
    Move,
}

impl Op {
    /// The value that the operation stores.
    pub(crate) const fn value(self) -> Option<Value> {
        if let Self::Put(value)
        | Self::Create(value)
        | Self::CreateAgain(value)
        | Self::Swap(value)
        | Self::Add(value, _)
        | Self::AddAgain(value)
        | Self::Append(value)
        | Self::Plain(value)
        | Self::Express(value, Operation::Put | Operation::Update { .. }, _) = self
        {
            Some(value)
        } else {
            None
        }
    }
}

/// An actor of a scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cast {
    pub(crate) name: &'static str,
    pub(crate) program: Vec<Op>,
    /// The sort key of its writes.
    pub(crate) key: Key,
    /// The number of times that a write is sent.
    pub(crate) attempts: u8,
    /// The number of seconds by which its wall clock is ahead.
    pub(crate) ahead: i8,
    /// It may crash at any point.
    pub(crate) may_crash: bool,
    /// Time stops while it can take a step. Its requests may still be late.
    pub(crate) prompt: bool,
    /// A copy request of its drain may get no response; then it sends the request again.
    pub(crate) gives_up: bool,
    /// The copy of the page that it reads.
    pub(crate) copy: usize,
}

impl Cast {
    pub(crate) fn new<const N: usize>(name: &'static str, program: [Op; N]) -> Self {
        Self { name, program: program.to_vec(), attempts: 1, ..Self::default() }
    }

    pub(crate) fn sending(self, attempts: u8) -> Self {
        Self { attempts, ..self }
    }

    pub(crate) fn ahead_by(self, ahead: i8) -> Self {
        Self { ahead, ..self }
    }

    pub(crate) fn prompt(self) -> Self {
        Self { prompt: true, ..self }
    }

    pub(crate) fn reads_copy(self, copy: usize) -> Self {
        Self { copy, ..self }
    }

    pub(crate) fn mortal(self) -> Self {
        Self { may_crash: true, ..self }
    }
}
