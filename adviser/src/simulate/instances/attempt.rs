//! The attempts of a request to the metadata table.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use sharding::internal::longest_pause;

use crate::simulate::step::STEP;

/// A request to the metadata table, repeated until it is served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Attempt {
    pub(super) at: Duration,
    throttled: u32,
}

impl Attempt {
    pub(super) const fn at(at: Duration) -> Self {
        Self { at, throttled: 0 }
    }

    /// Whether the attempt repeats a throttled one.
    pub(super) const fn is_repeated(self) -> bool {
        self.throttled > 0
    }

    /// Returns the next attempt after a throttle, after a pause.
    pub(super) fn repeated(self, now: Duration, rng: &mut Xoshiro256PlusPlus) -> Self {
        let pause = longest_pause(self.throttled).mul_f64(rng.random());
        Self { at: now + STEP + pause, throttled: self.throttled + 1 }
    }
}
