//! `migrate`: brings home what stands under bare keys, while the table is in use.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use clap::Args;
use sharding::internal::{
    Deadline, DrainRefused, Drained, PartitionKey, ScaleError, TableConfig, TableEngine, TableError,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};

use crate::whole_table::{Look, PATIENCE, TableOptions, items_bar, open};
use cli::drain_wait::with_drain_wait;

/// Keys that are under way at the same time, most of them waiting.
const KEYS_OF_A_ROUND: usize = 2_000;
/// The longest of one turn of a key, between two looks at whether others wait.
const TURN: Duration = Duration::from_secs(20);
/// Before a key that is busy is tried again.
const BUSY_PAUSE: Duration = Duration::from_secs(5);
/// How often a key may be busy, turn hot or be throttled before it is left to another run.
const TURNS: u32 = 60;

const UNKNOWN_ITEMS: &str = "an item that the API stored does not stand under its partition key, SHARD_SEPARATOR and a number, or cannot be read. Are the variables those of the functions? Nothing more was begun";

/// Which table to migrate, and how fast.
#[derive(Debug, Clone, Args)]
pub struct MigrateOptions {
    /// Where and how fast
    #[command(flatten)]
    pub table: TableOptions,
    /// Write units a second that a drain takes of each shard; an item takes two for each KB, one when it is copied and one when it is deleted
    #[arg(long, default_value_t = 200, value_name = "UNITS", value_parser = clap::value_parser!(u32).range(1..=40_000))]
    pub drain_units: u32,
    /// As the --drain-wait of the local edition that serves the table; on AWS, leave it out
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(5..=3_600))]
    pub drain_wait: Option<u32>,
}

/// What was found and done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migration {
    /// Keys that have no items under their bare key any more.
    pub keys: u64,
    /// Items that stood there.
    pub items: u64,
    /// Items of bare keys that look like shard keys. They were taken as bare keys'.
    pub looks_sharded: u64,
    /// Keys that were left, and why.
    pub failed: BTreeMap<String, String>,
}

impl fmt::Display for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, items, looks_sharded, failed } = self;
        writeln!(f, "{items} items of {keys} bare keys brought home")?;
        if *looks_sharded > 0 {
            writeln!(
                f,
                "{looks_sharded} items without a logical key had a stored key that looks like a shard key; they were taken as items of bare keys"
            )?;
        }
        failed.iter().try_for_each(|(key, why)| writeln!(f, "left: {key}: {why}"))?;
        if failed.is_empty() {
            writeln!(f, "no item stands under a bare key any more: ADOPT_UNSHARDED can go")?;
        }
        Ok(())
    }
}

/// Looks at the table again and again until no item stands under a bare key, and brings home those that do. It may be stopped at any time, and
/// run again.
///
/// # Errors
/// [`TableError`] where the tables cannot be used; the text of [`DrainRefused::NotAdopting`] where the table is not adopted.
pub async fn migrate(options: &MigrateOptions, mut config: TableConfig) -> Result<Migration, TableError> {
    if !config.adopt_unsharded {
        return Err(TableError::Rejected(DrainRefused::NotAdopting.to_string().into()));
    }
    config.drain.units_per_second = options.drain_units;
    if let Some(seconds) = options.drain_wait {
        config = with_drain_wait(config, Duration::from_secs(seconds.into()));
    }
    let (table, items) = open(&options.table, config).await?;
    Box::pin(table.claim_mode(Deadline::now() + PATIENCE)).await?;
    let (mut told, mut begun_with) = (Migration::default(), 0);
    loop {
        let bar = items_bar(items, "looking");
        let mut look = Look::new(&table, &options.table, bar.clone());
        let mut found_any = false;
        // What was begun and interrupted, by whomever: its bare key may be empty already.
        let mut round: BTreeMap<_, _> = begun(&table).await?.into_iter().map(|key| (key, 0)).collect();
        round.retain(|key, _| !told.failed.contains_key(key.as_str()));
        loop {
            let more = look.page().await?;
            if look.survey.unknown() > 0 {
                bar.finish_and_clear();
                return Err(TableError::Rejected(UNKNOWN_ITEMS.into()));
            }
            let found = look.survey.take_unsharded().into_iter();
            round.extend(found.filter(|(key, _)| !told.failed.contains_key(key.as_str())));
            if round.len() >= KEYS_OF_A_ROUND || !more {
                found_any |= !round.is_empty();
                bring_home(&table, options, std::mem::take(&mut round), &mut told, &bar).await;
            }
            if !more {
                break;
            }
        }
        bar.finish_and_clear();
        told.looks_sharded = told.looks_sharded.max(look.survey.looks_sharded());
        if !found_any {
            if told.failed.is_empty() || told.keys == begun_with {
                return Ok(told);
            }
            // What stood in the way may be gone.
            begun_with = told.keys;
            told.failed.clear();
        }
    }
}

