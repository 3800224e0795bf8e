//! A write of one item, as a state machine: put, create-only, delete or update.
//!
//! Each write is one plain conditional request at the item's home. The driver asks for the [`Next`]
//! step, carries it out, and reports the result, until the write is [`Done`](Next::Done). See
//! docs/protocol.md, "Writing".

use super::applied::Once;
use super::copies::{Answer, Condition, Copy, Effect, Request};
use super::drain::{Waits, may_begin_at};
use super::layout::Places;
use super::version::Version;
use super::view::{Moment, View};
use super::write_id::{WriteId, WriteRelation};
use crate::core::key::ShardNumber;

/// The kind of a write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Store the item unconditionally.
    Put,
    /// Store the item if it does not exist.
    Create(WriteId),
    /// Store an item whose sort key no other request generates. If there is any copy of it, an
    /// earlier attempt stored it.
    CreateOnce,
    /// Remove the item. If it may look, it reads first, so that it can remove the item without a
    /// tombstone.
    Delete { may_look: bool },
    /// Change the item depending on its stored state.
    Update(Update),
}

/// A write that depends on the stored state. The driver examines the newest copy and decides the
/// result.
///
/// The newest copy may be at an old place, where nobody writes. Then the update *pulls* it: it
/// stores the updated item at home. Home must be unchanged since all places were read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Update {
    pub how: How,
    /// The only version that the update may change. With it, an item that has a single place need
    /// not be read.
    pub expects: Option<Version>,
    /// The update must be applied once, even if its client repeats it.
    pub once: Option<Once>,
}

/// The effect of an update on an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    /// The driver derives the new item from the newest copy.
    Replace,
    /// DynamoDB adds to the stored attributes in place. If the newest copy may be elsewhere, the
    /// driver adds.
    Add,
    /// Remove the item.
    Remove { may_look: bool },
}

/// The driver's next step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Next {
    /// Get a view that is within its lease and, if an instant is given, was requested at or after
    /// it.
    Look(Option<Moment>),
    /// Read the key's own item, make its page equal, and get a view that was requested at or after
    /// this instant.
    Verify(Moment),
    /// The key's width is changing. Wait for the next era, then get a view.
    Pause,
    /// Read all places of the item, strongly consistent. For an update, examine the newest copy
    /// then, and report a refusal by [`declined`](Write::declined).
    Read,
    /// Send this to the item's home, if the view's lease is still valid then.
    Send(Request),
    /// The write has ended.
    Done(Outcome),
}

/// How a write ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The item is stored, or removed.
    Done,
    /// A create-only write found an item.
    Exists,
    /// A create-only write found an item that a request with the same idempotency key stored with
    /// different content.
    KeyReused,
    /// The driver declined an update, because the stored state does not match what it requires.
    Declined,
    /// The write may have been applied, or may be applied later.
    Unknown(&'static str),
    /// An item of another key is stored at its home.
    Occupied,
    /// The item has a copy of an era that the metadata does not know. The metadata was lost, or
    /// restored to an earlier state.
    Lost,
}

const ERA_CHANGED: &str = "an attempt got no response, and the key's width has changed since";
const ENDED_LATE: &str = "the response came after the key's width had changed";
const REPETITION_REFUSED: &str =
    "a repetition was refused, and an attempt before it got no response";
const DELETED_ONCE: &str = "a deletion got no response";
const ADDED_ONCE: &str =
    "an update in place got no response, so it is unknown whether it was applied";
const OWN_IS_BELOW: &str = "an attempt arrived late, below a later write of the item";

/// One write with its attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Write {
    kind: Kind,
    /// How long its views are valid, and how long requests may be in flight.
    waits: Waits,
    /// Drawn once.
    tie_breaker: u32,
    /// Taken at the first send of an era, and kept in that era.
    version: Option<Version>,
    /// The version to send must be above this one.
    above: Option<Version>,
    /// An attempt of this era got no response. It may still be applied.
    unanswered: bool,
    /// The copies at the item's places, and the view under which they were read.
    found: Option<((Moment, u64), Found)>,
    /// The write id of the copy at home, as far as it is known.
    buried_id: Option<String>,
    /// An update must read the stored copies, because an attempt without a read was refused.
    must_read: bool,
    /// The version on which an update's attempts are based. They can be applied only while this
    /// version is stored.
    base: Option<Version>,
    /// The version that this write has stored, or that refused it.
    stored: Option<Version>,
    /// A view must be requested at or after this instant, because a copy was of a later era than
    /// the last view.
    look_after: Option<(Moment, u64)>,
    /// The key's item was requested.
    verified: bool,
    /// A deletion found an item of another key at home.
    occupied: bool,
    /// A response that was processed after its view had expired. It counts if the era still lasts.
    late: Option<(Moment, u64, Outcome)>,
    over: Option<Outcome>,
}

