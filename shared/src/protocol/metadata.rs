//! A key's state, [`ShardMetadata`], and its transitions, [`Change`]: docs/protocol.md, "Changing
//! the width".

use crate::protocol::growth::GrowthRecord;
use crate::protocol::history::ShardHistory;
use crate::protocol::layout::{FIRST_ERA, Layout};
use crate::protocol::load::Load;
use crate::values::key::ShardCount;

/// The metadata item of a key. For a key without one, see [`ShardMetadata::unregistered`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShardMetadata {
    /// The write width: writers place items on shards 1 to this.
    pub number_of_shards: ShardCount,
    /// The read width: readers query shards 1 to this. It is never below the write width.
    pub read_shards: ShardCount,
    /// 1 plus the number of changes of the write width.
    pub era: u64,
    /// The optimistic lock: every change checks it and raises it. 0 for an item that another
    /// program wrote.
    pub generation: u64,
    pub phase: Phase,
    /// Every width under which an item may be stored, with the time of its change.
    pub shard_history: ShardHistory,
    /// Epoch seconds of the last change of the width. The cooldown counts from here.
    pub last_updated: u64,
    /// Every item is at home: a drain has ended, and the width has not changed since.
    pub settled: bool,
    /// The tombstones from before and shortly after the drain are still to be removed.
    pub unpurged: bool,
    /// Epoch seconds at which a drain was last cancelled, if none has ended since. A request of it
    /// may still be in flight.
    pub drain_stopped_at: Option<u64>,
    /// Epoch seconds at which a drain last ended or was cancelled.
    pub drained_at: Option<u64>,
    /// Epoch seconds of the last change to a lower width.
    pub shrunk_at: Option<u64>,
    /// Epoch seconds at which a drain found an item that it cannot move, if none has succeeded
    /// since.
    pub unmovable_at: Option<u64>,
    pub load: Load,
    pub growth: GrowthRecord,
}

/// The step that a key is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// No change: writers use the write width.
    Open,
    /// Writers wait. The next era will have this width.
    Closing(ShardCount),
    /// A drain moves items home.
    Draining(Drain),
}

/// The progress of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Drain {
    /// Epoch seconds at which its actor began, or the key was marked.
    pub began: u64,
    /// Until this epoch second other actors leave the key to its actor. `None` if no actor has
    /// begun.
    pub busy_until: Option<u64>,
    /// A move may be in flight: it had no response, or its actor has stopped.
    pub in_doubt: bool,
    /// Epoch seconds at which the old places were found empty.
    pub emptied_at: Option<u64>,
}

/// A transition of a key's metadata.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// Record a key that has no item.
    Register,
    /// Name the width of the next era, and record the effect of the growths so far. Cancels a
    /// drain.
    Close { to: ShardCount, growth: GrowthRecord },
    /// Take over a closing from its actor. The actor that closed last opens.
    CloseAgain,
    /// Begin the next era.
    Open,
    /// Mark the key for a drain by any actor.
    MarkDrain,
    /// Begin a drain, or take it over from an actor that has stopped.
    BeginDrain { busy_until: u64 },
    /// Extend the actor's time to this epoch second.
    ProlongDrain { busy_until: u64 },
    /// The old places were empty. A move may still be in flight, so the actor stops for now.
    Emptied,
    /// Every item is home: forget the other widths. Width 1 is kept in tables whose writers write
    /// to shard 1 without a view.
    FinishDrain { keep_first: bool },
    /// Begin to remove the tombstones of a settled key.
    BeginPurge,
    /// The tombstones of a settled key are gone.
    Purged,
    /// Give up a drain, for example because it cannot move an item.
    StopDrain { unmovable: bool },
    /// The result of a rebuild: the next era begins with this number of shards, these widths, and
    /// an era that is at least this one.
    Rebuild { to: ShardCount, history: ShardHistory, era: u64 },
}

impl ShardMetadata {
    /// The meaning of an absent item: one shard, and no change ever.
    pub fn unregistered() -> Self {
        Self::unregistered_with(ShardCount::ONE)
    }

    /// The same in a table that had a fixed number of shards before it was adopted.
    pub fn unregistered_with(shards: ShardCount) -> Self {
        Self {
            number_of_shards: shards,
            read_shards: shards,
            era: FIRST_ERA,
            generation: 0,
            phase: Phase::Open,
            shard_history: ShardHistory::default(),
            last_updated: 0,
            settled: false,
            unpurged: false,
            drain_stopped_at: None,
            drained_at: None,
            shrunk_at: None,
            unmovable_at: None,
            load: Load::default(),
            growth: GrowthRecord::default(),
        }
    }

