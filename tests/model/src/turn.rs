//! A turn: one action on a state, and what the actor that takes it knows.

use std::fmt;
use std::sync::Arc;

use sharding::ShardNumber;
use sharding::internal::protocol::applied::{Once, UpdateId};
use sharding::internal::protocol::copies::Answer;
use sharding::internal::protocol::layout::{Layout, Places};
use sharding::internal::protocol::view::{Moment, View};
use sharding::internal::protocol::write::{self, Update};

use super::expressing::{Asked, Expects};
use super::monitor::{Kind, Outcome};
use super::program::{Keyed, May, Op};
use super::state::{self, Actor, Body, Content, InFlight, Key, State, Step, Value, Writing};
use super::{Action, ProtocolModel, Rules, Scenario, Story, layout_text};

/// An action in progress. What an actor does returns `None` if it is not possible now; then the
/// state counts as unchanged.
pub(crate) struct Turn<'a> {
    pub(crate) model: &'a ProtocolModel,
    pub(crate) rules: &'a Rules,
    pub(crate) scenario: &'a Scenario,
    /// The state that the action changes.
    pub(crate) state: State,
    /// The actor that acts, or whose request is applied.
    pub(crate) actor: usize,
    pub(crate) story: Story,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(
        model: &'a ProtocolModel,
        before: &State,
        action: Action,
        story: Story,
    ) -> Self {
        let actor = match action {
            Action::Tick => 0,
            Action::Apply(request) => before.requests[request].from,
            Action::Step(actor)
            | Action::Receive(actor)
            | Action::GiveUp(actor)
            | Action::Read(actor, _)
            | Action::Crash(actor) => actor,
        };
        let (rules, scenario) = (&model.rules, &model.scenario);
        Self { model, rules, scenario, state: before.clone(), actor, story }
    }

    pub(crate) fn perform(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Tick => {
                self.state.now += 1;
                let now = self.state.now;
                self.state.requests.retain(|request| request.valid_until >= now);
                self.story.log(format_args!("-- a second passes"));
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
                self.log(format_args!("dies"));
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
                self.log(format_args!("gets the metadata"));
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
            Step::Plain(key, value) => self.send_plain(key, value),
            Step::Sent(..)
            | Step::PlainSent(_)
            | Step::Appending { .. }
            | Step::Changing(..)
            | Step::Publishing(..)
            | Step::Dead => None,
        }
    }

    fn begin(&mut self, op: Op) -> Option<()> {
        let add = |once| write::Kind::Add(Update { expects: None, once });
        let (key, does, kind) = match op {
            Op::Get(_) | Op::Query | Op::Scan => return self.begin_read(0),
            Op::Look => {
                self.look(None);
                return self.finish();
            }
            Op::Scale(to) => return self.close(to),
            Op::TakeOver => return self.watch(),
            Op::Drain => return self.drain(),
            Op::Arm => return self.arm(),
            Op::Disarm => return self.disarm(),
            Op::Plain(key, value) => return self.begin_plain(key, value),
            Op::AddCopy => return self.add_copy(),
            Op::Fill => return self.fill(),
            Op::Move => return self.move_page(),
            Op::Express(key, value, operation, expects) => {
                return self.begin_expressed(key, value, operation, expects);
            }
            Op::Append(key, value) => return self.begin_append(key, value),
            Op::Swap(key, value) => {
                (key, Some(Kind::Swap(value)), write::Kind::Replace(Update::default()))
            }
            Op::Add(key, value, Keyed::No) => (key, Some(Kind::Swap(value)), add(None)),
            Op::Add(key, value, Keyed::Yes) => {
                (key, Some(Kind::Swap(value)), add(Some(self.once(value))))
            }
            Op::AddAgain(key, value) => (key, None, add(Some(self.once(value)))),
            Op::Put(key, value) => (key, Some(Kind::Write(value)), write::Kind::Put),
            Op::Create(key, value) => (key, Some(Kind::CreateOnly(value)), self.creation(value)),
            Op::CreateAgain(key, value) => (key, None, self.creation(value)),
            Op::Delete(key, may) => {
                (key, Some(Kind::Delete), write::Kind::Delete { may_look: may == May::Look })
            }
        };
        self.begin_write(key, does, kind)
    }

    fn once(&self, value: Value) -> Once {
        let sent_at = u64::try_from(self.now().wall.as_millis()).unwrap_or(u64::MAX);
        Once { id: UpdateId::from_bytes([value as u8; 8]), sent_at }
    }

    fn creation(&self, value: Value) -> write::Kind {
        write::Kind::Create(self.model.write_ids[&value].clone())
    }

    /// The actor processes the response that it was waiting for.
    fn receive(&mut self) -> Option<()> {
        let answer = self.me().inbox.clone()?;
        if let Step::PlainSent(key) = self.me().step {
            return self.plain_written(key);
        }
        self.answered(Some(answer))
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
        if attempts > 1 || usize::from(self.me().op) + 1 < operations {
            self.answered(None)
        } else {
            None
        }
    }

    fn answered(&mut self, answer: Option<Answer>) -> Option<()> {
        if matches!(self.me().step, Step::Appending { .. }) {
            self.append_answered(answer)
        } else {
            self.write_answered(answer)
        }
    }

    /// The actor gets a view, requested now or, if that is later, at `since`.
    pub(crate) fn look(&mut self, since: Option<Moment>) {
        let view = self.seen(self.asks_at(since));
        self.log(format_args!("looks: {}", layout_text(&view.layout)));
        self.me_mut().view = Some(Arc::new(view));
    }

    pub(crate) fn asks_at(&self, since: Option<Moment>) -> Moment {
        let beginning = state::moment(u64::from(self.state.now) * 1_000, self.ahead());
        since.map_or(beginning, |since| since.max(beginning))
    }

    pub(crate) fn log(&self, line: fmt::Arguments<'_>) {
        self.story.log(format_args!("{} {line}", self.scenario.cast[self.actor].name));
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

    pub(crate) fn key(&self) -> Option<Key> {
        self.op()?.key()
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

    /// The places of an item.
    pub(crate) fn places(&self, layout: &Layout, key: Key) -> Places {
        self.model.places(layout, key)
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
        request: impl Into<Asked>,
    ) {
        let body = Body::Item { place, key, content, request: request.into() };
        self.post([body], self.valid_until());
    }

    /// Sends requests. The requests of one actor stay in their order; requests are ordered by
    /// actor.
    pub(crate) fn post(&mut self, bodies: impl IntoIterator<Item = Body>, valid_until: u8) {
        self.abandon();
        let from = self.actor;
        let sent = |body| InFlight { from, awaited: true, valid_until, body };
        self.state.requests.extend(bodies.into_iter().map(sent));
        self.state.requests.sort_by_key(|request| request.from);
    }

    /// The actor stops waiting for responses.
    pub(crate) fn abandon(&mut self) {
        let actor = self.actor;
        self.me_mut().inbox = None;
        for request in self.state.requests.iter_mut().filter(|request| request.from == actor) {
            request.awaited = false;
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
            Some(Op::CreateAgain(..) | Op::AddAgain(..)) if op == 0 => super::scenario::LATE,
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
        let (broken, is_broken) = (&mut self.state.broken, monitor.is_broken());
        match op {
            Some(Op::Scan) => broken.scan |= is_broken,
            Some(Op::Create(..) | Op::CreateAgain(..) | Op::Express(_, _, _, Expects::NoItem)) => {
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
