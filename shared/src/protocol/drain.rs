//! A drain moves every item of a key home, and then forgets the other places: docs/protocol.md,
//! "Draining".

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::copies::{Condition, Copy, Effect, Marks, Request};
use crate::protocol::layout::{FIRST_ERA, Layout};
use crate::protocol::metadata::{Change, Drain, ShardMetadata};
use crate::protocol::version::Version;
use crate::protocol::view::{Moment, View};
use crate::values::key::ShardNumber;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Waits {
    /// How long writers and moves may use a view.
    pub lease: Duration,
    /// For reads that began before the copies were made.
    pub reads: Duration,
    /// For requests that were sent before: the validity of a signature, plus the largest difference
    /// of two clocks.
    pub signatures: Duration,
}

/// The shards that may hold misplaced items: all that readers query, without shard 1 in a table
/// whose appends stay there.
pub fn sources(
    metadata: &ShardMetadata,
    keep_first: bool,
) -> impl Iterator<Item = ShardNumber> + use<> {
    metadata.read_shards.shards().skip(usize::from(keep_first))
}

/// The epoch second from which on an actor may begin. It waits for the requests of a cancelled
/// drain and for the writes of the era before: a pass would undo a plain deletion of an item that
/// it has read.
pub fn may_begin_at(layout: &Layout, waits: &Waits) -> Option<u64> {
    let changed = (layout.era > FIRST_ERA).then_some(layout.last_updated);
    let stopped = layout.drain_stopped_at.max(changed)?;
    Some(late_until(waits, stopped))
}

/// The epoch second from which on the old places may be scanned for the last time.
pub fn may_finish_at(drain: &Drain, waits: &Waits) -> Option<u64> {
    Some(late_until(waits, drain.emptied_at?))
}

/// The epoch second until which a duplicate of an earlier request may arrive.
pub fn late_until(waits: &Waits, now: u64) -> u64 {
    now.saturating_add(whole_seconds(waits.lease + waits.signatures))
}

/// Whether the tombstones of a settled key may be removed: no deletion leaves another one, no
/// duplicate from before the last of them can arrive, and all earlier reads have ended.
pub fn may_purge(metadata: &ShardMetadata, waits: &Waits, now: u64) -> bool {
    let wait = ((waits.lease + waits.signatures) * 2).max(waits.reads);
    let is_old = |at: u64| at.saturating_add(whole_seconds(wait)) <= now;
    metadata.wants_purging() && metadata.drained_at.is_some_and(is_old)
}

/// Whether a duplicate from before this tombstone may still arrive, by the clock of the deletion.
/// Few are so young when a purge begins, but deletions of items with a mark leave tombstones at any
/// time.
pub fn is_young(tombstone: &Copy, waits: &Waits, now: u64) -> bool {
    let wait = whole_seconds(waits.lease + waits.signatures);
    now.abs_diff(tombstone.version.epoch_seconds()) < wait
        || tombstone.late_until.is_some_and(|until| until > now)
}

fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + 1
}

/// Whether an actor whose mark has this generation may send a move under a view. The actor checks
/// this again between signing and sending.
pub fn may_move(generation: u64, view: &View, lease: Duration, now: Moment) -> MayMove {
    if view.layout.generation != generation {
        MayMove::Over
    } else if view.is_valid(now, lease) {
        MayMove::Yes
    } else {
        MayMove::Look
    }
}

/// An item of another program gets the lowest version, where nothing is.
pub fn copy_home(copy: &Copy) -> Request {
    if copy.version == Version::NONE {
        let effect = Effect::Put { version: Version::ADOPTED, write_id: None };
        return Request::unmarked(effect, Condition::Unchanged(None));
    }
    let (version, write_id) = (copy.version, copy.write_id.clone());
    let effect = if copy.is_tombstone {
        Effect::Bury { version, write_id, may_expire: false }
    } else {
        Effect::Put { version, write_id }
    };
    let marks = Marks { late_until: copy.late_until, lost_until: u64::MAX };
    Request { effect, condition: Condition::AbsentOrBelow(version), marks }
}

/// One actor's part of a drain, from its mark on. `C` is the remembered part of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pass<K, C = Version> {
    /// Of the actor's mark. Another generation means that another actor has the key.
    pub generation: u64,
    at_home: BTreeMap<(ShardNumber, K), C>,
    /// When the last of these home copies was confirmed.
    last_found: Option<Moment>,
    /// Requests that may be in flight: moves without a response, and appends by an outdated page.
    pub in_doubt: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MayMove {
    Yes,
    /// The lease has expired: get a new view first.
    Look,
    /// Another actor has changed the metadata: this actor's part is over.
    Over,
}

