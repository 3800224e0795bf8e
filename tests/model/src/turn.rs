//! A turn: one action on a state, and what the actor that takes it knows.

use std::sync::Arc;

use sharding::ShardNumber;
use sharding::internal::protocol::applied::{Once, UpdateId};
use sharding::internal::protocol::copies::Request;
use sharding::internal::protocol::layout::Layout;
use sharding::internal::protocol::view::{Moment, View};
use sharding::internal::protocol::write::{self, Update};

use super::expressing::{Asked, Expects};
use super::monitor::{Kind, Outcome};
use super::program::Op;
use super::scenario::write_id;
use super::state::{self, Actor, Body, Content, InFlight, Key, State, Step, Value, Writing};
use super::{Action, ProtocolModel, Scenario, Weakened};

/// An action in progress. What an actor does returns `None` if it is not possible now; then the
/// state counts as unchanged.
pub(crate) struct Turn<'a> {
    pub(crate) model: &'a ProtocolModel,
    pub(crate) weakened: &'a Weakened,
    pub(crate) scenario: &'a Scenario,
    /// The state that the action changes.
    pub(crate) state: State,
    /// The actor that acts, or whose request is applied.
    pub(crate) actor: usize,
    /// What callers got.
    pub(crate) outcomes: Vec<Outcome>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(model: &'a ProtocolModel, before: &State, action: Action) -> Self {
        let actor = match action {
            Action::Tick => 0,
            Action::Apply(request) => before.requests[request].from,
            Action::Step(actor)
            | Action::Receive(actor)
            | Action::GiveUp(actor)
            | Action::Read(actor, _)
            | Action::Crash(actor) => actor,
        };
        let (weakened, scenario) = (&model.weakened, &model.scenario);
        Self { model, weakened, scenario, state: before.clone(), actor, outcomes: Vec::new() }
    }

    pub(crate) fn perform(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Tick => {
                self.state.now += 1;
                let now = self.state.now;
                self.state.requests.retain(|request| request.valid_until >= now);
            }
            Action::Apply(request) => self.apply(request),
            Action::Step(_) => self.step()?,
            Action::Receive(_) => self.receive()?,
            Action::GiveUp(_) => self.give_up()?,
            Action::Read(_, shard) if matches!(self.me().step, Step::Reading(_)) => {
                self.read_shard(shard)?;
            }
            Action::Read(_, shard) => self.fetch(shard)?,
            Action::Crash(_) => {
                self.abandon();
                self.me_mut().step = Step::Dead;
                self.me_mut().view = None;
            }
        }
        Some(())
    }

    /// Takes the next step of an actor that waits for no response.
    fn step(&mut self) -> Option<()> {
        match self.me().step.clone() {
            Step::Idle => self.begin(self.op()?),
            Step::Asking(writing, layout) => {
                let view = View { layout: Layout::clone(&layout), asked_at: self.now() };
                self.me_mut().view = Some(Arc::new(view));
                self.next_write(writing)
            }
            Step::Fetching { writing, todo, copies } => self.judge(writing, &todo, copies),
            Step::Prepared(writing, request, valid_until) => {
                self.send_write(writing, request, valid_until)
            }
            Step::Reading(reading) => self.end_read(reading),
            Step::Watching { writing, generation, since } => {
                self.watch_on(writing, generation, since)
            }
            Step::Waiting { writing, closed, since } => self.open(writing, &closed, since),
            Step::Draining(pass, marked, step) => self.drain_on(pass, marked, step),
            Step::Purging(tombstones) => self.purge(tombstones),
            Step::Arming => self.set_time(),
            Step::Plain(value) => self.send_plain(value),
            Step::Sent(..)
            | Step::PlainSent
            | Step::Appending { .. }
            | Step::Changing(..)
            | Step::Publishing(..)
            | Step::Dead => None,
        }
    }

    fn begin(&mut self, op: Op) -> Option<()> {
        let add = |once| write::Kind::Add(Update { expects: None, once });
        let creation = |value| write::Kind::Create(Some(write_id(value)));
        match op {
            Op::Get(_) | Op::Query | Op::Scan => self.begin_read(0),
            Op::Look => {
                self.look(None);
                self.finish()
            }
            Op::Scale(to) => self.close(to),
            Op::TakeOver => self.watch(),
            Op::Drain => self.drain(),
            Op::Arm => self.arm(),
            Op::Disarm => self.disarm(),
            Op::Plain(value) => self.begin_plain(value),
            Op::AddCopy => self.add_copy(),
            Op::Fill => self.fill(),
            Op::Move => self.move_page(),
            Op::Express(value, operation, expects) => {
                self.begin_expressed(value, operation, expects)
            }
            Op::Append(value) => self.begin_append(value),
            Op::Swap(value) => {
                let replace = write::Kind::Replace(Update::default());
                self.begin_write(Some(Kind::Swap(value)), replace)
            }
            Op::Add(value, is_keyed) => {
                let once = is_keyed.then(|| self.once(value));
                self.begin_write(Some(Kind::Swap(value)), add(once))
            }
            Op::AddAgain(value) => self.begin_write(None, add(Some(self.once(value)))),
            Op::Put(value) => self.begin_write(Some(Kind::Write(value)), write::Kind::Put),
            Op::Create(value) => self.begin_write(Some(Kind::CreateOnly(value)), creation(value)),
            Op::CreateAgain(value) => self.begin_write(None, creation(value)),
            Op::Delete { may_look } => {
                self.begin_write(Some(Kind::Delete), write::Kind::Delete { may_look })
            }
        }
    }

    fn once(&self, value: Value) -> Once {
        let sent_at = u64::try_from(self.now().wall.as_millis()).unwrap_or(u64::MAX);
        Once { id: UpdateId([value as u8; 8]), sent_at }
    }

    /// The actor processes the response that it was waiting for.
    fn receive(&mut self) -> Option<()> {
        let answer = self.me().inbox.clone()?;
        if self.me().step == Step::PlainSent {
            return self.plain_written();
        }
        self.write_answered(Some(answer))
    }

    /// The actor gives up waiting for its write's response, and repeats the write or goes on with
    /// its program. `None` where that equals never processing the response.
    fn give_up(&mut self) -> Option<()> {
        let (Step::Appending { attempts, .. } | Step::Sent(Writing { attempts, .. }, _)) =
            self.me().step
        else {
            return self.give_up_move();
        };
        let operations = self.scenario.cast[self.actor].program.len();
        if attempts <= 1 && usize::from(self.me().op) + 1 >= operations {
            return None;
        }
        self.write_answered(None)
    }

    /// The actor gets a view, requested now or, if that is later, at `since`.
    pub(crate) fn look(&mut self, since: Option<Moment>) {
        let view = self.seen(self.asks_at(since));
        self.me_mut().view = Some(Arc::new(view));
    }

    pub(crate) fn asks_at(&self, since: Option<Moment>) -> Moment {
        let beginning = state::moment(u64::from(self.state.now) * 1_000, self.ahead());
        since.map_or(beginning, |since| since.max(beginning))
    }

    pub(crate) fn me(&self) -> &Actor {
        &self.state.actors[self.actor]
    }

    pub(crate) fn me_mut(&mut self) -> &mut Actor {
        Arc::make_mut(&mut self.state.actors[self.actor])
    }

    pub(crate) fn view(&self) -> Option<Arc<View>> {
        self.me().view.clone()
    }

    /// The actor's current operation; `None` at the end of its program.
    pub(crate) fn op(&self) -> Option<Op> {
        self.scenario.cast[self.actor].program.get(usize::from(self.me().op)).copied()
    }

    /// The sort key of the actor's writes.
    pub(crate) fn key(&self) -> Key {
        self.scenario.cast[self.actor].key
    }

    pub(crate) fn now(&self) -> Moment {
        self.at(self.state.now)
    }

    /// The middle of a tick.
    pub(crate) fn at(&self, tick: u8) -> Moment {
        state::moment(u64::from(tick) * 1_000 + 500, self.ahead())
    }

    fn ahead(&self) -> i8 {
        self.scenario.cast[self.actor].ahead
    }

    /// The last tick at which a request that is signed now is accepted.
    pub(crate) fn valid_until(&self) -> u8 {
        self.state.now.saturating_add(self.scenario.validity)
    }

    /// Signs a request about an item now, and sends it.
    pub(crate) fn send(
        &mut self,
        place: ShardNumber,
        key: Key,
        content: Content,
        request: Request,
    ) {
        let body = Body::Item { place, key, content, request: Asked::Plain(request) };
        self.post([body], self.valid_until());
    }

    /// Sends requests. The requests of one actor stay in their order; requests are ordered by
    /// actor.
    pub(crate) fn post(&mut self, bodies: impl IntoIterator<Item = Body>, valid_until: u8) {
        self.abandon();
        let from = self.actor;
        let sent = |body| Arc::new(InFlight { from, awaited: true, valid_until, body });
        self.state.requests.extend(bodies.into_iter().map(sent));
        self.state.requests.sort_by_key(|request| request.from);
    }

    /// The actor stops waiting for responses.
    pub(crate) fn abandon(&mut self) {
        let actor = self.actor;
        self.me_mut().inbox = None;
        let is_awaited = |request: &&mut Arc<InFlight>| request.awaited && request.from == actor;
        for request in self.state.requests.iter_mut().filter(is_awaited) {
            Arc::make_mut(request).awaited = false;
        }
    }

    pub(crate) fn go_to(&mut self, step: Step) -> Option<()> {
        self.me_mut().step = step;
        Some(())
    }

    /// The actor goes on with its program. It keeps only its view.
    pub(crate) fn finish(&mut self) -> Option<()> {
        self.abandon();
        self.me_mut().op += 1;
        self.go_to(Step::Idle)
    }

    /// The number of the actor's current operation. A client's repetition has the number of the
    /// operation that it repeats, which may be in flight from the beginning.
    pub(crate) fn operation(&self) -> u8 {
        let op = self.me().op;
        match self.op() {
            Some(Op::CreateAgain(..) | Op::AddAgain(..)) if op == 0 => super::LATE,
            Some(Op::CreateAgain(..) | Op::AddAgain(..)) => super::operation(self.actor, op - 1),
            _ => super::operation(self.actor, op),
        }
    }

    pub(crate) fn invoke(&mut self, key: Key, kind: Kind) {
        let operation = self.operation();
        Arc::make_mut(&mut self.state.monitors[usize::from(key)]).invoke(operation, kind);
    }

    /// The caller gets an outcome. If no order allows it, the operation breaks its promise.
    pub(crate) fn respond(&mut self, key: Key, outcome: Outcome) {
        let (op, operation) = (self.op(), self.operation());
        let monitor = Arc::make_mut(&mut self.state.monitors[usize::from(key)]);
        monitor.respond(operation, outcome);
        self.outcomes.push(outcome);
        let (broken, is_broken) = (&mut self.state.broken, monitor.is_broken());
        match op {
            Some(Op::Scan) => broken.scan |= is_broken,
            Some(Op::Create(..) | Op::CreateAgain(..) | Op::Express(_, _, Expects::NoItem)) => {
                broken.create |= is_broken;
            }
            _ => broken.read |= is_broken,
        }
    }

    pub(crate) fn cancel(&mut self, key: Key) {
        let operation = self.operation();
        Arc::make_mut(&mut self.state.monitors[usize::from(key)]).cancel(operation);
    }
}
