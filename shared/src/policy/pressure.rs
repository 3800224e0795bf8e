//! One instance's observations of a key's writes, in write units.
//!
//! Two shares say different things. The *throttled* share of the first attempts says that
//! something is wrong, whatever the clients do. The *rejected* share says how large the demand is:
//! repetitions compete with first attempts for the same capacity, so it compares the first attempts
//! with all accepted ones. Clients that wait for a response send nothing new meanwhile: of their
//! writes, nothing is rejected in the end, and much may be throttled.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::policy::decision::RECHECK_PERIOD;
use crate::values::key::ShardCount;

/// Observations count for one to two of these spans: long enough for a few writes of a slow
/// instance, short enough to show a step at once. Those in the pool count for one. Half of it is
/// the shortest time that tells a rate, and the second in which new shards, on partitions that have
/// saved up units, look too good.
pub const OBSERVATION_PERIOD: Duration = Duration::from_secs(2);
/// The longest that a throttled writer waits for more observations, and the shortest time of which
/// they tell a rate, because a few writes may come at once.
pub const MAX_SAMPLING_PERIOD: Duration = Duration::from_millis(500);
/// Standard deviations by which a share must be certain. Otherwise the unluckiest of many instances
/// would decide for all.
pub(super) const CERTAIN_DEVIATIONS: f64 = 3.0;
/// A key is calm while less than this share of its first attempts is throttled.
pub(super) const NEGLIGIBLE_SHARE: f64 = 0.01;
/// With this number of writes, the demand is known within a few per cent if half is rejected, and
/// within a third if it is fifty times what the shards take.
const SUFFICIENT_WRITES: u64 = 500;
/// Only instances that meet throttles say so, and some have just decided. Their observations stand
/// for all writes of a key if they are at least of this share.
const MIN_OBSERVED_SHARE: f64 = 0.4;
/// Each of few hot items is throttled at least this many times, on average.
const MIN_THROTTLES_PER_ITEM: f64 = 4.0;

/// The writes of a key under one width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// First attempts.
    pub writes: u64,
    /// Their write units: the demand.
    pub attempts: u64,
    /// The units of first attempts that were throttled for the key range.
    pub throttled: u64,
    /// The units of attempts that succeeded, first attempts or not.
    pub accepted: u64,
    /// The units of all throttled attempts.
    pub throttles: u64,
}

impl Pressure {
    /// Counts a first attempt of this many units.
    #[must_use]
    pub const fn first_attempt(units: u64, throttled: bool) -> Self {
        let (throttled, accepted) = if throttled { (units, 0) } else { (0, units) };
        Self { writes: 1, attempts: units, throttled, accepted, throttles: throttled }
    }

    /// Counts a repetition of this many units.
    #[must_use]
    pub const fn repetition(units: u64, throttled: bool) -> Self {
        Self { writes: 0, attempts: 0, throttled: 0, ..Self::first_attempt(units, throttled) }
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            writes: self.writes + other.writes,
            attempts: self.attempts + other.attempts,
            throttled: self.throttled + other.throttled,
            accepted: self.accepted + other.accepted,
            throttles: self.throttles + other.throttles,
        }
    }

    fn at_most(self, other: Self) -> Self {
        Self {
            writes: self.writes.min(other.writes),
            attempts: self.attempts.min(other.attempts),
            throttled: self.throttled.min(other.throttled),
            accepted: self.accepted.min(other.accepted),
            throttles: self.throttles.min(other.throttles),
        }
    }

    /// The share of the demand that is rejected in the end.
    #[must_use]
    pub fn rejected_share(self) -> f64 {
        1.0 - self.accepted.min(self.attempts) as f64 / self.attempts.max(1) as f64
    }

    /// A bound of the throttled share of the first attempts, this many standard deviations below
    /// the observed value; above it if negative: five throttles of five attempts do not vouch for
    /// "everything is throttled". (E. B. Wilson, 1927.)
    #[must_use]
    pub fn throttled_bound(self, z: f64) -> f64 {
        wilson(self.throttled as f64 / self.attempts.max(1) as f64, self.writes as f64, z)
    }

    /// A bound of the rejected share, as [`throttled_bound`](Self::throttled_bound).
    #[must_use]
    pub fn rejected_bound(self, z: f64) -> f64 {
        wilson(self.rejected_share(), self.writes as f64, z)
    }

    /// Certainly more than a negligible share of the first attempts is throttled.
    #[must_use]
    pub fn is_throttled(self) -> bool {
        self.throttled_bound(CERTAIN_DEVIATIONS) >= NEGLIGIBLE_SHARE
    }

    /// Certainly no more than that.
    #[must_use]
    pub fn is_calm(self) -> bool {
        self.throttled_bound(-CERTAIN_DEVIATIONS) < NEGLIGIBLE_SHARE
    }

    fn is_undecided(self) -> bool {
        !self.is_throttled() && !self.is_calm()
    }

    /// Whether more observations would hardly change the decision.
    #[must_use]
    pub fn is_sure(self) -> bool {
        self.writes >= SUFFICIENT_WRITES && (self.is_throttled() || self.is_calm())
    }

    /// Whether a backlog drains: a twentieth more is accepted than arrives.
    pub(super) const fn is_draining(self) -> bool {
        self.accepted.saturating_mul(20) > self.attempts.saturating_mul(21)
    }

    /// The share of all attempts that is throttled, in percent. It falls with every growth that
    /// helps, whether clients wait or not.
    pub(super) fn throttled_percent(self) -> u32 {
        let all = (self.throttles + self.accepted).max(1);
        u32::try_from(self.throttles * 100 / all).unwrap_or(100)
    }
}

