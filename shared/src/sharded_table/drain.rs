//! Shrinking and settling: begin, and go on where whoever came before left off.
//!
//! A drain takes longer than an actor may live, so how far it is stands in the metadata: every actor that comes by goes on from there, and any
//! step may be repeated. The waits are counted from the times that stand there, by whoever comes by; the margin covers the difference
//! between two actors' clocks. [docs/protocol.md, Shrinking]

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::events::{ScalingReason, ScalingStep};
use super::keys::KeyState;
use super::pace::DrainBudget;
use super::retry::{Backoff, retrying};
use super::scale::ScaleError;
use super::{Deadline, Inner, ShardedTable};
use crate::core::drain::{Drain, DrainGoal, DrainPosition, DrainStep, home};
use crate::core::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::core::metadata::ShardMetadata;
use crate::core::placement::Placement;
use crate::core::view::Moment;
use crate::table::error::TableError;
use crate::table::{LeaseLasts, MetadataUpdate, Moved, StoredCopy};

/// Items of one page of a shard: at most as many are moved between two checkpoints.
const PAGE_ITEMS: u32 = 100;
/// Write units for each KB begun of an item: two operations of a transaction, each of which takes two.
const UNITS_OF_A_MOVE: u64 = 4;
/// Between two pages: looking takes no write units, but must leave read units to others.
const PAGE_PAUSE: Duration = Duration::from_millis(40);
/// What is left of an invocation's time when no new page is begun.
const LEAST_TIME: Duration = Duration::from_secs(2);

