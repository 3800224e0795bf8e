//! The meaning of responses: of a read of the item's places, and of a request to its home.

use crate::protocol::applied::Once;
use crate::protocol::copies::{Answer, Copy, Effect, Request};
use crate::protocol::progress::Under;
use crate::protocol::view::{Moment, View};
use crate::protocol::write::{
    Found, Kind, Outcome, REPETITION_REFUSED, SUPERSEDED_ATTEMPT, UNANSWERED_ADDITION,
    UNANSWERED_DELETION, Update, Write,
};
use crate::protocol::write_id::WriteRelation;
use crate::values::key::ShardNumber;

impl Write {
    /// Takes the copies at the item's places: the response to [`Next::Read`].
    pub fn read(&mut self, copies: &[(ShardNumber, Copy)], under: Under<'_>) {
        let Some(home) = self.progress.read(copies, under) else { return };
        let (view, places, now) = under;
        let newest = copies.iter().map(|(_, copy)| copy).max_by_key(|copy| copy.version);
        let found = Found {
            home: home.map(|copy| copy.version),
            write_id: home.and_then(|copy| copy.write_id.clone()),
            is_elsewhere: copies.iter().any(|(shard, _)| *shard != places.home),
        };
        self.found = Some((view.identity(), found));
        if let Some(Update { once, .. }) = self.kind.update() {
            self.resume(newest, once, view, now);
        } else if let Some(newest) = newest
            && matches!(self.kind, Kind::Create(_) | Kind::CreateOnce)
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
        let base_is_gone = self.unanswered && stored != self.base;
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

    /// The driver declines an update because of what it read.
    pub fn declined(&mut self, view: &View, now: Moment) {
        self.progress.end(Outcome::Declined, view, now);
    }

    /// Takes the response to the request of [`Next::Send`].
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
            Answer::Rejected if !self.unanswered => self.version = None,
            Answer::Rejected => {}
            Answer::Unanswered if request.effect == (Effect::Add { once: None }) => {
                self.progress.over = Some(Outcome::Unknown(UNANSWERED_ADDITION));
            }
            Answer::Unanswered if request.effect == Effect::Remove => {
                // Another attempt could remove what is stored after the first was applied.
                self.progress.over = Some(Outcome::Unknown(UNANSWERED_DELETION));
            }
            Answer::Unanswered => (self.unanswered, self.several) = (true, self.unanswered),
            Answer::Refused(stored) => self.refused(request, stored, under),
        }
    }

    fn refused(&mut self, request: &Request, stored: Option<Copy>, under: Under<'_>) {
        let (view, _, now) = under;
        // The stored copies have changed.
        self.found = None;
        if self.kind.update().is_some() {
            // Once the item is at home in this era, an update in place may succeed, unless an
            // earlier attempt has an unknown outcome.
            let is_addition = matches!(self.kind, Kind::Add(_));
            let in_place = matches!(request.effect, Effect::Add { .. });
            self.must_read = in_place || !is_addition || self.unanswered;
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

    /// A copy of the item, which this attempt has not stored, is at home.
    fn refused_by(&mut self, copy: Copy, (view, places, now): Under<'_>) {
        match self.kind {
            Kind::Replace(update) | Kind::Add(update) | Kind::DeleteIf { update, .. } => {
                if !copy.is_tombstone && copy.has_applied(update.once) {
                    self.stored = Some(copy.version);
                    self.progress.end(Outcome::Done, view, now);
                }
            }
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
                self.progress.over = Some(Outcome::Unknown(REPETITION_REFUSED));
            }
            Kind::Put | Kind::Delete { .. } => {
                self.progress.go_above(copy.version);
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
                self.progress.go_above(newest.version);
                return;
            }
            // An earlier attempt stored it. It may have been deleted since.
            (WriteRelation::Same, false) if is_at_home && self.marks_own(newest) => return,
            (WriteRelation::Same, is_tombstone) => {
                self.stored = (!is_tombstone && matches!(self.kind, Kind::Create(_)))
                    .then_some(newest.version);
                Outcome::Done
            }
            (_, true) if own_is_below => Outcome::Done,
            (_, _) if self.unanswered => Outcome::Unknown(REPETITION_REFUSED),
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

    /// Whether the stored copy is the first attempt's, and another attempt may still arrive, so
    /// that the copy needs a mark. Other attempts store one themselves.
    fn marks_own(&mut self, copy: &Copy) -> bool {
        let needs = self.several
            && copy.late_until.is_none()
            && self.version == Some(copy.version)
            && matches!(self.kind, Kind::Put | Kind::Create(_) | Kind::CreateOnce);
        if needs {
            self.to_mark = Some(copy.version);
        }
        needs
    }

    fn relation(&self, copy: &Copy) -> WriteRelation {
        let Kind::Create(id) = &self.kind else { return WriteRelation::Same };
        id.relation(copy.write_id.as_deref())
    }
}
