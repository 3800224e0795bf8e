//! What one instance saw of a key's first attempts, and whether growing has helped.

use std::time::Duration;

use super::key::ShardCount;

/// First attempts count for one to two of these spans: long enough for a few samples of a slow instance, short enough to see a step at once.
const SPAN: Duration = Duration::from_secs(2);
/// Fewer first attempts say nothing of a growth's effect.
const SAMPLES: u64 = 10;
/// Of the gain that a growth promised, the part that it must bring to count as a help.
const LEAST_GAIN: f64 = 0.25;

/// Where this part is let in, whatever was wrong is cured.
const CALM: f64 = 0.9;

/// First attempts of a key, under one width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// First attempts.
    pub attempts: u64,
    /// First attempts that were throttled for the key range.
    pub throttled: u64,
}

impl Pressure {
    /// Counts one first attempt.
    pub const fn record(&mut self, throttled: bool) {
        self.attempts += 1;
        self.throttled += throttled as u64;
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { attempts: self.attempts + other.attempts, throttled: self.throttled + other.throttled }
    }

    /// The fraction that was let in; 1 where nothing was tried.
    #[must_use]
    pub fn accepted(self) -> f64 {
        if self.attempts == 0 {
            return 1.0;
        }
        1.0 - self.throttled.min(self.attempts) as f64 / self.attempts as f64
    }

    /// The lower Wilson bound of the throttled fraction, `z` standard deviations below what was seen. (E. B. Wilson, 1927.)
    ///
    /// ```
    /// use sharding::Pressure;
    /// // Five throttles of five attempts do not vouch for "everything is throttled".
    /// assert!(Pressure { attempts: 5, throttled: 5 }.lower_bound(2.0) < 0.6);
    /// assert!(Pressure { attempts: 500, throttled: 500 }.lower_bound(2.0) > 0.99);
    /// ```
    #[must_use]
    pub fn lower_bound(self, z: f64) -> f64 {
        if self.attempts == 0 {
            return 0.0;
        }
        let n = self.attempts as f64;
        let p = 1.0 - self.accepted();
        let centre = p + z * z / (2.0 * n);
        let spread = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        ((centre - spread) / (1.0 + z * z / n)).clamp(0.0, 1.0)
    }
}

/// What a decision is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// First attempts under the present width, of the last seconds.
    pub pressure: Pressure,
    /// How many growths in a row have not helped; `None` where this instance has not seen any.
    pub ineffective_growths: Option<u32>,
}

impl From<Pressure> for Seen {
    fn from(pressure: Pressure) -> Self {
        Self { pressure, ineffective_growths: None }
    }
}

/// Follows the pressure on a key across its widths.
///
/// If a growth from w to w' cures a key that is short of shards, the part of its demand that is let in grows like w'/w. If it hardly
/// grows, the shards have landed on partitions that are just as full: the table is short, not the key.
#[derive(Debug, Clone, Default)]
pub struct PressureTracker {
    width: Option<ShardCount>,
    began: Duration,
    current: Pressure,
    previous: Pressure,
    /// The last growth that is not judged yet: the width before, and what was let in then.
    unjudged: Option<(ShardCount, f64)>,
    ineffective: Option<u32>,
}

impl PressureTracker {
    /// Learns the write width in force, at an instant of a monotonic clock.
    pub fn observe_width(&mut self, width: ShardCount, now: Duration) {
        match self.width {
            Some(old) if old == width => return,
            Some(old) if old < width => {
                let seen = self.pressure(now);
                if seen.attempts >= SAMPLES {
                    self.unjudged = Some((old, seen.accepted()));
                }
            }
            Some(_) | None => self.unjudged = None,
        }
        self.width = Some(width);
        (self.current, self.previous, self.began) = (Pressure::default(), Pressure::default(), now);
    }

    /// Counts a first attempt that was placed under this width; one of another width says nothing.
    pub fn record(&mut self, width: ShardCount, throttled: bool, now: Duration) {
        if self.width.is_none_or(|known| known == width) {
            self.turn(now);
            self.current.record(throttled);
        }
    }

    /// What was seen in the last seconds.
    pub fn seen(&mut self, now: Duration) -> Seen {
        let pressure = self.pressure(now);
        if pressure.attempts >= SAMPLES {
            let unjudged = self.unjudged.take().zip(self.width);
            let promise = unjudged.map(|((before, accepted), width)| {
                let promised = f64::from(width.get()) / f64::from(before.get());
                accepted * (1.0 + LEAST_GAIN * (promised - 1.0))
            });
            if pressure.accepted() >= promise.unwrap_or(CALM).min(CALM) {
                self.ineffective = (promise.is_some() || self.ineffective.is_some()).then_some(0);
            } else if promise.is_some() {
                self.ineffective = Some(self.ineffective.unwrap_or_default() + 1);
            }
        }
        Seen { pressure, ineffective_growths: self.ineffective }
    }

    fn pressure(&mut self, now: Duration) -> Pressure {
        self.turn(now);
        self.current.plus(self.previous)
    }

    fn turn(&mut self, now: Duration) {
        let age = now.saturating_sub(self.began);
        if age >= SPAN {
            let ended = std::mem::take(&mut self.current);
            self.previous = if age < 2 * SPAN { ended } else { Pressure::default() };
            self.began = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(n: u32) -> ShardCount {
        ShardCount::new(n).unwrap()
    }

    fn record(tracker: &mut PressureTracker, width: u32, attempts: u64, throttled: u64, at: Duration) {
        for i in 0..attempts {
            tracker.record(count(width), i < throttled, at);
        }
    }

    #[test]
    fn what_is_long_ago_does_not_dilute_a_step() {
        let mut tracker = PressureTracker::default();
        tracker.observe_width(count(1), Duration::ZERO);
        record(&mut tracker, 1, 100_000, 0, Duration::from_secs(1));
        record(&mut tracker, 1, 50, 45, Duration::from_secs(60));
        assert_eq!(tracker.seen(Duration::from_secs(60)).pressure, Pressure { attempts: 50, throttled: 45 });
    }

    #[test]
    fn a_growth_that_lets_no_more_in_is_counted_and_one_that_helps_forgives() {
        let second = Duration::from_secs;
        let mut tracker = PressureTracker::default();
        tracker.observe_width(count(8), second(0));
        record(&mut tracker, 8, 100, 80, second(1));
        assert_eq!(tracker.seen(second(1)).ineffective_growths, None);
        tracker.observe_width(count(60), second(2));
        record(&mut tracker, 60, 100, 79, second(3));
        assert_eq!(tracker.seen(second(3)).ineffective_growths, Some(1));
        tracker.observe_width(count(90), second(5));
        record(&mut tracker, 90, 100, 80, second(6));
        assert_eq!(tracker.seen(second(6)).ineffective_growths, Some(2));
        tracker.observe_width(count(112), second(700));
        record(&mut tracker, 112, 100, 5, second(701));
        assert_eq!(tracker.seen(second(701)).ineffective_growths, Some(0));
    }

    #[test]
    fn attempts_under_another_width_do_not_count() {
        let mut tracker = PressureTracker::default();
        tracker.observe_width(count(4), Duration::ZERO);
        record(&mut tracker, 1, 10, 10, Duration::ZERO);
        assert_eq!(tracker.seen(Duration::ZERO).pressure, Pressure::default());
    }
}
