//! Views of metadata, and how long they are valid.
//!
//! A view may be out of date. It is safe because an actor that changes a width waits until all
//! earlier views have expired. So no process may use a view after its lease, even if it was
//! suspended. The age of a view therefore counts from *before* the metadata was requested, on the
//! larger of two clocks: the monotonic clock stands still while a sandbox is suspended, and the
//! wall clock can be set.

use std::time::Duration;

use crate::protocol::layout::Layout;

/// How long reads, writes and moves may use a view. It is not configurable: an actor that changes a
/// width waits this long, and cannot know the settings of other functions.
pub const MAX_LEASE: Duration = Duration::from_secs(1);
/// The lease of writes in an append-only table.
pub const APPEND_LEASE: Duration = Duration::from_secs(60);
/// The longest that one read may take, on the larger of two clocks. A drain waits this long between
/// a copy and the deletion of the original.
pub const LONGEST_READ: Duration = Duration::from_secs(60);
/// How long a request may be applied after it was signed. AWS documents five minutes; this is three
/// times as long. (AWS IAM user guide, "Signing AWS API requests".)
pub const SIGNATURE_VALIDITY: Duration = Duration::from_secs(15 * 60);
/// How much longer than [`MAX_LEASE`] the wait before an open is: two clocks differ slightly in
/// speed.
pub const DRIFT_MARGIN: Duration = Duration::from_millis(100);

/// The longest random pause before a writer changes the metadata. The first to wake makes the
/// change, and the others see it.
pub const CROWD_BACKOFF: Duration = Duration::from_millis(300);
/// How much longer than its actor an observer of a closing waits before it takes the closing over.
/// It is also the longest random pause on top.
pub const OBSERVER_PAUSE: Duration = Duration::from_millis(500);

/// One instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment {
    /// Since any fixed origin of this process.
    pub monotonic: Duration,
    /// Since the Unix epoch.
    pub wall: Duration,
}

impl Moment {
    /// `None` if the wall clock was set back: then the time is unknown.
    pub fn since(self, earlier: Self) -> Option<Duration> {
        let wall = self.wall.checked_sub(earlier.wall)?;
        Some(wall.max(self.monotonic.saturating_sub(earlier.monotonic)))
    }

    pub const fn epoch_seconds(self) -> u64 {
        self.wall.as_secs()
    }

    pub(crate) fn epoch_millis(self) -> u64 {
        u64::try_from(self.wall.as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn epoch_micros(self) -> u64 {
        u64::try_from(self.wall.as_micros()).unwrap_or(u64::MAX)
    }
}

/// A copy of a key's layout, and the instant before it was requested.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct View {
    /// [`Layout::unlisted`] for a key that is not listed.
    pub layout: Layout,
    pub asked_at: Moment,
}

impl View {
    /// Distinguishes any two views of a key: two that were requested at the same instant may
    /// contain different changes.
    pub const fn identity(&self) -> (Moment, u64) {
        (self.asked_at, self.layout.generation)
    }

    pub fn is_valid(&self, now: Moment, lease: Duration) -> bool {
        now.since(self.asked_at).is_some_and(|age| age < lease)
    }

    /// At or after this instant, on a clock that was not set back since.
    pub fn is_asked_since(&self, began: Moment, now: Moment) -> bool {
        self.asked_at.monotonic >= began.monotonic && now.since(self.asked_at).is_some()
    }

    /// The layout with the higher generation, valid for as long as the later view. This is safe: if
    /// a copy of the page was read later and has a lower generation, then no change after the
    /// higher generation has reached every copy, and no actor opens before that.
    pub fn joined(&self, other: &Self) -> Self {
        let newer = if other.layout.generation > self.layout.generation { other } else { self };
        Self { layout: newer.layout.clone(), asked_at: self.asked_at.max(other.asked_at) }
    }
}

/// The next step of a read after its last response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadEnd {
    Correct,
    /// The view has expired. Request a new one now, and check again.
    Look,
    Again,
    /// The read took longer than a drain waits for it. It fails.
    TooLong,
}

/// Whether a copy of this era can exist under this view: its own era, or the next one if the key
/// was closing. Any other era means that the view is older than its lease allows: its page is
/// behind the key's item, or the metadata was lost.
pub fn knows_era(view: &View, era: u64) -> bool {
    era <= view.layout.era + u64::from(view.layout.closing.is_some())
}

/// `newer` is a view that was requested after the read's last response.
pub fn read_end(
    (began, longest): (Moment, Duration),
    (view, lease): (&View, Duration),
    newer: Option<&View>,
    now: Moment,
) -> ReadEnd {
    // If it was suspended, it may have read a home before an item was copied there, and the old
    // place after the item was deleted.
    if now.since(began).is_none_or(|took| took > longest) {
        return ReadEnd::TooLong;
    }
    // A new era, or an old place that was forgotten.
    let is_over = |newer: &View| {
        newer.layout.era != view.layout.era || newer.layout.settled != view.layout.settled
    };
    match newer {
        _ if view.is_valid(now, lease) => ReadEnd::Correct,
        None => ReadEnd::Look,
        Some(newer) if is_over(newer) => ReadEnd::Again,
        Some(_) => ReadEnd::Correct,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::values::key::ShardCount;

    /// An instant on two clocks that agree.
    pub(crate) const fn at(millis: u64) -> Moment {
        Moment { monotonic: Duration::from_millis(millis), wall: Duration::from_millis(millis) }
    }

    fn view(generation: u64, asked_at: u64) -> View {
        let layout = Layout { generation, ..Layout::unlisted(ShardCount::ONE) };
        View { layout, asked_at: at(asked_at) }
    }

    #[test]
    fn the_time_since_an_instant_is_that_of_the_larger_clock() {
        let at = |monotonic, wall| Moment {
            monotonic: Duration::from_secs(monotonic),
            wall: Duration::from_secs(wall),
        };
        // Suspended for an hour: the monotonic clock hardly moved.
        assert_eq!(at(11, 3_610).since(at(10, 10)), Some(Duration::from_secs(3_600)));
        assert_eq!(at(11, 9).since(at(10, 10)), None);
    }

    #[test]
    fn joined_views_have_the_higher_generation_and_the_later_time() {
        let rows = [
            ((1, 10), (2, 10), (2, 10)),
            ((3, 10), (2, 20), (3, 20)),
            ((2, 20), (3, 10), (3, 20)),
            ((2, 5), (2, 6), (2, 6)),
        ];
        for ((generation, asked_at), (of_other, asked_other), (joined, until)) in rows {
            let (one, other) = (view(generation, asked_at), view(of_other, asked_other));
            assert_eq!(one.joined(&other), view(joined, until), "{one:?} and {other:?}");
            assert_eq!(other.joined(&one), view(joined, until), "{other:?} and {one:?}");
        }
    }

    #[test]
    fn a_read_stands_until_an_era_begins_or_a_place_is_forgotten() {
        let before = view(2, 10);
        let changed = |change: fn(&mut Layout)| {
            let mut after = view(3, 11);
            change(&mut after.layout);
            let expired = (&before, Duration::ZERO);
            read_end((at(10), LONGEST_READ), expired, Some(&after), at(12)) == ReadEnd::Correct
        };
        assert!(changed(|layout| layout.draining = true));
        assert!(changed(|layout| layout.closing = Some(ShardCount::ONE)));
        assert!(!changed(|layout| layout.era += 1));
        assert!(!changed(|layout| layout.settled = true));
    }
}
