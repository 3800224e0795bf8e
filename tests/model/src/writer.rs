//! Appends and point writes.
//!
//! A write has four moments: it is *prepared* (its view and its version are settled, it is signed, and its lease is checked), it is sent,
//! it is applied, and its answer is looked at. A freeze may lie between any two of them.

use super::monitor::{Kind, Outcome};
use super::program::{WriteKind, WriteOp};
use super::state::{
    Answer, Awaiting, BARE, Body, Condition, Effect, Few, Metadata, Part, Request, State, Step, Stored, Version, View,
    Write, home, widths,
};
use super::{Blame, ProtocolModel, Story};

/// What tells an actor's versions from all others.
fn tie_breaker(actor: usize) -> u8 {
    u8::try_from(actor + 1).unwrap_or(u8::MAX)
}

impl ProtocolModel {
    /// A write begins, or what was prepared is sent.
    pub(crate) fn write(&self, state: &mut State, actor: usize, op: WriteOp, story: &mut Story) -> Option<()> {
        if state.actors[actor].step != Step::Idle {
            return self.send_prepared(state, actor, story);
        }
        let kind = match op.kind {
            WriteKind::Append | WriteKind::Put => Kind::Write(op.value),
            WriteKind::CreateOnly => Kind::CreateOnly(op.value),
            WriteKind::Delete => Kind::Delete,
        };
        self.invoke(state, actor, op.sort_key, kind);
        self.attempt(state, actor, op, Write { attempt: 1, ..Write::default() }, Few::default(), story);
        Some(())
    }

    fn send_prepared(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let Step::Prepared { write, body, valid_until } = state.actors[actor].step.clone() else { return None };
        let valid_until = if self.rules.check_after_signing { valid_until } else { self.signed_until(state.now) };
        if valid_until >= state.now {
            story.tell(format_args!("{} sends its {body}", self.name(actor)));
            state.post(Request { from: actor, awaited: true, valid_until, body });
        } else {
            story.tell(format_args!("{} sends its {body}, but its signature is too old", self.name(actor)));
        }
        state.actors[actor].step = Step::Sent(Awaiting::Write(write));
        Some(())
    }

    /// Prepares an attempt. `standing` are the shards on which a refusal has found copies.
    fn attempt(&self, state: &mut State, actor: usize, op: WriteOp, write: Write, standing: Few, story: &mut Story) {
        match op.kind {
            WriteKind::Append => self.place(state, actor, op, write, story),
            WriteKind::Put | WriteKind::CreateOnly | WriteKind::Delete => {
                self.plan(state, actor, op, write, standing, story);
            }
        }
    }

    /// The view that an append may be placed by.
    fn usable_view(&self, state: &State, actor: usize) -> Option<View> {
        let lease = self.scenario.append_lease;
        state.actors[actor].view.filter(|view| !self.rules.append_lease || view.is_valid(state.now, lease))
    }

    /// An append goes home under the view; without a usable one to shard 1; when repeated, where its first attempt went.
    fn place(&self, state: &mut State, actor: usize, op: WriteOp, write: Write, story: &mut Story) {
        let mut write = write;
        let shard = if let Some(shard) = write.shard {
            let expired = |asked_at: u8| state.now >= asked_at.saturating_add(self.scenario.append_lease);
            if self.rules.repeats_keep_lease && write.asked_at.is_some_and(expired) {
                story
                    .tell(format_args!("{}'s view is too old to repeat the append: outcome unknown", self.name(actor)));
                state.finish(actor);
                return;
            }
            shard
        } else {
            let cold = self.scenario.cold_append || !self.rules.settling_needs_views;
            let usable = self.usable_view(state, actor);
            let view = usable.or_else(|| (!cold).then(|| self.fresh_view(state, actor, story)));
            write.asked_at = view.map(|view| view.asked_at);
            view.map_or(1, |view| home(op.sort_key, widths(view.metadata).write_width))
        };
        write.shard = Some(shard);
        let version = self.version(state, actor, &mut write);
        let condition = self.absent_or_lower(version);
        let part = Part { shard, effect: Effect::Put(Stored { version, value: op.value }), condition };
        story.tell(format_args!(
            "{} begins append {} {version}: place says shard {shard}{}",
            self.name(actor),
            op.value,
            if write.asked_at.is_some() { "" } else { ", for it has no usable view" }
        ));
        self.prepare(state, actor, op, write, vec![part]);
    }

