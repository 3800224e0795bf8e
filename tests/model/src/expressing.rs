//! Writes with an expression: the driver of [`ExpressedWrite`], and what DynamoDB does with its
//! requests. The client requires an item, requires that there is none, or has no condition.

use std::sync::Arc;

use sharding::ShardNumber;
use sharding::internal::protocol::copies::{Answer, Copy, Effect, Request};
use sharding::internal::protocol::expressed::{
    self, Action, Base, ExpressedWrite, Operation, Outcome,
};
use sharding::internal::protocol::progress::{self, Under};
use sharding::internal::protocol::version::Version;
use sharding::internal::protocol::write::{self, Write};

use super::monitor::Kind;
use super::state::{Content, Key, Stored, Value, Writing, index};
use super::{Turn, Weakened};

/// The state machine of a write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Machine {
    Plain(Write),
    Expressed(Expressed),
}

/// A write with an expression, and what its driver remembers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expressed {
    write: ExpressedWrite,
    expects: Expects,
    /// The copies that it has read. One of them may be pulled.
    copies: Vec<(ShardNumber, Stored)>,
    /// The version of its pull. Used only if the write takes that version, too.
    pulled: Option<Version>,
}

/// The client's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Expects {
    Item,
    NoItem,
    /// There is no condition, or one that always holds.
    Anything,
}

impl Expects {
    /// Whether the condition holds. It names the keys, which a tombstone has. So it takes a
    /// tombstone for an item, except in a request that hides the tombstone's keys.
    fn holds(self, stored: Option<&Copy>, base: Base) -> bool {
        let hides_keys = matches!(base, Base::Tombstone(_));
        let finds = stored.is_some_and(|copy| !(copy.is_tombstone && hides_keys));
        match self {
            Self::Item => finds,
            Self::NoItem => !finds,
            Self::Anything => true,
        }
    }
}

/// A request about an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    Plain(Request),
    Expressed {
        request: expressed::Request,
        expects: Expects,
        /// The copy that a pull brings home.
        pulled: Option<Box<Stored>>,
    },
}

impl Asked {
    /// Whether it is a plain deletion that leaves nothing.
    pub(crate) fn removes(&self) -> bool {
        matches!(self, Self::Plain(Request { effect: Effect::Remove, .. }))
    }
}

/// The next step of a write.
pub(crate) type Next = progress::Next<Asked, Outcome>;

/// How a plain write has ended, in the words of one with an expression.
pub(crate) const fn ended(outcome: write::Outcome) -> Outcome {
    match outcome {
        write::Outcome::Done => Outcome::Applied { on_item: true },
        write::Outcome::Declined => Outcome::Refused { on_item: false },
        write::Outcome::Exists => Outcome::Refused { on_item: true },
        write::Outcome::Unknown(_) => Outcome::Unknown,
        write::Outcome::Lost | write::Outcome::KeyReused => Outcome::Lost,
    }
}

impl Machine {
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Plain(write) => write.is_over(),
            Self::Expressed(expressed) => expressed.write.is_over(),
        }
    }

    pub(crate) fn next(&mut self, under: Under<'_>) -> Next {
        match self {
            Self::Plain(write) => step(write.next(under), Asked::Plain, ended),
            Self::Expressed(expressed) => step(
                expressed.write.next(under),
                |request| expressed.asked(request),
                |outcome| outcome,
            ),
        }
    }

    /// Takes the copies at the item's places.
    pub(crate) fn read(&mut self, copies: Vec<(ShardNumber, Stored)>, under: Under<'_>) {
        let read: Vec<(ShardNumber, Copy)> =
            copies.iter().map(|(place, stored)| (*place, stored.copy.clone())).collect();
        match self {
            Self::Plain(write) => write.read(&read, under),
            Self::Expressed(expressed) => {
                expressed.write.read(&read, under);
                expressed.copies = copies;
            }
        }
    }

    pub(crate) fn answered(&mut self, asked: &Asked, answer: Answer, under: Under<'_>) {
        match (self, asked) {
            (Self::Plain(write), Asked::Plain(request)) => {
                write.answered(request, answer, under);
            }
            (Self::Expressed(expressed), Asked::Expressed { request, .. }) => {
                expressed.write.answered(request, answer, under);
            }
            _ => unreachable!("each sends its own requests"),
        }
    }
}

/// The next step of either state machine.
fn step<R, O>(
    next: progress::Next<R, O>,
    asked: impl FnOnce(R) -> Asked,
    ended: impl FnOnce(O) -> Outcome,
) -> Next {
    match next {
        progress::Next::Look(since) => Next::Look(since),
        progress::Next::Verify(since) => Next::Verify(since),
        progress::Next::Pause => Next::Pause,
        progress::Next::Read => Next::Read,
        progress::Next::Send(request) => Next::Send(asked(request)),
        progress::Next::Done(outcome) => Next::Done(ended(outcome)),
    }
}

impl Expressed {
    fn asked(&mut self, request: expressed::Request) -> Asked {
        // What was read is needed for a pull only, and for one.
        let copies = std::mem::take(&mut self.copies);
        let pulls =
            |place: ShardNumber| matches!(&request.action, Action::Pull(from, _) if *from == place);
        let pulled = copies.into_iter().find(|(place, _)| pulls(*place));
        let pulled = pulled.map(|(_, copy)| Box::new(copy));
        Asked::Expressed { request, expects: self.expects, pulled }
    }
}

