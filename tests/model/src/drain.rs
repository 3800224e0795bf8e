//! Drains, as designed: mark, wait, copy home, wait, delete, verify, and give up what is empty then.
//!
//! A shrink empties the shards above a lower width; a settling moves every item home under the present one; a migration moves what stands under
//! the bare key of a table that is adopted.

use super::rules::{Moving, SignatureWait};
use super::state::{
    Answer, Awaiting, BARE, Body, Change, Condition, Drain, DrainGoal, DrainRun, Effect, Metadata, Part, State, Step,
    Stored, home,
};
use super::{ProtocolModel, Story};

impl DrainRun {
    /// The sort keys and shards that nothing may be left on.
    fn sources(self, sort_keys: u8) -> Vec<(u8, u8)> {
        let shards = match self.goal {
            DrainGoal::Shrink => self.marked.write_width + 1..=self.marked.read_width,
            DrainGoal::Settle => 1..=self.marked.read_width,
            DrainGoal::Migrate => BARE..=BARE,
        };
        let of = |sort_key: u8| shards.clone().map(move |shard| (sort_key, shard));
        (0..sort_keys).flat_map(of).filter(|(sort_key, shard)| *shard != self.home(*sort_key)).collect()
    }

    /// Where an item belongs.
    fn home(self, sort_key: u8) -> u8 {
        home(sort_key, self.marked.write_width)
    }
}

impl ProtocolModel {
    /// A drain begins, is resumed, or goes on. `None` where there is nothing to do now, or something to wait for.
    pub(crate) fn drain(
        &self,
        state: &mut State,
        actor: usize,
        goal: DrainGoal,
        to: u8,
        story: &mut Story,
    ) -> Option<()> {
        match state.actors[actor].step {
            Step::Idle => self.begin(state, actor, goal, to, story),
            Step::Draining { run, drain: Drain::WaitOutViews { since } } => {
                if self.rules.wait_out_views && state.now < since.saturating_add(self.scenario.lease) {
                    return None;
                }
                self.mark_draining(state, actor, goal, to, run.marked, story);
                Some(())
            }
            Step::Draining { run, drain } => self.go_on_draining(state, actor, run, drain, story),
            Step::Served(_)
            | Step::Prepared { .. }
            | Step::Sent(_)
            | Step::Reading(_)
            | Step::BetweenPages(_)
            | Step::WaitingOutViews { .. }
            | Step::Watching { .. }
            | Step::Crashed { .. } => None,
        }
    }

    /// (a) Marks the drain, a shrink lowering the write width with it; or resumes one that was interrupted.
    fn begin(&self, state: &mut State, actor: usize, goal: DrainGoal, to: u8, story: &mut Story) -> Option<()> {
        let worth = |metadata: &Metadata| match goal {
            DrainGoal::Shrink => metadata.read_width > to,
            DrainGoal::Settle => *metadata != metadata.settled(),
            DrainGoal::Migrate => true,
        };
        let metadata = state.metadata.filter(worth)?;
        let expected = self.lock(state.metadata);
        if !self.rules.shrink_in_steps {
            story.tell(format_args!("{} lowers both widths to {to}", self.name(actor)));
            let change = Change::ShrinkAtOnce { to };
            self.send(state, actor, Body::Metadata { change, expected }, Awaiting::Lowering);
            return Some(());
        }
        let is_expanded = metadata.write_width < metadata.read_width;
        let is_drain = metadata.draining == Some(goal) || (!self.rules.drain_marker && is_expanded);
        if is_drain && metadata.write_width == to {
            story.tell(format_args!("{} resumes a drain", self.name(actor)));
            self.wait_out_writers(state, actor, DrainRun { goal, marked: metadata, known_at: None });
            return Some(());
        }
        let is_changing = is_expanded || metadata.draining.is_some();
        let is_lower = goal != DrainGoal::Shrink || to < metadata.write_width;
        if is_changing || !is_lower || self.is_cooling_down(state) {
            return None;
        }
        // Width 1 is a candidate already, unless the key is settled.
        let is_known = to == 1 && !metadata.settled;
        if goal == DrainGoal::Shrink && self.rules.announce_width && !is_known {
            story.tell(format_args!("{} sends announce_width {to}", self.name(actor)));
            let change = Change::AnnounceWidth { to };
            self.send(state, actor, Body::Metadata { change, expected }, Awaiting::Announcement);
        } else {
            self.mark_draining(state, actor, goal, to, metadata, story);
        }
        Some(())
    }

    /// (0) The width to come is named: whoever writes by it from now on finds it among everybody's candidates, once older views have run out.
    pub(crate) fn announce_answered(&self, state: &mut State, actor: usize, answer: Answer, story: &mut Story) {
        let Answer::Updated(marked) = answer else {
            story.tell(format_args!("{} was outrun", self.name(actor)));
            state.finish(actor);
            return;
        };
        story.tell(format_args!("{} learns that it has announced the width", self.name(actor)));
        let run = DrainRun { goal: DrainGoal::Shrink, marked, known_at: None };
        state.actors[actor].step = Step::Draining { run, drain: Drain::WaitOutViews { since: state.now } };
    }

