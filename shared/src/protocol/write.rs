//! A write of one item: put, create-only or delete, as a state machine.
//!
//! Each is one plain conditional request at the item's home. The driver asks for the [`Next`] step, carries it out, and reports what
//! came of it, until the write is [`Done`](Next::Done). See docs/protocol.md, "Writing".

use super::copies::{Answer, Condition, Copy, Effect, Request};
use super::drain::{Waits, may_begin_at};
use super::layout::Places;
use super::version::Version;
use super::view::{Moment, View};
use super::write_id::{WriteId, WriteRelation};
use crate::core::key::ShardNumber;

/// What a write does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Store the item, whatever stands.
    Put,
    /// Store the item if none stands.
    Create(WriteId),
    /// Store an item whose sort key no other request makes up: where anything of it stands, an earlier attempt has stored it.
    CreateOnce,
    /// Remove the item; if it may look, it reads first, so that it can remove the item without a trace.
    Delete { may_look: bool },
}

/// What the driver does next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Next {
    /// Get a view: one within its lease, and requested at or after this instant if one is given.
    Look(Option<Moment>),
    /// Read the key's own item, make its page agree, and get a view that was requested at or after this instant.
    Verify(Moment),
    /// The key's width is changing: wait for the next era, then get a view.
    Pause,
    /// Read all places of the item, strongly consistent.
    Read,
    /// Send this to the item's home, if the view's lease still runs then.
    Send(Request),
    /// It is over.
    Done(Outcome),
}

/// How a write ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is stored, or removed.
    Done,
    /// A create-only write found an item.
    Exists,
    /// A create-only write found an item that its idempotency key has stored with another content.
    KeyReused,
    /// It may have been applied, or may be later.
    Unknown(&'static str),
    /// An item of another key stands at its home.
    Occupied,
    /// The item has a copy of an era that its metadata does not know: the metadata is lost, or was restored to an earlier state.
    Lost,
}

const ERA_CHANGED: &str = "an attempt got no response, and the key's width has changed since";
const ENDED_LATE: &str = "the response came after the key's width had changed";
const REPETITION_REFUSED: &str = "a repetition was refused, and an attempt before it got no response";
const DELETED_ONCE: &str = "a deletion got no response";
const OWN_IS_BELOW: &str = "an attempt arrived late, below a later write of the item";

/// One write with its attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Write {
    kind: Kind,
    /// How long its views may be relied on, and how long requests may be under way.
    waits: Waits,
    /// Drawn once.
    tie_breaker: u32,
    /// Taken at the first send of an era, and kept in that era.
    version: Option<Version>,
    /// The version that was sent must be above this one.
    above: Option<Version>,
    /// An attempt of this era got no response, and may still be applied.
    unanswered: bool,
    /// What was found at the item's places, and under which view.
    found: Option<((Moment, u64), Found)>,
    /// The write id of what stands at home, as far as it is known.
    buried_id: Option<String>,
    /// A view must be requested at or after this instant: a copy was of a later era than the last one.
    look_after: Option<(Moment, u64)>,
    /// The key's item was asked for.
    verified: bool,
    /// A deletion has found an item of another key at home.
    occupied: bool,
    /// A response that was processed after its view had run out: it counts if the era still lasts.
    late: Option<(Moment, u64, Outcome)>,
    over: Option<Outcome>,
}

/// What stands of an item.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Found {
    home: Option<Version>,
    stands_elsewhere: bool,
}

