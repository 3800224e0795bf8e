//! Writers: the driver of [`Write`] and [`Append`].

use std::sync::Arc;

use sharding::ShardNumber;
use sharding::internal::protocol::append::{Append, AppendNext};
use sharding::internal::protocol::applied::Applied;
use sharding::internal::protocol::copies::{Answer, Condition, Effect, Request};
use sharding::internal::protocol::expressed::Outcome;
use sharding::internal::protocol::write::{Kind, Write};
use sharding::internal::{protocol::version::Version, protocol::view::View};

use super::expressing::{Asked, Machine, Next, does, ended};
use super::monitor::{Kind as Does, Outcome as Reported};
use super::program::Op;
use super::state::{Body, Content, Step, Stored, Then, Value, Writing};
use super::{APPEND_LEASE, Turn};

impl Turn<'_> {
    /// Begins a write. `does` is `None` for a client's repetition: it has nothing to do if the
    /// operation before it got a response.
    pub(crate) fn begin_write(&mut self, does: Option<Does>, kind: Kind) -> Option<()> {
        self.ensure_armed()?;
        let key = self.key();
        match does {
            Some(does) => self.invoke(key, does),
            None if !self.state.monitors[usize::from(key)].is_pending(self.operation()) => {
                return self.finish();
            }
            None => {}
        }
        let once = kind.update().and_then(|update| update.once);
        let write = Machine::Plain(Write::new(kind, self.waits_of_writers(), self.tie_breaker()));
        let content = Content::of(self.op().and_then(Op::value));
        self.next_write(Writing { write, attempts: self.attempts(), content, once })
    }

    pub(crate) fn tie_breaker(&self) -> u32 {
        u32::from(self.operation()) + 1
    }

    /// The number of times that the actor sends a write.
    pub(crate) fn attempts(&self) -> u8 {
        self.scenario.cast[self.actor].attempts
    }

    /// The view as the write sees it: it hides what a weakened rule ignores.
    fn as_writers_see(&self, view: &Arc<View>, is_over: bool) -> Arc<View> {
        let hides_closing =
            self.weakened.writers_pause || (is_over && self.weakened.closing_confirms_nothing);
        let hides_settling = self.weakened.deletions_after_a_settle_stay;
        if !hides_closing && !hides_settling {
            return Arc::clone(view);
        }
        let mut layout = view.layout.clone();
        layout.closing.take_if(|_| hides_closing);
        layout.drained_at.take_if(|_| hides_settling);
        Arc::new(View { layout, asked_at: view.asked_at })
    }

    /// Goes on with a write until it needs an event from outside.
    pub(crate) fn next_write(&mut self, mut writing: Writing) -> Option<()> {
        let key = self.key();
        loop {
            let Some(view) = self.view() else {
                if self.weakened.aged_from_asking {
                    return self.ask(writing);
                }
                self.look(None);
                continue;
            };
            let places = self.model.places(&view.layout, key);
            let seen = self.as_writers_see(&view, writing.write.is_over());
            return match writing.write.next((&seen, &places, self.now())) {
                Next::Look(_) | Next::Verify(_) if self.weakened.aged_from_asking => {
                    self.ask(writing)
                }
                Next::Verify(since) => {
                    let layout = self.state.metadata.layout();
                    self.publish(layout, Then::Write(writing, Some(since)))
                }
                Next::Look(since) => {
                    self.look(since);
                    continue;
                }
                Next::Pause => {
                    let (writing, generation) = (Some(writing), view.layout.generation);
                    self.go_to(Step::Watching { writing, generation, since: self.state.now })
                }
                Next::Read if self.reads_nothing() => {
                    writing.write.read(Vec::new(), (&view, &places, self.now()));
                    continue;
                }
                Next::Read => {
                    let todo = match self.op() {
                        Some(Op::Swap(..)) if self.weakened.update_reads_all_places => {
                            vec![places.home]
                        }
                        Some(_) | None => places.all().into_iter().collect(),
                    };
                    self.go_to(Step::Fetching { writing, todo, copies: Vec::new() })
                }
                Next::Send(request) => {
                    self.go_to(Step::Prepared(writing, request, self.valid_until()))
                }
                Next::Done(outcome) => self.end_write(outcome),
            };
        }
    }

    fn ask(&mut self, writing: Writing) -> Option<()> {
        let layout = self.state.metadata.layout();
        self.go_to(Step::Asking(writing, Arc::new(layout)))
    }

    fn reads_nothing(&self) -> bool {
        let creates = matches!(self.op(), Some(Op::Create(..) | Op::CreateAgain(..)));
        creates && self.weakened.create_reads
    }

    /// Reads a place for a write.
    pub(crate) fn fetch(&mut self, place: ShardNumber) -> Option<()> {
        let stored = self.state.copy(self.key(), place).cloned();
        let Step::Fetching { todo, copies, .. } = &mut self.me_mut().step else { return None };
        todo.retain(|other| *other != place);
        copies.extend(stored.map(|stored| (place, stored)));
        copies.sort_by_key(|(place, _)| *place);
        Some(())
    }

    /// Evaluates the copies that a write has read.
    pub(crate) fn judge(
        &mut self,
        mut writing: Writing,
        todo: &[ShardNumber],
        copies: Vec<(ShardNumber, Stored)>,
    ) -> Option<()> {
        let (key, view) = (self.key(), self.view()?);
        if !todo.is_empty() {
            return None;
        }
        let places = self.model.places(&view.layout, key);
        let (seen, now) = (self.as_writers_see(&view, false), self.now());
        writing.write.read(copies.clone(), (&seen, &places, now));
        if let Machine::Plain(write) = &mut writing.write
            && write.examines()
        {
            let stored = copies.into_iter().map(|(_, stored)| stored);
            let newest = stored.max_by(|one, other| self.model.compare(&one.copy, &other.copy));
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
        self.next_write(writing)
    }

    /// Sends a request that was signed before. The lease may have expired meanwhile, but the
    /// signature must still be valid.
    pub(crate) fn send_write(
        &mut self,
        mut writing: Writing,
        request: Asked,
        valid_until: u8,
    ) -> Option<()> {
        let (key, view, op) = (self.key(), self.view()?, self.op()?);
        let places = self.model.places(&view.layout, key);
        if self.state.now > valid_until {
            writing.write.answered(&request, Answer::Rejected, (&view, &places, self.now()));
            return self.next_write(writing);
        }
        let (content, sent) = match (&mut writing.write, request.clone()) {
            (Machine::Expressed(expressed), asked) => {
                (writing.content.clone(), self.as_sent(expressed, asked))
            }
            (Machine::Plain(_), Asked::Plain(sent)) => {
                let sent = self.as_sent_plainly(op, sent);
                let content = match sent.effect {
                    Effect::Put { .. } => writing.content.clone(),
                    Effect::Add { .. } => Content::of(writing.content.value),
                    Effect::Bury { .. } | Effect::Remove => Content::default(),
                };
                (content, Asked::Plain(sent))
            }
            (Machine::Plain(_), Asked::Expressed { .. }) => return None,
        };
        self.post([Body::Item { place: places.home, key, content, request: sent }], valid_until);
        self.go_to(Step::Sent(writing, request))
    }

    /// The request of a write without what a weakened rule drops.
    fn as_sent_plainly(&self, op: Op, mut sent: Request) -> Request {
        if self.weakened.tombstones && matches!(sent.effect, Effect::Bury { .. }) {
            sent.effect = Effect::Remove;
        }
        if self.weakened.repetitions_are_marked {
            sent = Request::unmarked(sent.effect, sent.condition);
        }
        if let Condition::AtLeast { from, once } = &mut sent.condition {
            once.take_if(|_| self.weakened.additions_are_noted);
            if self.weakened.additions_need_their_era {
                *from = Version::LOWEST;
            }
        }
        if let (Op::Swap(_), Effect::Put { version, .. }) = (op, &sent.effect)
            && matches!(sent.condition, Condition::Unchanged(_))
            && self.weakened.update_needs_home_unchanged
        {
            sent.condition = Condition::AbsentOrBelow(*version);
        }
        sent
    }

    /// Processes the response to a write; `None` if the sender has given up.
    pub(crate) fn write_answered(&mut self, answer: Option<Answer>) -> Option<()> {
        let Step::Sent(mut writing, request) = self.me().step.clone() else {
            return self.append_answered(answer);
        };
        let (key, view) = (self.key(), self.view()?);
        let places = self.model.places(&view.layout, key);
        let gave_up = answer.is_none();
        let answer = match answer {
            Some(answer) => answer,
            None if request.removes() && self.weakened.deletes_once => Answer::Rejected,
            None if self.weakened.refused_repetition_is_unknown => Answer::Rejected,
            None => Answer::Unanswered,
        };
        let now = if self.weakened.lease_at_acknowledgement { view.asked_at } else { self.now() };
        writing.write.answered(
            &request,
            answer,
            (&self.as_writers_see(&view, false), &places, now),
        );
        writing.attempts -= u8::from(gave_up);
        self.abandon();
        if gave_up && writing.attempts == 0 {
            self.end_write(Outcome::Unknown)
        } else {
            self.next_write(writing)
        }
    }

    /// The caller gets an outcome, unless it is unknown. If the outcome contradicts the client's
    /// condition, the monitor allows it in no order.
    fn end_write(&mut self, outcome: Outcome) -> Option<()> {
        let reported = match outcome {
            Outcome::Applied { on_item } => Some(self.made(on_item)),
            Outcome::Refused { on_item: false } => Some(Reported::Absent),
            Outcome::Refused { on_item: true } => Some(Reported::Exists),
            Outcome::Unknown => None,
            Outcome::Lost => {
                self.state.broken.lost = true;
                None
            }
        };
        if let Some(reported) = reported {
            self.respond(self.key(), reported);
        }
        self.finish()
    }

    /// The outcome of a write that was made: for an update, the value that it replaced. If it was
    /// never applied, no order allows the outcome.
    fn made(&self, on_item: bool) -> Reported {
        let (value, does) = match self.op() {
            Some(Op::Express(value, operation, expects)) => {
                (value, does(value, operation, expects))
            }
            Some(Op::Swap(value) | Op::Add(value, _) | Op::AddAgain(value)) => {
                (value, Does::Swap(value))
            }
            Some(_) | None => return Reported::Done,
        };
        match does {
            Does::Swap(_) if !on_item => Reported::Absent,
            Does::Swap(_) | Does::Take => {
                let replaced = self.state.replaced.iter().find(|(by, _)| *by == value);
                replaced.map_or(Reported::Exists, |(_, value)| Reported::Swapped(*value))
            }
            Does::Write(_) | Does::CreateOnly(_) | Does::Delete | Does::Read => Reported::Done,
        }
    }

    pub(crate) fn begin_append(&mut self, value: Value) -> Option<()> {
        self.ensure_armed()?;
        self.invoke(self.key(), Does::Write(value));
        let append = Append::new(APPEND_LEASE, self.tie_breaker(), false, self.now());
        self.next_append(append, self.attempts())
    }

    fn next_append(&mut self, append: Append, attempts: u8) -> Option<()> {
        let (key, now) = (self.key(), self.now());
        let view = self.view().filter(|view| view.is_valid(now, APPEND_LEASE));
        let home = view
            .as_ref()
            .map_or(ShardNumber::FIRST, |view| self.model.places(&view.layout, key).home);
        match append.next(view.as_deref(), home, now) {
            AppendNext::Send(placed, request) => {
                self.send(placed.0, key, Content::of(self.op()?.value()), request);
                self.go_to(Step::Appending { append, attempts, placed })
            }
            AppendNext::Done(outcome) => self.end_write(ended(outcome)),
        }
    }

    /// Processes the response to an append; `None` if the sender has given up.
    fn append_answered(&mut self, answer: Option<Answer>) -> Option<()> {
        let Step::Appending { mut append, mut attempts, placed } = self.me().step.clone() else {
            return None;
        };
        attempts -= u8::from(answer.is_none());
        append.answered(placed, &answer.unwrap_or(Answer::Unanswered));
        self.abandon();
        if attempts == 0 {
            return self.end_write(Outcome::Unknown);
        }
        self.next_append(append, attempts)
    }
}
