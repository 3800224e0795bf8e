//! The directory of one table, as this instance has read it. This module creates it, publishes
//! changes in it, and repairs it. [docs/protocol.md, The directory]

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout_at};

use super::events::ScalingReason;
use super::retry::retrying;
use super::{Deadline, Inner, TableEngine};
use crate::core::key::{PartitionKey, ShardCount};
use crate::core::throughput::WarmThroughput;
use crate::protocol::directory::{
    FULL_PAGE_BYTES, LARGEST_PAGE_BYTES, MAX_COPIES, REPORTED_FILL, page_of, supersedes,
};
use crate::protocol::history::ShardHistory;
use crate::protocol::layout::Layout;
use crate::protocol::metadata::{Change, ShardMetadata};
use crate::protocol::view::{Moment, View};
use crate::table::error::TableError;
use crate::table::{PageCopy, StoredPage, TABLE_KEY, TableItem};
use crate::telemetry;

/// This instance's state of the directory.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Every page, once the table item has been read.
    pages: OnceCell<Vec<PageState>>,
    /// This process may write: the table item exists, and agrees.
    pub(super) claimed: OnceCell<()>,
}

/// This instance's state of one page.
#[derive(Debug)]
pub(super) struct PageState {
    number: u32,
    known: Mutex<Option<Arc<PageView>>>,
    /// When no tried copy was complete. For a lease from then on, the page is not requested again.
    incomplete_at: Mutex<Option<Moment>>,
    /// Held while the page is read, so that concurrent requests share one read.
    flight: tokio::sync::Mutex<()>,
    /// A task is renewing the page before its lease ends.
    pub(super) renewing: Arc<AtomicBool>,
    /// The copy that this instance reads, and the number of copies.
    copy: AtomicU32,
    copies: AtomicU32,
}

/// A complete page. Its views have the instant before it was requested.
#[derive(Debug)]
pub(super) struct PageView {
    /// `None` for an entry that cannot be parsed: then the key's item is read instead.
    listed: HashMap<PartitionKey, Option<Arc<View>>>,
    unlisted: Arc<View>,
    warm: Option<WarmThroughput>,
    bytes: usize,
}

impl PageView {
    pub(super) fn view_of(&self, key: &PartitionKey) -> Option<Arc<View>> {
        match self.listed.get(key) {
            Some(listed) => listed.clone(),
            None => Some(Arc::clone(&self.unlisted)),
        }
    }

    /// The lowest warm throughput of the main table and its indexes. `None` if it is not known.
    pub(super) const fn warm(&self) -> Option<WarmThroughput> {
        self.warm
    }

    /// Whether the page was requested within this lease.
    pub(super) fn is_valid(&self, now: Moment, lease: Duration) -> bool {
        self.unlisted.is_valid(now, lease)
    }

    /// Whether a further key may be listed, or a listed key may change its width.
    pub(super) const fn has_room(&self, is_listed: bool) -> bool {
        self.bytes < if is_listed { LARGEST_PAGE_BYTES } else { FULL_PAGE_BYTES }
    }
}

impl PageState {
    pub(super) fn known(&self) -> Option<Arc<PageView>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_incomplete(&self, now: Moment, lease: Duration) -> bool {
        let at = *self.incomplete_at.lock().unwrap_or_else(PoisonError::into_inner);
        at.and_then(|at| now.since(at)).is_some_and(|age| age < lease)
    }

    fn learn(&self, view: Arc<PageView>) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(view);
    }
}

/// Which missing pages are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pages {
    /// Every page: the items are known to be complete.
    All,
    /// Pages that never existed. A page that existed and has no complete copy is not created.
    NotLost,
}

/// The result of comparing the directory with the items.
#[derive(Debug)]
pub(super) struct Filled {
    /// Entries that were behind their items, in all copies.
    behind: u64,
    /// Entries whose items are missing or older.
    without_item: HashMap<PartitionKey, Layout>,
}

impl Inner {
    /// The page of a key. `None` before the table item was read.
    pub(super) fn known_page(&self, key: &PartitionKey) -> Option<&PageState> {
        let pages = self.directory.pages.get()?;
        pages.get(page_of(key, u32::try_from(pages.len()).unwrap_or(u32::MAX)) as usize)
    }

