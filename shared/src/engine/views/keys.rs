//! What one instance knows of each key.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use crate::engine::{Inner, locked};
use crate::policy::decision::RECHECK_PERIOD;
use crate::policy::pressure::PressureTracker;
use crate::protocol::directory::KeyDigest;
use crate::protocol::drain::Pass;
use crate::protocol::metadata::ShardMetadata;
use crate::protocol::view::{Moment, OBSERVER_PAUSE, View};
use crate::table::StoredCopy;
use crate::values::key::{ShardNumber, SortKey};
use crate::values::spacing::Spacing;
use crate::values::throughput::WarmThroughput;
use crate::values::value::Item;

/// After this time, the actor of a change gives up and leaves it to others.
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);

/// The keys that an instance remembers. Each takes at most 2 KB of key and a history, so some ten
/// megabytes at worst.
pub(crate) const MAX_REMEMBERED_KEYS: usize = 4_096;
/// How long a write avoids a throttled shard, if it may go to another one.
const SHARD_AVOIDANCE_PERIOD: Duration = Duration::from_secs(1);
/// Deletions of a key a second that may read before they delete: enough for a queue, and too few to
/// heat a shard with reads.
const MAX_CHECKED_DELETIONS_PER_SECOND: u64 = 20;
/// How often the pause of an actor that completes the work of another one doubles.
const MAX_DOUBLINGS: u32 = 3;

pub(crate) type Running = Arc<tokio::sync::Mutex<()>>;

#[derive(Debug, Default)]
pub(crate) struct KeyState {
    pub(crate) digest: OnceLock<KeyDigest>,
    known: Mutex<Known>,
    /// Concurrent requests share one read of the key's item.
    pub(crate) flight: tokio::sync::Mutex<()>,
    pub(crate) is_registering: Running,
    pub(crate) is_repairing: Running,
    pub(crate) is_renewing: Running,
    pub(crate) is_taking_over: Running,
    pub(crate) is_scaling: Running,
    pub(crate) is_watching: Running,
    /// Concurrent writers poll once for a closing.
    pub(crate) opening_turn: tokio::sync::Mutex<()>,
    pub(crate) drain: tokio::sync::Mutex<Option<OwnDrain>>,
    /// Deletions that may read before they leave a tombstone, in this second of the monotonic
    /// clock.
    looks: AtomicU64,
    /// Unrecorded write units, and the minute of the last record: 0 before the first write of a key
    /// with several shards.
    pub(crate) units: AtomicU64,
    pub(crate) units_noted: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) view: Option<Arc<View>>,
    /// As this instance last read or wrote it.
    pub(crate) record: Option<Arc<Record>>,
    /// The key had an item once. It may change, but never disappear.
    pub(crate) was_registered: bool,
    /// Since when the page is behind the known state of the key.
    pub(crate) behind_since: Option<Moment>,
    /// The key has no item. This was checked, so none is missing.
    pub(crate) is_new: bool,
    pub(crate) pressure: PressureTracker,
    /// The table's number at the time of these observations, if it was known.
    partitions: Option<u32>,
    /// The mean size of an item on the last pages.
    pub(crate) item_bytes: Option<f64>,
    pub(crate) spacing: Spacing,
    pub(super) throttled_at: HashMap<ShardNumber, Moment>,
    /// When this instance makes its next scaling decision.
    pub(crate) quiet: Option<Quiet>,
    pub(crate) conflicts: Conflicts,
    /// Since when other keys fill the key's partitions.
    pub(crate) crowded_since: Option<Moment>,
    /// The generation of the pool of observations that has this instance's rate, and when it began.
    pub(crate) pool: (u64, u64),
    /// The largest rate of the key in the last seconds, and when it was observed. A pool says less
    /// until most instances have added to it.
    pub(crate) rate: Option<(f64, Moment)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// A key without an item has the default.
    pub(crate) metadata: ShardMetadata,
    pub(crate) exists: bool,
    /// Taken before the request was sent.
    pub(crate) asked_at: Moment,
}

