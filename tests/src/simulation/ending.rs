//! The end of a run, without faults: no acknowledged write is lost, and no key is stuck.

use std::sync::Arc;
use std::time::Duration;

use sharding::ShardCount;
use sharding::internal::{TableEngine, protocol::layout::FIRST_ERA};
use sharding::maintenance::{DrainRefused, Drained};
use tokio::time::{Instant, sleep};

use super::failure::{Classified, Finding};
use super::faults::FaultRates;
use super::network::Instance;
use super::reading::{Scanned, scan};
use super::world::{Actor, World};
use super::{COOLDOWN_SECONDS, KEYS, key, soon, sort_key, table, value_of};
use crate::OneItem;

/// The number of the first instance that starts at the beginning or at the end. It is above that of
/// any other, and a part of the known seeds of broken builds.
const FIRST_NEWCOMER: usize = 73;
/// How long a step is repeated, in the time of the run. Partitions may be so small that a drain
/// takes minutes.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Completes every operation that was begun, and then checks all items.
///
/// # Errors
/// The first violation.
pub(super) async fn finish(actors: &[Actor], world: &Arc<World>) -> Result<(), String> {
    actors.iter().for_each(|actor| actor.instance.heal());
    sleep(Duration::from_secs(15)).await;
    let old = actors.iter().find(|actor| !actor.instance.is_dead()).expect("only some die");
    let fresh = newcomer(world, 0);
    for (which, reader) in (0..KEYS).flat_map(|which| [(which, &old.table), (which, &fresh)]) {
        check_scan(reader, world, which, "at the end").await?;
    }
    for which in 0..KEYS {
        complete_changes(&fresh, world, which).await?;
        check_scan(&fresh, world, which, "after the last drain").await?;
        if world.plan.shrinking {
            // A scan reads every shard. Only point reads show whether each item is at its place.
            let now = Instant::now();
            let stored: Vec<String> = world.history(which).before(now, 0).cloned().collect();
            for wanted in stored {
                let get = async || fresh.get(&key(which), &sort_key(&wanted), true, soon()).await;
                let got = patiently(world, which, "a point read at the end", get).await?;
                let value = got.and_then(|item| value_of(&item.attributes));
                let checked = world.history(which).check_get(&wanted, value);
                checked.map_err(|finding| {
                    world.violation(which, finding.during("after the last drain"))
                })?;
            }
        }
        check_metadata(&fresh, world, which).await?;
    }
    repair_directory(&fresh, world).await?;
    (0..KEYS).try_for_each(|which| {
        let checked = world.registers(which).check();
        let (registers, undecided) = checked.map_err(|finding| world.violation(which, finding))?;
        world.count(|totals| {
            totals.registers += registers;
            totals.undecided += undecided;
        });
        Ok(())
    })
}

/// Compares every copy of every page with the items, and checks that no entry is behind afterwards.
async fn repair_directory(fresh: &TableEngine, world: &World) -> Result<(), String> {
    let compare = async || fresh.until(soon()).repair_directory().await;
    patiently(world, 0, "comparing the directory", &compare).await?;
    match patiently(world, 0, "comparing the directory again", compare).await? {
        0 => Ok(()),
        behind => {
            let what = format!("I6: {behind} entries are behind after the comparison");
            Err(world.violation(0, Finding::new(what)))
        }
    }
}

/// The table of an instance that starts at the end, without faults, or at the beginning.
pub(super) fn newcomer(world: &Arc<World>, number: usize) -> TableEngine {
    let number = FIRST_NEWCOMER + number;
    let newcomer = Instance::new((number, number as u64), world, FaultRates::NONE);
    newcomer.heal();
    table(&newcomer, world.plan, number as u64)
}

/// Repeats a step while capacity or a response is missing, or while another instance changes the
/// key.
pub(super) async fn patiently<T, E: Classified>(
    world: &World,
    which: usize,
    step: &str,
    request: impl AsyncFn() -> Result<T, E>,
) -> Result<T, String> {
    let ends = Instant::now() + PATIENCE;
    loop {
        let error = match request().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if !error.is_transient() || Instant::now() >= ends {
            return Err(world.violation(which, Finding::new(format!("I6: {step}: {error}"))));
        }
        sleep(Duration::from_secs(1)).await;
    }
}

