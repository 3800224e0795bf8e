//! `migrate`: moves items from bare keys to their shards while the table is in use.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use clap::Args;
use sharding::maintenance::{DrainRefused, Drained};
use sharding::{PartitionKey, ShardedTable, TableConfig, TableError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};

use crate::whole_table::{REQUEST_TIMEOUT, TableOptions, TableScan, items_bar, open};

/// Keys that are migrated at the same time. Most of them wait.
const MAX_KEYS_PER_ROUND: usize = 2_000;
/// The longest turn of a key before other keys that wait get their turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause before a busy key is retried.
const BUSY_PAUSE: Duration = Duration::from_secs(5);
/// The most times that a key may be busy, turn hot or be throttled before it is left to another
/// run.
const MAX_TURNS: u32 = 60;

const UNKNOWN_ITEMS: &str = concat!(
    "an item that the API stored cannot be read, or its key is not a partition key, SHARD_SEPARATOR and a number. ",
    "Use the same environment variables as the functions. No further key was started"
);

/// The options of `migrate`.
#[derive(Debug, Clone, Args)]
pub struct MigrateOptions {
    /// Endpoint and pace of the scan
    #[command(flatten)]
    pub table: TableOptions,
    /// Write units per second that a drain uses on each shard. An item takes two for each KB: one
    /// for the copy, one for the deletion
    #[arg(long, default_value_t = 200, value_name = "UNITS",
        value_parser = clap::value_parser!(u32).range(1..=40_000))]
    pub drain_units: u32,
    /// The --drain-wait of the local edition that serves the table. Omit it on AWS
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(5..=3_600))]
    pub drain_wait: Option<u32>,
}

/// The result of a migration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migration {
    /// Migrated keys: they have no items under their bare key any more.
    pub keys: u64,
    /// Items that were moved from bare keys to shards.
    pub items: u64,
    /// Items of bare keys that look like shard keys. They were treated as items of bare keys.
    pub looks_sharded: u64,
    /// Keys that were not migrated, with the reason.
    pub failed: BTreeMap<String, String>,
}

impl fmt::Display for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, items, looks_sharded, failed } = self;
        writeln!(f, "moved {items} items of {keys} bare keys to their shards")?;
        if *looks_sharded > 0 {
            writeln!(
                f,
                "{looks_sharded} items without a logical key have a stored key that looks like a shard key; they were \
                 treated as items of bare keys"
            )?;
        }
        failed.iter().try_for_each(|(key, why)| writeln!(f, "left: {key}: {why}"))?;
        if failed.is_empty() {
            writeln!(f, "no items are left under bare keys: you can remove ADOPT_UNSHARDED")?;
        }
        Ok(())
    }
}

/// Moves items from bare keys to their shards, and scans the table again until no item is left
/// under a bare key. You can stop it at any time and run it again.
///
/// # Errors
/// [`TableError`] if the tables cannot be used; the text of [`DrainRefused::NotAdopting`] if the
/// table is not adopted.
pub async fn migrate(
    options: &MigrateOptions,
    mut config: TableConfig,
) -> Result<Migration, TableError> {
    if !config.adopt_unsharded {
        return Err(TableError::Rejected(DrainRefused::NotAdopting.to_string().into()));
    }
    config.drain.units_per_second = options.drain_units;
    if let Some(seconds) = options.drain_wait {
        let waiting = config.drain_wait(Duration::from_secs(seconds.into()));
        config = waiting.map_err(|error| TableError::Rejected(error.to_string().into()))?;
    }
    let (table, items) = open(&options.table, config).await?;
    table.maintenance().timeout(REQUEST_TIMEOUT).claim().await?;
    let (mut migration, mut keys_before) = (Migration::default(), 0);
    loop {
        let bar = items_bar(items, "scanning");
        let mut scan = TableScan::new(&table, &options.table, bar.clone());
        let mut found_any = false;
        // Drains that another run or actor has interrupted continue first. Their bare keys may be
        // empty already.
        let mut round: BTreeMap<_, _> =
            draining_keys(&table).await?.into_iter().map(|key| (key, 0)).collect();
        round.retain(|key, _| !migration.failed.contains_key(key.as_str()));
        loop {
            let more = scan.page().await?;
            if scan.survey.unknown() > 0 {
                bar.finish_and_clear();
                return Err(TableError::Rejected(UNKNOWN_ITEMS.into()));
            }
            let found = scan.survey.take_unsharded().into_iter();
            round.extend(found.filter(|(key, _)| !migration.failed.contains_key(key.as_str())));
            if round.len() >= MAX_KEYS_PER_ROUND || !more {
                found_any |= !round.is_empty();
                migrate_keys(&table, options, std::mem::take(&mut round), &mut migration, &bar)
                    .await;
            }
            if !more {
                break;
            }
        }
        bar.finish_and_clear();
        migration.looks_sharded = migration.looks_sharded.max(scan.survey.looks_sharded());
        if !found_any {
            if migration.failed.is_empty() || migration.keys == keys_before {
                return Ok(migration);
            }
            // The reasons of the failures may be gone, so failed keys are retried.
            keys_before = migration.keys;
            migration.failed.clear();
        }
    }
}