/// The stored copies of an item.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Found {
    home: Option<Version>,
    /// The version of the copy at home.
    write_id: Option<String>,
    stands_elsewhere: bool,
}

impl Write {
    /// Begins a write.
    pub const fn new(kind: Kind, waits: Waits, tie_breaker: u32) -> Self {
        Self {
            kind,
            waits,
            tie_breaker,
            version: None,
            above: None,
            unanswered: false,
            found: None,
            buried_id: None,
            must_read: false,
            base: None,
            stored: None,
            look_after: None,
            verified: false,
            occupied: false,
            late: None,
            over: None,
        }
    }

    /// The version that this write has stored, or that refused it, once it has ended. `None` if the
    /// version is unknown.
    pub const fn stored(&self) -> Option<Version> {
        self.stored
    }

    /// Whether the stored copies are known, under the view of the last read.
    pub const fn has_read(&self) -> bool {
        self.found.is_some()
    }

    /// Whether nothing more is sent.
    pub const fn is_over(&self) -> bool {
        self.over.is_some() || self.late.is_some()
    }

    /// The next step, under this view.
    pub fn next(&mut self, view: &View, places: &Places, now: Moment) -> Next {
        if let Some(outcome) = self.over {
            return Next::Done(outcome);
        }
        let era = view.layout.era;
        if let Some((since, of_era, outcome)) = self.late {
            if !view.is_asked_since(since, now) {
                return Next::Look(Some(since));
            }
            // The page may be behind: it still has the closing, but the next era may have begun.
            let lasts = era == of_era && view.layout.closing.is_none();
            return Next::Done(if lasts { outcome } else { Outcome::Unknown(ENDED_LATE) });
        }
        if let Some((since, of_era)) = self.look_after {
            if !view.is_asked_since(since, now) || (era < of_era && !self.verified) {
                self.verified = true;
                return Next::Verify(since);
            }
            if era < of_era {
                return Next::Done(Outcome::Lost);
            }
            (self.look_after, self.verified) = (None, false);
        }
        if !view.is_valid(now, self.waits.lease) {
            return Next::Look(None);
        }
        if self.version.is_some_and(|version| version.era() != era) {
            if self.unanswered {
                return Next::Done(Outcome::Unknown(ERA_CHANGED));
            }
            (self.version, self.above, self.buried_id) = (None, None, None);
            (self.must_read, self.base) = (false, None);
        }
        if view.layout.closing.is_some() {
            return Next::Pause;
        }
        // The result of a read counts under its own view only.
        self.found = self.found.take().filter(|(by, _)| *by == view.identity());
        if self.reads_first(view, places, now) && self.found.is_none() {
            return Next::Read;
        }
        if let Kind::Update(Update { expects: Some(version), .. }) = &self.kind
            && self.found.is_none()
        {
            let version = *version;
            self.base = Some(version);
            self.go_above(version);
        }
        let version = self.take_version(era, now);
        let found = self.found.as_ref().map(|(_, found)| found);
        let request = match &self.kind {
            Kind::Update(update) => self.of_update(update, version, places, view, now),
            Kind::Put => Request {
                effect: Effect::Put { version, write_id: None },
                condition: Condition::AbsentOrBelow(version),
            },
            Kind::Create(_) | Kind::CreateOnce => {
                let write_id = if let Kind::Create(id) = &self.kind {
                    Some(id.as_str().to_owned())
                } else {
                    None
                };
                let condition = Condition::Unchanged(found.and_then(|found| found.home));
                Request { effect: Effect::Put { version, write_id }, condition }
            }
            Kind::Delete { .. } if places.old.is_empty() => {
                Request { effect: Effect::Remove, condition: Condition::AbsentOrBelow(version) }
            }
            Kind::Delete { .. } => match found {
                Some(Found { home: None, stands_elsewhere: false, .. }) => {
                    return self.ends(Outcome::Done, view, now);
                }
                Some(Found { home, stands_elsewhere: false, .. }) => {
                    Request { effect: Effect::Remove, condition: Condition::Unchanged(*home) }
                }
                _ => {
                    let write_id = self.buried_id.clone();
                    let condition = Condition::Buries { version, write_id: write_id.clone() };
                    Request { effect: Effect::Bury { version, write_id }, condition }
                }
            },
        };
        Next::Send(request)
    }

