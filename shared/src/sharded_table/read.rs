//! Reading: a page over all shards, or one item from all shards that it may be on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::keys::{KeyState, Running};
use super::retry::{Backoff, retrying};
use super::{Deadline, Inner, ShardedTable};
use crate::core::capacity::CapacityScope;
use crate::core::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::core::merge::{Forecast, PageMerge, ShardPageRequest};
use crate::core::query::{Order, PageQuery};
use crate::core::value::{Item, attributes_size};
use crate::core::view::{Moment, View};
use crate::table::error::TableError;
use crate::table::{FoundCopy, GetTarget, ShardQueryPage, newer};
use crate::telemetry;

/// The most shards that one request queries at once.
const FAN_OUT: usize = 64;
/// A page ends early at about this many bytes: a function's answer may have six megabytes, and JSON is longer than the items.
const PAGE_BYTES: usize = 2 * 1_024 * 1_024;
/// What the smallest amount that is billed pays for. [DynamoDB pricing]
const READ_UNIT_BYTES: f64 = 4_096.0;
/// The most items that are shared out while nothing is known of their size.
const UNKNOWN_ITEMS: usize = 200;
/// Of items that were never read here.
const ASSUMED_ITEM_BYTES: f64 = 1_024.0;
/// Part of the lease after which a view is renewed ahead of its end.
const RENEW_AT: f64 = 0.7;

/// A page of items, in order, each sort key once.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The items.
    pub items: Vec<Item>,
    /// Where the next page starts: after this sort key. `None` at the end.
    pub next: Option<SortKey>,
    /// How many shards were queried.
    pub shards: usize,
    /// Read units that the page cost.
    pub consumed_capacity: f64,
}

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Capacity or an answer did not come before the deadline. Try again later.
    #[error("no answer before the deadline ({})", .0.name())]
    Capacity(CapacityScope),
    /// Repeating it will not help.
    #[error(transparent)]
    Table(TableError),
}

impl From<TableError> for ReadError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Capacity(scope) => Self::Capacity(scope),
            TableError::Transient(_) | TableError::Conflict => Self::Capacity(CapacityScope::Unknown),
            TableError::ConditionFailed
            | TableError::Rejected(_)
            | TableError::Damaged(_)
            | TableError::Lost(_)
            | TableError::Occupied
            | TableError::Unsupported(_)
            | TableError::Unusable(_) => Self::Table(error),
        }
    }
}

impl ShardedTable {
    /// Reads a page. It may end early, with a place to go on from, where the deadline or its size in bytes is reached.
    ///
    /// # Errors
    /// [`ReadError`] where not even a part of a page could be read.
    pub async fn query(&self, query: &PageQuery, deadline: Deadline) -> Result<Page, ReadError> {
        let state = self.inner.keys.state(&query.partition_key);
        let Some(start) = query.start() else {
            return Ok(Page { items: Vec::new(), next: None, shards: 0, consumed_capacity: 0.0 });
        };
        let began = self.inner.environment.now();
        let item_bytes = state.item_bytes();
        let run = PageRun {
            inner: &self.inner,
            query: Arc::new(query.clone()),
            merge: PageMerge::new(query.limit, query.order, start)
                .with_items_per_unit(READ_UNIT_BYTES / item_bytes.unwrap_or(ASSUMED_ITEM_BYTES))
                .sharing_at_most(item_bytes.map_or(UNKNOWN_ITEMS, |bytes| (PAGE_BYTES as f64 / bytes) as usize + 1))
                .with_forecast(Forecast {
                    spacing: state.spacing(),
                    end: if query.order == Order::Ascending { query.to.clone() } else { query.from.clone() },
                    prefix: query.prefix.clone(),
                }),
            pages: JoinSet::new(),
            waiting: Vec::new(),
            consumed: 0.0,
            bytes: 0,
            own_bytes: self.inner.tables.own_bytes(&query.partition_key),
            replicas: false,
        };
        let page = run.run(&state, deadline).await?;
        self.inner.within_bound(began)?;
        Ok(page)
    }

