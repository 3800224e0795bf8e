//! Writers: the driver of [`Write`] and [`Append`].

use std::sync::Arc;

use sharding::ShardNumber;
use sharding::internal::protocol::append::{Append, AppendNext};
use sharding::internal::protocol::applied::{Applied, Once, UpdateId};
use sharding::internal::protocol::copies::{Answer, Condition, Effect, Request};
use sharding::internal::protocol::write::{Kind, Outcome, Update, Write};
use sharding::internal::{protocol::version::Version, protocol::view::View};

use super::expressing::{Asked, Ended, Expects, Machine, Next};
use super::monitor::{Kind as Does, Outcome as Reported};
use super::program::{Keyed, May, Op};
use super::state::{Body, Content, InFlight, Key, State, Step, Stored, Then, Writing};
use super::{APPEND_LEASE, Blame, ProtocolModel, Story};

impl ProtocolModel {
    /// Begins a write or an append.
    pub(crate) fn begin_write(
        &self,
        state: &mut State,
        actor: usize,
        op: Op,
        story: &mut Story,
    ) -> Option<()> {
        let tie_breaker = u32::from(self.operation(state, actor)) + 1;
        let attempts = self.scenario.cast[actor].attempts;
        let creation = |value| Kind::Create(self.write_ids[&value].clone());
        let now = self.now(state, actor);
        let once = |value| {
            let sent_at = u64::try_from(now.wall.as_millis()).unwrap_or(u64::MAX);
            Once { id: UpdateId::from_bytes([value as u8; 8]), sent_at }
        };
        let add = |once| Kind::Add(Update { expects: None, once });
        let (key, does, kind) = match op {
            Op::Swap(key, value) => {
                (key, Some(Does::Swap(value)), Kind::Replace(Update::default()))
            }
            Op::Add(key, value, Keyed::No) => (key, Some(Does::Swap(value)), add(None)),
            Op::Add(key, value, Keyed::Yes) => {
                (key, Some(Does::Swap(value)), add(Some(once(value))))
            }
            Op::AddAgain(key, value) => (key, None, add(Some(once(value)))),
            Op::Put(key, value) => (key, Some(Does::Write(value)), Kind::Put),
            Op::Create(key, value) => (key, Some(Does::CreateOnly(value)), creation(value)),
            Op::CreateAgain(key, value) => (key, None, creation(value)),
            Op::Delete(key, may) => {
                (key, Some(Does::Delete), Kind::Delete { may_look: may == May::Look })
            }
            Op::Express(..) => {
                return self.begin_expressed(state, actor, op, tie_breaker, story);
            }
            Op::Append(key, value) => {
                self.invoke(state, actor, key, Does::Write(value));
                let append = Append::new(APPEND_LEASE, tie_breaker, false, self.now(state, actor));
                return self.next_append(state, actor, key, (append, attempts), story);
            }
            Op::Get(_)
            | Op::Query
            | Op::Scan
            | Op::Look
            | Op::Scale(_)
            | Op::TakeOver
            | Op::Drain
            | Op::AddCopy
            | Op::Arm
            | Op::Disarm
            | Op::Plain(..)
            | Op::Fill
            | Op::Move => return None,
        };
        match does {
            Some(does) => self.invoke(state, actor, key, does),
            None if !state.monitors[usize::from(key)].is_pending(self.operation(state, actor)) => {
                state.finish(actor);
                return Some(());
            }
            None => {}
        }
        let once = kind.update().and_then(|update| update.once);
        let write = Machine::Plain(Write::new(kind, self.waits_of_writers(), tie_breaker));
        let writing = Writing { write, attempts, content: Content::of(op.value()), once };
        self.next_write(state, actor, writing, story);
        Some(())
    }

    /// The view as the write sees it: it hides what a weakened rule ignores.
    fn as_writers_see(&self, view: &Arc<View>, is_over: bool) -> Arc<View> {
        let hides_closing =
            !self.rules.writers_pause || (is_over && !self.rules.closing_confirms_nothing);
        let hides_settling = !self.rules.deletions_after_a_settle_stay;
        if !hides_closing && !hides_settling {
            return Arc::clone(view);
        }
        let mut layout = view.layout.clone();
        layout.closing.take_if(|_| hides_closing);
        layout.drained_at.take_if(|_| hides_settling);
        Arc::new(View { layout, asked_at: view.asked_at })
    }