    fn mark_draining(
        &self,
        state: &mut State,
        actor: usize,
        goal: DrainGoal,
        to: u8,
        seen: Metadata,
        story: &mut Story,
    ) {
        let body = Body::Metadata { change: Change::MarkDraining { goal, to }, expected: self.lock(Some(seen)) };
        story.tell(format_args!("{} sends {body}", self.name(actor)));
        self.send(state, actor, body, Awaiting::Marking(goal));
    }

    pub(crate) fn mark_answered(
        &self,
        state: &mut State,
        actor: usize,
        goal: DrainGoal,
        answer: Answer,
        story: &mut Story,
    ) {
        let Answer::Updated(marked) = answer else {
            story.tell(format_args!("{} was outrun", self.name(actor)));
            state.finish(actor);
            return;
        };
        story.tell(format_args!("{} learns that it has marked the drain", self.name(actor)));
        self.wait_out_writers(state, actor, DrainRun { goal, marked, known_at: None });
    }

    fn wait_out_writers(&self, state: &mut State, actor: usize, run: DrainRun) {
        // Nobody stores anything new under a bare key, but point writes under an older view look for the item there, and not at its new home.
        let waits = run.goal != DrainGoal::Migrate || self.rules.migrations_wait;
        let drain = if waits { Drain::WaitOutWriters { since: state.now } } else { Drain::CopyHome };
        state.actors[actor].step = Step::Draining { run, drain };
    }

    fn go_on_draining(
        &self,
        state: &mut State,
        actor: usize,
        run: DrainRun,
        drain: Drain,
        story: &mut Story,
    ) -> Option<()> {
        let next = match drain {
            Drain::WaitOutViews { .. } => return None,
            // (b) Until nobody can act on an older view: the append lease, then the time for which a signed request stays valid.
            Drain::WaitOutWriters { since } => {
                let until = since.saturating_add(self.scenario.append_lease);
                let waits_here = self.rules.signature_wait == SignatureWait::BeforeCopying;
                let until =
                    if waits_here && self.scenario.validity < u8::MAX { self.signed_until(until) } else { until };
                if state.now < until {
                    return None;
                }
                story.tell(format_args!("{} has waited out the writers", self.name(actor)));
                Drain::CopyHome
            }
            Drain::CopyHome | Drain::DeleteOldCopies if !self.is_known(state, run) => {
                return self.look_at_drain(state, actor, run, drain, story);
            }
            Drain::CopyHome => return self.copy_home(state, actor, run, story),
            // (d) Until every read that began before the copies were made has ended.
            Drain::WaitOutReads { since } => {
                if self.rules.wait_out_reads && state.now <= since.saturating_add(self.scenario.longest_read) {
                    return None;
                }
                story.tell(format_args!("{} has waited out the reads", self.name(actor)));
                Drain::DeleteOldCopies
            }
            Drain::DeleteOldCopies => return self.delete_old_copy(state, actor, run, story),
            Drain::Verify { next } => return self.verify(state, actor, run, next, story),
            Drain::WaitOutSignatures { since } => {
                if state.now < self.signed_until(since) {
                    return None;
                }
                return self.finish_drain(state, actor, run, story);
            }
        };
        state.actors[actor].step = Step::Draining { run, drain: next };
        Some(())
    }

    /// Whether what is known of the drain may be relied on: by a lease that the next drain waits out before it copies.
    fn is_known(&self, state: &State, run: DrainRun) -> bool {
        let leased = |at: u8| state.now < at.saturating_add(self.scenario.append_lease);
        !self.rules.moves_keep_lease || run.known_at.is_some_and(leased)
    }

    /// Looks whether the drain still stands as it was marked.
    fn look_at_drain(
        &self,
        state: &mut State,
        actor: usize,
        run: DrainRun,
        drain: Drain,
        story: &mut Story,
    ) -> Option<()> {
        if self.lock(state.metadata) != self.lock(Some(run.marked)) {
            story.tell(format_args!("{} sees that its drain is over", self.name(actor)));
            state.finish(actor);
            return Some(());
        }
        story.tell(format_args!("{} sees that its drain still stands", self.name(actor)));
        let run = DrainRun { known_at: Some(state.now), ..run };
        state.actors[actor].step = Step::Draining { run, drain };
        Some(())
    }

    /// Writers use every shard that readers look at, at once. Only where a drain is under way.
    pub(crate) fn stop_drain(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        if state.actors[actor].step != Step::Idle {
            return None;
        }
        state.metadata.filter(|metadata| metadata.draining.is_some())?;
        story.tell(format_args!("{} sends stop_drain", self.name(actor)));
        let body = Body::Metadata { change: Change::StopDrain, expected: self.lock(state.metadata) };
        self.send(state, actor, body, Awaiting::Stopping);
        Some(())
    }