    /// A point write names every candidate in one transaction.
    fn plan(&self, state: &mut State, actor: usize, op: WriteOp, write: Write, standing: Few, story: &mut Story) {
        let mut write = write;
        let view = self.leased_or_fresh_view(state, actor, story);
        let metadata = widths(view.metadata);
        write.asked_at = Some(view.asked_at);
        let version = match op.kind {
            WriteKind::CreateOnly if self.rules.create_below_all => {
                let version = Version { clock: 0, raised: metadata.generation, tie: tie_breaker(actor) };
                write.version = Some(version);
                version
            }
            WriteKind::Append | WriteKind::Put | WriteKind::CreateOnly => self.version(state, actor, &mut write),
            WriteKind::Delete => Version::default(),
        };
        let candidates = self.candidates(metadata, op.sort_key);
        let home = home(op.sort_key, metadata.write_width);
        let standing = standing.common(candidates);
        let put = Effect::Put(Stored { version, value: op.value });
        let part = |shard: u8| {
            let (effect, condition) = match op.kind {
                WriteKind::Delete => (Effect::Delete, Condition::Nothing),
                WriteKind::CreateOnly if shard == home => (put, Condition::Absent),
                WriteKind::CreateOnly => (Effect::Check, Condition::Absent),
                WriteKind::Append | WriteKind::Put if !self.rules.put_in_place => {
                    let effect = if shard == home { put } else { Effect::Delete };
                    (effect, self.absent_or_lower(version))
                }
                WriteKind::Append | WriteKind::Put if standing.contains(shard) => {
                    let lower = Condition::StandsLower(version);
                    (put, if self.rules.conditional_puts { lower } else { Condition::Stands })
                }
                WriteKind::Append | WriteKind::Put if standing.is_empty() && shard == home => {
                    (put, self.absent_or_lower(version))
                }
                WriteKind::Append | WriteKind::Put => (Effect::Check, Condition::Absent),
            };
            Part { shard, effect, condition }
        };
        let parts = candidates.iter().map(part).collect();
        story.tell(format_args!(
            "{} plans its {} under the view that was asked for at {} ({metadata}): candidates {candidates:?}",
            self.name(actor),
            op.kind,
            view.asked_at
        ));
        self.prepare(state, actor, op, write, parts);
    }

    /// The view of a point write: the one that is known, if its lease has not run out, or a new one.
    fn leased_or_fresh_view(&self, state: &mut State, actor: usize, story: &mut Story) -> View {
        let known = state.actors[actor].view;
        let good = |view: &View| !self.rules.point_lease || view.is_valid(state.now, self.scenario.lease);
        if let Some(view) = known.filter(good) {
            return view;
        }
        self.fresh_view(state, actor, story)
    }

    fn fresh_view(&self, state: &mut State, actor: usize, story: &mut Story) -> View {
        let view = View { metadata: state.metadata, asked_at: state.now };
        state.actors[actor].view = Some(view);
        story.tell(format_args!("{} reads the metadata: {}", self.name(actor), widths(view.metadata)));
        view
    }

    /// Every shard that an item may be on.
    pub(crate) fn candidates(&self, metadata: Metadata, sort_key: u8) -> Few {
        let mut widths = Few::default().with(metadata.write_width);
        if self.rules.history_is_candidate {
            widths = widths.union(metadata.history);
        }
        if self.rules.read_width_is_candidate {
            widths = widths.with(metadata.read_width);
        }
        let is_settled = metadata.settled && !self.scenario.cold_append;
        if self.rules.width_one_is_candidate && !is_settled {
            widths = widths.with(1);
        }
        let bare = self.rules.bare_is_candidate && self.scenario.adopting;
        widths.iter().map(|width| home(sort_key, width)).chain(bare.then_some(BARE)).collect()
    }

    fn absent_or_lower(&self, version: Version) -> Condition {
        if self.rules.conditional_puts { Condition::AbsentOrLower(version) } else { Condition::Nothing }
    }

    /// A write's version: taken once, at the first send.
    fn version(&self, state: &mut State, actor: usize, write: &mut Write) -> Version {
        let version = write.version.unwrap_or_else(|| {
            if self.rules.tie_breakers {
                let clock = state.clock + self.scenario.cast[actor].clock_ahead;
                state.clock += 1;
                Version { clock, raised: 0, tie: tie_breaker(actor) }
            } else {
                Version { clock: state.now + 2, raised: 0, tie: 0 }
            }
        });
        write.version = Some(version);
        version
    }

