//! One instance's observations of a key's demand, and of the effect of growing.
//!
//! The throttled share of the first attempts is not enough. Repetitions compete with first attempts
//! for the same capacity: after a few seconds of overload nearly every first attempt is throttled,
//! whatever the true ratio, and the key would grow many times too far. So an instance compares
//! first attempts with all accepted attempts. In the long run their ratio is capacity to demand.

use std::time::Duration;

use super::key::ShardCount;

/// First attempts count for one to two of these spans: long enough for a few samples of a slow
/// instance, short enough to show a step at once.
const SPAN: Duration = Duration::from_secs(2);
/// New shards are on partitions that have saved up a second's units, so observations in this time
/// are too good.
const SAVED_UP: Duration = Duration::from_secs(1);
/// With fewer first attempts, the effect of a growth is unknown.
pub(super) const SAMPLES: u64 = 20;
/// A growth has helped if it brings this share of its expected gain.
const LEAST_GAIN: f64 = 0.05;
/// This share of the first attempts is large.
const STILL_THROTTLED: f64 = 0.3;
/// The number of standard deviations by which a gain or a rejected share must be certain. Otherwise
/// the luckiest of many instances would decide for all.
pub(super) const CERTAIN: f64 = 3.0;

/// A smaller rejected share of the demand is left to repetitions.
pub(super) const NEGLIGIBLE: f64 = 0.01;
/// With this number of successes, the estimate of the demand is within a fourteenth...
const SURE_SUCCESSES: u64 = 200;
/// ...and this number of attempts with fewer successes shows that the demand is forty times what
/// its shards accept, or more.
const SURE_ATTEMPTS: u64 = 8_192;

/// The demand on a key and the accepted part of it, under one width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// First attempts: the demand.
    pub attempts: u64,
    /// First attempts that were throttled for the key range.
    pub throttled: u64,
    /// Attempts that succeeded, first attempts or not.
    pub accepted: u64,
}

impl Pressure {
    /// Counts a first attempt.
    #[must_use]
    pub const fn first_attempt(throttled: bool) -> Self {
        Self { attempts: 1, throttled: throttled as u64, accepted: !throttled as u64 }
    }

    /// Counts a repetition that succeeded.
    #[must_use]
    pub const fn late_success() -> Self {
        Self { attempts: 0, throttled: 0, accepted: 1 }
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            attempts: self.attempts + other.attempts,
            throttled: self.throttled + other.throttled,
            accepted: self.accepted + other.accepted,
        }
    }

    /// The smaller of both, in each field.
    const fn at_most(self, other: Self) -> Self {
        const fn lower(one: u64, other: u64) -> u64 {
            if one < other { one } else { other }
        }
        Self {
            attempts: lower(self.attempts, other.attempts),
            throttled: lower(self.throttled, other.throttled),
            accepted: lower(self.accepted, other.accepted),
        }
    }

    /// The accepted share of the demand, at most 1.
    #[must_use]
    pub fn accepted_share(self) -> f64 {
        if self.attempts == 0 {
            return 1.0;
        }
        self.accepted.min(self.attempts) as f64 / self.attempts as f64
    }

    /// The lower Wilson bound of the rejected share, `z` standard deviations below the observed
    /// value; the upper one if `z` is negative. (E. B. Wilson, 1927.)
    ///
    /// ```
    /// use sharding::internal::Pressure;
    /// let all_throttled = |attempts| Pressure { attempts, throttled: attempts, accepted: 0 };
    /// // Five throttles of five attempts do not vouch for "everything is throttled".
    /// assert!(all_throttled(5).rejected_bound(2.0) < 0.6);
    /// assert!(all_throttled(500).rejected_bound(2.0) > 0.99);
    /// ```
    #[must_use]
    pub fn rejected_bound(self, z: f64) -> f64 {
        if self.attempts == 0 {
            return 0.0;
        }
        let (p, n) = (1.0 - self.accepted_share(), self.attempts as f64);
        let centre = p + z * z / (2.0 * n);
        let spread = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        ((centre - spread) / (1.0 + z * z / n)).clamp(0.0, 1.0)
    }

    /// Whether to decide now, from the observations of one instance or of several. The demand is
    /// estimated from its accepted share, and the precision of the estimate grows with the number
    /// of successful attempts. A change that is based on a handful of attempts is too small, and
    /// costs a whole cooldown.
    #[must_use]
    pub fn is_sure(self) -> bool {
        let is_decisive = self.rejected_bound(CERTAIN) >= NEGLIGIBLE
            || self.rejected_bound(-CERTAIN) < NEGLIGIBLE;
        self.attempts >= SURE_ATTEMPTS || (self.accepted >= SURE_SUCCESSES && is_decisive)
    }

    /// Bounds of the accepted share, as a ratio of two counts. Even the luckiest of many instances
    /// is hardly outside by chance.
    fn certain_bounds(self) -> (f64, f64) {
        let ratio = self.accepted_share();
        let samples = self.attempts.max(1) as f64;
        let spread = CERTAIN * ((ratio + ratio * ratio) / samples).sqrt();
        ((ratio - spread).max(0.0), ratio + spread + CERTAIN * CERTAIN / (2.0 * samples))
    }
}

