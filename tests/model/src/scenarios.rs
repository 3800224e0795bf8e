//! What is explored: two or three actors each, chosen so that each scenario can show one kind of fault, and small enough to be explored whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use sharding::internal::protocol::applied::Applied;
use sharding::internal::protocol::copies::{Condition, Copy, Effect, Request};
use sharding::internal::protocol::drain::copy_home;
use sharding::internal::protocol::layout::Layout;
use sharding::internal::protocol::metadata::{Change, FIRST_ERA, ShardMetadata};
use sharding::internal::protocol::version::Version;
use sharding::internal::protocol::write_id::WriteId;
use sharding::internal::{GrowthRecord, IdempotencyKey, Item, PartitionKey, ShardCount, ShardNumber, SortKey};

use super::directory::listing;
use super::invariants::{DRAINED, LATE_REQUEST, OPENED, TAKEN_OVER};
use super::monitor::{Kind, Monitor};
use super::program::{Cast, Keyed, May, Op};
use super::state::{
    Actor, Body, Broken, Content, EPOCH, InFlight, Key, PLACES, Page, Row, State, Step, Stored, Value, count, index,
    shard,
};

/// Of an item that has seen no update that may be repeated, and would know of any.
const NOTHING_APPLIED: Applied =
    Applied { began: EPOCH * 1_000, known_since: 0, young: BTreeSet::new(), old: BTreeSet::new() };

/// The operations that are in flight from the beginning have the numbers from here on.
pub(crate) const LATE: u8 = 200;

/// The homes of a sort key under the widths 1 to 4. With a jump hash, an item moves only onto new shards when the width grows.
type Homes = [u32; 4];
const JUMP: Homes = [1, 2, 2, 4];
pub(crate) const OTHER_JUMP: Homes = [1, 1, 3, 3];
pub(crate) const OWN_SHARDS: Homes = [1, 2, 3, 4];
const MODULO: Homes = [1, 2, 1, 2];

/// A world to explore. Times are in ticks.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) cast: Vec<Cast>,
    pub(crate) metadata: ShardMetadata,
    /// The copies of the key's page at the beginning; none in a table without a directory.
    pub(crate) pages: Vec<Page>,
    /// What is on its way to a copy at the beginning, from an actor that is gone.
    pub(crate) late_page: Option<(u32, Layout)>,
    /// What stands at the beginning: sort key, shard, era, value.
    pub(crate) items: Vec<(Key, u32, u64, Value)>,
    /// What is under way at the beginning, and nobody waits for.
    pub(crate) in_flight: Vec<Late>,
    pub(crate) homes: Vec<Homes>,
    /// The table has items under bare keys, from before it was sharded.
    pub(crate) adopting: bool,
    pub(crate) append_only: bool,
    /// The exception that is documented: a write with an unknown outcome that lands late at an old place, after a creation has read that place, may
    /// be seen, and then lose. A read that returns such a write is not judged.
    pub(crate) late_writes_may_lose: bool,
    /// The items that stand at the beginning note updates.
    pub(crate) remembers: bool,
    /// How long a signed request is accepted.
    pub(crate) validity: u8,
    /// When time ends.
    pub(crate) horizon: u8,
    /// The properties that some state must have, so that the scenario is not vacuous.
    pub(crate) shows: Vec<&'static str>,
}

/// A write from before the scenario: its outcome is unknown, and it may still be applied.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    key: Key,
    place: u32,
    /// `None` for a move of a drain.
    pub(crate) kind: Option<Kind>,
    pub(crate) value: Option<Value>,
    request: Request,
}

impl Late {
    fn put(key: Key, place: u32, era: u64, value: Value) -> Self {
        let version = Version::new(era, EPOCH * 1_000_000, 99);
        let request =
            Request { effect: Effect::Put { version, write_id: None }, condition: Condition::AbsentOrBelow(version) };
        Self { key, place, kind: Some(Kind::Write(value)), value: Some(value), request }
    }

    /// The first request of a creation that its client repeats.
    fn create(key: Key, place: u32, era: u64, value: Value) -> Self {
        let (mut late, id) = (Self::put(key, place, era, value), write_id(value));
        late.kind = Some(Kind::CreateOnly(value));
        late.request.condition = Condition::Unchanged(None);
        if let Effect::Put { write_id, .. } = &mut late.request.effect {
            *write_id = Some(id.as_str().to_owned());
        }
        late
    }

