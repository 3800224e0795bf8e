//! The state of the modelled world. States share the parts that a step does not change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sharding::internal::protocol::append::{Append, Placed};
use sharding::internal::protocol::applied::{Applied, Once};
use sharding::internal::protocol::armed::{Armed, ArmedView};
use sharding::internal::protocol::copies::{Answer, Copy};
use sharding::internal::protocol::view::{Moment, View};
use sharding::internal::{
    protocol::drain::Pass, protocol::layout::Layout, protocol::metadata::ShardMetadata,
    protocol::version::Version,
};
use sharding::{ShardCount, ShardNumber};

use super::expressing::{Asked, Machine};
use super::monitor::Monitor;

/// A value that a write stores. Every write of a scenario has a unique value, which identifies the
/// write.
pub(crate) type Value = char;

pub(crate) type Key = u8;

/// The epoch second at which a scenario begins. It leaves room for slow clocks.
pub(crate) const EPOCH: u64 = 1_000;

/// Shards 1 to 4, by their number.
pub(crate) const PLACES: usize = 5;

/// An instant within a tick, on a clock that is `ahead` by some seconds. Metadata is requested at
/// the beginning of a tick and everything else happens in its middle, so a view never counts as
/// newer than the copies that were read under it.
pub(crate) fn moment(millis: u64, ahead: i8) -> Moment {
    let monotonic = Duration::from_millis(millis);
    let origin = EPOCH.saturating_add_signed(i64::from(ahead));
    Moment { monotonic, wall: monotonic + Duration::from_secs(origin) }
}

pub(crate) fn shard(number: u32) -> ShardNumber {
    ShardNumber::new(number).unwrap_or(ShardNumber::FIRST)
}

pub(crate) fn count(number: u32) -> ShardCount {
    ShardCount::new(number).unwrap_or(ShardCount::ONE)
}

pub(crate) fn index(shard: ShardNumber) -> usize {
    shard.get() as usize
}

/// A layout that is being written to every copy of its page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Publication {
    pub(crate) layout: Layout,
    /// The copies that are not yet known to have this layout or a later one. While there are any,
    /// no actor may rely on the publication.
    pub(crate) missing: BTreeSet<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    pub(crate) copy: Copy,
    /// `None` in a tombstone.
    pub(crate) value: Option<Value>,
}

impl Stored {
    /// An item, or a tombstone if there is no value, with a write id and a mark.
    pub(crate) fn new(
        version: Version,
        value: Option<Value>,
        (write_id, late_until): (Option<String>, Option<u64>),
    ) -> Self {
        let is_tombstone = value.is_none();
        Self { copy: Copy { version, is_tombstone, write_id, applied: None, late_until }, value }
    }
}

