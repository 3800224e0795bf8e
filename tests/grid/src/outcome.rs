//! What a run has measured.

use std::time::Duration;

/// A write that takes longer was not taken at once.
const AT_ONCE: Duration = Duration::from_millis(100);
/// Relief lasts this many seconds.
const LASTING: usize = 5;
/// A key is relieved if less than this share of its new writes is not taken at once.
const RELIEVED: f64 = 0.01;

/// The writes that came in one second.
#[derive(Debug, Clone, Copy, Default)]
pub struct Second {
    /// All.
    pub came: u64,
    /// Those that were stored at once.
    pub at_once: u64,
    /// Those that were stored in time.
    pub stored: u64,
    /// Those that were given up.
    pub failed: u64,
}

/// The outcome of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// By the second in which writes came.
    pub seconds: Vec<Second>,
    /// For each key: the write units that came, and its shards at the end.
    pub keys: Vec<(f64, u32)>,
    /// The changes of the first key's width, by time.
    pub changes: Vec<(f64, u32)>,
    /// The first report that the table is short, in seconds.
    pub short_after: Option<f64>,
    /// The first report that a key has few hot items, in seconds.
    pub hot_items_after: Option<f64>,
}

impl Outcome {
    pub(crate) fn record(&mut self, second: usize, latency: Duration, is_stored: bool) {
        let Some(of) = self.seconds.get_mut(second) else { return };
        of.at_once += u64::from(is_stored && latency < AT_ONCE);
        of.stored += u64::from(is_stored);
        of.failed += u64::from(!is_stored);
    }

    /// The second from which on the key is relieved.
    #[must_use]
    pub fn relieved_after(&self) -> Option<f64> {
        relief(&self.seconds)
    }

    /// The key is relieved, as the seconds before this one show.
    pub(crate) fn is_relieved_by(&self, second: usize) -> bool {
        relief(self.seconds.get(..second).unwrap_or(&self.seconds)).is_some()
    }

    /// Writes that came are neither stored nor given up.
    pub(crate) fn has_undecided(&self) -> bool {
        self.seconds.iter().any(|of| of.stored + of.failed < of.came)
    }

    /// The share of the writes that was stored in time, of those that are decided.
    #[must_use]
    pub fn accepted(&self) -> f64 {
        let (stored, failed) =
            self.seconds.iter().fold((0, 0), |sum, of| (sum.0 + of.stored, sum.1 + of.failed));
        stored as f64 / (stored + failed).max(1) as f64
    }

    /// Stored writes a second, of the seconds from this one on.
    #[must_use]
    pub fn rate_from(&self, second: usize) -> f64 {
        let late = self.seconds.get(second..).unwrap_or_default();
        late.iter().map(|of| of.stored).sum::<u64>() as f64 / late.len().max(1) as f64
    }

    /// The shards of the first key at the end.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.keys.first().map_or(1, |key| key.1)
    }
}

fn relief(seconds: &[Second]) -> Option<f64> {
    let is_calm =
        |of: &Second| of.came > 0 && (of.came - of.at_once) as f64 <= RELIEVED * of.came as f64;
    let found = seconds.windows(LASTING).position(|some| some.iter().all(is_calm));
    found.map(|second| second as f64)
}
