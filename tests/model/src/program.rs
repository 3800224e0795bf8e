//! What actors do: each has a program of operations, one after the other.

use super::state::{Key, Value};

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Put(Key, Value),
    /// Create-only.
    Create(Key, Value),
    /// The create-only write before it was told that its outcome is unknown, and its client repeats it under its idempotency key.
    CreateAgain(Key, Value),
    Delete(Key, May),
    /// An update by what was read: it leaves this value where an item stands.
    Swap(Key, Value),
    /// An update in place, which its client may repeat; or may not.
    Add(Key, Value, Keyed),
    /// The update before it was told that its outcome is unknown, and its client repeats it under its idempotency key.
    AddAgain(Key, Value),
    /// A write of an append-only table.
    Append(Key, Value),
    Get(Key),
    /// All sort keys on one page.
    Query,
    /// All sort keys, one item to a page.
    Scan,
    /// Get a view.
    Look,
    /// Close, wait, open.
    Scale(u32),
    /// Find the key's item closing, and take that over.
    TakeOver,
    /// Drain the key, take a drain over, or finish one.
    Drain,
    /// Add a copy of the page, which is not complete.
    AddCopy,
    /// Write what the key's item says to every copy of the page, and mark them as complete.
    Fill,
}

impl Op {
    /// The value that it stores.
    pub(crate) const fn value(self) -> Option<Value> {
        match self {
            Self::Put(_, value)
            | Self::Create(_, value)
            | Self::CreateAgain(_, value)
            | Self::Swap(_, value)
            | Self::Add(_, value, _)
            | Self::AddAgain(_, value)
            | Self::Append(_, value) => Some(value),
            Self::Delete(..)
            | Self::Get(_)
            | Self::Query
            | Self::Scan
            | Self::Look
            | Self::Scale(_)
            | Self::TakeOver
            | Self::Drain
            | Self::AddCopy
            | Self::Fill => None,
        }
    }

    /// The sort key that it is about.
    pub(crate) const fn key(self) -> Option<Key> {
        match self {
            Self::Put(key, _)
            | Self::Create(key, _)
            | Self::CreateAgain(key, _)
            | Self::Swap(key, _)
            | Self::Add(key, _, _)
            | Self::AddAgain(key, _)
            | Self::Append(key, _)
            | Self::Delete(key, _)
            | Self::Get(key) => Some(key),
            Self::Query
            | Self::Scan
            | Self::Look
            | Self::Scale(_)
            | Self::TakeOver
            | Self::Drain
            | Self::AddCopy
            | Self::Fill => None,
        }
    }
}

/// Whether an update has an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keyed {
    Yes,
    No,
}

/// Whether a delete may read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    Look,
    NotLook,
}

/// An actor of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    pub(crate) name: &'static str,
    pub(crate) program: Vec<Op>,
    /// How often a write is sent.
    pub(crate) attempts: u8,
    /// Seconds that its wall clock is ahead.
    pub(crate) ahead: i8,
    /// It may stop for good at any point.
    pub(crate) may_crash: bool,
    /// Time does not pass while it can take a step. Its requests may still be late.
    pub(crate) prompt: bool,
    /// A copy of its drain may have no response; it sends the copy again.
    pub(crate) gives_up: bool,
    /// The copy of the page that it reads.
    pub(crate) copy: usize,
}

impl Cast {
    pub(crate) fn new<const N: usize>(name: &'static str, program: [Op; N]) -> Self {
        Self {
            name,
            program: program.to_vec(),
            attempts: 1,
            ahead: 0,
            may_crash: false,
            prompt: false,
            gives_up: false,
            copy: 0,
        }
    }

    pub(crate) fn sending_twice(self) -> Self {
        Self { attempts: 2, ..self }
    }

    pub(crate) fn ahead_by(self, ahead: i8) -> Self {
        Self { ahead, ..self }
    }

    pub(crate) fn prompt(self) -> Self {
        Self { prompt: true, ..self }
    }

    pub(crate) fn impatient(self) -> Self {
        Self { gives_up: true, ..self }
    }

    pub(crate) fn reads_copy(self, copy: usize) -> Self {
        Self { copy, ..self }
    }

    pub(crate) fn mortal(self) -> Self {
        Self { may_crash: true, ..self }
    }
}
