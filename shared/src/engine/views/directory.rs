//! The directory of one table: its pages as this instance has read them, and writing a key's layout
//! to every copy of its page. [docs/protocol.md, The directory]
//!
//! The pages also have the table's warm throughput. The shard-scaler reads it from DynamoDB. All
//! other instances get it with the pages that they read anyway. It is no part of the protocol: if
//! it is not known, decisions are made without it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use metrics::{counter, histogram};
use tokio::time::timeout_at;

use crate::engine::environment::Backoff;
use crate::engine::job::KeyJob;
use crate::engine::maintenance::Maintenance;
use crate::engine::{Deadline, Inner, locked};
use crate::protocol::directory::{
    Division, FULL_PAGE_BYTES, KeyDigest, MAX_PAGE_BYTES, Publication, REPORTED_SHARE, supersedes,
};
use crate::protocol::layout::Layout;
use crate::protocol::view::{Moment, View};
use crate::table::error::TableError;
use crate::table::{PageCopy, StoredPage};
use crate::values::key::PartitionKey;
use crate::values::throughput::WarmThroughput;

const COMPARISON_CONCURRENCY: usize = 16;

/// This instance's state of the directory: the pages of one division.
#[derive(Debug)]
pub(crate) struct KnownPages {
    division: Division,
    states: Vec<Arc<PageState>>,
}

#[derive(Debug)]
pub(crate) struct PageState {
    division: Division,
    number: u32,
    known: Mutex<Option<Arc<PageView>>>,
    /// When no tried copy was complete. For a lease from then on, the page is not requested again.
    incomplete_at: Mutex<Option<Moment>>,
    /// Held while the page is read, so that concurrent requests share one read.
    flight: tokio::sync::Mutex<()>,
    /// The copy that this instance reads, and the number of copies.
    copy: AtomicU32,
    copies: AtomicU32,
}

/// A complete page. Its views have the instant before it was requested.
#[derive(Debug)]
pub(crate) struct PageView {
    /// `None` for an entry that cannot be parsed: then the key's item is read instead.
    listed: HashMap<KeyDigest, Option<Arc<View>>>,
    unlisted: Arc<View>,
    /// The lowest of the main table and its indexes. `None` if it is not known.
    pub(crate) warm: Option<WarmThroughput>,
    bytes: usize,
}

impl PageView {
    pub(crate) fn view_of(&self, key: KeyDigest) -> Option<Arc<View>> {
        match self.listed.get(&key) {
            Some(listed) => listed.clone(),
            None => Some(Arc::clone(&self.unlisted)),
        }
    }

    pub(crate) fn is_valid(&self, now: Moment, lease: Duration) -> bool {
        self.unlisted.is_valid(now, lease)
    }

    /// Whether a further key may be listed, or a listed key may change its width.
    pub(crate) const fn has_room(&self, is_listed: bool) -> bool {
        self.bytes < if is_listed { MAX_PAGE_BYTES } else { FULL_PAGE_BYTES }
    }
}

impl PageState {
    pub(crate) fn known(&self) -> Option<Arc<PageView>> {
        locked(&self.known).clone()
    }

    fn is_incomplete(&self, now: Moment, lease: Duration) -> bool {
        let at = *locked(&self.incomplete_at);
        at.and_then(|at| now.since(at)).is_some_and(|age| age < lease)
    }
}