/// Returns the keys that are being drained. Their drains also move the items of their bare keys.
async fn draining_keys(table: &ShardedTable) -> Result<Vec<PartitionKey>, TableError> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (keys, next) =
            table.maintenance().timeout(REQUEST_TIMEOUT).list(after.as_ref()).await?;
        let draining = keys.into_iter().filter(|(_, metadata)| metadata.draining().is_some());
        all.extend(draining.map(|(key, _)| key));
        match next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

async fn migrate_keys(
    table: &ShardedTable,
    options: &MigrateOptions,
    keys: BTreeMap<PartitionKey, u64>,
    migration: &mut Migration,
    bar: &indicatif::ProgressBar,
) {
    let slots = Arc::new(Semaphore::new(usize::from(options.table.concurrency)));
    let mut working = JoinSet::new();
    for (key, items) in keys {
        let (table, slots) = (table.clone(), Arc::clone(&slots));
        working.spawn(async move {
            let done = migrate_key(&table, &key, &slots).await.map(|()| items);
            (key, done)
        });
    }
    while let Some(done) = working.join_next().await {
        match done {
            Ok((_, Ok(items))) => {
                migration.keys += 1;
                migration.items += items;
            }
            Ok((key, Err(why))) => {
                migration.failed.insert(key.to_string(), why);
            }
            Err(died) => {
                tracing::error!(%died, "the migration of a key stopped; the next scan finds the key again")
            }
        }
        bar.set_message(format!("{} keys migrated, {} in progress", migration.keys, working.len()));
    }
}

/// Migrates one key; the error is the reason that it was left. Other keys get a turn while this one
/// waits.
async fn migrate_key(
    table: &ShardedTable,
    key: &PartitionKey,
    slots: &Semaphore,
) -> Result<(), String> {
    for _ in 0..MAX_TURNS {
        let turn = slots.acquire().await;
        match table.maintenance().timeout(REQUEST_TIMEOUT).migrate(key).await {
            // A drain that is already running does the same, whatever its purpose.
            Ok(_) | Err(DrainRefused::Busy(_)) => {}
            Err(DrainRefused::Table(error)) if error.is_retryable() => {
                drop(turn);
                sleep(BUSY_PAUSE).await;
                continue;
            }
            Err(error) => return Err(error.to_string()),
        }
        drop(turn);
        loop {
            let turn = slots.acquire().await;
            let drained = table.maintenance().timeout(TURN_TIMEOUT).drain(key, &[]).await;
            drop(turn);
            match drained {
                Ok(Drained::Done { .. }) => return Ok(()),
                Ok(Drained::Working { .. }) => {}
                Ok(Drained::Waiting { until }) => sleep(until_second(until)).await,
                // The key's width is changing, or another actor has ended the drain.
                Ok(Drained::Nothing | _) => {
                    sleep(BUSY_PAUSE).await;
                    break;
                }
                // The drain was throttled until the turn's end, or got no response. Its progress is
                // stored.
                Err(error) if error.is_retryable() => {
                    sleep(BUSY_PAUSE).await;
                    break;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    Err("the key was busy all the time: run the command again".to_owned())
}

#[expect(clippy::disallowed_methods, reason = "this is the edge where time comes in")]
fn until_second(epoch_seconds: u64) -> Duration {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(epoch_seconds).saturating_sub(now).max(Duration::from_millis(100))
}
