//! Draining: continues where this instance stopped.
//!
//! A drain takes longer than one call, because it waits for earlier reads and requests. An instance
//! keeps the state of its own pass in memory between calls. An instance that takes over from
//! another one makes its own pass. [docs/protocol.md, Draining]

pub(crate) mod begin;
pub(crate) mod moves;

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::engine::drain::moves::{DrainBudget, MOVE_CONCURRENCY, Move, Stop};
use crate::engine::views::keys::{KeyJob, OwnDrain};
use crate::engine::width::{ScalingReason, ScalingStep};
use crate::engine::{Deadline, TableEngine};
use crate::protocol::drain::{is_young, may_begin_at, may_finish_at, may_purge, sources};
use crate::protocol::metadata::{Change, Drain, ShardMetadata};
use crate::protocol::view::Moment;
use crate::table::error::TableError;
use crate::values::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::values::placement::Placement;

const PAGE_ITEMS: u32 = 200;
/// The pause between two pages. Reading takes no write units, but must leave read units to others.
const PAGE_PAUSE: Duration = Duration::from_millis(20);
/// With less time than this left, a call begins no new page.
const MIN_TIME_LEFT: Duration = Duration::from_secs(2);
/// The largest number of remembered copies before they are deleted: some tens of megabytes.
const MAX_REMEMBERED_COPIES: usize = 50_000;
/// The least time for which other instances leave a key to the instance that drains it, in addition
/// to the wait for reads.
const MIN_OWNERSHIP_PERIOD: Duration = Duration::from_secs(10);

/// The state of a drain when a call ends.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drained {
    /// The key is not being drained: no drain was begun, another actor finished it, or the key's
    /// width is changing.
    Nothing,
    /// The drain has to wait until this epoch second.
    Waiting {
        /// Epoch seconds.
        until: u64,
    },
    /// The call's time is up. The next call continues.
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

impl TableEngine {
    /// Continues a drain until it is done, has to wait, or the deadline is near.
    pub async fn drain(
        &self,
        key: &PartitionKey,
        deadline: Deadline,
    ) -> Result<Drained, TableError> {
        self.drain_within(key, &[], deadline).await
    }

    /// As [`drain`](Self::drain), within all of these budgets besides the configured pace.
    pub async fn drain_within(
        &self,
        key: &PartitionKey,
        budgets: &[&DrainBudget],
        deadline: Deadline,
    ) -> Result<Drained, TableError> {
        self.inner.claim_once(deadline).await?;
        let job = self.inner.job(key, deadline);
        // The remembered state belongs to one call at a time.
        let Ok(mut own) = job.state.drain.try_lock() else {
            return Ok(Drained::Waiting { until: self.epoch_seconds() + 1 });
        };
        let mut run = DrainRun { job: &job, budgets, pace: HashMap::new(), items: 0 };
        match run.run(&mut own).await {
            Err(error @ (TableError::Rejected(_) | TableError::Damaged(_))) => {
                *own = None;
                // Every later call would find the same item. If the metadata is damaged, this
                // reports it again.
                let record = job.record_from_now().await?;
                job.step(&record, &Change::StopDrain { unmovable: true }).await?;
                Err(error)
            }
            done => done,
        }
    }
}

/// One call.
struct DrainRun<'a> {
    job: &'a KeyJob<'a>,
    budgets: &'a [&'a DrainBudget],
    /// The configured pace of each shard.
    pace: HashMap<ShardNumber, DrainBudget>,
    /// Items that it copied or deleted.
    items: u64,
}