/// The keys that are being drained, which brings home what stands under their bare keys, too.
async fn begun(table: &TableEngine) -> Result<Vec<PartitionKey>, TableError> {
    let (mut begun, mut after) = (Vec::new(), None);
    loop {
        let (keys, next) = table.list_keys(after.as_ref(), Deadline::now() + PATIENCE).await?;
        let draining = keys.into_iter().filter(|(_, metadata)| metadata.draining().is_some());
        begun.extend(draining.map(|(key, _)| key));
        match next {
            Some(next) => after = Some(next),
            None => return Ok(begun),
        }
    }
}

async fn bring_home(
    table: &TableEngine,
    options: &MigrateOptions,
    keys: BTreeMap<PartitionKey, u64>,
    told: &mut Migration,
    bar: &indicatif::ProgressBar,
) {
    let slots = Arc::new(Semaphore::new(usize::from(options.table.concurrency)));
    let mut working = JoinSet::new();
    for (key, items) in keys {
        let (table, slots) = (table.clone(), Arc::clone(&slots));
        working.spawn(async move {
            let done = bring_key_home(&table, &key, &slots).await.map(|()| items);
            (key, done)
        });
    }
    while let Some(done) = working.join_next().await {
        match done {
            Ok((_, Ok(items))) => (told.keys, told.items) = (told.keys + 1, told.items + items),
            Ok((key, Err(why))) => {
                told.failed.insert(key.to_string(), why);
            }
            Err(died) => tracing::error!(%died, "a key was left; the next look finds it"),
        }
        bar.set_message(format!("{} keys migrated, {} under way", told.keys, working.len()));
    }
}

/// The error says why it was left. While it waits, other keys have its turn.
async fn bring_key_home(table: &TableEngine, key: &PartitionKey, slots: &Semaphore) -> Result<(), String> {
    for _ in 0..TURNS {
        let turn = slots.acquire().await;
        match table.begin_migration(key, Deadline::now() + PATIENCE).await {
            // A drain that is under way already, whatever it was begun for, does the same.
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
            let drained = table.drain(key, Deadline::now() + TURN).await;
            drop(turn);
            match drained {
                Ok(Drained::Done { .. }) => return Ok(()),
                Ok(Drained::Working { .. }) => {}
                Ok(Drained::Waiting { until }) => sleep(until_second(until)).await,
                // Its width is changing, or another actor has ended the drain.
                Ok(Drained::Nothing) => {
                    sleep(BUSY_PAUSE).await;
                    break;
                }
                // It was throttled up to the turn's end, or had no answer; what was done is done.
                Err(ScaleError::Table(error)) if error.is_retryable() => {
                    sleep(BUSY_PAUSE).await;
                    break;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    Err("it was busy all the time: run it again".to_owned())
}

#[expect(clippy::disallowed_methods, reason = "this is the edge where time comes in")]
fn until_second(epoch_seconds: u64) -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(epoch_seconds).saturating_sub(now).max(Duration::from_millis(100))
}
