//! The table item: the settings that all processes of a table must share, and the size of its
//! directory.

use futures_util::future::BoxFuture;

use crate::config::Writes;
use crate::engine::views::filling::Pages;
use crate::engine::views::table_item_gone;
use crate::engine::{Deadline, Inner, Maintenance};
use crate::protocol::armed::Armed;
use crate::protocol::directory::{Division, PAGES};
use crate::protocol::version::Version;
use crate::table::error::{TableError, unless_refused};
use crate::table::{SHARED_SETTINGS, TABLE_KEY, Table, TableItem};
use crate::values::key::{ShardKeys, SortKeyType};
use crate::values::placement::Placement;

/// The version of the protocol (docs/protocol.md). Processes with different ones cannot use the
/// same table.
const PROTOCOL: u64 = 4;

/// What the pages say, if the table item is lost, or was restored to an earlier state.
pub(in crate::engine) struct FoundDirectory {
    /// Absent if no page is complete.
    division: Option<Division>,
    next_pages: Option<u32>,
    copies: u32,
}

/// How a table is claimed that has no table item.
#[derive(Clone, Copy)]
pub(in crate::engine) enum New<'a> {
    /// If it is empty, all its keys are armed.
    ArmedIfEmpty,
    Unarmed,
    /// It is not new: its metadata is rebuilt from this directory.
    Rebuilt(&'a FoundDirectory),
}

impl Maintenance {
    /// Checks that the table accepts the writes that this process is configured for, and its
    /// placement: under another mode, reads would miss items and writes would be lost. The first
    /// process of a new table stores its settings. The first write of a process calls this.
    ///
    /// # Errors
    /// [`TableError::Unusable`] if the table accepts other writes, uses another protocol, or has
    /// metadata of an earlier version: do not use the table. [`TableError::Lost`] if it has sharded
    /// items and no metadata.
    pub async fn claim(&self) -> Result<(), TableError> {
        self.engine.inner.claim_once(self.until()).await
    }

    /// As [`claim`](Self::claim), but a new table begins without an armed key, even if it is empty.
    pub async fn claim_unarmed(&self) -> Result<(), TableError> {
        self.engine.inner.claim_once_as(New::Unarmed, self.until()).await
    }

    /// As [`claim`](Self::claim), for a process that only reads: it never stores settings.
    pub async fn check(&self) -> Result<(), TableError> {
        let inner = &self.engine.inner;
        match inner.read_table_item(self.until()).await? {
            Some(table) => inner.tables.check_rebuilt(&table),
            None => Ok(()),
        }
    }

    /// As [`claim`](Self::claim), for a process that is about to [`rebuild`](Self::rebuild) the
    /// metadata: lost metadata is no error. If the table's settings are lost, other processes
    /// refuse to start until the rebuild has ended. Does nothing in a process that has called
    /// `claim`.
    pub async fn claim_for_rebuild(&self) -> Result<(), TableError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        let found = inner.found_directory(deadline).await?;
        inner.claim_once_as(New::Rebuilt(&found), deadline).await?;
        // A restored table item may be older than the pages and copies that are read.
        if let Some(Division { pages, .. }) = found.division {
            inner.retrying(deadline, || inner.tables.raise_pages(pages, found.next_pages)).await?;
        }
        inner.retrying(deadline, || inner.tables.raise_copies(found.copies)).await
    }
}

