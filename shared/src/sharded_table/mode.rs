//! The table item: what all processes that use a table must agree on, and how large its directory is. It is stored in the table.

use super::directory::Pages;
use super::retry::retrying;
use super::{Deadline, Inner, TableEngine};
use crate::config::Writes;
use crate::protocol::directory::{MAX_COPIES, PAGES};
use crate::protocol::version::Version;
use crate::table::error::{Cause, TableError};
use crate::table::{Mode, PageCopy, TABLE_KEY, TableItem};

/// The protocol that this release follows (docs/protocol.md). Processes of different protocols cannot use one table.
const PROTOCOL: u64 = 2;

impl TableEngine {
    /// Makes sure that the table takes what this process is configured for: `WRITES`, and the placement. The first process of a table stores
    /// it and makes the directory, all later ones compare. Call it once before the first request, so that the first write need not: under
    /// another mode, reads miss items and writes are lost.
    ///
    /// # Errors
    /// [`TableError::Unusable`] where the table takes something else, follows another protocol, or has metadata that an earlier version
    /// wrote: do not use the table. [`TableError::Lost`] where it has sharded items and no metadata. [`TableError::Damaged`] where what is
    /// stored cannot be read. Another [`TableError`] where the metadata table did not answer.
    pub async fn claim_mode(&self, deadline: Deadline) -> Result<(), TableError> {
        self.inner.claimed(None, deadline).await
    }

    /// As [`claim_mode`](Self::claim_mode), for a process that only reads: nothing is stored where nothing is.
    ///
    /// # Errors
    /// As [`claim_mode`](Self::claim_mode).
    pub async fn check_mode(&self, deadline: Deadline) -> Result<(), TableError> {
        let inner = &self.inner;
        if let Some(table) = retrying(&inner.environment, deadline, || inner.tables.get_table_item()).await? {
            inner.agree(&table)?;
            if table.rebuilding {
                return Err(rebuilding());
            }
            inner.know(&table);
        }
        Ok(())
    }

    /// As [`claim_mode`](Self::claim_mode), for a process that is about to rebuild the metadata: no table is refused for lost metadata. Where
    /// the table item is lost, it is stored, and other processes refuse to start until the rebuild has ended. In a process that has
    /// called [`claim_mode`](Self::claim_mode), it does nothing.
    ///
    /// # Errors
    /// As [`claim_mode`](Self::claim_mode).
    pub async fn claim_for_rebuild(&self, deadline: Deadline) -> Result<(), TableError> {
        let inner = &self.inner;
        let copies = inner.copies_marked(deadline).await?;
        inner.claimed(Some(copies), deadline).await?;
        // A table item that was restored may be older than the copies that are read.
        retrying(&inner.environment, deadline, || inner.tables.raise_copies(copies)).await
    }
}

impl Inner {
    /// Before anything is written: the table item is there, and agrees. A table without one must be new, but where it is rebuilt: `rebuilt` is
    /// then the number of copies that the pages of the directory tell.
    pub(super) async fn claimed(&self, rebuilt: Option<u32>, deadline: Deadline) -> Result<(), TableError> {
        // Boxed: what is needed once must not make the futures large that hold it.
        self.directory.claimed.get_or_try_init(|| Box::pin(self.claim(rebuilt, deadline))).await.copied()
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
            match retrying(&self.environment, deadline, || self.tables.store_table_item(&own)).await {
                // Another process was first, or an attempt before was applied.
                Ok(()) | Err(TableError::ConditionFailed) => table = read().await?,
                Err(error) => return Err(error),
            }
        }
        let table = table.ok_or_else(|| TableError::Lost(format!("the item {TABLE_KEY} is gone")))?;
        self.agree(&table)?;
        if table.rebuilding && is_new {
            return Err(rebuilding());
        }
        self.know(&table);
        if !table.directory_made && is_new {
            self.fill_directory(Pages::All, deadline).await?;
        }
        Ok(())
    }

    /// How many copies of a page there are, as their marks say: where the table item is lost or older, instances still read all of them.
    async fn copies_marked(&self, deadline: Deadline) -> Result<u32, TableError> {
        let mut copies = 1;
        for at in (0..PAGES).flat_map(|page| (0..MAX_COPIES).map(move |copy| PageCopy { page, copy })) {
            let stored = retrying(&self.environment, deadline, || self.tables.get_page(at)).await?;
            copies = stored.and_then(|page| page.copies).unwrap_or(1).max(copies);
        }
        Ok(copies)
    }

    /// Fails where the table has metadata without a table item, or sharded items without metadata. Only the first page of a scan is looked at:
    /// in a table that is adopted with bare keys, it may have none of the sharded items.
    async fn is_new_table(&self, deadline: Deadline) -> Result<(), TableError> {
        let (keys, _) = retrying(&self.environment, deadline, || self.tables.list_metadata(None)).await?;
        if let Some((key, _)) = keys.first() {
            return Err(TableError::Unusable(Cause::from(format!(
                "{} has metadata of the key {:?} and no item {TABLE_KEY}: an earlier version wrote it, or that item is lost. \
                 Stop all writers and rebuild the metadata, or use a new table",
                self.config.metadata_table_name,
                key.as_str()
            ))));
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

    /// Fails where the table takes something else.
    pub(super) fn agree(&self, table: &TableItem) -> Result<(), TableError> {
        let (stored, own) = (&table.mode, self.own_mode());
        if *stored != own {
            return Err(TableError::Unusable(Cause::from(format!(
                "it takes {} by protocol {}, as the item {TABLE_KEY} of {} says; this process is for {} by protocol {} \
                 (WRITES, SHARD_PLACEMENT): see \"Changing WRITES\" in docs/operations.md",
                stored.writes, stored.protocol, self.config.metadata_table_name, own.writes, own.protocol
            ))));
        }
        if table.pages == 0 || table.copies == 0 {
            return Err(TableError::Damaged(format!("the item {TABLE_KEY} does not say how large the directory is")));
        }
        Ok(())
    }

    fn own_mode(&self) -> Mode {
        let own = self.config.writes();
        let name = Writes::NAMES.iter().find(|(_, writes)| *writes == own).map_or("", |(name, _)| *name);
        Mode { writes: name.to_owned(), protocol: PROTOCOL }
    }
}

pub(super) fn rebuilding() -> TableError {
    TableError::Unusable("its metadata is being rebuilt: start again when that has ended".into())
}
