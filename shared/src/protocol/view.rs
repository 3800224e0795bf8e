//! Views of metadata, and how long they may be relied on.
//!
//! A view is out of date by nature. What makes it safe is that whoever changes a width waits until every view from before has run
//! out; so nobody may rely on a view longer than its lease, whatever happens to the process that holds it. Its age therefore
//! counts from *before* the metadata was requested, on the larger of two clocks: the monotonic one stands still while a sandbox
//! is suspended, and the wall clock can be set.

use std::time::Duration;

use super::metadata::ShardMetadata;

/// The longest that reads, writes and moves may rely on a view. Not configurable: whoever changes a width waits this long, and cannot
/// know the settings of other functions.
pub const MAX_LEASE: Duration = Duration::from_secs(1);
/// The lease of writes in an append-only table.
pub const APPEND_LEASE: Duration = Duration::from_secs(60);
/// The longest that one read may take, on the larger of two clocks: a drain waits it out between copying an item and deleting the original.
pub const LONGEST_READ: Duration = Duration::from_secs(60);
/// How long a signed request may be applied after it was signed. AWS documents five minutes; this is three times as long.
/// (AWS IAM user guide, "Signing AWS API requests".)
pub const SIGNATURE_VALIDITY: Duration = Duration::from_secs(15 * 60);
/// What the wait before an open is longer than [`MAX_LEASE`], for clocks that run at slightly different speeds.
pub const DRIFT_MARGIN: Duration = Duration::from_millis(100);

/// A throttled writer looks at the metadata again when its view is this old, so that it notices a new width.
pub const THROTTLED_VIEW: Duration = Duration::from_millis(200);
/// The longest random pause before a writer changes the metadata: the first to wake makes the change, and the others see it.
pub const CROWD_BACKOFF: Duration = Duration::from_millis(300);
/// What an observer of a closing waits beyond its actor, which opens first where it lives.
pub const OBSERVER_PAUSE: Duration = Duration::from_millis(100);

/// One instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment {
    /// Since any fixed origin of this process.
    pub monotonic: Duration,
    /// Since the Unix epoch.
    pub wall: Duration,
}

impl Moment {
    /// Time since `earlier`; `None` where the wall clock went back, and nothing can be said.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sharding::Moment;
    /// let at = |monotonic, wall| Moment { monotonic: Duration::from_secs(monotonic), wall: Duration::from_secs(wall) };
    /// // Suspended for an hour: the monotonic clock hardly moved.
    /// assert_eq!(at(11, 3_610).since(at(10, 10)), Some(Duration::from_secs(3_600)));
    /// assert_eq!(at(11, 9).since(at(10, 10)), None);
    /// ```
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<Duration> {
        let wall = self.wall.checked_sub(earlier.wall)?;
        Some(wall.max(self.monotonic.saturating_sub(earlier.monotonic)))
    }

    /// Whole seconds since the Unix epoch.
    #[must_use]
    pub const fn epoch_seconds(self) -> u64 {
        self.wall.as_secs()
    }
}

/// A copy of a key's metadata, with the instant before it was requested.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct View {
    /// The metadata; of a key without an item, what that means.
    pub metadata: ShardMetadata,
    /// Whether the key has an item.
    pub exists: bool,
    /// Taken before the request was sent.
    pub asked_at: Moment,
}

impl View {
    /// Whether the view may still be relied on for this lease.
    #[must_use]
    pub fn is_valid(&self, now: Moment, lease: Duration) -> bool {
        now.since(self.asked_at).is_some_and(|age| age < lease)
    }

    /// Whether it was requested at or after this instant, on a clock that has not gone back since.
    pub fn is_asked_since(&self, began: Moment, now: Moment) -> bool {
        self.asked_at.monotonic >= began.monotonic && now.since(self.asked_at).is_some()
    }

    /// Whether a read under this view stands, as a newer one shows: no era has begun since, and no old place was forgotten.
    pub const fn still_holds(&self, newer: &Self) -> bool {
        let (before, after) = (&self.metadata, &newer.metadata);
        before.era == after.era && before.settled == after.settled
    }
}
