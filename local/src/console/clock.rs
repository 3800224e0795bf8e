//! The wall clock of the console.

use std::time::UNIX_EPOCH;

/// Seconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "time enters the program here")]
pub(super) fn now() -> f64 {
    std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
