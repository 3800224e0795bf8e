//! `rebuild`: restores the metadata from the items of the table.

use sharding::maintenance::{Rebuilt, Survey};
use sharding::{TableConfig, TableError};
use tokio::time::Duration;

use crate::whole_table::{REQUEST_TIMEOUT, TableOptions, items_bar, open};

/// The time limit for the comparison of the directory with all metadata.
const DIRECTORY_TIMEOUT: Duration = Duration::from_secs(600);

/// Scans the whole table, and repairs the metadata of each key that needs it, and then the
/// directory. You can run it again at any time, also during traffic. If the table item is lost,
/// nothing else may use the table during the run. Returns the text to print, and whether nothing was
/// left.
///
/// # Errors
/// [`TableError`] if the tables cannot be used.
pub async fn rebuild(
    options: &TableOptions,
    config: TableConfig,
) -> Result<(String, bool), TableError> {
    let (table, _, items) = open(options.endpoint_url.as_deref(), config).await?;
    // Any other claim refuses a table that has items but no metadata.
    let maintenance = table.maintenance().timeout(REQUEST_TIMEOUT);
    maintenance.claim_for_rebuild().await?;
    let bar = items_bar(items, "scanning");
    let mut survey = Survey::default();
    let scan = maintenance.survey(&mut survey, options.read_units, |items| bar.set_position(items));
    scan.await?;
    bar.finish_and_clear();
    let (mut kept, mut created, mut widened) = (0_u64, 0_u64, 0_u64);
    let mut left = Vec::new();
    let bar = items_bar(survey.keys.len() as u64, "rebuilding");
    let concurrency = usize::from(options.concurrency);
    let rebuilding = maintenance.rebuild_all(&survey, concurrency, |key, rebuilt| {
        bar.inc(1);
        match rebuilt {
            Ok(Rebuilt::Kept) => kept += 1,
            Ok(Rebuilt::Created(_)) => created += 1,
            Ok(Rebuilt::Widened(_)) => widened += 1,
            Ok(Rebuilt::Superseded) => left.push(format!(
                "{key}: another actor changed the key all the time: run the command again"
            )),
            Ok(other) => left.push(format!("{key}: {other:?}")),
            Err(error) => left.push(format!("{key}: {error}")),
        }
    });
    rebuilding.await;
    let (mut behind, mut restored) = (0, 0);
    // Complete pages without a failed key would mean that the key never grew.
    if left.is_empty() {
        match table.maintenance().timeout(DIRECTORY_TIMEOUT).rebuild_directory(&survey).await {
            Ok(done) => (behind, restored) = done,
            Err(error) => left.push(format!("the directory: {error}")),
        }
    }
    bar.finish_and_clear();
    let mut text = format!(
        "{} items; metadata of keys with several shards: {kept} complete, {created} lost or \
         damaged, {widened} without some items\n\
         {behind} entries of the directory were behind the metadata, {restored} keys were restored \
         from the directory\n",
        survey.items
    );
    let misplaced: u64 = survey.keys.values().map(|findings| findings.misplaced).sum();
    if misplaced > 0 {
        text += &format!(
            "{misplaced} items are misplaced, on shards where no width places them: pages include \
             them, requests for one item do not\n"
        );
    }
    if survey.unknown > 0 {
        text += &format!(
            "{} items have a stored key that is not a shard key, or is another key's: they are \
             never read\n",
            survey.unknown
        );
    }
    left.iter().for_each(|left| text += &format!("left: {left}\n"));
    Ok((text, left.is_empty()))
}
