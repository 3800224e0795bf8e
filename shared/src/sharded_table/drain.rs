//! Draining: begins drains, and continues where this instance stopped.
//!
//! A drain takes longer than one call, because it waits for earlier reads and requests. An instance
//! keeps the state of its own pass in memory between calls. An instance that takes over from
//! another one makes its own pass. [docs/protocol.md, Draining]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::events::{ScalingReason, ScalingStep};
use super::keys::KeyJob;
use super::pace::DrainBudget;
use super::retry::{Backoff, retrying};
use super::scale::{ScaleError, ScaleOutcome};
use super::views::Record;
use super::{Deadline, Inner, TableEngine};
use crate::core::growth::GrowthRecord;
use crate::core::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::core::placement::Placement;
use crate::protocol::drain::{
    MayMove, Pass, may_begin_at, may_finish_at, may_move, purges_at, sources,
};
use crate::protocol::metadata::{Change, Drain, Phase, ShardMetadata};
use crate::protocol::view::Moment;
use crate::table::error::TableError;
use crate::table::{LeaseLasts, Sent, StoredCopy};

/// Items of one page of a shard.
const PAGE_ITEMS: u32 = 200;
/// The pause between two pages. Reading takes no write units, but must leave read units to others.
const PAGE_PAUSE: Duration = Duration::from_millis(20);
/// The largest number of concurrent moves.
const AT_ONCE: usize = 16;
/// With less time than this left, a call begins no new page.
const LEAST_TIME: Duration = Duration::from_secs(2);
/// The largest number of remembered copies before they are deleted: some tens of megabytes.
const MOST_REMEMBERED: usize = 50_000;
/// The least time for which other instances leave a key to the instance that drains it, in addition
/// to the wait for reads.
const OWN_TIME: Duration = Duration::from_secs(10);

