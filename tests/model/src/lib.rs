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
//! The driver weakens a [rule](Weakened) from outside: it changes the inputs of the code, or its
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
mod turn;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sharding::ShardNumber;
use sharding::internal::protocol::layout::{Layout, Places};
use sharding::internal::protocol::view::MAX_LEASE;
use stateright::{Model, Property};

pub use invariants::{I1, I2, I3, I4, I5, I6};
pub use rules::Weakened;
pub use scenario::Scenario;
pub use scenarios::{limits, scenario, scenarios};
pub use state::State;

use monitor::Kind;
use scenario::{LATE, Late};
use state::{Broken, Key, Reading, Step, Value};
use turn::Turn;

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

/// A scenario, and which rules are weakened.
#[derive(Clone, Debug)]
pub struct ProtocolModel {
    weakened: Weakened,
    scenario: Scenario,
    /// For each value, the operation that stores it: the actor and its step, and the operation's
    /// number. A request in flight from the beginning has no actor.
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

impl ProtocolModel {
    /// A scenario with these rules weakened.
    #[must_use]
    pub fn new(weakened: Weakened, scenario: Scenario) -> Self {
        let mut writers = BTreeMap::new();
        for (actor, cast) in scenario.cast.iter().enumerate() {
            for (op, value) in (0..).zip(cast.program.iter().map(|op| op.value())) {
                // A client's repetition is the same operation.
                value.map(|value| {
                    writers.entry(value).or_insert((Some((actor, op)), operation(actor, op)))
                });
            }
        }
        if let Some(Late { kind: Some(Kind::Write(value) | Kind::CreateOnly(value)), .. }) =
            scenario.in_flight
        {
            writers.insert(value, (None, LATE));
        }
        Self { weakened, scenario, writers }
    }

    /// The scenario.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    fn places(&self, layout: &Layout, key: Key) -> Places {
        let home = |width| self.scenario.home(key, width);
        if !self.weakened.closing_is_place && !self.weakened.history_is_place {
            return layout.places(home);
        }
        let mut known = layout.clone();
        if self.weakened.closing_is_place {
            known.closing = None;
        }
        if self.weakened.history_is_place {
            known.widths = BTreeSet::from([known.number_of_shards]);
        }
        known.places(home)
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
        let can_step = |actor: usize| self.next_state(state, Action::Step(actor)).is_some();
        let stops_time = |actor: usize| is_prompt(actor) && can_step(actor);
        if state.now < self.scenario.horizon && !(0..state.actors.len()).any(stops_time) {
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
            if let Step::Fetching { todo, .. } | Step::Reading(Reading { todo, .. }) = &actor.step
                && !todo.is_empty()
            {
                actions.extend(todo.iter().map(|shard| Action::Read(index, *shard)));
            } else if actor.step.may_give_up() {
                actions.push(Action::GiveUp(index));
            } else {
                actions.push(Action::Step(index));
            }
            let may_crash = self.scenario.cast[index].may_crash;
            if may_crash && !matches!(actor.step, Step::Idle | Step::Dead) {
                actions.push(Action::Crash(index));
            }
        }
    }

    /// `None` if the action is not possible after all.
    fn next_state(&self, last_state: &State, action: Action) -> Option<State> {
        let mut turn = Turn::new(self, last_state, action);
        turn.perform(action)?;
        Some(turn.state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        invariants::properties(&self.scenario)
    }
}
