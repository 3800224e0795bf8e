//! A scenario: its actors, the state of the tables at the beginning, and the properties that it
//! shows.

use std::collections::BTreeSet;
use std::sync::Arc;

use sharding::internal::protocol::applied::Applied;
use sharding::internal::protocol::armed::Armed;
use sharding::internal::protocol::copies::{Condition, Effect, Marks, Request};
use sharding::internal::protocol::expressed;
use sharding::internal::{
    protocol::drain::copy_home, protocol::layout::FIRST_ERA, protocol::metadata::ShardMetadata,
    protocol::version::Version, protocol::write_id::WriteId,
};
use sharding::{ShardCount, ShardNumber};

use super::expressing::{Asked, Expects};
use super::invariants::Shown;
use super::monitor::{Kind, Monitor};
use super::program::Cast;
use super::state::{
    Actor, Body, Broken, Content, EPOCH, InFlight, Key, PLACES, Page, Row, State, Step, Stored,
    Value, index, shard,
};

/// The record of applied updates of an item that has seen none.
const NOTHING_APPLIED: Applied =
    Applied { began: EPOCH * 1_000, known_since: 0, young: BTreeSet::new(), old: BTreeSet::new() };

/// The number of the operation that is in flight from the beginning.
pub(crate) const LATE: u8 = 200;

/// The homes of a sort key under the widths 1 to 4. With a jump hash, an item moves only onto new
/// shards when the width grows.
pub(crate) type Homes = [u32; 4];
pub(crate) const JUMP: Homes = [1, 2, 2, 4];
pub(crate) const OTHER_JUMP: Homes = [1, 1, 3, 3];
const OWN_SHARDS: Homes = [1, 2, 3, 4];
pub(crate) const MODULO: Homes = [1, 2, 1, 2];

/// A world to explore. Times are in ticks.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) cast: Vec<Cast>,
    pub(crate) metadata: ShardMetadata,
    /// The copies of the key's page at the beginning; none in a table without a directory.
    pub(crate) pages: Vec<Page>,
    /// The copies at the beginning: sort key, shard, era, and value; `None` in a tombstone.
    items: Vec<(Key, u32, u64, Option<Value>)>,
    /// A request in flight at the beginning, whose sender is gone.
    pub(crate) in_flight: Option<Late>,
    homes: Vec<Homes>,
    pub(crate) append_only: bool,
    /// The patterns of armed keys at the beginning.
    pub(crate) armed: Armed,
    /// The documented exception applies: a write with an unknown outcome is applied late at an old
    /// place, after a creation has read that place. It may be read, and then lose. A read that
    /// returns such a write is not checked.
    pub(crate) late_writes_may_lose: bool,
    /// The number of ticks for which a signed request is accepted.
    pub(crate) validity: u8,
    /// The last tick.
    pub(crate) horizon: u8,
    /// The properties that some state must have, so that the scenario is not vacuous.
    pub(crate) shows: Vec<Shown>,
}

/// A request from before the scenario, which may still be applied: about the first sort key, or an
/// entry for a copy of the page.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    /// The write that it is of, whose outcome is unknown. A move of a drain and a pull are none.
    pub(crate) kind: Option<Kind>,
    body: Body,
}

impl Late {
    fn of_item(place: u32, kind: Option<Kind>, value: Option<Value>, request: Asked) -> Self {
        let (place, content) = (shard(place), Content::of(value));
        Self { kind, body: Body::Item { place, key: 0, content, request } }
    }

    /// The entry for a copy of the page from when the metadata item was `item`.
    pub(crate) fn page(copy: u32, item: &ShardMetadata) -> Self {
        Self { kind: None, body: Body::Page { copy, layout: Arc::new(item.layout()) } }
    }

    /// A put in the first era.
    pub(crate) fn put(place: u32, value: Value) -> Self {
        let version = late_version(FIRST_ERA);
        let effect = Effect::Put { version, write_id: None };
        let request = Asked::Plain(Request::unmarked(effect, Condition::AbsentOrBelow(version)));
        Self::of_item(place, Some(Kind::Write(value)), Some(value), request)
    }

    /// The first request of a creation in the first era, which its client repeats.
    pub(crate) fn create(place: u32, value: Value) -> Self {
        let write_id = Some(write_id(value).as_str().to_owned());
        let effect = Effect::Put { version: late_version(FIRST_ERA), write_id };
        let request = Asked::Plain(Request::unmarked(effect, Condition::Unchanged(None)));
        Self::of_item(place, Some(Kind::CreateOnly(value)), Some(value), request)
    }

    /// A drain's copy of an item of the first era that existed before the scenario.
    pub(crate) fn copy(place: u32, value: Value) -> Self {
        let request = Asked::Plain(copy_home(&earlier(FIRST_ERA, Some(value)).copy));
        Self::of_item(place, None, Some(value), request)
    }

    /// A deletion in the first era.
    pub(crate) fn delete(place: u32) -> Self {
        let condition = Condition::AbsentOrBelow(late_version(FIRST_ERA));
        let request = Asked::Plain(Request::unmarked(Effect::Remove, condition));
        Self::of_item(place, Some(Kind::Delete), None, request)
    }

