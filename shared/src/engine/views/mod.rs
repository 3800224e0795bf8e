//! Views: from the page of a key, or if it cannot be relied on, from the key's item.
//! [docs/protocol.md, The directory]
//!
//! The pages also have the table's warm throughput, which the shard-scaler reads from DynamoDB. It
//! is no part of the protocol: if it is not known, decisions are made without it.

pub(in crate::engine) mod filling;
pub(in crate::engine) mod keys;
pub(in crate::engine) mod mode;
mod record;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use metrics::{counter, histogram};
use tokio::time::{Instant, timeout_at};

use crate::config::Writes;
use crate::engine::job::KeyJob;
use crate::engine::views::keys::CHANGE_TIMEOUT;
use crate::engine::{Deadline, Inner, Maintenance, locked};
use crate::protocol::directory::{
    Division, FULL_PAGE_BYTES, KeyDigest, MAX_PAGE_BYTES, REPORTED_SHARE,
};
use crate::protocol::layout::{Layout, Places};
use crate::protocol::view::{Moment, View};
use crate::table::error::TableError;
use crate::table::{PageCopy, StoredPage, TABLE_KEY, TableItem};
use crate::values::key::{PartitionKey, ShardNumber, SortKey};
use crate::values::throughput::WarmThroughput;

/// Reads of a page or an item, in a row, that may show an older state than the known one.
const MAX_STALE_READS: u32 = 3;
/// The share of the lease after which a page is renewed early.
pub(crate) const RENEWAL_SHARE: f64 = 0.8;
/// A page that is behind the known state of a key for this long is repaired: the actor that changed
/// the key has died.
const PAGE_REPAIR_PERIOD: Duration = Duration::from_secs(3);
const COMPARISON_CONCURRENCY: usize = 16;

pub(super) fn table_item_gone() -> TableError {
    TableError::Lost(format!("the item {TABLE_KEY} is gone"))
}

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
    /// Concurrent requests share one read.
    flight: tokio::sync::Mutex<()>,
    /// The copy that this instance reads.
    copy: AtomicU32,
    copies: AtomicU32,
}

/// Its views have the instant before the page was requested.
#[derive(Debug)]
pub(crate) struct PageView {
    /// `None` for an entry that cannot be parsed: then the key's item is read.
    listed: HashMap<KeyDigest, Option<Arc<View>>>,
    unlisted: Arc<View>,
    /// The lowest of the main table and its indexes.
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

    /// Whether a further key may be listed, or a listed one may change its width.
    pub(crate) const fn has_room(&self, is_listed: bool) -> bool {
        self.bytes < if is_listed { MAX_PAGE_BYTES } else { FULL_PAGE_BYTES }
    }
}

impl PageState {
    pub(crate) fn known(&self) -> Option<Arc<PageView>> {
        locked(&self.known).clone()
    }
}

impl Inner {
    /// Shard 1, if writers without a view write to it.
    pub(crate) fn always_first(&self) -> Option<ShardNumber> {
        (self.config.writes() == Writes::Appends).then_some(ShardNumber::FIRST)
    }

