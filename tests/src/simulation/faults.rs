//! The kinds of faults that are injected, how often, and how late a late request arrives.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

/// The injected faults, by kind.
#[derive(Debug, Default)]
pub(super) struct Injected {
    pub(super) throttles: AtomicU64,
    pub(super) server_errors: AtomicU64,
    pub(super) lost_responses: AtomicU64,
    pub(super) late_requests: AtomicU64,
    /// Of these, those that arrive after more than a minute.
    pub(super) very_late_requests: AtomicU64,
    pub(super) slow_metadata: AtomicU64,
    pub(super) slow_reads: AtomicU64,
    pub(super) conflicts: AtomicU64,
    pub(super) slow_stretches: AtomicU64,
    pub(super) freezes: AtomicU64,
    pub(super) clocks_set_back: AtomicU64,
    pub(super) deaths: AtomicU64,
}

impl Injected {
    /// Late requests, those of them that are minutes late, deaths, and faults of all kinds.
    pub(super) fn counts(&self) -> (u64, u64, u64, u64) {
        let kinds = [
            &self.throttles,
            &self.server_errors,
            &self.lost_responses,
            &self.late_requests,
            &self.slow_metadata,
            &self.slow_reads,
            &self.conflicts,
            &self.slow_stretches,
            &self.freezes,
            &self.clocks_set_back,
            &self.deaths,
        ];
        let count = |kind: &AtomicU64| kind.load(Ordering::Relaxed);
        (
            count(&self.late_requests),
            count(&self.very_late_requests),
            count(&self.deaths),
            kinds.into_iter().map(count).sum(),
        )
    }
}
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    Throttle(&'static str),
    ServerErrorBefore,
    ServerErrorAfter,
    ResponseDropped,
    ResponseTooLate,
    AppliedLate,
    SlowMetadata,
    SlowRead,
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
    /// An instance whose reads often last longer than a move.
    pub(super) const READING_SLOWLY: Self = Self { slow_reads: 400, ..Self::SERVING };
    /// An instance that drains: thousands of requests, one after another.
    pub(super) const DRAINING: Self = Self { any: 10, late_writes: 10, ..Self::NONE };
    /// An instance whose moves often arrive late, even after the next drain of the same items has
    /// begun.
    pub(super) const DRAINING_LATE: Self =
        Self { late_writes: 300, latest: Duration::from_secs(40), ..Self::DRAINING };
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