    /// Applies a change at an epoch second. `None` if the change is not possible in this state.
    ///
    /// The caller stores the result on the condition that the stored generation is still that of
    /// `self`.
    pub fn apply(&self, change: &Change, now: u64) -> Option<Self> {
        let mut next = Self { generation: self.generation + 1, ..self.clone() };
        let marked = Drain { began: now, busy_until: None, in_doubt: false, emptied_at: None };
        // The first change records the current width.
        if next.shard_history.entries().all(|entry| entry.count != self.number_of_shards) {
            let is_new = self.generation == 0 && self.last_updated == 0;
            let since = if is_new { now } else { self.last_updated };
            next.shard_history = next.shard_history.with(since, self.number_of_shards);
            next.last_updated = since;
        }
        match (change, self.phase) {
            (Change::Register, Phase::Open) if self.generation == 0 => {}
            (Change::Close { to, growth }, Phase::Open | Phase::Draining(_)) => {
                next.phase = Phase::Closing(*to);
                next.read_shards = self.read_shards.max(*to);
                next.growth = *growth;
                if matches!(self.phase, Phase::Draining(_)) {
                    (next.drain_stopped_at, next.drained_at) = (Some(now), Some(now));
                }
            }
            (Change::CloseAgain, Phase::Closing(_)) => {}
            (Change::Open, Phase::Closing(to)) => {
                next.phase = Phase::Open;
                next.era += 1;
                next.number_of_shards = to;
                next.shard_history = next.shard_history.with(now, to);
                next.last_updated = now;
                next.settled = false;
                // The close may have been applied long after it was decided. Its drain was active
                // until then.
                next.drain_stopped_at = self.drain_stopped_at.map(|_| now);
                if to < self.number_of_shards {
                    // The items on the removed shards must move, by any actor.
                    next.shrunk_at = Some(now);
                    next.phase = Phase::Draining(marked);
                }
            }
            (Change::MarkDrain, Phase::Open) => {
                (next.phase, next.settled) = (Phase::Draining(marked), false);
                // A drain that was given up may have continued until its actor saw that. By now it
                // has.
                next.drain_stopped_at =
                    self.drain_stopped_at.map(|at| if at > self.last_updated { now } else { at });
            }
            (Change::BeginDrain { busy_until }, Phase::Draining(drain)) => {
                let in_doubt = drain.busy_until.is_some();
                next.phase =
                    Phase::Draining(Drain { busy_until: Some(*busy_until), in_doubt, ..marked });
            }
            (Change::ProlongDrain { busy_until }, Phase::Draining(drain)) => {
                next.phase = Phase::Draining(Drain { busy_until: Some(*busy_until), ..drain });
            }
            (Change::Emptied, Phase::Draining(drain)) => {
                let (busy_until, emptied_at) = (Some(now), Some(now));
                next.phase =
                    Phase::Draining(Drain { busy_until, emptied_at, in_doubt: true, ..drain });
            }
            (Change::BeginPurge, Phase::Open) if self.wants_purging() => {
                next.phase = Phase::Draining(marked);
            }
            (Change::Purged, Phase::Draining(_)) if self.settled => {
                (next.phase, next.unpurged) = (Phase::Open, false);
            }
            (Change::FinishDrain { keep_first }, Phase::Draining(_)) => {
                next.phase = Phase::Open;
                next.read_shards = self.number_of_shards;
                let kept = [Some(self.number_of_shards), keep_first.then_some(ShardCount::ONE)]
                    .into_iter()
                    .flatten();
                let history =
                    kept.filter_map(|width| Some((next.shard_history.last(width)?, width)));
                next.shard_history = history
                    .fold(ShardHistory::default(), |history, (at, width)| history.with(at, width));
                (next.settled, next.unpurged) = (true, true);
                (next.drain_stopped_at, next.unmovable_at, next.drained_at) =
                    (None, None, Some(now));
            }
            (Change::StopDrain { unmovable }, Phase::Draining(_)) => {
                next.phase = Phase::Open;
                // The time must be after the last change, even if this actor's clock is behind; see
                // `MarkDrain`.
                let at = Some(now.max(self.last_updated + 1));
                (next.drain_stopped_at, next.drained_at) = (at, at);
                next.unmovable_at = unmovable.then_some(now).or(self.unmovable_at);
            }
            (Change::Rebuild { to, history, era }, Phase::Open | Phase::Closing(_)) => {
                next.phase = Phase::Closing(*to);
                next.read_shards = self.read_shards.max(*to);
                next.era = self.era.max(*era);
                next.shard_history = history
                    .entries()
                    .fold(next.shard_history, |history, entry| history.with(entry.at, entry.count));
                next.settled = false;
                next.generation = next.generation.max(now);
            }
            _ => return None,
        }
        Some(next)
    }