    /// Goes on with a write until it needs an event from outside.
    pub(crate) fn next_write(
        &self,
        state: &mut State,
        actor: usize,
        mut writing: Writing,
        story: &mut Story,
    ) {
        let Some(key) = self.key(state, actor) else { return };
        loop {
            let Some(view) = state.actors[actor].view.clone() else {
                if self.rules.aged_from_asking {
                    self.look(state, actor, None, story);
                    continue;
                }
                state.actor(actor).step = self.ask(state, actor, writing, story);
                return;
            };
            let places = self.places(&view.layout, key);
            let seen = self.as_writers_see(&view, writing.write.is_over());
            let next = writing.write.next(&seen, &places, self.now(state, actor));
            state.actor(actor).step = match next {
                Next::Look(_) | Next::Verify(_) if !self.rules.aged_from_asking => {
                    self.ask(state, actor, writing, story)
                }
                Next::Verify(since) => {
                    story.log(format_args!("{} has read a copy of a later era", self.name(actor)));
                    let layout = state.metadata.layout();
                    self.publish(state, actor, layout, Then::Write(writing, Some(since)), story);
                    return;
                }
                Next::Look(since) => {
                    self.look(state, actor, since, story);
                    continue;
                }
                Next::Pause => {
                    story.log(format_args!("{} waits for the next era", self.name(actor)));
                    Step::Watching {
                        writing: Some(writing),
                        generation: view.layout.generation,
                        since: state.now,
                    }
                }
                Next::Read if self.reads_nothing(state, actor) => {
                    writing.write.read(Vec::new(), &places, &view, self.now(state, actor));
                    continue;
                }
                Next::Read => {
                    story.log(format_args!("{} begins to read", self.name(actor)));
                    let todo = match self.op(state, actor) {
                        Some(Op::Swap(..)) if !self.rules.update_reads_all_places => {
                            vec![places.home]
                        }
                        Some(_) | None => places.all().into_iter().collect(),
                    };
                    Step::Fetching { writing, todo, copies: Vec::new() }
                }
                Next::Send(request) => {
                    story.log(format_args!(
                        "{} prepares {}",
                        self.name(actor),
                        super::story::asked_text(&request)
                    ));
                    Step::Prepared(writing, request, self.valid_until(state))
                }
                Next::Done(outcome) => {
                    self.end_write(state, actor, outcome, story);
                    return;
                }
            };
            return;
        }
    }

    fn ask(&self, state: &State, actor: usize, writing: Writing, story: &mut Story) -> Step {
        let layout = state.metadata.layout();
        story.log(format_args!("{} asks: {}", self.name(actor), super::layout_text(&layout)));
        Step::Asking(writing, Arc::new(layout))
    }

    fn reads_nothing(&self, state: &State, actor: usize) -> bool {
        let creates = matches!(self.op(state, actor), Some(Op::Create(..) | Op::CreateAgain(..)));
        creates && !self.rules.create_reads
    }

    /// Reads a place for a write.
    pub(crate) fn fetch(
        &self,
        state: &mut State,
        actor: usize,
        place: ShardNumber,
        story: &mut Story,
    ) -> Option<()> {
        let key = self.key(state, actor)?;
        let stored = state.copy(key, place).cloned();
        story.log(format_args!(
            "{} reads shard {place}: {}",
            self.name(actor),
            super::stored_text(stored.as_ref())
        ));
        let Step::Fetching { todo, copies, .. } = &mut state.actor(actor).step else { return None };
        todo.retain(|other| *other != place);
        copies.extend(stored.map(|stored| (place, stored)));
        copies.sort_by_key(|(place, _)| *place);
        Some(())
    }

    /// Evaluates the copies that a write has read.
    pub(crate) fn judge(&self, state: &mut State, actor: usize, story: &mut Story) -> Option<()> {
        let Step::Fetching { mut writing, todo, copies } = state.actors[actor].step.clone() else {
            return None;
        };
        let (key, view) = (self.key(state, actor)?, state.actors[actor].view.clone()?);
        if !todo.is_empty() {
            return None;
        }
        let places = self.places(&view.layout, key);
        let (seen, now) = (self.as_writers_see(&view, false), self.now(state, actor));
        writing.write.read(copies.clone(), &places, &seen, now);
        story.log(format_args!("{} has read all places", self.name(actor)));
        if let Machine::Plain(write) = &mut writing.write
            && write.examines()
        {
            let newest = copies
                .into_iter()
                .map(|(_, stored)| stored)
                .max_by(|one, other| self.compare(&one.copy, &other.copy));
            match newest.filter(|stored| stored.value.is_some()) {
                Some(Stored { copy, value }) => {
                    writing.content.base = value;
                    let applied = writing
                        .once
                        .map(|once| Applied::with(copy.applied.as_deref(), once, once.sent_at));
                    writing.content.applied = applied.map(Box::new).or(copy.applied);
                }
                None => write.declined(&seen, now),
            }
        }
        self.next_write(state, actor, writing, story);
        Some(())
    }