impl Inner {
    pub(in crate::engine) fn claim<'a>(
        &'a self,
        how: New<'a>,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<(), TableError>> {
        Box::pin(async move {
            let found = if let New::Rebuilt(found) = how { Some(found) } else { None };
            let is_new = found.is_none();
            let read = || self.read_table_item(deadline);
            let mut table = read().await?;
            let mut is_empty = false;
            if table.is_none() && is_new {
                match self.check_new_table(deadline).await {
                    Ok(is_so) => is_empty = is_so,
                    // Another process may have claimed it meanwhile, and written.
                    Err(error) => table = Some(read().await?.ok_or(error)?),
                }
            }
            if table.is_none() {
                let new = || Division {
                    pages: PAGES,
                    seed: u64::from_be_bytes(self.environment.bytes()),
                };
                let own = TableItem {
                    protocol: PROTOCOL,
                    settings: self.own_settings(),
                    armed: self.first_patterns(how, is_empty),
                    division: found.and_then(|found| found.division).unwrap_or_else(new),
                    next_pages: found.and_then(|found| found.next_pages),
                    copies: found.map_or(1, |found| found.copies),
                    directory_made: false,
                    rebuilding: !is_new,
                };
                // Refused if another process was first, or an earlier attempt was applied.
                unless_refused(
                    self.retrying(deadline, || self.tables.store_table_item(&own)).await,
                )?;
                table = read().await?;
            }
            let table = table.ok_or_else(table_item_gone)?;
            if is_new {
                self.tables.check_rebuilt(&table)?;
            }
            if !table.directory_made && is_new {
                self.fill_directory(Pages::All, deadline).await?;
            }
            Ok(())
        })
    }

    /// By the marks of the pages: even if the table item is lost or older, instances still read all
    /// of them.
    async fn found_directory(&self, deadline: Deadline) -> Result<FoundDirectory, TableError> {
        let pages = self.retrying(deadline, || self.tables.scan_pages()).await?;
        let kept = pages.into_iter().filter(|(_, page)| page.moved_to.is_none());
        let marked = kept.filter_map(|(at, page)| {
            Some((Division { pages: at.pages, seed: page.seed? }, page.copies?))
        });
        let read: Vec<(Division, u32)> = marked.collect();
        let copies = read.iter().map(|(_, copies)| *copies).max().unwrap_or(1);
        // While pages are being moved, both divisions have some.
        let division = read.iter().map(|(division, _)| *division).min_by_key(|of| of.pages);
        let next = division.and_then(Division::doubled);
        let next_pages = next.filter(|next| read.iter().any(|(of, _)| of == next));
        Ok(FoundDirectory { division, next_pages: next_pages.map(|next| next.pages), copies })
    }

    /// All keys are armed where no other program has stored anything, or where another one has
    /// sharded every key.
    fn first_patterns(&self, how: New<'_>, is_empty: bool) -> Armed {
        if self.config.shard_keys != ShardKeys::KeyFirst {
            return Armed::all();
        }
        match (how, is_empty) {
            (New::ArmedIfEmpty, true) => Armed::all(),
            (New::ArmedIfEmpty, false) | (New::Unarmed, _) => Armed::default(),
            (New::Rebuilt(_), _) => Armed::lost(),
        }
    }

    /// Fails if the table has metadata without a table item, or sharded items without metadata.
    /// Returns whether it is empty. Reads only the first page of a scan, which may contain none of
    /// the sharded items if another program has stored items.
    async fn check_new_table(&self, deadline: Deadline) -> Result<bool, TableError> {
        let (keys, _) = self.retrying(deadline, || self.tables.list_metadata(None)).await?;
        if let Some((key, _)) = keys.first() {
            let why = format!(
                "it has metadata of the key {:?} and no item {TABLE_KEY}: an earlier version wrote it, or that item is lost. \
                 Stop all writers and rebuild the metadata, or use a new table",
                key.as_str()
            );
            return Err(self.tables.unusable(Table::Metadata, why));
        }
        let page = self.retrying(deadline, || self.tables.scan(None)).await?;
        if page.items.iter().flatten().any(|item| item.version > Version::NONE) {
            return Err(TableError::Lost(format!(
                "{} is empty, and {} has sharded items",
                self.config.metadata_table_name, self.config.table_name
            )));
        }
        Ok(page.items.is_empty() && page.next.is_none())
    }

    pub(crate) fn agree(&self, table: &TableItem) -> Result<(), TableError> {
        if let Err(error) = self.config.check_placement("placement") {
            return Err(self.tables.unusable(Table::Main, error.to_string()));
        }
        let table_of = &self.config.metadata_table_name;
        if table.protocol != PROTOCOL {
            let why = format!(
                "it is of protocol {}, as the item {TABLE_KEY} of {table_of} says; this process uses protocol {PROTOCOL}: \
                 run the release that made it, or copy its items to a new table with new metadata \
                 (docs/operations.md, \"A table of an earlier version\")",
                table.protocol
            );
            return Err(self.tables.unusable(Table::Main, why));
        }
        let own = self.own_settings();
        let mut compared = SHARED_SETTINGS.iter().zip(table.settings.iter().zip(&own));
        let differing = compared.find(|(_, (stored, own))| stored != own);
        if let Some(((_, settings), (stored, own))) = differing {
            let why = format!(
                "it was made for {stored:?}, as the item {TABLE_KEY} of {table_of} says; this process is for {own:?} \
                 ({settings}): see \"Changing WRITES\" in docs/operations.md"
            );
            return Err(self.tables.unusable(Table::Main, why));
        }
        if table.division.pages == 0 || table.copies == 0 {
            return Err(TableError::Damaged(format!(
                "the item {TABLE_KEY} does not say how large the directory is"
            )));
        }
        Ok(())
    }

    fn own_settings(&self) -> [String; 4] {
        let config = &self.config;
        let layout = match &config.shard_keys {
            ShardKeys::KeyFirst => "key first".to_owned(),
            ShardKeys::Suffixed(separator) => {
                format!("suffixed with {:?}, {} shards", separator.as_str(), config.adopt_shards)
            }
        };
        let kind = match config.sort_key_type {
            SortKeyType::String => "S",
            SortKeyType::Number => "N",
        };
        let keys = format!("{} S, {} {kind}", config.partition_key_name, config.sort_key_name);
        let writes = name_of(&Writes::NAMES, config.writes());
        let placement = name_of(&Placement::NAMES, config.placement);
        [writes, placement, layout, keys]
    }
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: T) -> String {
    names.iter().find(|(_, named)| *named == value).map_or("", |(name, _)| *name).to_owned()
}
