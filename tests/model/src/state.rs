//! What the modelled world consists of: plain data, small and ordered, so that equal states are found equal.

use std::fmt;
use std::sync::Arc;

use super::monitor::Monitor;

/// A value that a write brings. Every write of a scenario brings its own, so a value also says which write brought it.
pub(crate) type Value = char;

/// The shard of a sort key under a width, for the two sort keys and the widths 1 to 4. As with a jump hash, a growing width moves an item
/// only onto new shards.
const HOMES: [[u8; 4]; 2] = [[1, 2, 2, 4], [1, 1, 3, 3]];

/// The shard of a sort key under a width.
pub(crate) fn home(sort_key: u8, width: u8) -> u8 {
    HOMES[usize::from(sort_key)][usize::from(width) - 1]
}

/// Where the items of a table that is adopted stand that were stored before it was sharded: under the bare partition key.
pub(crate) const BARE: u8 = 0;

/// A set of small numbers: shards, widths, or sort keys.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Few(u16);

impl Few {
    /// The highest member that fits.
    pub(crate) const LAST: u8 = 15;

    pub(crate) fn up_to(last: u8) -> Self {
        (1..=last).collect()
    }

    pub(crate) fn contains(self, member: u8) -> bool {
        self.0 & (1u16 << member) != 0
    }

    pub(crate) fn with(self, member: u8) -> Self {
        Self(self.0 | (1u16 << member))
    }

    pub(crate) fn without(self, member: u8) -> Self {
        Self(self.0 & !(1u16 << member))
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        (0..=Self::LAST).filter(move |member| self.contains(*member))
    }
}

impl FromIterator<u8> for Few {
    fn from_iter<I: IntoIterator<Item = u8>>(members: I) -> Self {
        members.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Debug for Few {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// A key's metadata item. The history holds widths without their times, which only people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Metadata {
    pub(crate) write_width: u8,
    pub(crate) read_width: u8,
    pub(crate) last_updated: u8,
    pub(crate) history: Few,
    pub(crate) generation: u8,
    pub(crate) draining: Option<DrainGoal>,
    /// Width 1 is a candidate only where the history holds it.
    pub(crate) settled: bool,
}

/// What a drain is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DrainGoal {
    Shrink,
    Settle,
    /// Empties [`BARE`].
    Migrate,
}

impl Metadata {
    /// What an absent item means.
    pub(crate) fn unregistered() -> Self {
        Self {
            write_width: 1,
            read_width: 1,
            last_updated: 0,
            history: Few::default(),
            generation: 0,
            draining: None,
            settled: false,
        }
    }

    /// The width of an expansion that waits to be activated.
    pub(crate) fn expansion(self) -> Option<u8> {
        (self.draining.is_none() && self.read_width > self.write_width).then_some(self.read_width)
    }

    /// Every item is at home under the present width: no other is a candidate any more.
    pub(crate) fn settled(self) -> Self {
        Self { history: Few::default().with(self.write_width), settled: true, ..self }
    }

    /// When the width last changed; registration is no change.
    pub(crate) fn last_change(self) -> Option<u8> {
        (self.settled || self.history.len() > 1).then_some(self.last_updated)
    }
}

impl fmt::Display for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write width {}, read width {}", self.write_width, self.read_width)?;
        if self.draining.is_some() {
            f.write_str(", draining")?;
        }
        if self.settled { f.write_str(", settled") } else { Ok(()) }
    }
}

/// The metadata, an absent item read as one shard.
pub(crate) fn widths(metadata: Option<Metadata>) -> Metadata {
    metadata.unwrap_or_else(Metadata::unregistered)
}

/// A copy of the metadata, with the time at which it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct View {
    pub(crate) metadata: Option<Metadata>,
    pub(crate) asked_at: u8,
}

impl View {
    /// Whether the view may still be relied on for this lease.
    pub(crate) fn is_valid(self, now: u8, lease: u8) -> bool {
        now < self.asked_at.saturating_add(lease)
    }
}

