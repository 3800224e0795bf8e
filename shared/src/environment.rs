//! Time and randomness as parameters, so that a run can be replayed.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::protocol::view::{DRIFT_MARGIN, MAX_LEASE, Moment};

const OPENING_WAIT: Duration = MAX_LEASE.saturating_add(DRIFT_MARGIN);

/// The source of a table's time.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Moment;
}

/// The machine's clocks. The monotonic one is tokio's, which a test can pause.
#[derive(Debug)]
pub struct SystemClock {
    origin: tokio::time::Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the edge where time comes in")]
    fn now(&self) -> Moment {
        let wall = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { monotonic: self.origin.elapsed(), wall }
    }
}

/// A clock and a random generator.
pub struct Environment {
    clock: Box<dyn Clock>,
    rng: Mutex<StdRng>,
    wait: Duration,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

impl Environment {
    /// The machine's clocks, and a generator seeded by the operating system.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the edge where chance comes in")]
    pub fn system() -> Self {
        Self {
            clock: Box::new(SystemClock::default()),
            rng: Mutex::new(rand::make_rng()),
            wait: OPENING_WAIT,
        }
    }

    /// A given clock and seed: the same inputs give the same run.
    #[must_use]
    pub fn seeded(clock: impl Clock, seed: u64) -> Self {
        Self {
            clock: Box::new(clock),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            wait: OPENING_WAIT,
        }
    }

    /// Breaks the protocol: a closing opens at once, while other instances use earlier views.
    #[cfg(feature = "test-switches")]
    #[must_use]
    pub const fn without_waiting_for_views(mut self) -> Self {
        self.wait = Duration::ZERO;
        self
    }

    /// How long writers wait between a close and its open.
    pub(crate) const fn opening_wait(&self) -> Duration {
        self.wait
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// A uniform number below `bound`; 0 if the bound is 0.
    pub(crate) fn below(&self, bound: u32) -> u32 {
        if bound == 0 { 0 } else { self.with_rng(|rng| rng.random_range(0..bound)) }
    }

    /// A uniform duration between zero and `longest`.
    pub(crate) fn jitter(&self, longest: Duration) -> Duration {
        longest.mul_f64(self.with_rng(|rng| rng.random::<f64>()))
    }

    pub(crate) fn bytes<const N: usize>(&self) -> [u8; N] {
        self.with_rng(|rng| rng.random())
    }

    fn with_rng<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
