//! A write whose condition or change is an expression, which only DynamoDB evaluates, beside ours,
//! the [`Base`]: docs/protocol.md, "Expressions".

mod request;

use crate::protocol::copies::{Answer, Copy};
use crate::protocol::drain::Waits;
use crate::protocol::layout::Places;
use crate::protocol::version::Version;
use crate::protocol::view::{Moment, View};
use crate::values::key::ShardNumber;

/// What the caller's request does if its condition holds.
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
    /// No copy, or an item.
    AbsentOrItem,
    /// An item.
    Item,
    /// An item of this era. Its version is below the other one, if there is one.
    OfEra(u64, Option<Version>),
    /// The item of exactly this version.
    Exactly(Version),
    /// The tombstone of exactly this version. The caller's condition must not see its keys.
    Tombstone(Version),
    /// No copy.
    Absent,
}

impl Base {
    /// Whether the copy at home is as required. `table` of a driver sends the same as an expression.
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

/// The version after an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NewVersion {
    /// One step above the stored one. An item without a version gets this one, one step higher.
    StepAbove(Version),
    /// This one.
    Is(Version),
}

/// What a request does if its whole condition holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// The caller's put, with this version.
    Put(Version),
    /// The caller's update, with this version.
    Update(NewVersion),
    /// The caller's deletion. It leaves a tombstone with this version and with the write id of what
    /// it hides, which the condition requires.
    Bury { version: Version, write_id: Option<String>, may_expire: bool },
    /// The caller's deletion. It leaves nothing.
    Remove,
    /// The caller's request on what is not there. Whatever it does, it stores nothing.
    Nothing,
    /// Not the caller's: the copy of a place goes home in this version, otherwise unchanged.
    Pull(ShardNumber, Version),
}

/// One request to the item's home.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    pub action: Action,
    pub base: Base,
    /// The mark that a put or a tombstone stores. See [`Marks`](crate::protocol::copies::Marks).
    pub late_until: Option<u64>,
    /// A stored mark above this epoch second refuses the request.
    pub lost_until: u64,
}

impl Request {
    /// Whether our part of the condition holds.
    pub fn holds(&self, stored: Option<&Copy>) -> bool {
        let id = stored.and_then(|copy| copy.write_id.as_ref());
        let hides = if let Action::Bury { write_id, .. } = &self.action {
            stored.is_none() || write_id.as_ref() == id
        } else {
            true
        };
        let mark = stored.and_then(|copy| copy.late_until);
        self.base.holds(stored) && hides && mark.is_none_or(|until| until <= self.lost_until)
    }
}

/// The driver's next step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Next {
    /// Get a view that is within its lease and, if an instant is given, was requested at or after
    /// it.
    Look(Option<Moment>),
    /// Read the key's own item, make its page equal, and get a view that was requested at or after
    /// this instant.
    Verify(Moment),
    /// The key's width is changing. Wait for the next era, then get a view.
    Pause,
    /// Read all places of the item, strongly consistent.
    Read,
    /// Send this to the item's home, if the view's lease is still valid then.
    Send(Request),
    /// The write has ended.
    Done(Outcome),
}

/// How a write ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was applied. `on_item`: it found an item.
    Applied { on_item: bool },
    /// The caller's condition does not hold. `on_item`: there was an item.
    Refused { on_item: bool },
    /// It may have been applied, or may be applied later.
    Unknown,
    /// The item has a copy of an era that the metadata does not know.
    Lost,
}

/// The newest copy of the item, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Newest {
    None,
    /// At home.
    Item(Copy),
    /// At home.
    Tombstone(Copy),
    Elsewhere(Elsewhere),
}

/// The newest copy, at another place than home.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Elsewhere {
    shard: ShardNumber,
    copy: Copy,
    home: Option<Copy>,
}

/// One write with its attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExpressedWrite {
    operation: Operation,
    waits: Waits,
    /// Drawn once.
    tie_breaker: u32,
    era: Option<u64>,
    /// The version to send must be above this one.
    above: Option<Version>,
    /// The mark of the copy at home, as far as it is known.
    mark: Option<u64>,
    /// The newest copy, and the view under which it was found.
    found: Option<((Moment, u64), Newest)>,
    /// The newest copy may be at another place than home.
    must_read: bool,
    /// A view must be requested at or after this instant, because a copy was of this era.
    look_after: Option<(Moment, u64)>,
    verified: bool,
    /// A response that was processed after its view had expired. It counts if the era still lasts.
    late: Option<(Moment, u64, Outcome)>,
    over: Option<Outcome>,
}

