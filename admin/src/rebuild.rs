//! `rebuild`: restores the metadata from the items of the table.

use std::fmt;

use sharding::maintenance::{Rebuilt, Survey};
use sharding::{TableConfig, TableError};
use tokio::time::Duration;

use crate::whole_table::{REQUEST_TIMEOUT, TableOptions, items_bar, open, scan};

/// The time limit for the comparison of the directory with all metadata.
const DIRECTORY_TIMEOUT: Duration = Duration::from_secs(600);

/// The result of a rebuild.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebuild {
    /// Scanned items.
    pub items: u64,
    /// Keys whose metadata covers all their items.
    pub kept: u64,
    /// Keys whose metadata was missing or damaged.
    pub created: u64,
    /// Keys whose metadata did not cover all their items.
    pub widened: u64,
    /// Items on shards where no width places them. Pages include them, requests for one item do
    /// not.
    pub misplaced: u64,
    /// Items under stored keys that the product never reads.
    pub unknown: u64,
    /// Entries of the directory that were missing or older than the metadata, counted in each copy
    /// of a page.
    pub behind: u64,
    /// Keys whose metadata was missing, or older than the directory's entry. It was restored from
    /// the entry.
    pub restored: u64,
    /// Keys that were not rebuilt, with the reason. The directory is one of them.
    pub failed: Vec<(String, String)>,
}

impl fmt::Display for Rebuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { items, kept, created, widened, misplaced, unknown, behind, restored, failed } =
            self;
        writeln!(
            f,
            "{items} items; metadata of keys with several shards: {kept} complete, {created} lost or damaged, {widened} \
             without some items"
        )?;
        writeln!(
            f,
            "{behind} entries of the directory were behind the metadata, {restored} keys were restored from the directory"
        )?;
        if *misplaced > 0 {
            writeln!(
                f,
                "{misplaced} items are misplaced, on shards where no width places them: pages include them, requests \
                 for one item do not"
            )?;
        }
        if *unknown > 0 {
            writeln!(
                f,
                "{unknown} items have a stored key that is not a shard key, or is another key's: they are never read"
            )?;
        }
        failed.iter().try_for_each(|(key, why)| writeln!(f, "left: {key}: {why}"))
    }
}

/// Scans the whole table, and repairs the metadata of each key that needs it, and then the
/// directory. You can run it again at any time, also during traffic. If the table item is lost,
/// nothing else may use the table during the run.
///
/// # Errors
/// [`TableError`] if the tables cannot be used.
pub async fn rebuild(options: &TableOptions, config: TableConfig) -> Result<Rebuild, TableError> {
    let (table, items) = open(options, config).await?;
    // Any other claim refuses a table that has items but no metadata.
    let maintenance = table.maintenance().timeout(REQUEST_TIMEOUT);
    maintenance.claim_for_rebuild().await?;
    let bar = items_bar(items, "scanning");
    let (mut survey, mut after) = (Survey::default(), None);
    loop {
        after = maintenance.survey_metadata_page(&mut survey, after.as_ref()).await?;
        if after.is_none() {
            break;
        }
    }
    scan(&maintenance, options.read_units, &mut survey, &bar).await?;
    bar.finish_and_clear();
    let mut result = Rebuild {
        items: survey.items(),
        misplaced: survey.keys().map(|(_, findings)| findings.misplaced()).sum(),
        unknown: survey.unknown(),
        ..Rebuild::default()
    };
    let bar = items_bar(survey.keys().len() as u64, "rebuilding");
    let concurrency = usize::from(options.concurrency);
    let rebuilding = maintenance.rebuild_all(&survey, concurrency, |key, rebuilt| {
        bar.inc(1);
        match rebuilt {
            Ok(Rebuilt::Kept) => result.kept += 1,
            Ok(Rebuilt::Created(_)) => result.created += 1,
            Ok(Rebuilt::Widened(_)) => result.widened += 1,
            Ok(Rebuilt::Superseded) => {
                let why = "another actor changed the key all the time: run the command again";
                result.failed.push((key.to_string(), why.into()));
            }
            Ok(other) => result.failed.push((key.to_string(), format!("{other:?}"))),
            Err(error) => result.failed.push((key.to_string(), error.to_string())),
        }
    });
    rebuilding.await;
    // Complete pages without a failed key would mean that the key never grew.
    if result.failed.is_empty() {
        match table.maintenance().timeout(DIRECTORY_TIMEOUT).rebuild_directory(&survey).await {
            Ok(done) => (result.behind, result.restored) = done,
            Err(error) => result.failed.push(("the directory".into(), error.to_string())),
        }
    }
    bar.finish_and_clear();
    Ok(result)
}
