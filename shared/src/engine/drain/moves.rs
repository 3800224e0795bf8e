//! The moves of a drain: copies items home and deletes old copies, several at once, under a lease
//! and at a pace.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::engine::drain::DrainRun;
use crate::engine::retry::Backoff;
use crate::engine::views::Record;
use crate::engine::views::keys::OwnDrain;
use crate::engine::{Deadline, Inner, locked};
use crate::protocol::copies::Answer;
use crate::protocol::drain::{MayMove, may_move};
use crate::protocol::view::Moment;
use crate::table::error::TableError;
use crate::table::{LeaseLasts, Place, StoredCopy};
use crate::values::key::{PartitionKey, ShardCount, ShardNumber};

pub(crate) const MOVE_CONCURRENCY: usize = 16;

/// Write units per second that several drains share, for a table with provisioned capacity.
#[derive(Debug)]
pub struct DrainBudget {
    units_per_second: f64,
    /// When the next units may be taken.
    next: Mutex<Instant>,
}

impl DrainBudget {
    /// This number of units a second, at least one.
    #[must_use]
    pub fn new(units_per_second: f64) -> Self {
        Self { units_per_second: units_per_second.max(1.0), next: Mutex::new(Instant::now()) }
    }

    pub(crate) fn next(&self) -> MutexGuard<'_, Instant> {
        locked(&self.next)
    }

    /// Takes units, and returns when they may be used.
    pub(crate) fn take(&self, units: u64) -> Instant {
        let mut next = self.next();
        let at = (*next).max(Instant::now());
        *next = at + Duration::from_secs_f64(units as f64 / self.units_per_second);
        at
    }
}

pub(crate) struct Move {
    pub(crate) copy: StoredCopy,
    pub(crate) at: ShardNumber,
    /// The shard to copy it to; `None` to delete the copy.
    pub(crate) home: Option<ShardNumber>,
    /// Its width there.
    pub(crate) width: ShardCount,
}

/// Why a part of the work stopped early.
pub(crate) enum Stop {
    /// The time is up.
    Interrupted,
    /// Another actor has changed the metadata.
    Over,
    Failed(TableError),
}

impl From<TableError> for Stop {
    fn from(error: TableError) -> Self {
        Self::Failed(error)
    }
}

impl DrainRun<'_> {
    /// Sends moves, several at once. The next round finds the items that could not be moved.
    pub(super) async fn carry_out(
        &mut self,
        own: &mut OwnDrain,
        moves: Vec<Move>,
    ) -> Result<(), Stop> {
        let (mut sending, mut stop, mut moves) = (JoinSet::new(), None, moves.into_iter());
        loop {
            while sending.len() < MOVE_CONCURRENCY
                && stop.is_none()
                && let Some(next) = moves.next()
            {
                let shard = next.home.unwrap_or(next.at);
                if !self.take_turn(shard, next.copy.write_units()).await {
                    stop = Some(Stop::Interrupted);
                } else if let Some(lasts) = self.lease(own.pass.generation()).await? {
                    own.pass.sent();
                    let (inner, key, deadline) =
                        (Arc::clone(self.job.inner), self.job.key.clone(), self.job.deadline);
                    sending.spawn(async move { next.send(&inner, &key, &lasts, deadline).await });
                } else {
                    stop = Some(Stop::Over);
                }
            }
            let Some(done) = sending.join_next().await else { return stop.map_or(Ok(()), Err) };
            let (Move { copy, at, home, .. }, sent, is_certain) =
                done.map_err(|died| TableError::Transient(died.to_string().into()))?;
            if is_certain {
                own.pass.answered();
            }
            match sent {
                Ok(Answer::Applied | Answer::Refused(_)) => {
                    self.items += 1;
                    if home.is_some() {
                        let now = self.job.inner.environment.now();
                        own.pass.found_home(at, copy.sort_key.clone(), copy.remembered(), now);
                    }
                }
                Ok(Answer::Rejected | Answer::Unanswered) => own.found = true,
                Err(error) if error.is_retryable() => stop = Some(Stop::Interrupted),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The view of the next move. `None` if the metadata has another generation now.
    async fn lease(&self, generation: u64) -> Result<Option<LeaseLasts>, TableError> {
        let lease = self.job.inner.config.lease();
        loop {
            let is_fresh = |record: &Record, now: Moment| record.view().is_valid(now, lease / 2);
            let view = self.job.record(is_fresh).await?.view();
            match may_move(generation, &view, lease, self.job.inner.environment.now()) {
                MayMove::Yes => {
                    let inner = Arc::clone(self.job.inner);
                    let lasts = move || view.is_valid(inner.environment.now(), lease);
                    return Ok(Some(Arc::new(lasts)));
                }
                MayMove::Over => return Ok(None),
                MayMove::Look => {}
            }
        }
    }

    /// Keeps to the pace of a shard, because a drain must leave capacity to the key's own traffic.
    /// `false` if the turn would come too late.
    async fn take_turn(&mut self, shard: ShardNumber, units: u64) -> bool {
        let rate = self.job.inner.config.drain.units_per_second;
        let own = self.pace.entry(shard).or_insert_with(|| DrainBudget::new(rate.into()));
        let budgets = || self.budgets.iter().copied().chain([&*own]);
        if budgets().any(|budget| *budget.next() > self.job.deadline) {
            return false;
        }
        if let Some(at) = budgets().map(|budget| budget.take(units)).max() {
            sleep_until(at.min(self.job.deadline)).await;
        }
        true
    }
}

impl Move {
    /// Repeats a move until it has a response, which its condition allows. Also returns whether its
    /// outcome is certain.
    async fn send(
        self,
        inner: &Inner,
        key: &PartitionKey,
        lasts: &LeaseLasts,
        deadline: Deadline,
    ) -> (Self, Result<Answer, TableError>, bool) {
        let (mut backoff, mut is_certain) = (Backoff::default(), true);
        loop {
            let (copy, lasts) = (&self.copy, Arc::clone(lasts));
            let (sort_key, shard) = (&copy.sort_key, self.home.unwrap_or(self.at));
            let place = Place { partition_key: key, sort_key, shard, width: self.width };
            let sent = match self.home {
                Some(_) => inner.tables.copy_home(copy, place, lasts).await,
                None => inner.tables.delete_copy(copy, place, lasts).await,
            };
            let error = match sent {
                Err(error) if error.is_retryable() => error,
                sent => return (self, sent, is_certain),
            };
            is_certain &= !matches!(error, TableError::Transient(_));
            if !backoff.pause(&inner.environment, deadline).await {
                return (self, Err(error), is_certain);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_budget_is_shared_and_what_was_not_used_is_not_saved() {
        let budget = DrainBudget::new(20.0);
        let began = Instant::now();
        let at = |budget: &DrainBudget, units| (budget.take(units) - began).as_millis();
        // A turn comes before its units, not after them.
        assert_eq!([at(&budget, 4), at(&budget, 40), at(&budget, 4)], [0, 200, 2_200]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!([at(&budget, 4), at(&budget, 4)], [60_000, 60_200]);
        let least = DrainBudget::new(0.01);
        assert_eq!(at(&least, 1), 60_000, "a table of five units is drained, too");
    }
}