    /// Reads one item: the newest copy of all shards that it may be on.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn get(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        consistent: bool,
        deadline: Deadline,
    ) -> Result<Option<Item>, ReadError> {
        let began = self.inner.environment.now();
        let found = self.get_unbounded(key, sort_key, consistent, deadline).await?;
        self.inner.within_bound(began)?;
        Ok(found)
    }

    async fn get_unbounded(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        consistent: bool,
        deadline: Deadline,
    ) -> Result<Option<Item>, ReadError> {
        let inner = &self.inner;
        let state = inner.keys.state(key);
        let target = GetTarget { partition_key: key, sort_key, consistent };
        let candidates = |view: Option<&View>| match view {
            None => inner.unsharded().into_iter().chain([ShardNumber::FIRST]).collect(),
            Some(view) => inner.candidates(key, sort_key, view),
        };
        if let Some(view) = inner.view_for_reading(key, &state) {
            let shards = candidates(Some(&view));
            return Ok(inner.get_newest(target, &shards, deadline).await?.map(|copy| copy.stored.item));
        }
        // Without a valid view: the shards that are known already and the metadata in parallel, then what the fresh view adds.
        let known = candidates(state.view().as_deref());
        let (first, view) =
            tokio::join!(inner.get_newest(target, &known, deadline), inner.fresh_view(key, &state, deadline));
        let (first, view) = (first?, view?);
        let added = candidates(Some(&view)).difference(&known).copied().collect();
        let second = inner.get_newest(target, &added, deadline).await?;
        Ok(newer(first, second).map(|copy| copy.stored.item))
    }
}

/// One page on its way.
struct PageRun<'a> {
    inner: &'a Arc<Inner>,
    query: Arc<PageQuery>,
    merge: PageMerge<Item>,
    pages: JoinSet<(ShardNumber, Result<ShardQueryPage, TableError>)>,
    waiting: Vec<ShardPageRequest>,
    consumed: f64,
    bytes: usize,
    /// What an item weighs without its attributes and its sort key.
    own_bytes: usize,
    /// Read replicas may be asked: a view says that no items were moved lately.
    replicas: bool,
}

impl PageRun<'_> {
    async fn run(mut self, state: &Arc<KeyState>, deadline: Deadline) -> Result<Page, ReadError> {
        let key = self.query.partition_key.clone();
        match self.inner.view_for_reading(&key, state) {
            Some(view) => self.ask_by(&view, deadline),
            None => {
                let known = state.view().map_or(ShardCount::ONE, |view| view.widths().read_shards);
                self.ask(known, deadline);
                let view = self.inner.fresh_view(&key, state, deadline).await?;
                self.ask_by(&view, deadline);
            }
        }
        let mut failed = None;
        while !self.merge.is_complete() {
            match timeout_at(deadline, self.pages.join_next()).await {
                Ok(Some(Ok((shard, Ok(answer))))) => {
                    self.consumed += answer.consumed;
                    self.merge.supply(shard, answer.page);
                }
                Ok(Some(Ok((_, Err(error))))) => {
                    failed = Some(error);
                    break;
                }
                Ok(Some(Err(died))) => {
                    failed = Some(TableError::Transient(died.to_string()));
                    break;
                }
                Ok(None) => break,
                Err(_) => {
                    telemetry::missed_deadline();
                    failed = Some(TableError::Transient("the deadline passed".into()));
                    break;
                }
            }
            let (bytes, own_bytes) = (&mut self.bytes, self.own_bytes);
            self.merge.advance(|stored| {
                *bytes += attributes_size(&stored.item.attributes) + own_bytes;
                *bytes < PAGE_BYTES
            });
            self.waiting.extend(self.merge.requests());
            self.launch(deadline);
        }
        let shards = self.merge.shard_count();
        // A page that has begun is a page; one that has not is an error, for it would look like the end.
        if let Some(error) = failed
            && (self.merge.page().is_empty() || !error.is_retryable())
        {
            return Err(error.into());
        }
        let (page, next) = self.merge.finish();
        state.learn_item_bytes(self.bytes, page.len());
        if let (Some(after), Some(last)) = (&self.query.after, page.last()) {
            state.learn_spacing(after, &last.sort_key, page.len());
        }
        telemetry::page(shards, self.consumed);
        let items = page.into_iter().map(|stored| stored.item).collect();
        Ok(Page { items, next, shards, consumed_capacity: self.consumed })
    }

    fn ask_by(&mut self, view: &View, deadline: Deadline) {
        let metadata = view.widths();
        self.replicas = !metadata.may_lag_in_indexes(self.inner.environment.now().epoch_seconds());
        self.ask(metadata.read_shards, deadline);
    }

    fn ask(&mut self, width: ShardCount, deadline: Deadline) {
        self.merge.add_shards(self.inner.unsharded().into_iter().chain(width.shards()));
        self.waiting.extend(self.merge.requests());
        self.launch(deadline);
    }

    fn launch(&mut self, deadline: Deadline) {
        while self.pages.len() < FAN_OUT {
            let Some(request) = self.waiting.pop() else { return };
            let (inner, query, replicas) = (Arc::clone(self.inner), Arc::clone(&self.query), self.replicas);
            self.pages
                .spawn(async move { (request.shard, inner.query_shard(&query, &request, replicas, deadline).await) });
        }
    }
}