    /// A pull, in the second era, of an item of the first era to a home with nothing.
    pub(crate) fn pull((from, place): (u32, u32), value: Value) -> Self {
        let request = expressed::Request {
            action: expressed::Action::Pull(shard(from), late_version(2)),
            base: expressed::Base::Absent,
            marks: Marks::NONE,
        };
        let pulled = Some(Box::new(earlier(FIRST_ERA, Some(value))));
        let request = Asked::Expressed { request, expects: Expects::Item, pulled };
        Self::of_item(place, None, None, request)
    }
}

fn late_version(era: u64) -> Version {
    Version::new(era, EPOCH * 1_000_000, 99)
}

/// How a scenario begins. Each method replaces one part of it.
impl Scenario {
    pub(crate) fn new(name: &'static str, metadata: ShardMetadata) -> Self {
        Self {
            name,
            cast: Vec::new(),
            metadata,
            pages: Vec::new(),
            items: Vec::new(),
            in_flight: None,
            homes: vec![JUMP],
            append_only: false,
            armed: Armed::all(),
            late_writes_may_lose: false,
            validity: 1,
            horizon: 2,
            shows: Vec::new(),
        }
    }

    pub(crate) fn cast<const N: usize>(self, cast: [Cast; N]) -> Self {
        Self { cast: cast.into(), ..self }
    }

    pub(crate) fn pages<const N: usize>(self, pages: [Page; N]) -> Self {
        Self { pages: pages.into(), ..self }
    }

    pub(crate) fn items<const N: usize>(self, items: [(Key, u32, u64, Value); N]) -> Self {
        let items = items.map(|(key, place, era, value)| (key, place, era, Some(value)));
        Self { items: items.into(), ..self }
    }

    /// Besides, there is a tombstone of the first sort key.
    pub(crate) fn tombstone(mut self, place: u32, era: u64) -> Self {
        self.items.push((0, place, era, None));
        self
    }

    pub(crate) fn in_flight(self, late: Late) -> Self {
        Self { in_flight: Some(late), ..self }
    }

    pub(crate) fn homes<const N: usize>(self, homes: [Homes; N]) -> Self {
        Self { homes: homes.into(), ..self }
    }

    pub(crate) fn append_only(self) -> Self {
        Self { append_only: true, homes: vec![OWN_SHARDS], ..self }
    }

    pub(crate) fn armed(self, armed: Armed) -> Self {
        Self { armed, ..self }
    }

    pub(crate) fn late_writes_may_lose(self) -> Self {
        Self { late_writes_may_lose: true, ..self }
    }

    pub(crate) fn validity(self, validity: u8) -> Self {
        Self { validity, ..self }
    }

    pub(crate) fn horizon(self, horizon: u8) -> Self {
        Self { horizon, ..self }
    }

    pub(crate) fn showing<const N: usize>(self, shows: [Shown; N]) -> Self {
        Self { shows: shows.into(), ..self }
    }
}

impl Scenario {
    /// The name: the actors' programs in short.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn sort_keys(&self) -> Key {
        u8::try_from(self.homes.len()).unwrap_or(u8::MAX)
    }

    pub(crate) fn home(&self, key: Key, width: ShardCount) -> ShardNumber {
        shard(self.homes[usize::from(key)][width.get() as usize - 1])
    }

    pub(crate) fn first_state(&self) -> State {
        let row = |key: Key| {
            let mut row: Row = [const { None }; PLACES];
            for (_, place, era, value) in self.items.iter().filter(|item| item.0 == key) {
                row[*place as usize] = Some(earlier(*era, *value));
            }
            row
        };
        let table: Vec<Arc<Row>> = (0..self.sort_keys()).map(|key| Arc::new(row(key))).collect();
        let newest = |(key, row): (Key, &Arc<Row>)| {
            let places = self.metadata.layout().places(|width| self.home(key, width));
            let stored = places.all().into_iter().filter_map(|place| row[index(place)].as_ref());
            stored.max_by_key(|stored| stored.copy.version).and_then(|stored| stored.value)
        };
        let mut monitors: Vec<Monitor> =
            (0..).zip(&table).map(newest).map(Monitor::starting_with).collect();
        if let Some(Late { kind: Some(kind), .. }) = self.in_flight {
            monitors[0].invoke(LATE, kind);
        }
        let late = |Late { body, .. }| {
            let (from, valid_until) = (self.cast.len(), self.validity);
            Arc::new(InFlight { from, awaited: false, valid_until, body })
        };
        let actor =
            Arc::new(Actor { op: 0, view: None, armed: None, step: Step::Idle, inbox: None });
        State {
            now: 0,
            metadata: Arc::new(self.metadata.clone()),
            armed: Arc::new(self.armed.clone()),
            pages: self.pages.clone(),
            first_written: 0,
            table,
            requests: self.in_flight.clone().map(late).into_iter().collect(),
            actors: vec![actor; self.cast.len()],
            monitors: monitors.into_iter().map(Arc::new).collect(),
            replaced: Vec::new(),
            broken: Broken::default(),
        }
    }
}

/// An item or a tombstone from before the scenario. In era 0, another program stored it, without a
/// version.
fn earlier(era: u64, value: Option<Value>) -> Stored {
    if era == 0 {
        return Stored::new(Version::NONE, value, (None, None));
    }
    let version = Version::new(era, (EPOCH - 10) * 1_000_000, 0);
    let mut stored = Stored::new(version, value, (None, None));
    stored.copy.applied = value.map(|_| Box::new(NOTHING_APPLIED));
    stored
}

/// The write id of a creation that its client may repeat.
pub(crate) fn write_id(value: Value) -> WriteId {
    WriteId::random([value as u8; 16])
}
