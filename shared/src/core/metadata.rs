//! What is known of one logical partition key: the item of the metadata table.

use super::drain::Drain;
use super::growth::GrowthRecord;
use super::history::ShardHistory;
use super::key::ShardCount;
use super::load::Load;

/// The metadata item of a key. An absent item means one shard; see [`ShardMetadata::unregistered`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardMetadata {
    /// The write width: writers place new items on shards 1 up to this.
    pub number_of_shards: ShardCount,
    /// The read width: readers look at shards 1 up to this. Never below the write width.
    pub read_shards: ShardCount,
    /// Epoch seconds of the last change of the width; the cooldown counts from here.
    pub last_updated: u64,
    /// Every width so far, with the time of its change.
    pub shard_history: ShardHistory,
    /// Raised by every update and checked by it: the optimistic lock. 0 is an item written by another program.
    pub generation: u64,
    /// A shrink or a settling is under way.
    pub draining: bool,
    /// How far it is, where it is one of this product's.
    pub drain: Option<Drain>,
    /// Epoch seconds of the last shrink's beginning; 0 for never.
    pub shrunk_at: u64,
    /// Epoch seconds at which a drain met an item that it cannot move; 0 for never, or where one has ended well since.
    pub unmovable_at: u64,
    /// Every item is at home under the widths of the history: width 1 is a candidate only where it is among them.
    pub settled: bool,
    /// Epoch seconds of a point write that needed several candidates, within the hour; 0 for none that was noted.
    pub point_written_at: u64,
    /// What its writers noted of its demand.
    pub load: Load,
    /// Epoch seconds at which a drain last ended or was stopped; 0 for never.
    pub drained_at: u64,
    /// What its growths have brought.
    pub growth: GrowthRecord,
}

/// The longest, in seconds, that an index is taken to lag behind its table. It lags by a fraction of a second as a rule, and nothing bounds it.
/// (DynamoDB developer guide, "Using global secondary indexes".)
pub(crate) const LONGEST_INDEX_LAG: u64 = 900;

impl ShardMetadata {
    /// What an absent item means: one shard, and no change ever.
    #[must_use]
    pub fn unregistered() -> Self {
        Self::unregistered_with(ShardCount::ONE)
    }

    /// What an absent item means in a table that has had a fixed number of shards since before it was adopted.
    #[must_use]
    pub fn unregistered_with(shards: ShardCount) -> Self {
        Self {
            number_of_shards: shards,
            read_shards: shards,
            last_updated: 0,
            shard_history: ShardHistory::default(),
            generation: 0,
            draining: false,
            drain: None,
            shrunk_at: 0,
            unmovable_at: 0,
            settled: false,
            point_written_at: 0,
            load: Load::default(),
            drained_at: 0,
            growth: GrowthRecord::default(),
        }
    }

    /// The item that the first write of a new key registers.
    #[must_use]
    pub fn registered(now_seconds: u64) -> Self {
        Self::registered_with(now_seconds, ShardCount::ONE)
    }

    /// As [`registered`](Self::registered), in a table that has had a fixed number of shards since before it was adopted.
    #[must_use]
    pub fn registered_with(now_seconds: u64, shards: ShardCount) -> Self {
        Self {
            last_updated: now_seconds,
            shard_history: ShardHistory::default().with(now_seconds, shards),
            generation: 1,
            ..Self::unregistered_with(shards)
        }
    }

    /// Every width under which an item may have been placed: all of the history, the write and the read width, and 1 unless the key is
    /// settled.
    pub fn widths(&self) -> impl Iterator<Item = ShardCount> + '_ {
        let one = (!self.settled).then_some(ShardCount::ONE);
        let now = [self.number_of_shards, self.read_shards];
        one.into_iter().chain(now).chain(self.shard_history.entries().map(|entry| entry.count))
    }

    /// The width of an expansion that waits to be activated.
    ///
    /// ```
    /// use sharding::{ShardCount, ShardMetadata};
    /// let mut metadata = ShardMetadata::unregistered();
    /// metadata.read_shards = ShardCount::new(4).unwrap();
    /// assert_eq!(metadata.expansion(), ShardCount::new(4));
    /// metadata.draining = true; // the same widths, but a shrink: nobody may activate it
    /// assert_eq!(metadata.expansion(), None);
    /// ```
    #[must_use]
    pub fn expansion(&self) -> Option<ShardCount> {
        (!self.draining && self.read_shards > self.number_of_shards).then_some(self.read_shards)
    }

    /// Whether an index may still show items where a drain has moved them from, and not yet where it has moved them to: pages are read from the
    /// table then.
    ///
    /// ```
    /// use sharding::ShardMetadata;
    /// let mut metadata = ShardMetadata::unregistered();
    /// assert!(!metadata.may_lag_in_indexes(1_000));
    /// metadata.draining = true;
    /// assert!(metadata.may_lag_in_indexes(1_000));
    /// (metadata.draining, metadata.drained_at) = (false, 1_000);
    /// assert!(metadata.may_lag_in_indexes(1_899) && !metadata.may_lag_in_indexes(1_900));
    /// ```
    #[must_use]
    pub const fn may_lag_in_indexes(&self, now_seconds: u64) -> bool {
        let ended = self.drained_at > 0 && now_seconds < self.drained_at.saturating_add(LONGEST_INDEX_LAG);
        self.draining || ended
    }

    /// Whether nobody has made a step of the protocol between the two. Writers' notes are none.
    #[must_use]
    pub fn is_same_step(&self, later: &Self) -> bool {
        Self { point_written_at: later.point_written_at, load: later.load, ..self.clone() } == *later
    }

    /// Whether settling would spare point writes something: they were noted since the last change, and items may have several candidates.
    #[must_use]
    pub fn wants_settling(&self) -> bool {
        let widths: std::collections::BTreeSet<ShardCount> = self.widths().collect();
        let is_calm = !self.draining && self.expansion().is_none();
        let is_noted = self.point_written_at > 0 && self.point_written_at >= self.last_change().unwrap_or_default();
        is_calm && widths.len() > 1 && is_noted
    }

    /// Whether a drain has met an item that it cannot move, and nothing has changed since: the schedule does not try again by itself.
    #[must_use]
    pub fn has_unmovable(&self) -> bool {
        self.unmovable_at > 0 && self.unmovable_at >= self.last_change().unwrap_or_default()
    }

    /// Epoch seconds of the last *change*; `None` for a key that has only been registered.
    #[must_use]
    pub fn last_change(&self) -> Option<u64> {
        (self.settled || self.shard_history.entries().len() > 1).then_some(self.last_updated)
    }

    /// Epoch seconds of the last growth, as far as it is known; `None` where the last change was a shrink, or none was.
    #[must_use]
    pub fn last_growth(&self) -> Option<u64> {
        self.last_change().filter(|at| *at > self.shrunk_at)
    }
}
