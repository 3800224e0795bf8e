//! Keys that shrink again, and are settled, once the load has gone down.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::{Clock, Deadline, DrainGoal, DrainPace, Drained, ShardCount, ShardedTable};
use tokio::time::{Instant, sleep, timeout};

use super::network::{Instance, InstanceClock};
use super::{COOLDOWN_SECONDS, HOT, KEYS, Plan, World, key};

/// A key of so many shards grows no more before it is settled.
const WIDE: u32 = 40;
/// Before items are moved, and while they are, they are read more often.
const ABOUT_TO_MOVE: Duration = Duration::from_secs(5);

/// Whether keys shrink again once the load has gone down, and what a broken build leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shrinking {
    /// They keep their shards, and the run is short.
    Never,
    /// As built, but for the waits, which are as long as what can happen here.
    AsBuilt,
    /// Writers that act by older views are not waited out.
    WithoutWaitingForWriters,
    /// Reads that began before the copies are not waited out.
    WithoutWaitingForReads,
}

impl Shrinking {
    /// The latest that a request can be applied after its lease, and what clocks differ by.
    const WRITERS: Duration = Duration::from_secs(10 + 10);
    /// A read's deadline, a freeze, and what clocks differ by.
    const READS: Duration = Duration::from_secs(6 + 4 + 10);

    /// For how long writers go by what they know. Where that is shorter, more drains come to their end.
    pub(super) const fn append_lease(self, seed: u64) -> Duration {
        match self {
            Self::Never | Self::WithoutWaitingForWriters => Duration::from_secs(60),
            Self::AsBuilt if seed % 4 < 2 => Duration::from_secs(60),
            Self::AsBuilt | Self::WithoutWaitingForReads => Duration::from_secs(5),
        }
    }

    pub(super) fn pace(self, seed: u64) -> DrainPace {
        DrainPace {
            wait_for_writers: match self {
                Self::WithoutWaitingForWriters => Duration::ZERO,
                Self::Never | Self::AsBuilt | Self::WithoutWaitingForReads => self.append_lease(seed) + Self::WRITERS,
            },
            wait_for_reads: match self {
                Self::WithoutWaitingForReads => Duration::ZERO,
                // Over before the writers' views are.
                Self::WithoutWaitingForWriters => Duration::from_secs(3),
                Self::Never | Self::AsBuilt => Self::READS,
            },
            units_per_second: 800,
        }
    }
}

/// Shrinks and settles keys once the load has gone down, having widened some by hand, and carries on with what it or another has begun, in short runs, some of which end
/// anywhere.
pub(super) async fn drain(instance: Arc<Instance>, table: ShardedTable, world: Arc<World>, plan: Plan, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    sleep(HOT + Duration::from_secs(2)).await;
    while world.goes_on() && !instance.is_dead() {
        let pause = if world.is_moving() { 50..400 } else { 500..4_000 };
        sleep(Duration::from_millis(rng.random_range(pause))).await;
        let which = rng.random_range(0..KEYS);
        let deadline = || Deadline::now() + Duration::from_secs(6);
        let Ok(metadata) = table.shards(&key(which), deadline()).await else { continue };
        let width = metadata.as_ref().map_or(1, |metadata| metadata.number_of_shards.get());
        if width == 1 && !metadata.as_ref().is_some_and(|metadata| metadata.draining) && rng.random() {
            widen(&table, which, width, &mut rng).await;
            continue;
        }
        let Some(metadata) = metadata else { continue };
        if !metadata.draining && (width > 1 || plan.adopting) && metadata.expansion().is_none() {
            // Refused where another was first.
            if plan.settling && !metadata.settled {
                // Some writers go on by the width before, for as long as they may.
                widen(&table, which, width, &mut rng).await;
                drop(table.begin_settle(&key(which), deadline()).await);
            } else if plan.adopting && rng.random_range(0..3) > 0 {
                drop(table.begin_migration(&key(which), deadline()).await);
            } else if !plan.settling || plan.shrinking == Shrinking::AsBuilt {
                let to = ShardCount::new(rng.random_range(1..width.max(2))).expect("at least one");
                drop(table.begin_shrink(&key(which), to, deadline()).await);
            }
        } else if metadata.draining {
            let lasts = if rng.random_range(0..3) == 0 { rng.random_range(1..1_500) } else { 60_000 };
            let drained = timeout(Duration::from_millis(lasts), table.drain(&key(which), deadline())).await;
            let soon = match drained {
                Ok(Ok(Drained::Waiting { until, .. })) => {
                    let now = InstanceClock(Arc::clone(&instance)).now().epoch_seconds();
                    Some(Duration::from_secs(until.saturating_sub(now))).filter(|wait| *wait < ABOUT_TO_MOVE)
                }
                Ok(Ok(Drained::Working { .. })) | Err(_) => Some(Duration::ZERO),
                Ok(Ok(Drained::Nothing | Drained::Done { .. }) | Err(_)) => None,
            };
            if let Some(wait) = soon {
                world.note_moving(Instant::now() + wait + ABOUT_TO_MOVE);
            }
            world.count(|totals| match drained {
                Err(_) => totals.cut_off += 1,
                Ok(Ok(Drained::Done { goal: DrainGoal::Settle, .. })) => totals.settlings += 1,
                Ok(Ok(Drained::Done { goal: DrainGoal::Shrink, .. })) => totals.shrinks += 1,
                Ok(Ok(Drained::Done { goal: DrainGoal::Migrate, .. })) => totals.migrations += 1,
                Ok(Ok(Drained::Nothing | Drained::Waiting { .. } | Drained::Working { .. }) | Err(_)) => {}
            });
        }
    }
}

/// Gives a key some more shards by hand, unless it is wide; refused where another was first.
async fn widen(table: &ShardedTable, which: usize, width: u32, rng: &mut StdRng) {
    let to = ShardCount::new(width + rng.random_range(1..5)).expect("at least one");
    let deadline = Deadline::now() + Duration::from_secs(6);
    if width < WIDE && table.set_shards(&key(which), to, deadline).await.is_ok() {
        sleep(Duration::from_secs(COOLDOWN_SECONDS + 1)).await;
    }
}
