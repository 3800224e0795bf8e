//! The kinds of faults that are injected, how often, and how late a late request arrives.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

/// What happens to a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    Throttle(&'static str),
    ServerErrorBefore,
    ServerErrorAfter,
    ResponseDropped,
    ResponseTooLate,
    AppliedLate,
    Slow,
    Conflict,
}

/// The number of faults per thousand requests of an instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct FaultRates {
    /// Any kind of fault.
    pub(super) any: u32,
    /// Additional faults of reads of items: the read arrives long after the rest of the same page
    /// was read.
    pub(super) slow_reads: u32,
    /// Additional faults of writes of items: the write arrives after its sender has given up.
    pub(super) late_writes: u32,
    /// Additional throttles of writes of items, by the limit of the account.
    pub(super) throttles: u32,
    /// The longest delay of a late write.
    pub(super) latest: Duration,
}

impl FaultRates {
    /// The longest delay of a late write that a drain waits for.
    pub(super) const LATEST: Duration = Duration::from_secs(9);
    /// The same, if drains wait for as long as a signature is accepted.
    pub(super) const MINUTES: Duration = Duration::from_secs(14 * 60);
    /// No faults.
    pub(super) const NONE: Self =
        Self { any: 0, slow_reads: 0, late_writes: 0, throttles: 0, latest: Self::LATEST };
    /// An instance that serves requests.
    pub(super) const SERVING: Self = Self { any: 40, late_writes: 20, ..Self::NONE };
    /// An instance whose writes often arrive late.
    pub(super) const LATE: Self = Self { late_writes: 250, ..Self::SERVING };
    /// An instance that serves reads while items are moved.
    pub(super) const READING: Self = Self { slow_reads: 120, ..Self::SERVING };
    /// An instance that drains: thousands of requests, one after another.
    pub(super) const DRAINING: Self = Self { any: 10, late_writes: 10, ..Self::NONE };
    /// An instance whose writes may arrive until their signatures have expired.
    pub(super) const MINUTES_LATE: Self =
        Self { any: 20, late_writes: 60, throttles: 50, latest: Self::MINUTES, ..Self::NONE };
    /// An instance that drains, and whose moves may arrive as late.
    pub(super) const DRAINING_MINUTES_LATE: Self =
        Self { any: 2, late_writes: 3, latest: Self::MINUTES, ..Self::NONE };

    /// A delay of a late write. Among minutes, most are such that others change, delete and drain
    /// the item meanwhile, or that it remembers other updates.
    pub(super) fn delay(self, rng: &mut StdRng) -> Duration {
        let latest = u64::try_from(self.latest.as_millis()).unwrap_or(u64::MAX);
        let (from, to) = match rng.random_range(0..4) {
            _ if self.latest < Self::MINUTES => (700, latest),
            0 => (700, 20_000),
            1 => (20_000, latest),
            _ => (60_000, 300_000),
        };
        Duration::from_millis(rng.random_range(from..to))
    }
}
