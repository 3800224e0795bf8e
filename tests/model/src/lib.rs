//! The protocol's own code, driven through every order of steps, every delay and every loss.
//!
//! `sharding::internal::protocol` decides which requests are sent and which outcomes are returned;
//! the model has no second copy of its rules. The model adds everything outside that code: actors
//! with programs of operations, a network, a clock, and a monitor that checks the returned
//! outcomes. A world has a few actors, one or two sort keys, up to four shards, and a clock of a
//! few ticks. One tick is one second, the lease of views. In each tick any number of steps happen,
//! in any order:
//! * an actor takes its next step, or never takes another one (a crash);
//! * a request in flight is applied while its signature is valid, or never;
//! * a response is processed at any later time, or its actor gives up first, and the request may
//!   still be applied.
//!
//! Requesting a view and receiving it are one step. A response that takes longer brings a layout
//! that is no older, under a view that is older. So it adds no behaviour, except where a weakened
//! rule counts the age from the response.
//!
//! In some scenarios the table has a directory: actors read one copy of the key's page, and an
//! actor that changes the metadata item writes the new layout to every copy. Without a directory,
//! or without a complete page, actors read the metadata item.
//!
//! The driver weakens a [rule](Rules) from outside: it changes the inputs of the code, or its
//! requests. [`scenarios`] are explored completely. [`limits`] show what the protocol does not
//! promise.

mod arming;
mod beginnings;
mod database;
mod directory;
mod drainer;
mod expressing;
mod expressions;
mod invariants;
mod monitor;
mod pages;
mod program;
mod reader;
mod rules;
mod scaler;
mod scenario;
mod scenarios;
mod state;
mod story;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sharding::ShardNumber;
use sharding::internal::protocol::layout::{Layout, Places};
use sharding::internal::protocol::view::{MAX_LEASE, Moment, View};
use sharding::internal::protocol::write_id::WriteId;
use stateright::{Model, Property};

pub use invariants::{
    DRAINED, FILLED, I1, I2, I3, I4, I5, I6, LATE_PAGE, LATE_REQUEST, MET_LATER, MOVED, OPENED,
    PURGED, REPAIRED, TAKEN_OVER,
};
pub use rules::Rules;
pub use scenario::Scenario;
pub use scenarios::{limits, scenario, scenarios};
pub use state::State;

use monitor::{Kind, Outcome};
use program::Op;
use state::{Broken, DrainStep, Key, Step, Value};
use story::{Story, layout_text, request_text, shards_text, stored_text, value_text};

/// The lease of views.
const LEASE: Duration = MAX_LEASE;
/// The lease of views in an append-only table. It is shorter than the product's, to keep scenarios
/// small.
const APPEND_LEASE: Duration = Duration::from_secs(2);
/// The wait between close and open. It is longer than a lease, which ends *before* a second is
/// over.
const WAIT: Duration = Duration::from_secs(1);
/// The longest that a read may take.
const LONGEST_READ: Duration = Duration::from_secs(1);
/// How long a drain waits for reads. It is longer than [`LONGEST_READ`], because a read may take
/// exactly that time.
const WAIT_FOR_READS: Duration = Duration::from_secs(2);

/// A scenario under some rules.
#[derive(Clone, Debug)]
pub struct ProtocolModel {
    rules: Rules,
    scenario: Scenario,
    write_ids: BTreeMap<Value, WriteId>,
    /// For each value, the operation that stores it: the actor and its step, and the operation's
    /// number. Requests in flight from the beginning have no actor.
    writers: BTreeMap<Value, (Option<(usize, u8)>, u8)>,
}

/// The next event. Actors and requests are identified by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A request in flight is applied.
    Apply(usize),
    /// An actor takes its next step.
    Step(usize),
    /// An actor processes a response.
    Receive(usize),
    /// An actor gives up waiting for a response.
    GiveUp(usize),
    /// A shard is read.
    Read(usize, ShardNumber),
    /// An actor dies.
    Crash(usize),
}

