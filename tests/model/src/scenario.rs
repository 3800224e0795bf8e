//! A scenario: its actors, the state of the tables at the beginning, and the properties that it
//! shows.

use std::collections::BTreeSet;
use std::sync::Arc;

use sharding::internal::protocol::applied::Applied;
use sharding::internal::protocol::armed::Armed;
use sharding::internal::protocol::copies::{Condition, Copy, Effect, Request};
use sharding::internal::protocol::expressed;
use sharding::internal::{
    protocol::drain::copy_home, protocol::layout::FIRST_ERA, protocol::layout::Layout,
    protocol::metadata::ShardMetadata, protocol::version::Version, protocol::write_id::WriteId,
};
use sharding::{Attributes, IdempotencyKey, Item, PartitionKey, ShardCount, ShardNumber, SortKey};

use super::expressing::{Asked, Expects};
use super::monitor::{Kind, Monitor};
use super::program::Cast;
use super::state::{
    Actor, Body, Broken, Content, EPOCH, InFlight, Key, PLACES, Page, Row, State, Step, Stored,
    Value, index, shard,
};

/// The record of applied updates of an item that has seen none, and would remember any.
const NOTHING_APPLIED: Applied =
    Applied { began: EPOCH * 1_000, known_since: 0, young: BTreeSet::new(), old: BTreeSet::new() };

/// The first number of the operations that are in flight from the beginning.
pub(crate) const LATE: u8 = 200;

/// The homes of a sort key under the widths 1 to 4. With a jump hash, an item moves only onto new
/// shards when the width grows.
pub(crate) type Homes = [u32; 4];
pub(crate) const JUMP: Homes = [1, 2, 2, 4];
pub(crate) const OTHER_JUMP: Homes = [1, 1, 3, 3];
pub(crate) const OWN_SHARDS: Homes = [1, 2, 3, 4];
pub(crate) const MODULO: Homes = [1, 2, 1, 2];

/// A world to explore. Times are in ticks.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) cast: Vec<Cast>,
    pub(crate) metadata: ShardMetadata,
    /// The copies of the key's page at the beginning; none in a table without a directory.
    pub(crate) pages: Vec<Page>,
    /// An entry on its way to a copy of the page at the beginning, from an actor that is gone.
    pub(crate) late_page: Option<(u32, Layout)>,
    /// The items at the beginning: sort key, shard, era, value.
    pub(crate) items: Vec<(Key, u32, u64, Value)>,
    /// The tombstones at the beginning: sort key, shard, era.
    pub(crate) tombstones: Vec<(Key, u32, u64)>,
    /// The requests in flight at the beginning, whose senders are gone.
    pub(crate) in_flight: Vec<Late>,
    pub(crate) homes: Vec<Homes>,
    pub(crate) append_only: bool,
    /// The patterns of armed keys at the beginning.
    pub(crate) armed: Armed,
    /// The documented exception applies: a write with an unknown outcome is applied late at an old
    /// place, after a creation has read that place. It may be read, and then lose. A read that
    /// returns such a write is not checked.
    pub(crate) late_writes_may_lose: bool,
    /// The items at the beginning record the updates that were applied to them.
    pub(crate) remembers: bool,
    /// The number of ticks for which a signed request is accepted.
    pub(crate) validity: u8,
    /// The last tick.
    pub(crate) horizon: u8,
    /// The properties that some state must have, so that the scenario is not vacuous.
    pub(crate) shows: Vec<&'static str>,
}

/// A write from before the scenario, which may still be applied. Its outcome is unknown.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    key: Key,
    place: u32,
    /// `None` for a drain's move, and for a pull.
    pub(crate) kind: Option<Kind>,
    pub(crate) value: Option<Value>,
    request: Asked,
}

impl Late {
    pub(crate) fn put(key: Key, place: u32, era: u64, value: Value) -> Self {
        let version = Version::new(era, EPOCH * 1_000_000, 99);
        let effect = Effect::Put { version, write_id: None };
        let request = Request::unmarked(effect, Condition::AbsentOrBelow(version)).into();
        Self { key, place, kind: Some(Kind::Write(value)), value: Some(value), request }
    }

    /// The first request of a creation that its client repeats.
    pub(crate) fn create(key: Key, place: u32, era: u64, value: Value) -> Self {
        let version = Version::new(era, EPOCH * 1_000_000, 99);
        let write_id = Some(write_id(value).as_str().to_owned());
        let effect = Effect::Put { version, write_id };
        let request = Request::unmarked(effect, Condition::Unchanged(None)).into();
        Self { key, place, kind: Some(Kind::CreateOnly(value)), value: Some(value), request }
    }