    fn of_update(
        &self,
        update: &Update,
        version: Version,
        places: &Places,
        view: &View,
        now: Moment,
    ) -> Request {
        let found = self.found.as_ref().map(|(_, found)| found);
        let unchanged = Condition::Unchanged(found.map_or(self.base, |found| found.home));
        match (update.how, found) {
            (How::Add, None) => {
                // A copy of this era is the newest one at any place, so it is the only relevant
                // one.
                let from = if places.old.is_empty() {
                    Version::LOWEST
                } else {
                    Version::lowest_of(view.layout.era)
                };
                let once = update.once;
                Request {
                    effect: Effect::Add { once },
                    condition: Condition::Stands { from, once },
                }
            }
            (How::Add | How::Replace, _) => {
                Request { effect: Effect::Put { version, write_id: None }, condition: unchanged }
            }
            (How::Remove { may_look }, Some(found))
                if !places.old.is_empty()
                    && (found.stands_elsewhere || !self.may_leave_nothing(may_look, view, now)) =>
            {
                let write_id = found.write_id.clone();
                Request { effect: Effect::Bury { version, write_id }, condition: unchanged }
            }
            (How::Remove { .. }, _) => Request { effect: Effect::Remove, condition: unchanged },
        }
    }

    /// Takes the copies at the item's places: the response to [`Next::Read`].
    pub fn read(
        &mut self,
        copies: &[(ShardNumber, Copy)],
        places: &Places,
        view: &View,
        now: Moment,
    ) {
        // After the lease, a drain may have moved and purged an item between two of the reads.
        if !view.is_valid(now, self.waits.lease) {
            return;
        }
        let ours = || copies.iter().filter(|(_, copy)| copy.is_ours);
        let newest = ours().map(|(_, copy)| copy).max_by_key(|copy| copy.version);
        if newest.is_some_and(|newest| self.is_of_later_era(newest, view, now)) {
            return;
        }
        let home = ours().find(|(shard, _)| *shard == places.home).map(|(_, copy)| copy);
        let found = Found {
            home: home.map(|copy| copy.version),
            write_id: home.and_then(|copy| copy.write_id.clone()),
            stands_elsewhere: ours().any(|(shard, _)| *shard != places.home),
        };
        self.found = Some((view.identity(), found));
        if let Kind::Update(Update { once, .. }) = self.kind {
            self.resume(newest, once, view, now);
            return;
        }
        if let Some(newest) = newest
            && matches!(self.kind, Kind::Create(_) | Kind::CreateOnce)
        {
            let own_is_below = ours()
                .any(|(_, copy)| copy != newest && self.relation(copy) == WriteRelation::Same);
            self.judge(newest, own_is_below, view, now);
        }
    }

    /// Derives the state of an update's earlier attempts from the newest copy.
    fn resume(&mut self, newest: Option<&Copy>, once: Option<Once>, view: &View, now: Moment) {
        let stands = newest.map(|copy| copy.version);
        if newest.is_some_and(|copy| copy.is_item() && copy.has_applied(once)) {
            self.stored = stands;
            self.ends(Outcome::Done, view, now);
            return;
        }
        if self.unanswered && stands != self.base {
            if stands.is_some() && stands == self.version {
                self.stored = stands;
                self.ends(Outcome::Done, view, now);
                return;
            }
            // The base of the attempt is gone, so the attempt can no longer be applied. It was not
            // applied either, if the item would remember it.
            let would_know = |once: Once| {
                newest
                    .and_then(|copy| copy.applied.as_ref())
                    .is_some_and(|applied| applied.knows_of(once))
            };
            if !once.is_some_and(would_know) {
                self.over = Some(Outcome::Unknown(REPETITION_REFUSED));
                return;
            }
        }
        self.base = stands;
        if let Some(stands) = stands {
            self.go_above(stands);
        }
    }

