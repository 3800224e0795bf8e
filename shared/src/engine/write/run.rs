//! One write: its input, and the loop that carries out what the protocol says.

use crate::engine::error::{WriteError, WriteErrorKind};
use crate::engine::results::Written;
use crate::engine::views::keys::KeyJob;
use crate::engine::write::attempts::{Attempts, End};
use crate::protocol::applied::{Applied, Once};
use crate::protocol::copies::{Answer, Effect};
use crate::protocol::layout::Places;
use crate::protocol::merge::Stored;
use crate::protocol::tag::{Conditions, ETag};
use crate::protocol::version::{TIE_BREAKERS, Version};
use crate::protocol::view::Moment;
use crate::protocol::write::{Kind, Next, Outcome, Write};
use crate::table::error::TableError;
use crate::table::{Content, RawCopy};
use crate::values::key::{ShardCount, ShardNumber};
use crate::values::patch::{Patch, PatchError};
use crate::values::value::{Attributes, Item, MAX_ITEM_BYTES};

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
        let mut view = self.attempts.job.leased_or_new_view().await?;
        let mut places = self.attempts.job.places(&self.attempts.sort_key, &view);
        let mut placed_by = view.identity();
        loop {
            let is_moved = self.avoid_throttled_shards(view.layout.number_of_shards);
            if is_moved || view.identity() != placed_by {
                places = self.attempts.job.places(&self.attempts.sort_key, &view);
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
                Next::Look(None) => view = self.attempts.job.leased_or_new_view().await?,
                Next::Look(Some(since)) => view = self.attempts.job.view_since(since).await?,
                Next::Verify(since) => view = self.attempts.job.verified_view(since).await?,
                Next::Pause => {
                    self.attempts.job.wait_for_open().await?;
                    view = self.attempts.job.leased_or_new_view().await?;
                }
                Next::Read => {
                    let stored = self.read(&places).await?;
                    let copies: Vec<_> =
                        stored.iter().map(|(shard, raw)| (*shard, raw.copy.clone())).collect();
                    let now = inner.environment.now();
                    self.write.read(&copies, &places, &view, now);
                    if self.write.examines() {
                        let newest = newest(stored, |raw| inner.tables.as_item(key, raw))?;
                        let own_bytes =
                            inner.tables.own_bytes(key) + self.attempts.sort_key.to_string().len();
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

    async fn read(&self, places: &Places) -> Result<Vec<(ShardNumber, RawCopy)>, TableError> {
        let Attempts { job, sort_key, .. } = &self.attempts;
        let tables = &job.inner.tables;
        let read = |missing: Vec<_>| async move {
            tables.get_raw_copies(job.key, sort_key, &missing).await
        };
        job.read_every(places.all().into_iter().collect(), read).await
    }
}

#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    Put(&'a Item),
    Patch(&'a Patch),
    Delete,
}

/// The input of a write. If it depends on the stored item, also what is derived from that.
pub(super) struct Input<'a> {
    pub(super) what: What<'a>,
    pub(super) conditions: Option<&'a Conditions>,
    pub(super) once: Option<Once>,
    /// The item to put, if it is not the caller's: derived from the stored one, with the updates
    /// that it remembers, or under another sort key.
    pub(super) item: Option<Item>,
    pub(super) applied: Option<Applied>,
    /// The version of the last put.
    pub(super) sent: Option<Version>,
    /// The item after an addition in place.
    pub(super) added: Option<Stored<Item>>,
    /// The tag of the copy that was read.
    pub(super) current: Option<ETag>,
}

impl<'a> Input<'a> {
    /// The input of a write that does not depend on the stored item.
    pub(super) const fn new(what: What<'a>) -> Self {
        Self {
            what,
            conditions: None,
            once: None,
            item: None,
            applied: None,
            sent: None,
            added: None,
            current: None,
        }
    }

    const fn content(&self) -> Option<Content<'_>> {
        match (self.what, &self.item) {
            (_, Some(item)) => Some(Content { item, applied: self.applied.as_ref() }),
            (What::Put(item), None) => Some(Content { item, applied: None }),
            (What::Patch(_) | What::Delete, None) => None,
        }
    }

    /// What DynamoDB may add in place.
    fn additions(&self) -> Option<&'a Attributes> {
        match self.what {
            What::Patch(patch) => patch.only_adds().then_some(&patch.add),
            What::Put(_) | What::Delete => None,
        }
    }

    /// Derives the item to put from the stored one. If there is none to put, the write is declined:
    /// for a reason, or because there is nothing to do.
    fn derive(
        &mut self,
        newest: Option<Newest>,
        own_bytes: usize,
        now: Moment,
    ) -> Result<(), Option<WriteErrorKind>> {
        let newest =
            newest.and_then(|(stored, applied)| Some((stored.version, stored.item?, applied)));
        self.current =
            newest.as_ref().map(|(version, item, _)| ETag::of(*version, &item.attributes));
        if newest.is_none() && matches!(self.what, What::Patch(_)) {
            return Err(Some(WriteErrorKind::Absent));
        }
        if self.conditions.is_some_and(|conditions| !conditions.hold(self.current.as_ref())) {
            return Err(Some(WriteErrorKind::Precondition));
        }
        match (self.what, newest) {
            (What::Delete, None) => Err(None),
            (What::Patch(patch), Some((_, item, applied))) => {
                let attributes = patch
                    .apply(item.attributes)
                    .map_err(|error| Some(WriteErrorKind::Mismatch(error)))?;
                self.applied = match self.once {
                    Some(once) => Some(Applied::with(applied.as_ref(), once, now.epoch_millis())),
                    None => applied,
                };
                let bytes = own_bytes + attributes.size();
                if bytes > MAX_ITEM_BYTES {
                    return Err(Some(WriteErrorKind::Mismatch(PatchError::TooLarge { bytes })));
                }
                self.item = Some(Item { attributes, ..item });
                Ok(())
            }
            (What::Put(_) | What::Delete | What::Patch(_), _) => Ok(()),
        }
    }
}

/// The newest copy of an item, with the updates that it remembers.
type Newest = (Stored<Item>, Option<Applied>);

/// The newest item among the copies at its places, with the updates that it remembers.
fn newest(
    copies: Vec<(ShardNumber, RawCopy)>,
    as_item: impl FnOnce(RawCopy) -> Result<Stored<Item>, TableError>,
) -> Result<Option<Newest>, TableError> {
    let newest = copies.into_iter().max_by_key(|(_, raw)| raw.copy.version);
    let Some((_, raw)) = newest.filter(|(_, raw)| !raw.copy.is_tombstone) else {
        return Ok(None);
    };
    let applied = raw.copy.applied.as_deref().cloned();
    Ok(Some((as_item(raw)?, applied)))
}
