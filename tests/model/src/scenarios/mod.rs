//! What is explored: a few actors each, chosen so that each scenario can show one kind of fault, and small enough to be explored whole.

mod adopting;
mod growing;
mod settling;
mod shrinking;
mod writing;

use std::sync::Arc;

use super::monitor::Monitor;
use super::program::{Cast, Op};
use super::state::{Actor, BARE, Broken, Few, Metadata, State, Step, Stored, Value, Version, View};

/// Longer than every scenario.
const FOR_EVER: u8 = u8::MAX;

/// How long a scenario goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For every run of the tests: seconds each.
    Small,
    /// More ticks, and longer leases: minutes in all.
    Large,
}

impl Size {
    fn pick(self, small: u8, large: u8) -> u8 {
        match self {
            Self::Small => small,
            Self::Large => large,
        }
    }
}

/// A world to explore. Times are in ticks.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) cast: Vec<Cast>,
    pub(crate) metadata: Option<Metadata>,
    /// What stands at the beginning: sort key, shard, value.
    pub(crate) items: Vec<(u8, u8, Value)>,
    pub(crate) sort_keys: u8,
    pub(crate) shards: u8,
    /// The lease of reads and point writes, and the wait of who activates.
    pub(crate) lease: u8,
    pub(crate) append_lease: u8,
    /// Appends without a view go to shard 1 at once; a key may be settled only where they read the metadata first.
    pub(crate) cold_append: bool,
    /// The table has items under bare keys, from before it was sharded.
    pub(crate) adopting: bool,
    /// How long a signed request is accepted.
    pub(crate) validity: u8,
    /// How long a read may take.
    pub(crate) longest_read: u8,
    /// When time ends.
    pub(crate) horizon: u8,
    /// How many ticks share one value of `last_updated`.
    pub(crate) second: u8,
    /// 0 for none.
    pub(crate) cooldown: u8,
    /// The properties that some state must have, so that the scenario is not vacuous.
    pub(crate) shows: Vec<&'static str>,
}

impl Scenario {
    fn new(name: &'static str, about: &'static str, cast: Vec<Cast>) -> Self {
        Self {
            name,
            about,
            cast,
            metadata: Some(one_shard()),
            items: Vec::new(),
            sort_keys: 1,
            shards: 2,
            lease: 1,
            append_lease: 1,
            cold_append: true,
            adopting: false,
            validity: FOR_EVER,
            longest_read: FOR_EVER,
            horizon: 1,
            second: 1,
            cooldown: 0,
            shows: Vec::new(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it is for.
    #[must_use]
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// The properties that some state must have, so that the scenario is not vacuous.
    #[must_use]
    pub fn shows(&self) -> &[&'static str] {
        &self.shows
    }

    pub(crate) fn first_state(&self) -> State {
        let standing = |sort_key: u8, shard: u8| {
            let item = self.items.iter().find(|(key, on, _)| *key == sort_key && *on == shard);
            let clock = if shard == BARE { 0 } else { 1 };
            item.map(|(_, _, value)| Stored { version: Version { clock, ..Version::default() }, value: *value })
        };
        let row = |sort_key: u8| (BARE..=self.shards).map(|shard| standing(sort_key, shard)).collect::<Vec<_>>();
        let table: Vec<Vec<Option<Stored>>> = (0..self.sort_keys).map(row).collect();
        let value = |row: &Vec<Option<Stored>>| row.iter().flatten().max().map(|stored| stored.value);
        let monitors = table.iter().map(|row| Arc::new(Monitor::starting_with(value(row)))).collect();
        let idle = |cast: &Cast| Actor { op: 0, view: cast.view, step: Step::Idle, inbox: None };
        State {
            now: 0,
            metadata: self.metadata,
            table,
            requests: Vec::new(),
            actors: self.cast.iter().map(idle).collect(),
            monitors,
            broken: Broken::default(),
            clock: 2,
            last_change: None,
        }
    }
}

fn settled<const N: usize>(width: u8, history: [u8; N], generation: u8) -> Metadata {
    let history: Few = history.into_iter().collect();
    Metadata {
        write_width: width,
        read_width: width,
        last_updated: 0,
        history,
        generation,
        draining: None,
        settled: false,
    }
}

fn one_shard() -> Metadata {
    settled(1, [1], 1)
}

fn two_shards() -> Metadata {
    settled(2, [1, 2], 3)
}

/// Grown from one shard to three at once.
fn three_shards() -> Metadata {
    settled(3, [1, 3], 3)
}

/// Grown from one shard to two, and to four.
fn four_shards() -> Metadata {
    settled(4, [1, 2, 4], 5)
}

/// Grown from one shard to four at once.
fn straight_to_four() -> Metadata {
    settled(4, [1, 4], 3)
}

/// A view that was asked for just before the scenario begins.
fn knowing(metadata: Metadata) -> View {
    View { metadata: Some(metadata), asked_at: 0 }
}

fn out(to: u8) -> Op {
    Op::ScaleOut { to }
}

fn shrink(to: u8) -> Op {
    Op::Shrink { to }
}

/// All scenarios in which every invariant holds.
#[must_use]
pub fn scenarios(size: Size) -> Vec<Scenario> {
    let mut all = growing::scenarios(size);
    all.extend(writing::scenarios(size));
    all.extend(shrinking::scenarios(size));
    all.extend(settling::scenarios(size));
    all.extend(adopting::scenarios(size));
    all
}

/// The scenario of that name.
///
/// # Panics
/// Where there is none.
#[must_use]
pub fn scenario(name: &str, size: Size) -> Scenario {
    let mut all = scenarios(size).into_iter().chain(limits());
    all.find(|scenario| scenario.name == name).expect("a test names a scenario that exists")
}

/// What the protocol does not promise: in each of these, a violation is found with all rules kept. `docs/protocol.md` tells them.
#[must_use]
pub fn limits() -> Vec<Scenario> {
    vec![
        Scenario {
            shards: 1,
            append_lease: 3,
            horizon: 0,
            ..Scenario::new(
                "limit: a repeated write and a delete",
                "an append is sent twice, and deleted between",
                vec![
                    Cast::new("appender", [Op::Look, Op::append(0, 'x')]).sending_twice(),
                    Cast::new("deleter", [Op::Look, Op::delete()]),
                ],
            )
        },
        Scenario {
            adopting: true,
            items: vec![(0, BARE, 'o')],
            horizon: 0,
            ..Scenario::new(
                "limit: a delete of an adopted item",
                "an append leaves a second, newer copy of an item under a bare key; both are deleted while they are read",
                vec![
                    Cast::new("appender", [Op::append(0, 'x')]),
                    Cast::new("deleter", [Op::Look, Op::delete()]),
                    Cast::new("reader", [Op::Look, Op::query()]),
                ],
            )
        },
        Scenario {
            metadata: Some(two_shards()),
            horizon: 0,
            ..Scenario::new(
                "limit: a delete of two copies",
                "an append without a view leaves a second, newer copy; both are deleted while they are read",
                vec![
                    Cast::new("appender without a view", [Op::append(0, 'x')]),
                    Cast::new("putter", [Op::Look, Op::put('y'), Op::delete()]),
                    Cast::new("reader", [Op::Look, Op::query()]),
                ],
            )
        },
    ]
}