/// The input of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// First attempts under the present width, of the last seconds.
    pub pressure: Pressure,
    /// The last growth has certainly accepted more of the demand, and this instance observed it.
    pub growth_helped: bool,
    /// The pressure is a fair sample of the key's attempts, so it can be compared with an earlier
    /// one. An estimate from a report is not.
    pub is_sample: bool,
    /// The number of partitions of the table, if it is known: about one for each 1,000 write units
    /// of its warm throughput.
    pub partitions: Option<u32>,
}

impl Seen {
    /// Whether the observations are certain to show that at most a negligible share of the demand
    /// is rejected.
    #[must_use]
    pub fn is_calm(self) -> bool {
        self.pressure.rejected_bound(-CERTAIN) < NEGLIGIBLE && !self.is_behind()
    }

    /// Much of the first attempts is throttled, even if most are accepted in the end. Then a growth
    /// that should accept the whole demand has not helped, or a backlog does not drain.
    pub(super) fn is_behind(self) -> bool {
        let Pressure { attempts, throttled, .. } = self.pressure;
        attempts > 0 && throttled as f64 >= STILL_THROTTLED * attempts as f64
    }
}

impl From<Pressure> for Seen {
    fn from(pressure: Pressure) -> Self {
        Self { pressure, ..Self::default() }
    }
}

/// Follows the pressure on a key across its widths.
///
/// If a growth from w to w' relieves a key that is short of shards, the accepted share of its
/// demand grows like w'/w. If it hardly grows, the new shards are on partitions that are just as
/// full: the table is short, not the key.
#[derive(Debug, Clone, Default)]
pub struct PressureTracker {
    width: Option<ShardCount>,
    /// While the partitions of a new width use their saved units.
    unsettled_until: Option<Duration>,
    began: Duration,
    current: Pressure,
    previous: Pressure,
    /// The part of both that this instance has not yet added to the pool.
    unreported: Pressure,
    /// The first throttle of an overload was observed. It is not counted.
    is_overloaded: bool,
    /// The last growth: the width before, and an upper bound of the share that was accepted then.
    last_growth: Option<(ShardCount, f64)>,
    helped: bool,
}

impl PressureTracker {
    /// Learns the current write width, at an instant of a monotonic clock.
    pub fn observe_width(&mut self, width: ShardCount, now: Duration) {
        match self.width {
            Some(old) if old == width => return,
            Some(old) if old < width => {
                let seen = self.pressure(now);
                if seen.attempts >= SAMPLES {
                    self.last_growth = Some((old, seen.certain_bounds().1));
                }
                self.unsettled_until = Some(now + SAVED_UP);
            }
            Some(_) | None => self.last_growth = None,
        }
        self.width = Some(width);
        self.helped = false;
        self.forget(now);
    }

    /// Counts attempts that were placed under this width. Attempts under another width do not
    /// count.
    pub fn record(&mut self, width: ShardCount, attempts: Pressure, now: Duration) {
        if self.width.is_none_or(|known| known == width) {
            self.turn(now);
            if attempts.throttled > 0 && !self.is_overloaded {
                // An overload begins. What was accepted before, from the partitions' saved units,
                // would make it look small. The throttle that begins a sample is not part of it: of
                // a thousand instances, those with any throttle would look overloaded.
                self.forget(now);
                self.is_overloaded = true;
                return;
            }
            self.current = self.current.plus(attempts);
            self.unreported = self.unreported.plus(attempts);
        }
    }

    /// Discards the observations, because the table has more partitions now.
    pub fn forget(&mut self, now: Duration) {
        (self.current, self.previous, self.unreported) = Default::default();
        self.began = now;
    }

    /// The observations of the last seconds that were not taken before: each attempt is reported
    /// once.
    pub fn take_unreported(&mut self, now: Duration) -> Pressure {
        self.turn(now);
        std::mem::take(&mut self.unreported)
    }