    /// A drain copies what stood before the scenario.
    fn copy(key: Key, place: u32, era: u64, value: Value) -> Self {
        let request = copy_home(&standing(1, era, value).copy);
        Self { key, place, kind: None, value: Some(value), request }
    }

    fn delete(key: Key, place: u32, era: u64) -> Self {
        let condition = Condition::AbsentOrBelow(Version::new(era, EPOCH * 1_000_000, 99));
        Self {
            key,
            place,
            kind: Some(Kind::Delete),
            value: None,
            request: Request { effect: Effect::Remove, condition },
        }
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
            in_flight: Vec::new(),
            homes: vec![JUMP],
            adopting: false,
            append_only: false,
            late_writes_may_lose: false,
            remembers: false,
            validity: 1,
            horizon: 2,
            shows: Vec::new(),
        }
    }

    /// Its name: what happens in it.
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
                let mut stored = standing(*place, *era, *value);
                stored.copy.applied = self.remembers.then(|| Box::new(NOTHING_APPLIED));
                row[*place as usize] = Some(stored);
            }
            row
        };
        let table: Vec<Arc<Row>> = (0..self.sort_keys()).map(|key| Arc::new(row(key))).collect();
        let newest = |(key, row): (Key, &Arc<Row>)| {
            let bare = self.adopting.then_some(ShardNumber::UNSHARDED);
            let places = self.metadata.layout().places(|width| self.home(key, width), bare);
            let stored = places.all().into_iter().filter_map(|place| row[index(place)].as_ref());
            stored.max_by_key(|stored| stored.copy.version).and_then(|stored| stored.value)
        };
        let mut monitors: Vec<Monitor> = (0..).zip(&table).map(newest).map(Monitor::starting_with).collect();
        let late = |body| InFlight { from: self.cast.len(), awaited: false, valid_until: self.validity, body };
        let page = self.late_page.clone().map(|(copy, layout)| Body::Page { copy, layout: Arc::new(layout) });
        let mut requests: Vec<InFlight> = page.into_iter().map(late).collect();
        for (sent, operation) in self.in_flight.iter().zip(LATE..) {
            if let Some(kind) = sent.kind {
                monitors[usize::from(sent.key)].invoke(operation, kind);
            }
            let Late { key, place, value, request, .. } = sent.clone();
            requests.push(late(Body::Item { place: shard(place), key, content: Content::of(value), request }));
        }
        let actor = Arc::new(Actor { op: 0, view: None, step: Step::Idle, inbox: None });
        State {
            now: 0,
            metadata: Arc::new(self.metadata.clone()),
            pages: self.pages.clone(),
            table,
            requests,
            actors: vec![actor; self.cast.len()],
            monitors: monitors.into_iter().map(Arc::new).collect(),
            replaced: Vec::new(),
            broken: Broken::default(),
        }
    }
}

/// An item from before the scenario. Under a bare key it has no version.
fn standing(place: u32, era: u64, value: Value) -> Stored {
    let version = if place == 0 { Version::NONE } else { Version::new(era, (EPOCH - 10) * 1_000_000, 0) };
    Stored {
        copy: Copy { version, is_tombstone: false, write_id: None, is_ours: true, applied: None },
        value: Some(value),
    }
}

/// The write id of a creation that its client may repeat.
pub(crate) fn write_id(value: Value) -> WriteId {
    let item = Item {
        partition_key: PartitionKey::new("p").expect("it is short"),
        sort_key: SortKey::String("s".into()),
        attributes: std::iter::empty().collect(),
    };
    WriteId::of_request(&IdempotencyKey::new(&value.to_string()).expect("values are letters"), &item)
}

/// A key's metadata after these changes, which were all made long before.
fn after(changes: &[Change]) -> ShardMetadata {
    after_at(EPOCH - 100, changes)
}

fn after_at(now: u64, changes: &[Change]) -> ShardMetadata {
    changes.iter().fold(ShardMetadata::unregistered(), |metadata, change| {
        metadata.apply(change, now).expect("a scenario begins with changes that fit")
    })
}