    /// Sends a request that was signed before. The lease may have expired meanwhile, but the
    /// signature must still be valid.
    pub(crate) fn send_write(
        &self,
        state: &mut State,
        actor: usize,
        story: &mut Story,
    ) -> Option<()> {
        let Step::Prepared(mut writing, request, valid_until) = state.actors[actor].step.clone()
        else {
            return None;
        };
        let (key, view) = (self.key(state, actor)?, state.actors[actor].view.clone()?);
        if state.now > valid_until {
            let places = self.places(&view.layout, key);
            writing.write.answered(
                &request,
                Answer::Rejected,
                &places,
                &view,
                self.now(state, actor),
            );
            self.next_write(state, actor, writing, story);
            return Some(());
        }
        let home = self.places(&view.layout, key).home;
        let op = self.op(state, actor)?;
        let (content, sent) = match (&mut writing.write, request.clone()) {
            (Machine::Expressed(expressed), asked) => {
                (writing.content.clone(), self.as_sent(expressed, asked))
            }
            (Machine::Plain(_), Asked::Plain(sent)) => {
                let sent = self.weakened(op, sent);
                let content = match sent.effect {
                    Effect::Put { .. } => writing.content.clone(),
                    Effect::Add { .. } => Content::of(writing.content.value),
                    Effect::Bury { .. } | Effect::Remove => Content::default(),
                };
                (content, sent.into())
            }
            (Machine::Plain(_), Asked::Expressed { .. }) => return None,
        };
        story.log(format_args!("{} sends it to shard {home}", self.name(actor)));
        let body = Body::Item { place: home, key, content, request: sent };
        state.post(InFlight { from: actor, awaited: true, valid_until, body });
        state.actor(actor).step = Step::Sent(writing, request);
        Some(())
    }

    /// The request of a write without what a weakened rule drops.
    fn weakened(&self, op: Op, mut sent: Request) -> Request {
        if !self.rules.tombstones && matches!(sent.effect, Effect::Bury { .. }) {
            sent.effect = Effect::Remove;
        }
        if !self.rules.repetitions_are_marked {
            sent = Request::unmarked(sent.effect, sent.condition);
        }
        match &mut sent.condition {
            Condition::AtLeast { once, .. } if !self.rules.additions_are_noted => *once = None,
            Condition::AtLeast { from, .. } if !self.rules.additions_need_their_era => {
                *from = Version::LOWEST
            }
            Condition::Unchanged(_) if !self.rules.update_needs_home_unchanged => {
                if let (Op::Swap(..), Effect::Put { version, .. }) = (op, &sent.effect) {
                    sent.condition = Condition::AbsentOrBelow(*version);
                }
            }
            Condition::AbsentOrBelow(_)
            | Condition::Buries { .. }
            | Condition::Unchanged(_)
            | Condition::AtLeast { .. } => {}
        }
        sent
    }

    /// Processes the response to a write; `None` if the sender has given up.
    pub(crate) fn write_answered(
        &self,
        state: &mut State,
        actor: usize,
        answer: Option<Answer>,
        story: &mut Story,
    ) -> Option<()> {
        let Step::Sent(mut writing, request) = state.actors[actor].step.clone() else {
            return None;
        };
        let (key, view) = (self.key(state, actor)?, state.actors[actor].view.clone()?);
        let places = self.places(&view.layout, key);
        let gave_up = answer.is_none();
        let answer = match answer {
            Some(answer) => answer,
            None if request.removes() && !self.rules.deletes_once => Answer::Rejected,
            None if !self.rules.refused_repetition_is_unknown => Answer::Rejected,
            None => Answer::Unanswered,
        };
        let now = if self.rules.lease_at_acknowledgement {
            self.now(state, actor)
        } else {
            view.asked_at
        };
        story.log(format_args!(
            "{} {}",
            self.name(actor),
            if gave_up { "gets no response" } else { "gets its response" }
        ));
        writing.write.answered(&request, answer, &places, &self.as_writers_see(&view, false), now);
        writing.attempts -= u8::from(gave_up);
        state.abandon(actor);
        if gave_up && writing.attempts == 0 {
            self.end_write(state, actor, Outcome::Unknown("").into(), story);
        } else {
            self.next_write(state, actor, writing, story);
        }
        Some(())
    }

