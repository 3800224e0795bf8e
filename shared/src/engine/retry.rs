//! Retries within a deadline.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::engine::environment::Environment;
use crate::engine::{Deadline, Inner};
use crate::table::error::TableError;

/// The longest pause before the first repetition. It doubles with each further one.
const MAX_FIRST_PAUSE: Duration = Duration::from_millis(25);
const MAX_PAUSE: Duration = Duration::from_millis(800);
/// How often the first and the longest pause are doubled before the repetition of a throttled write
/// of a page. A page takes few writes a second, and all changes of its keys wait for them.
const SLOW_DOUBLINGS: u32 = 3;

/// Returns the longest pause before the next attempt, after this number of retries. The pause is
/// drawn between zero and it: exponential back-off with full jitter.
pub fn longest_pause(retries: u32) -> Duration {
    MAX_FIRST_PAUSE.saturating_mul(1 << retries.min(10)).min(MAX_PAUSE)
}

/// The pauses between the attempts of a request.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    tries: u32,
    doublings: u32,
}

impl Backoff {
    /// Makes all further pauses longer, because the place is throttled and large.
    pub(crate) const fn slow_down(&mut self) {
        self.doublings = SLOW_DOUBLINGS;
    }

    pub(crate) fn next(&mut self, environment: &Environment) -> Duration {
        let longest = longest_pause(self.tries) * (1 << self.doublings);
        self.tries += 1;
        environment.jitter(longest)
    }

    /// Waits before the next attempt. Returns `false` at once if the deadline would come first.
    pub(crate) async fn pause(&mut self, environment: &Environment, deadline: Deadline) -> bool {
        let pause = self.next(environment);
        let is_in_time = Instant::now() + pause < deadline;
        if is_in_time {
            sleep(pause).await;
        }
        is_in_time
    }
}

impl Inner {
    /// Repeats a request until it succeeds, fails permanently, or the deadline passes.
    pub(crate) async fn retrying<T, F: Future<Output = Result<T, TableError>>>(
        &self,
        deadline: Deadline,
        mut request: impl FnMut() -> F,
    ) -> Result<T, TableError> {
        let mut backoff = Backoff::default();
        let mut last = TableError::Transient("no response came before the deadline".into());
        loop {
            match timeout_at(deadline, request()).await {
                Err(_) => return Err(last),
                Ok(Err(error)) if error.is_retryable() => last = error,
                Ok(result) => return result,
            }
            if !backoff.pause(&self.environment, deadline).await {
                return Err(last);
            }
        }
    }
}