/// The kind of operation that broke a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    Read,
    Create,
    Scan,
}

impl ProtocolModel {
    /// A scenario under these rules.
    #[must_use]
    pub fn new(rules: Rules, scenario: Scenario) -> Self {
        let mut writers = BTreeMap::new();
        for (actor, cast) in scenario.cast.iter().enumerate() {
            for (op, value) in (0..).zip(cast.program.iter().map(|op| op.value())) {
                // A client's repetition is the same operation.
                value.map(|value| {
                    writers.entry(value).or_insert((Some((actor, op)), operation(actor, op)))
                });
            }
        }
        for (late, index) in scenario.in_flight.iter().zip(0..) {
            late.value
                .filter(|_| late.kind.is_some())
                .map(|value| writers.insert(value, (None, scenario::LATE + index)));
        }
        let write_ids = writers.keys().map(|value| (*value, scenario::write_id(*value))).collect();
        Self { rules, scenario, write_ids, writers }
    }

    /// The scenario.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Describes an action in a state, in one line.
    #[must_use]
    pub fn narrate(&self, before: &State, action: Action) -> String {
        let mut story = Story::open();
        let now = self.perform(before, action, &mut story).map_or(before.now, |after| after.now);
        format!("t={now} {story}")
    }

    fn perform(&self, before: &State, action: Action, story: &mut Story) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => {
                state.now += 1;
                let now = state.now;
                state.requests.retain(|request| request.valid_until >= now);
                story.log(format_args!("-- a second passes"));
            }
            Action::Apply(request) => self.apply(&mut state, request, story),
            Action::Step(actor) => self.step(&mut state, actor, story)?,
            Action::Receive(actor) => self.receive(&mut state, actor, story)?,
            Action::GiveUp(actor) => self.give_up(&mut state, actor, story)?,
            Action::Read(actor, shard) if matches!(state.actors[actor].step, Step::Reading(_)) => {
                self.read_shard(&mut state, actor, shard, story)?;
            }
            Action::Read(actor, shard) => self.fetch(&mut state, actor, shard, story)?,
            Action::Crash(actor) => {
                state.abandon(actor);
                state.actor(actor).step = Step::Dead;
                state.actor(actor).view = None;
                story.log(format_args!("{} dies", self.name(actor)));
            }
        }
        Some(state)
    }

    /// Takes the next step of an actor that waits for no response. `None` if it cannot take one
    /// now.
    fn step(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        match state.actors[actor].step.clone() {
            Step::Idle => match self.op(state, actor)? {
                op @ (Op::Put(..)
                | Op::Create(..)
                | Op::CreateAgain(..)
                | Op::Delete(..)
                | Op::Swap(..)
                | Op::Add(..)
                | Op::AddAgain(..)
                | Op::Express(..)
                | Op::Append(..)) => {
                    if !self.may_grow(state, actor, story) {
                        return None;
                    }
                    self.begin_write(state, actor, op, story)
                }
                Op::Get(_) | Op::Query | Op::Scan => self.begin_read(state, actor, 0, story),
                Op::Look => {
                    self.look(state, actor, None, story);
                    state.finish(actor);
                    Some(())
                }
                Op::Scale(to) => {
                    if !self.may_grow(state, actor, story) {
                        return None;
                    }
                    self.close(state, actor, to, story)
                }
                Op::Arm => self.arm(state, actor, story),
                Op::Disarm => self.disarm(state, actor, story),
                Op::Plain(key, value) => self.begin_plain(state, actor, (key, value), story),
                Op::TakeOver => self.watch(state, actor, story),
                Op::Drain => self.drain(state, actor, story),
                Op::AddCopy => self.add_copy(state, actor, story),
                Op::Fill => self.fill(state, actor, story),
                Op::Move => self.move_page(state, actor, story),
            },
            Step::Asking(writing, layout) => {
                let asked_at = self.now(state, actor);
                let view = View { layout: Layout::clone(&layout), asked_at };
                state.actor(actor).view = Some(Arc::new(view));
                story.log(format_args!("{} gets the metadata", self.name(actor)));
                self.next_write(state, actor, writing, story);
                Some(())
            }
            Step::Fetching { .. } => self.judge(state, actor, story),
            Step::Prepared(..) => self.send_write(state, actor, story),
            Step::Reading(_) => self.end_read(state, actor, story),
            Step::Watching { .. } => self.watch_on(state, actor, story),
            Step::Waiting { .. } => self.open(state, actor, story),
            Step::Draining(..) => self.drain_on(state, actor, story),
            Step::Purging(..) => self.purge(state, actor, story),
            Step::Arming => self.set_time(state, actor, story),
            Step::Plain(..) => self.send_plain(state, actor, story),
            Step::Sent(..)
            | Step::PlainSent(_)
            | Step::Appending { .. }
            | Step::Changing(..)
            | Step::Publishing(..)
            | Step::Dead => None,
        }
    }

    /// An actor processes the response that it was waiting for.
    fn receive(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let answer = state.actors[actor].inbox.clone()?;
        if matches!(state.actors[actor].step, Step::PlainSent(_)) {
            self.plain_written(state, actor, story);
            return Some(());
        }
        if matches!(state.actors[actor].step, Step::Appending { .. }) {
            self.append_answered(state, actor, Some(answer), story)
        } else {
            self.write_answered(state, actor, Some(answer), story)
        }
    }

    /// An actor gives up waiting for its write's response, and repeats the write or goes on with
    /// its program. `None` where that equals never processing the response.
    fn give_up(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        if let Step::Draining(..) = state.actors[actor].step {
            return self.give_up_move(state, actor, story);
        }
        let goes_on =
            usize::from(state.actors[actor].op) + 1 < self.scenario.cast[actor].program.len();
        if let Step::Appending { attempts, .. } = state.actors[actor].step {
            return if goes_on || attempts > 1 {
                self.append_answered(state, actor, None, story)
            } else {
                None
            };
        }
        let Step::Sent(writing, _) = &state.actors[actor].step else { return None };
        if goes_on || writing.attempts > 1 {
            self.write_answered(state, actor, None, story)
        } else {
            None
        }
    }

    /// An actor gets a view, requested now or, if that is later, at `since`.
    fn look(&self, state: &mut State, actor: usize, since: Option<Moment>, story: &mut Story) {
        let view = self.seen(state, actor, self.asks_at(state, actor, since));
        story.log(format_args!("{} looks: {}", self.name(actor), layout_text(&view.layout)));
        state.actor(actor).view = Some(Arc::new(view));
    }

    fn asks_at(&self, state: &State, actor: usize, since: Option<Moment>) -> Moment {
        let beginning = state::moment(u64::from(state.now) * 1_000, self.ahead(actor));
        since.map_or(beginning, |since| since.max(beginning))
    }

    /// The places of an item.
    fn places(&self, layout: &Layout, key: Key) -> Places {
        let home = |width| self.scenario.home(key, width);
        if self.rules.closing_is_place && self.rules.history_is_place {
            return layout.places(home);
        }
        let mut known = layout.clone();
        if !self.rules.closing_is_place {
            known.closing = None;
        }
        if !self.rules.history_is_place {
            known.widths = BTreeSet::from([known.number_of_shards]);
        }
        known.places(home)
    }

    fn now(&self, state: &State, actor: usize) -> Moment {
        self.at(actor, state.now)
    }

    /// The middle of a tick.
    fn at(&self, actor: usize, tick: u8) -> Moment {
        state::moment(u64::from(tick) * 1_000 + 500, self.ahead(actor))
    }

    fn ahead(&self, actor: usize) -> i8 {
        self.scenario.cast[actor].ahead
    }

    /// The actor's current operation; `None` at the end of its program.
    fn op(&self, state: &State, actor: usize) -> Option<Op> {
        self.scenario.cast[actor].program.get(usize::from(state.actors[actor].op)).copied()
    }

    fn key(&self, state: &State, actor: usize) -> Option<Key> {
        self.op(state, actor)?.key()
    }

    fn name(&self, actor: usize) -> &'static str {
        self.scenario.cast[actor].name
    }

    fn sender(&self, actor: usize) -> String {
        self.scenario
            .cast
            .get(actor)
            .map_or("an earlier request".to_owned(), |cast| format!("{}'s request", cast.name))
    }

    /// The number of the actor's current operation. A client's repetition has the number of the
    /// operation that it repeats, which may be in flight from the beginning.
    fn operation(&self, state: &State, actor: usize) -> u8 {
        let op = state.actors[actor].op;
        match self.op(state, actor) {
            Some(Op::CreateAgain(..) | Op::AddAgain(..)) if op == 0 => scenario::LATE,
            Some(Op::CreateAgain(..) | Op::AddAgain(..)) => operation(actor, op - 1),
            _ => operation(actor, op),
        }
    }

    fn invoke(&self, state: &mut State, actor: usize, key: Key, kind: Kind) {
        let operation = self.operation(state, actor);
        Arc::make_mut(&mut state.monitors[usize::from(key)]).invoke(operation, kind);
    }

    fn respond(&self, state: &mut State, actor: usize, key: Key, outcome: Outcome, blame: Blame) {
        let operation = self.operation(state, actor);
        let monitor = Arc::make_mut(&mut state.monitors[usize::from(key)]);
        monitor.respond(operation, outcome);
        if monitor.is_broken() {
            match blame {
                Blame::Read => state.broken.read = true,
                Blame::Create => state.broken.create = true,
                Blame::Scan => state.broken.scan = true,
            }
        }
    }

    fn cancel(&self, state: &mut State, actor: usize, key: Key) {
        let operation = self.operation(state, actor);
        Arc::make_mut(&mut state.monitors[usize::from(key)]).cancel(operation);
    }
}

