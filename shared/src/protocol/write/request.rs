//! The request of a write: what it sends, and whether it reads first.

use crate::protocol::copies::{Condition, Effect, Marks, Request};
use crate::protocol::drain::{late_until, may_begin_at};
use crate::protocol::progress::Under;
use crate::protocol::version::Version;
use crate::protocol::view::{Moment, View};
use crate::protocol::write::{Kind, Update, Write};

impl Write {
    /// The request to the item's home. `None` if there is nothing to delete.
    pub(super) fn request(
        &self,
        version: Version,
        (view, places, now): Under<'_>,
    ) -> Option<Request> {
        let found = self.found.as_ref().map(|(_, found)| found);
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
                (put(Some(id.as_str().to_owned())), marking.unwrap_or(unchanged))
            }
            (Kind::CreateOnce, _) => (put(None), marking.unwrap_or(unchanged)),
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
                // A copy of this era is the newest one at any place, so it is the only relevant
                // one.
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
                (bury(found.write_id.clone()), unchanged)
            }
            (Kind::DeleteIf { .. }, _) => (Effect::Remove, unchanged),
        };
        let marks = match effect {
            // The mark stays.
            Effect::Add { .. } => Marks::NONE,
            Effect::Put { .. } | Effect::Bury { .. } | Effect::Remove => self.marks(now),
        };
        Some(Request { effect, condition, marks })
    }

    /// The mark that the copy gets, and the marks that it may replace.
    fn marks(&self, now: Moment) -> Marks {
        let repeats =
            self.unanswered && matches!(self.kind, Kind::Put | Kind::Create(_) | Kind::CreateOnce);
        let own = repeats.then(|| late_until(&self.progress.waits, now.epoch_seconds()));
        self.progress.marks(own, now)
    }

    /// Whether the stored copies must be known before anything is sent.
    pub(super) fn reads_first(&self, (view, places, now): Under<'_>) -> bool {
        let has_one_place = places.old.is_empty();
        if self.must_read {
            return true;
        }
        match &self.kind {
            Kind::Put => false,
            Kind::Create(_) | Kind::CreateOnce => !has_one_place,
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
            && !self.unanswered
            && !view.layout.draining
            && !self.progress.needs_tombstone(view, now)
            && drains_at.is_none_or(|at| at <= now.epoch_seconds())
    }
}