/// The places of one sort key, by shard number.
pub(crate) type Row = [Option<Stored>; PLACES];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InFlight {
    pub(crate) from: usize,
    /// Its sender still waits for the response.
    pub(crate) awaited: bool,
    /// The last tick at which its signature is accepted.
    pub(crate) valid_until: u8,
    pub(crate) body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Body {
    Item { place: ShardNumber, key: Key, content: Content, request: Asked },
    Metadata { generation: u64, new: Arc<ShardMetadata> },
    Page { copy: u32, layout: Arc<Layout> },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Content {
    pub(crate) value: Option<Value>,
    /// The value that an update read and replaces.
    pub(crate) base: Option<Value>,
    pub(crate) applied: Option<Box<Applied>>,
}

impl Content {
    pub(crate) fn of(value: Option<Value>) -> Self {
        Self { value, ..Self::default() }
    }
}

/// One copy of the key's page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Page {
    pub(crate) entry: Option<Arc<Layout>>,
    /// The page has the marker of a complete page.
    pub(crate) is_complete: bool,
    /// Its entries are on the last page of the list.
    pub(crate) is_moved: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Actor {
    /// The index of the current operation in its program.
    pub(crate) op: u8,
    pub(crate) view: Option<Arc<View>>,
    /// The patterns of armed keys, as it has read them.
    pub(crate) armed: Option<Arc<ArmedView>>,
    pub(crate) step: Step,
    pub(crate) inbox: Option<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Idle,
    /// A write whose layout was read but has not arrived. Used only if a view's age counts from the
    /// response.
    Asking(Writing, Arc<Layout>),
    /// A write reads the places of its item.
    Fetching {
        writing: Writing,
        todo: Vec<ShardNumber>,
        copies: Vec<(ShardNumber, Stored)>,
    },
    /// A signed request of a write, and the last tick at which it is accepted.
    Prepared(Writing, Asked, u8),
    Sent(Writing, Asked),
    /// An append was sent.
    Appending {
        append: Append,
        attempts: u8,
        placed: Placed,
    },
    Reading(Reading),
    /// Waits for the actor that closed this generation, first seen at `since`. A write may wait
    /// meanwhile.
    Watching {
        writing: Option<Writing>,
        generation: u64,
        since: u8,
    },
    /// Waits until the views from before its own closing have expired, and then opens.
    Waiting {
        writing: Option<Writing>,
        closed: Arc<ShardMetadata>,
        since: u8,
    },
    /// An update of the metadata was sent.
    Changing(Changing, Arc<ShardMetadata>),
    /// A layout is on its way to every copy of the page.
    Publishing(Box<Publication>, Then),
    /// Drains the key that it has marked.
    Draining(Pass<Key>, Arc<ShardMetadata>, DrainStep),
    /// It has stored a pattern without a time.
    Arming,
    /// Another program is about to write this.
    Plain(Value),
    /// Another program has sent its write.
    PlainSent,
    /// Deletes tombstones at home.
    Purging(Vec<(ShardNumber, Key, Version)>),
    Dead,
}

impl Step {
    /// Whether the actor waits for a response that it may give up. Then it has no other step.
    pub(crate) const fn may_give_up(&self) -> bool {
        matches!(
            self,
            Self::Sent(..)
                | Self::Appending { .. }
                | Self::Draining(_, _, DrainStep::Copying { sent: true, .. })
        )
    }
}

/// A write in progress, and the number of times that it may still be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Writing {
    pub(crate) write: Machine,
    pub(crate) attempts: u8,
    /// The content that the write stores; for an update, computed from the value that it read.
    pub(crate) content: Content,
    pub(crate) once: Option<Once>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reading {
    pub(crate) began: u8,
    /// The first sort key that the page may contain.
    pub(crate) from: Key,
    pub(crate) todo: Vec<ShardNumber>,
    /// The newest copy of each sort key so far, and its place.
    pub(crate) newest: Vec<Option<(Stored, ShardNumber)>>,
}

/// The next step of an actor after every copy of the page has the layout that it publishes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Then {
    /// It goes on after its update of the metadata.
    Changed(Changing, Arc<ShardMetadata>),
    /// It goes on with a write, under a view that is requested now, or at this instant if that is
    /// later.
    Write(Writing, Option<Moment>),
    Purge,
    /// It marks the copies as complete.
    Mark,
    Finish,
}

/// The update of the metadata that an actor has sent. A write may wait for it. `Close` also takes a
/// closing over. After `Again`, an actor that drains reads the metadata again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Changing {
    Close { sent: u8, writing: Option<Writing> },
    Open { writing: Option<Writing> },
    Again,
    BeginDrain { resumes: bool },
    Emptied,
    BeginPurge,
}

/// The progress of an actor's pass. `sent` means that the first element of the list is in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DrainStep {
    Copying { todo: Vec<ShardNumber>, read: Vec<(ShardNumber, Key, Stored)>, sent: bool },
    WaitingForReads,
    Deleting { todo: Vec<(ShardNumber, Key, Version)>, sent: bool },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Broken {
    pub(crate) read: bool,
    pub(crate) create: bool,
    pub(crate) scan: bool,
    /// A writer took the metadata for lost.
    pub(crate) lost: bool,
}

/// The state of the whole model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// In ticks.
    pub(crate) now: u8,
    pub(crate) metadata: Arc<ShardMetadata>,
    /// The patterns of armed keys.
    pub(crate) armed: Arc<Armed>,
    /// The copies of the key's page; none in a table without a directory.
    pub(crate) pages: Vec<Page>,
    /// The first copy that a change is written to. Those before it have been moved.
    pub(crate) first_written: u32,
    pub(crate) table: Vec<Arc<Row>>,
    pub(crate) requests: Vec<Arc<InFlight>>,
    pub(crate) actors: Vec<Arc<Actor>>,
    pub(crate) monitors: Vec<Arc<Monitor>>,
    /// The value that each update replaced when it was first applied. A deletion with an expression
    /// has a value, too, which identifies it.
    pub(crate) replaced: Vec<(Value, Value)>,
    pub(crate) broken: Broken,
}

impl State {
    pub(crate) fn copy(&self, key: Key, place: ShardNumber) -> Option<&Stored> {
        self.table[usize::from(key)][index(place)].as_ref()
    }

    /// An update was applied. Only its first time counts.
    pub(crate) fn note_replaced(&mut self, value: Option<Value>, base: Option<Value>) {
        if let (Some(value), Some(base)) = (value, base)
            && !self.replaced.iter().any(|(by, _)| *by == value)
        {
            self.replaced.push((value, base));
            self.replaced.sort_unstable();
        }
    }
}