/// The clock, what was added to go above another version, and a tie-breaker. Clock 0 is for create-only writes, whose second part is the
/// generation. Below all is the default, of items that another program stored without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) clock: u8,
    pub(crate) raised: u8,
    pub(crate) tie: u8,
}

impl Version {
    /// A create-only write took it: it says a generation, and no time.
    pub(crate) const fn is_of_creation(self) -> bool {
        self.clock == 0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}.{}", self.clock, self.raised, self.tie)
    }
}

/// A copy of an item on a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Stored {
    pub(crate) version: Version,
    pub(crate) value: Value,
}

/// A request on its way to the tables. Applying it is one step; so is receiving its answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) from: usize,
    /// Its sender still waits for the answer.
    pub(crate) awaited: bool,
    /// The last tick at which its signature is accepted.
    pub(crate) valid_until: u8,
    pub(crate) body: Body,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Body {
    /// One conditional operation, or a transaction of several.
    Items { sort_key: u8, parts: Vec<Part> },
    /// A conditional update of the metadata.
    Metadata { change: Change, expected: Expected },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Part {
    pub(crate) shard: u8,
    pub(crate) effect: Effect,
    pub(crate) condition: Condition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Effect {
    Put(Stored),
    Delete,
    Check,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Condition {
    Nothing,
    Absent,
    AbsentOrLower(Version),
    Stands,
    StandsLower(Version),
    StandsAtLeast(Version),
    Is(Option<Stored>),
}

/// A step of the protocol that changes a key's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Change {
    Register,
    Expand {
        to: u8,
    },
    Activate {
        to: u8,
    },
    AnnounceWidth {
        to: u8,
    },
    MarkDraining {
        goal: DrainGoal,
        to: u8,
    },
    LowerReadWidth {
        to: u8,
    },
    /// Leaves the present width alone in the history.
    FinishSettling,
    FinishMigration,
    StopDrain,
    /// Only under weakened rules.
    ShrinkAtOnce {
        to: u8,
    },
}

/// What an update of the metadata is conditional on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Expected {
    Absent,
    Generation(u8),
    /// Only under weakened rules, as the next.
    Widths {
        write: u8,
        read: u8,
        last_updated: u8,
    },
    Anything,
}

/// What the tables answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Applied,
    /// The metadata, and what it is now.
    Updated(Metadata),
    /// A condition failed; what stands on the shards that the request named.
    Refused {
        standing: Few,
        highest: Option<Version>,
        /// What the request would have put stands in the highest version; in a lower one.
        own: bool,
        own_below: bool,
    },
    /// Another actor changed the metadata first.
    Outrun,
}

/// A write under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Write {
    /// Taken once, at the first send.
    pub(crate) version: Option<Version>,
    pub(crate) attempt: u8,
    /// When the view was asked for that the write relies on.
    pub(crate) asked_at: Option<u8>,
    /// An append stays on the shard of its first attempt.
    pub(crate) shard: Option<u8>,
}

/// A scan's progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scan {
    /// The sort keys whose item has stood ever since the scan began.
    pub(crate) stood: Few,
    /// What the pages so far returned, in their order.
    pub(crate) listed: Vec<u8>,
    /// The cursor.
    pub(crate) after: Option<u8>,
}

/// A read, or one page of a scan, under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reading {
    pub(crate) scan: Scan,
    pub(crate) todo: Few,
    pub(crate) done: Few,
    /// The newest copy so far, for each sort key.
    pub(crate) best: Vec<Option<Stored>>,
    /// The metadata is being read too, and was asked for then.
    pub(crate) asking: Option<u8>,
    pub(crate) began: u8,
}

/// What an actor knows of the drain that it works at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DrainRun {
    pub(crate) goal: DrainGoal,
    /// The metadata that its mark left behind; before the mark, its announcement.
    pub(crate) marked: Metadata,
    /// When it last saw that the drain stands so: it moves items under a lease of that. `None` where it has to look.
    pub(crate) known_at: Option<u8>,
}

