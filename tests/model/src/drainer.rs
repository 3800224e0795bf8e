//! Drainers: the driver of [`Pass`]. A drainer reads a copy in one step and moves it in another, so
//! a move may be arbitrarily late.

use std::sync::Arc;
use std::time::Duration;

use sharding::ShardNumber;
use sharding::internal::protocol::copies::{Effect, Request};
use sharding::internal::protocol::drain::{
    MayMove, Pass, Waits, copy_home, delete, is_young, may_begin_at, may_finish_at, may_move,
    may_purge, sources,
};
use sharding::internal::protocol::metadata::{Change, ShardMetadata};
use sharding::internal::protocol::version::Version;

use super::state::{Body, Changing, Content, DrainStep, Key, State, Step, Stored, Then};
use super::{APPEND_LEASE, LEASE, ProtocolModel, Story, WAIT_FOR_READS};

impl ProtocolModel {
    pub(crate) fn waits_of_writers(&self) -> Waits {
        let waits = self.waits();
        Waits {
            signatures: if self.rules.wait_before_a_look {
                waits.signatures
            } else {
                Duration::ZERO
            },
            ..waits
        }
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
        state: &State,
        metadata: &ShardMetadata,
        place: ShardNumber,
    ) -> Vec<(ShardNumber, Key, Stored)> {
        (0..self.scenario.sort_keys())
            .filter(|key| self.home(metadata, *key) != place)
            .filter_map(|key| Some((place, key, state.copy(key, place)?.clone())))
            .collect()
    }

    fn sources(&self, metadata: &ShardMetadata) -> Vec<ShardNumber> {
        sources(metadata, self.scenario.append_only).collect()
    }

    fn all_misplaced(
        &self,
        state: &State,
        metadata: &ShardMetadata,
    ) -> Vec<(ShardNumber, Key, Stored)> {
        self.sources(metadata)
            .into_iter()
            .flat_map(|place| self.misplaced(state, metadata, place))
            .collect()
    }

    /// An actor reads the key's metadata, then marks the key, begins a drain, takes one over, or
    /// finishes it.
    pub(crate) fn drain(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let metadata = Arc::clone(&state.metadata);
        let now = self.now(state, actor).epoch_seconds();
        if metadata.settled {
            return self.begin_purge(state, actor, &metadata, story);
        }
        let Some(drain) = metadata.draining() else {
            return self.change(
                state,
                actor,
                (&metadata, &Change::MarkDrain),
                Changing::Mark,
                story,
            );
        };
        if let Some(from) = may_finish_at(&drain, &self.waits()) {
            if now < from && self.rules.wait_for_signatures {
                return None;
            }
            if self.all_misplaced(state, &metadata).is_empty() {
                story.log(format_args!("{} finds all old places empty", self.name(actor)));
                return self.finish(
                    state,
                    actor,
                    &Pass::begin(&metadata, self.scenario.append_only),
                    &metadata,
                    story,
                );
            }
        } else if self.rules.wait_before_a_drain
            && may_begin_at(&metadata.layout(), &self.waits()).is_some_and(|from| now < from)
        {
            return None;
        }
        let change = Change::BeginDrain { busy_until: now };
        let changing = Changing::BeginDrain { resumes: drain.busy_until.is_some() };
        self.change(state, actor, (&metadata, &change), changing, story)
    }

    /// Ends a drain after a pass over all old places has found nothing.
    fn finish(
        &self,
        state: &mut State,
        actor: usize,
        pass: &Pass<Key>,
        metadata: &ShardMetadata,
        story: &mut Story,
    ) -> Option<()> {
        let change = pass.end(&metadata.draining()?, self.scenario.append_only);
        let is_end = matches!(change, Change::FinishDrain { .. });
        let changing = if is_end { Changing::Finish } else { Changing::Emptied };
        self.change(state, actor, (metadata, &change), changing, story)
    }

    /// Begins to delete the tombstones of a settled key, or goes on with the purge of an actor that
    /// has stopped.
    fn begin_purge(
        &self,
        state: &mut State,
        actor: usize,
        metadata: &Arc<ShardMetadata>,
        story: &mut Story,
    ) -> Option<()> {
        if metadata.draining().is_some() {
            self.publish(state, actor, metadata.layout(), Then::Purge, story);
            return Some(());
        }
        if !metadata.wants_purging() {
            state.finish(actor);
            return Some(());
        }
        if self.rules.tombstones_grow_old
            && !may_purge(metadata, &self.waits(), self.now(state, actor).epoch_seconds())
        {
            return None;
        }
        self.change(state, actor, (metadata, &Change::BeginPurge), Changing::BeginPurge, story)
    }

