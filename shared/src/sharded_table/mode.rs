//! The table item: the settings that all processes of a table must share, and the size of its
//! directory. It is stored in the metadata table.

use super::directory::Pages;
use super::retry::retrying;
use super::{Deadline, Inner, TableEngine};
use crate::config::Writes;
use crate::protocol::directory::{MAX_COPIES, PAGES};
use crate::protocol::version::Version;
use crate::table::error::TableError;
use crate::table::{Mode, PageCopy, TABLE_KEY, Table, TableItem};

/// The version of the protocol in this release (docs/protocol.md). Processes with different
/// protocols cannot use the same table.
const PROTOCOL: u64 = 2;

impl TableEngine {
    /// Checks that the table accepts the writes that this process is configured for: `WRITES`, and
    /// the placement. The first process of a table stores its settings and creates the directory;
    /// all later ones compare. The first write calls this if no earlier call did. Under another
    /// mode, reads would miss items and writes would be lost.
    ///
    /// # Errors
    /// [`TableError::Unusable`] if the table accepts other writes, uses another protocol, or has
    /// metadata of an earlier version: do not use the table. [`TableError::Lost`] if it has sharded
    /// items and no metadata. [`TableError::Damaged`] if the stored item cannot be parsed. Another
    /// [`TableError`] if the metadata table did not respond.
    pub async fn claim_mode(&self, deadline: Deadline) -> Result<(), TableError> {
        self.inner.claimed(None, deadline).await
    }

    /// As [`claim_mode`](Self::claim_mode), for a process that only reads: it never stores
    /// settings.
    ///
    /// # Errors
    /// As [`claim_mode`](Self::claim_mode).
    pub async fn check_mode(&self, deadline: Deadline) -> Result<(), TableError> {
        let inner = &self.inner;
        if let Some(table) =
            retrying(&inner.environment, deadline, || inner.tables.get_table_item()).await?
        {
            inner.agree(&table)?;
            inner.tables.check_rebuilt(&table)?;
            inner.know(&table);
        }
        Ok(())
    }

    /// As [`claim_mode`](Self::claim_mode), for a process that is about to rebuild the metadata:
    /// lost metadata is no error. If the table item is lost, this stores it, and other processes
    /// refuse to start until the rebuild has ended. In a process that has called
    /// [`claim_mode`](Self::claim_mode), this does nothing.
    ///
    /// # Errors
    /// As [`claim_mode`](Self::claim_mode).
    pub async fn claim_for_rebuild(&self, deadline: Deadline) -> Result<(), TableError> {
        let inner = &self.inner;
        let copies = inner.copies_marked(deadline).await?;
        inner.claimed(Some(copies), deadline).await?;
        // A restored table item may be older than the copies that are read.
        retrying(&inner.environment, deadline, || inner.tables.raise_copies(copies)).await
    }
}

impl Inner {
    /// Before the first write: the table item exists, and agrees. A table without one must be new,
    /// unless it is being rebuilt: `rebuilt` is then the number of copies in the pages of the
    /// directory.
    pub(super) async fn claimed(
        &self,
        rebuilt: Option<u32>,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        // Boxed, because this runs once and must not enlarge the futures that contain it.
        self.directory
            .claimed
            .get_or_try_init(|| Box::pin(self.claim(rebuilt, deadline)))
            .await
            .copied()
    }

    async fn claim(&self, rebuilt: Option<u32>, deadline: Deadline) -> Result<(), TableError> {
        let is_new = rebuilt.is_none();
        let read = || retrying(&self.environment, deadline, || self.tables.get_table_item());
        let mut table = read().await?;
        if table.is_none()
            && is_new
            && let Err(error) = self.is_new_table(deadline).await
        {
            // Another process may have claimed it meanwhile, and written.
            table = read().await?;
            if table.is_none() {
                return Err(error);
            }
        }
        if table.is_none() {
            let (mode, rebuilding, copies) = (self.own_mode(), !is_new, rebuilt.unwrap_or(1));
            let own = TableItem { mode, pages: PAGES, copies, directory_made: false, rebuilding };
            match retrying(&self.environment, deadline, || self.tables.store_table_item(&own)).await
            {
                // Another process was first, or an earlier attempt was applied.
                Ok(()) | Err(TableError::ConditionFailed) => table = read().await?,
                Err(error) => return Err(error),
            }
        }
        let table =
            table.ok_or_else(|| TableError::Lost(format!("the item {TABLE_KEY} is gone")))?;
        self.agree(&table)?;
        if is_new {
            self.tables.check_rebuilt(&table)?;
        }
        self.know(&table);
        if !table.directory_made && is_new {
            self.fill_directory(Pages::All, deadline).await?;
        }
        Ok(())
    }

    /// The number of copies of a page according to their marks: if the table item is lost or older,
    /// instances still read all of them.
    async fn copies_marked(&self, deadline: Deadline) -> Result<u32, TableError> {
        let mut copies = 1;
        for at in
            (0..PAGES).flat_map(|page| (0..MAX_COPIES).map(move |copy| PageCopy { page, copy }))
        {
            let stored = retrying(&self.environment, deadline, || self.tables.get_page(at)).await?;
            copies = stored.and_then(|page| page.copies).unwrap_or(1).max(copies);
        }
        Ok(copies)
    }

    /// Fails if the table has metadata without a table item, or sharded items without metadata.
    /// Only the first page of a scan is read; in a table that is adopted with bare keys, it may
    /// contain none of the sharded items.
    async fn is_new_table(&self, deadline: Deadline) -> Result<(), TableError> {
        let (keys, _) =
            retrying(&self.environment, deadline, || self.tables.list_metadata(None)).await?;
        if let Some((key, _)) = keys.first() {
            let why = format!(
                "it has metadata of the key {:?} and no item {TABLE_KEY}: an earlier version wrote it, or that item is lost. \
                 Stop all writers and rebuild the metadata, or use a new table",
                key.as_str()
            );
            return Err(self.tables.unusable(Table::Metadata, why));
        }
        let page = retrying(&self.environment, deadline, || self.tables.scan(None)).await?;
        if page.items.iter().flatten().any(|item| item.version > Version::NONE) {
            return Err(TableError::Lost(format!(
                "{} is empty, and {} has sharded items",
                self.config.metadata_table_name, self.config.table_name
            )));
        }
        Ok(())
    }

    /// Fails if the table accepts other writes.
    pub(super) fn agree(&self, table: &TableItem) -> Result<(), TableError> {
        let (stored, own) = (&table.mode, self.own_mode());
        if *stored != own {
            let why = format!(
                "it takes {} by protocol {}, as the item {TABLE_KEY} of {} says; this process is for {} by protocol {} \
                 (WRITES, SHARD_PLACEMENT): see \"Changing WRITES\" in docs/operations.md",
                stored.writes,
                stored.protocol,
                self.config.metadata_table_name,
                own.writes,
                own.protocol
            );
            return Err(self.tables.unusable(Table::Main, why));
        }
        if table.pages == 0 || table.copies == 0 {
            return Err(TableError::Damaged(format!(
                "the item {TABLE_KEY} does not say how large the directory is"
            )));
        }
        Ok(())
    }

    fn own_mode(&self) -> Mode {
        let own = self.config.writes();
        let name =
            Writes::NAMES.iter().find(|(_, writes)| *writes == own).map_or("", |(name, _)| *name);
        Mode { writes: name.to_owned(), protocol: PROTOCOL }
    }
}