    /// The observations of the last seconds.
    pub fn seen(&mut self, now: Duration) -> Seen {
        let pressure = self.pressure(now);
        if let (Some(width), Some((before, accepted_share))) = (self.width, self.last_growth)
            && self.unsettled_until.is_none()
            && pressure.attempts >= SAMPLES
        {
            let promised = f64::from(width.get()) / f64::from(before.get());
            let needed =
                (accepted_share * (1.0 + LEAST_GAIN * (promised - 1.0))).min(1.0 - f64::EPSILON);
            self.helped |= pressure.certain_bounds().0 >= needed;
        }
        Seen { pressure, growth_helped: self.helped, is_sample: true, partitions: None }
    }

    fn pressure(&mut self, now: Duration) -> Pressure {
        self.turn(now);
        self.current.plus(self.previous)
    }

    fn turn(&mut self, now: Duration) {
        if self.unsettled_until.take_if(|until| now >= *until).is_some() {
            self.forget(now);
        }
        let age = now.saturating_sub(self.began);
        if age >= SPAN {
            let ended = std::mem::take(&mut self.current);
            self.is_overloaded &= ended.throttled > 0;
            self.previous = if age < 2 * SPAN { ended } else { Pressure::default() };
            self.unreported = self.unreported.at_most(self.previous);
            self.began = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::tests::count;

    /// At this number of milliseconds: a new width, or attempts under a width and how many of them
    /// were throttled.
    type Row = (u64, u32, Option<(u64, u64)>);

    fn pressure((attempts, throttled): (u64, u64)) -> Pressure {
        Pressure { attempts, throttled, accepted: attempts - throttled }
    }

    fn seen(rows: &[Row]) -> Seen {
        let (mut tracker, mut now) = (PressureTracker::default(), Duration::ZERO);
        for &(at, width, attempts) in rows {
            now = Duration::from_millis(at);
            match attempts {
                Some(attempts) => tracker.record(count(width), pressure(attempts), now),
                None => tracker.observe_width(count(width), now),
            }
        }
        tracker.seen(now)
    }

    #[test]
    fn what_is_seen_is_of_the_last_seconds_and_the_present_width() {
        let rows: [(&[Row], (u64, u64)); 3] = [
            // Old attempts do not dilute a step.
            (
                &[
                    (0, 1, None),
                    (1_000, 1, Some((100_000, 0))),
                    (60_000, 1, Some((1, 1))),
                    (60_001, 1, Some((50, 45))),
                ],
                (50, 45),
            ),
            // An overload begins with its first throttle, which is not part of the sample.
            (
                &[
                    (0, 1, None),
                    (900, 1, Some((1_000, 0))),
                    (950, 1, Some((1, 1))),
                    (990, 1, Some((20, 19))),
                ],
                (20, 19),
            ),
            // Attempts under another width do not count.
            (&[(0, 4, None), (0, 1, Some((10, 10)))], (0, 0)),
        ];
        for (rows, expected) in rows {
            assert_eq!(seen(rows).pressure, pressure(expected), "{rows:?}");
        }
    }

    #[test]
    fn a_growth_helps_where_it_certainly_lets_more_in() {
        let rows = [
            // From one shard to eight. Before, 5 % was accepted; now this many of 200 are
            // throttled:
            (1, 8, 190, 200, 40, true),
            // Half is accepted: enough of a gain.
            (1, 8, 190, 200, 100, true),
            (1, 8, 190, 200, 180, false),
            // The same change with too few samples.
            (1, 8, 190, 19, 4, false),
            // A small growth on a table that is just as full.
            (60, 90, 160, 200, 158, false),
        ];
        for (before, after, throttled_before, attempts, throttled, helped) in rows {
            let begins = [(0, before, None), (999, before, Some((1, 1)))];
            let first = [(1_000, before, Some((200, throttled_before)))];
            let then = [(2_000, after, None), (3_000, after, Some((attempts, throttled)))];
            let seen = seen(&[&begins[..], &first, &then].concat());
            assert_eq!(
                seen.growth_helped, helped,
                "{before} to {after}: {throttled} of {attempts}"
            );
        }
    }

    #[test]
    fn repetitions_do_not_make_the_demand_look_greater() {
        // Twice the capacity, and every rejected write is repeated three times: far fewer than half
        // of the first attempts are accepted.
        let seen = Pressure { attempts: 1_000, throttled: 800, accepted: 500 };
        assert!(
            (seen.accepted_share() - 0.5).abs() < f64::EPSILON && seen.rejected_bound(1.0) < 0.5
        );
    }
}