impl Record {
    pub(crate) fn view(&self) -> View {
        View { layout: self.metadata.layout(), asked_at: self.asked_at }
    }

    pub(crate) fn stored_metadata(&self) -> Option<&ShardMetadata> {
        self.exists.then_some(&self.metadata)
    }
}

/// Why a throttled instance makes no scaling decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quiet {
    pub(crate) since: Moment,
    pub(crate) lasts: Duration,
    /// The table's at that time, if it was known. With another one, the decision is out of date.
    pub(crate) warm: Option<WarmThroughput>,
    /// The table was short of partitions, and not the key of shards.
    pub(crate) is_short: bool,
}

impl Quiet {
    /// On a table with this warm throughput. The time for which a process was suspended counts,
    /// too.
    pub(crate) fn holds(&self, warm: Option<WarmThroughput>, now: Moment) -> bool {
        self.warm == warm && now.since(self.since).is_some_and(|age| age < self.lasts)
    }
}

impl Known {
    /// The largest rate of the last seconds, of which this is the latest.
    pub(crate) fn largest_rate(&mut self, latest: f64, now: Moment) -> f64 {
        let is_recent = |at| now.since(at).is_some_and(|age| age < RECHECK_PERIOD);
        let recent = self.rate.filter(|(rate, at)| *rate > latest && is_recent(*at));
        self.rate.insert(recent.unwrap_or((latest, now))).0
    }

    /// Discards observations with fewer partitions: they would make the demand look larger.
    pub(crate) fn observe_partitions(&mut self, partitions: Option<u32>, now: Duration) {
        if partitions.is_some() && partitions != self.partitions {
            self.pressure.forget(now);
            self.partitions = partitions;
        }
    }
}

impl KeyState {
    pub(crate) fn is_changing(&self) -> bool {
        // A task has its own reference. Locking here could keep one from starting.
        [&self.is_scaling, &self.is_taking_over].into_iter().any(|it| Arc::strong_count(it) > 1)
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        locked(&self.known)
    }

    pub(crate) fn learn_page(&self, bytes: usize, after: Option<&SortKey>, items: &[Item]) {
        let Some(last) = items.last() else { return };
        let (mean, mut known) = (bytes as f64 / items.len() as f64, self.known());
        known.item_bytes = Some(known.item_bytes.map_or(mean, |before| (before + mean) / 2.0));
        if let Some(after) = after {
            known.spacing.learn(after, &last.sort_key, items.len());
        }
    }

    pub(crate) fn note_throttled(&self, shard: ShardNumber, now: Moment) {
        self.known().throttled_at.insert(shard, now);
    }

    /// How long to avoid a shard: zero if it was not throttled a moment ago.
    pub(crate) fn heat(&self, shard: ShardNumber, now: Moment) -> Duration {
        let throttled_at = self.known().throttled_at.get(&shard).copied();
        let age = throttled_at.and_then(|at| now.since(at));
        age.map_or(Duration::ZERO, |age| SHARD_AVOIDANCE_PERIOD.saturating_sub(age))
    }

    pub(crate) fn may_look(&self, now: Moment) -> bool {
        let second = now.monotonic.as_secs() << 8;
        let count = |before: u64| {
            let counted = if before & !0xFF == second { before + 1 } else { second + 1 };
            (counted & 0xFF <= MAX_CHECKED_DELETIONS_PER_SECOND).then_some(counted)
        };
        self.looks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }
}

/// What this instance keeps of a drain between two calls.
#[derive(Debug)]
pub(crate) struct OwnDrain {
    /// Epoch seconds.
    pub(crate) began: u64,
    pub(crate) pass: Pass<SortKey, StoredCopy>,
    pub(crate) next: (ShardNumber, Option<SortKey>),
    /// The remembered copies are deleted before more is read.
    pub(crate) deletes: bool,
    /// This round over the sources copied or found something, so another must follow.
    pub(crate) found: bool,
    /// When an item that is left to expire will have expired.
    pub(crate) expiring_until: Option<u64>,
}