    fn prepare(&self, state: &mut State, actor: usize, op: WriteOp, write: Write, parts: Vec<Part>) {
        let body = Body::Items { sort_key: op.sort_key, parts };
        let valid_until = self.signed_until(state.now);
        state.actors[actor].step = Step::Prepared { write, body, valid_until };
    }

    /// A write's answer is looked at.
    pub(crate) fn write_answered(
        &self,
        state: &mut State,
        actor: usize,
        op: WriteOp,
        write: Write,
        answer: Answer,
        story: &mut Story,
    ) {
        match op.kind {
            // A version as high stands there: this very write, applied before, or a later one that has replaced it.
            WriteKind::Append => self.acknowledge(state, actor, op, Outcome::Done, story),
            WriteKind::Put | WriteKind::CreateOnly | WriteKind::Delete => {
                let leased = |asked_at: u8| state.now < asked_at.saturating_add(self.scenario.lease);
                if self.rules.check_answer && !write.asked_at.is_some_and(leased) {
                    self.unknown(state, actor, story);
                    return;
                }
                self.point_answered(state, actor, op, write, answer, story);
            }
        }
    }

    fn point_answered(
        &self,
        state: &mut State,
        actor: usize,
        op: WriteOp,
        write: Write,
        answer: Answer,
        story: &mut Story,
    ) {
        let Answer::Refused { standing, highest, own, own_below } = answer else {
            self.acknowledge(state, actor, op, Outcome::Done, story);
            return;
        };
        let doubt = self.rules.refusals_prove_nothing && write.attempt > 1;
        if op.kind == WriteKind::CreateOnly {
            let created_above = own_below && highest.is_some_and(Version::is_of_creation);
            if own && self.rules.own_write {
                self.acknowledge(state, actor, op, Outcome::Done, story);
            } else if (doubt || own_below) && !created_above {
                self.unknown(state, actor, story);
            } else {
                self.acknowledge(state, actor, op, Outcome::Exists, story);
            }
            return;
        }
        if own {
            self.acknowledge(state, actor, op, Outcome::Done, story);
            return;
        }
        let mut write = write;
        if let Some(above) = highest.filter(|highest| Some(*highest) >= write.version) {
            if !self.rules.put_goes_above {
                self.acknowledge(state, actor, op, Outcome::Done, story);
                return;
            }
            if doubt {
                self.unknown(state, actor, story);
                return;
            }
            write.version = Some(Version { raised: above.raised + 1, tie: tie_breaker(actor), ..above });
        }
        story.tell(format_args!("{} was refused: copies stand on {standing:?}", self.name(actor)));
        self.attempt(state, actor, op, write, standing, story);
    }

    fn acknowledge(&self, state: &mut State, actor: usize, op: WriteOp, outcome: Outcome, story: &mut Story) {
        let blame = match op.kind {
            WriteKind::CreateOnly => Blame::Create,
            WriteKind::Append | WriteKind::Put | WriteKind::Delete => Blame::Read,
        };
        self.respond(state, actor, op.sort_key, outcome, blame);
        let says = if outcome == Outcome::Exists { "is answered: it exists (412)" } else { "is acknowledged" };
        story.tell(format_args!("{}'s {} {} {says}", self.name(actor), op.kind, op.value));
        state.finish(actor);
    }

    fn unknown(&self, state: &mut State, actor: usize, story: &mut Story) {
        story.tell(format_args!("{} is told that the outcome is unknown (503)", self.name(actor)));
        state.finish(actor);
    }

    /// An actor waits for its write's answer no longer: it tries again, or goes on with its program. `None` at its program's end, where
    /// giving up is the same as never looking at the answer.
    pub(crate) fn give_up(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let Step::Sent(Awaiting::Write(write)) = state.actors[actor].step else { return None };
        let cast = &self.scenario.cast[actor];
        let op = cast.program.get(state.actors[actor].op).and_then(|op| op.as_write())?;
        if write.attempt < cast.attempts && !(op.kind == WriteKind::Delete && self.rules.deletes_once) {
            story.tell(format_args!("{} has no answer, and tries again", self.name(actor)));
            state.abandon(actor);
            let write = Write { attempt: write.attempt + 1, ..write };
            self.attempt(state, actor, op, write, Few::default(), story);
            return Some(());
        }
        if state.actors[actor].op + 1 >= cast.program.len() {
            return None;
        }
        story.tell(format_args!("{} has no answer, and gives up", self.name(actor)));
        state.abandon(actor);
        state.finish(actor);
        Some(())
    }
}
