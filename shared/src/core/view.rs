//! Views of metadata, and how long they may be relied on.
//!
//! A cached view is stale by nature. What makes it safe is that whoever activates a new width waits until every view from before
//! the expansion has run out; so a view must never be believed longer than its lease, whatever happens to the process that
//! holds it. Its age therefore counts from *before* the read was sent, on the larger of two clocks: the monotonic one stands
//! still while a sandbox is suspended, and the wall clock can be set.

use std::time::Duration;

use super::key::ShardCount;
use super::metadata::ShardMetadata;

/// The longest lease of reads and point writes. Not configurable: who activates waits this long, and cannot know other functions' settings.
pub const MAX_LEASE: Duration = Duration::from_secs(1);
/// How long a plain append may use a view. Growing leaves such appends harmlessly behind; a shrink waits it out.
pub const APPEND_LEASE: Duration = Duration::from_secs(60);
/// The longest that one read may take, on the larger of two clocks: a drain waits it out between copying an item and deleting the original.
pub const LONGEST_READ: Duration = Duration::from_secs(60);
/// How long a signed request may be applied after it was signed, conservatively. [Signature Version 4]
pub const SIGNATURE_VALIDITY: Duration = Duration::from_secs(15 * 60);
/// What an activation waits beyond [`MAX_LEASE`], for clocks that run at slightly different speeds.
pub const DRIFT_MARGIN: Duration = Duration::from_millis(100);

/// A throttled writer looks at the metadata again when its view is this old: an activation is noticed within it.
pub const THROTTLED_VIEW: Duration = Duration::from_millis(200);
/// The longest random pause before a writer changes the metadata: of a crowd, the first to wake makes the change and the others see it.
pub const CROWD_BACKOFF: Duration = Duration::from_millis(300);
/// What an observer of an expansion waits beyond its actor: the actor itself is first, where it lives.
pub const OBSERVER_PAUSE: Duration = Duration::from_millis(100);

/// One instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// A copy of a key's metadata, with the instant before it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// `None` where the key had no item.
    pub metadata: Option<ShardMetadata>,
    /// Taken before the read was sent.
    pub asked_at: Moment,
    /// How many shards a key without an item has: 1, but for tables that had a fixed number before.
    pub unregistered: ShardCount,
}

impl View {
    /// Whether the view may still be relied on for this lease.
    #[must_use]
    pub fn is_valid(&self, now: Moment, lease: Duration) -> bool {
        now.since(self.asked_at).is_some_and(|age| age < lease)
    }

    /// The metadata; of an absent item, what it means.
    #[must_use]
    pub fn widths(&self) -> std::borrow::Cow<'_, ShardMetadata> {
        self.metadata.as_ref().map_or_else(
            || std::borrow::Cow::Owned(ShardMetadata::unregistered_with(self.unregistered)),
            std::borrow::Cow::Borrowed,
        )
    }

    /// The write width.
    #[must_use]
    pub fn width(&self) -> ShardCount {
        self.metadata.as_ref().map_or(self.unregistered, |metadata| metadata.number_of_shards)
    }

    /// The generation, 0 for an absent item.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.metadata.as_ref().map_or(0, |metadata| metadata.generation)
    }
}