async fn check_scan(
    reader: &TableEngine,
    world: &World,
    which: usize,
    when: &str,
) -> Result<(), String> {
    let look = async || {
        let (began, tick) = (Instant::now(), world.registers(which).now());
        scan(reader, which, 1_000, false).await.map(|seen| (began, tick, seen))
    };
    let (began, tick, seen) = patiently(world, which, "a scan", look).await?;
    let seen = seen.expect("a key has few pages");
    let checked = Scanned::all(seen, began, tick).check(world, which);
    checked.map_err(|finding| world.violation(which, finding.during(when)))
}

/// Completes what was begun, which every instance can do: it opens a closing, finishes a drain, and
/// drains the shards that a cut-off shrink has left.
async fn complete_changes(fresh: &TableEngine, world: &World, which: usize) -> Result<(), String> {
    let look = async || fresh.until(soon()).finish_change(&key(which)).await;
    patiently(world, which, "opening what was closed", look).await?;
    drain(fresh, world, which).await?;
    let look = async || fresh.until(soon()).metadata(&key(which)).await;
    let metadata = patiently(world, which, "reading metadata", look).await?;
    let Some(metadata) =
        metadata.filter(|metadata| metadata.read_shards > metadata.number_of_shards)
    else {
        return Ok(());
    };
    let begin = async || match fresh.until(soon()).settle(&key(which)).await {
        // An append-only table has no homes; a shrink drains it.
        Err(DrainRefused::NoHomes) if metadata.number_of_shards > ShardCount::ONE => {
            fresh.until(soon()).shrink(&key(which), ShardCount::ONE).await
        }
        begun => begun,
    };
    patiently(world, which, "draining the shards that are left", begin).await?;
    drain(fresh, world, which).await
}

/// Continues a drain until it has ended.
async fn drain(fresh: &TableEngine, world: &World, which: usize) -> Result<(), String> {
    let ends = Instant::now() + PATIENCE;
    while Instant::now() < ends {
        let go_on = async || fresh.until(soon()).drain(&key(which), &[]).await;
        match patiently(world, which, "a drain", go_on).await? {
            Drained::Nothing | Drained::Done { .. } => return Ok(()),
            Drained::Waiting { .. } | Drained::Working { .. } | _ => {
                sleep(Duration::from_secs(5)).await
            }
        }
    }
    Err(world.violation(which, Finding::new("I6: a drain does not end")))
}

/// Checks that no key is stuck, and that no two changes of a width came within a cooldown.
async fn check_metadata(fresh: &TableEngine, world: &World, which: usize) -> Result<(), String> {
    let look = async || fresh.until(soon()).metadata(&key(which)).await;
    let Some(metadata) = patiently(world, which, "reading metadata", look).await? else {
        return Ok(());
    };
    world.count(|totals| totals.changes += metadata.era - FIRST_ERA);
    let is_idle = metadata.draining().is_none() && metadata.closing().is_none();
    if metadata.number_of_shards != metadata.read_shards || !is_idle {
        let what = format!(
            "I6: the key is stuck at {} of {}",
            metadata.number_of_shards, metadata.read_shards
        );
        return Err(world.violation(which, Finding::new(what)));
    }
    let entries: Vec<_> = metadata.shard_history.entries().collect();
    // The first entry is the registration. A cooldown is counted on wall clocks, so it holds only
    // if those are right. A drain clears the history.
    let hasty = entries.windows(2).skip(1).any(|pair| pair[1].at < pair[0].at + COOLDOWN_SECONDS);
    let are_clocks_right = !world.plan.sets_clocks_back() && !world.plan.has_wrong_clocks();
    if hasty && are_clocks_right && !world.plan.shrinking {
        let what =
            format!("I5: two changes within a cooldown: {:?}", metadata.shard_history.to_strings());
        return Err(world.violation(which, Finding::new(what)));
    }
    Ok(())
}