impl Write {
    /// A write that begins.
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
            look_after: None,
            verified: false,
            occupied: false,
            late: None,
            over: None,
        }
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
            // A page that still has the closing may be behind: the next era may have begun.
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
        }
        if view.layout.closing.is_some() {
            return Next::Pause;
        }
        // What was found counts under its own view only.
        self.found = self.found.take().filter(|(by, _)| *by == view.identity());
        if self.reads_first(view, places, now) && self.found.is_none() {
            return Next::Read;
        }
        let version = self.take_version(era, now);
        let found = self.found.as_ref().map(|(_, found)| found);
        let request = match &self.kind {
            Kind::Put => Request {
                effect: Effect::Put { version, write_id: None },
                condition: Condition::AbsentOrBelow(version),
            },
            Kind::Create(_) | Kind::CreateOnce => {
                let write_id = if let Kind::Create(id) = &self.kind { Some(id.as_str().to_owned()) } else { None };
                let condition = Condition::Unchanged(found.and_then(|found| found.home));
                Request { effect: Effect::Put { version, write_id }, condition }
            }
            Kind::Delete { .. } if places.old.is_empty() => {
                Request { effect: Effect::Remove, condition: Condition::AbsentOrBelow(version) }
            }
            Kind::Delete { .. } => match found {
                Some(Found { home: None, stands_elsewhere: false }) => return self.ends(Outcome::Done, view, now),
                Some(Found { home, stands_elsewhere: false }) => {
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

    /// What stands at each of the item's places: the answer to [`Next::Read`].
    pub fn read(&mut self, copies: &[(ShardNumber, Copy)], places: &Places, view: &View, now: Moment) {
        // After the lease, a drain may have moved and purged between two of the reads.
        if !view.is_valid(now, self.waits.lease) {
            return;
        }
        let ours = || copies.iter().filter(|(_, copy)| copy.is_ours);
        let newest = ours().map(|(_, copy)| copy).max_by_key(|copy| copy.version);
        if newest.is_some_and(|newest| self.is_of_later_era(newest, view, now)) {
            return;
        }
        let found = Found {
            home: ours().find(|(shard, _)| *shard == places.home).map(|(_, copy)| copy.version),
            stands_elsewhere: ours().any(|(shard, _)| *shard != places.home),
        };
        self.found = Some((view.identity(), found));
        if let Some(newest) = newest
            && matches!(self.kind, Kind::Create(_) | Kind::CreateOnce)
        {
            let own_is_below = ours().any(|(_, copy)| copy != newest && self.relation(copy) == WriteRelation::Same);
            self.judge(newest, own_is_below, view, now);
        }
    }

    /// What became of the request of [`Next::Send`].
    pub fn answered(&mut self, request: &Request, answer: Answer, places: &Places, view: &View, now: Moment) {
        match answer {
            Answer::Applied => {
                self.ends(Outcome::Done, view, now);
            }
            Answer::Rejected => {}
            Answer::Unanswered if request.effect == Effect::Remove => {
                // Another attempt could remove what is stored after the first was applied.
                self.over = Some(Outcome::Unknown(DELETED_ONCE));
            }
            Answer::Unanswered => self.unanswered = true,
            Answer::Refused(stands) => self.refused(request, stands, places, view, now),
        }
    }

    fn refused(&mut self, request: &Request, stands: Option<Copy>, places: &Places, view: &View, now: Moment) {
        // What was found has changed.
        self.found = None;
        let Some(copy) = stands else { return };
        if !copy.is_ours {
            // Where nothing of the item stands anywhere, there is nothing to delete.
            if matches!(self.kind, Kind::Delete { .. }) && !self.occupied && !self.unanswered && !places.old.is_empty()
            {
                self.occupied = true;
                return;
            }
            let outcome = if self.unanswered { Outcome::Unknown(REPETITION_REFUSED) } else { Outcome::Occupied };
            self.over = Some(outcome);
            return;
        }
        if self.is_of_later_era(&copy, view, now) {
            return;
        }
        let sent = match &request.effect {
            Effect::Put { version, .. } | Effect::Bury { version, .. } => Some(*version),
            Effect::Remove => None,
        };
        if sent == Some(copy.version) {
            self.ends(Outcome::Done, view, now);
            return;
        }
        match self.kind {
            // What stands at home may be hidden by a tombstone elsewhere: all of it is read again.
            Kind::Create(_) | Kind::CreateOnce if !places.old.is_empty() => {}
            Kind::Create(_) | Kind::CreateOnce => {
                self.found = Some((view.identity(), Found { home: Some(copy.version), stands_elsewhere: false }));
                self.judge(&copy, false, view, now);
            }
            Kind::Put | Kind::Delete { .. } if self.version.is_some_and(|version| copy.version < version) => {
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

    /// What the newest copy means for a create-only write.
    fn judge(&mut self, newest: &Copy, own_is_below: bool, view: &View, now: Moment) {
        let is_at_home = self.found.as_ref().is_some_and(|(_, found)| found.home == Some(newest.version));
        let outcome = match (self.relation(newest), newest.is_tombstone) {
            // It arrived late, and another creation may have read before: it counts at home only.
            (WriteRelation::Same, false) if !is_at_home && matches!(self.kind, Kind::Create(_)) => {
                self.go_above(newest.version);
                return;
            }
            // Stored by an earlier attempt; perhaps deleted since.
            (WriteRelation::Same, _) => Outcome::Done,
            (_, true) if own_is_below => Outcome::Done,
            (_, _) if self.unanswered => Outcome::Unknown(REPETITION_REFUSED),
            (_, true) => {
                self.go_above(newest.version);
                return;
            }
            (WriteRelation::OtherContent, false) => Outcome::KeyReused,
            (WriteRelation::Other, false) if own_is_below => Outcome::Unknown(OWN_IS_BELOW),
            (WriteRelation::Other, false) => Outcome::Exists,
        };
        self.ends(outcome, view, now);
    }

    /// A claim about what stands holds under the lease only; after it, a newer view must confirm that the era still lasts.
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

    /// Whether what stands must be known before anything is sent.
    fn reads_first(&self, view: &View, places: &Places, now: Moment) -> bool {
        if places.old.is_empty() {
            return false;
        }
        match self.kind {
            Kind::Create(_) | Kind::CreateOnce => true,
            // What is found empty must stay so: no drain may copy anything there, and no late put may arrive.
            Kind::Delete { .. } if self.occupied => true,
            Kind::Delete { may_look } => {
                // Of a key that is not listed, nobody says whether it is being migrated.
                may_look
                    && view.layout.generation > 0
                    && !self.unanswered
                    && !view.layout.draining
                    && may_begin_at(&view.layout, &self.waits).is_none_or(|at| at <= now.epoch_seconds())
            }
            Kind::Put => false,
        }
    }

    fn take_version(&mut self, era: u64, now: Moment) -> Version {
        let micros = u64::try_from(now.wall.as_micros()).unwrap_or(u64::MAX);
        let own = self.version.unwrap_or_else(|| Version::new(era, micros, self.tie_breaker));
        let version = match self.above {
            // Above an earlier era, the present one is enough.
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
            Kind::Put | Kind::Delete { .. } => WriteRelation::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::super::layout::Layout;
    use super::*;
    use crate::core::key::ShardCount;

    const WAITS: Waits =
        Waits { lease: Duration::from_secs(1), reads: Duration::from_secs(60), signatures: Duration::from_secs(900) };

    fn at(millis: u64) -> Moment {
        Moment { monotonic: Duration::from_millis(millis), wall: Duration::from_millis(millis) }
    }

    fn view(era: u64, asked_at: u64) -> View {
        View { layout: Layout { era, ..Layout::unlisted(ShardCount::ONE) }, asked_at: at(asked_at) }
    }

    /// The closing may be all that its page has of a change that is over.
    #[test]
    fn a_late_response_counts_only_where_the_era_certainly_lasts() {
        let places = Places { home: ShardNumber::FIRST, old: BTreeSet::new() };
        let closing =
            View { layout: Layout { closing: Some(ShardCount::ONE), ..view(1, 1_600).layout }, ..view(1, 1_600) };
        for (newer, outcome) in [
            (view(1, 1_600), Outcome::Done),
            (view(2, 1_600), Outcome::Unknown(ENDED_LATE)),
            (closing, Outcome::Unknown(ENDED_LATE)),
        ] {
            let mut write = Write::new(Kind::Put, WAITS, 7);
            let Next::Send(request) = write.next(&view(1, 0), &places, at(10)) else { panic!("{write:?}") };
            write.answered(&request, Answer::Applied, &places, &view(1, 0), at(1_500));
            assert_eq!(write.next(&view(1, 0), &places, at(1_500)), Next::Look(Some(at(1_500))));
            assert_eq!(write.next(&newer, &places, at(1_700)), Next::Done(outcome), "{newer:?}");
        }
    }

    /// An instance can learn of a change within the instant in which it read the page that does not have it.
    #[test]
    fn what_was_found_under_one_view_says_nothing_under_another_of_the_same_instant() {
        let places = Places { home: ShardNumber::FIRST, old: BTreeSet::from([ShardNumber::UNSHARDED]) };
        let of = |generation| View { layout: Layout { generation, ..view(1, 0).layout }, asked_at: at(0) };
        let mut write = Write::new(Kind::CreateOnce, WAITS, 7);
        assert_eq!(write.next(&of(1), &places, at(10)), Next::Read);
        write.read(&[], &places, &of(1), at(10));
        assert!(matches!(write.next(&of(1), &places, at(10)), Next::Send(_)), "{write:?}");
        assert_eq!(write.next(&of(2), &places, at(10)), Next::Read);
    }

    /// A page that is behind the key's item must not make a write fail, and where the item is behind, too, the metadata is lost.
    #[test]
    fn a_copy_of_a_later_era_sends_a_write_to_the_keys_item_once() {
        let places = Places { home: ShardNumber::FIRST, old: BTreeSet::new() };
        for (era_of_item, is_lost) in [(1, true), (2, false)] {
            let mut write = Write::new(Kind::Put, WAITS, 7);
            let Next::Send(request) = write.next(&view(1, 0), &places, at(10)) else { panic!("{write:?}") };
            let later = Copy { version: Version::new(2, 1, 1), is_tombstone: false, write_id: None, is_ours: true };
            write.answered(&request, Answer::Refused(Some(later)), &places, &view(1, 0), at(20));
            assert_eq!(write.next(&view(1, 0), &places, at(20)), Next::Verify(at(20)));
            let next = write.next(&view(era_of_item, 25), &places, at(30));
            assert_eq!(next == Next::Done(Outcome::Lost), is_lost, "{next:?}");
            assert_eq!(matches!(next, Next::Send(_)), !is_lost, "{next:?}");
        }
    }
}