    /// The driver declines an update because of what it read.
    pub fn declined(&mut self, view: &View, now: Moment) {
        self.ends(Outcome::Declined, view, now);
    }

    /// Takes the response to the request of [`Next::Send`].
    pub fn answered(
        &mut self,
        request: &Request,
        answer: Answer,
        places: &Places,
        view: &View,
        now: Moment,
    ) {
        match answer {
            Answer::Applied => {
                if let Effect::Put { version, .. } = request.effect {
                    self.stored = Some(version);
                }
                self.ends(Outcome::Done, view, now);
            }
            Answer::Rejected => {}
            Answer::Unanswered if request.effect == (Effect::Add { once: None }) => {
                self.over = Some(Outcome::Unknown(ADDED_ONCE));
            }
            Answer::Unanswered if request.effect == Effect::Remove => {
                // Another attempt could remove what is stored after the first was applied.
                self.over = Some(Outcome::Unknown(DELETED_ONCE));
            }
            Answer::Unanswered => self.unanswered = true,
            Answer::Refused(stands) => self.refused(request, stands, places, view, now),
        }
    }

    fn refused(
        &mut self,
        request: &Request,
        stands: Option<Copy>,
        places: &Places,
        view: &View,
        now: Moment,
    ) {
        // The stored copies have changed.
        self.found = None;
        let is_update = matches!(self.kind, Kind::Update(_));
        if is_update {
            // Once the item is at home in this era, an update in place may succeed, unless an
            // earlier attempt has an unknown outcome.
            let how_add = matches!(self.kind, Kind::Update(Update { how: How::Add, .. }));
            let in_place = matches!(request.effect, Effect::Add { .. });
            self.must_read = in_place || !how_add || self.unanswered;
        }
        let Some(copy) = stands else { return };
        if !copy.is_ours {
            // If no place has a copy of the item, there is nothing to delete.
            if matches!(self.kind, Kind::Delete { .. })
                && !self.occupied
                && !self.unanswered
                && !places.old.is_empty()
            {
                self.occupied = true;
                return;
            }
            let outcome = if self.unanswered {
                Outcome::Unknown(REPETITION_REFUSED)
            } else {
                Outcome::Occupied
            };
            self.over = Some(outcome);
            return;
        }
        if self.is_of_later_era(&copy, view, now) {
            return;
        }
        let sent = match &request.effect {
            Effect::Put { version, .. } | Effect::Bury { version, .. } => Some(*version),
            Effect::Remove | Effect::Add { .. } => None,
        };
        if sent == Some(copy.version) {
            self.stored = sent;
            self.ends(Outcome::Done, view, now);
            return;
        }
        match self.kind {
            Kind::Update(Update { once, .. }) if copy.is_item() && copy.has_applied(once) => {
                self.stored = Some(copy.version);
                self.ends(Outcome::Done, view, now);
            }
            Kind::Update(_) => {}
            // A tombstone elsewhere may hide the copy at home, so all places are read again.
            Kind::Create(_) | Kind::CreateOnce if !places.old.is_empty() => {}
            Kind::Create(_) | Kind::CreateOnce => {
                let found = Found { home: Some(copy.version), ..Found::default() };
                self.found = Some((view.identity(), found));
                self.judge(&copy, false, view, now);
            }
            Kind::Put | Kind::Delete { .. }
                if self.version.is_some_and(|version| copy.version < version) =>
            {
                self.buried_id = copy.write_id;
            }
            Kind::Put | Kind::Delete { .. } if self.unanswered => {
                self.over = Some(Outcome::Unknown(REPETITION_REFUSED));
            }
            Kind::Put | Kind::Delete { .. } => {
                self.go_above(copy.version);
                self.buried_id = copy.write_id;
            }
        }
    }