    /// As [`known_page`](Self::known_page), after reading the table item. `None` if the table has
    /// none yet.
    pub(super) async fn page(
        &self,
        key: &PartitionKey,
        deadline: Deadline,
    ) -> Result<Option<&PageState>, TableError> {
        if self.directory.pages.get().is_none() {
            let table =
                retrying(&self.environment, deadline, || self.tables.get_table_item()).await?;
            let Some(table) = table else { return Ok(None) };
            self.agree(&table)?;
            self.know(&table);
        }
        Ok(self.known_page(key))
    }

    /// Stores the table item's settings of the directory.
    pub(super) fn know(&self, table: &TableItem) {
        let page = |number| PageState {
            number,
            known: Mutex::default(),
            incomplete_at: Mutex::default(),
            flight: tokio::sync::Mutex::default(),
            renewing: Arc::default(),
            copy: AtomicU32::new(self.environment.below(table.copies)),
            copies: AtomicU32::new(table.copies),
        };
        // Another request may have been first.
        let _ = self.directory.pages.set((0..table.pages).map(page).collect());
    }

    /// Reads a page, unless `good` accepts the known one. `None` if neither this instance's copy
    /// nor a second one is complete.
    pub(super) async fn read_page(
        &self,
        page: &PageState,
        good: impl Fn(&PageView) -> bool,
        deadline: Deadline,
    ) -> Result<Option<Arc<PageView>>, TableError> {
        if page.is_incomplete(self.environment.now(), self.config.lease()) {
            return Ok(None);
        }
        let Ok(_flight) = timeout_at(deadline, page.flight.lock()).await else {
            return Err(TableError::Transient(
                "a page of the directory did not come before the deadline".into(),
            ));
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
        for copy in std::iter::once(own).chain((copies > 1).then_some(second)) {
            let mut copy = copy;
            let mut read = || {
                let at = PageCopy { page: page.number, copy };
                // If one copy does not respond, another may.
                copy = self.environment.below(copies);
                async move {
                    let asked_at = self.environment.now();
                    telemetry::lease_refreshed();
                    Ok((asked_at, self.tables.get_page(at).await?))
                }
            };
            let (asked_at, stored) = retrying(&self.environment, deadline, &mut read).await?;
            if let Some((stored, copies)) =
                stored.and_then(|stored| stored.copies.map(|copies| (stored, copies)))
            {
                if page.copies.swap(copies, Ordering::Relaxed) != copies {
                    page.copy.store(self.environment.below(copies), Ordering::Relaxed);
                }
                let view = Arc::new(self.page_view(stored, asked_at));
                page.learn(Arc::clone(&view));
                return Ok(Some(view));
            }
        }
        tracing::error!(
            page = page.number,
            "a page of the directory is missing or incomplete, so the item of each key is read: rebuild it"
        );
        telemetry::directory_incomplete();
        *page.incomplete_at.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(self.environment.now());
        Ok(None)
    }

    fn page_view(&self, stored: StoredPage, asked_at: Moment) -> PageView {
        let StoredPage { entries, warm, bytes, .. } = stored;
        let fill = bytes as f64 / FULL_PAGE_BYTES as f64;
        if fill >= REPORTED_FILL {
            telemetry::directory_fill(fill);
        }
        let view = |layout| Arc::new(View { layout, asked_at });
        let listed = entries.into_iter().map(|(key, layout)| (key, layout.map(view))).collect();
        PageView { listed, unlisted: view(Layout::unlisted(self.config.adopt_shards)), warm, bytes }
    }

    async fn stored_pages(
        &self,
        table: &TableItem,
        deadline: Deadline,
    ) -> Result<HashMap<PageCopy, StoredPage>, TableError> {
        let mut stored = HashMap::new();
        for page in 0..table.pages {
            for at in (0..table.copies).map(|copy| PageCopy { page, copy }) {
                let read = || self.tables.get_page(at);
                let page = retrying(&self.environment, deadline, read).await?;
                stored.extend(page.map(|page| (at, page)));
            }
        }
        Ok(stored)
    }

    /// The keys of which an entry in a copy of a page cannot be parsed, or does not have this width.
    pub(super) async fn listed_without(
        &self,
        width: ShardCount,
        deadline: Deadline,
    ) -> Result<BTreeSet<PartitionKey>, TableError> {
        let table = retrying(&self.environment, deadline, || self.tables.get_table_item()).await?;
        let Some(table) = table else { return Ok(BTreeSet::new()) };
        let entries = self.stored_pages(&table, deadline).await?;
        let entries = entries.into_values().flat_map(|page| page.entries);
        let lacks = |layout: &Option<Layout>| {
            layout.as_ref().is_none_or(|layout| !layout.widths.contains(&width))
        };
        Ok(entries.filter(|(_, layout)| lacks(layout)).map(|(key, _)| key).collect())
    }

    /// Writes missing entries from the items to every copy of these pages, and marks the pages as
    /// complete. Other actors publish their own changes meanwhile.
    pub(super) async fn fill_directory(
        &self,
        pages: Pages,
        deadline: Deadline,
    ) -> Result<Filled, TableError> {
        let table = retrying(&self.environment, deadline, || self.tables.get_table_item()).await?;
        let table =
            table.ok_or_else(|| TableError::Lost(format!("the item {TABLE_KEY} is gone")))?;
        if pages == Pages::NotLost {
            table.check_rebuilt()?;
        }
        let copies = |page| (0..table.copies).map(move |copy| PageCopy { page, copy });
        let stored = self.stored_pages(&table, deadline).await?;
        let entries = || stored.values().flat_map(|page: &StoredPage| &page.entries);
        let mut filled = Filled { behind: 0, without_item: HashMap::new() };
        for (key, layout) in entries().filter_map(|(key, layout)| Some((key, layout.as_ref()?))) {
            if supersedes(layout, filled.without_item.get(key)) {
                filled.without_item.insert(key.clone(), layout.clone());
            }
        }
        let mut after = None;
        loop {
            let list = || self.tables.list_metadata(after.as_ref());
            let (keys, next) = retrying(&self.environment, deadline, list).await?;
            for (key, raw) in keys {
                // A damaged item must be rebuilt first.
                let Ok(mut metadata) = raw.parse() else { continue };
                // Another program stored the item, without a generation.
                if let Some(numbered) =
                    metadata.apply(&Change::Register, self.environment.now().epoch_seconds())
                {
                    let write =
                        || self.tables.write_metadata(&key, Some(&metadata), None, &numbered);
                    match retrying(&self.environment, deadline, write).await {
                        Ok(()) => metadata = numbered,
                        // Another actor is changing the key, and publishes the change.
                        Err(TableError::ConditionFailed) => continue,
                        Err(error) => return Err(error),
                    }
                }
                let layout = metadata.layout();
                if filled
                    .without_item
                    .get(&key)
                    .is_some_and(|entry| entry.generation <= layout.generation)
                {
                    filled.without_item.remove(&key);
                }
                for at in copies(page_of(&key, table.pages)) {
                    let entry = stored.get(&at).and_then(|page| page.entries.get(&key)?.as_ref());
                    if layout.is_listed(self.config.adopt_shards) && supersedes(&layout, entry) {
                        filled.behind += 1;
                        retrying(&self.environment, deadline, || {
                            self.tables.put_entry(at, &key, &layout)
                        })
                        .await?;
                    }
                }
            }
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        // A copy is complete only if it also lists the keys whose items are lost.
        for (key, layout) in &filled.without_item {
            for at in copies(page_of(key, table.pages)) {
                let entry = stored.get(&at).and_then(|page| page.entries.get(key)?.as_ref());
                if supersedes(layout, entry) {
                    retrying(&self.environment, deadline, || {
                        self.tables.put_entry(at, key, layout)
                    })
                    .await?;
                }
            }
        }
        // New copies have the throughput from their first read on. If the others differ, the next
        // publication makes them equal.
        let warm = (0..table.pages).flat_map(copies).find_map(|at| stored.get(&at)?.warm);
        for page in 0..table.pages {
            let mark = |at: PageCopy| stored.get(&at).and_then(|page| page.copies);
            // If every copy is lost, items may be lost, too. Only a scan of the whole table can
            // tell.
            if pages == Pages::NotLost
                && table.directory_made
                && copies(page).all(|at| mark(at).is_none())
            {
                tracing::error!(page, "a page of the directory is lost: rebuild the metadata");
                continue;
            }
            for at in copies(page).filter(|at| mark(*at) != Some(table.copies)) {
                retrying(&self.environment, deadline, || {
                    self.tables.mark_page(at, table.copies, warm)
                })
                .await?;
            }
        }
        if !table.directory_made {
            retrying(&self.environment, deadline, || self.tables.note_directory_made()).await?;
        }
        Ok(filled)
    }

    /// Recreates a key's item from its entry in the directory, because the item is missing or
    /// older.
    async fn restore(
        self: &Arc<Self>,
        key: &PartitionKey,
        entry: &Layout,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        let read =
            retrying(&self.environment, deadline, || self.tables.get_raw_metadata(key)).await?;
        let seen = read.as_ref().and_then(|raw| raw.parse().ok());
        let damaged = read.filter(|_| seen.is_none());
        let history = entry.widths.iter().fold(ShardHistory::default(), |history, width| {
            history.with(entry.last_updated, *width)
        });
        let known = ShardMetadata {
            number_of_shards: entry.number_of_shards,
            read_shards: entry.read_shards,
            era: entry.era,
            generation: entry.generation,
            shard_history: history.clone(),
            last_updated: entry.last_updated,
            ..ShardMetadata::unregistered_with(self.config.adopt_shards)
        };
        let to = entry.closing.unwrap_or(entry.number_of_shards);
        let rebuild = Change::Rebuild { to, history, era: entry.era };
        let job = self.job(key, deadline);
        if let Some(closed) =
            job.change_from(&known, (seen.as_ref(), damaged.as_ref()), &rebuild).await?
        {
            sleep(self.environment.opening_wait()).await;
            job.open(&closed, ScalingReason::Asked).await?;
        }
        Ok(())
    }
}

impl TableEngine {
    /// Raises the number of copies of each page of the directory while traffic runs. An instance
    /// reads one copy, so more copies spread many instances. It takes as long as reading all
    /// metadata. A lower number changes nothing.
    ///
    /// # Errors
    /// [`TableError::Rejected`] for more than 64, or none; another [`TableError`] if the metadata
    /// table could not be used: run it again.
    pub async fn raise_directory_copies(
        &self,
        copies: u32,
        deadline: Deadline,
    ) -> Result<(), TableError> {
        let inner = &self.inner;
        if !(1..=MAX_COPIES).contains(&copies) {
            return Err(TableError::Rejected(
                format!("copies is {copies}; allowed: 1 to {MAX_COPIES}").into(),
            ));
        }
        self.claim_mode(deadline).await?;
        // From here on, every actor that changes a key writes to the new copies, too. Then they are
        // filled, then read.
        retrying(&inner.environment, deadline, || inner.tables.raise_copies(copies)).await?;
        inner.fill_directory(Pages::NotLost, deadline).await.map(drop)
    }

    /// Compares every page of the directory with the items, and writes what is missing, because an
    /// actor may have died between the two. Returns the number of entries that were behind. Lost
    /// pages are left to [`rebuild_directory`](Self::rebuild_directory).
    ///
    /// # Errors
    /// [`TableError`] if the metadata table could not be used: run it again.
    pub async fn repair_directory(&self, deadline: Deadline) -> Result<u64, TableError> {
        self.claim_mode(deadline).await?;
        let filled = self.inner.fill_directory(Pages::NotLost, deadline).await?;
        for key in filled.without_item.keys() {
            tracing::error!(
                key = key.as_str(),
                "the directory lists a key whose item is lost: rebuild the metadata"
            );
        }
        Ok(filled.behind)
    }

    /// The last step of a rebuild, once every key's own metadata is correct. It does what
    /// [`repair_directory`](Self::repair_directory) does, and also recreates lost pages, and the
    /// items of keys that only the directory still lists. Returns the number of entries that were
    /// behind, and of items that were recreated.
    ///
    /// # Errors
    /// [`TableError`] if the metadata table could not be used: run it again.
    pub async fn rebuild_directory(&self, deadline: Deadline) -> Result<(u64, u64), TableError> {
        self.claim_for_rebuild(deadline).await?;
        let filled = self.inner.fill_directory(Pages::All, deadline).await?;
        for (key, entry) in &filled.without_item {
            self.inner.restore(key, entry, deadline).await?;
        }
        Ok((filled.behind, filled.without_item.len() as u64))
    }
}
