//! Token buckets: a partition's ceiling, and a provisioned table's share with its burst.

use std::time::Duration;

/// A partition keeps this many seconds of its unused share for a burst.
const BURST_SECONDS: f64 = 300.0;

/// A token bucket. A request is accepted while the bucket has any token. It then pays the units
/// that it really consumed, so the bucket can be overdrawn.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    rate: f64,
    holds: f64,
    tokens: f64,
    at: Duration,
}

impl Bucket {
    const fn new(rate: f64, holds: f64, now: Duration) -> Self {
        Self { rate, holds, tokens: holds, at: now }
    }

    fn refill(&mut self, now: Duration) -> f64 {
        let elapsed = now.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.rate).min(self.holds);
        // Time can appear to go back when threads are late. The maximum prevents a second refill
        // for the same time.
        self.at = self.at.max(now);
        self.tokens
    }
}

/// A partition's ceiling, and for a provisioned table its share with the burst.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    ceiling: Bucket,
    share: Option<Bucket>,
}

impl Capacity {
    pub(crate) fn new(ceiling: f64, share: Option<f64>, now: Duration) -> Self {
        let share = share.map(|share| Bucket::new(share, share * BURST_SECONDS, now));
        Self { ceiling: Bucket::new(ceiling, ceiling, now), share }
    }

    pub(crate) fn tokens(&mut self, now: Duration) -> f64 {
        let ceiling = self.ceiling.refill(now);
        self.share.as_mut().map_or(ceiling, |share| share.refill(now).min(ceiling))
    }

    pub(crate) fn charge(&mut self, units: f64) {
        self.ceiling.tokens -= units;
        if let Some(share) = &mut self.share {
            share.tokens -= units;
        }
    }
}