impl Turn<'_> {
    pub(crate) fn begin_expressed(
        &mut self,
        value: Value,
        operation: Operation,
        expects: Expects,
    ) -> Option<()> {
        self.ensure_armed()?;
        self.invoke(self.key(), does(value, operation, expects));
        let write = ExpressedWrite::new(operation, self.waits_of_writers(), self.tie_breaker());
        let expressed = Expressed { write, expects, copies: Vec::new(), pulled: None };
        let (write, content) = (Machine::Expressed(expressed), Content::of(Some(value)));
        self.next_write(Writing { write, attempts: self.attempts(), content, once: None })
    }

    /// The request as it is sent: without what a weakened rule drops.
    pub(crate) fn as_sent(&self, expressed: &mut Expressed, mut asked: Asked) -> Asked {
        let Asked::Expressed { request, .. } = &mut asked else { return asked };
        if let Base::OfEra(_, below) = request.base
            && self.weakened.expressions_need_their_era
        {
            request.base = below.map_or(Base::Item, Base::AbsentOrBelow);
        }
        if let (Base::Exactly(_), Action::Update { raises, .. }) =
            (request.base, &mut request.action)
        {
            *raises |= self.weakened.expressions_leave_earlier_eras;
        }
        if !self.weakened.pulls_have_own_version {
            return asked;
        }
        if let Action::Pull(_, version) = request.action {
            expressed.pulled = Some(version);
        } else if let Some(pulled) = expressed.pulled {
            match &mut request.action {
                Action::Put(version) | Action::Bury { version, .. } => *version = pulled,
                Action::Update { version, raises } => (*version, *raises) = (pulled, false),
                Action::Remove | Action::Nothing | Action::Pull(..) => {}
            }
            if let Base::OfEra(_, below) = &mut request.base {
                *below = None;
            }
        }
        asked
    }

    /// DynamoDB applies a request of a write with an expression, if its whole condition holds.
    pub(crate) fn apply_expressed(
        &mut self,
        (place, key): (ShardNumber, Key),
        value: Option<Value>,
        (request, expects, pulled): (&expressed::Request, Expects, Option<&Stored>),
    ) -> Answer {
        let cell = &mut Arc::make_mut(&mut self.state.table[usize::from(key)])[index(place)];
        let existing = cell.as_ref().map(|stored| &stored.copy);
        let is_pull = matches!(request.action, Action::Pull(..));
        if !self.weakened.our_part_holds(request, existing)
            || !(is_pull || expects.holds(existing, request.base))
        {
            return Answer::Refused(existing.cloned());
        }
        let base = cell.as_ref().and_then(|stored| stored.value).filter(|_| !is_pull);
        let stored = |version: Version, value, write_id| {
            Stored::new(version, value, (write_id, request.marks.late_until))
        };
        *cell = match &request.action {
            Action::Put(version) => Some(stored(*version, value, None)),
            Action::Bury { version, write_id, .. } => {
                let keeps = !self.weakened.tombstones_keep_write_id;
                Some(stored(*version, None, write_id.clone().filter(|_| keeps)))
            }
            Action::Remove | Action::Nothing => None,
            Action::Update { version, raises } => {
                let before = cell.take().map(|stored| stored.copy);
                let mut copy = before.unwrap_or_else(|| stored(Version::NONE, value, None).copy);
                copy.version = match copy.version {
                    _ if !raises => *version,
                    Version::NONE => version.stepped(),
                    stored => stored.stepped(),
                };
                if matches!(request.base, Base::Tombstone(_)) && !raises {
                    copy.is_tombstone = false;
                }
                let value = value.filter(|_| !copy.is_tombstone);
                Some(Stored { copy, value })
            }
            Action::Pull(_, version) => pulled.cloned().map(|Stored { copy, value }| Stored {
                copy: Copy { version: *version, ..copy },
                value,
            }),
        };
        self.state.note_replaced(value, base);
        Answer::Applied
    }
}

impl Weakened {
    fn our_part_holds(&self, request: &expressed::Request, stored: Option<&Copy>) -> bool {
        match (&request.action, request.base) {
            (Action::Bury { .. } | Action::Remove, _) if self.expressed_deletions_have_base => true,
            (Action::Pull(..), _) if self.pulls_need_home_unchanged => true,
            (Action::Update { .. }, Base::AbsentOrItem | Base::Item | Base::OfEra(..))
                if self.expressions_refuse_tombstones =>
            {
                let shown = stored.map(|copy| Copy { is_tombstone: false, ..copy.clone() });
                request.holds(shown.as_ref())
            }
            _ => request.holds(stored),
        }
    }
}

/// What the write does to the register.
pub(crate) const fn does(value: Value, operation: Operation, expects: Expects) -> Kind {
    match (operation, expects) {
        (Operation::Put | Operation::Update { creates: true }, Expects::Anything) => {
            Kind::Write(value)
        }
        (Operation::Put | Operation::Update { .. }, Expects::NoItem) => Kind::CreateOnly(value),
        (Operation::Put | Operation::Update { .. }, Expects::Item | Expects::Anything) => {
            Kind::Swap(value)
        }
        (Operation::Delete, Expects::Item | Expects::NoItem) => Kind::Take,
        (Operation::Delete, Expects::Anything) => Kind::Delete,
    }
}