impl Inner {
    fn known_pages(&self) -> Option<Arc<KnownPages>> {
        self.pages.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn known_page(&self, key: KeyDigest) -> Option<Arc<PageState>> {
        let known = self.known_pages()?;
        known.states.get(known.division.page_of(key) as usize).cloned()
    }

    /// Reads the table item. Returns whether this instance has learned of other pages.
    async fn learn_division(&self, deadline: Deadline) -> Result<bool, TableError> {
        let division = || self.known_pages().map(|known| known.division);
        let before = division();
        self.read_table_item(deadline).await?;
        Ok(division() != before)
    }

    /// An instance never goes back to fewer pages: nobody writes them any more.
    pub(crate) fn know_division(&self, division: Division, copies: u32) {
        let mut known = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = known.as_ref().is_none_or(|known| {
            known.division.seed != division.seed || known.division.pages < division.pages
        });
        if is_new {
            let page = |number| PageState {
                division,
                number,
                known: Mutex::default(),
                incomplete_at: Mutex::default(),
                flight: tokio::sync::Mutex::default(),
                copy: AtomicU32::new(self.environment.below(copies)),
                copies: AtomicU32::new(copies),
            };
            let states = (0..division.pages).map(|number| Arc::new(page(number))).collect();
            *known = Some(Arc::new(KnownPages { division, states }));
        }
    }

    /// Reads the page of a key, unless `good` accepts the known one. `None` if neither this
    /// instance's copy nor a second one is complete, or if the table has no directory yet.
    pub(crate) async fn read_page(
        &self,
        key: KeyDigest,
        good: impl Fn(&PageView) -> bool,
        deadline: Deadline,
    ) -> Result<Option<Arc<PageView>>, TableError> {
        if self.known_pages().is_none() {
            self.learn_division(deadline).await?;
        }
        // Again each time that this instance has learned of more pages, or of another directory.
        'pages: loop {
            let Some(page) = self.known_page(key) else { return Ok(None) };
            let Ok(_flight) = timeout_at(deadline, page.flight.lock()).await else {
                let why = "a page of the directory did not come before the deadline";
                return Err(TableError::Transient(why.into()));
            };
            if let Some(known) = page.known().filter(|known| good(known)) {
                return Ok(Some(known));
            }
            if page.is_incomplete(self.environment.now(), self.config.lease()) {
                return Ok(None);
            }
            let (copies, own) =
                (page.copies.load(Ordering::Relaxed), page.copy.load(Ordering::Relaxed));
            // The first copy is older than all others. An instance that reads it may try any other
            // copy.
            let second =
                if own == 0 { 1 + self.environment.below(copies.saturating_sub(1)) } else { 0 };
            for mut copy in std::iter::once(own).chain((copies > 1).then_some(second)) {
                let mut read = || {
                    let at = PageCopy { pages: page.division.pages, page: page.number, copy };
                    // If one copy does not respond, another may.
                    copy = self.environment.below(copies);
                    async move {
                        let asked_at = self.environment.now();
                        counter!("ShardingLeaseRefreshes").increment(1);
                        Ok((asked_at, self.tables.get_page(at).await?))
                    }
                };
                let (asked_at, stored) = self.retrying(deadline, &mut read).await?;
                let Some(stored) = stored else { continue };
                if let Some(pages) = stored.moved_to {
                    self.know_division(Division { pages, ..page.division }, copies);
                    continue 'pages;
                }
                // A page of another directory, which was made anew, lists other keys.
                if stored.seed != Some(page.division.seed) {
                    continue;
                }
                if let Some(copies) = stored.copies {
                    if page.copies.swap(copies, Ordering::Relaxed) != copies {
                        page.copy.store(self.environment.below(copies), Ordering::Relaxed);
                    }
                    let view = Arc::new(self.page_view(stored, asked_at));
                    *locked(&page.known) = Some(Arc::clone(&view));
                    return Ok(Some(view));
                }
            }
            if self.learn_division(deadline).await? {
                continue 'pages;
            }
            tracing::error!(
                page = page.number,
                "a page of the directory is missing or incomplete, so the item of each key is read: rebuild it"
            );
            counter!("ShardingDirectoryIncomplete").increment(1);
            *locked(&page.incomplete_at) = Some(self.environment.now());
            return Ok(None);
        }
    }

    fn page_view(&self, stored: StoredPage, asked_at: Moment) -> PageView {
        let StoredPage { entries, warm, bytes, .. } = stored;
        let fill = bytes as f64 / FULL_PAGE_BYTES as f64;
        if fill >= REPORTED_SHARE {
            histogram!("ShardingDirectoryFill").record(fill * 100.0);
        }
        let view = |layout| Arc::new(View { layout, asked_at });
        let listed = entries.into_iter().map(|(key, layout)| (key, layout.map(view))).collect();
        PageView { listed, unlisted: view(Layout::unlisted(self.config.adopt_shards)), warm, bytes }
    }
}