    /// Finds the tombstones of a settled key.
    pub(crate) fn find_tombstones(&self, state: &mut State, actor: usize) {
        let now = self.now(state, actor).epoch_seconds();
        let tombstones = (0..self.scenario.sort_keys())
            .filter_map(|key| {
                let home = self.home(&state.metadata, key);
                let stored = state.copy(key, home).filter(|stored| stored.copy.is_tombstone)?;
                let is_young = is_young(&stored.copy, &self.waits(), now);
                if is_young && self.rules.tombstones_grow_old {
                    return None;
                }
                Some((home, key, stored.copy.version))
            })
            .collect();
        state.actor(actor).step = Step::Purging(tombstones);
    }

    pub(crate) fn begin_pass(
        &self,
        state: &mut State,
        actor: usize,
        marked: &Arc<ShardMetadata>,
        resumes: bool,
        story: &mut Story,
    ) {
        self.read_item(state, actor, None, story);
        let step = if resumes && !self.rules.own_pass {
            // It trusts the previous actor, and at once deletes every old copy whose item is at
            // home.
            let todo = self.all_misplaced(state, marked).into_iter();
            let at_home = |(_, key, stored): &(ShardNumber, Key, Stored)| {
                let home = state.copy(*key, self.home(marked, *key));
                home.is_some_and(|home| home.copy.version >= stored.copy.version)
            };
            let todo = todo
                .filter(at_home)
                .map(|(place, key, stored)| (place, key, stored.copy.version))
                .collect();
            DrainStep::Deleting { todo, sent: false }
        } else {
            DrainStep::Copying { todo: self.sources(marked), read: Vec::new(), sent: false }
        };
        state.actor(actor).step = Step::Draining(
            Pass::begin(marked, self.scenario.append_only),
            Arc::clone(marked),
            step,
        );
    }

    /// The next step of a drain that waits for no response.
    pub(crate) fn drain_on(
        &self,
        state: &mut State,
        actor: usize,
        story: &mut Story,
    ) -> Option<()> {
        let Step::Draining(mut pass, marked, step) = state.actors[actor].step.clone() else {
            return None;
        };
        let step = match step {
            DrainStep::Copying { todo, read, sent: false } => match read.first().cloned() {
                Some((_, key, stored)) => {
                    let home = self.home(&marked, key);
                    let mut request = copy_home(&stored.copy);
                    if let Effect::Put { version, .. } = &mut request.effect
                        && *version == Version::ADOPTED
                        && !self.rules.adopted_are_lowest
                    {
                        *version = Version::lowest_of(marked.era);
                    }
                    let content = Content {
                        value: stored.value,
                        base: None,
                        applied: stored.copy.applied.clone(),
                    };
                    if !self.move_item(
                        state,
                        actor,
                        &mut pass,
                        (home, key, content, request),
                        story,
                    ) {
                        return Some(());
                    }
                    DrainStep::Copying { todo, read, sent: true }
                }
                // It skips shards with nothing to move. The last read finds copies that arrive
                // there later.
                None => {
                    let next = |at: &usize| !self.misplaced(state, &marked, todo[*at]).is_empty();
                    match (0..todo.len()).find(next) {
                        Some(at) => {
                            let read = self.misplaced(state, &marked, todo[at]);
                            story.log(format_args!(
                                "{} reads the items to move from shard {}",
                                self.name(actor),
                                todo[at]
                            ));
                            DrainStep::Copying { todo: todo[at + 1..].to_vec(), read, sent: false }
                        }
                        None => {
                            story.log(format_args!(
                                "{} has read all shards, and waits for reads",
                                self.name(actor)
                            ));
                            DrainStep::WaitingForReads
                        }
                    }
                }
            },
            DrainStep::WaitingForReads => {
                let wait = pass.wait_for_reads(&self.waits(), self.now(state, actor));
                if self.rules.wait_for_reads && wait > Duration::ZERO {
                    return None;
                }
                story.log(format_args!("{} has waited for reads", self.name(actor)));
                DrainStep::Deleting { todo: pass.take(usize::MAX), sent: false }
            }
            DrainStep::Deleting { todo, sent: false } => {
                let Some((place, key, version)) = todo.first().copied() else {
                    return self.ends_pass(state, actor, (pass, marked), story);
                };
                let request = delete(version);
                if !self.move_item(
                    state,
                    actor,
                    &mut pass,
                    (place, key, Content::default(), request),
                    story,
                ) {
                    return Some(());
                }
                DrainStep::Deleting { todo, sent: true }
            }
            DrainStep::Copying { sent: true, .. } | DrainStep::Deleting { sent: true, .. } => {
                return None;
            }
        };
        state.actor(actor).step = Step::Draining(pass, marked, step);
        Some(())
    }

