//! One write: the loop that carries out what the protocol says.

use std::sync::Arc;

use crate::engine::error::WriteError;
use crate::engine::results::Written;
use crate::engine::views::keys::KeyJob;
use crate::engine::write::attempts::{Attempts, End};
use crate::engine::write::input::{Input, newest};
use crate::protocol::copies::{Answer, Effect};
use crate::protocol::layout::Places;
use crate::protocol::version::TIE_BREAKERS;
use crate::protocol::view::{Moment, View};
use crate::protocol::write::{Kind, Next, Outcome, Write};
use crate::table::error::TableError;
use crate::table::{Content, RawCopy};
use crate::values::key::{ShardCount, ShardNumber};
use crate::values::value::Item;

/// One write of an item, with its attempts.
pub(super) struct WriteRun<'a> {
    attempts: Attempts<'a>,
    write: Write,
    input: Input<'a>,
}

impl<'a> WriteRun<'a> {
    pub(super) fn new(attempts: Attempts<'a>, kind: Kind, input: Input<'a>) -> Self {
        let inner = attempts.job.inner;
        let tie_breaker = inner.environment.below(TIE_BREAKERS);
        let write = Write::new(kind, inner.config.waits(), tie_breaker);
        Self { attempts, write, input }
    }

    /// Carries the write out. Returns its input, too, with what became of it.
    pub(super) async fn run(mut self) -> (Result<Written, WriteError>, Input<'a>) {
        let end = self.steps().await;
        self.attempts.job.end().await;
        // It may have been applied, and no newer view has confirmed it.
        self.attempts.in_doubt |= end.is_err() && self.write.is_over();
        self.attempts.version = self.write.stored();
        (self.attempts.end(end), self.input)
    }

    async fn steps(&mut self) -> Result<End, Option<TableError>> {
        let KeyJob { inner, key, .. } = self.attempts.job;
        let mut view = self.look(None).await?;
        let mut places = inner.places(key, &self.attempts.sort_key, &view);
        let mut placed_by = view.identity();
        loop {
            let is_moved = self.avoid_throttled_shards(view.layout.number_of_shards);
            if is_moved || view.identity() != placed_by {
                places = inner.places(key, &self.attempts.sort_key, &view);
                placed_by = view.identity();
            }
            let place = (places.home, view.layout.number_of_shards);
            match self.write.next(&view, &places, inner.environment.now()) {
                Next::Done(outcome) => {
                    let job = &self.attempts.job;
                    if outcome == Outcome::Done {
                        let content = self.input.content();
                        job.note_load(Some(&view), || {
                            content.map_or(1, |content| content.item.write_units())
                        });
                        if content.is_some() {
                            job.after_write();
                        }
                    }
                    return Ok((outcome, place));
                }
                Next::Look(since) => view = self.look(since).await?,
                Next::Verify(since) => view = self.verify(since).await?,
                Next::Pause => {
                    self.attempts.job.wait_for_open().await?;
                    view = self.look(None).await?;
                }
                Next::Read => {
                    let stored = self.read(&places).await?;
                    let copies: Vec<_> =
                        stored.iter().map(|(shard, raw)| (*shard, raw.copy.clone())).collect();
                    let now = inner.environment.now();
                    self.write.read(&copies, &places, &view, now);
                    if self.write.examines() {
                        let newest = newest(stored, |raw| inner.tables.as_item(key, raw))?;
                        let own_bytes = inner.own_bytes(key, &self.attempts.sort_key);
                        if let Err(declined) = self.input.derive(newest, own_bytes, now) {
                            self.attempts.declined = declined;
                            self.write.declined(&view, now);
                        }
                    }
                }
                Next::Send(request) => {
                    if !self.attempts.may_go_on() {
                        return Err(None);
                    }
                    // Not checked between signing and sending: a late write is acknowledged only
                    // under a newer view.
                    let sent = match (&request.effect, self.input.additions()) {
                        (Effect::Add { .. }, Some(additions)) => {
                            let added = &mut self.input.added;
                            self.attempts.add(place, &request, additions, added).await
                        }
                        (effect, _) => {
                            if let Effect::Put { version, .. } = effect {
                                self.input.sent = Some(*version);
                            }
                            let content = self.input.content();
                            self.attempts.send(place, &request, content, None).await
                        }
                    };
                    let answer = sent?;
                    let newer =
                        if answer.is_none() { self.attempts.job.state.view() } else { None };
                    let answer = answer.unwrap_or(Answer::Rejected);
                    // After a refusal, the stored copy is known, and the next attempt is sent at
                    // once. All other attempts wait a little.
                    let waits = match &answer {
                        Answer::Applied => false,
                        Answer::Refused(_) => self.attempts.count > 2,
                        Answer::Rejected | Answer::Unanswered => true,
                    };
                    self.write.answered(&request, answer, &places, &view, inner.environment.now());
                    let waits = waits && !self.write.is_over();
                    if waits && !self.attempts.pause(place.1).await {
                        return Err(None);
                    }
                    view = newer.unwrap_or(view);
                }
            }
        }
    }

    /// Begins the write again under another sort key if the home of the present one is throttled.
    fn avoid_throttled_shards(&mut self, width: ShardCount) -> bool {
        let Some(sort_key) = self.attempts.calmer_key(width) else { return false };
        let Some(Content { item, .. }) = self.input.content() else { return false };
        self.input.item = Some(Item { sort_key: sort_key.clone(), ..item.clone() });
        self.attempts.sort_key = sort_key;
        let inner = self.attempts.job.inner;
        let tie_breaker = inner.environment.below(TIE_BREAKERS);
        self.write = Write::new(Kind::Put, inner.config.waits(), tie_breaker);
        true
    }

    async fn look(&self, since: Option<Moment>) -> Result<Arc<View>, TableError> {
        match since {
            None => self.attempts.job.leased_or_new_view().await,
            Some(since) => {
                self.attempts.job.view(|view, now| view.is_asked_since(since, now)).await
            }
        }
    }

    /// A view from the key's item, because a copy is of a later era than the page knows. If the
    /// item knows it, the page is repaired.
    async fn verify(&self, since: Moment) -> Result<Arc<View>, TableError> {
        let job = &self.attempts.job;
        job.repair().await?;
        job.view(|view, now| view.is_asked_since(since, now)).await
    }

    async fn read(&self, places: &Places) -> Result<Vec<(ShardNumber, RawCopy)>, TableError> {
        let Attempts { job, sort_key, .. } = &self.attempts;
        let tables = &job.inner.tables;
        let read = |missing: Vec<_>| async move {
            tables.get_raw_copies(job.key, sort_key, &missing).await
        };
        job.read_every(places.all().into_iter().collect(), read).await
    }
}