impl DrainRun<'_> {
    async fn run(&mut self, own: &mut Option<OwnDrain>) -> Result<Drained, TableError> {
        loop {
            match self.go_on(own).await {
                Ok(Some(drained)) => return Ok(drained),
                Ok(None) | Err(Stop::Over) => {}
                Err(Stop::Interrupted) => return Ok(Drained::Working { items: self.items }),
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
    }

    /// The next step by the metadata. `None` if the metadata must be read again.
    async fn go_on(&mut self, own: &mut Option<OwnDrain>) -> Result<Option<Drained>, Stop> {
        let job = self.job;
        let record = job.record_from_now().await?;
        let metadata = &record.metadata;
        let (now, waits) = (self.now().epoch_seconds(), job.inner.config.waits());
        let Some(drain) = metadata.draining() else {
            *own = None;
            if !may_purge(metadata, &waits, now) {
                return Ok(Some(Drained::Nothing));
            }
            job.step(&record, &Change::BeginPurge).await?;
            return Ok(None);
        };
        own.take_if(|own| own.pass.generation() != metadata.generation);
        if own.is_none() && !job.is_in_step(&record).await? {
            return Ok(None);
        }
        let finishes_at = may_finish_at(&drain, &waits);
        if let Some(until) = finishes_at.filter(|until| now < *until) {
            return Ok(Some(Drained::Waiting { until }));
        }
        // Long enough for the next check of this view's age, and for the wait for reads.
        let own_time = waits.reads.max(MIN_OWNERSHIP_PERIOD).as_secs();
        let busy_until = now + waits.reads.as_secs() + own_time;
        let mark = match own {
            // Any actor may do the purge or the last scan: they need no claim.
            None if metadata.settled || finishes_at.is_some() => {
                *own = Some(OwnDrain::begin(metadata, job.inner, now));
                return Ok(None);
            }
            // Something has arrived late, so another pass begins.
            Some(own) if finishes_at.is_some() && own.found => Change::BeginDrain { busy_until },
            None => {
                let begins_at = may_begin_at(&metadata.layout(), &waits);
                let until = drain.busy_until.max(begins_at).unwrap_or_default();
                if now < until {
                    return Ok(Some(Drained::Waiting { until }));
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
                Some(own) if matches!(mark, Change::ProlongDrain { .. }) => own.pass.renew(&marked),
                _ => *own = Some(OwnDrain::begin(&marked, job.inner, now)),
            }
        }
        Ok(None)
    }

    /// Copies and deletes until a round finds nothing and the drain ends, or until a wait. For a
    /// settled key, it deletes tombstones.
    async fn work(
        &mut self,
        own: &mut OwnDrain,
        metadata: &ShardMetadata,
        drain: Drain,
    ) -> Result<Option<Drained>, Stop> {
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
                    return Ok(Some(Drained::Waiting { until: (now.wall + wait).as_secs() + 1 }));
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
                    return Ok(None);
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
                    return Ok(Some(Drained::Waiting { until }));
                }
                break;
            }
        }
        self.finish(own, metadata, &drain).await
    }

    /// Records that a round found nothing. `None` if the drain goes on.
    async fn finish(
        &self,
        own: &OwnDrain,
        metadata: &ShardMetadata,
        drain: &Drain,
    ) -> Result<Option<Drained>, Stop> {
        let job = self.job;
        let end = if metadata.settled {
            Change::Purged
        } else {
            own.pass.end(drain, job.inner.always_first().is_some())
        };
        let known = job.record_from_now().await?;
        if known.metadata.generation != own.pass.generation() {
            return Ok(None);
        }
        match job.step(&known, &end).await? {
            Some(done) if done.settled => {
                let (from, to) = (metadata.read_shards, done.read_shards);
                if !metadata.settled {
                    tracing::info!(%from, %to, "drained");
                    job.report(from, ScalingStep::Drained(to), ScalingReason::Asked);
                }
                Ok(Some(Drained::Done { from, to, items: self.items }))
            }
            Some(_) | None => Ok(None),
        }
    }

    /// The place of an item. With random placement, items within the write width stay, and all
    /// actors agree on a shard for the others.
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

    /// A page of a source: the items to copy home, and the sort key to continue after.
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

    fn now(&self) -> Moment {
        self.job.inner.environment.now()
    }
}
