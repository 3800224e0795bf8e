//! The protocol as a model that is small enough to try everything: every order of steps, every delay, every loss.
//!
//! Why a model, where the code has tests? The protocol's faults are schedules: a request that lands a second late, a sandbox that is
//! frozen between looking at its lease and sending. Tests of the code try some schedules; the model tries all of them, for a world of
//! a few actors, one or two sort keys, up to four shards, and a clock of a few ticks. What it cannot say is whether the code does what
//! the model does: the steps therefore have the names that they have in `sharding`, and `docs/protocol.md` names both sides of each rule.
//!
//! One tick stands for whatever time matters in a scenario. In each tick any number of steps happen, in any order:
//!
//! * an actor takes its next step, or none ever again (that is a crash);
//! * a request in flight is applied, while its signature is valid; or never;
//! * an answer is looked at, at any later time; or its actor gives up before, and the request may still be applied.
//!
//! [`Rules`] holds every rule that can be weakened. [`scenarios()`] are what is explored, and [`limits`] are what the protocol does not promise.

mod database;
mod drain;
mod invariants;
mod monitor;
mod program;
mod reader;
mod rules;
mod scaler;
mod scenarios;
mod state;
mod writer;

use std::fmt;
use std::sync::Arc;

use stateright::{Model, Property};

pub use invariants::{DRAINED, I1, I2, I3, I4, I5, I6, LATE_REQUEST, MIGRATED, NEW_SHARD, SETTLED, TAKEN_OVER};
pub use rules::{Moving, Rules, SignatureWait};
pub use scenarios::{Scenario, Size, limits, scenario, scenarios};
pub use state::State;

use monitor::{Kind, Outcome};
use program::Op;
use state::{Awaiting, Body, Drain, DrainGoal, Step};

/// A scenario under some rules.
#[derive(Clone, Debug)]
pub struct ProtocolModel {
    rules: Rules,
    scenario: Scenario,
}

/// What happens next. Actors and requests are named by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A request in flight is applied.
    Apply(usize),
    /// An actor takes its next step.
    Step(usize),
    /// An actor looks at an answer.
    Receive(usize),
    /// An actor waits for an answer no longer.
    GiveUp(usize),
    /// A reader's query of a shard is answered.
    Read(usize, u8),
    /// A reader's question for the metadata, asked in parallel, is answered.
    LookAgain(usize),
    /// An actor dies.
    Crash(usize),
}

/// What a step says of itself, for a trace; silent during the search.
#[derive(Debug, Default)]
pub(crate) struct Story(Option<Vec<String>>);

impl Story {
    fn silent() -> Self {
        Self(None)
    }

    pub(crate) fn tell(&mut self, line: fmt::Arguments<'_>) {
        if let Some(lines) = &mut self.0 {
            lines.push(line.to_string());
        }
    }
}

/// Whom a broken promise is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    Read,
    Create,
    Scan,
}

impl ProtocolModel {
    /// A scenario under these rules.
    #[must_use]
    pub fn new(rules: Rules, scenario: Scenario) -> Self {
        Self { rules, scenario }
    }

    /// The scenario.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Tells what an action does in a state, in one line.
    #[must_use]
    pub fn narrate(&self, before: &State, action: Action) -> String {
        let mut story = Story(Some(Vec::new()));
        let after = self.perform(before, action, &mut story);
        let now = after.map_or(before.now, |after| after.now);
        format!("t={now} {}", story.0.unwrap_or_default().join("; "))
    }

