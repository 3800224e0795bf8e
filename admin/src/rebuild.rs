//! `rebuild`: makes the metadata tell of every item that stands.

use std::fmt;
use std::sync::Arc;

use clap::Args;
use sharding::internal::{Deadline, Rebuilt, TableConfig, TableError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Duration;

use crate::whole_table::{Look, PATIENCE, TableOptions, items_bar, open};

/// The longest that the comparison of the directory with all metadata may take.
const DIRECTORY_PATIENCE: Duration = Duration::from_secs(600);

/// Which table's metadata to rebuild.
#[derive(Debug, Clone, Args)]
pub struct RebuildOptions {
    /// Where and how fast
    #[command(flatten)]
    pub table: TableOptions,
}

/// What was found and done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebuild {
    /// Items looked at.
    pub items: u64,
    /// Keys whose metadata tells of all their items.
    pub kept: u64,
    /// Keys that had no metadata, or damaged metadata.
    pub created: u64,
    /// Keys whose metadata missed items.
    pub widened: u64,
    /// Items on shards on which no width would place them: pages have them, requests for one item do not.
    pub astray: u64,
    /// Items that stand where the product would not look for them.
    pub unknown: u64,
    /// Entries of the directory that were behind the metadata, or missing; counted in each copy of a page.
    pub behind: u64,
    /// Keys whose own metadata was gone, or older than what the directory has: it was made anew from that.
    pub restored: u64,
    /// Keys that were left, and why; the directory among them.
    pub failed: Vec<(String, String)>,
}

impl fmt::Display for Rebuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { items, kept, created, widened, astray, unknown, behind, restored, failed } = self;
        writeln!(
            f,
            "{items} items; of the keys with several shards, {kept} were whole, {created} were lost or damaged, {widened} missed items"
        )?;
        writeln!(f, "{behind} entries of the directory were behind the metadata, {restored} keys had nothing else")?;
        if *astray > 0 {
            writeln!(
                f,
                "{astray} items are on shards on which no width would place them: pages have them, requests for one item do not"
            )?;
        }
        if *unknown > 0 {
            writeln!(f, "{unknown} items have a stored key that is no shard key, or another key's: they are not read")?;
        }
        failed.iter().try_for_each(|(key, why)| writeln!(f, "left: {key}: {why}"))
    }
}

/// Looks at the whole table, mends the metadata of each key that needs it, and then the directory. It may be run again at any time, also beside
/// traffic, unless the table item is lost: then nothing else may use the table meanwhile.
///
/// # Errors
/// [`TableError`] where the tables cannot be used.
pub async fn rebuild(options: &RebuildOptions, config: TableConfig) -> Result<Rebuild, TableError> {
    let (table, items) = open(&options.table, config).await?;
    // A table whose metadata is lost is no new table: it is refused otherwise.
    Box::pin(table.claim_for_rebuild(Deadline::now() + PATIENCE)).await?;
    let bar = items_bar(items, "looking");
    let mut look = Look::new(&table, &options.table, bar.clone());
    while look.page().await? {
        look.survey.take_unsharded();
    }
    let mut after = None;
    loop {
        after = table.survey_metadata_page(&mut look.survey, after.as_ref(), Deadline::now() + PATIENCE).await?;
        if after.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    let mut told = Rebuild { items: look.survey.items(), unknown: look.survey.unknown(), ..Rebuild::default() };
    let slots = Arc::new(Semaphore::new(usize::from(options.table.concurrency)));
    let bar = items_bar(look.survey.keys().len() as u64, "rebuilding");
    let mut working = JoinSet::new();
    for (key, findings) in look.survey.keys() {
        told.astray += findings.astray();
        let (key, findings, table) = (key.clone(), findings.clone(), table.clone());
        let (slots, bar) = (Arc::clone(&slots), bar.clone());
        working.spawn(async move {
            let _slot = slots.acquire().await;
            let rebuilt = table.rebuild(&key, &findings, Deadline::now() + PATIENCE).await;
            bar.inc(1);
            (key, rebuilt)
        });
    }
    for (key, rebuilt) in working.join_all().await {
        match rebuilt {
            Ok(Rebuilt::Kept) => told.kept += 1,
            Ok(Rebuilt::Created(_)) => told.created += 1,
            Ok(Rebuilt::Widened(_)) => told.widened += 1,
            Ok(Rebuilt::Superseded) => {
                told.failed.push((key.to_string(), "it was being changed all the time: run it again".into()));
            }
            Err(error) => told.failed.push((key.to_string(), error.to_string())),
        }
    }
    // With a key left out, complete pages would say of it that it never grew.
    if told.failed.is_empty() {
        match Box::pin(table.rebuild_directory(Deadline::now() + DIRECTORY_PATIENCE)).await {
            Ok(done) => (told.behind, told.restored) = done,
            Err(error) => told.failed.push(("the directory".into(), error.to_string())),
        }
    }
    bar.finish_and_clear();
    Ok(told)
}