/// Where a drain stands when its actor lets go of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drained {
    /// The key is not being drained: it never was, another actor finished it, or it turned hot.
    Nothing,
    /// Nothing is to do before this epoch second.
    Waiting {
        /// The step.
        step: DrainStep,
        /// Epoch seconds.
        until: u64,
    },
    /// The time was up; the next call goes on.
    Working {
        /// The step.
        step: DrainStep,
        /// Items moved or deleted by this call.
        items: u64,
    },
    /// Readers look at this many shards from now on.
    Done {
        /// What it was for.
        goal: DrainGoal,
        /// The read width before.
        from: ShardCount,
        /// Both widths now.
        to: ShardCount,
        /// Items moved or deleted by this call.
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
    /// The key is growing, being drained, or changed a moment ago.
    #[error("{0}")]
    Busy(&'static str),
    /// Writers without a view would store on shard 1, where no reader of one item would look.
    #[error("settling needs COLD_APPEND=false, in every function that writes to the table")]
    ColdAppend,
    /// Items are placed at random: they have no homes.
    #[error("items that are placed at random have no homes to settle at")]
    NoHomes,
    /// Only a table that is adopted with items under bare keys has any to migrate.
    #[error("migrating needs ADOPT_UNSHARDED=true, in every function of the table")]
    NotAdopting,
    /// The tables could not be used.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl ShardedTable {
    /// Begins to shrink a key: writers use so many shards from now on. [`drain`](Self::drain) does the rest.
    ///
    /// # Errors
    /// [`DrainRefused`].
    pub async fn begin_shrink(
        &self,
        key: &PartitionKey,
        to: ShardCount,
        deadline: Deadline,
    ) -> Result<ShardMetadata, DrainRefused> {
        self.begin(key, DrainGoal::Shrink, Some(to), deadline).await
    }

    /// Begins to settle a key: once [`drain`](Self::drain) has done it, every item is at its home under the present width, and point writes
    /// have one candidate again.
    ///
    /// # Errors
    /// [`DrainRefused`].
    pub async fn begin_settle(&self, key: &PartitionKey, deadline: Deadline) -> Result<ShardMetadata, DrainRefused> {
        self.begin(key, DrainGoal::Settle, None, deadline).await
    }

    /// Begins to migrate a key: once [`drain`](Self::drain) has done it, no item stands under the bare key any more.
    ///
    /// # Errors
    /// [`DrainRefused`].
    pub async fn begin_migration(&self, key: &PartitionKey, deadline: Deadline) -> Result<ShardMetadata, DrainRefused> {
        self.begin(key, DrainGoal::Migrate, None, deadline).await
    }

    async fn begin(
        &self,
        key: &PartitionKey,
        goal: DrainGoal,
        to: Option<ShardCount>,
        deadline: Deadline,
    ) -> Result<ShardMetadata, DrainRefused> {
        let inner = &self.inner;
        if goal == DrainGoal::Migrate && !inner.config.adopt_unsharded {
            return Err(DrainRefused::NotAdopting);
        }
        if goal == DrainGoal::Settle && inner.config.cold_append {
            return Err(DrainRefused::ColdAppend);
        }
        if goal == DrainGoal::Settle && inner.config.placement == Placement::Random {
            return Err(DrainRefused::NoHomes);
        }
        let state = inner.keys.state(key);
        let mut view = inner.view_from_now(key, &state, deadline).await?;
        if view.metadata.is_none() && (goal == DrainGoal::Migrate || inner.config.adopt_shards > ShardCount::ONE) {
            inner.register(key, &state, deadline).await?;
            view = inner.view_from_now(key, &state, deadline).await?;
        }
        let metadata = view.widths().into_owned();
        let (now, now_seconds) = (metadata.number_of_shards, inner.environment.now().epoch_seconds());
        let to = to.unwrap_or(now);
        if metadata.draining {
            return Err(DrainRefused::Busy("the key is being drained already"));
        }
        if metadata.expansion().is_some() {
            return Err(DrainRefused::Busy("the key is growing"));
        }
        if view.metadata.is_none() || (goal == DrainGoal::Shrink && to >= now) {
            return Err(DrainRefused::NotLower { now });
        }
        // A migration changes no width.
        if goal != DrainGoal::Migrate
            && now_seconds < metadata.last_change().unwrap_or_default() + inner.config.policy.cooldown_seconds
        {
            return Err(DrainRefused::Busy("the key's shards changed a moment ago"));
        }
        const OUTRUN: DrainRefused = DrainRefused::Busy("another actor changed it first");
        let mut known = metadata;
        if goal == DrainGoal::Shrink {
            // Nobody may write by the new width while views from before, which do not have its homes among the candidates, are relied on.
            let announced = MetadataUpdate::AnnounceWidth { to };
            known = inner.step(key, &state, view.metadata.as_ref(), announced).await?.ok_or(OUTRUN)?;
            inner.wait_out_views().await;
        }
        let now_seconds = inner.environment.now().epoch_seconds();
        let update = MetadataUpdate::BeginDrain { to, drain: Drain::begin(goal, now_seconds) };
        inner.step(key, &state, Some(&known), update).await?.ok_or(OUTRUN)
    }

    /// Goes on with a drain until it is done, has to wait, or the deadline is near. Any actor may call it at any time, and several at once.
    ///
    /// # Errors
    /// [`ScaleError::Table`] where the tables could not be used. What was done is done; the next call goes on.
    pub async fn drain(&self, key: &PartitionKey, deadline: Deadline) -> Result<Drained, ScaleError> {
        self.drain_within(key, &[&DrainBudget::new(self.inner.config.drain.units_per_second.into())], deadline).await
    }

    /// As [`drain`](Self::drain), within all of these budgets in place of the configured pace.
    ///
    /// # Errors
    /// As [`drain`](Self::drain).
    pub async fn drain_within(
        &self,
        key: &PartitionKey,
        budgets: &[&DrainBudget],
        deadline: Deadline,
    ) -> Result<Drained, ScaleError> {
        let state = self.inner.keys.state(key);
        let known_at = self.inner.environment.now();
        let run = DrainRun { inner: &self.inner, key, state: &state, deadline, items: 0, budgets, known_at };
        match run.run().await {
            Err(error @ (TableError::Occupied | TableError::Rejected(_) | TableError::Damaged(_))) => {
                // It would be met again for ever. Where it is the metadata that is damaged, this tells so again.
                let view = self.inner.view_from_now(key, &state, deadline).await?;
                if let Some(marked) = view.metadata.as_ref().filter(|metadata| metadata.draining) {
                    self.inner.step(key, &state, Some(marked), MetadataUpdate::StopDrain { unmovable: true }).await?;
                }
                Err(error.into())
            }
            done => Ok(done?),
        }
    }
}

/// One actor's part of a drain.
struct DrainRun<'a> {
    inner: &'a Arc<Inner>,
    key: &'a PartitionKey,
    state: &'a Arc<KeyState>,
    deadline: Deadline,
    items: u64,
    budgets: &'a [&'a DrainBudget],
    /// Before the metadata was asked for or changed that this run goes by. An actor that was frozen must not move items in a later age.
    known_at: Moment,
}