fn wilson(share: f64, samples: f64, z: f64) -> f64 {
    if samples < 1.0 {
        return if z > 0.0 { 0.0 } else { 1.0 };
    }
    let centre = share + z * z / (2.0 * samples);
    let spread = z * (share * (1.0 - share) / samples + z * z / (4.0 * samples * samples)).sqrt();
    ((centre - spread) / (1.0 + z * z / samples)).clamp(0.0, 1.0)
}

/// The input of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Seen {
    /// The writes of the last seconds, under the present width.
    pub pressure: Pressure,
    /// Write units a second of the key's first attempts, of all instances that observe throttles.
    pub rate: f64,
    /// The number of partitions of the table, if it is known: about one for each 1,000 write units
    /// of its warm throughput.
    pub partitions: Option<u32>,
    /// The number of items that the throttled writes are of, if it is certain that they are few.
    pub hot_items: Option<u32>,
}

impl Seen {
    /// The same observations, if this is the key's rate. If they are of a small part of its writes,
    /// the others met no throttle, or more of the instances would have added theirs.
    #[must_use]
    pub fn completed(self, rate: f64) -> Self {
        let unseen = |of: u64| (of as f64 * (rate / self.rate - 1.0)) as u64;
        let mut pressure = self.pressure;
        if self.rate > 0.0 && !self.is_of(rate) {
            let units = unseen(pressure.attempts);
            let writes = unseen(pressure.writes);
            let accepted =
                Pressure { writes, attempts: units, accepted: units, ..Pressure::default() };
            pressure = pressure.plus(accepted);
        }
        Self { pressure, rate: rate.max(self.rate), ..self }
    }

    /// Whether they are of more than a small part of the key's writes, if this is its rate.
    #[must_use]
    pub fn is_of(self, rate: f64) -> bool {
        self.rate >= MIN_OBSERVED_SHARE * rate
    }
}

/// Follows the writes of a key under its present width.
#[derive(Debug, Clone, Default)]
pub struct PressureTracker {
    width: Option<ShardCount>,
    /// While the partitions of a new width use their saved units.
    unsettled_until: Option<Duration>,
    began: Duration,
    current: Pressure,
    previous: Pressure,
    previous_began: Duration,
    /// The spans before both, and when they began. They count while all observations since then
    /// show neither calm nor throttles with certainty, so that a key of few writes is relieved of a
    /// small throttled share, too.
    undecided: Option<(Pressure, Duration)>,
    /// The part of both that this instance has not yet added to the pool.
    unreported: Pressure,
    /// An overload lasts.
    is_overloaded: bool,
    /// Its first throttle began the observations. Otherwise a change did, during which writes have
    /// waited that come at once afterwards.
    is_since_onset: bool,
    meter: RateMeter,
    items: ThrottledItems,
    /// The part of them that this instance has not yet added to the pool.
    unreported_items: ThrottledItems,
}

/// Counts units over one to two spans.
#[derive(Debug, Clone, Default)]
struct RateMeter {
    began: Option<Duration>,
    current: u64,
    /// The units of the span before, and its length.
    previous: (u64, Duration),
}

impl RateMeter {
    fn add(&mut self, units: u64, now: Duration) {
        self.turn(now);
        self.current += units;
    }

    fn rate(&mut self, now: Duration) -> f64 {
        let age = self.turn(now);
        let time = (age + self.previous.1).max(OBSERVATION_PERIOD / 2);
        (self.current + self.previous.0) as f64 / time.as_secs_f64()
    }