/// A key that has grown to two shards a moment ago.
pub(crate) fn just_grown() -> ShardMetadata {
    let close = Change::Close { to: count(2), growth: GrowthRecord::default() };
    after_at(EPOCH, &[close, Change::Open])
}

/// A key that had these widths, one after the other.
pub(crate) fn widths(widths: &[u32]) -> ShardMetadata {
    let change = |width: &u32| [Change::Close { to: count(*width), growth: GrowthRecord::default() }, Change::Open];
    after(&widths.iter().flat_map(change).collect::<Vec<_>>())
}

fn settled(width: u32) -> ShardMetadata {
    let close = Change::Close { to: count(width), growth: GrowthRecord::default() };
    let finish = Change::FinishDrain { keep_first: false, purge: false };
    after(&[close, Change::Open, Change::MarkDrain, finish])
}

fn left_by_a_dead_drainer() -> ShardMetadata {
    let marked = widths(&[2]).apply(&Change::MarkDrain, EPOCH - 50);
    let begun = marked.and_then(|marked| marked.apply(&Change::BeginDrain { busy_until: EPOCH }, EPOCH - 50));
    begun.expect("they fit")
}

pub(crate) fn one_shard() -> ShardMetadata {
    ShardMetadata::unregistered()
}

pub(crate) fn scaler(to: u32) -> Cast {
    Cast::new("scaler", [Op::Scale(to)])
}

pub(crate) fn drainer() -> Cast {
    Cast::new("drainer", [Op::Drain])
}

pub(crate) fn reader<const N: usize>(program: [Op; N]) -> Cast {
    Cast::new("reader", program)
}

pub(crate) fn writer<const N: usize>(program: [Op; N]) -> Cast {
    Cast::new("writer", program)
}

pub(crate) fn other<const N: usize>(program: [Op; N]) -> Cast {
    Cast::new("other writer", program)
}

pub(crate) const GET: Op = Op::Get(0);
pub(crate) const DELETE: Op = Op::Delete(0, May::NotLook);
pub(crate) const LOOK_AND_DELETE: Op = Op::Delete(0, May::Look);

pub(crate) const fn put(value: Value) -> Op {
    Op::Put(0, value)
}

pub(crate) const fn create(value: Value) -> Op {
    Op::Create(0, value)
}

const fn swap(value: Value) -> Op {
    Op::Swap(0, value)
}

const fn add(value: Value) -> Op {
    Op::Add(0, value, Keyed::No)
}

const fn add_once(value: Value) -> Op {
    Op::Add(0, value, Keyed::Yes)
}

const fn create_again(value: Value) -> Op {
    Op::CreateAgain(0, value)
}

/// All scenarios in which every invariant holds.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    [updating(), growing(), draining(), repeating(), adopting(), appending(), listing()].concat()
}

/// The scenario of that name.
///
/// # Panics
/// Where there is none.
#[must_use]
pub fn scenario(name: &str) -> Scenario {
    let mut all = scenarios().into_iter().chain(limits());
    all.find(|scenario| scenario.name == name).expect("a test names a scenario that exists")
}

