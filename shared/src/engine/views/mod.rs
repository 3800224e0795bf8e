//! Gets views: from the page of a key, or if the page cannot be relied on, from the key's item.

pub(in crate::engine) mod directory;
pub(in crate::engine) mod filling;
pub(in crate::engine) mod keys;
pub(in crate::engine) mod mode;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::Writes;
use crate::engine::job::KeyJob;
use crate::engine::views::keys::CHANGE_TIMEOUT;
use crate::engine::{Deadline, Inner};
use crate::protocol::layout::{Layout, Places};
use crate::protocol::metadata::ShardMetadata;
use crate::protocol::view::{Moment, View};
use crate::table::error::TableError;
use crate::values::key::{ShardNumber, SortKey};

const MAX_STALE_READS: u32 = 3;
/// The share of the lease after which a page is renewed early.
pub(crate) const RENEWAL_SHARE: f64 = 0.8;
const LOSS_CHECK_TIMEOUT: Duration = Duration::from_millis(500);
/// A page that is behind the known state of a key for this long is repaired, because the actor that
/// changed the key has died.
const PAGE_REPAIR_PERIOD: Duration = Duration::from_secs(3);

/// A key's item, as it was read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// The metadata. A key without an item has the default.
    pub(crate) metadata: ShardMetadata,
    pub(crate) exists: bool,
    /// Taken before the request was sent.
    pub(crate) asked_at: Moment,
}

impl Record {
    pub(crate) fn view(&self) -> View {
        View { layout: self.metadata.layout(), asked_at: self.asked_at }
    }

    pub(crate) fn stored_metadata(&self) -> Option<&ShardMetadata> {
        self.exists.then_some(&self.metadata)
    }
}

impl Inner {
    /// Shard 1, if writers without a view write to it.
    pub(crate) fn always_first(&self) -> Option<ShardNumber> {
        (self.config.writes() == Writes::Appends).then_some(ShardNumber::FIRST)
    }
}

