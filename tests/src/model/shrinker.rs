//! Shrinking, as designed: mark, wait, copy home, wait, delete, verify, lower the read width.

use super::rules::{Moving, SignatureWait};
use super::state::{
    Answer, Awaiting, Body, Change, Condition, Drain, Effect, Metadata, Part, State, Step, Stored, home,
};
use super::{ProtocolModel, Story};

/// The sort keys and shards that a shrink empties.
fn given_up(sort_keys: u8, to: u8, from: u8) -> Vec<(u8, u8)> {
    (0..sort_keys).flat_map(|sort_key| (to + 1..=from).map(move |shard| (sort_key, shard))).collect()
}

impl ProtocolModel {
    /// A shrink begins, is resumed, or goes on. `None` where there is nothing to shrink now, or something to wait for.
    pub(crate) fn shrink(&self, state: &mut State, actor: usize, to: u8, story: &mut Story) -> Option<()> {
        match state.actors[actor].step {
            Step::Idle => self.mark_draining(state, actor, to, story),
            Step::Draining { marked, drain } => self.drain(state, actor, to, marked, drain, story),
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

    /// (a) Lowers the write width and marks the shrink; or resumes one that was interrupted.
    fn mark_draining(&self, state: &mut State, actor: usize, to: u8, story: &mut Story) -> Option<()> {
        let metadata = state.metadata.filter(|metadata| metadata.read_width > to)?;
        let expected = self.lock(state.metadata);
        if !self.rules.shrink_in_steps {
            story.tell(format_args!("{} lowers both widths to {to}", self.name(actor)));
            let change = Change::ShrinkAtOnce { to };
            self.send(state, actor, Body::Metadata { change, expected }, Awaiting::Lowering);
            return Some(());
        }
        let is_expanded = metadata.write_width < metadata.read_width;
        let is_drain = metadata.draining || (!self.rules.drain_marker && is_expanded);
        if is_drain && metadata.write_width == to {
            story.tell(format_args!("{} resumes a shrink", self.name(actor)));
            let drain = Drain::WaitOutWriters { since: state.now };
            state.actors[actor].step = Step::Draining { marked: metadata, drain };
            return Some(());
        }
        if is_expanded || metadata.write_width <= to || self.is_cooling_down(state) {
            return None;
        }
        story.tell(format_args!("{} sends mark_draining to {to}", self.name(actor)));
        self.send(state, actor, Body::Metadata { change: Change::MarkDraining { to }, expected }, Awaiting::Marking);
        Some(())
    }

    pub(crate) fn mark_answered(&self, state: &mut State, actor: usize, answer: Answer, story: &mut Story) {
        let Answer::Updated(marked) = answer else {
            story.tell(format_args!("{} was outrun", self.name(actor)));
            state.finish(actor);
            return;
        };
        story
            .tell(format_args!("{} learns that it has marked the shrink, and waits out the writers", self.name(actor)));
        state.actors[actor].step = Step::Draining { marked, drain: Drain::WaitOutWriters { since: state.now } };
    }

    fn drain(
        &self,
        state: &mut State,
        actor: usize,
        to: u8,
        marked: Metadata,
        drain: Drain,
        story: &mut Story,
    ) -> Option<()> {
        let next = match drain {
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
            Drain::CopyHome => return self.copy_home(state, actor, to, marked, story),
            // (d) Until every read that began before the copies were made has ended.
            Drain::WaitOutReads { since } => {
                if self.rules.wait_out_reads && state.now <= since.saturating_add(self.scenario.longest_read) {
                    return None;
                }
                story.tell(format_args!("{} has waited out the reads", self.name(actor)));
                Drain::DeleteOldCopies
            }
            Drain::DeleteOldCopies => return self.delete_old_copy(state, actor, to, marked, story),
            Drain::Verify { next } => return self.verify(state, actor, to, marked, next, story),
            Drain::WaitOutSignatures { since } => {
                if state.now < self.signed_until(since) {
                    return None;
                }
                return self.lower_read_width(state, actor, to, marked, story);
            }
        };
        state.actors[actor].step = Step::Draining { marked, drain: next };
        Some(())
    }

    /// A copy on a shard that is given up, with its home and what stands there.
    fn left_over(&self, state: &State, to: u8, marked: Metadata) -> Vec<(u8, u8, Stored, Option<Stored>)> {
        given_up(self.scenario.sort_keys, to, marked.read_width)
            .into_iter()
            .filter_map(|(sort_key, shard)| {
                let old = state.copy(sort_key, shard)?;
                Some((sort_key, shard, old, state.copy(sort_key, home(sort_key, to))))
            })
            .collect()
    }

    /// (c) Copies every item home, each in a transaction that checks that neither copy has changed; the version is kept.
    fn copy_home(&self, state: &mut State, actor: usize, to: u8, marked: Metadata, story: &mut Story) -> Option<()> {
        let left = self.left_over(state, to, marked);
        let missing = |at_home: Option<Stored>, old: Stored| at_home.is_none_or(|stored| stored.version < old.version);
        let Some((sort_key, shard, old, at_home)) =
            left.iter().copied().find(|(_, _, old, at_home)| missing(*at_home, *old))
        else {
            let drain =
                if left.is_empty() { Drain::Verify { next: 0 } } else { Drain::WaitOutReads { since: state.now } };
            story.tell(format_args!("{} has nothing more to copy", self.name(actor)));
            state.actors[actor].step = Step::Draining { marked, drain };
            return Some(());
        };
        let unchanged = if self.rules.copy_checks_source { Condition::Is(Some(old)) } else { Condition::Nothing };
        let effect = match self.rules.moving {
            Moving::CopyThenDelete => Effect::Check,
            Moving::InOneStep => Effect::Delete,
        };
        let parts = vec![
            Part { shard: home(sort_key, to), effect: Effect::Put(old), condition: Condition::Is(at_home) },
            Part { shard, effect, condition: unchanged },
        ];
        story.tell(format_args!("{} sends copy_home of {} from shard {shard}", self.name(actor), old.value));
        self.send(state, actor, Body::Items { sort_key, parts }, Awaiting::Copy(marked));
        Some(())
    }

    /// (e) Deletes an old copy, if the item still stands at home in this version or a later one.
    fn delete_old_copy(
        &self,
        state: &mut State,
        actor: usize,
        to: u8,
        marked: Metadata,
        story: &mut Story,
    ) -> Option<()> {
        let Some((sort_key, shard, old, at_home)) = self.left_over(state, to, marked).first().copied() else {
            story.tell(format_args!("{} has nothing more to delete", self.name(actor)));
            state.actors[actor].step = Step::Draining { marked, drain: Drain::Verify { next: 0 } };
            return Some(());
        };
        if at_home.is_none_or(|stored| stored.version < old.version) {
            story.tell(format_args!("{} finds a copy that is not at home yet", self.name(actor)));
            state.actors[actor].step = Step::Draining { marked, drain: Drain::CopyHome };
            return Some(());
        }
        let still_home = Condition::StandsAtLeast(old.version);
        let parts = vec![
            Part { shard: home(sort_key, to), effect: Effect::Check, condition: still_home },
            Part { shard, effect: Effect::Delete, condition: Condition::Is(Some(old)) },
        ];
        story.tell(format_args!("{} sends delete_old_copy of {} on shard {shard}", self.name(actor), old.value));
        self.send(state, actor, Body::Items { sort_key, parts }, Awaiting::OldCopyDeletion(marked));
        Some(())
    }

    /// (f) Looks once more at every shard that is given up.
    fn verify(
        &self,
        state: &mut State,
        actor: usize,
        to: u8,
        marked: Metadata,
        next: usize,
        story: &mut Story,
    ) -> Option<()> {
        let cells = given_up(self.scenario.sort_keys, to, marked.read_width);
        let (sort_key, shard) = *cells.get(next)?;
        let drain = if state.copy(sort_key, shard).is_some() {
            Drain::CopyHome
        } else if next + 1 < cells.len() {
            Drain::Verify { next: next + 1 }
        } else if self.rules.signature_wait == SignatureWait::AfterVerifying && self.scenario.validity < u8::MAX {
            Drain::WaitOutSignatures { since: state.now }
        } else {
            return self.lower_read_width(state, actor, to, marked, story);
        };
        story.tell(format_args!("{} verifies shard {shard}", self.name(actor)));
        state.actors[actor].step = Step::Draining { marked, drain };
        Some(())
    }

    /// (g) Lowers the read width, drops the history that no item needs any more, and removes the mark.
    fn lower_read_width(
        &self,
        state: &mut State,
        actor: usize,
        to: u8,
        marked: Metadata,
        story: &mut Story,
    ) -> Option<()> {
        let expected = self.lock(Some(marked));
        story.tell(format_args!("{} finds shards over {to} empty, and sends lower_read_width", self.name(actor)));
        let change = Change::LowerReadWidth { to };
        self.send(state, actor, Body::Metadata { change, expected }, Awaiting::Lowering);
        Some(())
    }
}