impl Inner {
    /// Every shard that an item may be on. Where writers without a view may store on shard 1, it is one of them whatever the metadata says;
    /// and the bare key is, in a table that is adopted with such items.
    pub(super) fn candidates(&self, key: &PartitionKey, sort_key: &SortKey, view: &View) -> BTreeSet<ShardNumber> {
        let metadata = view.widths();
        let one = self.config.cold_append.then_some(ShardCount::ONE);
        let mut candidates = self.config.placement.candidates(key, sort_key, metadata.widths().chain(one));
        candidates.extend(self.unsharded());
        candidates
    }

    /// The bare key, where the table is adopted with items under such keys.
    fn unsharded(&self) -> Option<ShardNumber> {
        self.config.adopt_unsharded.then_some(ShardNumber::UNSHARDED)
    }

    /// A read that took longer than the bound, frozen for a while perhaps, may have looked at a home before an item was copied there, and at
    /// the original's shard after it was deleted.
    fn within_bound(&self, began: Moment) -> Result<(), ReadError> {
        match self.environment.now().since(began) {
            Some(took) if took <= self.config.longest_read() => Ok(()),
            _ => Err(ReadError::Capacity(CapacityScope::Unknown)),
        }
    }

    /// Queries one shard: on a read replica, where the query and the key may lag and one is awake, else on the table.
    async fn query_shard(
        &self,
        query: &PageQuery,
        request: &ShardPageRequest,
        replicas: bool,
        deadline: Deadline,
    ) -> Result<ShardQueryPage, TableError> {
        let replica = if query.consistent || !replicas { None } else { self.replicas.choose(&self.environment) };
        if let Some(index) = replica {
            match timeout_at(deadline, self.tables.query_shard(query, request, Some(&index))).await {
                Ok(Ok(page)) => return Ok(page),
                Ok(Err(error)) => {
                    let answer = self.query_table(query, request, deadline).await;
                    // A request that the table refuses, too, says nothing of the replica.
                    if answer.is_ok() || error.is_retryable() {
                        self.replicas.rest(&index, &error, &self.environment);
                    }
                    return answer;
                }
                Err(_) => return Err(TableError::Transient("the deadline passed".into())),
            }
        }
        self.query_table(query, request, deadline).await
    }

    async fn query_table(
        &self,
        query: &PageQuery,
        request: &ShardPageRequest,
        deadline: Deadline,
    ) -> Result<ShardQueryPage, TableError> {
        retrying(&self.environment, deadline, || self.tables.query_shard(query, request, None)).await
    }

    /// The view, if its lease has not run out; renews it in the background when little of the lease is left.
    pub(super) fn leased_view(
        self: &Arc<Self>,
        key: &PartitionKey,
        state: &Arc<KeyState>,
        lease: Duration,
        renew_at: Duration,
    ) -> Option<Arc<View>> {
        let now = self.environment.now();
        let view = state.valid_view(now, lease)?;
        if !view.is_valid(now, renew_at)
            && let Some(running) = Running::start(state, |state| &state.refreshing)
        {
            let (inner, key, state) = (Arc::clone(self), key.clone(), Arc::clone(state));
            self.background.spawn(async move {
                let deadline = tokio::time::Instant::now() + Duration::from_secs(1);
                // A failure is met again, and told, by the request that needs the view.
                let _ = inner.view(&key, &state, deadline, |view, now| view.is_valid(now, renew_at)).await;
                drop(running);
            });
        }
        Some(view)
    }

    fn view_for_reading(self: &Arc<Self>, key: &PartitionKey, state: &Arc<KeyState>) -> Option<Arc<View>> {
        let lease = self.config.lease;
        self.leased_view(key, state, lease, lease.mul_f64(RENEW_AT))
    }

    async fn fresh_view(
        &self,
        key: &PartitionKey,
        state: &KeyState,
        deadline: Deadline,
    ) -> Result<Arc<View>, TableError> {
        self.view(key, state, deadline, |view, now| view.is_valid(now, self.config.lease)).await
    }

    async fn get_newest(
        &self,
        target: GetTarget<'_>,
        shards: &BTreeSet<ShardNumber>,
        deadline: Deadline,
    ) -> Result<Option<FoundCopy>, TableError> {
        let mut missing: Vec<_> = shards.iter().copied().collect();
        let (mut newest, mut backoff) = (None, Backoff::default());
        loop {
            let found = retrying(&self.environment, deadline, || self.tables.get_copies(target, &missing)).await?;
            newest = newer(newest, found.newest);
            if found.unprocessed.is_empty() {
                return Ok(newest);
            }
            // The item is known only with every candidate; those that were read need not be read again.
            missing = found.unprocessed;
            let pause = backoff.next(&self.environment);
            if Instant::now() + pause >= deadline {
                return Err(TableError::Capacity(CapacityScope::Unknown));
            }
            sleep(pause).await;
        }
    }
}