    fn perform(&self, before: &State, action: Action, story: &mut Story) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => {
                state.now += 1;
                let now = state.now;
                state.requests.retain(|request| request.valid_until >= now);
                story.tell(format_args!("-- time passes"));
            }
            Action::Apply(request) => self.apply(&mut state, request, story)?,
            Action::Step(actor) => self.step(&mut state, actor, story)?,
            Action::Receive(actor) => self.receive(&mut state, actor, story)?,
            Action::GiveUp(actor) => self.give_up(&mut state, actor, story)?,
            Action::Read(actor, shard) => self.read_shard(&mut state, actor, shard, story)?,
            Action::LookAgain(actor) => self.look_again(&mut state, actor, story)?,
            Action::Crash(actor) => {
                state.abandon(actor);
                let waits = matches!(state.actors[actor].step, Step::WaitingOutViews { .. });
                state.actors[actor].step = Step::Crashed { between_expand_and_activate: waits };
                story.tell(format_args!("{} dies", self.name(actor)));
            }
        }
        Some(state)
    }

    /// The next step of an actor that waits for nobody's answer. `None` where it can take none now.
    fn step(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        match self.op(state, actor)? {
            Op::Look => self.look(state, actor, story),
            Op::Write(op) => self.write(state, actor, op, story),
            Op::Read(op) => self.read(state, actor, op, story),
            Op::Register => self.register(state, actor, story),
            Op::ScaleOut { to } => self.scale_out(state, actor, to, story),
            Op::TakeOver => self.take_over(state, actor, story),
            Op::Shrink { to } => self.drain(state, actor, DrainGoal::Shrink, to, story),
            Op::StopDrain => self.stop_drain(state, actor, story),
            op @ (Op::Settle | Op::Migrate) => {
                let goal = if op == Op::Settle { DrainGoal::Settle } else { DrainGoal::Migrate };
                self.drain(state, actor, goal, state::widths(state.metadata).write_width, story)
            }
        }
    }

    /// An actor looks at the answer that it waits for.
    fn receive(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let answer = state.actors[actor].inbox.take()?;
        let Step::Sent(awaiting) = state.actors[actor].step else { return None };
        match awaiting {
            Awaiting::Write(write) => {
                let Op::Write(op) = self.op(state, actor)? else { return None };
                self.write_answered(state, actor, op, write, answer, story);
            }
            Awaiting::Expansion { sent_at } => self.expand_answered(state, actor, sent_at, answer, story),
            Awaiting::Announcement => self.announce_answered(state, actor, answer, story),
            Awaiting::Marking(goal) => self.mark_answered(state, actor, goal, answer, story),
            Awaiting::Copy(run) => {
                story.tell(format_args!("{} goes on copying", self.name(actor)));
                state.actors[actor].step = Step::Draining { run, drain: Drain::CopyHome };
            }
            Awaiting::OldCopyDeletion(run) => {
                story.tell(format_args!("{} goes on deleting", self.name(actor)));
                state.actors[actor].step = Step::Draining { run, drain: Drain::DeleteOldCopies };
            }
            Awaiting::Registration | Awaiting::Activation | Awaiting::Lowering | Awaiting::Stopping => {
                story.tell(format_args!("{} is done", self.name(actor)));
                state.finish(actor);
            }
        }
        Some(())
    }

    /// A function refreshes its view of the key. Asking and being answered are one step, except where a weakened rule makes the time
    /// between them matter.
    fn look(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let metadata = if self.rules.aged_from_asking {
            state.metadata
        } else {
            let Step::Served(metadata) = state.actors[actor].step else {
                state.actors[actor].step = Step::Served(state.metadata);
                story.tell(format_args!(
                    "{} asks for the metadata: {}",
                    self.name(actor),
                    state::widths(state.metadata)
                ));
                return Some(());
            };
            metadata
        };
        state.actors[actor].view = Some(state::View { metadata, asked_at: state.now });
        state.finish(actor);
        story.tell(format_args!("{} has a view: {}", self.name(actor), state::widths(metadata)));
        Some(())
    }

    /// The operation that an actor is at; `None` at the end of its program.
    fn op(&self, state: &State, actor: usize) -> Option<Op> {
        self.scenario.cast[actor].program.get(state.actors[actor].op).copied()
    }

    fn name(&self, actor: usize) -> &'static str {
        self.scenario.cast[actor].name
    }

    /// Until when a request is accepted that is signed now.
    fn signed_until(&self, now: u8) -> u8 {
        now.saturating_add(self.scenario.validity)
    }

    fn send(&self, state: &mut State, actor: usize, body: Body, awaiting: Awaiting) {
        let valid_until = self.signed_until(state.now);
        state.post(state::Request { from: actor, awaited: true, valid_until, body });
        state.actors[actor].step = Step::Sent(awaiting);
    }

    /// A number for the operation that an actor is at.
    fn operation(state: &State, actor: usize) -> u8 {
        u8::try_from(actor * 16 + state.actors[actor].op).unwrap_or(u8::MAX)
    }

    fn invoke(&self, state: &mut State, actor: usize, sort_key: u8, kind: Kind) {
        let operation = Self::operation(state, actor);
        Arc::make_mut(&mut state.monitors[usize::from(sort_key)]).invoke(operation, kind);
        if kind == Kind::Delete {
            for other in &mut state.actors {
                if let Step::Reading(state::Reading { scan, .. }) | Step::BetweenPages(scan) = &mut other.step {
                    scan.stood = scan.stood.without(sort_key);
                }
            }
        }
    }

    fn respond(&self, state: &mut State, actor: usize, sort_key: u8, outcome: Outcome, blame: Blame) {
        let operation = Self::operation(state, actor);
        let monitor = Arc::make_mut(&mut state.monitors[usize::from(sort_key)]);
        monitor.respond(operation, outcome);
        if monitor.is_broken() {
            match blame {
                Blame::Read => state.broken.read = true,
                Blame::Create => state.broken.create = true,
                Blame::Scan => state.broken.scan = true,
            }
        }
    }

    fn cancel(&self, state: &mut State, actor: usize, sort_key: u8) {
        let operation = Self::operation(state, actor);
        Arc::make_mut(&mut state.monitors[usize::from(sort_key)]).cancel(operation);
    }
}

impl Model for ProtocolModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.scenario.first_state()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // Once somebody was told what cannot be, nothing that follows adds to it.
        if state.broken != state::Broken::default() {
            return;
        }
        if state.now < self.scenario.horizon {
            actions.push(Action::Tick);
        }
        for (index, request) in state.requests.iter().enumerate() {
            if index == 0 || state.requests[index - 1] != *request {
                actions.push(Action::Apply(index));
            }
        }
        for (index, actor) in state.actors.iter().enumerate() {
            if actor.inbox.is_some() {
                actions.push(Action::Receive(index));
            }
            match &actor.step {
                Step::Crashed { .. } => continue,
                Step::Sent(Awaiting::Write(_)) => actions.push(Action::GiveUp(index)),
                Step::Sent(_) => {}
                Step::Reading(reading) => {
                    actions.extend(reading.todo.iter().map(|shard| Action::Read(index, shard)));
                    if reading.asking.is_some() {
                        actions.push(Action::LookAgain(index));
                    }
                }
                Step::Idle
                | Step::Served(_)
                | Step::Prepared { .. }
                | Step::BetweenPages(_)
                | Step::WaitingOutViews { .. }
                | Step::Watching { .. }
                | Step::Draining { .. } => actions.push(Action::Step(index)),
            }
            if self.scenario.cast[index].may_crash && actor.step != Step::Idle {
                actions.push(Action::Crash(index));
            }
        }
    }

    fn next_state(&self, last_state: &State, action: Action) -> Option<State> {
        self.perform(last_state, action, &mut Story::silent())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        invariants::properties(&self.scenario)
    }
}
