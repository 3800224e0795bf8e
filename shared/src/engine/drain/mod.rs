//! Draining: continues where this instance stopped.
//!
//! A drain takes longer than one call, because it waits for earlier reads and requests. An instance
//! keeps its own pass in memory between calls. One that takes over makes its own. It copies items
//! home and deletes old copies, several at once, under a lease and at a pace. [docs/protocol.md,
//! Draining]

pub(crate) mod begin;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::engine::environment::Backoff;
use crate::engine::job::KeyJob;
use crate::engine::views::keys::{OwnDrain, Record};
use crate::engine::width::{ScalingReason, ScalingStep};
use crate::engine::{Deadline, Inner, Maintenance, locked};
use crate::protocol::copies::Answer;
use crate::protocol::drain::{
    MayMove, is_young, may_begin_at, may_finish_at, may_move, may_purge, sources,
};
use crate::protocol::metadata::{Change, Drain, ShardMetadata};
use crate::protocol::view::Moment;
use crate::table::error::TableError;
use crate::table::{LeaseLasts, Place, StoredCopy};
use crate::values::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::values::placement::Placement;

const MOVE_CONCURRENCY: usize = 16;
const PAGE_ITEMS: usize = 200;
/// The pause between two pages. Reading takes no write units, but must leave read units to others.
const PAGE_PAUSE: Duration = Duration::from_millis(20);
/// With less time than this left, a call begins no new page.
const MIN_TIME_LEFT: Duration = Duration::from_secs(2);
/// The copies that are remembered before they are deleted: some tens of megabytes.
const MAX_REMEMBERED_COPIES: usize = 50_000;
/// For this time at least, besides the wait for reads, other instances leave a key to the instance
/// that drains it.
const MIN_OWNERSHIP_PERIOD: Duration = Duration::from_secs(10);

/// The state of a drain when a call ends.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drained {
    /// No drain was begun, another actor finished it, or the key's width is changing.
    Nothing,
    /// The drain has to wait until this epoch second.
    Waiting {
        /// Epoch seconds.
        until: u64,
    },
    /// The call's time is up. The next one continues.
    Working {
        /// Items that this call copied or deleted.
        items: u64,
    },
    /// Every item is home: readers query this number of shards from now on.
    Done {
        /// The read width before.
        from: ShardCount,
        /// Both widths now.
        to: ShardCount,
        /// Items that this call copied or deleted.
        items: u64,
    },
}

impl Maintenance {
    /// Continues a key's drain until it is done, has to wait, or the deadline is near, within these
    /// budgets and the configured pace. Later, it removes the tombstones of a settled key. Any
    /// process may call it at any time. After an error, the work so far is kept.
    pub fn drain<'a>(
        &'a self,
        key: &'a PartitionKey,
        budgets: &'a [&'a DrainBudget],
    ) -> BoxFuture<'a, Result<Drained, TableError>> {
        Box::pin(async move {
            let (inner, deadline) = (&self.engine.inner, self.until());
            inner.claim_once(deadline).await?;
            let job = inner.job(key, deadline);
            // The remembered state belongs to one call at a time.
            let Ok(mut own) = job.state.drain.try_lock() else {
                return Ok(Drained::Waiting { until: self.engine.now().epoch_seconds() + 1 });
            };
            let mut run = DrainRun { job: &job, budgets, pace: HashMap::new(), items: 0 };
            let error = loop {
                match run.go_on(&mut own).await {
                    Ok(drained) => return Ok(drained),
                    Err(Stop::Again) => {}
                    Err(Stop::Interrupted) => return Ok(Drained::Working { items: run.items }),
                    Err(Stop::Failed(error)) => break error,
                }
            };
            if let TableError::Rejected(_) | TableError::Damaged(_) = error {
                *own = None;
                // Every later call would find the same item. If the metadata is damaged, this reports
                // it again.
                let record = job.record_from_now().await?;
                job.step(&record, &Change::StopDrain { unmovable: true }).await?;
            }
            Err(error)
        })
    }
}

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

    fn next(&self) -> MutexGuard<'_, Instant> {
        locked(&self.next)
    }

    /// Returns when the units may be used.
    fn take(&self, units: u64) -> Instant {
        let mut next = self.next();
        let at = (*next).max(Instant::now());
        *next = at + Duration::from_secs_f64(units as f64 / self.units_per_second);
        at
    }
}

