//! The parts that scenarios are made of: a key's metadata at the beginning, actors and operations.

use sharding::internal::protocol::expressed::Operation;
use sharding::internal::protocol::growth::GrowthRecord;
use sharding::internal::protocol::metadata::{Change, ShardMetadata};

use super::expressing::Expects;
use super::program::{Cast, Keyed, May, Op};
use super::state::{EPOCH, Value, count};

/// A key's metadata after these changes, all made long before the scenario.
fn after(changes: &[Change]) -> ShardMetadata {
    after_at(EPOCH - 100, changes)
}

fn after_at(now: u64, changes: &[Change]) -> ShardMetadata {
    changes.iter().fold(ShardMetadata::unregistered(), |metadata, change| {
        metadata.apply(change, now).expect("a scenario begins with changes that fit")
    })
}

/// A key that grew to two shards just before the scenario.
pub(crate) fn just_grown() -> ShardMetadata {
    let close = Change::Close { to: count(2), growth: GrowthRecord::default() };
    after_at(EPOCH, &[close, Change::Open])
}

/// A key that had these widths in turn.
pub(crate) fn widths(widths: &[u32]) -> ShardMetadata {
    let change = |width: &u32| {
        [Change::Close { to: count(*width), growth: GrowthRecord::default() }, Change::Open]
    };
    after(&widths.iter().flat_map(change).collect::<Vec<_>>())
}

pub(crate) fn settled(width: u32) -> ShardMetadata {
    let close = Change::Close { to: count(width), growth: GrowthRecord::default() };
    let finish = Change::FinishDrain { keep_first: false };
    after(&[close, Change::Open, Change::MarkDrain, finish])
}

pub(crate) fn left_by_a_dead_drainer() -> ShardMetadata {
    let marked = widths(&[2]).apply(&Change::MarkDrain, EPOCH - 50);
    let begun = marked
        .and_then(|marked| marked.apply(&Change::BeginDrain { busy_until: EPOCH }, EPOCH - 50));
    begun.expect("a scenario begins with changes that fit")
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

pub(crate) const fn swap(value: Value) -> Op {
    Op::Swap(0, value)
}

pub(crate) const fn add(value: Value) -> Op {
    Op::Add(0, value, Keyed::No)
}

pub(crate) const fn add_once(value: Value) -> Op {
    Op::Add(0, value, Keyed::Yes)
}

pub(crate) const fn create_again(value: Value) -> Op {
    Op::CreateAgain(0, value)
}

/// Deletes the item, if there is one.
pub(crate) const TAKE: Op = Op::Express(0, 't', Operation::Delete, Expects::Item);
/// Deletes whatever there is.
pub(crate) const ERASE: Op = Op::Express(0, 'e', Operation::Delete, Expects::Anything);

/// Updates the item, if there is one.
pub(crate) const fn update(value: Value) -> Op {
    Op::Express(0, value, Operation::Update { creates: true }, Expects::Item)
}

/// Updates the item, or creates it.
pub(crate) const fn upsert(value: Value) -> Op {
    Op::Express(0, value, Operation::Update { creates: true }, Expects::Anything)
}

/// Updates the item by removing attributes. If there is none, it does nothing.
pub(crate) const fn strip(value: Value) -> Op {
    Op::Express(0, value, Operation::Update { creates: false }, Expects::Anything)
}

/// Puts the item, if there is none.
pub(crate) const fn put_new(value: Value) -> Op {
    Op::Express(0, value, Operation::Put, Expects::NoItem)
}