    /// The meaning of the newest copy for a create-only write.
    fn judge(&mut self, newest: &Copy, own_is_below: bool, view: &View, now: Moment) {
        let is_at_home =
            self.found.as_ref().is_some_and(|(_, found)| found.home == Some(newest.version));
        let outcome = match (self.relation(newest), newest.is_tombstone) {
            // The copy arrived late, and another creation may have read before. It counts at home
            // only.
            (WriteRelation::Same, false) if !is_at_home && matches!(self.kind, Kind::Create(_)) => {
                self.go_above(newest.version);
                return;
            }
            // An earlier attempt stored it. It may have been deleted since.
            (WriteRelation::Same, is_tombstone) => {
                self.stored = (!is_tombstone && matches!(self.kind, Kind::Create(_)))
                    .then_some(newest.version);
                Outcome::Done
            }
            (_, true) if own_is_below => Outcome::Done,
            (_, _) if self.unanswered => Outcome::Unknown(REPETITION_REFUSED),
            (_, true) => {
                self.go_above(newest.version);
                return;
            }
            (WriteRelation::OtherContent, false) => Outcome::KeyReused,
            (WriteRelation::Other, false) if own_is_below => Outcome::Unknown(OWN_IS_BELOW),
            (WriteRelation::Other, false) => {
                self.stored = Some(newest.version);
                Outcome::Exists
            }
        };
        self.ends(outcome, view, now);
    }

    /// A statement about stored copies is valid under the lease only. After it, a newer view must
    /// confirm that the era still lasts.
    fn ends(&mut self, outcome: Outcome, view: &View, now: Moment) -> Next {
        if view.is_valid(now, self.waits.lease) {
            self.over = Some(outcome);
            Next::Done(outcome)
        } else {
            self.late = Some((now, view.layout.era, outcome));
            Next::Look(Some(now))
        }
    }

    /// Whether a copy shows that the view is out of date.
    fn is_of_later_era(&mut self, copy: &Copy, view: &View, now: Moment) -> bool {
        let is_later = copy.version.era() > view.layout.era;
        if is_later {
            self.look_after = Some((now, copy.version.era()));
        }
        is_later
    }

    /// Whether the stored copies must be known before anything is sent.
    fn reads_first(&self, view: &View, places: &Places, now: Moment) -> bool {
        if let Kind::Update(Update { how, expects, .. }) = &self.kind {
            let has_one_place = places.old.is_empty();
            let may_send = match (how, expects) {
                (How::Add, None) => true,
                // A client's statement about a later era is no proof of one.
                (How::Replace | How::Remove { .. }, Some(version)) => {
                    has_one_place && version.era() <= view.layout.era
                }
                (How::Add, Some(_)) | (How::Replace | How::Remove { .. }, None) => false,
            };
            return self.must_read || !may_send;
        }
        if places.old.is_empty() {
            return false;
        }
        match self.kind {
            Kind::Create(_) | Kind::CreateOnce => true,
            // A place that was found empty must stay empty: no drain may copy anything there, and
            // no late put may arrive.
            Kind::Delete { .. } if self.occupied => true,
            Kind::Delete { may_look } => self.may_leave_nothing(may_look, view, now),
            Kind::Put | Kind::Update(_) => false,
        }
    }

    /// Whether several places that were found empty stay empty: no drain may copy anything there,
    /// and no late put may arrive.
    fn may_leave_nothing(&self, may_look: bool, view: &View, now: Moment) -> bool {
        // For a key that is not listed, nothing shows whether it is being migrated.
        may_look
            && view.layout.generation > 0
            && !self.unanswered
            && !view.layout.draining
            && may_begin_at(&view.layout, &self.waits).is_none_or(|at| at <= now.epoch_seconds())
    }

    fn take_version(&mut self, era: u64, now: Moment) -> Version {
        let micros = u64::try_from(now.wall.as_micros()).unwrap_or(u64::MAX);
        let own = self.version.unwrap_or_else(|| Version::new(era, micros, self.tie_breaker));
        let version = match self.above {
            // Above an earlier era, the present era is enough.
            Some(above) if own <= above => above.raised(self.tie_breaker),
            _ => own,
        };
        self.version = Some(version);
        version
    }

    fn go_above(&mut self, version: Version) {
        self.above = self.above.max(Some(version));
    }

    fn relation(&self, copy: &Copy) -> WriteRelation {
        match &self.kind {
            Kind::CreateOnce => WriteRelation::Same,
            Kind::Create(id) => id.relation(copy.write_id.as_deref()),
            Kind::Put | Kind::Delete { .. } | Kind::Update(_) => WriteRelation::Other,
        }
    }
}

#[cfg(test)]
mod tests;