    /// A drain's copy of an item that existed before the scenario.
    pub(crate) fn copy(key: Key, place: u32, era: u64, value: Value) -> Self {
        let request = copy_home(&earlier_item(era, value).copy).into();
        Self { key, place, kind: None, value: Some(value), request }
    }

    pub(crate) fn delete(key: Key, place: u32, era: u64) -> Self {
        let condition = Condition::AbsentOrBelow(Version::new(era, EPOCH * 1_000_000, 99));
        Self {
            key,
            place,
            kind: Some(Kind::Delete),
            value: None,
            request: Request::unmarked(Effect::Remove, condition).into(),
        }
    }

    /// A pull, in this era, of an item of the first era to a home with nothing.
    pub(crate) fn pull(key: Key, (from, place): (u32, u32), era: u64, value: Value) -> Self {
        let version = Version::new(era, EPOCH * 1_000_000, 99);
        let request = expressed::Request {
            action: expressed::Action::Pull(shard(from), version),
            base: expressed::Base::Absent,
            late_until: None,
            lost_until: u64::MAX,
        };
        let pulled = Some(Box::new(earlier_item(FIRST_ERA, value)));
        let request = Asked::Expressed { request, expects: Expects::Item, pulled };
        Self { key, place, kind: None, value: None, request }
    }
}

impl Scenario {
    pub(crate) fn new(name: &'static str, metadata: ShardMetadata, cast: Vec<Cast>) -> Self {
        Self {
            name,
            cast,
            metadata,
            pages: Vec::new(),
            late_page: None,
            items: Vec::new(),
            tombstones: Vec::new(),
            in_flight: Vec::new(),
            homes: vec![JUMP],
            append_only: false,
            armed: Armed::all(),
            late_writes_may_lose: false,
            remembers: false,
            validity: 1,
            horizon: 2,
            shows: Vec::new(),
        }
    }

    /// The name: the actors' programs in short.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The properties that some state must have, so that the scenario is not vacuous.
    #[must_use]
    pub fn shows(&self) -> &[&'static str] {
        &self.shows
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
                let mut stored = earlier_item(*era, *value);
                stored.copy.applied = self.remembers.then(|| Box::new(NOTHING_APPLIED));
                row[*place as usize] = Some(stored);
            }
            for (_, place, era) in self.tombstones.iter().filter(|tombstone| tombstone.0 == key) {
                let copy = Copy { is_tombstone: true, ..earlier_item(*era, ' ').copy };
                row[*place as usize] = Some(Stored { copy, value: None });
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
        let late = |body| InFlight {
            from: self.cast.len(),
            awaited: false,
            valid_until: self.validity,
            body,
        };
        let page = self
            .late_page
            .clone()
            .map(|(copy, layout)| Body::Page { copy, layout: Arc::new(layout) });
        let mut requests: Vec<InFlight> = page.into_iter().map(late).collect();
        for (sent, operation) in self.in_flight.iter().zip(LATE..) {
            if let Some(kind) = sent.kind {
                monitors[usize::from(sent.key)].invoke(operation, kind);
            }
            let Late { key, place, value, request, .. } = sent.clone();
            requests.push(late(Body::Item {
                place: shard(place),
                key,
                content: Content::of(value),
                request,
            }));
        }
        let actor =
            Arc::new(Actor { op: 0, view: None, armed: None, step: Step::Idle, inbox: None });
        State {
            now: 0,
            metadata: Arc::new(self.metadata.clone()),
            armed: self.armed.clone(),
            pages: self.pages.clone(),
            first_written: 0,
            table,
            requests,
            actors: vec![actor; self.cast.len()],
            monitors: monitors.into_iter().map(Arc::new).collect(),
            replaced: Vec::new(),
            broken: Broken::default(),
        }
    }
}

/// An item from before the scenario. In era 0, another program stored it, without a version.
fn earlier_item(era: u64, value: Value) -> Stored {
    let version =
        if era == 0 { Version::NONE } else { Version::new(era, (EPOCH - 10) * 1_000_000, 0) };
    Stored {
        copy: Copy {
            version,
            is_tombstone: false,
            write_id: None,
            applied: None,
            late_until: None,
        },
        value: Some(value),
    }
}

/// The write id of a creation that its client may repeat.
pub(crate) fn write_id(value: Value) -> WriteId {
    let item = Item {
        partition_key: PartitionKey::new("p").expect("it is short"),
        sort_key: SortKey::String("s".into()),
        attributes: Attributes::new(),
    };
    WriteId::of_request(
        &IdempotencyKey::new(&value.to_string()).expect("values are letters"),
        &item,
    )
}