    /// The time since the span began. A new one begins if it is too old.
    fn turn(&mut self, now: Duration) -> Duration {
        let age = now.saturating_sub(*self.began.get_or_insert(now));
        if age < OBSERVATION_PERIOD {
            return age;
        }
        let ended = (std::mem::take(&mut self.current), age);
        self.previous = if age < 2 * OBSERVATION_PERIOD { ended } else { (0, OBSERVATION_PERIOD) };
        self.began = Some(now);
        Duration::ZERO
    }
}

/// The items of throttled first attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThrottledItems {
    /// The hashes of the items, of 64 values. Each is a bit.
    pub hashes: u64,
    /// The attempts.
    pub attempts: u64,
}

impl ThrottledItems {
    fn record(&mut self, item: &impl Hash) {
        let mut hasher = DefaultHasher::new();
        item.hash(&mut hasher);
        self.hashes |= 1 << (hasher.finish() % u64::from(u64::BITS));
        self.attempts += 1;
    }

    /// Their number, if it is certain that they are few.
    #[must_use]
    pub fn few(self) -> Option<u32> {
        // Some items share a hash. (K.-Y. Whang et al., "A linear-time probabilistic counting
        // algorithm", 1990.)
        let (hashes, all) = (self.hashes.count_ones(), f64::from(u64::BITS));
        let items = -all * (1.0 - f64::from(hashes) / all).ln();
        let is_certain = self.attempts as f64 >= items * MIN_THROTTLES_PER_ITEM;
        (hashes > 0 && is_certain).then_some(items as u32)
    }
}

impl PressureTracker {
    /// Learns the current write width, at an instant of a monotonic clock.
    pub fn observe_width(&mut self, width: ShardCount, now: Duration) {
        if self.width == Some(width) {
            return;
        }
        let is_wider = self.width.is_some_and(|old| old < width);
        self.unsettled_until = is_wider.then_some(now + OBSERVATION_PERIOD / 2);
        self.width = Some(width);
        self.forget(now);
        self.is_since_onset = false;
    }

    /// Counts attempts that were placed under this width. Attempts under another width do not
    /// count.
    pub fn record(&mut self, width: ShardCount, attempts: Pressure, now: Duration) {
        if self.width.is_none_or(|known| known == width) {
            self.turn(now);
            if attempts.throttled > 0 && !self.is_overloaded {
                // An overload begins. What was accepted before, from the partitions' saved units,
                // would make it look small.
                self.forget(now);
                (self.is_overloaded, self.is_since_onset) = (true, true);
            }
            self.current = self.current.plus(attempts);
            self.unreported = self.unreported.plus(attempts);
        }
        self.meter.add(attempts.attempts, now);
    }

    /// Notes the item of a throttled first attempt, by a hash.
    pub fn record_item(&mut self, item: &impl Hash) {
        self.items.record(item);
        self.unreported_items.record(item);
    }

    /// Discards the observations, because the table has more partitions now.
    pub fn forget(&mut self, now: Duration) {
        (self.current, self.previous, self.unreported) = Default::default();
        self.undecided = None;
        (self.items, self.unreported_items) = Default::default();
        self.began = now;
    }

    /// The observations of the last seconds that were not taken before: each attempt is reported
    /// once.
    pub fn take_unreported(&mut self, now: Duration) -> (Pressure, ThrottledItems) {
        self.turn(now);
        (std::mem::take(&mut self.unreported), std::mem::take(&mut self.unreported_items))
    }

    /// The observations of the last seconds.
    pub fn seen(&mut self, now: Duration) -> Seen {
        self.turn(now);
        let latest = self.current.plus(self.previous);
        let undecided = self.undecided.filter(|_| latest.is_undecided());
        Seen {
            pressure: undecided.map_or(latest, |(before, _)| before.plus(latest)),
            rate: self.meter.rate(now).max(self.rate_since_began(now)),
            partitions: None,
            hot_items: self.items.few(),
        }
    }

    /// The rate since the overload began, which may be long after the meter began. The write that
    /// began it says nothing about a rate.
    fn rate_since_began(&self, now: Duration) -> f64 {
        let Pressure { writes, attempts, .. } = self.current;
        let after_first = attempts as f64 * (1.0 - 1.0 / writes.max(1) as f64);
        let units = if self.is_since_onset { after_first } else { 0.0 };
        units / now.saturating_sub(self.began).max(MAX_SAMPLING_PERIOD).as_secs_f64()
    }

