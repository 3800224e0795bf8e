//! The parts that scenarios are made of: a key's metadata at the beginning, actors and operations,
//! and scenarios of which others differ little.

use sharding::internal::protocol::expressed::Operation;
use sharding::internal::protocol::growth::GrowthRecord;
use sharding::internal::protocol::layout::FIRST_ERA;
use sharding::internal::protocol::metadata::{Change, ShardMetadata};

use super::expressing::Expects;
use super::invariants::DRAINED;
use super::program::{Cast, Op};
use super::scenario::Scenario;
use super::state::{EPOCH, Value, count};

/// A key's metadata after these changes, all made at this epoch second.
pub(crate) fn after(metadata: ShardMetadata, now: u64, changes: &[Change]) -> ShardMetadata {
    changes.iter().fold(metadata, |metadata, change| {
        metadata.apply(change, now).expect("a scenario begins with changes that fit")
    })
}

pub(crate) fn close(to: u32) -> Change {
    Change::Close { to: count(to), growth: GrowthRecord::default() }
}

/// A key that grew to two shards just before the scenario.
pub(crate) fn just_grown() -> ShardMetadata {
    after(one_shard(), EPOCH, &[close(2), Change::Open])
}

/// A key that had these widths in turn, long before the scenario.
pub(crate) fn widths(widths: &[u32]) -> ShardMetadata {
    let change = |width: &u32| [close(*width), Change::Open];
    after(one_shard(), EPOCH - 100, &widths.iter().flat_map(change).collect::<Vec<_>>())
}

pub(crate) fn settled(width: u32) -> ShardMetadata {
    let drain = [Change::MarkDrain, Change::FinishDrain { keep_first: false }];
    after(widths(&[width]), EPOCH - 100, &drain)
}

/// A key of two shards that is marked for a drain.
pub(crate) fn marked() -> ShardMetadata {
    after(widths(&[2]), EPOCH - 50, &[Change::MarkDrain])
}

pub(crate) fn left_by_a_dead_drainer() -> ShardMetadata {
    after(marked(), EPOCH - 50, &[Change::BeginDrain { busy_until: EPOCH }])
}

pub(crate) fn one_shard() -> ShardMetadata {
    ShardMetadata::unregistered()
}

/// A scenario with an item x of the first era on shard 1.
pub(crate) fn with_x(name: &'static str, metadata: ShardMetadata) -> Scenario {
    Scenario::new(name, metadata).items([(0, 1, FIRST_ERA, 'x')])
}

/// A drain of a key with an item x of the first era on shard 1.
pub(crate) fn drains(name: &'static str, metadata: ShardMetadata) -> Scenario {
    with_x(name, metadata).horizon(5).showing([DRAINED])
}

pub(crate) fn scaler(to: u32) -> Cast {
    Cast::new("scaler", [Op::Scale(to)])
}

pub(crate) fn scales_and_drains(to: u32) -> Cast {
    Cast::new("scaler", [Op::Scale(to), Op::Drain]).prompt()
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
pub(crate) const DELETE: Op = Op::Delete { may_look: false };
pub(crate) const LOOK_AND_DELETE: Op = Op::Delete { may_look: true };

pub(crate) const fn add(value: Value) -> Op {
    Op::Add(value, false)
}

pub(crate) const fn add_once(value: Value) -> Op {
    Op::Add(value, true)
}

/// Deletes the item, if there is one.
pub(crate) const TAKE: Op = Op::Express('t', Operation::Delete, Expects::Item);
/// Deletes whatever there is.
pub(crate) const ERASE: Op = Op::Express('e', Operation::Delete, Expects::Anything);

/// Updates the item, if there is one.
pub(crate) const fn update(value: Value) -> Op {
    Op::Express(value, Operation::Update { creates: true }, Expects::Item)
}

/// Updates the item, or creates it.
pub(crate) const fn upsert(value: Value) -> Op {
    Op::Express(value, Operation::Update { creates: true }, Expects::Anything)
}

/// Updates the item by removing attributes. If there is none, it does nothing.
pub(crate) const fn strip(value: Value) -> Op {
    Op::Express(value, Operation::Update { creates: false }, Expects::Anything)
}

/// Puts the item, if there is none.
pub(crate) const fn put_new(value: Value) -> Op {
    Op::Express(value, Operation::Put, Expects::NoItem)
}
