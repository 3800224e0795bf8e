//! One write: its input, and the loop that carries out what the protocol says. An append has a loop
//! of its own, which needs no view.

use std::borrow::Cow;
use std::sync::Arc;

use crate::engine::error::{WriteError, WriteErrorKind};
use crate::engine::views::keys::KeyJob;
use crate::engine::write::Written;
use crate::engine::write::attempts::{Attempts, End};
use crate::protocol::append::{Append, AppendNext};
use crate::protocol::applied::{Applied, Once};
use crate::protocol::copies::{Answer, Copy, Effect};
use crate::protocol::layout::Places;
use crate::protocol::merge::Stored;
use crate::protocol::tag::{Conditions, ETag};
use crate::protocol::version::{TIE_BREAKERS, Version};
use crate::protocol::view::{Moment, View};
use crate::protocol::write::{Kind, Next, Outcome, Write};
use crate::table::error::TableError;
use crate::table::{Content, GetTarget, LeaseLasts, RawItem};
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
            match self.write.next((&view, &places, inner.environment.now())) {
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
                    let copies =
                        stored.iter().map(|(shard, raw)| raw.copy().map(|copy| (*shard, copy)));
                    let copies = copies.collect::<Result<Vec<_>, TableError>>()?;
                    let now = inner.environment.now();
                    self.write.read(&copies, (&view, &places, now));
                    if self.write.examines() {
                        let newest = newest(&copies, stored, |raw| inner.tables.as_item(key, raw))?;
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
                    // A throttled attempt has renewed the view.
                    let may_be_newer = answer == Answer::Rejected;
                    let newer = if may_be_newer { self.attempts.job.state.view() } else { None };
                    // After a refusal, the stored copy is known, and the next attempt is sent at
                    // once. All other attempts wait a little.
                    let waits = match &answer {
                        Answer::Applied => false,
                        Answer::Refused(_) => self.attempts.count > 2,
                        Answer::Rejected | Answer::Unanswered => true,
                    };
                    let under = (&*view, &places, inner.environment.now());
                    self.write.answered(&request, answer, under);
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

    async fn read(&self, places: &Places) -> Result<Vec<(ShardNumber, RawItem)>, TableError> {
        let Attempts { job, sort_key, .. } = &self.attempts;
        let target = GetTarget { partition_key: job.key, sort_key, consistent: true };
        job.read_every(target, places.all().into_iter().collect()).await
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
    copies: &[(ShardNumber, Copy)],
    stored: Vec<(ShardNumber, RawItem)>,
    as_item: impl FnOnce(RawItem) -> Result<Stored<Item>, TableError>,
) -> Result<Option<Newest>, TableError> {
    let newest = copies.iter().zip(stored).max_by_key(|((_, copy), _)| copy.version);
    let Some(((_, copy), (_, raw))) = newest.filter(|((_, copy), _)| !copy.is_tombstone) else {
        return Ok(None);
    };
    let applied = copy.applied.as_deref().cloned();
    Ok(Some((as_item(raw)?, applied)))
}

/// One append in an append-only table, with its attempts.
pub(super) struct AppendRun<'a> {
    attempts: Attempts<'a>,
    item: Cow<'a, Item>,
    append: Append,
}

impl<'a> AppendRun<'a> {
    pub(super) fn new(attempts: Attempts<'a>, item: &'a Item, once: bool) -> Self {
        let inner = attempts.job.inner;
        let tie_breaker = inner.environment.below(TIE_BREAKERS);
        let append =
            Append::new(inner.config.write_lease(), tie_breaker, once, inner.environment.now());
        Self { attempts, item: Cow::Borrowed(item), append }
    }

    pub(super) async fn run(mut self) -> Result<Written, WriteError> {
        let end = self.steps().await;
        self.attempts.job.end().await;
        self.attempts.end(end)
    }

    async fn steps(&mut self) -> Result<End, Option<TableError>> {
        let inner = self.attempts.job.inner;
        loop {
            let view = self.usable_view();
            let view = view.as_deref();
            let width = view.map_or(ShardCount::ONE, |view| view.layout.number_of_shards);
            if let Some(sort_key) = self.attempts.calmer_key(width) {
                self.item.to_mut().sort_key = sort_key.clone();
                self.attempts.sort_key = sort_key;
            }
            let home = if view.is_none() { ShardNumber::FIRST } else { self.home(width) };
            let (shard, request) = match self.append.next(view, home, inner.environment.now()) {
                AppendNext::Done(outcome) => return Ok((outcome, (home, width))),
                AppendNext::Send(shard, request) => (shard, request),
            };
            if !self.attempts.may_go_on() {
                return Err(None);
            }
            let content = Content { item: &self.item, applied: None };
            let lasts = self.lease(shard, view);
            let sent = self.attempts.send((shard, width), &request, Some(content), lasts);
            let answer = sent.await?;
            self.append.answered(shard, view, &answer);
            if matches!(answer, Answer::Applied | Answer::Refused(_)) {
                self.attempts.version = (answer == Answer::Applied).then(|| self.append.version());
                self.attempts.job.note_load(view, || self.item.write_units());
                self.attempts.job.after_write();
                return Ok((Outcome::Done, (shard, width)));
            }
            if !self.attempts.pause(width).await {
                return Err(None);
            }
        }
    }

    /// The view to place by. `None` to append on shard 1 without one.
    fn usable_view(&self) -> Option<Arc<View>> {
        let Attempts { job, throttled, .. } = &self.attempts;
        let lease = job.inner.config.write_lease();
        let now = job.inner.environment.now();
        let known = job.known_view().filter(|view| view.is_valid(now, lease));
        // A throttled append requests a new view in the background, and does not wait for it.
        let renewed = if *throttled > 0 { job.inner.config.lease() } else { lease };
        job.renew_or_get(known.as_deref(), renewed, now);
        known
    }

    /// The view of a put on this shard. `None` on shard 1, which remains a place of every item.
    fn lease(&self, shard: ShardNumber, view: Option<&View>) -> Option<LeaseLasts> {
        let asked_at = self.append.placed_by(view).filter(|_| shard != ShardNumber::FIRST)?;
        let inner = Arc::clone(self.attempts.job.inner);
        Some(Arc::new(move || {
            let age = inner.environment.now().since(asked_at);
            age.is_some_and(|age| age < inner.config.write_lease())
        }))
    }

    fn home(&self, width: ShardCount) -> ShardNumber {
        let Attempts { job: KeyJob { inner, key, state, .. }, sort_key, .. } = &self.attempts;
        inner.config.placement.home(key, sort_key, width).unwrap_or_else(|| {
            // Pick two shards, and take the calmer one.
            let draw = || ShardNumber::from_index(inner.environment.below(width.get()));
            let (one, other, now) = (draw(), draw(), inner.environment.now());
            if state.heat(other, now) < state.heat(one, now) { other } else { one }
        })
    }
}