/// The state of a drain when a call ends.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Why a drain cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum DrainRefused {
    /// Only a lower number is a shrink.
    #[error("the key has {now} shards; a shrink goes to a lower number")]
    NotLower {
        /// The present write width.
        now: ShardCount,
    },
    /// The key's width is changing, the key is being drained, or it changed a moment ago.
    #[error("{0}")]
    Busy(&'static str),
    /// Writers without a view write to shard 1, or items are placed randomly, so items need not be
    /// at home.
    #[error(
        "the table takes appends only (WRITES=appends, or random placement): its keys can shrink, and cannot be settled"
    )]
    NoHomes,
    /// Only a table that is adopted with items under bare keys can be migrated.
    #[error("migrating needs ADOPT_UNSHARDED=true, in every function of the table")]
    NotAdopting,
    /// The tables could not be used.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl TableEngine {
    /// Lowers a key to this number of shards, and begins to drain the others.
    /// [`drain`](Self::drain) does the rest.
    ///
    /// # Errors
    /// [`DrainRefused`].
    pub async fn begin_shrink(
        &self,
        key: &PartitionKey,
        to: ShardCount,
        deadline: Deadline,
    ) -> Result<ShardMetadata, DrainRefused> {
        self.inner.claimed(None, deadline).await?;
        let job = self.inner.job(key, deadline);
        let record = job.record_from_now().await?;
        let now = record.metadata.number_of_shards;
        self.inner.is_calm(&record.metadata)?;
        if to >= now {
            return Err(DrainRefused::NotLower { now });
        }
        let close = Change::Close { to, growth: GrowthRecord::default() };
        match job.change_width(&record, close, ScalingReason::Asked).await? {
            ScaleOutcome::Scaled { .. } => {
                Ok(job.known_record().unwrap_or(record).metadata.clone())
            }
            ScaleOutcome::Unchanged(_) => {
                Err(DrainRefused::Busy("the key's page of the directory is full"))
            }
            ScaleOutcome::Superseded => Err(SUPERSEDED),
        }
    }

    /// Begins to settle a key. Once [`drain`](Self::drain) has finished it, every item is at its
    /// home and has no other place.
    ///
    /// # Errors
    /// [`DrainRefused`].
    pub async fn begin_settle(
        &self,
        key: &PartitionKey,
        deadline: Deadline,
    ) -> Result<ShardMetadata, DrainRefused> {
        let may_begin = |metadata: &ShardMetadata| {
            // Items that a shrink left behind can be moved even with random placement.
            if self.inner.always_first().is_some()
                && metadata.read_shards == metadata.number_of_shards
            {
                return Err(DrainRefused::NoHomes);
            }
            self.inner.is_calm(metadata)
        };
        self.begin(key, may_begin, deadline).await
    }

    /// Begins to migrate a key. Once [`drain`](Self::drain) has finished it, the bare key has no
    /// items.
    ///
    /// # Errors
    /// [`DrainRefused`].
    pub async fn begin_migration(
        &self,
        key: &PartitionKey,
        deadline: Deadline,
    ) -> Result<ShardMetadata, DrainRefused> {
        if !self.inner.config.adopt_unsharded {
            return Err(DrainRefused::NotAdopting);
        }
        self.begin(key, is_free, deadline).await
    }

    /// Marks a key for a drain by any actor.
    async fn begin(
        &self,
        key: &PartitionKey,
        may_begin: impl FnOnce(&ShardMetadata) -> Result<(), DrainRefused>,
        deadline: Deadline,
    ) -> Result<ShardMetadata, DrainRefused> {
        self.inner.claimed(None, deadline).await?;
        let job = self.inner.job(key, deadline);
        let mut record = job.record_from_now().await?;
        may_begin(&record.metadata)?;
        if !job.is_in_step(&record).await? {
            return Err(SUPERSEDED);
        }
        if !record.exists {
            job.register().await?;
            record = job.record_from_now().await?;
        }
        job.step(&record, &Change::MarkDrain).await?.ok_or(SUPERSEDED)
    }

    /// Continues a drain until it is done, has to wait, or the deadline is near. Any instance may
    /// call it at any time.
    ///
    /// # Errors
    /// [`ScaleError::Table`] if the tables could not be used. The work so far is kept; the next
    /// call continues.
    pub async fn drain(
        &self,
        key: &PartitionKey,
        deadline: Deadline,
    ) -> Result<Drained, ScaleError> {
        self.drain_within(key, &[], deadline).await
    }

    /// As [`drain`](Self::drain), within all of these budgets besides the configured pace.
    ///
    /// # Errors
    /// As [`drain`](Self::drain).
    pub async fn drain_within(
        &self,
        key: &PartitionKey,
        budgets: &[&DrainBudget],
        deadline: Deadline,
    ) -> Result<Drained, ScaleError> {
        self.inner.claimed(None, deadline).await?;
        let job = self.inner.job(key, deadline);
        // The remembered state belongs to one call at a time.
        let Ok(mut own) = job.state.drain.try_lock() else {
            return Ok(Drained::Waiting {
                until: self.inner.environment.now().epoch_seconds() + 1,
            });
        };
        let mut run = DrainRun { job: &job, budgets, pace: HashMap::new(), items: 0, from: None };
        match run.run(&mut own).await {
            Err(
                error @ (TableError::Occupied | TableError::Rejected(_) | TableError::Damaged(_)),
            ) => {
                *own = None;
                // Every later call would find the same item. If the metadata is damaged, this
                // reports it again.
                let record = job.record_from_now().await?;
                job.step(&record, &Change::StopDrain { unmovable: true }).await?;
                Err(error.into())
            }
            done => Ok(done?),
        }
    }
}

const SUPERSEDED: DrainRefused = DrainRefused::Busy("another actor changed it first");

const fn is_free(metadata: &ShardMetadata) -> Result<(), DrainRefused> {
    match metadata.phase {
        Phase::Open => Ok(()),
        Phase::Draining(_) => Err(DrainRefused::Busy("the key is being drained already")),
        Phase::Closing(_) => Err(DrainRefused::Busy("the key's width is changing")),
    }
}