    /// Every width under which an item may be stored now or soon.
    pub fn widths(&self) -> impl Iterator<Item = ShardCount> + '_ {
        let history = self.shard_history.entries().map(|entry| entry.count);
        history.chain([self.number_of_shards]).chain(self.closing())
    }

    pub fn layout(&self) -> Layout {
        let history = self.shard_history.entries().map(|entry| entry.count);
        Layout {
            generation: self.generation,
            era: self.era,
            number_of_shards: self.number_of_shards,
            read_shards: self.read_shards,
            closing: self.closing(),
            opens_at: None,
            draining: self.draining().is_some(),
            settled: self.settled,
            widths: history.chain([self.number_of_shards]).collect(),
            last_updated: self.last_updated,
            drain_stopped_at: self.drain_stopped_at,
            drained_at: self.drained_at,
        }
    }

    pub const fn closing(&self) -> Option<ShardCount> {
        if let Phase::Closing(to) = self.phase { Some(to) } else { None }
    }

    pub const fn draining(&self) -> Option<Drain> {
        if let Phase::Draining(drain) = self.phase { Some(drain) } else { None }
    }

    /// Whether items may be stored at places other than their homes, and no change is running.
    pub fn wants_settling(&self) -> bool {
        self.phase == Phase::Open && !self.settled && self.last_change().is_some()
    }

    /// Whether tombstones are to be removed, once they are old enough.
    pub fn wants_purging(&self) -> bool {
        self.phase == Phase::Open && self.settled && self.unpurged
    }

    /// Whether a drain found an item that it cannot move, and nothing has changed since. The
    /// schedule then does not try again.
    pub fn has_unmovable(&self) -> bool {
        self.unmovable_at.is_some_and(|at| at >= self.last_change().unwrap_or_default())
    }

    /// Epoch seconds of the last *change*. `None` for a key that has only been registered.
    pub fn last_change(&self) -> Option<u64> {
        (self.era > FIRST_ERA || self.settled || self.shard_history.entries().len() > 1)
            .then_some(self.last_updated)
    }

    /// As far as it is known, in epoch seconds. `None` if the last change was a shrink, or if there
    /// was none.
    pub fn last_growth(&self) -> Option<u64> {
        self.last_change().filter(|at| self.shrunk_at.is_none_or(|shrunk| *at > shrunk))
    }
}

impl Layout {
    /// Of a key without metadata. `shards` is one, except in an adopted table that was sharded
    /// before.
    pub fn unlisted(shards: ShardCount) -> Self {
        ShardMetadata::unregistered_with(shards).layout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::count;

    const BEGIN: Change = Change::BeginDrain { busy_until: 90 };

    #[test]
    fn a_change_records_what_later_ones_need() {
        // A change and its time; then the write and read width, the time at which a drain was last
        // cancelled, and the history.
        let rows = [
            (close(8), 10, (1, 8), None, "10:1"),
            (Change::Open, 12, (8, 8), None, "10:1 12:8"),
            (close(2), 20, (8, 8), None, "10:1 12:8"),
            (Change::Open, 22, (2, 8), None, "10:1 12:8 22:2"),
            (BEGIN, 30, (2, 8), None, "10:1 12:8 22:2"),
            (Change::StopDrain { unmovable: true }, 36, (2, 8), Some(36), "10:1 12:8 22:2"),
            // The drain before may have continued for a while.
            (Change::MarkDrain, 50, (2, 8), Some(50), "10:1 12:8 22:2"),
            (close(4), 60, (2, 8), Some(60), "10:1 12:8 22:2"),
            (Change::Open, 62, (4, 8), Some(62), "10:1 12:8 22:2 62:4"),
            (Change::MarkDrain, 70, (4, 8), Some(62), "10:1 12:8 22:2 62:4"),
            (Change::FinishDrain { keep_first: true }, 2_000, (4, 4), None, "10:1 62:4"),
            (Change::BeginPurge, 4_000, (4, 4), None, "10:1 62:4"),
            (Change::Purged, 4_001, (4, 4), None, "10:1 62:4"),
        ];
        let mut metadata = ShardMetadata::unregistered();
        for (change, now, widths, stopped_at, history) in rows {
            metadata = metadata
                .apply(&change, now)
                .unwrap_or_else(|| panic!("{change:?} does not fit {metadata:?}"));
            let of_writes_and_reads = (metadata.number_of_shards.get(), metadata.read_shards.get());
            assert_eq!(of_writes_and_reads, widths, "{change:?}");
            assert_eq!(metadata.drain_stopped_at, stopped_at, "{change:?}");
            assert_eq!(metadata.shard_history.to_strings().join(" "), history, "{change:?}");
        }
        let recorded =
            (metadata.generation, metadata.era, metadata.shrunk_at, metadata.unmovable_at);
        assert_eq!(recorded, (13, FIRST_ERA + 3, Some(22), None));
        assert!(!metadata.wants_purging());
    }

    fn close(to: u32) -> Change {
        Change::Close { to: count(to), growth: GrowthRecord::default() }
    }
}
