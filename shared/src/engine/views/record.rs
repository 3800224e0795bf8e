//! A key's own item, and publishing its layout to every copy of the key's page. [docs/protocol.md,
//! The directory]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use metrics::counter;
use tokio::time::{Instant, sleep, timeout_at};

use crate::engine::Deadline;
use crate::engine::environment::Backoff;
use crate::engine::job::KeyJob;
use crate::engine::views::MAX_STALE_READS;
use crate::engine::views::keys::Record;
use crate::protocol::directory::supersedes;
use crate::protocol::layout::Layout;
use crate::protocol::metadata::{Change, ShardMetadata};
use crate::protocol::view::{Moment, View};
use crate::table::error::TableError;
use crate::table::{PageCopy, StoredPage};
use crate::values::key::ShardNumber;

const LOSS_CHECK_TIMEOUT: Duration = Duration::from_millis(500);

impl KeyJob<'_> {
    /// The item as it was last read or written, if `good` accepts it, or as it is now. Concurrent
    /// callers share one read. [`TableError::Lost`] if it is older than the known state.
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

    /// Before metadata is created: fails if it is lost. Every key that grew under load has items
    /// where a key without metadata has none.
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

    /// If the directory does not list the key, this is the view of a key that never grew, with
    /// generation 0.
    pub(crate) fn view_of(&self, record: &Record) -> Arc<View> {
        let (view, unlisted) = (record.view(), self.inner.config.adopt_shards);
        let is_listed = view.layout.is_listed(unlisted);
        Arc::new(if is_listed { view } else { View { layout: Layout::unlisted(unlisted), ..view } })
    }

    /// Another instance may be first.
    pub(crate) async fn register(&self) -> Result<(), TableError> {
        let record = self.record(|record, _| record.exists).await?;
        if !record.exists {
            self.check_is_new(self.deadline).await?;
            if self.step(&record, &Change::Register).await?.is_none() {
                self.record(|record, _| record.exists).await?;
            }
        }
        Ok(())
    }

    /// Writes the layout of the key's item to the copies of its page that are behind.
    pub(crate) async fn repair(&self) -> Result<(), TableError> {
        let record = self.record_from_now().await?;
        self.learn(self.view_of(&record));
        self.publish_if_behind(record.metadata.layout()).await
    }

    /// As [`repair`](Self::repair), after a random pause: of many instances, the first to wake
    /// repairs.
    pub(crate) async fn repair_later(&self) -> Result<(), TableError> {
        let longest = self.state.known().conflicts.note_behind();
        sleep(self.inner.environment.jitter(longest)).await;
        self.repair().await
    }

    /// Publishes a layout that this actor has written: on return every copy of the key's page has
    /// it, or a later one. A key that is not listed needs no entry.
    pub(crate) async fn publish(&self, layout: Layout) -> Result<(), TableError> {
        self.publish_as(layout, true).await
    }

    /// As [`publish`](Self::publish), for a layout that another actor may be publishing. Writes
    /// only copies that are behind.
    pub(crate) async fn publish_if_behind(&self, layout: Layout) -> Result<(), TableError> {
        self.publish_as(layout, false).await
    }

    async fn publish_as(&self, layout: Layout, is_own: bool) -> Result<(), TableError> {
        let KeyJob { inner, deadline, .. } = self;
        if !layout.is_listed(inner.config.adopt_shards) {
            return Ok(());
        }
        // After the change. A copy or a page that is added from now on is filled from the items,
        // which have it.
        let mut missing = inner.table_item(*deadline).await?.copies_of(self.digest());
        if !is_own {
            self.look_at_copies(&layout, &mut missing).await?;
        }
        let mut backoff = Backoff::default();
        while let Err(error) = self.put_missing_entries(&layout, &mut missing).await {
            if let TableError::Capacity(_) = error {
                backoff.slow_down();
            }
            if !error.is_retryable() || !backoff.pause(&inner.environment, *deadline).await {
                return Err(error);
            }
            // An actor that repairs the page may have written it. A write that is rejected costs
            // the units of the whole page. Without a response, the write shows the same.
            let _ = self.look_at_copies(&layout, &mut missing).await;
        }
        Ok(())
    }

    /// Writes every missing copy once. Returns a failure of one of them. A copy is missing until it
    /// is known to have this layout or a later one.
    async fn put_missing_entries(
        &self,
        layout: &Layout,
        missing: &mut Vec<PageCopy>,
    ) -> Result<(), TableError> {
        let (tables, entry) = (&self.inner.tables, &[(self.digest(), layout)]);
        let put = |at: PageCopy| async move { (at, tables.put_entries(at, entry).await) };
        let puts: Vec<_> = missing.iter().copied().map(put).collect();
        let mut failed = Ok(());
        for (copy, sent) in join_all(puts).await {
            match sent {
                Ok(()) => missing.retain(|at| *at != copy),
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    /// Reads every missing copy once. Those without the layout remain.
    async fn look_at_copies(
        &self,
        layout: &Layout,
        missing: &mut Vec<PageCopy>,
    ) -> Result<(), TableError> {
        for copy in missing.clone() {
            let (key, stored) = (self.digest(), self.inner.tables.get_page(copy).await?);
            let entry = |page: &StoredPage| page.entries.get(&key).cloned().flatten();
            if !supersedes(layout, stored.as_ref().and_then(entry).as_ref()) {
                missing.retain(|at| *at != copy);
            }
        }
        Ok(())
    }
}