fn operation(actor: usize, op: u8) -> u8 {
    u8::try_from(actor * 16).unwrap_or(u8::MAX) + op
}

impl Model for ProtocolModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.scenario.first_state()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // After a broken promise, later steps prove nothing more.
        if state.broken != Broken::default() {
            return;
        }
        let is_prompt = |actor: usize| self.scenario.cast[actor].prompt;
        let can_step =
            |actor: usize| self.step(&mut state.clone(), actor, &mut Story::silent()).is_some();
        let time_stands_still =
            (0..state.actors.len()).any(|actor| is_prompt(actor) && can_step(actor));
        if state.now < self.scenario.horizon && !time_stands_still {
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
                Step::Dead => continue,
                Step::Sent(..) | Step::Appending { .. } => actions.push(Action::GiveUp(index)),
                Step::Draining(_, _, DrainStep::Deleting { sent: true, .. })
                | Step::Changing(..)
                | Step::PlainSent(_)
                | Step::Publishing(..) => {}
                Step::Draining(_, _, DrainStep::Copying { sent: true, .. }) => {
                    if self.scenario.cast[index].gives_up {
                        actions.push(Action::GiveUp(index));
                    }
                }
                Step::Fetching { todo, .. } | Step::Reading(state::Reading { todo, .. })
                    if !todo.is_empty() =>
                {
                    actions.extend(todo.iter().map(|shard| Action::Read(index, *shard)));
                }
                Step::Idle
                | Step::Asking(..)
                | Step::Fetching { .. }
                | Step::Prepared(..)
                | Step::Reading(_)
                | Step::Watching { .. }
                | Step::Waiting { .. }
                | Step::Draining(..)
                | Step::Arming
                | Step::Plain(..)
                | Step::Purging(..) => actions.push(Action::Step(index)),
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
