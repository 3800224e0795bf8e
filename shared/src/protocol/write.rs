//! A write of one item, as a state machine: put, create-only, delete or update.
//!
//! Each write is one plain conditional request at the item's home. The driver carries out each
//! [`Next`] step, and reports the result. See docs/protocol.md, "Writing".

use crate::protocol::applied::Once;
use crate::protocol::copies::{Answer, Condition, Copy, Effect, Marks, Request};
use crate::protocol::drain::{Waits, late_until, may_begin_at};
use crate::protocol::progress::{self, Progress, Under};
use crate::protocol::version::Version;
use crate::protocol::view::{Moment, View};
use crate::protocol::write_id::{WriteId, WriteRelation};
use crate::values::key::ShardNumber;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Store the item unconditionally.
    Put,
    /// Store the item if there is none. Without an id, no other request generates its sort key: any
    /// copy of it is an earlier attempt's.
    Create(Option<WriteId>),
    /// Remove the item. If it may look, it reads first, so that it can leave no tombstone.
    Delete { may_look: bool },
    /// Replace the item by one that the driver derives from the newest copy.
    Replace(Update),
    /// DynamoDB adds to the stored attributes in place. If the newest copy may be elsewhere, the
    /// driver adds.
    Add(Update),
    /// Remove the item if its stored state allows that.
    DeleteIf { update: Update, may_look: bool },
}

impl Kind {
    pub const fn update(&self) -> Option<Update> {
        match self {
            Self::Replace(update) | Self::Add(update) | Self::DeleteIf { update, .. } => {
                Some(*update)
            }
            Self::Put | Self::Create(_) | Self::Delete { .. } => None,
        }
    }
}

/// A write that depends on the stored state. The driver examines the newest copy and decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Update {
    /// The only version that the update may change. With it, an item with a single place need not
    /// be read.
    pub expects: Option<Version>,
    /// The update must be applied once, even if its client repeats it.
    pub once: Option<Once>,
}

pub type Next = progress::Next<Request, Outcome>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Done,
    Exists,
    /// An item exists that a request with the same idempotency key stored with different content.
    KeyReused,
    /// The driver declined an update: the stored state is not what it requires.
    Declined,
    /// The write may have been applied, or may be applied later.
    Unknown(&'static str),
    /// The item has a copy of an era that the metadata does not know. The metadata was lost, or
    /// restored to an earlier state.
    Lost,
}

const ERA_CHANGED: &str = "an attempt got no response, and the key's width has changed since";
const LATE_RESPONSE: &str = "the response came after the key's width had changed";
const REPETITION_REFUSED: &str =
    "a repetition was refused, and an attempt before it got no response";
const UNANSWERED_DELETION: &str = "a deletion got no response";
const UNANSWERED_ADDITION: &str =
    "an update in place got no response, so it is unknown whether it was applied";
