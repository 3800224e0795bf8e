//! What the actors of a scenario do, one operation after the other.

use std::fmt;

use super::state::{Value, View};

/// An operation of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Refreshes the view of the key, as background work does.
    Look,
    Write(WriteOp),
    Read(ReadOp),
    Register,
    ScaleOut {
        to: u8,
    },
    TakeOver,
    Shrink {
        to: u8,
    },
    Settle,
    Migrate,
    StopDrain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteOp {
    pub(crate) kind: WriteKind,
    pub(crate) sort_key: u8,
    pub(crate) value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    Append,
    Put,
    CreateOnly,
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOp {
    Get {
        sort_key: u8,
    },
    /// All items in one page.
    Query,
    /// Pages of one item, by cursor, to the end.
    Scan,
}

impl Op {
    pub(crate) fn as_write(self) -> Option<WriteOp> {
        if let Self::Write(op) = self { Some(op) } else { None }
    }

    pub(crate) fn as_read(self) -> Option<ReadOp> {
        if let Self::Read(op) = self { Some(op) } else { None }
    }

    pub(crate) fn append(sort_key: u8, value: Value) -> Self {
        Self::Write(WriteOp { kind: WriteKind::Append, sort_key, value })
    }

    pub(crate) fn put(value: Value) -> Self {
        Self::Write(WriteOp { kind: WriteKind::Put, sort_key: 0, value })
    }

    pub(crate) fn create_only(value: Value) -> Self {
        Self::Write(WriteOp { kind: WriteKind::CreateOnly, sort_key: 0, value })
    }

    pub(crate) fn delete() -> Self {
        Self::Write(WriteOp { kind: WriteKind::Delete, sort_key: 0, value: '-' })
    }

    pub(crate) fn get() -> Self {
        Self::Read(ReadOp::Get { sort_key: 0 })
    }

    pub(crate) fn query() -> Self {
        Self::Read(ReadOp::Query)
    }

    pub(crate) fn scan() -> Self {
        Self::Read(ReadOp::Scan)
    }
}

impl fmt::Display for WriteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Append => "append",
            Self::Put => "put",
            Self::CreateOnly => "create-only",
            Self::Delete => "delete",
        })
    }
}

impl fmt::Display for ReadOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get { .. } => "get",
            Self::Query => "query",
            Self::Scan => "scan",
        })
    }
}

/// An actor with its program.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    pub(crate) name: &'static str,
    pub(crate) program: Vec<Op>,
    /// What it knows of the key when the scenario begins.
    pub(crate) view: Option<View>,
    /// How far ahead its clock is when it takes a version.
    pub(crate) clock_ahead: u8,
    /// How often it sends a write that has no answer.
    pub(crate) attempts: u8,
    /// It may die, said aloud. Every actor may stop in silence: it just takes no more steps.
    pub(crate) may_crash: bool,
}

impl Cast {
    pub(crate) fn new<const N: usize>(name: &'static str, program: [Op; N]) -> Self {
        Self { name, program: program.to_vec(), view: None, clock_ahead: 0, attempts: 1, may_crash: false }
    }

    pub(crate) fn with_view(self, view: View) -> Self {
        Self { view: Some(view), ..self }
    }

    pub(crate) fn with_clock_ahead(self, clock_ahead: u8) -> Self {
        Self { clock_ahead, ..self }
    }

    pub(crate) fn sending_twice(self) -> Self {
        Self { attempts: 2, ..self }
    }

    pub(crate) fn mortal(self) -> Self {
        Self { may_crash: true, ..self }
    }
}
