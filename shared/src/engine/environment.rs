//! Time and randomness as parameters, so that a run can be replayed, and the pauses between
//! attempts.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};

use crate::engine::{Deadline, locked};
use crate::protocol::view::{DRIFT_MARGIN, MAX_LEASE, Moment};

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The source of a table's time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Moment;

    /// An invocation has begun that ends at this instant by the clock of the service that invokes.
    fn invoked(&self, _ends_at: Duration) {}
}

/// The machine's clocks. The monotonic one is tokio's, which a test can pause.
///
/// The monotonic clock stands still while a sandbox is frozen, and the wall clock may be set back
/// meanwhile. The deadlines of two invocations show how much time has passed at least, so the
/// monotonic clock is put forward by what it has missed.
#[derive(Debug)]
struct SystemClock {
    origin: Instant,
    missed_nanos: AtomicU64,
    /// The deadline of the first invocation, and the monotonic time when it began.
    first: OnceLock<(Duration, Duration)>,
}

impl Default for SystemClock {
    fn default() -> Self {
        let origin = Instant::now();
        Self { origin, missed_nanos: AtomicU64::default(), first: OnceLock::new() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the edge where time comes in")]
    fn now(&self) -> Moment {
        let wall = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { monotonic: self.monotonic(), wall }
    }

    fn invoked(&self, ends_at: Duration) {
        let now = self.monotonic();
        let (first_ends_at, began) = *self.first.get_or_init(|| (ends_at, now));
        let at_least = began + ends_at.saturating_sub(first_ends_at);
        let missed = u64::try_from(at_least.saturating_sub(now).as_nanos()).unwrap_or(u64::MAX);
        self.missed_nanos.fetch_add(missed, Ordering::Relaxed);
    }
}

impl SystemClock {
    fn monotonic(&self) -> Duration {
        self.origin.elapsed() + Duration::from_nanos(self.missed_nanos.load(Ordering::Relaxed))
    }
}

/// A clock and a random generator.
#[derive(Debug)]
pub struct Environment {
    clock: Box<dyn Clock>,
    rng: Mutex<StdRng>,
    /// How long a closing waits before it opens.
    pub(crate) opening_wait: Duration,
}

impl Environment {
    /// The machine's clocks, and a generator seeded by the operating system.
    #[expect(clippy::disallowed_methods, reason = "this is the edge where chance comes in")]
    pub fn system() -> Self {
        Self::of(SystemClock::default(), rand::make_rng())
    }

    /// A given clock and seed: the same inputs give the same run.
    pub fn seeded(clock: impl Clock, seed: u64) -> Self {
        Self::of(clock, StdRng::seed_from_u64(seed))
    }

    fn of(clock: impl Clock, rng: StdRng) -> Self {
        let opening_wait = MAX_LEASE.saturating_add(DRIFT_MARGIN);
        Self { clock: Box::new(clock), rng: Mutex::new(rng), opening_wait }
    }

    /// Breaks the protocol: a closing opens at once, while other instances use earlier views.
    #[cfg(feature = "test-switches")]
    pub const fn without_waiting_for_views(mut self) -> Self {
        self.opening_wait = Duration::ZERO;
        self
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn invoked(&self, ends_at: Duration) {
        self.clock.invoked(ends_at);
    }

    /// A uniform number below `bound`; 0 if the bound is 0.
    pub(crate) fn below(&self, bound: u32) -> u32 {
        if bound == 0 { 0 } else { self.with_rng(|rng| rng.random_range(0..bound)) }
    }

    pub(crate) fn jitter(&self, longest: Duration) -> Duration {
        longest.mul_f64(self.with_rng(|rng| rng.random::<f64>()))
    }

    pub(crate) fn bytes<const N: usize>(&self) -> [u8; N] {
        self.with_rng(|rng| rng.random())
    }

    fn with_rng<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut locked(&self.rng))
    }
}

/// Before the first repetition. It doubles with each further one.
const MAX_FIRST_PAUSE: Duration = Duration::from_millis(25);
const MAX_PAUSE: Duration = Duration::from_millis(800);
/// How often pauses double before the repetition of a throttled write of a page. A page takes few
/// writes a second, and all changes of its keys wait for them.
const SLOW_DOUBLINGS: u32 = 3;

/// Exponential back-off with full jitter.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    tries: u32,
    doublings: u32,
}

impl Backoff {
    /// The place is throttled and large.
    pub(crate) const fn slow_down(&mut self) {
        self.doublings = SLOW_DOUBLINGS;
    }

    /// Returns `false` at once if the deadline would come first.
    pub(crate) async fn pause(&mut self, environment: &Environment, deadline: Deadline) -> bool {
        let longest = MAX_FIRST_PAUSE.saturating_mul(1 << self.tries.min(10)).min(MAX_PAUSE);
        let longest = longest * (1 << self.doublings);
        self.tries += 1;
        let pause = environment.jitter(longest);
        let is_in_time = Instant::now() + pause < deadline;
        if is_in_time {
            sleep(pause).await;
        }
        is_in_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn deadlines_tell_how_long_a_frozen_process_has_missed() {
        let clock = SystemClock::default();
        let seconds = |clock: &SystemClock| clock.now().monotonic.as_secs();
        advance(Duration::from_secs(3)).await;
        // How much time passes by the monotonic clock, the next deadline, and the time then.
        let rows = [
            (0, 1_000, 3),
            (4, 1_004, 7),
            // It was frozen for ten seconds.
            (1, 1_015, 18),
            (2, 1_017, 20),
            // The service's clock was set back, or an emulator has no deadlines.
            (1, 1_000, 21),
            (1, 0, 22),
        ];
        for (passes, ends_at, expected) in rows {
            advance(Duration::from_secs(passes)).await;
            clock.invoked(Duration::from_secs(ends_at));
            assert_eq!(seconds(&clock), expected, "until {ends_at}");
        }
    }
}