    fn end_write(&self, state: &mut State, actor: usize, outcome: Ended, story: &mut Story) {
        story.log(format_args!("{} gets: {outcome:?}", self.name(actor)));
        let reported = match outcome {
            Ended::Expressed(outcome) => self.reported(state, actor, outcome),
            Ended::Plain(outcome) => self.reported_plainly(state, actor, outcome),
        };
        if let (Some(reported), Some(key)) = (reported, self.key(state, actor)) {
            let creates = matches!(
                self.op(state, actor),
                Some(Op::Create(..) | Op::CreateAgain(..) | Op::Express(_, _, _, Expects::NoItem))
            );
            self.respond(
                state,
                actor,
                key,
                reported,
                if creates { Blame::Create } else { Blame::Read },
            );
        }
        state.finish(actor);
    }

    fn reported_plainly(
        &self,
        state: &mut State,
        actor: usize,
        outcome: Outcome,
    ) -> Option<Reported> {
        match outcome {
            Outcome::Done => Some(match self.op(state, actor) {
                Some(Op::Swap(_, value) | Op::Add(_, value, _) | Op::AddAgain(_, value)) => {
                    let replaced = state.replaced.iter().find(|(by, _)| *by == value);
                    // The write was acknowledged but never applied.
                    replaced.map_or(Reported::Exists, |(_, value)| Reported::Swapped(*value))
                }
                Some(_) | None => Reported::Done,
            }),
            Outcome::Declined => Some(Reported::Absent),
            Outcome::Exists => Some(Reported::Exists),
            Outcome::Unknown(_) => None,
            Outcome::Lost | Outcome::KeyReused => {
                state.broken.lost = true;
                None
            }
        }
    }

    fn next_append(
        &self,
        state: &mut State,
        actor: usize,
        key: Key,
        (append, attempts): (Append, u8),
        story: &mut Story,
    ) -> Option<()> {
        let view = state.actors[actor].view.clone();
        let now = self.now(state, actor);
        let view = view.filter(|view| view.is_valid(now, APPEND_LEASE));
        let home =
            view.as_ref().map_or(ShardNumber::FIRST, |view| self.places(&view.layout, key).home);
        match append.next(view.as_deref(), home, now) {
            AppendNext::Send(place, request) => {
                story.log(format_args!("{} appends on shard {place}", self.name(actor)));
                let value = self.op(state, actor).and_then(Op::value);
                self.post(
                    state,
                    actor,
                    Body::Item { place, key, content: Content::of(value), request: request.into() },
                );
                state.actor(actor).step = Step::Appending { append, attempts, place, view };
            }
            AppendNext::Done(outcome) => self.end_write(state, actor, outcome.into(), story),
        }
        Some(())
    }

    /// Processes the response to an append; `None` if the sender has given up.
    pub(crate) fn append_answered(
        &self,
        state: &mut State,
        actor: usize,
        answer: Option<Answer>,
        story: &mut Story,
    ) -> Option<()> {
        let Step::Appending { mut append, mut attempts, place, view } =
            state.actors[actor].step.clone()
        else {
            return None;
        };
        let key = self.key(state, actor)?;
        attempts -= u8::from(answer.is_none());
        append.answered(place, view.as_deref(), &answer.unwrap_or(Answer::Unanswered));
        state.abandon(actor);
        if attempts == 0 {
            self.end_write(state, actor, Outcome::Unknown("").into(), story);
            return Some(());
        }
        self.next_append(state, actor, key, (append, attempts), story)
    }

    pub(crate) fn valid_until(&self, state: &State) -> u8 {
        state.now.saturating_add(self.scenario.validity)
    }

    /// Signs a request now and sends it.
    pub(crate) fn post(&self, state: &mut State, actor: usize, body: Body) {
        let valid_until = self.valid_until(state);
        state.post(InFlight { from: actor, awaited: true, valid_until, body });
    }
}