impl OwnDrain {
    /// Begins a pass under this instance's own mark.
    pub(crate) fn begin(marked: &ShardMetadata, inner: &Inner, now: u64) -> Self {
        let pass = Pass::begin(marked, inner.always_first().is_some());
        let next = (ShardNumber::FIRST, None);
        Self { began: now, pass, next, deletes: false, found: false, expiring_until: None }
    }
}

/// The conflicts in one change of a key. An actor that completes the work of another one takes its
/// closing over, or publishes its change. The other may have stopped, or its page may answer late.
/// So the pause doubles with each conflict. Otherwise, actors would reject each other's opens, and
/// write the same entry again and again.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    era: u64,
    generation: u64,
    count: u32,
}

impl Conflicts {
    /// Returns the pause before the takeover of a closing, which is also the longest random pause
    /// on top. A later generation of an era is a conflict: the closing was taken over.
    pub(crate) fn observe(&mut self, era: u64, generation: u64) -> Duration {
        if self.era != era {
            *self = Self { era, generation, count: 0 };
        } else if self.generation < generation {
            self.generation = generation;
            self.count += 1;
        }
        self.pause()
    }

    /// A page is behind an item, which another actor may be publishing. Returns the longest random
    /// pause before this one publishes it, too.
    pub(crate) fn note_behind(&mut self) -> Duration {
        self.count += 1;
        self.pause()
    }

    fn pause(&self) -> Duration {
        OBSERVER_PAUSE * (1 << self.count.min(MAX_DOUBLINGS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pressure::Pressure;
    use crate::values::key::tests::count;

    fn at(monotonic: u64, wall: u64) -> Moment {
        Moment { monotonic: Duration::from_secs(monotonic), wall: Duration::from_secs(wall) }
    }

    #[test]
    fn an_instance_is_quiet_for_a_time_on_both_clocks_and_one_table() {
        let warm = |write_units| Some(WarmThroughput { write_units, read_units: 12_000 });
        let quiet = Quiet {
            since: at(10, 100),
            lasts: Duration::from_secs(5),
            warm: warm(4_000),
            is_short: true,
        };
        let rows = [
            (warm(4_000), at(14, 104), true),
            (warm(4_000), at(15, 105), false),
            // The process was suspended.
            (warm(4_000), at(11, 700), false),
            // The clock was set back, so the time is unknown.
            (warm(4_000), at(11, 99), false),
            (warm(24_000), at(11, 101), false),
            (None, at(11, 101), false),
        ];
        for (warm, now, expected) in rows {
            assert_eq!(quiet.holds(warm, now), expected, "{warm:?} {now:?}");
        }
    }

    #[test]
    fn takeovers_and_repairs_of_a_change_share_one_pause() {
        let mut conflicts = Conflicts::default();
        let rows = [
            (Some((1, 2)), 500),
            (Some((1, 2)), 500),
            (Some((1, 3)), 1_000),
            (None, 2_000),
            (Some((1, 3)), 2_000),
            (Some((1, 4)), 4_000),
            (None, 4_000),
            (Some((2, 5)), 500),
            (None, 1_000),
        ];
        for (row, (observed, millis)) in rows.into_iter().enumerate() {
            let pause = match observed {
                Some((era, generation)) => conflicts.observe(era, generation),
                None => conflicts.note_behind(),
            };
            assert_eq!(pause, Duration::from_millis(millis), "row {row}");
        }
    }

    #[test]
    fn what_was_seen_on_other_partitions_is_forgotten() {
        let (mut known, now) = (Known::default(), Duration::from_secs(10));
        known.pressure.observe_width(count(8), now);
        known.pressure.record(count(8), Pressure::first_attempt(1, true), now);
        let half =
            Pressure { writes: 200, attempts: 200, throttled: 100, accepted: 100, throttles: 100 };
        for (partitions, left) in
            [(None, 201), (Some(4), 0), (Some(4), 200), (None, 400), (Some(4), 600), (Some(24), 0)]
        {
            known.pressure.record(count(8), half, now);
            known.observe_partitions(partitions, now);
            assert_eq!(known.pressure.seen(now).pressure.attempts, left, "{partitions:?}");
        }
    }
}
