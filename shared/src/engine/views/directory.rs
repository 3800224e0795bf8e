//! The directory of one table, as this instance has read it. [docs/protocol.md, The directory]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use metrics::{counter, histogram};
use tokio::time::timeout_at;

use crate::engine::{Deadline, Inner, locked, telemetry};
use crate::protocol::directory::{
    Division, FULL_PAGE_BYTES, KeyDigest, MAX_PAGE_BYTES, REPORTED_SHARE,
};
use crate::protocol::layout::Layout;
use crate::protocol::view::{Moment, View};
use crate::table::error::TableError;
use crate::table::{PageCopy, StoredPage};
use crate::values::throughput::WarmThroughput;

/// This instance's state of the directory.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Every page, once the table item has been read. Larger ones replace them.
    pages: RwLock<Option<Arc<KnownPages>>>,
}

/// The pages of one division.
#[derive(Debug)]
struct KnownPages {
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
    /// A task is renewing the page before its lease ends.
    pub(crate) is_renewing: Arc<AtomicBool>,
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

enum PageRead {
    Read(Arc<PageView>),
    /// No tried copy is complete.
    Incomplete,
    /// This instance has learned of other pages.
    Moved,
}

impl Directory {
    fn known(&self) -> Option<Arc<KnownPages>> {
        self.pages.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Inner {
    pub(crate) fn known_page(&self, key: KeyDigest) -> Option<Arc<PageState>> {
        let known = self.directory.known()?;
        known.states.get(known.division.page_of(key) as usize).cloned()
    }

    /// Reads the table item. Returns whether this instance has learned of other pages.
    async fn learn_division(&self, deadline: Deadline) -> Result<bool, TableError> {
        let division = || self.directory.known().map(|known| known.division);
        let before = division();
        self.read_table_item(deadline).await?;
        Ok(division() != before)
    }

    /// An instance never goes back to fewer pages: nobody writes them any more.
    pub(crate) fn know_division(&self, division: Division, copies: u32) {
        let mut known = self.directory.pages.write().unwrap_or_else(PoisonError::into_inner);
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
                is_renewing: Arc::default(),
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
        if self.directory.known().is_none() {
            self.learn_division(deadline).await?;
        }
        loop {
            let Some(page) = self.known_page(key) else { return Ok(None) };
            match self.read_copies(&page, &good, deadline).await? {
                PageRead::Read(view) => return Ok(Some(view)),
                PageRead::Incomplete => return Ok(None),
                // Each time there are more pages, or another directory.
                PageRead::Moved => {}
            }
        }
    }

    async fn read_copies(
        &self,
        page: &PageState,
        good: impl Fn(&PageView) -> bool,
        deadline: Deadline,
    ) -> Result<PageRead, TableError> {
        if page.is_incomplete(self.environment.now(), self.config.lease()) {
            return Ok(PageRead::Incomplete);
        }
        let Ok(_flight) = timeout_at(deadline, page.flight.lock()).await else {
            let why = "a page of the directory did not come before the deadline";
            return Err(TableError::Transient(why.into()));
        };
        if let Some(known) = page.known().filter(|known| good(known)) {
            return Ok(PageRead::Read(known));
        }
        if page.is_incomplete(self.environment.now(), self.config.lease()) {
            return Ok(PageRead::Incomplete);
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
                    telemetry::lease_refreshed();
                    Ok((asked_at, self.tables.get_page(at).await?))
                }
            };
            let (asked_at, stored) = self.retrying(deadline, &mut read).await?;
            let Some(stored) = stored else { continue };
            if let Some(pages) = stored.moved_to {
                self.know_division(Division { pages, ..page.division }, copies);
                return Ok(PageRead::Moved);
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
                return Ok(PageRead::Read(view));
            }
        }
        if self.learn_division(deadline).await? {
            return Ok(PageRead::Moved);
        }
        tracing::error!(
            page = page.number,
            "a page of the directory is missing or incomplete, so the item of each key is read: rebuild it"
        );
        counter!("ShardingDirectoryIncomplete").increment(1);
        *locked(&page.incomplete_at) = Some(self.environment.now());
        Ok(PageRead::Incomplete)
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
