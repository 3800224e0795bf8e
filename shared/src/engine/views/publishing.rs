//! Publishing: writing a key's layout to every copy of its page.

use tokio::task::JoinSet;

use crate::engine::retry::Backoff;
use crate::engine::{Deadline, Inner};
use crate::protocol::directory::{KeyDigest, Publication, supersedes};
use crate::protocol::layout::Layout;
use crate::table::error::TableError;
use crate::table::{PageCopy, StoredPage};
use crate::values::key::PartitionKey;

struct Publishing<'a> {
    inner: &'a Inner,
    key: KeyDigest,
    /// The copies, by their number in the publication.
    copies: Vec<PageCopy>,
    publication: Publication,
}

impl Inner {
    /// Publishes a layout that this actor has written: on return every copy of the key's page has
    /// it, or a later one. The layout of a key that is not listed needs no entry.
    pub(in crate::engine) async fn publish(
        &self,
        key: &PartitionKey,
        layout: Layout,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        match self.begin_publishing(key, layout, deadline).await? {
            Some(mut publishing) => publishing.finish(deadline).await,
            None => Ok(()),
        }
    }

    /// As [`publish`](Self::publish), for a layout that another actor has written, and may be
    /// publishing. Writes only copies that are behind.
    pub(in crate::engine) async fn publish_if_behind(
        &self,
        key: &PartitionKey,
        layout: Layout,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        let Some(mut publishing) = self.begin_publishing(key, layout, deadline).await? else {
            return Ok(());
        };
        publishing.look().await?;
        publishing.finish(deadline).await
    }

    async fn begin_publishing(
        &self,
        key: &PartitionKey,
        layout: Layout,
        deadline: Deadline,
    ) -> Result<Option<Publishing<'_>>, TableError> {
        if !layout.is_listed(self.config.adopt_shards) {
            return Ok(None);
        }
        // After the change. A copy or a page that is added from now on is filled from the items,
        // which have it.
        let table = self.table_item(deadline).await?;
        let key = KeyDigest::of(key);
        let copies = table.copies_of(key);
        let publication = Publication::new(layout, u32::try_from(copies.len()).unwrap_or(u32::MAX));
        Ok(Some(Publishing { inner: self, key, copies, publication }))
    }
}

impl Publishing<'_> {
    async fn finish(&mut self, deadline: Deadline) -> Result<(), TableError> {
        let mut backoff = Backoff::default();
        while let Err(error) = self.send().await {
            if let TableError::Capacity(_) = error {
                backoff.slow_down();
            }
            if !error.is_retryable() || !backoff.pause(&self.inner.environment, deadline).await {
                return Err(error);
            }
            // An actor that repairs the page may have written it. A write that is rejected costs
            // the units of the whole page. Without a response, the write shows the same.
            let _ = self.look().await;
        }
        Ok(())
    }

    /// Writes every missing copy once. Returns a failure of one of them.
    async fn send(&mut self) -> Result<(), TableError> {
        let mut sending = JoinSet::new();
        for (copy, at) in self.missing_copies() {
            let (tables, layout) = (self.inner.tables.clone(), self.publication.layout().clone());
            let key = self.key;
            sending.spawn(async move { (copy, tables.put_entry(at, key, &layout).await) });
        }
        let mut failed = Ok(());
        while let Some(sent) = sending.join_next().await {
            match sent.map_err(|died| TableError::Transient(died.to_string().into()))? {
                (copy, Ok(())) => self.publication.note_written(copy),
                (_, Err(error)) => failed = Err(error),
            }
        }
        failed
    }

    fn missing_copies(&self) -> Vec<(u32, PageCopy)> {
        let missing = self.publication.missing().iter();
        missing.filter_map(|copy| Some((*copy, *self.copies.get(*copy as usize)?))).collect()
    }

    /// Reads every missing copy once, and notes which have the layout.
    async fn look(&mut self) -> Result<(), TableError> {
        for (copy, at) in self.missing_copies() {
            let stored = self.inner.tables.get_page(at).await?;
            let entry = |page: &StoredPage| page.entries.get(&self.key).cloned().flatten();
            if !supersedes(self.publication.layout(), stored.as_ref().and_then(entry).as_ref()) {
                self.publication.note_written(copy);
            }
        }
        Ok(())
    }
}