/// What became of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Treated {
    Done,
    NotHome,
    LeaseOver,
    /// Its turn comes after the deadline.
    TooLate,
    /// Left to expire at this epoch second.
    Expires(u64),
}

/// What a pass over the shards came to, with the metadata that it left behind.
enum Pass {
    /// To the end.
    Whole(ShardMetadata),
    /// An item is not at home: it must be copied first.
    NotHome(ShardMetadata),
    /// The time is up.
    Interrupted,
    /// Somebody else has changed the metadata.
    Outrun,
    /// To the end, but for items that expire up to this epoch second.
    Expiring(ShardMetadata, u64),
}

impl DrainRun<'_> {
    async fn run(mut self) -> Result<Drained, TableError> {
        loop {
            self.known_at = self.inner.environment.now();
            let view = self.inner.view_from_now(self.key, self.state, self.deadline).await?;
            let Some(marked) = view.metadata.as_ref().filter(|metadata| metadata.draining) else {
                return Ok(Drained::Nothing);
            };
            let now = self.inner.environment.now().epoch_seconds();
            let Some(drain) = marked.drain.clone() else {
                // Marked by another program: all of it is still to do.
                self.checkpoint(marked, Drain::begin(DrainGoal::Shrink, now)).await?;
                continue;
            };
            if drain.goal == DrainGoal::Migrate && !self.inner.config.adopt_unsharded {
                // Without the flag nobody looks under bare keys, and what stands there may be a shard of another key.
                self.inner
                    .step(self.key, self.state, Some(marked), MetadataUpdate::StopDrain { unmovable: false })
                    .await?;
                continue;
            }
            let pace = self.inner.config.drain;
            let (seen, next) = match drain.step {
                DrainStep::Mark => (marked.clone(), DrainStep::WaitOutWriters),
                DrainStep::WaitOutWriters | DrainStep::WaitOutReads => {
                    let (since, wait, next) = if drain.step == DrainStep::WaitOutWriters {
                        (drain.writers_since(marked), pace.wait_for_writers, DrainStep::CopyHome)
                    } else {
                        (drain.since, pace.wait_for_reads, DrainStep::DeleteOldCopies)
                    };
                    let until = since.saturating_add(wait.as_secs()).saturating_add(1);
                    if now < until {
                        return Ok(Drained::Waiting { step: drain.step, until });
                    }
                    (marked.clone(), next)
                }
                // What expires is waited for.
                DrainStep::DeleteOldCopies if now < drain.since => {
                    return Ok(Drained::Waiting { step: drain.step, until: drain.since });
                }
                DrainStep::CopyHome | DrainStep::DeleteOldCopies | DrainStep::Verify => {
                    match (self.pass(marked, &drain).await?, drain.step) {
                        (Pass::Outrun, _) => continue,
                        (Pass::Interrupted, step) => return Ok(Drained::Working { step, items: self.items }),
                        (Pass::NotHome(seen), _) => (seen, DrainStep::CopyHome),
                        (Pass::Expiring(seen, until), _) => {
                            self.checkpoint(&seen, drain.at(DrainStep::DeleteOldCopies, until)).await?;
                            continue;
                        }
                        (Pass::Whole(seen), DrainStep::CopyHome) => (seen, DrainStep::WaitOutReads),
                        (Pass::Whole(seen), DrainStep::DeleteOldCopies) => (seen, DrainStep::Verify),
                        (Pass::Whole(seen), _) => match self.finish(&seen, &drain).await? {
                            Some(done) => return Ok(done),
                            None => continue,
                        },
                    }
                }
            };
            // What is waited for from now on was all done before now.
            let now = self.inner.environment.now().epoch_seconds();
            self.checkpoint(&seen, drain.at(next, now)).await?;
        }
    }

    /// Notes how far it is; `false` where another actor was first.
    async fn checkpoint(&self, seen: &ShardMetadata, drain: Drain) -> Result<bool, TableError> {
        let update = MetadataUpdate::Checkpoint(drain);
        Ok(self.inner.step(self.key, self.state, Some(seen), update).await?.is_some())
    }

    /// Every item of the shards in question, from where the step was left.
    async fn pass(&mut self, marked: &ShardMetadata, drain: &Drain) -> Result<Pass, TableError> {
        let (mut seen, mut expiring) = (marked.clone(), None);
        let (from, mut after) = match &drain.position {
            None => (ShardNumber::UNSHARDED, None),
            Some(DrainPosition { shard, after }) => {
                let sort_key_type = self.inner.config.sort_key_type;
                let parsed = after.as_deref().map(|after| SortKey::parse(sort_key_type, after)).transpose();
                // What cannot be read is begun anew.
                (*shard, parsed.unwrap_or_default())
            }
        };
        for shard in drain.sources(marked).filter(|shard| *shard >= from) {
            loop {
                if Instant::now() + LEAST_TIME >= self.deadline {
                    self.reached(&seen, drain, shard, after.as_ref()).await?;
                    return Ok(Pass::Interrupted);
                }
                let (environment, tables) = (&self.inner.environment, &self.inner.tables);
                let page = retrying(environment, self.deadline, || {
                    tables.scan_shard(self.key, shard, after.as_ref(), PAGE_ITEMS)
                });
                let (copies, next) = page.await?;
                sleep(PAGE_PAUSE).await;
                for copy in copies {
                    if Instant::now() + LEAST_TIME >= self.deadline {
                        self.reached(&seen, drain, shard, after.as_ref()).await?;
                        return Ok(Pass::Interrupted);
                    }
                    let to = home(self.inner.config.placement, self.key, &copy.sort_key, marked.number_of_shards);
                    let sort_key = copy.sort_key.clone();
                    if to != shard {
                        match self.treat(drain, copy, shard, (to, marked.number_of_shards)).await {
                            Ok(Treated::Done) => {}
                            Ok(Treated::Expires(at)) => expiring = expiring.max(Some(at)),
                            Ok(Treated::NotHome) => return Ok(Pass::NotHome(seen)),
                            Ok(Treated::TooLate) => {
                                self.reached(&seen, drain, shard, after.as_ref()).await?;
                                return Ok(Pass::Interrupted);
                            }
                            Ok(Treated::LeaseOver) => {
                                // Where a page takes longer than the lease, each look at the metadata must bring it further.
                                self.reached(&seen, drain, shard, after.as_ref()).await?;
                                return Ok(Pass::Outrun);
                            }
                            Err(error) => {
                                // What was done need not be done again; if this fails, too, it is.
                                let _ = self.reached(&seen, drain, shard, after.as_ref()).await;
                                return Err(error);
                            }
                        }
                    }
                    after = Some(sort_key);
                }
                after = next;
                let at = if after.is_some() { shard } else { shard.next() };
                match self.reached(&seen, drain, at, after.as_ref()).await? {
                    Some(metadata) => seen = metadata,
                    None => return Ok(Pass::Outrun),
                }
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(match expiring.filter(|_| drain.step != DrainStep::CopyHome) {
            Some(until) => Pass::Expiring(seen, until),
            None => Pass::Whole(seen),
        })
    }

    /// What a step does with an item that is not at home.
    async fn treat(
        &mut self,
        drain: &Drain,
        copy: StoredCopy,
        from: ShardNumber,
        (to, width): (ShardNumber, ShardCount),
    ) -> Result<Treated, TableError> {
        let now = self.inner.environment.now().epoch_seconds();
        let expires = self.inner.tables.expires_at(&copy, now);
        // Counted from the drain's beginning: what is prolonged again and again is moved in the end.
        let let_until = drain.began.saturating_add(self.inner.config.let_expire.as_secs());
        let expires = expires.filter(|at| *at <= now.max(let_until));
        match drain.step {
            DrainStep::CopyHome if let Some(at) = expires => Ok(Treated::Expires(at)),
            DrainStep::DeleteOldCopies if let Some(at) = expires => self.expire(copy, from, at <= now).await,
            DrainStep::Verify if let Some(at) = expires => Ok(Treated::Expires(at)),
            DrainStep::CopyHome => self.copy(copy, from, to, width).await,
            DrainStep::DeleteOldCopies => self.delete(copy, from, to).await,
            DrainStep::Verify | DrainStep::Mark | DrainStep::WaitOutWriters | DrainStep::WaitOutReads => {
                Ok(Treated::NotHome)
            }
        }
    }

    fn lease(&self) -> LeaseLasts {
        let (inner, known_at) = (Arc::clone(self.inner), self.known_at);
        Arc::new(move || inner.environment.now().since(known_at).is_some_and(|age| age < inner.config.append_lease()))
    }

    /// Notes where the step goes on: after this sort key of the shard, or at its beginning. `None` where another actor was first.
    async fn reached(
        &mut self,
        seen: &ShardMetadata,
        drain: &Drain,
        shard: ShardNumber,
        after: Option<&SortKey>,
    ) -> Result<Option<ShardMetadata>, TableError> {
        let position = DrainPosition { shard, after: after.map(SortKey::to_string) };
        let update = MetadataUpdate::Checkpoint(Drain { position: Some(position), ..drain.clone() });
        let asked_at = self.inner.environment.now();
        let noted = self.inner.step(self.key, self.state, Some(seen), update).await?;
        if noted.is_some() {
            self.known_at = asked_at;
        }
        Ok(noted)
    }

    async fn copy(
        &mut self,
        mut copy: StoredCopy,
        from: ShardNumber,
        to: ShardNumber,
        width: ShardCount,
    ) -> Result<Treated, TableError> {
        let mut backoff = Backoff::default();
        loop {
            if !self.take_turn(copy.write_units() * UNITS_OF_A_MOVE).await {
                return Ok(Treated::TooLate);
            }
            let moved = self.inner.tables.copy_home(self.key, &copy, (from, to, width), self.lease()).await;
            match self.settle_doubt(moved, &mut backoff).await? {
                Some(Moved::LeaseOver) => return Ok(Treated::LeaseOver),
                Some(Moved::Done | Moved::Home) => {
                    self.items += 1;
                    return Ok(Treated::Done);
                }
                Some(_) => match self.read_again(&copy, from).await? {
                    Some(now) => copy = now,
                    None => return Ok(Treated::Done),
                },
                None => {}
            }
        }
    }

    async fn delete(
        &mut self,
        mut copy: StoredCopy,
        from: ShardNumber,
        to: ShardNumber,
    ) -> Result<Treated, TableError> {
        let mut backoff = Backoff::default();
        loop {
            if !self.take_turn(copy.write_units() * UNITS_OF_A_MOVE).await {
                return Ok(Treated::TooLate);
            }
            let moved = self.inner.tables.delete_old_copy(self.key, &copy, (from, to), self.lease()).await;
            match self.settle_doubt(moved, &mut backoff).await? {
                Some(Moved::LeaseOver) => return Ok(Treated::LeaseOver),
                Some(Moved::Done) => {
                    self.items += 1;
                    return Ok(Treated::Done);
                }
                Some(Moved::Home) => return Ok(Treated::NotHome),
                Some(_) => match self.read_again(&copy, from).await? {
                    Some(now) => copy = now,
                    None => return Ok(Treated::Done),
                },
                None => {}
            }
        }
    }

    /// Deletes what has expired, and leaves what will: a newer copy at home may be younger than the reads that are waited out, so until it
    /// expires the item has to stand here, too.
    async fn expire(&mut self, copy: StoredCopy, from: ShardNumber, has_expired: bool) -> Result<Treated, TableError> {
        let now = self.inner.environment.now().epoch_seconds();
        let Some(at) = self.inner.tables.expires_at(&copy, now) else { return Ok(Treated::NotHome) };
        if !has_expired {
            return Ok(Treated::Expires(at));
        }
        let mut backoff = Backoff::default();
        loop {
            if !self.take_turn(copy.write_units()).await {
                return Ok(Treated::TooLate);
            }
            let moved = self.inner.tables.delete_expired(self.key, &copy, from, self.lease()).await;
            match self.settle_doubt(moved, &mut backoff).await? {
                Some(Moved::LeaseOver) => return Ok(Treated::LeaseOver),
                Some(Moved::Done) => {
                    self.items += 1;
                    return Ok(Treated::Done);
                }
                // It was prolonged, perhaps: an item like any other, which is to be copied first.
                Some(_) => {
                    let stands = self.read_again(&copy, from).await?.is_some();
                    return Ok(if stands { Treated::NotHome } else { Treated::Done });
                }
                None => {}
            }
        }
    }

    /// What an attempt came to; `None` after a pause, where it is to be made again. Every attempt may be repeated: its conditions say what it
    /// may meet.
    async fn settle_doubt(
        &self,
        moved: Result<Moved, TableError>,
        backoff: &mut Backoff,
    ) -> Result<Option<Moved>, TableError> {
        let error = match moved {
            Ok(done @ (Moved::Done | Moved::Home | Moved::Changed | Moved::LeaseOver)) => return Ok(Some(done)),
            Ok(Moved::Occupied) => return Err(TableError::Occupied),
            Ok(Moved::Conflict) => TableError::Conflict,
            Ok(Moved::Throttled(scope)) => TableError::Capacity(scope),
            Err(error) if error.is_retryable() => error,
            Err(error) => return Err(error),
        };
        let pause = backoff.next(&self.inner.environment);
        if Instant::now() + pause >= self.deadline {
            return Err(error);
        }
        sleep(pause).await;
        Ok(None)
    }

    async fn read_again(&self, copy: &StoredCopy, shard: ShardNumber) -> Result<Option<StoredCopy>, TableError> {
        let (environment, tables) = (&self.inner.environment, &self.inner.tables);
        retrying(environment, self.deadline, || tables.stored_on(self.key, &copy.sort_key, shard)).await
    }

    /// Keeps to the pace: a drain must leave the capacity to the key's own traffic. `false`, with nothing taken, where the turn would come too late.
    async fn take_turn(&self, units: u64) -> bool {
        // Well within the lease of what is moved.
        let by = self.deadline.min(Instant::now() + self.inner.config.append_lease() / 2);
        if self.budgets.iter().any(|budget| *budget.next() > by) {
            return false;
        }
        if let Some(at) = self.budgets.iter().map(|budget| budget.take(units)).max() {
            tokio::time::sleep_until(at.min(self.deadline)).await;
        }
        true
    }

    /// `None` where another actor was first.
    async fn finish(&self, known: &ShardMetadata, drain: &Drain) -> Result<Option<Drained>, TableError> {
        let update = MetadataUpdate::FinishDrain {
            history: drain.history_after(known, self.inner.config.placement),
            settled: drain.goal == DrainGoal::Settle,
        };
        let (from, to) = (known.read_shards, known.number_of_shards);
        let Some(_) = self.inner.step(self.key, self.state, Some(known), update).await? else { return Ok(None) };
        self.inner.tell(self.key, from, ScalingStep::Drained(to), ScalingReason::Asked);
        tracing::info!(%from, %to, goal = ?drain.goal, items = self.items, "drained");
        Ok(Some(Drained::Done { goal: drain.goal, from, to, items: self.items }))
    }
}
