//! Stretches in which the metadata table answers late to every instance: to all requests, to writes
//! of pages of the directory, or to requests for one copy of each page.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::Instant;

/// The requests that are slow in a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slow {
    /// All requests to the metadata table.
    All,
    /// Writes of pages.
    PageWrites,
    /// Requests for this copy of any page.
    Copy(u32),
}

/// A stretch of all instances.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    slow: Slow,
    delay: Duration,
    /// The requests arrive in time, and their responses late.
    is_applied_at_once: bool,
    until: Instant,
}

/// The shortest delay in a stretch, and the longest.
const DELAYS: std::ops::Range<Duration> = Duration::from_millis(700)..Duration::from_millis(3_000);

impl Stretch {
    /// Slow requests from now on, with one delay for all of them.
    pub(super) fn draw(rng: &mut StdRng, slow: Slow, length: Duration) -> Self {
        let (delay, is_applied_at_once) = (rng.random_range(DELAYS), rng.random());
        Self { slow, delay, is_applied_at_once, until: Instant::now() + length }
    }

    /// The delays of a request and of its response, if they are slow now.
    pub(super) fn delays(
        self,
        is_metadata: bool,
        is_write: bool,
        body: &[u8],
    ) -> Option<(Duration, Duration)> {
        if !is_metadata || self.until <= Instant::now() {
            return None;
        }
        let body = String::from_utf8_lossy(body);
        let page = body.split("_sharding:page:").nth(1).and_then(|page| page.split('"').next());
        let is_slow = match self.slow {
            Slow::All => true,
            Slow::PageWrites => is_write && page.is_some(),
            Slow::Copy(copy) => {
                page.and_then(|page| page.split(':').nth(1)) == Some(copy.to_string().as_str())
            }
        };
        is_slow.then_some(if self.is_applied_at_once {
            (Duration::ZERO, self.delay)
        } else {
            (self.delay, Duration::ZERO)
        })
    }
}
