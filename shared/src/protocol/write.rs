//! A write of one item, as a state machine: put, create-only, delete or update.
//!
//! Each write is one plain conditional request at the item's home. The driver asks for the [`Next`]
//! step, carries it out, and reports the result, until the write is [`Done`](Next::Done). See
//! docs/protocol.md, "Writing".

mod response;

use crate::protocol::applied::Once;
use crate::protocol::copies::{Condition, Effect, Marks, Request};
use crate::protocol::drain::{Waits, late_until, may_begin_at};
use crate::protocol::progress::{self, Progress, Under};
use crate::protocol::version::Version;
use crate::protocol::view::{Moment, View};
use crate::protocol::write_id::WriteId;

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
    /// Replace the item by one that the driver derives from the newest copy.
    Replace(Update),
    /// DynamoDB adds to the stored attributes in place. If the newest copy may be elsewhere, the
    /// driver adds.
    Add(Update),
    /// Remove the item if its stored state allows that.
    DeleteIf { update: Update, may_look: bool },
}

impl Kind {
    /// The update, if the write depends on the stored state.
    pub const fn update(&self) -> Option<Update> {
        match self {
            Self::Replace(update) | Self::Add(update) | Self::DeleteIf { update, .. } => {
                Some(*update)
            }
            Self::Put | Self::Create(_) | Self::CreateOnce | Self::Delete { .. } => None,
        }
    }
}

/// A write that depends on the stored state. The driver examines the newest copy and decides the
/// result.
///
/// The newest copy may be at an old place, where nobody writes. Then the update *pulls* it: it
/// stores the updated item at home. Home must be unchanged since all places were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Update {
    /// The only version that the update may change. With it, an item that has a single place need
    /// not be read.
    pub expects: Option<Version>,
    /// The update must be applied once, even if its client repeats it.
    pub once: Option<Once>,
}

pub type Next = progress::Next<Request, Outcome>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
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
    progress: Progress<Outcome>,
    /// Kept in its era while an attempt may still arrive. A throttled attempt does not.
    version: Option<Version>,
    /// An attempt of this era got no response. It may still be applied.
    unanswered: bool,
    /// Several attempts of this era got no response.
    several: bool,
    /// The first attempt has stored this version, which needs a mark, because another attempt may
    /// still arrive.
    to_mark: Option<Version>,
    /// The copies at the item's places, and the view under which they were read.
    found: Option<((Moment, u64), Found)>,
    /// The write id of the copy at home, as far as it is known.
    buried_id: Option<String>,
    /// An update must read the stored copies, because an attempt without a read was refused.
    must_read: bool,
    /// The version on which an update's attempts are based. They can be applied only while this
    /// version is stored.
    base: Option<Version>,
    /// The version that this write has stored, or that refused it, once it has ended. `None` if the
    /// version is unknown.
    pub stored: Option<Version>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Found {
    home: Option<Version>,
    /// The write id of the copy at home.
    write_id: Option<String>,
    is_elsewhere: bool,
}

impl Write {
    pub const fn new(kind: Kind, waits: Waits, tie_breaker: u32) -> Self {
        Self {
            kind,
            progress: Progress::new(waits, tie_breaker),
            version: None,
            unanswered: false,
            several: false,
            to_mark: None,
            found: None,
            buried_id: None,
            must_read: false,
            base: None,
            stored: None,
        }
    }

    /// Whether the driver must examine the copies that were read.
    pub const fn examines(&self) -> bool {
        self.kind.update().is_some() && self.found.is_some() && !self.is_over()
    }

    /// Whether nothing more is sent.
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
            if self.unanswered {
                return Next::Done(Outcome::Unknown(ERA_CHANGED));
            }
            (self.progress.above, self.progress.mark) = (None, None);
            (self.version, self.base, self.buried_id, self.must_read) = (None, None, None, false);
        }
        if view.layout.closing.is_some() {
            return Next::Pause;
        }
        // The result of a read counts under its own view only.
        self.found = self.found.take().filter(|(by, _)| *by == view.identity());
        if self.to_mark.is_none() && self.reads_first(under) && self.found.is_none() {
            return Next::Read;
        }
        if let Some(Update { expects: Some(version), .. }) = self.kind.update()
            && self.found.is_none()
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

    /// The request to the item's home. `None` if there is nothing to delete.
    fn request(&self, version: Version, (view, places, now): Under<'_>) -> Option<Request> {
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
    fn reads_first(&self, (view, places, now): Under<'_>) -> bool {
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

#[cfg(test)]
pub(super) mod tests;