impl KeyJob<'_> {
    /// Publishes a layout that this actor has written: on return every copy of the key's page has
    /// it, or a later one. The layout of a key that is not listed needs no entry.
    pub(crate) async fn publish(&self, layout: Layout) -> Result<(), TableError> {
        let mut publication = self.publication(layout).await?;
        self.finish_publishing(&mut publication).await
    }

    /// As [`publish`](Self::publish), for a layout that another actor has written, and may be
    /// publishing. Writes only copies that are behind.
    pub(crate) async fn publish_if_behind(&self, layout: Layout) -> Result<(), TableError> {
        let mut publication = self.publication(layout).await?;
        self.look_at_copies(&mut publication).await?;
        self.finish_publishing(&mut publication).await
    }

    async fn publication(&self, layout: Layout) -> Result<Publication<PageCopy>, TableError> {
        let copies = if layout.is_listed(self.inner.config.adopt_shards) {
            // After the change. A copy or a page that is added from now on is filled from the
            // items, which have it.
            self.inner.table_item(self.deadline).await?.copies_of(self.digest())
        } else {
            Vec::new()
        };
        Ok(Publication::new(layout, copies))
    }

    async fn finish_publishing(
        &self,
        publication: &mut Publication<PageCopy>,
    ) -> Result<(), TableError> {
        let mut backoff = Backoff::default();
        while let Err(error) = self.put_missing_entries(publication).await {
            if let TableError::Capacity(_) = error {
                backoff.slow_down();
            }
            if !error.is_retryable() || !backoff.pause(&self.inner.environment, self.deadline).await
            {
                return Err(error);
            }
            // An actor that repairs the page may have written it. A write that is rejected costs
            // the units of the whole page. Without a response, the write shows the same.
            let _ = self.look_at_copies(publication).await;
        }
        Ok(())
    }

    /// Writes every missing copy once. Returns a failure of one of them.
    async fn put_missing_entries(
        &self,
        publication: &mut Publication<PageCopy>,
    ) -> Result<(), TableError> {
        let (tables, entry) = (&self.inner.tables, &[(self.digest(), &publication.layout)]);
        let put = |at: PageCopy| async move { (at, tables.put_entries(at, entry).await) };
        let puts: Vec<_> = publication.missing.iter().copied().map(put).collect();
        let mut failed = Ok(());
        for (copy, sent) in join_all(puts).await {
            match sent {
                Ok(()) => publication.note_written(copy),
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    /// Reads every missing copy once, and notes which have the layout.
    async fn look_at_copies(
        &self,
        publication: &mut Publication<PageCopy>,
    ) -> Result<(), TableError> {
        for copy in publication.missing.clone() {
            let (key, stored) = (self.digest(), self.inner.tables.get_page(copy).await?);
            let entry = |page: &StoredPage| page.entries.get(&key).cloned().flatten();
            if !supersedes(&publication.layout, stored.as_ref().and_then(entry).as_ref()) {
                publication.note_written(copy);
            }
        }
        Ok(())
    }
}

impl Maintenance {
    /// Publishes the table's warm throughput to all its processes: the lowest of the main table and
    /// its indexes. Writers then know the table's partitions, and how many shards help.
    pub async fn publish_warm_throughput(&self, warm: WarmThroughput) -> Result<(), TableError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        inner.claim_once(deadline).await?;
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

    /// The table's warm throughput, from the key's page of the directory. `None` if it was not
    /// published, or if no copy of the page is complete.
    pub async fn warm_throughput(
        &self,
        key: &PartitionKey,
    ) -> Result<Option<WarmThroughput>, TableError> {
        let inner = &self.engine.inner;
        let lease = inner.config.lease();
        let is_valid = |page: &PageView| page.is_valid(inner.environment.now(), lease);
        let page = inner.read_page(KeyDigest::of(key), is_valid, self.until()).await?;
        Ok(page.and_then(|page| page.warm))
    }
}
