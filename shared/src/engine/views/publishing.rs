//! Publishing: writing a key's layout to every copy of its page, and the table's warm throughput to
//! every copy of every page.
//!
//! The shard-scaler reads the throughput from DynamoDB. All other instances get it with the pages
//! that they read anyway. It is no part of the protocol: if it is not known, decisions are made
//! without it.

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinSet;

use crate::engine::retry::Backoff;
use crate::engine::views::directory::PageView;
use crate::engine::views::keys::KeyJob;
use crate::engine::{Deadline, TableEngine};
use crate::protocol::directory::{KeyDigest, Publication, supersedes};
use crate::protocol::layout::Layout;
use crate::table::error::TableError;
use crate::table::{PageCopy, StoredPage};
use crate::values::key::PartitionKey;
use crate::values::throughput::WarmThroughput;

const COMPARISON_CONCURRENCY: usize = 16;

struct Publishing<'a> {
    job: &'a KeyJob<'a>,
    /// The copies, by their number in the publication.
    copies: Vec<PageCopy>,
    publication: Publication,
}

impl KeyJob<'_> {
    /// Publishes a layout that this actor has written: on return every copy of the key's page has
    /// it, or a later one. The layout of a key that is not listed needs no entry.
    pub(crate) async fn publish(&self, layout: Layout) -> Result<(), TableError> {
        self.begin_publishing(layout).await?.finish().await
    }

    /// As [`publish`](Self::publish), for a layout that another actor has written, and may be
    /// publishing. Writes only copies that are behind.
    pub(crate) async fn publish_if_behind(&self, layout: Layout) -> Result<(), TableError> {
        let mut publishing = self.begin_publishing(layout).await?;
        publishing.look().await?;
        publishing.finish().await
    }

    async fn begin_publishing(&self, layout: Layout) -> Result<Publishing<'_>, TableError> {
        let copies = if layout.is_listed(self.inner.config.adopt_shards) {
            // After the change. A copy or a page that is added from now on is filled from the
            // items, which have it.
            self.inner.table_item(self.deadline).await?.copies_of(self.digest())
        } else {
            Vec::new()
        };
        let publication = Publication::new(layout, u32::try_from(copies.len()).unwrap_or(u32::MAX));
        Ok(Publishing { job: self, copies, publication })
    }
}

impl Publishing<'_> {
    async fn finish(mut self) -> Result<(), TableError> {
        let KeyJob { inner, deadline, .. } = self.job;
        let mut backoff = Backoff::default();
        while let Err(error) = self.send().await {
            if let TableError::Capacity(_) = error {
                backoff.slow_down();
            }
            if !error.is_retryable() || !backoff.pause(&inner.environment, *deadline).await {
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
            let (tables, key) = (self.job.inner.tables.clone(), self.job.digest());
            let layout = self.publication.layout.clone();
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
        let missing = self.publication.missing.iter();
        missing.filter_map(|copy| Some((*copy, *self.copies.get(*copy as usize)?))).collect()
    }

    /// Reads every missing copy once, and notes which have the layout.
    async fn look(&mut self) -> Result<(), TableError> {
        for (copy, at) in self.missing_copies() {
            let (key, stored) = (self.job.digest(), self.job.inner.tables.get_page(at).await?);
            let entry = |page: &StoredPage| page.entries.get(&key).cloned().flatten();
            if !supersedes(&self.publication.layout, stored.as_ref().and_then(entry).as_ref()) {
                self.publication.note_written(copy);
            }
        }
        Ok(())
    }
}

impl TableEngine {
    /// Writes the warm throughput to every copy of every page that has another value.
    pub async fn publish_warm_throughput(
        &self,
        warm: WarmThroughput,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        self.claim_mode(deadline).await?;
        let inner = &self.inner;
        let table = inner.table_item(deadline).await?;
        let publish = |at| async move {
            // Read first, because a refused condition costs the write units of the whole page, and
            // a page may be large.
            let stored = inner.retrying(deadline, || inner.tables.get_page(at)).await?;
            // A copy that is missing or not complete gets the value with its mark.
            if stored.is_none_or(|page| page.copies.is_none() || page.warm == Some(warm)) {
                return Ok(());
            }
            inner.retrying(deadline, || inner.tables.put_warm_throughput(at, warm)).await
        };
        let publishing: Vec<_> = table.all_copies().into_iter().map(publish).collect();
        stream::iter(publishing).buffer_unordered(COMPARISON_CONCURRENCY).try_collect().await
    }

    /// The published warm throughput, from the key's page: read within the lease, or now. `None`
    /// also if no copy of the page is complete.
    pub async fn warm_throughput(
        &self,
        key: &PartitionKey,
        deadline: Deadline,
    ) -> Result<Option<WarmThroughput>, TableError> {
        let inner = &self.inner;
        let lease = inner.config.lease();
        let is_valid = |page: &PageView| page.is_valid(inner.environment.now(), lease);
        let page = inner.read_page(KeyDigest::of(key), is_valid, deadline).await?;
        Ok(page.and_then(|page| page.warm))
    }
}