    /// Sends a move if it may be sent now; otherwise the actor's part is over.
    fn move_item(
        &self,
        state: &mut State,
        actor: usize,
        pass: &mut Pass<Key>,
        (place, key, content, request): (ShardNumber, Key, Content, Request),
        story: &mut Story,
    ) -> bool {
        loop {
            let Some(view) = state.actors[actor].view.clone() else { return false };
            match may_move(pass.generation(), &view, LEASE, self.now(state, actor)) {
                MayMove::Over if self.rules.moves_keep_lease => {
                    story.log(format_args!("{}'s part is over", self.name(actor)));
                    state.finish(actor);
                    return false;
                }
                MayMove::Look if self.rules.moves_keep_lease => {
                    self.read_item(state, actor, None, story)
                }
                MayMove::Yes | MayMove::Look | MayMove::Over => break,
            }
        }
        story.log(format_args!(
            "{} sends to shard {place} {}",
            self.name(actor),
            super::request_text(&request)
        ));
        let request = request.into();
        self.post(state, actor, Body::Item { place, key, content, request });
        pass.sent();
        true
    }

    /// A drainer gives up waiting for the response to a copy, and sends it again.
    pub(crate) fn give_up_move(
        &self,
        state: &mut State,
        actor: usize,
        story: &mut Story,
    ) -> Option<()> {
        let Step::Draining(mut pass, marked, mut step) = state.actors[actor].step.clone() else {
            return None;
        };
        let DrainStep::Copying { sent, read, .. } = &mut step else { return None };
        let key = read.first()?.1;
        let under_way = state.requests.iter().filter(|request| request.from == actor).count();
        // It gives up only once, to keep the state space finite.
        let home = self.home(&state.metadata, key);
        if !*sent || under_way > 1 || state.copy(key, home).is_some() {
            return None;
        }
        *sent = false;
        if !self.rules.unanswered_is_ambiguous {
            pass.answered();
        }
        story.log(format_args!("{} gets no response", self.name(actor)));
        state.abandon(actor);
        state.actor(actor).step = Step::Draining(pass, marked, step);
        Some(())
    }

    /// Processes the response to a move. In every case the item is at home, or the old copy is gone
    /// or has changed.
    pub(crate) fn moved(&self, state: &mut State, actor: usize) {
        let Step::Draining(mut pass, marked, step) = state.actors[actor].step.clone() else {
            return;
        };
        let step = match step {
            DrainStep::Copying { todo, mut read, sent: true } => {
                let (place, key, stored) = read.remove(0);
                pass.found_home(place, key, stored.copy.version, self.now(state, actor));
                DrainStep::Copying { todo, read, sent: false }
            }
            DrainStep::Deleting { mut todo, sent: true } => {
                todo.remove(0);
                DrainStep::Deleting { todo, sent: false }
            }
            DrainStep::WaitingForReads | DrainStep::Copying { .. } | DrainStep::Deleting { .. } => {
                return;
            }
        };
        state.abandon(actor);
        pass.answered();
        state.actor(actor).step = Step::Draining(pass, marked, step);
    }

    /// Reads all old places once more. If they are empty, the drain is over; otherwise another pass
    /// begins.
    fn ends_pass(
        &self,
        state: &mut State,
        actor: usize,
        (pass, marked): (Pass<Key>, Arc<ShardMetadata>),
        story: &mut Story,
    ) -> Option<()> {
        if self.all_misplaced(state, &marked).is_empty() {
            return self.finish(state, actor, &pass, &marked, story);
        }
        story.log(format_args!("{} finds another copy", self.name(actor)));
        let step =
            DrainStep::Copying { todo: self.sources(&marked), read: Vec::new(), sent: false };
        state.actor(actor).step = Step::Draining(pass, marked, step);
        Some(())
    }

    /// Deletes the next tombstone, without waiting for the response.
    pub(crate) fn purge(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let Step::Purging(mut tombstones) = state.actors[actor].step.clone() else {
            return None;
        };
        let Some((place, key, version)) = tombstones.pop() else {
            let metadata = Arc::clone(&state.metadata);
            if self
                .change(state, actor, (&metadata, &Change::Purged), Changing::Purged, story)
                .is_none()
            {
                state.finish(actor);
            }
            return Some(());
        };
        story.log(format_args!("{} deletes the tombstone on shard {place}", self.name(actor)));
        self.post(
            state,
            actor,
            Body::Item { place, key, content: Content::default(), request: delete(version).into() },
        );
        state.actor(actor).step = Step::Purging(tombstones);
        Some(())
    }
}
