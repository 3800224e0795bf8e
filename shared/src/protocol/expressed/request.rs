//! The request of the next attempt: what it does, and our part of its condition.

use super::{Action, Base, ExpressedWrite, NewVersion, Newest, Operation, Request};
use crate::protocol::copies::{Copy, Marks};
use crate::protocol::progress::Under;
use crate::protocol::version::Version;

impl ExpressedWrite {
    pub(super) fn request(&self, (view, places, now): Under<'_>) -> Request {
        let (era, has_one_place) = (view.layout.era, places.old.is_empty());
        let version = self.progress.version(None, era, now);
        let newest = self.found.as_ref().map(|(_, newest)| newest);
        let is_of_earlier_era = |copy: &Copy| !has_one_place && copy.version.era() < era;
        let base = match newest {
            Some(Newest::Elsewhere { shard, home, .. }) => {
                let base = home.as_ref().map_or(Base::Absent, exactly);
                let action = Action::Pull(*shard, version);
                return Request { action, base, marks: Marks::NONE };
            }
            Some(Newest::None) => Base::Absent,
            Some(Newest::AtHome(copy)) if copy.is_tombstone || is_of_earlier_era(copy) => {
                exactly(copy)
            }
            Some(Newest::AtHome(_)) | None => self.first_base(version, era, has_one_place),
        };
        let is_tombstone = matches!(base, Base::Tombstone(_));
        let leaves_nothing =
            has_one_place && !is_tombstone && !self.progress.needs_tombstone(view, now);
        let action = match self.operation {
            Operation::Put => Action::Put(version),
            Operation::Update { creates: false } | Operation::Delete if base == Base::Absent => {
                Action::Nothing
            }
            Operation::Update { creates } => {
                // On a tombstone, an update that creates nothing changes nothing but the version.
                let is_raised = matches!(base, Base::AbsentOrItem | Base::Item | Base::OfEra(..))
                    || (is_tombstone && !creates);
                let new = if is_raised { NewVersion::StepAbove } else { NewVersion::Is };
                Action::Update(new(version))
            }
            Operation::Delete if leaves_nothing => Action::Remove,
            Operation::Delete => {
                let stored =
                    if let Some(Newest::AtHome(copy)) = newest { Some(copy) } else { None };
                let write_id = stored.and_then(|copy| copy.write_id.clone());
                let may_expire = has_one_place && !self.progress.was_just_settled(view, now);
                Action::Bury { version, write_id, may_expire }
            }
        };
        let mark_stays = matches!(action, Action::Update(_) | Action::Nothing);
        let marks = if mark_stays { Marks::NONE } else { self.progress.marks(None, now) };
        Request { action, base, marks }
    }

    /// Our part of the condition before anything is known of the stored copies, or while an item of
    /// this era is at home.
    fn first_base(&self, version: Version, era: u64, has_one_place: bool) -> Base {
        match self.operation {
            Operation::Put | Operation::Delete if has_one_place => Base::AbsentOrBelow(version),
            Operation::Update { creates: true } if has_one_place => Base::AbsentOrItem,
            Operation::Update { creates: false } if has_one_place => Base::Item,
            Operation::Put | Operation::Delete => Base::OfEra(era, Some(version)),
            Operation::Update { .. } => Base::OfEra(era, None),
        }
    }
}

fn exactly(copy: &Copy) -> Base {
    if copy.is_tombstone { Base::Tombstone(copy.version) } else { Base::Exactly(copy.version) }
}