impl ExpressedWrite {
    /// Begins a write.
    pub const fn new(operation: Operation, waits: Waits, tie_breaker: u32) -> Self {
        Self {
            operation,
            waits,
            tie_breaker,
            era: None,
            above: None,
            mark: None,
            found: None,
            must_read: false,
            look_after: None,
            verified: false,
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
        if let Some(next) = self.newer_view(view, now) {
            return next;
        }
        if !view.is_valid(now, self.waits.lease) {
            return Next::Look(None);
        }
        let era = view.layout.era;
        if self.era != Some(era) {
            (self.era, self.above, self.mark, self.must_read) = (Some(era), None, None, false);
        }
        if view.layout.closing.is_some() {
            return Next::Pause;
        }
        // What was found counts under its own view only.
        self.found = self.found.take().filter(|(by, _)| *by == view.identity());
        if self.must_read && self.found.is_none() {
            return Next::Read;
        }
        Next::Send(self.request(view, places, now))
    }

    fn newer_view(&mut self, view: &View, now: Moment) -> Option<Next> {
        let era = view.layout.era;
        if let Some((since, of_era, outcome)) = self.late {
            if !view.is_asked_since(since, now) {
                return Some(Next::Look(Some(since)));
            }
            // The page may be behind: it still has the closing, but the next era may have begun.
            let lasts = era == of_era && view.layout.closing.is_none();
            return Some(Next::Done(if lasts { outcome } else { Outcome::Unknown }));
        }
        if let Some((since, of_era)) = self.look_after {
            if !view.is_asked_since(since, now) || (era < of_era && !self.verified) {
                self.verified = true;
                return Some(Next::Verify(since));
            }
            if era < of_era {
                return Some(Next::Done(Outcome::Lost));
            }
            (self.look_after, self.verified) = (None, false);
        }
        None
    }

    /// Takes the copies at the item's places: the response to [`Next::Read`].
    pub fn read(
        &mut self,
        copies: &[(ShardNumber, Copy)],
        places: &Places,
        view: &View,
        now: Moment,
    ) {
        // After the lease, a drain may have moved and purged an item between two of the reads.
        if !view.is_valid(now, self.waits.lease) {
            return;
        }
        let home = copies.iter().find(|(shard, _)| *shard == places.home).map(|(_, copy)| copy);
        // Of equal copies, a drain has made one: home counts.
        let newest =
            copies.iter().max_by_key(|(shard, copy)| (copy.version, *shard == places.home));
        if newest.is_some_and(|(_, copy)| self.is_of_later_era(copy, view, now)) {
            return;
        }
        self.mark = home.and_then(|copy| copy.late_until);
        let newest = match newest {
            None => Newest::None,
            Some((shard, copy)) if *shard == places.home => at_home(copy),
            // It hides nothing but copies at other places, where nobody writes.
            Some((_, copy)) if copy.is_tombstone && home.is_none() => Newest::None,
            Some((shard, copy)) => Newest::Elsewhere(Elsewhere {
                shard: *shard,
                copy: copy.clone(),
                home: home.cloned(),
            }),
        };
        self.find(newest, view);
    }

    /// Takes the response to the request of [`Next::Send`].
    pub fn answered(
        &mut self,
        request: &Request,
        answer: Answer,
        places: &Places,
        view: &View,
        now: Moment,
    ) {
        match (answer, &request.action) {
            (Answer::Applied, Action::Pull(_, version)) => {
                let found = self.found.take();
                if let Some((_, Newest::Elsewhere(Elsewhere { copy, .. }))) = found {
                    self.mark = copy.late_until;
                    self.find(at_home(&Copy { version: *version, ..copy }), view);
                }
            }
            (Answer::Applied, _) => {
                let on_item = !matches!(request.base, Base::Absent | Base::Tombstone(_));
                self.ends(Outcome::Applied { on_item }, view, now);
            }
            (Answer::Rejected, _) => {}
            (Answer::Unanswered, _) => self.over = Some(Outcome::Unknown),
            (Answer::Refused(stored), _) => self.refused(request, stored, places, view, now),
        }
    }

    fn refused(
        &mut self,
        request: &Request,
        stored: Option<Copy>,
        places: &Places,
        view: &View,
        now: Moment,
    ) {
        if let Some(copy) = &stored
            && self.is_of_later_era(copy, view, now)
        {
            return;
        }
        self.found = None;
        self.mark = stored.as_ref().and_then(|copy| copy.late_until);
        let is_pull = matches!(request.action, Action::Pull(..));
        if !is_pull && request.holds(stored.as_ref()) {
            let on_item = stored.is_some_and(|copy| !copy.is_tombstone);
            self.ends(Outcome::Refused { on_item }, view, now);
            return;
        }
        let is_of_this_era =
            stored.as_ref().is_some_and(|copy| copy.version.era() == view.layout.era);
        // A copy of this era at home is the newest one.
        self.must_read = is_pull || !(places.old.is_empty() || is_of_this_era);
        if !self.must_read {
            let newest = stored.as_ref().map_or(Newest::None, at_home);
            self.find(newest, view);
        }
    }

    fn find(&mut self, newest: Newest, view: &View) {
        if let Newest::Item(copy) | Newest::Tombstone(copy) = &newest {
            self.above = self.above.max(Some(copy.version));
        }
        self.found = Some((view.identity(), newest));
    }

    /// A statement about stored copies is valid under the lease only. After it, a newer view must
    /// confirm that the era still lasts.
    fn ends(&mut self, outcome: Outcome, view: &View, now: Moment) {
        if view.is_valid(now, self.waits.lease) {
            self.over = Some(outcome);
        } else {
            self.late = Some((now, view.layout.era, outcome));
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
}

fn at_home(copy: &Copy) -> Newest {
    if copy.is_tombstone { Newest::Tombstone(copy.clone()) } else { Newest::Item(copy.clone()) }
}

#[cfg(test)]
mod tests;