impl Inner {
    fn is_calm(&self, metadata: &ShardMetadata) -> Result<(), DrainRefused> {
        let now = self.environment.now().epoch_seconds();
        is_free(metadata)?;
        if now < metadata.last_change().unwrap_or_default() + self.config.policy.cooldown_seconds {
            return Err(DrainRefused::Busy("the key's shards changed a moment ago"));
        }
        Ok(())
    }
}

/// The state of a drain that this instance keeps between two calls.
#[derive(Debug)]
pub(crate) struct OwnDrain {
    /// Epoch seconds.
    began: u64,
    pass: Pass<SortKey, StoredCopy>,
    /// The next source to read, and the sort key to continue after.
    next: (ShardNumber, Option<SortKey>),
    /// The remembered copies must be deleted before more is read.
    deletes: bool,
    /// This round over the sources copied or found something, so another round must follow.
    found: bool,
    /// This round found tombstones at home.
    tombstones: bool,
    /// When an item that is left to expire will have expired.
    expiring_until: Option<u64>,
}

impl OwnDrain {
    fn begin(marked: &ShardMetadata, inner: &Inner, now: u64) -> Self {
        let (pass, next) = (
            Pass::begin(marked, inner.bare(), inner.always_first().is_some()),
            (ShardNumber::UNSHARDED, None),
        );
        Self {
            began: now,
            pass,
            next,
            deletes: false,
            found: false,
            tombstones: false,
            expiring_until: None,
        }
    }
}

/// One call's part of a drain.
struct DrainRun<'a> {
    job: &'a KeyJob<'a>,
    budgets: &'a [&'a DrainBudget],
    /// The pace of each shard.
    pace: HashMap<ShardNumber, DrainBudget>,
    items: u64,
    /// The read width before this call lowered it.
    from: Option<ShardCount>,
}