impl KeyJob<'_> {
    /// Where the copies of an item may be.
    pub fn places(&self, sort_key: &SortKey, view: &View) -> Places {
        let home = self.inner.config.placement.homes(self.key, sort_key);
        view.layout.places(|width| home(width).unwrap_or(ShardNumber::FIRST))
    }

    /// The shards that a read of one item uses: its places, and with random placement all shards.
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

    /// The view of a record. If the directory does not list the key, this is the view of a key that
    /// never grew, with generation 0.
    pub(crate) fn view_of(&self, record: &Record) -> Arc<View> {
        let (view, unlisted) = (record.view(), self.inner.config.adopt_shards);
        let is_listed = view.layout.is_listed(unlisted);
        Arc::new(if is_listed { view } else { View { layout: Layout::unlisted(unlisted), ..view } })
    }

    /// The known layout of the key. `None` if its page was never read.
    pub(crate) fn known_view(&self) -> Option<Arc<View>> {
        let known = self.state.view();
        let page = self.inner.known_page(self.digest()).and_then(|page| page.known());
        let Some(page) = page.and_then(|page| page.view_of(self.digest())) else { return known };
        if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &page)) {
            return known;
        }
        let generation = page.layout.generation;
        let view = self.state.learn(page);
        self.note_behind(&view, generation);
        Some(view)
    }

    /// If a page stays behind the known state of the key, the key's item decides, and the page is
    /// repaired.
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

    /// Writes the layout of the key's item to the copies of its page that are behind.
    pub(crate) async fn repair(&self) -> Result<(), TableError> {
        let record = self.record_from_now().await?;
        self.state.learn(self.view_of(&record));
        self.publish_if_behind(record.metadata.layout()).await
    }

    /// As [`repair`](Self::repair), after a random pause: of many instances that notice the same,
    /// the first to wake repairs.
    pub(crate) async fn repair_later(&self) -> Result<(), TableError> {
        let longest = self.state.known().conflicts.note_behind();
        sleep(self.inner.environment.jitter(longest)).await;
        self.repair().await
    }

    /// A view that `good` accepts: the known one, or one that is read now. Concurrent callers share
    /// one read.
    async fn view_where(
        &self,
        good: impl Fn(&View, Moment) -> bool,
    ) -> Result<Arc<View>, TableError> {
        let known = || self.known_view().filter(|view| good(view, self.inner.environment.now()));
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
        // Without a reliable page, the key's item decides, and this checks whether the item is
        // lost.
        let record = self.record(|record, now| good(&record.view(), now)).await?;
        Ok(self.state.learn(self.view_of(&record)))
    }

    /// A view that was requested at or after this instant.
    pub async fn view_since(&self, since: Moment) -> Result<Arc<View>, TableError> {
        self.view_where(|view, now| view.is_asked_since(since, now)).await
    }

    pub(crate) async fn view_from_now(&self) -> Result<Arc<View>, TableError> {
        self.view_since(self.inner.environment.now()).await
    }

    /// A view from the key's item, because a copy is of a later era than the page knows. If the
    /// item knows it, the page is repaired.
    pub async fn verify(&self, since: Moment) -> Result<Arc<View>, TableError> {
        self.repair().await?;
        self.view_since(since).await
    }

    /// The view within its lease, or a new one.
    pub async fn view(&self) -> Result<Arc<View>, TableError> {
        match self.leased_view() {
            Some(view) => Ok(view),
            None => {
                self.view_where(|view, now| view.is_valid(now, self.inner.config.lease())).await
            }
        }
    }

    /// The view, if its lease is still valid. When little of the lease is left, its page is renewed
    /// in the background.
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
            if let Err(error) = job.view_where(|view, now| view.is_valid(now, renew_at)).await {
                tracing::warn!(%error, "could not get the view of a key; the next request of it tries again");
            }
        });
    }

    /// The key's item as it was last read or written, if `good` accepts it, or as it is now.
    /// Concurrent callers share one read. [`TableError::Lost`] if it is older than the known state.
    pub(crate) async fn record(
        &self,
        good: impl Fn(&Record, Moment) -> bool,
    ) -> Result<Arc<Record>, TableError> {
        let known = || {
            let record = self.state.known().record.clone();
            record.filter(|record| good(record, self.inner.environment.now()))
        };
        if let Some(record) = known() {
            return Ok(record);
        }
        let Ok(_flight) = timeout_at(self.deadline, self.state.flight.lock()).await else {
            let why = "the metadata did not come before the deadline";
            return Err(TableError::Transient(why.into()));
        };
        if let Some(record) = known() {
            return Ok(record);
        }
        for _ in 0..MAX_STALE_READS {
            // Another request of this instance may register or change the key meanwhile.
            let (was_registered, at_least) = {
                let known = self.state.known();
                (known.was_registered, known.view.as_ref().map_or(0, |view| view.layout.generation))
            };
            let record = Arc::new(self.read_record().await?);
            if !record.exists {
                if was_registered || at_least > 0 {
                    return Err(TableError::Lost("its item was there and is gone".into()));
                }
                let soon = Instant::now() + LOSS_CHECK_TIMEOUT.min(self.inner.config.lease() / 4);
                match self.check_is_new(soon.min(self.deadline)).await {
                    // No result. The next check repeats the question.
                    Err(error) if error.is_retryable() => {
                        tracing::warn!(%error, "whether the metadata of a key is lost is not known");
                    }
                    checked => checked?,
                }
            }
            if record.metadata.generation >= at_least {
                self.learn_record(&record);
                return Ok(record);
            }
        }
        Err(TableError::Lost("its generation went back".into()))
    }

    pub(crate) fn learn_record(&self, record: &Arc<Record>) {
        let mut known = self.state.known();
        known.was_registered |= record.exists;
        let old = known.record.as_ref();
        if old.is_none_or(|old| old.metadata.generation <= record.metadata.generation) {
            known.record = Some(Arc::clone(record));
        }
    }

    pub(crate) async fn record_from_now(&self) -> Result<Arc<Record>, TableError> {
        let began = self.inner.environment.now();
        self.record(|record, now| record.view().is_asked_since(began, now)).await
    }

    /// Before metadata is created for a key: fails if its metadata is lost. Every key that grew
    /// under load has items where a key without metadata has none.
    pub(crate) async fn check_is_new(&self, deadline: Deadline) -> Result<(), TableError> {
        if self.state.known().is_new {
            return Ok(());
        }
        let KeyJob { inner, key, .. } = self;
        let beyond = ShardNumber::from_index(inner.config.adopt_shards.get());
        let found = inner.retrying(deadline, || inner.tables.has_items(key, beyond)).await?;
        // It may have grown since its metadata was read.
        if found && inner.retrying(deadline, || inner.tables.get_metadata(key)).await?.is_none() {
            let why = format!("it has no item, yet items stand on shard {beyond}");
            return Err(TableError::Lost(why));
        }
        self.state.known().is_new = true;
        Ok(())
    }

    async fn read_record(&self) -> Result<Record, TableError> {
        let inner = self.inner;
        let read = || async {
            let asked_at = inner.environment.now();
            counter!("ShardingLeaseRefreshes").increment(1);
            let found = inner.tables.get_metadata(self.key).await?;
            let exists = found.is_some();
            let nothing = || ShardMetadata::unregistered_with(inner.config.adopt_shards);
            Ok(Record { metadata: found.unwrap_or_else(nothing), exists, asked_at })
        };
        inner.retrying(self.deadline, read).await
    }
}
