//! Drainers: the driver of [`Pass`]. A drainer reads a copy in one step and moves it in another, so
//! a move may be arbitrarily late.

use std::sync::Arc;
use std::time::Duration;

use sharding::ShardNumber;
use sharding::internal::protocol::copies::{Condition, Effect, Request};
use sharding::internal::protocol::drain::{
    MayMove, Pass, Waits, copy_home, is_young, may_begin_at, may_finish_at, may_move, may_purge,
    sources,
};
use sharding::internal::protocol::metadata::{Change, ShardMetadata};
use sharding::internal::protocol::version::Version;

use super::state::{Changing, Content, DrainStep, Key, Step, Stored, Then};
use super::{APPEND_LEASE, LEASE, Turn, WAIT_FOR_READS};

impl Turn<'_> {
    pub(crate) fn waits_of_writers(&self) -> Waits {
        let waits = self.waits();
        if !self.weakened.wait_before_a_look {
            return waits;
        }
        Waits { signatures: Duration::ZERO, ..waits }
    }

    fn waits(&self) -> Waits {
        let signatures = Duration::from_secs(u64::from(self.scenario.validity));
        Waits {
            lease: if self.scenario.append_only { APPEND_LEASE } else { LEASE },
            reads: WAIT_FOR_READS,
            signatures,
        }
    }

    fn home(&self, metadata: &ShardMetadata, key: Key) -> ShardNumber {
        self.scenario.home(key, metadata.number_of_shards)
    }

    /// The copies on a shard whose home is another shard.
    fn misplaced(
        &self,
        metadata: &ShardMetadata,
        place: ShardNumber,
    ) -> Vec<(ShardNumber, Key, Stored)> {
        (0..self.scenario.sort_keys())
            .filter(|key| self.home(metadata, *key) != place)
            .filter_map(|key| Some((place, key, self.state.copy(key, place)?.clone())))
            .collect()
    }

    fn all_misplaced(&self, metadata: &ShardMetadata) -> Vec<(ShardNumber, Key, Stored)> {
        let sources = sources(metadata, self.scenario.append_only);
        sources.flat_map(|place| self.misplaced(metadata, place)).collect()
    }

    /// An actor reads the key's metadata, then marks the key, begins a drain, takes one over, or
    /// finishes it.
    pub(crate) fn drain(&mut self) -> Option<()> {
        let metadata = Arc::clone(&self.state.metadata);
        let now = self.now().epoch_seconds();
        if metadata.settled {
            return self.begin_purge(&metadata);
        }
        let Some(drain) = metadata.draining() else {
            return self.change(&metadata, &Change::MarkDrain, Changing::Again);
        };
        if let Some(from) = may_finish_at(&drain, &self.waits()) {
            if now < from && !self.weakened.wait_for_signatures {
                return None;
            }
            if self.all_misplaced(&metadata).is_empty() {
                let pass = Pass::begin(&metadata, self.scenario.append_only);
                return self.end_drain(&pass, &metadata);
            }
        } else if !self.weakened.wait_before_a_drain
            && may_begin_at(&metadata.layout(), &self.waits()).is_some_and(|from| now < from)
        {
            return None;
        }
        let changing = Changing::BeginDrain { resumes: drain.busy_until.is_some() };
        self.change(&metadata, &Change::BeginDrain { busy_until: now }, changing)
    }

    /// Ends a drain after a pass over all old places has found nothing.
    fn end_drain(&mut self, pass: &Pass<Key>, metadata: &ShardMetadata) -> Option<()> {
        let change = pass.end(&metadata.draining()?, self.scenario.append_only);
        let is_end = matches!(change, Change::FinishDrain { .. });
        self.change(metadata, &change, if is_end { Changing::Again } else { Changing::Emptied })
    }

    /// Begins to delete the tombstones of a settled key, or goes on with the purge of an actor that
    /// has stopped.
    fn begin_purge(&mut self, metadata: &ShardMetadata) -> Option<()> {
        if metadata.draining().is_some() {
            return self.publish(metadata.layout(), Then::Purge);
        }
        if !metadata.wants_purging() {
            return self.finish();
        }
        let now = self.now().epoch_seconds();
        if !self.weakened.tombstones_grow_old && !may_purge(metadata, &self.waits(), now) {
            return None;
        }
        self.change(metadata, &Change::BeginPurge, Changing::BeginPurge)
    }

    pub(crate) fn find_tombstones(&mut self) -> Option<()> {
        let now = self.now().epoch_seconds();
        let tombstones = (0..self.scenario.sort_keys())
            .filter_map(|key| {
                let home = self.home(&self.state.metadata, key);
                let stored = self.state.copy(key, home)?;
                let is_young = is_young(&stored.copy, &self.waits(), now);
                let stays = is_young && !self.weakened.tombstones_grow_old;
                (stored.copy.is_tombstone && !stays).then_some((home, key, stored.copy.version))
            })
            .collect();
        self.go_to(Step::Purging(tombstones))
    }

    pub(crate) fn begin_pass(&mut self, marked: Arc<ShardMetadata>, resumes: bool) -> Option<()> {
        self.read_item(None);
        let step = if resumes && self.weakened.own_pass {
            // It trusts the previous actor, and at once deletes every old copy whose item is at
            // home.
            let at_home = |(_, key, stored): &(ShardNumber, Key, Stored)| {
                let home = self.state.copy(*key, self.home(&marked, *key));
                home.is_some_and(|home| home.copy.version >= stored.copy.version)
            };
            let todo = self.all_misplaced(&marked).into_iter().filter(at_home);
            let todo = todo.map(|(place, key, stored)| (place, key, stored.copy.version));
            DrainStep::Deleting { todo: todo.collect(), sent: false }
        } else {
            self.copying(&marked)
        };
        let pass = Pass::begin(&marked, self.scenario.append_only);
        self.go_to(Step::Draining(pass, marked, step))
    }

    fn copying(&self, marked: &ShardMetadata) -> DrainStep {
        let todo = sources(marked, self.scenario.append_only).collect();
        DrainStep::Copying { todo, read: Vec::new(), sent: false }
    }

    /// The next step of a drain that waits for no response.
    pub(crate) fn drain_on(
        &mut self,
        mut pass: Pass<Key>,
        marked: Arc<ShardMetadata>,
        step: DrainStep,
    ) -> Option<()> {
        let step = match step {
            DrainStep::Copying { todo, read, sent: false } => match read.first().cloned() {
                Some((_, key, stored)) => {
                    let home = self.home(&marked, key);
                    let mut request = copy_home(&stored.copy);
                    if let Effect::Put { version, .. } = &mut request.effect
                        && *version == Version::ADOPTED
                        && self.weakened.adopted_are_lowest
                    {
                        *version = Version::lowest_of(marked.era);
                    }
                    let Stored { copy, value } = stored;
                    let content = Content { value, base: None, applied: copy.applied };
                    if !self.move_item(&mut pass, (home, key, content, request)) {
                        return Some(());
                    }
                    DrainStep::Copying { todo, read, sent: true }
                }
                // It skips shards with nothing to move. The last read finds copies that arrive
                // there later.
                None => {
                    let next = |at: &usize| !self.misplaced(&marked, todo[*at]).is_empty();
                    match (0..todo.len()).find(next) {
                        Some(at) => {
                            let place = todo[at];
                            let read = self.misplaced(&marked, place);
                            DrainStep::Copying { todo: todo[at + 1..].to_vec(), read, sent: false }
                        }
                        None => DrainStep::WaitingForReads,
                    }
                }
            },
            DrainStep::WaitingForReads => {
                let wait = pass.wait_for_reads(&self.waits(), self.now());
                if !self.weakened.wait_for_reads && wait > Duration::ZERO {
                    return None;
                }
                DrainStep::Deleting { todo: pass.take(usize::MAX), sent: false }
            }
            DrainStep::Deleting { todo, sent: false } => {
                let Some((place, key, version)) = todo.first().copied() else {
                    return self.end_pass(pass, marked);
                };
                let moves = (place, key, Content::default(), delete(version));
                if !self.move_item(&mut pass, moves) {
                    return Some(());
                }
                DrainStep::Deleting { todo, sent: true }
            }
            DrainStep::Copying { sent: true, .. } | DrainStep::Deleting { sent: true, .. } => {
                return None;
            }
        };
        self.go_to(Step::Draining(pass, marked, step))
    }

    /// Sends a move if it may be sent now; otherwise the actor's part is over.
    fn move_item(
        &mut self,
        pass: &mut Pass<Key>,
        (place, key, content, request): (ShardNumber, Key, Content, Request),
    ) -> bool {
        while let Some(view) = self.view() {
            match may_move(pass.generation, &view, LEASE, self.now()) {
                MayMove::Over if !self.weakened.moves_keep_lease => {
                    self.finish();
                    return false;
                }
                MayMove::Look if !self.weakened.moves_keep_lease => self.read_item(None),
                MayMove::Yes | MayMove::Look | MayMove::Over => {
                    self.send(place, key, content, request);
                    pass.in_doubt += 1;
                    return true;
                }
            }
        }
        false
    }

    /// A drainer gives up waiting for the response to a copy, and sends it again.
    pub(crate) fn give_up_move(&mut self) -> Option<()> {
        let Step::Draining(mut pass, marked, mut step) = self.me().step.clone() else {
            return None;
        };
        let DrainStep::Copying { sent, read, .. } = &mut step else { return None };
        let key = read.first()?.1;
        let under_way = self.state.requests.iter().filter(|request| request.from == self.actor);
        // It gives up only once, to keep the state space finite.
        let home = self.home(&self.state.metadata, key);
        let gives_up = *sent && self.scenario.cast[self.actor].gives_up;
        if !gives_up || under_way.count() > 1 || self.state.copy(key, home).is_some() {
            return None;
        }
        *sent = false;
        if self.weakened.unanswered_is_ambiguous {
            pass.in_doubt -= 1;
        }
        self.abandon();
        self.go_to(Step::Draining(pass, marked, step))
    }

    /// Processes the response to a move. In every case the item is at home, or the old copy is gone
    /// or has changed.
    pub(crate) fn moved(&mut self) -> Option<()> {
        let Step::Draining(mut pass, marked, step) = self.me().step.clone() else { return None };
        let step = match step {
            DrainStep::Copying { todo, mut read, sent: true } => {
                let (place, key, stored) = read.remove(0);
                pass.found_home(place, key, stored.copy.version, self.now());
                DrainStep::Copying { todo, read, sent: false }
            }
            DrainStep::Deleting { mut todo, sent: true } => {
                todo.remove(0);
                DrainStep::Deleting { todo, sent: false }
            }
            DrainStep::WaitingForReads | DrainStep::Copying { .. } | DrainStep::Deleting { .. } => {
                return None;
            }
        };
        self.abandon();
        pass.in_doubt -= 1;
        self.go_to(Step::Draining(pass, marked, step))
    }

    /// Reads all old places once more. If they are empty, the drain is over; otherwise another pass
    /// begins.
    fn end_pass(&mut self, pass: Pass<Key>, marked: Arc<ShardMetadata>) -> Option<()> {
        if self.all_misplaced(&marked).is_empty() {
            return self.end_drain(&pass, &marked);
        }
        let step = self.copying(&marked);
        self.go_to(Step::Draining(pass, marked, step))
    }

    /// Deletes the next tombstone, without waiting for the response.
    pub(crate) fn purge(&mut self, mut tombstones: Vec<(ShardNumber, Key, Version)>) -> Option<()> {
        let Some((place, key, version)) = tombstones.pop() else {
            let metadata = Arc::clone(&self.state.metadata);
            let purged = self.change(&metadata, &Change::Purged, Changing::Again);
            return purged.or_else(|| self.finish());
        };
        self.send(place, key, Content::default(), delete(version));
        self.go_to(Step::Purging(tombstones))
    }
}

/// Deletes a copy if it is unchanged: a copy at an old place, or a tombstone at home once the key
/// is settled.
const fn delete(version: Version) -> Request {
    Request::unmarked(Effect::Remove, Condition::Unchanged(Some(version)))
}