fn growing() -> Vec<Scenario> {
    let grows = |name, cast| Scenario { shows: vec![OPENED], ..Scenario::new(name, one_shard(), cast) };
    let x_stands = || vec![(0, 1, FIRST_ERA, 'x')];
    vec![
        grows("grow | put | put get", vec![scaler(2), writer([put('a')]), other([put('b'), GET]).ahead_by(2)]),
        grows("grow | put | look query", vec![scaler(2), writer([put('a')]), reader([Op::Look, Op::Query])]),
        Scenario {
            items: x_stands(),
            ..grows("grow | delete get | look get", vec![scaler(2), writer([DELETE, GET]), reader([Op::Look, GET])])
        },
        Scenario {
            late_writes_may_lose: true,
            ..grows("grow | create | create", vec![scaler(2), writer([create('a')]), other([create('b')])])
        },
        Scenario {
            late_writes_may_lose: true,
            ..grows(
                "grow | create delete | create",
                vec![scaler(2), writer([create('a'), DELETE]), other([create('b')])],
            )
        },
        Scenario {
            horizon: 2,
            shows: vec![OPENED, TAKEN_OVER],
            ..grows(
                "grow, crash | take over | put get",
                vec![scaler(2).mortal(), Cast::new("observer", [Op::TakeOver]), writer([put('a'), GET])],
            )
        },
        Scenario {
            horizon: 3,
            ..grows(
                "grow to 2 | grow to 4 | put get",
                vec![scaler(2), Cast::new("second scaler", [Op::Scale(4)]), writer([put('a'), GET])],
            )
        },
        Scenario {
            items: x_stands(),
            homes: vec![MODULO],
            ..Scenario::new(
                "shrink by modulo | put | get",
                widths(&[2, 3]),
                vec![scaler(2), writer([put('a')]), reader([GET])],
            )
        },
        Scenario {
            homes: vec![JUMP, OTHER_JUMP],
            items: vec![(0, 1, FIRST_ERA, 'x'), (1, 1, FIRST_ERA, 'y')],
            ..grows("grow | put | scan", vec![scaler(3), writer([Op::Put(1, 'a')]), reader([Op::Scan])])
        },
        Scenario {
            horizon: 1,
            shows: vec![OPENED],
            ..Scenario::new(
                "grow to 2 and 4 | take over | put | look get",
                one_shard(),
                vec![
                    Cast::new("scaler", [Op::Scale(2), Op::Scale(4)]).prompt(),
                    Cast::new("observer", [Op::TakeOver]),
                    writer([put('a')]),
                    reader([Op::Look, GET]),
                ],
            )
        },
        Scenario {
            items: vec![(0, 1, FIRST_ERA, 'o')],
            ..Scenario::new(
                "an item where it has no place | put | query",
                settled(2),
                vec![writer([put('a')]), reader([Op::Query, Op::Query])],
            )
        },
        Scenario {
            items: x_stands(),
            in_flight: vec![Late::put(0, 1, FIRST_ERA, 'l')],
            shows: vec![LATE_REQUEST],
            ..Scenario::new(
                "late put | put get | query",
                widths(&[2]),
                vec![writer([put('a'), GET]), reader([Op::Query])],
            )
        },
    ]
}

