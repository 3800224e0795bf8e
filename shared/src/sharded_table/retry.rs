//! Trying again, within a deadline.

use std::time::Duration;

use tokio::time::{sleep, timeout_at};

use super::Deadline;
use crate::environment::Environment;
use crate::table::error::TableError;

/// The longest pause before the first repetition; it doubles with each further one.
pub const FIRST_PAUSE: Duration = Duration::from_millis(25);
/// The longest pause of all.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// A repetition that would be cut off by the deadline is not sent: its outcome would be unknown, where all before it were refused.
const LEAST_TIME: Duration = Duration::from_millis(250);

/// Whether enough time is left to send a request once more and hear what became of it.
pub(crate) fn may_send_again(deadline: Deadline) -> bool {
    tokio::time::Instant::now() + LEAST_TIME < deadline
}

/// Exponential back-off with full jitter.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    tries: u32,
}

impl Backoff {
    pub(crate) fn next(&mut self, environment: &Environment) -> Duration {
        let longest = FIRST_PAUSE.saturating_mul(1 << self.tries.min(10)).min(LONGEST_PAUSE);
        self.tries += 1;
        environment.jitter(longest)
    }
}

/// Runs a request that may be repeated until it succeeds, fails for good, or the deadline passes.
pub(crate) async fn retrying<T, F>(
    environment: &Environment,
    deadline: Deadline,
    mut request: impl FnMut() -> F,
) -> Result<T, TableError>
where
    F: Future<Output = Result<T, TableError>>,
{
    let mut backoff = Backoff::default();
    let mut last = TableError::Transient("the deadline had passed before the first attempt".into());
    loop {
        match timeout_at(deadline, request()).await {
            Err(_) => return Err(last),
            Ok(Err(error)) if error.is_retryable() => last = error,
            Ok(result) => return result,
        }
        let pause = backoff.next(environment);
        if tokio::time::Instant::now() + pause >= deadline {
            return Err(last);
        }
        sleep(pause).await;
    }
}
