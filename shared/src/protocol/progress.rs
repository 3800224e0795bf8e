//! What [`Write`](super::write::Write) and [`ExpressedWrite`](super::expressed::ExpressedWrite)
//! have in common.

use crate::protocol::copies::{self, Marks};
use crate::protocol::drain::{Waits, late_until};
use crate::protocol::layout::Places;
use crate::protocol::version::Version;
use crate::protocol::view::{Moment, View};
use crate::values::key::ShardNumber;

/// The driver's next step. `R` is a request of the write, `O` is how it ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Next<R, O> {
    /// Get a view that is within its lease and, if an instant is given, was requested at or after
    /// it.
    Look(Option<Moment>),
    /// Read the key's own item, make its page equal, and get a view that was requested at or after
    /// this instant.
    Verify(Moment),
    /// The key's width is changing. Wait for the next era, then get a view.
    Pause,
    /// Read all places of the item, strongly consistent. For an update, examine the newest copy
    /// then, and report a refusal by [`declined`](super::write::Write::declined).
    Read,
    /// Send this to the item's home, if the view's lease is still valid then.
    Send(R),
    Done(O),
}

pub type Under<'a> = (&'a View, &'a Places, Moment);

/// `O` is how the write ends, `F` what a read finds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Progress<O, F> {
    pub(super) waits: Waits,
    /// Drawn once.
    tie_breaker: u32,
    era: Option<u64>,
    /// What is stored, and the view under which it was found.
    pub(super) found: Option<((Moment, u64), F)>,
    /// The copies at the item's places must be read, because an attempt without that was refused.
    pub(super) must_read: bool,
    /// The version to send must be higher.
    pub(super) above: Option<Version>,
    /// The mark of the copy at home, as far as it is known.
    pub(super) mark: Option<u64>,
    /// A view must be requested at or after this instant, because a copy was of this later era.
    look_after: Option<(Moment, u64)>,
    /// The key's item was requested.
    verified: bool,
    /// A response that was processed after its view had expired. It counts if the era still lasts.
    late: Option<(Moment, u64, O)>,
    pub(super) over: Option<O>,
}

impl<O: Copy, F> Progress<O, F> {
    pub(super) const fn new(waits: Waits, tie_breaker: u32) -> Self {
        Self {
            waits,
            tie_breaker,
            era: None,
            found: None,
            must_read: false,
            above: None,
            mark: None,
            look_after: None,
            verified: false,
            late: None,
            over: None,
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over.is_some() || self.late.is_some()
    }

    /// The step before anything else: the end, or a view that is within its lease and that, if
    /// needed, confirms a late response or shows the era of a copy, or the wait for the next era. A
    /// late response is `unknown` if its era has ended, and the metadata is `lost` if it does not
    /// know the era of a copy.
    pub(super) fn next<R>(
        &mut self,
        view: &View,
        now: Moment,
        (unknown, lost): (O, O),
    ) -> Option<Next<R, O>> {
        if let Some(outcome) = self.over {
            return Some(Next::Done(outcome));
        }
        let era = view.layout.era;
        if let Some((since, of_era, outcome)) = self.late {
            if !view.is_asked_since(since, now) {
                return Some(Next::Look(Some(since)));
            }
            // The page may be behind: it still has the closing, but the next era may have begun.
            let lasts = era == of_era && view.layout.closing.is_none();
            return Some(Next::Done(if lasts { outcome } else { unknown }));
        }
        if let Some((since, of_era)) = self.look_after {
            if !view.is_asked_since(since, now) || (era < of_era && !self.verified) {
                self.verified = true;
                return Some(Next::Verify(since));
            }
            if era < of_era {
                return Some(Next::Done(lost));
            }
            (self.look_after, self.verified) = (None, false);
        }
        if !view.is_valid(now, self.waits.lease) {
            return Some(Next::Look(None));
        }
        if self.era != Some(era) {
            (self.above, self.mark) = (None, None);
            (self.era, self.must_read) = (Some(era), false);
        }
        // What was found counts under its own view only.
        self.found.take_if(|(by, _)| *by != view.identity());
        view.layout.closing.is_some().then_some(Next::Pause)
    }

    pub(super) fn find(&mut self, found: F, view: &View) {
        self.found = Some((view.identity(), found));
    }

    pub(super) fn found(&self) -> Option<&F> {
        self.found.as_ref().map(|(_, found)| found)
    }

    /// A statement about stored copies is valid under the lease only. After it, a newer view must
    /// confirm that the era still lasts.
    pub(super) fn end(&mut self, outcome: O, view: &View, now: Moment) {
        if view.is_valid(now, self.waits.lease) {
            self.over = Some(outcome);
        } else {
            self.late = Some((now, view.layout.era, outcome));
        }
    }

    /// Returns the copy at home. `None` if the read does not count: after the lease, a drain may
    /// have moved and purged an item between two of the reads; and a copy may be of a later era.
    pub(super) fn read<'a>(
        &mut self,
        found: &'a [(ShardNumber, copies::Copy)],
        (view, places, now): Under<'_>,
    ) -> Option<Option<&'a copies::Copy>> {
        let newest = found.iter().map(|(_, copy)| copy.version).max();
        if !view.is_valid(now, self.waits.lease)
            || newest.is_some_and(|newest| self.is_of_later_era(newest, view, now))
        {
            return None;
        }
        let home = found.iter().find(|(shard, _)| *shard == places.home).map(|(_, copy)| copy);
        self.mark = home.and_then(|copy| copy.late_until);
        Some(home)
    }

    /// If so, the view is out of date.
    pub(super) fn is_of_later_era(&mut self, stored: Version, view: &View, now: Moment) -> bool {
        let is_later = stored.era() > view.layout.era;
        if is_later {
            self.look_after = Some((now, stored.era()));
        }
        is_later
    }

    pub(super) fn go_above(&mut self, version: Version) {
        self.above = self.above.max(Some(version));
    }

    /// The one that was taken, or one of now, but above what is stored.
    pub(super) fn version(&self, taken: Option<Version>, era: u64, now: Moment) -> Version {
        let own = taken.unwrap_or_else(|| Version::new(era, now.epoch_micros(), self.tie_breaker));
        match self.above {
            // Above an earlier era, the present era is enough.
            Some(above) if own <= above => above.raised(self.tie_breaker),
            _ => own,
        }
    }

    /// The mark of the copy at home, if it has not passed.
    pub(super) fn present_mark(&self, now: Moment) -> Option<u64> {
        self.mark.filter(|until| *until > now.epoch_seconds())
    }

    /// This mark, or the present one if that is later.
    pub(super) fn marks(&self, own: Option<u64>, now: Moment) -> Marks {
        let late_until = own.max(self.present_mark(now));
        Marks { late_until, lost_until: late_until.unwrap_or(now.epoch_seconds()) }
    }

    /// Whether a deletion must leave a tombstone wherever the item is, because a duplicate may
    /// arrive.
    pub(super) fn needs_tombstone(&self, view: &View, now: Moment) -> bool {
        self.present_mark(now).is_some() || self.was_just_settled(view, now)
    }

    /// Whether the key was settled a short time ago. An update that has pulled an item from another
    /// place may have been sent twice. Without a tombstone, its late duplicate would find home
    /// empty, and make the item again.
    pub(super) fn was_just_settled(&self, view: &View, now: Moment) -> bool {
        let drained_at = view.layout.drained_at;
        drained_at.is_some_and(|at| now.epoch_seconds() < late_until(&self.waits, at))
    }
}