fn draining() -> Vec<Scenario> {
    let drains = |name, cast| Scenario {
        items: vec![(0, 1, FIRST_ERA, 'x')],
        horizon: 5,
        shows: vec![DRAINED],
        ..Scenario::new(name, widths(&[2]), cast)
    };
    vec![
        drains("settle | get", vec![drainer(), reader([GET])]),
        drains("settle | query", vec![drainer(), reader([Op::Query])]),
        drains("settle | put get", vec![drainer(), writer([put('a'), GET])]),
        drains("settle | delete get", vec![drainer(), writer([DELETE, GET])]),
        drains("settle | look and delete, get", vec![drainer(), writer([LOOK_AND_DELETE, GET])]),
        Scenario {
            late_writes_may_lose: true,
            ..drains("settle | delete create", vec![drainer().prompt(), writer([DELETE, create('a')])])
        },
        Scenario {
            metadata: just_grown(),
            in_flight: vec![Late::put(0, 1, FIRST_ERA, 'l')],
            validity: 3,
            horizon: 8,
            ..drains("settle | late put | get", vec![drainer().prompt(), reader([GET])])
        },
        Scenario {
            metadata: left_by_a_dead_drainer(),
            in_flight: vec![Late::copy(0, 2, FIRST_ERA, 'x')],
            validity: 3,
            horizon: 8,
            ..drains("a dead drainer's move | settle | delete get", vec![drainer().prompt(), writer([DELETE, GET])])
        },
        Scenario {
            validity: 2,
            horizon: 7,
            ..drains("settle, a move unanswered | delete", vec![drainer().prompt().impatient(), writer([DELETE])])
        },
        Scenario {
            horizon: 6,
            ..drains(
                "settle, crash | settle | get",
                vec![drainer().prompt().mortal(), Cast::new("second drainer", [Op::Drain]).prompt(), reader([GET])],
            )
        },
        Scenario {
            horizon: 6,
            ..drains(
                "settle, crash | settle | delete",
                vec![drainer().prompt().mortal(), Cast::new("second drainer", [Op::Drain]).prompt(), writer([DELETE])],
            )
        },
        Scenario {
            homes: vec![JUMP, OTHER_JUMP],
            metadata: widths(&[3]),
            items: vec![(0, 1, FIRST_ERA, 'x'), (1, 1, FIRST_ERA, 'y')],
            ..drains("settle | scan", vec![drainer(), reader([Op::Scan])])
        },
        Scenario {
            items: vec![(0, 2, 2, 'x')],
            horizon: 9,
            shows: vec![OPENED, DRAINED],
            ..drains(
                "shrink, drain | put get",
                vec![Cast::new("scaler", [Op::Scale(1), Op::Drain]).prompt(), writer([put('a'), GET])],
            )
        },
        Scenario {
            metadata: one_shard(),
            horizon: 9,
            shows: vec![OPENED],
            ..drains(
                "grow, drain | look and delete",
                vec![Cast::new("scaler", [Op::Scale(2), Op::Drain]).prompt(), writer([LOOK_AND_DELETE])],
            )
        },
        Scenario {
            horizon: 10,
            validity: 2,
            shows: vec![OPENED, DRAINED],
            ..drains(
                "settle | shrink, drain",
                vec![drainer().prompt(), Cast::new("scaler", [Op::Scale(1), Op::Drain]).prompt()],
            )
        },
        Scenario {
            items: vec![(0, 1, FIRST_ERA, 'x')],
            in_flight: vec![Late::delete(0, 1, FIRST_ERA)],
            validity: 3,
            horizon: 8,
            shows: vec![DRAINED],
            ..Scenario::new(
                "settle | late delete | get get",
                just_grown(),
                vec![drainer().prompt(), reader([GET, GET])],
            )
        },
        Scenario {
            items: vec![(0, 2, 2, 'x')],
            in_flight: vec![Late::put(0, 1, FIRST_ERA, 'l')],
            validity: 3,
            horizon: 8,
            shows: vec![DRAINED],
            ..Scenario::new(
                "settle | late put | look and delete, get",
                just_grown(),
                vec![drainer().prompt(), writer([LOOK_AND_DELETE, GET])],
            )
        },
    ]
}

fn repeating() -> Vec<Scenario> {
    vec![
        Scenario {
            shows: vec![LATE_REQUEST],
            ..Scenario::new(
                "put, twice | put get",
                one_shard(),
                vec![writer([put('a')]).sending_twice(), other([GET, put('b'), GET]).ahead_by(-1)],
            )
        },
        Scenario {
            items: vec![(0, 1, FIRST_ERA, 'x')],
            ..Scenario::new(
                "delete, twice | put",
                one_shard(),
                vec![writer([DELETE]).sending_twice(), other([put('a'), GET]).ahead_by(-1)],
            )
        },
        Scenario {
            late_writes_may_lose: true,
            horizon: 1,
            ..Scenario::new(
                "create, twice | create | delete",
                widths(&[2]),
                vec![writer([create('a'), GET]).sending_twice(), other([create('b'), DELETE])],
            )
        },
        Scenario {
            late_writes_may_lose: true,
            in_flight: vec![Late::create(0, 1, FIRST_ERA, 'a')],
            horizon: 1,
            shows: vec![LATE_REQUEST],
            ..Scenario::new(
                "late create | create again | create",
                just_grown(),
                vec![writer([create_again('a')]), other([create('b')])],
            )
        },
        Scenario {
            late_writes_may_lose: true,
            horizon: 1,
            ..Scenario::new(
                "create, create again | get delete",
                widths(&[2]),
                vec![writer([create('a'), create_again('a')]), other([GET, DELETE, GET])],
            )
        },
    ]
}

