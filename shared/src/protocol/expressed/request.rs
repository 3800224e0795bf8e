//! The request of the next attempt: what it does, and our part of its condition.

use super::{Action, Base, Elsewhere, ExpressedWrite, NewVersion, Newest, Operation, Request};
use crate::protocol::copies::Copy;
use crate::protocol::drain::may_leave_nothing_at;
use crate::protocol::layout::Places;
use crate::protocol::version::Version;
use crate::protocol::view::{Moment, View};

impl ExpressedWrite {
    pub(super) fn request(&self, view: &View, places: &Places, now: Moment) -> Request {
        let seconds = now.epoch_seconds();
        let mark = self.mark.filter(|until| *until > seconds);
        let version = self.version(view.layout.era, now);
        let newest = self.found.as_ref().map(|(_, newest)| newest);
        let base = match newest {
            Some(Newest::Elsewhere(Elsewhere { shard, home, .. })) => {
                let base = home.as_ref().map_or(Base::Absent, exactly);
                let action = Action::Pull(*shard, version);
                return Request { action, base, late_until: None, lost_until: u64::MAX };
            }
            Some(Newest::None) => Base::Absent,
            Some(Newest::Tombstone(copy)) => Base::Tombstone(copy.version),
            Some(Newest::Item(copy)) if is_of_earlier_era(copy, view, places) => exactly(copy),
            Some(Newest::Item(_)) | None => self.first_base(version, view, places),
        };
        let stored = match newest {
            Some(Newest::Item(copy) | Newest::Tombstone(copy)) => Some(copy),
            Some(Newest::None | Newest::Elsewhere(_)) | None => None,
        };
        let action = match self.operation {
            Operation::Put => Action::Put(version),
            Operation::Update { creates: false } if base == Base::Absent => Action::Nothing,
            // On a tombstone it changes nothing but the version.
            Operation::Update { creates: false } => Action::Update(match base {
                Base::Exactly(_) => NewVersion::Is(version),
                Base::AbsentOrBelow(_)
                | Base::AbsentOrItem
                | Base::Item
                | Base::OfEra(..)
                | Base::Tombstone(_)
                | Base::Absent => NewVersion::StepAbove(version),
            }),
            Operation::Update { creates: true } => Action::Update(match base {
                Base::AbsentOrItem | Base::Item | Base::OfEra(..) => NewVersion::StepAbove(version),
                Base::AbsentOrBelow(_) | Base::Exactly(_) | Base::Tombstone(_) | Base::Absent => {
                    NewVersion::Is(version)
                }
            }),
            Operation::Delete if base == Base::Absent => Action::Nothing,
            Operation::Delete => self.deletion(version, stored, base, (view, places, now)),
        };
        let replaces = !matches!(action, Action::Update(_) | Action::Nothing);
        let (late_until, lost_until) = if replaces {
            (mark, mark.unwrap_or(seconds))
        } else {
            // The mark stays.
            (None, u64::MAX)
        };
        Request { action, base, late_until, lost_until }
    }

    /// Our part of the condition before anything is known of the stored copies, or while an item of
    /// this era is at home.
    fn first_base(&self, version: Version, view: &View, places: &Places) -> Base {
        match (self.operation, places.old.is_empty()) {
            (Operation::Put | Operation::Delete, true) => Base::AbsentOrBelow(version),
            (Operation::Update { creates: true }, true) => Base::AbsentOrItem,
            (Operation::Update { creates: false }, true) => Base::Item,
            (Operation::Put | Operation::Delete, false) => {
                Base::OfEra(view.layout.era, Some(version))
            }
            (Operation::Update { .. }, false) => Base::OfEra(view.layout.era, None),
        }
    }

    fn deletion(
        &self,
        version: Version,
        stored: Option<&Copy>,
        base: Base,
        (view, places, now): (&View, &Places, Moment),
    ) -> Action {
        let seconds = now.epoch_seconds();
        let was_just_settled =
            may_leave_nothing_at(&view.layout, &self.waits).is_some_and(|at| seconds < at);
        let is_marked = self.mark.is_some_and(|until| until > seconds);
        let is_tombstone = matches!(base, Base::Tombstone(_));
        if places.old.is_empty() && !was_just_settled && !is_marked && !is_tombstone {
            return Action::Remove;
        }
        let write_id = stored.and_then(|copy| copy.write_id.clone());
        let may_expire = places.old.is_empty() && !was_just_settled;
        Action::Bury { version, write_id, may_expire }
    }

    /// A version of this era, of now, and above what is stored.
    fn version(&self, era: u64, now: Moment) -> Version {
        let micros = u64::try_from(now.wall.as_micros()).unwrap_or(u64::MAX);
        let own = Version::new(era, micros, self.tie_breaker);
        match self.above {
            // Above an earlier era, the present era is enough.
            Some(above) if own <= above => above.raised(self.tie_breaker),
            _ => own,
        }
    }
}

fn exactly(copy: &Copy) -> Base {
    if copy.is_tombstone { Base::Tombstone(copy.version) } else { Base::Exactly(copy.version) }
}

/// Whether the item at home is of an earlier era, or has no version, while it has other places.
fn is_of_earlier_era(copy: &Copy, view: &View, places: &Places) -> bool {
    !places.old.is_empty() && copy.version.era() < view.layout.era
}