const SUPERSEDED_ATTEMPT: &str = "an attempt arrived late, below a later write of the item";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Write {
    kind: Kind,
    progress: Progress<Outcome, Found>,
    /// Kept in its era while an attempt may still arrive. A throttled attempt does not.
    version: Option<Version>,
    /// Attempts of this era without a response. They may still be applied.
    unanswered: u32,
    /// The first attempt has stored this version, which needs a mark, because another attempt may
    /// still arrive.
    to_mark: Option<Version>,
    /// Of the copy at home, as far as it is known.
    buried_id: Option<String>,
    /// The version on which an update's attempts are based. They can be applied only while it is
    /// stored.
    base: Option<Version>,
    /// Once it has ended: the version that it has stored, or that refused it, if that is known.
    pub stored: Option<Version>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Found {
    home: Option<Version>,
    is_elsewhere: bool,
}

impl Write {
    pub const fn new(kind: Kind, waits: Waits, tie_breaker: u32) -> Self {
        Self {
            kind,
            progress: Progress::new(waits, tie_breaker),
            version: None,
            unanswered: 0,
            to_mark: None,
            buried_id: None,
            base: None,
            stored: None,
        }
    }

    /// Whether the driver must examine the copies that were read.
    pub const fn examines(&self) -> bool {
        self.kind.update().is_some() && self.progress.found.is_some() && !self.is_over()
    }

    pub const fn is_over(&self) -> bool {
        self.progress.is_over()
    }

    pub fn next(&mut self, under: Under<'_>) -> Next {
        let (view, _, now) = under;
        let outcomes = (Outcome::Unknown(LATE_RESPONSE), Outcome::Lost);
        if let Some(next) = self.progress.next(view, now, outcomes) {
            return next;
        }
        let era = view.layout.era;
        if self.version.is_some_and(|version| version.era() != era) {
            if self.unanswered > 0 {
                return Next::Done(Outcome::Unknown(ERA_CHANGED));
            }
            (self.version, self.base, self.buried_id) = (None, None, None);
        }
        if self.to_mark.is_none() && self.progress.found.is_none() && self.reads_first(under) {
            return Next::Read;
        }
        if let Some(Update { expects: Some(version), .. }) = self.kind.update()
            && self.progress.found.is_none()
        {
            self.base = Some(version);
            self.progress.go_above(version);
        }
        let version = self.progress.version(self.version, era, now);
        self.version = Some(version);
        if let Some(request) = self.request(version, under) {
            return Next::Send(request);
        }
        // There is nothing to delete, and the view is within its lease.
        self.progress.end(Outcome::Done, view, now);
        Next::Done(Outcome::Done)
    }

    /// `None` if there is nothing to delete.
    fn request(&self, version: Version, (view, places, now): Under<'_>) -> Option<Request> {
        let found = self.progress.found();
        let has_one_place = places.old.is_empty();
        let needs_tombstone = self.progress.needs_tombstone(view, now);
        let may_expire = has_one_place && !self.progress.was_just_settled(view, now);
        let put = |write_id| Effect::Put { version, write_id };
        let bury = |write_id| Effect::Bury { version, write_id, may_expire };
        let unchanged = Condition::Unchanged(found.map_or(self.base, |found| found.home));
        let marking = self.to_mark.map(|own| Condition::Unchanged(Some(own)));
        let (effect, condition) = match (&self.kind, found) {
            (Kind::Put, _) => (put(None), marking.unwrap_or(Condition::AbsentOrBelow(version))),
            (Kind::Create(id), _) => {
                let id = id.as_ref().map(|id| id.as_str().to_owned());
                (put(id), marking.unwrap_or(unchanged))
            }
            (Kind::Delete { .. }, _) if has_one_place && !needs_tombstone => {
                (Effect::Remove, Condition::AbsentOrBelow(version))
            }
            (Kind::Delete { .. }, Some(found)) if !needs_tombstone && !found.is_elsewhere => {
                (Effect::Remove, Condition::Unchanged(Some(found.home?)))
            }
            (Kind::Delete { .. }, _) => {
                let write_id = self.buried_id.clone();
                (bury(write_id.clone()), Condition::Buries { version, write_id })
            }
            (Kind::Add(Update { once, .. }), None) => {
                // A copy of this era is the newest one at any place, so it alone is relevant.
                let lowest_of_era = Version::lowest_of(view.layout.era);
                let from = if has_one_place { Version::LOWEST } else { lowest_of_era };
                (Effect::Add { once: *once }, Condition::AtLeast { from, once: *once })
            }
            (Kind::Replace(_) | Kind::Add(_), _) => (put(None), unchanged),
            (Kind::DeleteIf { may_look, .. }, Some(found))
                if needs_tombstone
                    || (!has_one_place
                        && (found.is_elsewhere
                            || !self.may_leave_nothing(*may_look, view, now))) =>
            {
                (bury(self.buried_id.clone()), unchanged)
            }
            (Kind::DeleteIf { .. }, _) => (Effect::Remove, unchanged),
        };
        let repeats = self.unanswered > 0 && matches!(self.kind, Kind::Put | Kind::Create(_));
        let own = repeats.then(|| late_until(&self.progress.waits, now.epoch_seconds()));
        let mark_stays = matches!(effect, Effect::Add { .. });
        let marks = if mark_stays { Marks::NONE } else { self.progress.marks(own, now) };
        Some(Request { effect, condition, marks })
    }

    fn reads_first(&self, (view, places, now): Under<'_>) -> bool {
        let has_one_place = places.old.is_empty();
        if self.progress.must_read {
            return true;
        }
        match &self.kind {
            Kind::Put => false,
            Kind::Create(_) => !has_one_place,
            Kind::Delete { may_look } => {
                !has_one_place && self.may_leave_nothing(*may_look, view, now)
            }
            Kind::Add(update) => update.expects.is_some(),
            // A tombstone keeps the write id of the copy that it replaces.
            Kind::DeleteIf { .. } if self.progress.was_just_settled(view, now) => true,
            // A client's statement about a later era is no proof of one.
            Kind::Replace(Update { expects, .. })
            | Kind::DeleteIf { update: Update { expects, .. }, .. } => {
                !has_one_place || expects.is_none_or(|version| version.era() > view.layout.era)
            }
        }
    }

    /// Whether several places that were found empty stay empty: no drain may copy anything there,
    /// and no late put may arrive.
    fn may_leave_nothing(&self, may_look: bool, view: &View, now: Moment) -> bool {
        let drains_at = may_begin_at(&view.layout, &self.progress.waits);
        may_look
            && self.unanswered == 0
            && !view.layout.draining
            && !self.progress.needs_tombstone(view, now)
            && drains_at.is_none_or(|at| at <= now.epoch_seconds())
    }

    /// The response to [`Next::Read`].
    pub fn read(&mut self, copies: &[(ShardNumber, Copy)], under: Under<'_>) {
        let Some(home) = self.progress.read(copies, under) else { return };
        let (view, places, now) = under;
        let newest = copies.iter().map(|(_, copy)| copy).max_by_key(|copy| copy.version);
        self.buried_id = home.and_then(|copy| copy.write_id.clone());
        let is_elsewhere = copies.iter().any(|(shard, _)| *shard != places.home);
        let found = Found { home: home.map(|copy| copy.version), is_elsewhere };
        self.progress.find(found, view);
        if let Some(Update { once, .. }) = self.kind.update() {
            self.resume(newest, once, view, now);
        } else if let Some(newest) = newest
            && matches!(self.kind, Kind::Create(_))
        {
            let own_is_below = copies
                .iter()
                .any(|(_, copy)| copy != newest && self.relation(copy) == WriteRelation::Same);
            self.judge(newest, own_is_below, view, now);
        }
    }

    /// Derives the state of an update's earlier attempts from the newest copy.
    fn resume(&mut self, newest: Option<&Copy>, once: Option<Once>, view: &View, now: Moment) {
        let stored = newest.map(|copy| copy.version);
        let has_applied = newest.is_some_and(|copy| !copy.is_tombstone && copy.has_applied(once));
        let base_is_gone = self.unanswered > 0 && stored != self.base;
        if has_applied || (base_is_gone && stored.is_some() && stored == self.version) {
            self.stored = stored;
            self.progress.end(Outcome::Done, view, now);
            return;
        }
        // An attempt can no longer be applied without its base. It was not applied either, if the
        // item would remember it.
        let applied = newest.and_then(|copy| copy.applied.as_ref());
        let would_know = once.zip(applied).is_some_and(|(once, applied)| applied.knows_of(once));
        if base_is_gone && !would_know {
            self.progress.over = Some(Outcome::Unknown(REPETITION_REFUSED));
            return;
        }
        self.base = stored;
        if let Some(stored) = stored {
            self.progress.go_above(stored);
        }
    }

    pub fn declined(&mut self, view: &View, now: Moment) {
        self.progress.end(Outcome::Declined, view, now);
    }

    /// The response to the request of [`Next::Send`].
    pub fn answered(&mut self, request: &Request, answer: Answer, under: Under<'_>) {
        let (view, _, now) = under;
        match answer {
            Answer::Applied => {
                if let Effect::Put { version, .. } = request.effect {
                    self.stored = Some(version);
                }
                self.progress.end(Outcome::Done, view, now);
            }
            // With the version of now. A late attempt of an earlier write may be above the first one.
            Answer::Rejected if self.unanswered == 0 => self.version = None,
            Answer::Rejected => {}
            Answer::Unanswered if request.effect == (Effect::Add { once: None }) => {
                self.progress.over = Some(Outcome::Unknown(UNANSWERED_ADDITION));
            }
            Answer::Unanswered if request.effect == Effect::Remove => {
                // Another attempt could remove what is stored after the first was applied.
                self.progress.over = Some(Outcome::Unknown(UNANSWERED_DELETION));
            }
            Answer::Unanswered => self.unanswered += 1,
            Answer::Refused(stored) => self.refused(request, stored, under),
        }
    }

    fn refused(&mut self, request: &Request, stored: Option<Copy>, under: Under<'_>) {
        let (view, _, now) = under;
        // The stored copies have changed.
        self.progress.found = None;
        if self.kind.update().is_some() {
            // Once the item is at home in this era, an update in place may succeed, unless an
            // earlier attempt has an unknown outcome.
            let is_addition = matches!(self.kind, Kind::Add(_));
            let in_place = matches!(request.effect, Effect::Add { .. });
            self.progress.must_read = in_place || !is_addition || self.unanswered > 0;
        }
        let Some(copy) = stored else { return };
        if self.progress.is_of_later_era(copy.version, view, now) {
            return;
        }
        let sent = match &request.effect {
            Effect::Put { version, .. } | Effect::Bury { version, .. } => Some(*version),
            Effect::Remove | Effect::Add { .. } => None,
        };
        self.progress.mark = copy.late_until;
        if sent == Some(copy.version) {
            if !self.marks_own(&copy) {
                self.stored = sent;
                self.progress.end(Outcome::Done, view, now);
            }
        } else if self.to_mark.is_some() {
            // It was applied, and has been replaced since.
            self.progress.end(Outcome::Done, view, now);
        } else {
            self.refused_by(copy, under);
        }
    }

    /// A copy that this attempt has not stored is at home.
    fn refused_by(&mut self, copy: Copy, (view, places, now): Under<'_>) {
        match self.kind {
            Kind::Replace(update) | Kind::Add(update) | Kind::DeleteIf { update, .. } => {
                if !copy.is_tombstone && copy.has_applied(update.once) {
                    self.stored = Some(copy.version);
                    self.progress.end(Outcome::Done, view, now);
                }
            }
            // A tombstone elsewhere may hide the copy at home, so all places are read again.
            Kind::Create(_) if !places.old.is_empty() => {}
            Kind::Create(_) => {
                let found = Found { home: Some(copy.version), is_elsewhere: false };
                self.progress.find(found, view);
                self.judge(&copy, false, view, now);
            }
            Kind::Put | Kind::Delete { .. } => {
                let is_newer = self.version.is_none_or(|version| copy.version >= version);
                if is_newer && self.unanswered > 0 {
                    self.progress.over = Some(Outcome::Unknown(REPETITION_REFUSED));
                }
                self.progress.go_above(copy.version);
                self.buried_id = copy.write_id;
            }
        }
    }

    /// For a create-only write.
    fn judge(&mut self, newest: &Copy, own_is_below: bool, view: &View, now: Moment) {
        let is_at_home =
            self.progress.found().is_some_and(|found| found.home == Some(newest.version));
        let outcome = match (self.relation(newest), newest.is_tombstone) {
            // The copy arrived late, and another creation may have read before. It counts at home
            // only.
            (WriteRelation::Same, false)
                if !is_at_home && matches!(self.kind, Kind::Create(Some(_))) =>
            {
                self.progress.go_above(newest.version);
                return;
            }
            // An earlier attempt stored it. It may have been deleted since.
            (WriteRelation::Same, false) if is_at_home && self.marks_own(newest) => return,
            (WriteRelation::Same, is_tombstone) => {
                self.stored = (!is_tombstone && matches!(self.kind, Kind::Create(Some(_))))
                    .then_some(newest.version);
                Outcome::Done
            }
            (_, true) if own_is_below => Outcome::Done,
            (_, _) if self.unanswered > 0 => Outcome::Unknown(REPETITION_REFUSED),
            (_, true) => {
                self.progress.go_above(newest.version);
                return;
            }
            (WriteRelation::OtherContent, false) => Outcome::KeyReused,
            (WriteRelation::Other, false) if own_is_below => Outcome::Unknown(SUPERSEDED_ATTEMPT),
            (WriteRelation::Other, false) => {
                self.stored = Some(newest.version);
                Outcome::Exists
            }
        };
        self.progress.end(outcome, view, now);
    }

    /// Whether the stored copy is the first attempt's, and needs a mark, because another attempt
    /// may still arrive. Other attempts store one themselves.
    fn marks_own(&mut self, copy: &Copy) -> bool {
        let needs = self.unanswered > 1
            && copy.late_until.is_none()
            && self.version == Some(copy.version)
            && matches!(self.kind, Kind::Put | Kind::Create(_));
        if needs {
            self.to_mark = Some(copy.version);
        }
        needs
    }

    fn relation(&self, copy: &Copy) -> WriteRelation {
        let Kind::Create(Some(id)) = &self.kind else { return WriteRelation::Same };
        id.relation(copy.write_id.as_deref())
    }
}

#[cfg(test)]
pub(super) mod tests;