/// Updates: of what was read, and in place.
fn updating() -> Vec<Scenario> {
    let x_stands = |name, metadata, cast| Scenario {
        items: vec![(0, 1, FIRST_ERA, 'x')],
        remembers: true,
        ..Scenario::new(name, metadata, cast)
    };
    let grows =
        |name, cast| Scenario { shows: vec![OPENED], late_writes_may_lose: true, ..x_stands(name, one_shard(), cast) };
    let drains = |name, cast| Scenario { horizon: 5, shows: vec![DRAINED], ..x_stands(name, widths(&[2]), cast) };
    vec![
        x_stands("swap | swap", one_shard(), vec![writer([swap('a'), GET]), other([swap('b'), GET])]),
        x_stands("swap | swap, at an old place", widths(&[2]), vec![writer([swap('a'), GET]), other([swap('b'), GET])]),
        x_stands("add | put get", one_shard(), vec![writer([add('a')]), other([put('b'), GET]).ahead_by(1)]),
        x_stands("add | swap get, at an old place", widths(&[2]), vec![writer([add('a')]), other([swap('b'), GET])]),
        x_stands("add | delete get", widths(&[2]), vec![writer([add('a')]), other([DELETE, GET])]),
        Scenario {
            items: vec![(0, 1, FIRST_ERA, 'x'), (0, 2, 2, 'y')],
            ..x_stands(
                "add, home has an older copy | get",
                widths(&[2, 1]),
                vec![writer([add('a'), GET]), reader([GET])],
            )
        },
        grows("grow | swap | swap get", vec![scaler(2), writer([swap('a')]), other([swap('b'), GET])]),
        grows("grow | add | put get", vec![scaler(2), writer([add('a')]), other([put('b'), GET])]),
        drains("settle | swap get", vec![drainer(), writer([swap('a'), GET])]),
        drains("settle | add get", vec![drainer(), writer([add('a'), GET])]),
        drains("settle | swap delete get", vec![drainer().prompt(), writer([swap('a'), DELETE, GET])]),
        Scenario {
            shows: vec![LATE_REQUEST],
            ..x_stands(
                "add, twice | put get",
                one_shard(),
                vec![writer([add_once('a')]).sending_twice(), other([GET, swap('b'), GET])],
            )
        },
        x_stands(
            "add, add again | swap get",
            one_shard(),
            vec![writer([add_once('a'), Op::AddAgain(0, 'a'), GET]), other([swap('b'), GET])],
        ),
        Scenario {
            shows: vec![OPENED, LATE_REQUEST],
            ..grows(
                "grow | add, add again | get",
                vec![scaler(2), writer([add_once('a'), Op::AddAgain(0, 'a')]), reader([GET])],
            )
        },
    ]
}

fn adopting() -> Vec<Scenario> {
    let adopts = |name, cast| Scenario {
        adopting: true,
        items: vec![(0, 0, 0, 'x')],
        horizon: 5,
        shows: vec![DRAINED],
        ..Scenario::new(name, one_shard(), cast)
    };
    vec![
        adopts("migrate | put get", vec![drainer(), writer([put('a'), GET])]),
        adopts("migrate | delete get", vec![drainer(), writer([DELETE, GET])]),
        Scenario {
            in_flight: vec![Late::put(0, 0, 0, 'l')],
            ..adopts("migrate | late bare put | get", vec![drainer().prompt(), reader([GET])])
        },
        adopts("migrate | create query", vec![drainer(), writer([create('a'), Op::Query])]),
    ]
}

fn appending() -> Vec<Scenario> {
    vec![Scenario {
        append_only: true,
        homes: vec![OWN_SHARDS],
        horizon: 9,
        shows: vec![OPENED, DRAINED],
        ..Scenario::new(
            "grow, drain | append",
            widths(&[2]),
            vec![
                Cast::new("scaler", [Op::Scale(3), Op::Drain]).prompt(),
                writer([Op::Look, Op::Append(0, 'a'), Op::Query]),
            ],
        )
    }]
}

/// What the protocol does not promise: in each of these, a violation is found with all rules kept. `docs/protocol.md` describes them.
#[must_use]
pub fn limits() -> Vec<Scenario> {
    vec![
        Scenario {
            ..Scenario::new(
                "limit: put, twice | get delete get",
                one_shard(),
                vec![writer([put('a')]).sending_twice(), other([GET, DELETE, GET])],
            )
        },
        Scenario {
            metadata: widths(&[2]),
            in_flight: vec![Late::put(0, 1, FIRST_ERA, 'l')],
            ..Scenario::new(
                "limit: late put | create get | get",
                one_shard(),
                vec![writer([create('a'), GET]), reader([GET])],
            )
        },
    ]
}