    fn turn(&mut self, now: Duration) {
        if self.unsettled_until.take_if(|until| now >= *until).is_some() {
            self.forget(now);
        }
        let age = now.saturating_sub(self.began);
        if age >= OBSERVATION_PERIOD {
            let ended = std::mem::take(&mut self.current);
            self.is_overloaded &= ended.throttles > 0;
            let is_recent = age < 2 * OBSERVATION_PERIOD;
            let (before, began) =
                self.undecided.unwrap_or((Pressure::default(), self.previous_began));
            let before = before.plus(self.previous);
            let keeps = is_recent
                && now.saturating_sub(began) < RECHECK_PERIOD
                && before.plus(ended).is_undecided();
            self.undecided = keeps.then_some((before, began));
            self.previous = if is_recent { ended } else { Pressure::default() };
            self.previous_began = self.began;
            // What was observed before is too old to be reported.
            self.unreported = self.unreported.at_most(self.previous);
            (self.items, self.unreported_items) = Default::default();
            self.began = now;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::values::key::tests::count;

    /// Writes of one unit, of which so many are throttled and never repeated.
    pub(in crate::policy) fn pressure((writes, throttled): (u64, u64)) -> Pressure {
        let accepted = writes - throttled;
        Pressure { writes, attempts: writes, throttled, accepted, throttles: throttled }
    }

    /// At this number of milliseconds: a new width, or writes under a width and how many of them
    /// were throttled.
    type Row = (u64, u32, Option<(u64, u64)>);

    fn seen(rows: &[Row]) -> Seen {
        let (mut tracker, mut now) = (PressureTracker::default(), Duration::ZERO);
        for &(at, width, writes) in rows {
            now = Duration::from_millis(at);
            match writes {
                Some(writes) => tracker.record(count(width), pressure(writes), now),
                None => tracker.observe_width(count(width), now),
            }
        }
        tracker.seen(now)
    }

    #[test]
    fn observations_are_of_the_last_seconds_and_the_present_width() {
        let rows: [(&[Row], (u64, u64)); 4] = [
            // Old writes do not dilute a step.
            (
                &[
                    (0, 1, None),
                    (1_000, 1, Some((100_000, 0))),
                    (60_000, 1, Some((1, 1))),
                    (60_001, 1, Some((50, 45))),
                ],
                (51, 46),
            ),
            // An overload begins with its first throttle.
            (
                &[(900, 1, Some((1_000, 0))), (950, 1, Some((1, 1))), (990, 1, Some((20, 19)))],
                (21, 20),
            ),
            // Writes under another width do not count.
            (&[(0, 4, None), (0, 1, Some((10, 10)))], (0, 0)),
            // Nor do those of the first second of a wider one.
            (
                &[(0, 1, None), (10, 4, None), (500, 4, Some((50, 5))), (1_011, 4, Some((7, 2)))],
                (7, 2),
            ),
        ];
        for (rows, expected) in rows {
            assert_eq!(seen(rows).pressure, pressure(expected), "{rows:?}");
        }
    }

    #[test]
    fn a_few_throttles_do_not_vouch_for_all_attempts() {
        let bound = |writes| pressure((writes, writes)).throttled_bound(2.0);
        assert!(bound(5) < 0.6 && bound(500) > 0.99);
    }

    #[test]
    fn a_small_throttled_share_is_certain_after_some_seconds() {
        let throttled_at = |of_a_hundred: u64, seconds: u64| {
            let rows: Vec<Row> =
                (0..seconds * 2).map(|half| (half * 500, 1, Some((100, of_a_hundred)))).collect();
            seen(&rows).pressure.is_throttled()
        };
        assert!(!throttled_at(2, 4), "2 % of 800 writes may be chance");
        assert!(throttled_at(2, 10), "2 % of 2,000 writes are not");
        assert!(!throttled_at(1, 30), "this share is negligible");
        // A step is not diluted by what was uncertain before.
        let mut rows: Vec<Row> = (0..18).map(|half| (half * 500, 1, Some((100, 2)))).collect();
        rows.extend([(9_000, 1, Some((100, 90))), (9_500, 1, Some((100, 90)))]);
        let share = seen(&rows).pressure.throttled_bound(0.0);
        assert!(share > 0.2, "{share}");
    }

    #[test]
    fn a_rate_is_of_the_time_in_which_it_was_observed() {
        // 100 units every 100 ms, throttled from the fifth second on.
        let mut tracker = PressureTracker::default();
        tracker.observe_width(count(1), Duration::ZERO);
        for step in 0..80 {
            let now = Duration::from_millis(step * 100);
            let throttled = if step < 50 { 0 } else { 80 };
            tracker.record(count(1), pressure((100, throttled)), now);
            if step > 10 {
                let rate = tracker.seen(now).rate;
                assert!((800.0..=1_200.0).contains(&rate), "{step}: {rate}");
            }
        }
        // A slow instance: a write every three seconds.
        let mut tracker = PressureTracker::default();
        for step in 0..5 {
            tracker.record(count(1), pressure((1, 1)), Duration::from_secs(step * 3));
        }
        let rate = tracker.seen(Duration::from_secs(12)).rate;
        assert!((0.2..=0.7).contains(&rate), "{rate}");
    }

    #[test]
    fn each_attempt_is_reported_once() {
        let mut tracker = PressureTracker::default();
        let at = Duration::from_millis;
        tracker.record(count(1), pressure((10, 4)), at(0));
        tracker.record_item(&"item");
        let (seen, items) = tracker.take_unreported(at(10));
        assert_eq!((seen, items.attempts), (pressure((10, 4)), 1));
        tracker.record(count(1), pressure((6, 3)), at(20));
        let none = ThrottledItems::default();
        assert_eq!(tracker.take_unreported(at(2_010)), (pressure((6, 3)), none));
        assert_eq!(tracker.take_unreported(at(2_020)), (Pressure::default(), none));
        // What was not taken in time is too old.
        tracker.record(count(1), pressure((6, 3)), at(2_100));
        assert_eq!(tracker.take_unreported(at(9_000)), (Pressure::default(), none));
    }

    #[test]
    fn repetitions_do_not_make_the_demand_look_greater() {
        // Twice the capacity, and every rejected write is repeated three times: far fewer than half
        // of the first attempts are accepted.
        let seen =
            Pressure { writes: 100, attempts: 100, throttled: 80, accepted: 50, throttles: 200 };
        assert!((seen.rejected_share() - 0.5).abs() < f64::EPSILON, "{seen:?}");
        assert_eq!(seen.throttled_percent(), 80);
        // Clients that wait: nothing is rejected, and it is no calm key.
        let waiting = Pressure { accepted: 100, ..seen };
        assert!(waiting.rejected_share() < f64::EPSILON && waiting.is_throttled(), "{waiting:?}");
    }

    #[test]
    fn few_items_are_known_by_how_often_each_is_throttled() {
        let items_of = |distinct: u32| {
            let mut tracker = PressureTracker::default();
            for write in 0..400u32 {
                tracker.record(count(1), pressure((1, 1)), Duration::from_millis(write.into()));
                tracker.record_item(&(write % distinct));
            }
            tracker.seen(Duration::from_millis(400)).hot_items
        };
        assert_eq!([3, 8, 400].map(items_of), [Some(3), Some(8), None]);
        let of_many = ThrottledItems { hashes: (1 << 30) - 1, attempts: 40 };
        assert_eq!(of_many.few(), None, "nearly each write is of another item");
    }

    #[test]
    fn writes_that_nobody_observes_met_no_throttle() {
        let seen = Seen { pressure: pressure((100, 40)), rate: 100.0, ..Seen::default() };
        let shares = |of: Seen| (of.rate, of.pressure.writes, of.pressure.throttled);
        assert_eq!(shares(seen.completed(50.0)), (100.0, 100, 40), "it was less before");
        assert_eq!(shares(seen.completed(200.0)), (200.0, 100, 40), "half is enough");
        assert_eq!(shares(seen.completed(1_000.0)), (1_000.0, 1_000, 40));
        let nothing = Seen::default().completed(1_000.0);
        assert_eq!(nothing.pressure, Pressure::default());
    }

    #[test]
    fn the_write_that_begins_an_overload_is_no_rate() {
        let (mut tracker, ms) = (PressureTracker::default(), Duration::from_millis);
        for at in [0, 300, 400, 500] {
            tracker.record(count(1), pressure((1, 1)), ms(at));
        }
        assert_eq!(tracker.seen(ms(500)).rate, 6.0, "three in half a second");
    }

    #[test]
    fn writes_that_have_waited_for_a_change_do_not_count_as_a_rate() {
        let (mut tracker, ms) = (PressureTracker::default(), Duration::from_millis);
        for at in (0..1_000).step_by(10) {
            tracker.record(count(1), pressure((1, 1)), ms(at));
        }
        assert_eq!(tracker.seen(ms(1_000)).rate, 100.0);
        tracker.observe_width(count(8), ms(2_000));
        tracker.record(count(8), pressure((100, 10)), ms(2_000));
        for at in (2_000..2_500).step_by(10) {
            tracker.record(count(8), pressure((1, 0)), ms(at));
        }
        assert_eq!(tracker.seen(ms(2_500)).rate, 100.0);
    }
}