impl<K: Ord + Clone, C> Pass<K, C> {
    /// `marked` is the result of the actor's own mark. An append may be placed by an outdated page
    /// until the mark is published.
    pub const fn begin(marked: &ShardMetadata, appends: bool) -> Self {
        let in_doubt = appends as u32;
        Self { generation: marked.generation, at_home: BTreeMap::new(), last_found: None, in_doubt }
    }

    /// After a round over all old places that found nothing. If a move may be in flight, another
    /// round follows.
    pub fn end(&self, drain: &Drain, keep_first: bool) -> Change {
        let in_doubt = drain.in_doubt || self.in_doubt > 0;
        if in_doubt && drain.emptied_at.is_none() {
            Change::Emptied
        } else {
            Change::FinishDrain { keep_first }
        }
    }

    /// Home has a copy that is at least as new: the copy was written, or refused by the stored one.
    pub fn found_home(&mut self, place: ShardNumber, sort_key: K, copy: C, now: Moment) {
        self.at_home.insert((place, sort_key), copy);
        self.last_found = Some(now);
    }

    pub fn known(&self, place: ShardNumber, sort_key: &K) -> Option<&C> {
        self.at_home.get(&(place, sort_key.clone()))
    }

    pub fn remembered(&self) -> usize {
        self.at_home.len()
    }

    /// How long to wait until all reads have ended that began before the copies were at home.
    pub fn wait_for_reads(&self, waits: &Waits, now: Moment) -> Duration {
        let Some(since) = self.last_found else { return Duration::ZERO };
        // If the clock was set back, the wait begins again.
        now.since(since).map_or(waits.reads, |waited| waits.reads.saturating_sub(waited))
    }

    /// The copies that may be deleted now, each in this version.
    pub fn take(&mut self, most: usize) -> Vec<(ShardNumber, K, C)> {
        let next = std::iter::from_fn(|| self.at_home.pop_first());
        let taken =
            next.take(most).map(|((place, sort_key), copy)| (place, sort_key, copy)).collect();
        if self.at_home.is_empty() {
            self.last_found = None;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::view::tests::at;
    use crate::protocol::write::tests::item;
    use crate::values::key::tests::shard;

    const WAITS: Waits = Waits {
        lease: Duration::from_millis(1_500),
        reads: Duration::from_secs(60),
        signatures: Duration::from_secs(900),
    };

    #[test]
    fn what_is_remembered_is_waited_for_and_taken_in_parts() {
        let at = |seconds: u64| at(1_000 * seconds);
        let mut pass = Pass::begin(&ShardMetadata::unregistered(), false);
        assert_eq!(pass.wait_for_reads(&WAITS, at(5)), Duration::ZERO, "there is nothing");
        for sort_key in ["a", "b", "c"] {
            pass.found_home(shard(1), sort_key, Version::LOWEST, at(10));
        }
        // At 9, the clock was set back.
        for (now, wait) in [(9, 60), (30, 40), (70, 0)] {
            assert_eq!(pass.wait_for_reads(&WAITS, at(now)), Duration::from_secs(wait), "at {now}");
        }
        let mut take =
            || pass.take(2).into_iter().map(|(_, sort_key, _)| sort_key).collect::<Vec<_>>();
        assert_eq!([take(), take(), take()], [vec!["a", "b"], vec!["c"], vec![]]);
        assert_eq!(pass.wait_for_reads(&WAITS, at(11)), Duration::ZERO, "there is nothing left");
    }

    #[test]
    fn waits_are_rounded_up_to_whole_seconds() {
        for (stopped_at, begins_at) in
            [(None, None), (Some(200), Some(1_102)), (Some(u64::MAX), Some(u64::MAX))]
        {
            let metadata =
                ShardMetadata { drain_stopped_at: stopped_at, ..ShardMetadata::unregistered() };
            assert_eq!(may_begin_at(&metadata.layout(), &WAITS), begins_at);
        }
        let drain = Drain { began: 7, busy_until: None, in_doubt: true, emptied_at: Some(100) };
        assert_eq!(may_finish_at(&drain, &WAITS), Some(1_002));
        let settled = ShardMetadata {
            settled: true,
            unpurged: true,
            drained_at: Some(100),
            ..ShardMetadata::unregistered()
        };
        assert_eq!(late_until(&WAITS, 100), 1_002);
        let slow_reads = Waits { reads: Duration::from_secs(2_000), ..WAITS };
        let of_100 = item(Version::new(2, 100_000_000, 0));
        let at_100 = |late_until| Copy { is_tombstone: true, late_until, ..of_100.clone() };
        for (late_until, old_at) in [(None, 1_002), (Some(1_500), 1_500)] {
            let is_young = |now| is_young(&at_100(late_until), &WAITS, now);
            assert_eq!([old_at - 1, old_at].map(is_young), [true, false]);
        }
        for (waits, from) in [(WAITS, 1_904), (slow_reads, 2_101)] {
            assert_eq!([from - 1, from].map(|now| may_purge(&settled, &waits, now)), [false, true]);
        }
    }
}