/// Where a drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Drain {
    WaitOutViews { since: u8 },
    WaitOutWriters { since: u8 },
    CopyHome,
    WaitOutReads { since: u8 },
    DeleteOldCopies,
    Verify { next: usize },
    WaitOutSignatures { since: u8 },
}

/// What an actor waits for an answer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Awaiting {
    Write(Write),
    Registration,
    /// When it was sent, where weakened rules count from there.
    Expansion {
        sent_at: Option<u8>,
    },
    Activation,
    Announcement,
    Marking(DrainGoal),
    Copy(DrainRun),
    OldCopyDeletion(DrainRun),
    Lowering,
    Stopping,
}

/// Where an actor is within its operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Idle,
    /// The metadata was read, and the answer is on its way.
    Served(Option<Metadata>),
    /// Signed and checked, but not sent: a freeze may lie here.
    Prepared {
        write: Write,
        body: Body,
        valid_until: u8,
    },
    Sent(Awaiting),
    Reading(Reading),
    BetweenPages(Scan),
    WaitingOutViews {
        expanded: Metadata,
        since: u8,
    },
    Watching {
        seen: Metadata,
        since: u8,
    },
    Draining {
        run: DrainRun,
        drain: Drain,
    },
    Crashed {
        between_expand_and_activate: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Actor {
    /// The index of its operation in its program.
    pub(crate) op: usize,
    pub(crate) view: Option<View>,
    pub(crate) step: Step,
    /// An answer that has arrived and was not looked at yet.
    pub(crate) inbox: Option<Answer>,
}

/// Promises that were seen broken at the moment when somebody was told so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Broken {
    pub(crate) read: bool,
    pub(crate) create: bool,
    pub(crate) scan: bool,
    pub(crate) cooldown: bool,
}

/// One state of the modelled world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// True time. Clocks are only ever compared with themselves, so one is enough.
    pub(crate) now: u8,
    pub(crate) metadata: Option<Metadata>,
    /// For each sort key, what stands on [`BARE`], on shard 1, 2, …
    pub(crate) table: Vec<Vec<Option<Stored>>>,
    /// Sorted: in which order they were sent says nothing about the order in which they are applied.
    pub(crate) requests: Vec<Request>,
    pub(crate) actors: Vec<Actor>,
    pub(crate) monitors: Vec<Arc<Monitor>>,
    pub(crate) broken: Broken,
    /// The next version's clock: fine enough that no two versions share a tick.
    pub(crate) clock: u8,
    /// When the write width last changed; only kept where a scenario has a cooldown.
    pub(crate) last_change: Option<u8>,
}

impl State {
    /// What stands on a shard.
    pub(crate) fn copy(&self, sort_key: u8, shard: u8) -> Option<Stored> {
        self.table[usize::from(sort_key)][usize::from(shard)]
    }

    /// The newest copy of a sort key on these shards.
    pub(crate) fn newest(&self, sort_key: u8, shards: Few) -> Option<Stored> {
        shards.iter().filter_map(|shard| self.copy(sort_key, shard)).max()
    }

    /// Puts a request on its way.
    pub(crate) fn post(&mut self, request: Request) {
        self.requests.push(request);
        self.requests.sort_unstable();
    }

    /// An actor waits no longer; what it sent may still be applied.
    pub(crate) fn abandon(&mut self, actor: usize) {
        for request in &mut self.requests {
            if request.from == actor {
                request.awaited = false;
            }
        }
        self.requests.sort_unstable();
        self.actors[actor].inbox = None;
    }

    /// An actor's operation is over.
    pub(crate) fn finish(&mut self, actor: usize) {
        let actor = &mut self.actors[actor];
        actor.op += 1;
        actor.step = Step::Idle;
        actor.inbox = None;
    }
}