    fn known_pages(&self) -> Option<Arc<KnownPages>> {
        self.pages.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn known_page(&self, key: KeyDigest) -> Option<Arc<PageState>> {
        let known = self.known_pages()?;
        known.states.get(known.division.page_of(key) as usize).cloned()
    }

    pub(crate) async fn table_item(&self, deadline: Deadline) -> Result<TableItem, TableError> {
        self.retrying(deadline, || self.tables.get_table_item()).await?.ok_or_else(table_item_gone)
    }

    /// Reads the table item. Returns whether it names other pages.
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
            let (now, incomplete_at) = (self.environment.now(), *locked(&page.incomplete_at));
            let incomplete_for = incomplete_at.and_then(|at| now.since(at));
            if incomplete_for.is_some_and(|time| time < self.config.lease()) {
                return Ok(None);
            }
            let (copies, own) =
                (page.copies.load(Ordering::Relaxed), page.copy.load(Ordering::Relaxed));
            // The first copy is older than all others, so an instance that reads it may try any
            // other.
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
    pub(crate) fn warm(&self) -> Option<WarmThroughput> {
        self.inner.known_page(self.digest())?.known()?.warm
    }

    pub(crate) fn partitions(&self) -> Option<u32> {
        self.warm().map(WarmThroughput::partitions)
    }

    /// Where the copies of an item may be.
    pub fn places(&self, sort_key: &SortKey, view: &View) -> Places {
        let home = self.inner.config.placement.homes(self.key, sort_key);
        view.layout.places(|width| home(width).unwrap_or(ShardNumber::FIRST))
    }

    /// The shards that a read of one item uses: its places; with random placement all shards.
    pub(crate) fn candidates(&self, sort_key: &SortKey, view: &View) -> BTreeSet<ShardNumber> {
        if self.inner.config.placement.is_append_only() {
            return view.layout.read_shards.shards().collect();
        }
        let mut candidates = self.places(sort_key, view).all();
        candidates.extend(self.inner.always_first());
        candidates
    }

    pub(crate) fn is_place(&self, sort_key: &SortKey, shard: ShardNumber, view: &View) -> bool {
        self.inner.config.placement.is_append_only()
            || self.inner.always_first() == Some(shard)
            || self.places(sort_key, view).contains(shard)
    }

    /// `None` if the key's page was never read.
    pub(crate) fn known_view(&self) -> Option<Arc<View>> {
        let known = self.state.known().view.clone();
        let page = self.inner.known_page(self.digest()).and_then(|page| page.known());
        let Some(page) = page.and_then(|page| page.view_of(self.digest())) else { return known };
        if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &page)) {
            return known;
        }
        let generation = page.layout.generation;
        let view = self.learn(page);
        self.note_behind(&view, generation);
        Some(view)
    }

    /// Takes a view, unless the known one is at least as new. Returns the newest.
    pub(crate) fn learn(&self, view: Arc<View>) -> Arc<View> {
        let mut known = self.state.known();
        let view = match &known.view {
            Some(old)
                if old.layout.generation >= view.layout.generation
                    && old.asked_at >= view.asked_at =>
            {
                return Arc::clone(old);
            }
            Some(old) if old.layout.generation > view.layout.generation => {
                Arc::new(view.joined(old))
            }
            Some(old) => {
                if view.layout.number_of_shards != old.layout.number_of_shards {
                    known.throttled_at.clear();
                    known.quiet = None;
                }
                view
            }
            None => view,
        };
        known.pressure.observe_width(view.layout.number_of_shards, view.asked_at.monotonic);
        known.view = Some(Arc::clone(&view));
        view
    }

    /// If a page stays behind, the key's item decides, and the page is repaired.
    fn note_behind(&self, view: &View, of_page: u64) {
        let mut known = self.state.known();
        if view.layout.generation <= of_page {
            known.behind_since = None;
            return;
        }
        let since = *known.behind_since.get_or_insert(view.asked_at);
        let is_long = view.asked_at.since(since).is_some_and(|behind| behind > PAGE_REPAIR_PERIOD);
        drop(known);
        // A process that only reads may not write.
        if is_long && self.inner.arming.claim.initialized() {
            self.in_background(&self.state.is_repairing, |inner, key| async move {
                let job = inner.job(&key, Instant::now() + CHANGE_TIMEOUT);
                if let Err(error) = job.repair_later().await {
                    tracing::error!(key = key.as_str(), %error, "the page of a key is behind its item");
                }
                // If that did not help, it is tried again after the same time.
                job.state.known().behind_since = None;
            });
        }
    }

    /// A view that `good` accepts: the known one, or a new one. Concurrent callers share one read.
    fn view_where<'a>(
        &'a self,
        good: &'a (dyn Fn(&View, Moment) -> bool + Sync),
    ) -> BoxFuture<'a, Result<Arc<View>, TableError>> {
        Box::pin(async move {
            let known =
                || self.known_view().filter(|view| good(view, self.inner.environment.now()));
            if let Some(view) = known() {
                return Ok(view);
            }
            for _ in 0..MAX_STALE_READS {
                let is_known = |_: &_| known().is_some();
                let read = self.inner.read_page(self.digest(), is_known, self.deadline).await?;
                // `None` if no copy of the page is complete, or if the entry cannot be parsed.
                if read.and_then(|page| page.view_of(self.digest())).is_none() {
                    break;
                }
                if let Some(view) = known() {
                    return Ok(view);
                }
            }
            // Without a reliable page, the key's item decides. This checks whether it is lost.
            let record = self.record(|record, now| good(&record.view(), now)).await?;
            Ok(self.learn(self.view_of(&record)))
        })
    }

    /// A view that was requested at or after this instant.
    pub async fn view_since(&self, since: Moment) -> Result<Arc<View>, TableError> {
        self.view_where(&|view, now| view.is_asked_since(since, now)).await
    }

    pub(crate) async fn view_from_now(&self) -> Result<Arc<View>, TableError> {
        self.view_since(self.inner.environment.now()).await
    }

    /// A view from the key's item, because a copy is of a later era than the page knows. Repairs
    /// the page if the item knows it.
    pub async fn verify(&self, since: Moment) -> Result<Arc<View>, TableError> {
        self.repair().await?;
        self.view_since(since).await
    }

    /// The view within its lease, or a new one.
    pub async fn view(&self) -> Result<Arc<View>, TableError> {
        if let Some(view) = self.leased_view() {
            return Ok(view);
        }
        self.view_where(&|view, now| view.is_valid(now, self.inner.config.lease())).await
    }

    pub(crate) fn leased_view(&self) -> Option<Arc<View>> {
        let (now, lease) = (self.inner.environment.now(), self.inner.config.lease());
        let view = self.known_view().filter(|view| view.is_valid(now, lease))?;
        self.renew(Some(&view), lease, now);
        Some(view)
    }

    /// Renews the view beside the request when little of its lease is left. Without one, gets it.
    pub(crate) fn renew(&self, view: Option<&View>, lease: Duration, now: Moment) {
        let renew_at = lease.mul_f64(RENEWAL_SHARE);
        if view.is_some_and(|view| view.is_valid(now, renew_at)) {
            return;
        }
        self.beside(&self.state.is_renewing, move |inner, key| async move {
            let job = inner.job(&key, Instant::now() + Duration::from_secs(1));
            if let Err(error) = job.view_where(&|view, now| view.is_valid(now, renew_at)).await {
                tracing::warn!(%error, "could not get the view of a key; the next request of it tries again");
            }
        });
    }
}

impl Maintenance {
    /// Publishes the table's warm throughput: the lowest of the main table and its indexes. Writers
    /// then know the table's partitions, and how many shards help.
    pub async fn publish_warm_throughput(&self, warm: WarmThroughput) -> Result<(), TableError> {
        let (inner, deadline) = (&self.engine.inner, self.until());
        inner.claim_once(deadline).await?;
        let table = inner.table_item(deadline).await?;
        let publish = |at| async move {
            // Read first, because a refused condition costs the write units of the whole page.
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

    /// The table's warm throughput. `None` if it was not published, or if no copy of the key's page
    /// is complete.
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
