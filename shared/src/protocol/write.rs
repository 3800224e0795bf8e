//! A write of one item: put, create-only, delete or update, as a state machine.
//!
//! Each is one plain conditional request at the item's home. The driver asks for the [`Next`] step, carries it out, and reports what
//! came of it, until the write is [`Done`](Next::Done). See docs/protocol.md, "Writing".

use super::applied::Once;
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
    /// Change what stands, by what it is.
    Update(Update),
}

/// A write that depends on what stands: the driver judges the newest copy, and says what becomes of it.
///
/// The copy may stand at an old place, where nobody writes: the update *pulls* it, for it is put at home as it is after the update. Home
/// must be unchanged since all places were read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Update {
    pub how: How,
    /// The only version that it may change: then the one place of an item need not be read.
    pub expects: Option<Version>,
    /// It must be applied once, also where its client repeats it.
    pub once: Option<Once>,
}

/// What an update does to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    /// The driver makes the new item of the newest copy.
    Replace,
    /// DynamoDB adds to what stands, in place; or the driver does, where the newest copy may stand elsewhere.
    Add,
    /// Remove the item.
    Remove { may_look: bool },
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
    /// Read all places of the item, strongly consistent. Of an update, judge the newest copy then, and report a refusal by
    /// [`declined`](Write::declined).
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
    /// The driver has declined an update: what stands is not what it asks for.
    Declined,
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
const ADDED_ONCE: &str = "an update in place got no response, and nothing tells whether it was applied";
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
    /// An update must read what stands: an attempt without that was refused.
    must_read: bool,
    /// The version that an update's attempts are made from. They can be applied only while it stands.
    base: Option<Version>,
    /// The version of what this write has stored, or was refused by.
    stored: Option<Version>,
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
    /// Of what stands at home.
    write_id: Option<String>,
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
            must_read: false,
            base: None,
            stored: None,
            look_after: None,
            verified: false,
            occupied: false,
            late: None,
            over: None,
        }
    }

    /// The version of the item that this write has stored, or was refused by, once it is over; `None` where nothing says which it is.
    pub const fn stored(&self) -> Option<Version> {
        self.stored
    }

    /// Whether it is known what stands, under the view of the last read.
    pub const fn has_read(&self) -> bool {
        self.found.is_some()
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
            (self.must_read, self.base) = (false, None);
        }
        if view.layout.closing.is_some() {
            return Next::Pause;
        }
        // What was found counts under its own view only.
        self.found = self.found.take().filter(|(by, _)| *by == view.identity());
        if self.reads_first(view, places, now) && self.found.is_none() {
            return Next::Read;
        }
        if let Kind::Update(Update { expects: Some(version), .. }) = &self.kind
            && self.found.is_none()
        {
            let version = *version;
            self.base = Some(version);
            self.go_above(version);
        }
        let version = self.take_version(era, now);
        let found = self.found.as_ref().map(|(_, found)| found);
        let request = match &self.kind {
            Kind::Update(update) => self.of_update(update, version, places, view, now),
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
                Some(Found { home: None, stands_elsewhere: false, .. }) => return self.ends(Outcome::Done, view, now),
                Some(Found { home, stands_elsewhere: false, .. }) => {
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

    fn of_update(&self, update: &Update, version: Version, places: &Places, view: &View, now: Moment) -> Request {
        let found = self.found.as_ref().map(|(_, found)| found);
        let unchanged = Condition::Unchanged(found.map_or(self.base, |found| found.home));
        match (update.how, found) {
            (How::Add, None) => {
                // A copy of this era is the newest one wherever it stands, and so is the only one.
                let from = if places.old.is_empty() { Version::LOWEST } else { Version::lowest_of(view.layout.era) };
                let once = update.once;
                Request { effect: Effect::Add { once }, condition: Condition::Stands { from, once } }
            }
            (How::Add | How::Replace, _) => {
                Request { effect: Effect::Put { version, write_id: None }, condition: unchanged }
            }
            (How::Remove { may_look }, Some(found))
                if !places.old.is_empty()
                    && (found.stands_elsewhere || !self.may_leave_nothing(may_look, view, now)) =>
            {
                let write_id = found.write_id.clone();
                Request { effect: Effect::Bury { version, write_id }, condition: unchanged }
            }
            (How::Remove { .. }, _) => Request { effect: Effect::Remove, condition: unchanged },
        }
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
        let home = ours().find(|(shard, _)| *shard == places.home).map(|(_, copy)| copy);
        let found = Found {
            home: home.map(|copy| copy.version),
            write_id: home.and_then(|copy| copy.write_id.clone()),
            stands_elsewhere: ours().any(|(shard, _)| *shard != places.home),
        };
        self.found = Some((view.identity(), found));
        if let Kind::Update(Update { once, .. }) = self.kind {
            self.resume(newest, once, view, now);
            return;
        }
        if let Some(newest) = newest
            && matches!(self.kind, Kind::Create(_) | Kind::CreateOnce)
        {
            let own_is_below = ours().any(|(_, copy)| copy != newest && self.relation(copy) == WriteRelation::Same);
            self.judge(newest, own_is_below, view, now);
        }
    }

    /// What the newest copy says of an update's earlier attempts.
    fn resume(&mut self, newest: Option<&Copy>, once: Option<Once>, view: &View, now: Moment) {
        let stands = newest.map(|copy| copy.version);
        if newest.is_some_and(|copy| copy.is_item() && copy.has_applied(once)) {
            self.stored = stands;
            self.ends(Outcome::Done, view, now);
            return;
        }
        if self.unanswered && stands != self.base {
            if stands.is_some() && stands == self.version {
                self.stored = stands;
                self.ends(Outcome::Done, view, now);
                return;
            }
            // What an attempt was made from is gone, so that it is not applied any more; and it was not applied if the item would know.
            let would_know = |once: Once| {
                newest.and_then(|copy| copy.applied.as_ref()).is_some_and(|applied| applied.knows_of(once))
            };
            if !once.is_some_and(would_know) {
                self.over = Some(Outcome::Unknown(REPETITION_REFUSED));
                return;
            }
        }
        self.base = stands;
        if let Some(stands) = stands {
            self.go_above(stands);
        }
    }

    /// The driver declines an update, by what was read.
    pub fn declined(&mut self, view: &View, now: Moment) {
        self.ends(Outcome::Declined, view, now);
    }

    /// What became of the request of [`Next::Send`].
    pub fn answered(&mut self, request: &Request, answer: Answer, places: &Places, view: &View, now: Moment) {
        match answer {
            Answer::Applied => {
                if let Effect::Put { version, .. } = request.effect {
                    self.stored = Some(version);
                }
                self.ends(Outcome::Done, view, now);
            }
            Answer::Rejected => {}
            Answer::Unanswered if request.effect == (Effect::Add { once: None }) => {
                self.over = Some(Outcome::Unknown(ADDED_ONCE));
            }
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
        let is_update = matches!(self.kind, Kind::Update(_));
        if is_update {
            // Once it stands at home in this era, an update in place may succeed; unless an attempt is to be accounted for.
            let how_add = matches!(self.kind, Kind::Update(Update { how: How::Add, .. }));
            let in_place = matches!(request.effect, Effect::Add { .. });
            self.must_read = in_place || !how_add || self.unanswered;
        }
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
            Effect::Remove | Effect::Add { .. } => None,
        };
        if sent == Some(copy.version) {
            self.stored = sent;
            self.ends(Outcome::Done, view, now);
            return;
        }
        match self.kind {
            Kind::Update(Update { once, .. }) if copy.is_item() && copy.has_applied(once) => {
                self.stored = Some(copy.version);
                self.ends(Outcome::Done, view, now);
            }
            Kind::Update(_) => {}
            // What stands at home may be hidden by a tombstone elsewhere: all of it is read again.
            Kind::Create(_) | Kind::CreateOnce if !places.old.is_empty() => {}
            Kind::Create(_) | Kind::CreateOnce => {
                let found = Found { home: Some(copy.version), ..Found::default() };
                self.found = Some((view.identity(), found));
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
            (WriteRelation::Same, is_tombstone) => {
                self.stored = (!is_tombstone && matches!(self.kind, Kind::Create(_))).then_some(newest.version);
                Outcome::Done
            }
            (_, true) if own_is_below => Outcome::Done,
            (_, _) if self.unanswered => Outcome::Unknown(REPETITION_REFUSED),
            (_, true) => {
                self.go_above(newest.version);
                return;
            }
            (WriteRelation::OtherContent, false) => Outcome::KeyReused,
            (WriteRelation::Other, false) if own_is_below => Outcome::Unknown(OWN_IS_BELOW),
            (WriteRelation::Other, false) => {
                self.stored = Some(newest.version);
                Outcome::Exists
            }
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
        if let Kind::Update(Update { how, expects, .. }) = &self.kind {
            let has_one_place = places.old.is_empty();
            let may_send = match (how, expects) {
                (How::Add, None) => true,
                // What a client says of a later era is no proof of one.
                (How::Replace | How::Remove { .. }, Some(version)) => has_one_place && version.era() <= view.layout.era,
                (How::Add, Some(_)) | (How::Replace | How::Remove { .. }, None) => false,
            };
            return self.must_read || !may_send;
        }
        if places.old.is_empty() {
            return false;
        }
        match self.kind {
            Kind::Create(_) | Kind::CreateOnce => true,
            // What is found empty must stay so: no drain may copy anything there, and no late put may arrive.
            Kind::Delete { .. } if self.occupied => true,
            Kind::Delete { may_look } => self.may_leave_nothing(may_look, view, now),
            Kind::Put | Kind::Update(_) => false,
        }
    }

    /// Whether a place of several that was found empty stays so: no drain may copy anything there, and no late put may arrive.
    fn may_leave_nothing(&self, may_look: bool, view: &View, now: Moment) -> bool {
        // Of a key that is not listed, nobody says whether it is being migrated.
        may_look
            && view.layout.generation > 0
            && !self.unanswered
            && !view.layout.draining
            && may_begin_at(&view.layout, &self.waits).is_none_or(|at| at <= now.epoch_seconds())
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
            Kind::Put | Kind::Delete { .. } | Kind::Update(_) => WriteRelation::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::super::applied::{Applied, UpdateId};
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

    fn stands(version: Version) -> Copy {
        Copy { version, is_tombstone: false, write_id: None, is_ours: true, applied: None }
    }

    fn update(how: How, once: Option<Once>) -> Write {
        Write::new(Kind::Update(Update { how, expects: None, once }), WAITS, 7)
    }

    fn two_places() -> Places {
        Places { home: ShardNumber::FIRST, old: BTreeSet::from([ShardNumber::UNSHARDED]) }
    }

    #[test]
    fn an_update_pulls_what_stands_at_an_old_place() {
        let (places, seen, old) = (two_places(), view(2, 0), Version::new(1, 5, 5));
        let mut write = update(How::Replace, None);
        assert_eq!(write.next(&seen, &places, at(10)), Next::Read);
        write.read(&[(ShardNumber::UNSHARDED, stands(old))], &places, &seen, at(10));
        let Next::Send(request) = write.next(&seen, &places, at(10)) else { panic!("{write:?}") };
        assert_eq!(request.condition, Condition::Unchanged(None));
        let Effect::Put { version, .. } = request.effect else { panic!("{request:?}") };
        assert!(version > old && version.era() == 2);
    }

    #[test]
    fn an_addition_is_made_in_place_only_where_the_copy_is_the_newest_for_sure() {
        let one = Places { home: ShardNumber::FIRST, old: BTreeSet::new() };
        for (places, from) in [(one, Version::LOWEST), (two_places(), Version::lowest_of(3))] {
            let mut write = update(How::Add, None);
            let Next::Send(request) = write.next(&view(3, 0), &places, at(10)) else { panic!("{write:?}") };
            assert_eq!(request.condition, Condition::Stands { from, once: None });
            write.answered(&request, Answer::Refused(None), &places, &view(3, 0), at(20));
            assert_eq!(write.next(&view(3, 0), &places, at(20)), Next::Read);
            let mut unanswered = update(How::Add, None);
            drop(unanswered.next(&view(3, 0), &places, at(10)));
            unanswered.answered(&request, Answer::Unanswered, &places, &view(3, 0), at(20));
            assert_eq!(unanswered.next(&view(3, 0), &places, at(20)), Next::Done(Outcome::Unknown(ADDED_ONCE)));
        }
    }

    #[test]
    fn an_update_without_a_response_is_repeated_while_that_stands_from_which_it_was_made() {
        let once = |id| Once { id: UpdateId::from_bytes([id; 8]), sent_at: 1_000 };
        let remembers = |id, known_since| Copy {
            applied: Some(Box::new(Applied { known_since, ..Applied::with(None, once(id), 1_000) })),
            ..stands(Version::new(1, 9, 9))
        };
        let (base, places, seen) = (stands(Version::new(1, 5, 5)), two_places(), view(1, 0));
        let own = |sent: &Request| match sent.effect {
            Effect::Put { version, .. } => stands(version),
            Effect::Bury { .. } | Effect::Remove | Effect::Add { .. } => panic!("{sent:?}"),
        };
        type Row<'a> = (&'a str, Option<Once>, &'a dyn Fn(&Request) -> Copy, Option<Outcome>);
        let unknown = Some(Outcome::Unknown(REPETITION_REFUSED));
        let rows: [Row<'_>; 6] = [
            ("the same", None, &|_| base.clone(), None),
            ("its own", None, &own, Some(Outcome::Done)),
            ("another", None, &|_| stands(Version::new(1, 9, 9)), unknown),
            ("another, which would know", Some(once(1)), &|_| remembers(2, 1_000), None),
            ("another, which would not", Some(once(1)), &|_| remembers(2, 1_001), unknown),
            ("another, which knows", Some(once(1)), &|_| remembers(1, 1_001), Some(Outcome::Done)),
        ];
        for (about, once, found, expected) in rows {
            let mut write = update(How::Replace, once);
            assert_eq!(write.next(&seen, &places, at(10)), Next::Read);
            write.read(&[(places.home, base.clone())], &places, &seen, at(10));
            let Next::Send(request) = write.next(&seen, &places, at(10)) else { panic!("{about}: {write:?}") };
            write.answered(&request, Answer::Unanswered, &places, &seen, at(20));
            assert_eq!(write.next(&seen, &places, at(30)), Next::Send(request.clone()), "{about}");
            write.answered(&request, Answer::Refused(Some(stands(Version::LOWEST))), &places, &seen, at(40));
            assert_eq!(write.next(&seen, &places, at(40)), Next::Read, "{about}");
            write.read(&[(places.home, found(&request))], &places, &seen, at(50));
            match (write.next(&seen, &places, at(50)), expected) {
                (Next::Done(outcome), Some(expected)) => assert_eq!(outcome, expected, "{about}"),
                (Next::Send(_), None) => {}
                other => panic!("{about}: {other:?}"),
            }
        }
    }

    #[test]
    fn one_place_and_one_version_need_no_read() {
        let (one, expected) = (Places { home: ShardNumber::FIRST, old: BTreeSet::new() }, Version::new(1, 5, 5));
        for (how, era, reads) in
            [(How::Replace, 1, false), (How::Remove { may_look: false }, 1, false), (How::Replace, 0, true)]
        {
            let mut write = Write::new(Kind::Update(Update { how, expects: Some(expected), once: None }), WAITS, 7);
            let next = write.next(&view(era, 0), &one, at(10));
            assert_eq!(next == Next::Read, reads, "{how:?} {next:?}");
            if let Next::Send(request) = next {
                assert_eq!(request.condition, Condition::Unchanged(Some(expected)));
            }
        }
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
            let later = stands(Version::new(2, 1, 1));
            write.answered(&request, Answer::Refused(Some(later)), &places, &view(1, 0), at(20));
            assert_eq!(write.next(&view(1, 0), &places, at(20)), Next::Verify(at(20)));
            let next = write.next(&view(era_of_item, 25), &places, at(30));
            assert_eq!(next == Next::Done(Outcome::Lost), is_lost, "{next:?}");
            assert_eq!(matches!(next, Next::Send(_)), !is_lost, "{next:?}");
        }
    }
}
