//! The request of a write: what it sends, and whether it reads first.

use super::super::copies::{Condition, Effect, Request};
use super::super::drain::{may_begin_at, may_leave_nothing_at};
use super::super::layout::Places;
use super::super::version::Version;
use super::super::view::{Moment, View};
use super::{Found, How, Kind, Update, Write};

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
        Some(match &self.kind {
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
            Kind::Delete { .. } if places.old.is_empty() && !self.was_just_settled(view, now) => {
                Request { effect: Effect::Remove, condition: Condition::AbsentOrBelow(version) }
            }
            Kind::Delete { .. } => match found.filter(|_| !self.was_just_settled(view, now)) {
                Some(Found { home: None, is_elsewhere: false, .. }) => return None,
                Some(Found { home, is_elsewhere: false, .. }) => {
                    Request { effect: Effect::Remove, condition: Condition::Unchanged(*home) }
                }
                _ => {
                    let write_id = self.buried_id.clone();
                    let condition = Condition::Buries { version, write_id: write_id.clone() };
                    Request { effect: Effect::Bury { version, write_id }, condition }
                }
            },
        })
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
                    condition: Condition::AtLeast { from, once },
                }
            }
            (How::Add | How::Replace, _) => {
                Request { effect: Effect::Put { version, write_id: None }, condition: unchanged }
            }
            (How::Remove { may_look }, Some(found))
                if self.was_just_settled(view, now)
                    || (!places.old.is_empty()
                        && (found.is_elsewhere
                            || !self.may_leave_nothing(may_look, view, now))) =>
            {
                let write_id = found.write_id.clone();
                Request { effect: Effect::Bury { version, write_id }, condition: unchanged }
            }
            (How::Remove { .. }, _) => Request { effect: Effect::Remove, condition: unchanged },
        }
    }

    /// Whether the stored copies must be known before anything is sent.
    pub(super) fn reads_first(&self, view: &View, places: &Places, now: Moment) -> bool {
        if let Kind::Update(Update { how, expects, .. }) = &self.kind {
            let has_one_place = places.old.is_empty();
            let may_send = match (how, expects) {
                (How::Add, None) => true,
                // A tombstone keeps the write id of the copy that it replaces.
                (How::Remove { .. }, Some(_)) if self.was_just_settled(view, now) => false,
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
            && !self.was_just_settled(view, now)
            && may_begin_at(&view.layout, &self.waits).is_none_or(|at| at <= now.epoch_seconds())
    }

    /// Whether every deletion must leave a tombstone, because the key was settled a short time ago.
    fn was_just_settled(&self, view: &View, now: Moment) -> bool {
        may_leave_nothing_at(&view.layout, &self.waits).is_some_and(|at| now.epoch_seconds() < at)
    }
}