/// Why a part of the work stopped early.
enum Stop {
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

/// The items of a shard's page, and the sort key to continue after.
type Page<T> = (Vec<T>, Option<SortKey>);

/// One request of a drain.
struct Move {
    copy: StoredCopy,
    /// The place of the copy.
    at: ShardNumber,
    /// The place to copy it to, and its width there; `None` to delete the copy.
    home: Option<(ShardNumber, ShardCount)>,
}

impl DrainRun<'_> {
    async fn run(&mut self, own: &mut Option<OwnDrain>) -> Result<Drained, TableError> {
        loop {
            // Boxed: the SDK's futures nest deeply.
            match Box::pin(self.go_on(own)).await {
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
        let Some(drain) = metadata.draining() else {
            *own = None;
            return Ok(Some(Drained::Nothing));
        };
        own.take_if(|own| own.pass.generation() != metadata.generation);
        if own.is_none() && !job.is_in_step(&record).await? {
            return Ok(None);
        }
        let (now, waits) = (self.now().epoch_seconds(), job.inner.config.waits());
        let finishes_at = may_finish_at(&drain, &waits);
        if let Some(until) = finishes_at.filter(|until| now < *until) {
            return Ok(Some(Drained::Waiting { until }));
        }
        // Long enough for the next check of this view's age, and for the wait for reads.
        let own_time = waits.reads.max(OWN_TIME).as_secs();
        let busy_until = now + waits.reads.as_secs() + own_time;
        let mark = match own {
            None if metadata.settled => {
                // A reader may have seen an old copy below a tombstone. It must still find the
                // tombstone, unless it learns that the key is settled.
                if metadata.layout().is_listed(job.inner.config.adopt_shards) {
                    job.inner.publish(job.key, metadata.layout(), job.deadline).await?;
                    sleep(job.inner.environment.opening_wait()).await;
                } else if let Some(until) = purges_at(metadata, &waits).filter(|until| now < *until)
                {
                    return Ok(Some(Drained::Waiting { until }));
                }
                *own = Some(OwnDrain::begin(metadata, job.inner, now));
                return Ok(None);
            }
            // Any actor may do the last scan. If something has arrived late, another pass begins.
            Some(own) if finishes_at.is_some() && own.found => Change::BeginDrain { busy_until },
            None if finishes_at.is_some() => {
                *own = Some(OwnDrain::begin(metadata, job.inner, now));
                return Ok(None);
            }
            None => {
                let until = drain
                    .busy_until
                    .max(may_begin_at(&metadata.layout(), &waits))
                    .unwrap_or_default();
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
        let shards: Vec<ShardNumber> = self.sources(metadata).collect();
        loop {
            self.is_in_time()?;
            let (from, after) = &own.next;
            if own.deletes {
                let now = self.now();
                let wait = own.pass.wait_for_reads(&job.inner.config.waits(), now);
                if !wait.is_zero() {
                    return Ok(Some(Drained::Waiting { until: (now.wall + wait).as_secs() + 1 }));
                }
                let part = own.pass.take(AT_ONCE * 4);
                own.deletes = !part.is_empty();
                let moves =
                    part.into_iter().map(|(at, _, copy)| Move { copy, at, home: None }).collect();
                self.carry_out(own, moves).await?;
            } else if let Some(shard) = shards.iter().copied().find(|shard| shard >= from) {
                let after = after.clone().filter(|_| shard == *from);
                let (moves, next) = self.look_at(own, metadata, shard, after).await?;
                if own.found && drain.emptied_at.is_some() {
                    return Ok(None);
                }
                self.carry_out(own, moves).await?;
                own.next = next.map_or((shard.next(), None), |next| (shard, Some(next)));
                own.deletes = own.pass.remembered() >= MOST_REMEMBERED;
            } else if own.pass.remembered() > 0 {
                own.deletes = true;
            } else {
                own.next = (ShardNumber::UNSHARDED, None);
                if std::mem::take(&mut own.found) {
                    own.tombstones = false;
                } else if let Some(until) = own.expiring_until.take() {
                    return Ok(Some(Drained::Waiting { until }));
                } else {
                    break;
                }
            }
        }
        let end = if metadata.settled {
            Change::Purged
        } else {
            own.pass.end(&drain, job.inner.always_first().is_some(), own.tombstones)
        };
        let known = job.record_from_now().await?;
        if known.metadata.generation != own.pass.generation() {
            return Ok(None);
        }
        match job.step(&known, &end).await? {
            Some(done) if done.settled => {
                let (from, to) = (*self.from.get_or_insert(metadata.read_shards), done.read_shards);
                if !metadata.settled {
                    tracing::info!(%from, %to, "drained");
                    job.inner.tell(job.key, from, ScalingStep::Drained(to), ScalingReason::Asked);
                }
                Ok(done.draining().is_none().then_some(Drained::Done {
                    from,
                    to,
                    items: self.items,
                }))
            }
            Some(_) | None => Ok(None),
        }
    }

    fn is_in_time(&self) -> Result<(), Stop> {
        if Instant::now() + LEAST_TIME < self.job.deadline {
            Ok(())
        } else {
            Err(Stop::Interrupted)
        }
    }

    fn sources(&self, metadata: &ShardMetadata) -> impl Iterator<Item = ShardNumber> + use<> {
        let inner = self.job.inner;
        sources(metadata, inner.always_first().is_some(), inner.bare())
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
            let stays = shard != ShardNumber::UNSHARDED && shard.get() <= width.get();
            if stays { Some(shard) } else { Placement::Calculated.home(key, sort_key, width) }
        };
        self.job
            .inner
            .config
            .placement
            .home(key, sort_key, width)
            .or_else(any)
            .unwrap_or(ShardNumber::FIRST)
    }

    /// A page of a source: the items to copy home, and the sort key to continue after.
    async fn look_at(
        &self,
        own: &mut OwnDrain,
        metadata: &ShardMetadata,
        shard: ShardNumber,
        after: Option<SortKey>,
    ) -> Result<Page<Move>, TableError> {
        let (copies, next) = self.scan(shard, after.as_ref()).await?;
        let (inner, now) = (self.job.inner, self.now());
        let let_until = own.began.saturating_add(inner.config.let_expire.as_secs());
        let mut moves = Vec::new();
        for copy in copies {
            let home = self.home(&copy.sort_key, shard, metadata);
            let known = own.pass.known(shard, &copy.sort_key);
            if home == shard && copy.copy.is_tombstone {
                own.tombstones = true;
                if metadata.settled {
                    moves.push(Move { copy, at: shard, home: None });
                }
                continue;
            }
            if home == shard
                || metadata.settled
                || known.is_some_and(|known| known.copy.version == copy.copy.version)
            {
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
                _ => moves.push(Move {
                    copy,
                    at: shard,
                    home: Some((home, metadata.number_of_shards)),
                }),
            }
            own.found = true;
        }
        Ok((moves, next))
    }

    /// Sends moves, several at once. The next round finds the items that could not be moved.
    async fn carry_out(&mut self, own: &mut OwnDrain, moves: Vec<Move>) -> Result<(), Stop> {
        let (mut sending, mut stop, mut moves) = (JoinSet::new(), None, moves.into_iter());
        loop {
            while sending.len() < AT_ONCE
                && stop.is_none()
                && let Some(next) = moves.next()
            {
                let shard = next.home.map_or(next.at, |(home, _)| home);
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
            let (Move { copy, at, home }, sent, is_certain) =
                done.map_err(|died| TableError::Transient(died.to_string().into()))?;
            if is_certain {
                own.pass.answered();
            }
            match sent {
                Ok(Sent::Refused(Some(stands))) if home.is_some() && !stands.is_ours => {
                    return Err(TableError::Occupied.into());
                }
                Ok(Sent::Applied | Sent::Refused(_)) => {
                    self.items += 1;
                    if home.is_some() {
                        own.pass.found_home(
                            at,
                            copy.sort_key.clone(),
                            copy.remembered(),
                            self.now(),
                        );
                    }
                }
                Ok(Sent::LeaseOver | Sent::Throttled(_) | Sent::Conflict) => own.found = true,
                Err(error) if error.is_retryable() => stop = Some(Stop::Interrupted),
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn scan(
        &self,
        shard: ShardNumber,
        after: Option<&SortKey>,
    ) -> Result<Page<StoredCopy>, TableError> {
        let KeyJob { inner, key, deadline, .. } = self.job;
        let scan = || inner.tables.scan_shard(key, shard, after, PAGE_ITEMS);
        let page = retrying(&inner.environment, *deadline, scan).await;
        sleep(PAGE_PAUSE).await;
        page
    }

    /// The view of the next move. `None` if the metadata has another generation now.
    async fn lease(&self, generation: u64) -> Result<Option<LeaseLasts>, TableError> {
        let lease = self.job.inner.config.lease();
        loop {
            let is_fresh = |record: &Record, now: Moment| record.view().is_valid(now, lease / 2);
            let view = self.job.record(is_fresh).await?.view();
            match may_move(generation, &view, lease, self.now()) {
                MayMove::Yes => {
                    let inner = Arc::clone(self.job.inner);
                    return Ok(Some(Arc::new(move || {
                        view.is_valid(inner.environment.now(), lease)
                    })));
                }
                MayMove::Over => return Ok(None),
                MayMove::Look => {}
            }
        }
    }

    fn now(&self) -> Moment {
        self.job.inner.environment.now()
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
    ) -> (Self, Result<Sent, TableError>, bool) {
        let (mut backoff, mut is_certain) = (Backoff::default(), true);
        loop {
            let (copy, lasts) = (&self.copy, Arc::clone(lasts));
            let sent = match self.home {
                Some((home, width)) => {
                    inner.tables.copy_home(key, copy, (self.at, home, width), lasts).await
                }
                None => inner.tables.delete_copy(key, copy, self.at, lasts).await,
            };
            let error = match sent {
                Ok(Sent::Throttled(scope)) => TableError::Capacity(scope),
                Ok(Sent::Conflict) => TableError::Conflict,
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
