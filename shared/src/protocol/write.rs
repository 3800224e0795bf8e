//! A write of one item, as a state machine: put, create-only, delete or update.
//!
//! Each write is one plain conditional request at the item's home. The driver asks for the [`Next`]
//! step, carries it out, and reports the result, until the write is [`Done`](Next::Done). See
//! docs/protocol.md, "Writing".

mod request;
mod response;

use crate::protocol::applied::Once;
use crate::protocol::copies::Request;
use crate::protocol::drain::Waits;
use crate::protocol::layout::Places;
use crate::protocol::version::Version;
use crate::protocol::view::{Moment, View};
use crate::protocol::write_id::WriteId;

/// The kind of a write.
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
    /// Read all places of the item, strongly consistent. For an update, examine the newest copy
    /// then, and report a refusal by [`declined`](Write::declined).
    Read,
    /// Send this to the item's home, if the view's lease is still valid then.
    Send(Request),
    /// The write has ended.
    Done(Outcome),
}

/// How a write ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The item is stored, or removed.
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

/// One write with its attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Write {
    kind: Kind,
    /// How long its views are valid, and how long requests may be in flight.
    waits: Waits,
    /// Drawn once.
    tie_breaker: u32,
    /// Kept in its era while an attempt may still arrive. A throttled attempt does not.
    version: Option<Version>,
    /// The version to send must be above this one.
    above: Option<Version>,
    /// An attempt of this era got no response. It may still be applied.
    unanswered: bool,
    /// Several attempts of this era got no response.
    several: bool,
    /// The mark of the copy at home, as far as it is known.
    mark: Option<u64>,
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
    /// The version that this write has stored, or that refused it.
    stored: Option<Version>,
    /// A view must be requested at or after this instant, because a copy was of a later era than
    /// the last view.
    look_after: Option<(Moment, u64)>,
    /// The key's item was requested.
    verified: bool,
    /// A response that was processed after its view had expired. It counts if the era still lasts.
    late: Option<(Moment, u64, Outcome)>,
    over: Option<Outcome>,
}

/// The stored copies of an item.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Found {
    home: Option<Version>,
    /// The write id of the copy at home.
    write_id: Option<String>,
    is_elsewhere: bool,
}

impl Write {
    /// Begins a write.
    pub const fn new(kind: Kind, waits: Waits, tie_breaker: u32) -> Self {
        Self {
            kind,
            waits,
            tie_breaker,
            version: None,
            above: None,
            unanswered: false,
            several: false,
            mark: None,
            to_mark: None,
            found: None,
            buried_id: None,
            must_read: false,
            base: None,
            stored: None,
            look_after: None,
            verified: false,
            late: None,
            over: None,
        }
    }

    /// The version that this write has stored, or that refused it, once it has ended. `None` if the
    /// version is unknown.
    pub const fn stored(&self) -> Option<Version> {
        self.stored
    }

    /// Whether the driver must examine the copies that were read.
    pub const fn examines(&self) -> bool {
        self.kind.update().is_some() && self.found.is_some() && !self.is_over()
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
        if self.version.is_some_and(|version| version.era() != era) {
            if self.unanswered {
                return Next::Done(Outcome::Unknown(ERA_CHANGED));
            }
            (self.version, self.above, self.buried_id, self.mark) = (None, None, None, None);
            (self.must_read, self.base) = (false, None);
        }
        if view.layout.closing.is_some() {
            return Next::Pause;
        }
        // The result of a read counts under its own view only.
        self.found = self.found.take().filter(|(by, _)| *by == view.identity());
        if self.to_mark.is_none() && self.reads_first(view, places, now) && self.found.is_none() {
            return Next::Read;
        }
        if let Some(Update { expects: Some(version), .. }) = self.kind.update()
            && self.found.is_none()
        {
            self.base = Some(version);
            self.go_above(version);
        }
        let version = self.take_version(era, now);
        match self.request(version, places, view, now) {
            Some(request) => Next::Send(request),
            None => self.ends(Outcome::Done, view, now),
        }
    }

    /// The step before anything else while a newer view must confirm an outcome, or show the era of
    /// a copy.
    fn newer_view(&mut self, view: &View, now: Moment) -> Option<Next> {
        let era = view.layout.era;
        if let Some((since, of_era, outcome)) = self.late {
            if !view.is_asked_since(since, now) {
                return Some(Next::Look(Some(since)));
            }
            // The page may be behind: it still has the closing, but the next era may have begun.
            let lasts = era == of_era && view.layout.closing.is_none();
            return Some(Next::Done(if lasts { outcome } else { Outcome::Unknown(LATE_RESPONSE) }));
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

    /// A statement about stored copies is valid under the lease only. After it, a newer view must
    /// confirm that the era still lasts.
    fn ends(&mut self, outcome: Outcome, view: &View, now: Moment) -> Next {
        if view.is_valid(now, self.waits.lease) {
            self.over = Some(outcome);
            Next::Done(outcome)
        } else {
            self.late = Some((now, view.layout.era, outcome));
            Next::Look(Some(now))
        }
    }

    fn take_version(&mut self, era: u64, now: Moment) -> Version {
        let micros = u64::try_from(now.wall.as_micros()).unwrap_or(u64::MAX);
        let own = self.version.unwrap_or_else(|| Version::new(era, micros, self.tie_breaker));
        let version = match self.above {
            // Above an earlier era, the present era is enough.
            Some(above) if own <= above => above.raised(self.tie_breaker),
            _ => own,
        };
        self.version = Some(version);
        version
    }

    fn go_above(&mut self, version: Version) {
        self.above = self.above.max(Some(version));
    }
}

#[cfg(test)]
mod tests;