    /// A copy that is not at home, with what stands there.
    fn left_over(&self, state: &State, run: DrainRun) -> Vec<(u8, u8, Stored, Option<Stored>)> {
        let sources = run.sources(self.scenario.sort_keys).into_iter();
        sources
            .filter_map(|(sort_key, shard)| {
                let old = state.copy(sort_key, shard)?;
                Some((sort_key, shard, old, state.copy(sort_key, run.home(sort_key))))
            })
            .collect()
    }

    /// (c) Copies every item home, each in a transaction that checks that the original has not changed and nothing as new is at home; the
    /// version is kept.
    fn copy_home(&self, state: &mut State, actor: usize, run: DrainRun, story: &mut Story) -> Option<()> {
        let left = self.left_over(state, run);
        let missing = |at_home: Option<Stored>, old: Stored| at_home.is_none_or(|stored| stored.version < old.version);
        let Some((sort_key, shard, old, _)) = left.iter().copied().find(|(_, _, old, at_home)| missing(*at_home, *old))
        else {
            let drain =
                if left.is_empty() { Drain::Verify { next: 0 } } else { Drain::WaitOutReads { since: state.now } };
            story.tell(format_args!("{} has nothing more to copy", self.name(actor)));
            let run = DrainRun { known_at: None, ..run };
            state.actors[actor].step = Step::Draining { run, drain };
            return Some(());
        };
        let unchanged = if self.rules.copy_checks_source { Condition::Is(Some(old)) } else { Condition::Nothing };
        let effect = match self.rules.moving {
            Moving::CopyThenDelete => Effect::Check,
            Moving::InOneStep => Effect::Delete,
        };
        let nothing_as_new = Condition::AbsentOrLower(old.version);
        let parts = vec![
            Part { shard: run.home(sort_key), effect: Effect::Put(old), condition: nothing_as_new },
            Part { shard, effect, condition: unchanged },
        ];
        story.tell(format_args!("{} sends copy_home of {} from shard {shard}", self.name(actor), old.value));
        self.send(state, actor, Body::Items { sort_key, parts }, Awaiting::Copy(run));
        Some(())
    }

    /// (e) Deletes an old copy, if the item still stands at home in this version or a later one.
    fn delete_old_copy(&self, state: &mut State, actor: usize, run: DrainRun, story: &mut Story) -> Option<()> {
        let Some((sort_key, shard, old, at_home)) = self.left_over(state, run).first().copied() else {
            story.tell(format_args!("{} has nothing more to delete", self.name(actor)));
            let run = DrainRun { known_at: None, ..run };
            state.actors[actor].step = Step::Draining { run, drain: Drain::Verify { next: 0 } };
            return Some(());
        };
        if at_home.is_none_or(|stored| stored.version < old.version) {
            story.tell(format_args!("{} finds a copy that is not at home yet", self.name(actor)));
            state.actors[actor].step = Step::Draining { run, drain: Drain::CopyHome };
            return Some(());
        }
        let still_home = Condition::StandsAtLeast(old.version);
        let parts = vec![
            Part { shard: run.home(sort_key), effect: Effect::Check, condition: still_home },
            Part { shard, effect: Effect::Delete, condition: Condition::Is(Some(old)) },
        ];
        story.tell(format_args!("{} sends delete_old_copy of {} on shard {shard}", self.name(actor), old.value));
        self.send(state, actor, Body::Items { sort_key, parts }, Awaiting::OldCopyDeletion(run));
        Some(())
    }

    /// (f) Looks once more everywhere.
    fn verify(&self, state: &mut State, actor: usize, run: DrainRun, next: usize, story: &mut Story) -> Option<()> {
        let cells = run.sources(self.scenario.sort_keys);
        let (sort_key, shard) = *cells.get(next)?;
        let drain = if state.copy(sort_key, shard).is_some() {
            Drain::CopyHome
        } else if next + 1 < cells.len() {
            Drain::Verify { next: next + 1 }
        } else if self.rules.signature_wait == SignatureWait::AfterVerifying && self.scenario.validity < u8::MAX {
            Drain::WaitOutSignatures { since: state.now }
        } else {
            return self.finish_drain(state, actor, run, story);
        };
        story.tell(format_args!("{} verifies shard {shard}", self.name(actor)));
        state.actors[actor].step = Step::Draining { run, drain };
        Some(())
    }

    /// (g) Drops the history that no item needs any more, and removes the mark; a shrink lowers the read width with it.
    fn finish_drain(&self, state: &mut State, actor: usize, run: DrainRun, story: &mut Story) -> Option<()> {
        let change = match run.goal {
            DrainGoal::Shrink => Change::LowerReadWidth { to: run.marked.write_width },
            DrainGoal::Settle => Change::FinishSettling,
            DrainGoal::Migrate => Change::FinishMigration,
        };
        let body = Body::Metadata { change, expected: self.lock(Some(run.marked)) };
        story.tell(format_args!("{} finds every item at home, and sends {body}", self.name(actor)));
        self.send(state, actor, body, Awaiting::Lowering);
        Some(())
    }
}
