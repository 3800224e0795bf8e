//! The request of a write: what it sends, and whether it reads first.

use crate::protocol::copies::{Condition, Effect, Marks, Request};
use crate::protocol::drain::{late_until, may_begin_at, may_leave_nothing_at};
use crate::protocol::layout::Places;
use crate::protocol::version::Version;
use crate::protocol::view::{Moment, View};
use crate::protocol::write::{Found, Kind, Update, Write};

impl Write {
    /// The request to the item's home. `None` if there is nothing to delete.
    pub(super) fn request(
        &self,
        version: Version,
        places: &Places,
        view: &View,
        now: Moment,
    ) -> Option<Request> {
        let found = self.found.as_ref().map(|(_, found)| found);
        let needs_tombstone = self.needs_tombstone(view, now);
        let (effect, condition) = match &self.kind {
            Kind::Replace(_) | Kind::Add(_) | Kind::DeleteIf { .. } => {
                self.of_update(version, places, view, now)
            }
            Kind::Put | Kind::Create(_) | Kind::CreateOnce => {
                let write_id = if let Kind::Create(id) = &self.kind {
                    Some(id.as_str().to_owned())
                } else {
                    None
                };
                let condition = match (self.to_mark, &self.kind) {
                    (Some(own), _) => Condition::Unchanged(Some(own)),
                    (None, Kind::Put) => Condition::AbsentOrBelow(version),
                    (None, _) => Condition::Unchanged(found.and_then(|found| found.home)),
                };
                (Effect::Put { version, write_id }, condition)
            }
            Kind::Delete { .. } if places.old.is_empty() && !needs_tombstone => {
                (Effect::Remove, Condition::AbsentOrBelow(version))
            }
            Kind::Delete { .. } => match found.filter(|_| !needs_tombstone) {
                Some(Found { home: None, is_elsewhere: false, .. }) => return None,
                Some(Found { home, is_elsewhere: false, .. }) => {
                    (Effect::Remove, Condition::Unchanged(*home))
                }
                _ => {
                    let write_id = self.buried_id.clone();
                    let condition = Condition::Buries { version, write_id: write_id.clone() };
                    (self.bury(version, write_id, places, view, now), condition)
                }
            },
        };
        let marks = match effect {
            // The mark stays.
            Effect::Add { .. } => Marks { late_until: None, lost_until: u64::MAX },
            Effect::Put { .. } | Effect::Bury { .. } | Effect::Remove => self.marks(now),
        };
        Some(Request { effect, condition, marks })
    }

    /// The mark that the copy gets, and the marks that it may replace.
    fn marks(&self, now: Moment) -> Marks {
        let seconds = now.epoch_seconds();
        let repeats =
            self.unanswered && matches!(self.kind, Kind::Put | Kind::Create(_) | Kind::CreateOnce);
        let own = repeats.then(|| late_until(&self.waits, seconds));
        let late_until = own.max(self.mark.filter(|until| *until > seconds));
        Marks { late_until, lost_until: late_until.unwrap_or(seconds) }
    }

    fn bury(
        &self,
        version: Version,
        write_id: Option<String>,
        places: &Places,
        view: &View,
        now: Moment,
    ) -> Effect {
        let may_expire = places.old.is_empty() && !self.was_just_settled(view, now);
        Effect::Bury { version, write_id, may_expire }
    }

    fn of_update(
        &self,
        version: Version,
        places: &Places,
        view: &View,
        now: Moment,
    ) -> (Effect, Condition) {
        let found = self.found.as_ref().map(|(_, found)| found);
        let unchanged = Condition::Unchanged(found.map_or(self.base, |found| found.home));
        match (&self.kind, found) {
            (Kind::Add(Update { once, .. }), None) => {
                // A copy of this era is the newest one at any place, so it is the only relevant
                // one.
                let from = if places.old.is_empty() {
                    Version::LOWEST
                } else {
                    Version::lowest_of(view.layout.era)
                };
                let once = *once;
                (Effect::Add { once }, Condition::AtLeast { from, once })
            }
            (Kind::DeleteIf { may_look, .. }, Some(found))
                if self.needs_tombstone(view, now)
                    || (!places.old.is_empty()
                        && (found.is_elsewhere
                            || !self.may_leave_nothing(*may_look, view, now))) =>
            {
                (self.bury(version, found.write_id.clone(), places, view, now), unchanged)
            }
            (Kind::DeleteIf { .. }, _) => (Effect::Remove, unchanged),
            (_, _) => (Effect::Put { version, write_id: None }, unchanged),
        }
    }

    /// Whether the stored copies must be known before anything is sent.
    pub(super) fn reads_first(&self, view: &View, places: &Places, now: Moment) -> bool {
        if let Some(Update { expects, .. }) = self.kind.update() {
            let has_one_place = places.old.is_empty();
            let may_send = match (&self.kind, expects) {
                (Kind::Add(_), expects) => expects.is_none(),
                // A tombstone keeps the write id of the copy that it replaces.
                (Kind::DeleteIf { .. }, Some(_)) if self.was_just_settled(view, now) => false,
                // A client's statement about a later era is no proof of one.
                (_, Some(version)) => has_one_place && version.era() <= view.layout.era,
                (_, None) => false,
            };
            return self.must_read || !may_send;
        }
        if places.old.is_empty() {
            return false;
        }
        match self.kind {
            Kind::Create(_) | Kind::CreateOnce => true,
            Kind::Delete { may_look } => self.may_leave_nothing(may_look, view, now),
            Kind::Put | Kind::Replace(_) | Kind::Add(_) | Kind::DeleteIf { .. } => false,
        }
    }

    /// Whether several places that were found empty stay empty: no drain may copy anything there,
    /// and no late put may arrive.
    fn may_leave_nothing(&self, may_look: bool, view: &View, now: Moment) -> bool {
        may_look
            && !self.unanswered
            && !view.layout.draining
            && !self.needs_tombstone(view, now)
            && may_begin_at(&view.layout, &self.waits).is_none_or(|at| at <= now.epoch_seconds())
    }

    /// Whether a deletion must leave a tombstone wherever the item is, because a duplicate may
    /// arrive.
    fn needs_tombstone(&self, view: &View, now: Moment) -> bool {
        self.mark.is_some_and(|until| until > now.epoch_seconds())
            || self.was_just_settled(view, now)
    }

    /// Whether the key was settled a short time ago.
    fn was_just_settled(&self, view: &View, now: Moment) -> bool {
        may_leave_nothing_at(&view.layout, &self.waits).is_some_and(|at| now.epoch_seconds() < at)
    }
}