struct Move {
    copy: StoredCopy,
    at: ShardNumber,
    /// The shard to copy it to; `None` to delete the copy.
    home: Option<ShardNumber>,
    /// Its width there.
    width: ShardCount,
}

enum Stop {
    /// The time is up.
    Interrupted,
    /// The metadata must be read again: an actor has changed it.
    Again,
    Failed(TableError),
}

impl From<TableError> for Stop {
    fn from(error: TableError) -> Self {
        Self::Failed(error)
    }
}

/// One call.
struct DrainRun<'a> {
    job: &'a KeyJob<'a>,
    budgets: &'a [&'a DrainBudget],
    /// The configured pace of each shard.
    pace: HashMap<ShardNumber, DrainBudget>,
    items: u64,
}

impl DrainRun<'_> {
    /// The next step by the metadata.
    async fn go_on(&mut self, own: &mut Option<OwnDrain>) -> Result<Drained, Stop> {
        let job = self.job;
        let record = job.record_from_now().await?;
        let metadata = &record.metadata;
        let (now, waits) = (self.now().epoch_seconds(), job.inner.config.waits());
        let Some(drain) = metadata.draining() else {
            *own = None;
            if !may_purge(metadata, &waits, now) {
                return Ok(Drained::Nothing);
            }
            job.step(&record, &Change::BeginPurge).await?;
            return Err(Stop::Again);
        };
        own.take_if(|own| own.pass.generation != metadata.generation);
        if own.is_none() && !job.is_in_step(&record).await? {
            return Err(Stop::Again);
        }
        let finishes_at = may_finish_at(&drain, &waits);
        if let Some(until) = finishes_at.filter(|until| now < *until) {
            return Ok(Drained::Waiting { until });
        }
        // Long enough for the next check of this view's age, and for the wait for reads.
        let own_time = waits.reads.max(MIN_OWNERSHIP_PERIOD).as_secs();
        let busy_until = now + waits.reads.as_secs() + own_time;
        let mark = match own {
            // Any actor may do the purge or the last scan: they need no claim.
            None if metadata.settled || finishes_at.is_some() => {
                *own = Some(OwnDrain::begin(metadata, job.inner, now));
                return Err(Stop::Again);
            }
            // Something has arrived late.
            Some(own) if finishes_at.is_some() && own.found => Change::BeginDrain { busy_until },
            None => {
                let begins_at = may_begin_at(&metadata.layout(), &waits);
                let until = drain.busy_until.max(begins_at).unwrap_or_default();
                if now < until {
                    return Ok(Drained::Waiting { until });
                }
                Change::BeginDrain { busy_until }
            }
            Some(own)
                if finishes_at.is_some()
                    || metadata.settled
                    || drain.busy_until >= Some(now + own_time / 2) =>
            {
                return self.work(own, metadata, drain).await;
            }
            Some(_) => Change::ProlongDrain { busy_until },
        };
        if let Some(marked) = job.step(&record, &mark).await? {
            match own {
                // A new mark of its own immediately follows the last one.
                Some(own) if matches!(mark, Change::ProlongDrain { .. }) => {
                    own.pass.generation = marked.generation;
                }
                _ => *own = Some(OwnDrain::begin(&marked, job.inner, now)),
            }
        }
        Err(Stop::Again)
    }

    /// Copies and deletes until a round finds nothing, or until a wait. For a settled key, it
    /// deletes tombstones.
    async fn work(
        &mut self,
        own: &mut OwnDrain,
        metadata: &ShardMetadata,
        drain: Drain,
    ) -> Result<Drained, Stop> {
        let job = self.job;
        let shards: Vec<ShardNumber> =
            sources(metadata, job.inner.always_first().is_some()).collect();
        loop {
            if Instant::now() + MIN_TIME_LEFT >= job.deadline {
                return Err(Stop::Interrupted);
            }
            let (from, after) = &own.next;
            if own.deletes {
                let now = self.now();
                let wait = own.pass.wait_for_reads(&job.inner.config.waits(), now);
                if !wait.is_zero() {
                    return Ok(Drained::Waiting { until: (now.wall + wait).as_secs() + 1 });
                }
                let part = own.pass.take(MOVE_CONCURRENCY * 4);
                own.deletes = !part.is_empty();
                let width = metadata.number_of_shards;
                let delete = |(at, _, copy)| Move { copy, at, home: None, width };
                self.carry_out(own, part.into_iter().map(delete).collect()).await?;
            } else if let Some(shard) = shards.iter().copied().find(|shard| shard >= from) {
                let after = after.clone().filter(|_| shard == *from);
                let (moves, next) = self.look_at(own, metadata, shard, after).await?;
                if own.found && drain.emptied_at.is_some() {
                    return Err(Stop::Again);
                }
                self.carry_out(own, moves).await?;
                own.next = next.map_or((shard.next(), None), |next| (shard, Some(next)));
                own.deletes = own.pass.remembered() >= MAX_REMEMBERED_COPIES;
            } else if own.pass.remembered() > 0 {
                own.deletes = true;
            } else {
                own.next = (ShardNumber::FIRST, None);
                if std::mem::take(&mut own.found) {
                    continue;
                }
                if let Some(until) = own.expiring_until.take() {
                    return Ok(Drained::Waiting { until });
                }
                break;
            }
        }
        // This round found nothing.
        let end = if metadata.settled {
            Change::Purged
        } else {
            own.pass.end(&drain, job.inner.always_first().is_some())
        };
        let known = job.record_from_now().await?;
        if known.metadata.generation != own.pass.generation {
            return Err(Stop::Again);
        }
        match job.step(&known, &end).await? {
            Some(done) if done.settled => {
                let (from, to) = (metadata.read_shards, done.read_shards);
                if !metadata.settled {
                    tracing::info!(%from, %to, "drained");
                    job.report(from, ScalingStep::Drained(to), ScalingReason::Asked);
                }
                Ok(Drained::Done { from, to, items: self.items })
            }
            Some(_) | None => Err(Stop::Again),
        }
    }

    /// With random placement, items within the write width stay, and all actors agree on a shard
    /// for the others.
    fn home(
        &self,
        sort_key: &SortKey,
        shard: ShardNumber,
        metadata: &ShardMetadata,
    ) -> ShardNumber {
        let (key, width) = (self.job.key, metadata.number_of_shards);
        let any = || {
            let stays = shard.get() <= width.get();
            if stays { Some(shard) } else { Placement::Calculated.home(key, sort_key, width) }
        };
        let placed = self.job.inner.config.placement.home(key, sort_key, width);
        placed.or_else(any).unwrap_or(ShardNumber::FIRST)
    }

    /// The items of a page to copy home, and the sort key to continue after.
    async fn look_at(
        &self,
        own: &mut OwnDrain,
        metadata: &ShardMetadata,
        shard: ShardNumber,
        after: Option<SortKey>,
    ) -> Result<(Vec<Move>, Option<SortKey>), TableError> {
        let KeyJob { inner, key, deadline, .. } = self.job;
        let scan = || inner.tables.scan_shard(key, shard, after.as_ref(), PAGE_ITEMS);
        let scanned = inner.retrying(*deadline, scan).await;
        sleep(PAGE_PAUSE).await;
        let ((copies, next), now) = (scanned?, self.now());
        let let_until = own.began.saturating_add(inner.config.let_expire.as_secs());
        let (mut moves, width) = (Vec::new(), metadata.number_of_shards);
        for copy in copies {
            let home = self.home(&copy.sort_key, shard, metadata);
            let known = own.pass.known(shard, &copy.sort_key);
            if home == shard && copy.copy.is_tombstone {
                let waits = inner.config.waits();
                if metadata.settled && !is_young(&copy.copy, &waits, now.epoch_seconds()) {
                    moves.push(Move { copy, at: shard, home: None, width });
                }
                continue;
            }
            let is_known = known.is_some_and(|known| known.copy.version == copy.copy.version);
            if home == shard || metadata.settled || is_known {
                continue;
            }
            match inner.tables.expires_at(&copy, now.epoch_seconds()) {
                Some(at) if at > now.epoch_seconds() && at <= let_until => {
                    own.expiring_until = own.expiring_until.max(Some(at));
                    continue;
                }
                // The item has expired, so it need not be moved.
                Some(at) if at <= now.epoch_seconds() => {
                    own.pass.found_home(shard, copy.sort_key.clone(), copy.remembered(), now);
                }
                _ => moves.push(Move { copy, at: shard, home: Some(home), width }),
            }
            own.found = true;
        }
        Ok((moves, next))
    }

    /// The next round finds the items that could not be moved.
    async fn carry_out(&mut self, own: &mut OwnDrain, moves: Vec<Move>) -> Result<(), Stop> {
        let (mut sending, mut stop, mut moves) = (JoinSet::new(), None, moves.into_iter());
        loop {
            while sending.len() < MOVE_CONCURRENCY
                && stop.is_none()
                && let Some(next) = moves.next()
            {
                let shard = next.home.unwrap_or(next.at);
                if !self.take_turn(shard, next.copy.units).await {
                    stop = Some(Stop::Interrupted);
                } else if let Some(lasts) = self.lease(own.pass.generation).await? {
                    own.pass.in_doubt += 1;
                    let (inner, key, deadline) =
                        (Arc::clone(self.job.inner), self.job.key.clone(), self.job.deadline);
                    sending.spawn(async move { next.send(&inner, &key, &lasts, deadline).await });
                } else {
                    stop = Some(Stop::Again);
                }
            }
            let Some(done) = sending.join_next().await else { return stop.map_or(Ok(()), Err) };
            let (Move { copy, at, home, .. }, sent, is_certain) =
                done.map_err(|died| TableError::Transient(died.to_string().into()))?;
            if is_certain {
                own.pass.in_doubt -= 1;
            }
            match sent {
                Ok(Answer::Applied | Answer::Refused(_)) => {
                    self.items += 1;
                    if home.is_some() {
                        let now = self.now();
                        own.pass.found_home(at, copy.sort_key.clone(), copy.remembered(), now);
                    }
                }
                Ok(Answer::Rejected | Answer::Unanswered) => own.found = true,
                Err(error) if error.is_retryable() => stop = Some(Stop::Interrupted),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// `None` if the metadata has another generation now.
    async fn lease(&self, generation: u64) -> Result<Option<LeaseLasts>, TableError> {
        let lease = self.job.inner.config.lease();
        loop {
            let is_fresh = |record: &Record, now: Moment| record.view().is_valid(now, lease / 2);
            let view = Arc::new(self.job.record(is_fresh).await?.view());
            match may_move(generation, &view, lease, self.now()) {
                MayMove::Yes => return Ok(Some(Arc::new(self.job.lasts(&view)))),
                MayMove::Over => return Ok(None),
                MayMove::Look => {}
            }
        }
    }

    /// A drain must leave capacity to the key's own traffic. `false` if the turn would come too
    /// late.
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

    fn now(&self) -> Moment {
        self.job.inner.environment.now()
    }
}

impl Move {
    /// Repeats a move until it has a response: its condition allows that. Also returns whether its
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
