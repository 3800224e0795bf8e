//! Shrinks and settles keys once the load has gone down.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sharding::internal::{Clock, Deadline};
use sharding::maintenance::{Drain, DrainRefused, Drained, ShardMetadata};
use sharding::{DrainPace, ShardCount, TableConfig};
use tokio::time::{Instant, sleep, timeout};

use super::faults::FaultRates;
use super::network::Process;
use super::world::Actor;
use super::{COOLDOWN_SECONDS, HOT, KEYS, Plan, READ_DEADLINE, key};

/// The width at which a key stops growing until it is settled.
const WIDE: u32 = 40;
/// The time before a move from which on items are read more often.
const ABOUT_TO_MOVE: Duration = Duration::from_secs(5);
/// If requests arrive minutes late, one look at an idle key in this number begins a drain.
const MINUTES_APART: u32 = 40;

/// The longest time from the check of a lease to the application of the request: a freeze of 4 s, 9
/// s in the network, and the difference of the clocks.
const REQUESTS: Duration = Duration::from_secs(4 + FaultRates::LATEST.as_secs() + 10);
/// The longest time of a read: its deadline, a freeze, and the difference of the clocks.
const READS: Duration = Duration::from_secs(6 + 4 + 10);

pub(super) fn configure(of_table: &mut TableConfig, plan: Plan) {
    // The lease of appends. If it is shorter, more drains finish.
    of_table.append_lease = Duration::from_secs(if plan.seed % 4 < 2 { 60 } else { 5 });
    let pace = DrainPace { units_per_second: 800, ..DrainPace::default() };
    if plan.minutes_late {
        of_table.drain = pace;
        return;
    }
    of_table.drain = DrainPace { wait_for_requests: REQUESTS, wait_for_reads: READS, ..pace };
}

/// Widens some keys by hand, shrinks and settles keys once the load has gone down, and continues
/// drains that this or another instance has begun. It works in short runs, some of which are
/// interrupted anywhere. A growth cuts some drains off.
pub(super) async fn drain(actor: Actor, seed: u64) {
    let Actor { table, world, .. } = &actor;
    let (mut rng, plan) = (StdRng::seed_from_u64(seed), world.plan);
    sleep(HOT + Duration::from_secs(2)).await;
    while actor.goes_on() {
        // The next step follows soon, so that late requests arrive during it.
        let pause = if world.is_moving() {
            50..400
        } else if plan.minutes_late {
            2_000..16_000
        } else {
            500..4_000
        };
        sleep(Duration::from_millis(rng.random_range(pause))).await;
        // The last key of a run of minutes never grows.
        let which = rng.random_range(0..if plan.minutes_late { KEYS - 1 } else { KEYS });
        let metadata =
            match table.until(Deadline::now() + READ_DEADLINE).metadata(&key(which)).await {
                Ok(Some(metadata)) => metadata,
                Ok(None) => ShardMetadata::unregistered(),
                Err(error) => {
                    world.check_error(which, "reading metadata", &error);
                    continue;
                }
            };
        match metadata.draining() {
            Some(drain) if is_cut_off(plan, drain, &mut rng) => {
                let to = metadata.read_shards.get().max(metadata.number_of_shards.get() + 1);
                grow(&actor, which, to).await;
            }
            Some(_) => continue_drain(&actor, which, &mut rng).await,
            // Tombstones may be left.
            None if metadata.settled && rng.random_range(0..4) > 0 => {
                continue_drain(&actor, which, &mut rng).await;
            }
            // Hours of drains would cut each other off.
            None if plan.minutes_late && rng.random_range(0..MINUTES_APART) > 0 => {}
            None if metadata.closing().is_none() => begin(&actor, which, &metadata, &mut rng).await,
            None => {}
        }
    }
}

/// Whether a growth cuts a drain off now: one drain in four, at any time.
fn is_cut_off(plan: Plan, drain: Drain, rng: &mut StdRng) -> bool {
    // So rarely that most drains whose requests arrive minutes late end.
    let calls = if plan.minutes_late { 400 } else { 40 };
    drain.began % 4 == 3 && rng.random_range(0..calls) == 0
}

/// Begins a change of a key. Another instance may be first; then the change is rejected. Some
/// changes are interrupted, for example between close and open.
async fn begin(actor: &Actor, which: usize, metadata: &ShardMetadata, rng: &mut StdRng) {
    let (Actor { table, world, .. }, plan) = (actor, actor.world.plan);
    let width = metadata.number_of_shards.get();
    // A drain that a growth cut off leaves shards that are read but no longer written.
    let is_left = metadata.read_shards > metadata.number_of_shards;
    let settles = !plan.appends && (plan.settling && !metadata.settled || is_left);
    if width == 1 && rng.random() {
        return grow(actor, which, width + rng.random_range(1..5)).await;
    }
    if plan.settling && settles && width < WIDE {
        grow(actor, which, width + rng.random_range(1..5)).await;
    }
    let to = ShardCount::new(rng.random_range(1..width.max(2))).expect("at least one");
    let lasts = if rng.random_range(0..4) == 0 { rng.random_range(1..1_500) } else { 60_000 };
    let deadline = Deadline::now() + READ_DEADLINE;
    let begun = async {
        let begun: Result<ShardMetadata, DrainRefused> = if settles {
            table.until(deadline).settle(&key(which)).await
        } else if width > 1 {
            table.until(deadline).shrink(&key(which), to).await
        } else {
            return;
        };
        if let Err(error) = begun {
            world.check_error(which, "beginning a drain", &error);
        }
    };
    if timeout(Duration::from_millis(lasts), begun).await.is_err() {
        world.count(|totals| totals.interrupted += 1);
    }
}

/// Continues a drain, in a run that may be interrupted anywhere.
async fn continue_drain(actor: &Actor, which: usize, rng: &mut StdRng) {
    let Actor { instance, table, world, .. } = actor;
    let lasts = if rng.random_range(0..3) == 0 { rng.random_range(1..1_500) } else { 60_000 };
    let key = key(which);
    let table = table.until(Deadline::now() + READ_DEADLINE);
    let wait = match timeout(Duration::from_millis(lasts), table.drain(&key, &[])).await {
        Err(_) => {
            world.count(|totals| totals.interrupted += 1);
            Duration::ZERO
        }
        Ok(Ok(Drained::Working { .. })) => Duration::ZERO,
        Ok(Ok(Drained::Waiting { until })) => {
            let now = Process(Arc::clone(instance)).now().epoch_seconds();
            Duration::from_secs(until.saturating_sub(now))
        }
        Ok(Ok(Drained::Done { from, to, .. })) => {
            let is_lower = from > to;
            return world.count(|totals| {
                *(if is_lower { &mut totals.shrinks } else { &mut totals.settlings }) += 1;
            });
        }
        Ok(Ok(Drained::Nothing | _)) => return,
        Ok(Err(error)) => return world.check_error(which, "a drain", &error),
    };
    if wait < ABOUT_TO_MOVE {
        world.note_moving(Instant::now() + wait + ABOUT_TO_MOVE);
    }
}

/// Widens a key by hand. Another instance may be first; then the change is rejected.
async fn grow(Actor { table, world, .. }: &Actor, which: usize, to: u32) {
    let to = ShardCount::new(to.min(world.plan.most_shards())).expect("at least one");
    match table.until(Deadline::now() + READ_DEADLINE).grow(&key(which), to).await {
        Ok(_) => sleep(Duration::from_secs(COOLDOWN_SECONDS + 1)).await,
        Err(error) => world.check_error(which, "a growth", &error),
    }
}
