//! A write whose condition or change is an expression, which only DynamoDB evaluates:
//! docs/protocol.md, "Expressions".

use crate::protocol::copies::{Answer, Copy, Marks};
use crate::protocol::drain::Waits;
use crate::protocol::progress::{self, Progress, Under};
use crate::protocol::version::Version;
use crate::protocol::view::View;
use crate::values::key::ShardNumber;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It stores an item.
    Put,
    /// It changes the stored item. If there is none, it creates one, or does nothing.
    Update { creates: bool },
    /// It removes the item.
    Delete,
}

/// The copy at home to which a request applies: our part of its condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Base {
    /// No copy, or an item of a lower version.
    AbsentOrBelow(Version),
    AbsentOrItem,
    Item,
    /// An item of this era. Its version is below the other one, if there is one.
    OfEra(u64, Option<Version>),
    Exactly(Version),
    /// The tombstone of exactly this version. The caller's condition must not see its keys.
    Tombstone(Version),
    Absent,
}

impl Base {
    /// `table` of a driver sends the same as an expression.
    pub fn holds(self, stored: Option<&Copy>) -> bool {
        let Some(copy) = stored else {
            return matches!(self, Self::AbsentOrBelow(_) | Self::AbsentOrItem | Self::Absent);
        };
        match self {
            Self::Absent => false,
            Self::Tombstone(version) => copy.is_tombstone && copy.version == version,
            _ if copy.is_tombstone => false,
            Self::AbsentOrBelow(version) => copy.version < version,
            Self::AbsentOrItem | Self::Item => true,
            Self::OfEra(era, below) => {
                copy.version.era() == era && below.is_none_or(|below| copy.version < below)
            }
            Self::Exactly(version) => copy.version == version,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// The caller's put, with this version.
    Put(Version),
    /// The caller's update, with this version; or if it raises, one step above the stored one. An
    /// item without a version then gets this one, one step higher.
    Update { version: Version, raises: bool },
    /// The caller's deletion. Its tombstone has the write id of what it hides, which the condition
    /// requires.
    Bury { version: Version, write_id: Option<String>, may_expire: bool },
    /// The caller's deletion. It leaves nothing.
    Remove,
    /// The caller's request on what is not there. It stores nothing.
    Nothing,
    /// Not the caller's: the copy of a place goes home in this version.
    Pull(ShardNumber, Version),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    pub action: Action,
    pub base: Base,
    pub marks: Marks,
}

impl Request {
    pub fn holds(&self, stored: Option<&Copy>) -> bool {
        let hides_another = matches!(&self.action, Action::Bury { write_id, .. }
            if stored.is_some_and(|copy| copy.write_id != *write_id));
        self.base.holds(stored) && !hides_another && self.marks.allow(stored)
    }
}

pub type Next = progress::Next<Request, Outcome>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// `on_item`: it found an item.
    Applied { on_item: bool },
    /// The caller's condition does not hold. `on_item`: there was an item.
    Refused { on_item: bool },
    /// It may have been applied, or may be applied later.
    Unknown,
    /// The item has a copy of an era that the metadata does not know.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Found {
    home: Option<Copy>,
    /// The newest copy, if it is at another place and must be pulled.
    newer: Option<(ShardNumber, Copy)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExpressedWrite {
    operation: Operation,
    progress: Progress<Outcome, Found>,
}

impl ExpressedWrite {
    pub const fn new(operation: Operation, waits: Waits, tie_breaker: u32) -> Self {
        Self { operation, progress: Progress::new(waits, tie_breaker) }
    }

    pub const fn is_over(&self) -> bool {
        self.progress.is_over()
    }

    pub fn next(&mut self, under: Under<'_>) -> Next {
        let (view, _, now) = under;
        let outcomes = (Outcome::Unknown, Outcome::Lost);
        if let Some(next) = self.progress.next(view, now, outcomes) {
            return next;
        }
        if self.progress.must_read && self.progress.found.is_none() {
            return Next::Read;
        }
        Next::Send(self.request(under))
    }

    /// The response to [`Next::Read`].
    pub fn read(&mut self, copies: &[(ShardNumber, Copy)], under: Under<'_>) {
        let Some(home) = self.progress.read(copies, under) else { return };
        let (view, places, _) = under;
        // Of equal copies, a drain has made one: home counts.
        let newest =
            copies.iter().max_by_key(|(shard, copy)| (copy.version, *shard == places.home));
        // Without a copy at home, a tombstone hides only copies at other places, where nobody writes.
        let is_pulled = |(shard, copy): &&(ShardNumber, Copy)| {
            *shard != places.home && (!copy.is_tombstone || home.is_some())
        };
        let newer = newest.filter(is_pulled).cloned();
        self.find(Found { home: home.cloned(), newer }, view);
    }

    /// The response to the request of [`Next::Send`].
    pub fn answered(&mut self, request: &Request, answer: Answer, under: Under<'_>) {
        let (view, _, now) = under;
        match (answer, &request.action) {
            (Answer::Applied, Action::Pull(_, version)) => {
                if let Some((_, Found { newer: Some((_, copy)), .. })) = self.progress.found.take()
                {
                    self.progress.mark = copy.late_until;
                    let home = Some(Copy { version: *version, ..copy });
                    self.find(Found { home, newer: None }, view);
                }
            }
            (Answer::Applied, _) => {
                let on_item = !matches!(request.base, Base::Absent | Base::Tombstone(_));
                self.progress.end(Outcome::Applied { on_item }, view, now);
            }
            (Answer::Rejected, _) => {}
            (Answer::Unanswered, _) => self.progress.over = Some(Outcome::Unknown),
            (Answer::Refused(stored), _) => self.refused(request, stored, under),
        }
    }

    fn refused(&mut self, request: &Request, stored: Option<Copy>, under: Under<'_>) {
        let (view, places, now) = under;
        if let Some(copy) = &stored
            && self.progress.is_of_later_era(copy.version, view, now)
        {
            return;
        }
        self.progress.found = None;
        self.progress.mark = stored.as_ref().and_then(|copy| copy.late_until);
        let is_pull = matches!(request.action, Action::Pull(..));
        if !is_pull && request.holds(stored.as_ref()) {
            let on_item = stored.is_some_and(|copy| !copy.is_tombstone);
            self.progress.end(Outcome::Refused { on_item }, view, now);
            return;
        }
        let is_of_this_era =
            stored.as_ref().is_some_and(|copy| copy.version.era() == view.layout.era);
        // A copy of this era at home is the newest one.
        self.progress.must_read = is_pull || !(places.old.is_empty() || is_of_this_era);
        if !self.progress.must_read {
            self.find(Found { home: stored, newer: None }, view);
        }
    }

    fn find(&mut self, found: Found, view: &View) {
        if let Some(copy) = &found.home {
            self.progress.go_above(copy.version);
        }
        self.progress.find(found, view);
    }

    fn request(&self, (view, places, now): Under<'_>) -> Request {
        let (era, has_one_place) = (view.layout.era, places.old.is_empty());
        let version = self.progress.version(None, era, now);
        let found = self.progress.found();
        let home = found.and_then(|found| found.home.as_ref());
        if let Some((shard, _)) = found.and_then(|found| found.newer.as_ref()) {
            let base = home.map_or(Base::Absent, exactly);
            let action = Action::Pull(*shard, version);
            return Request { action, base, marks: Marks::NONE };
        }
        let is_of_earlier_era = |copy: &Copy| !has_one_place && copy.version.era() < era;
        let base = match home {
            None if found.is_some() => Base::Absent,
            Some(copy) if copy.is_tombstone || is_of_earlier_era(copy) => exactly(copy),
            Some(_) | None => self.first_base(version, era, has_one_place),
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
                let raises = matches!(base, Base::AbsentOrItem | Base::Item | Base::OfEra(..))
                    || (is_tombstone && !creates);
                Action::Update { version, raises }
            }
            Operation::Delete if leaves_nothing => Action::Remove,
            Operation::Delete => {
                let write_id = home.and_then(|copy| copy.write_id.clone());
                let may_expire = has_one_place && !self.progress.was_just_settled(view, now);
                Action::Bury { version, write_id, may_expire }
            }
        };
        let mark_stays = matches!(action, Action::Update { .. } | Action::Nothing);
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

#[cfg(test)]
mod tests;
