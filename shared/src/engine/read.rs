//! Reading: a page over all shards, or one item from all its places.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{counter, histogram};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use crate::engine::environment::{Backoff, Environment};
use crate::engine::error::ReadError;
use crate::engine::job::KeyJob;
use crate::engine::{Deadline, Inner, TableEngine, locked};
use crate::policy::capacity::CapacityScope;
use crate::protocol::layout::FIRST_ERA;
use crate::protocol::merge::{PageMerge, ShardPage, ShardPageRequest, Stored};
use crate::protocol::tag::ETag;
use crate::protocol::version::Version;
use crate::protocol::view::{Moment, ReadEnd, View, knows_era, read_end};
use crate::table::error::{Cause, TableError};
use crate::table::{GetTarget, RawItem};
use crate::values::cursor::Position;
use crate::values::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::values::query::PageQuery;
use crate::values::value::Item;

const QUERY_CONCURRENCY: usize = 64;
/// A page ends early at about this size. A function's response may have six megabytes, and JSON is
/// longer than the items.
const PAGE_BYTES: usize = 2 * 1_024 * 1_024;
/// The bytes that the smallest billed amount pays for. (DynamoDB pricing.)
const READ_UNIT_BYTES: f64 = 4_096.0;
const MAX_ITEMS_OF_UNKNOWN_SIZE: usize = 200;
const ASSUMED_ITEM_BYTES: f64 = 1_024.0;
/// How long a read replica rests that was throttled.
const THROTTLED_REST_PERIOD: Duration = Duration::from_secs(1);
/// How long a replica rests that is still building or does not exist.
const UNREADABLE_REST_PERIOD: Duration = Duration::from_secs(30);

/// A page of items, in order, each sort key once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The items.
    pub items: Vec<Item>,
    /// Of the items, in their order.
    pub versions: Vec<Version>,
    /// After this sort key. `None` at the end.
    pub next: Option<SortKey>,
    /// Shards that were queried.
    pub shards: usize,
    /// The read units that the page cost.
    pub consumed_capacity: f64,
}

impl Page {
    /// The positions of the next page and of the previous one, in the query's order.
    pub(crate) fn neighbours(&self, position: &Position) -> (Option<Position>, Option<Position>) {
        let first = self.items.first().map(|item| item.sort_key.clone());
        let further = self.next.clone();
        if position.is_before {
            // An empty page before all items is followed by the first page.
            (Some(Position::after(first)), further.map(|place| Position::before(Some(place))))
        } else {
            // An empty page after all items is preceded by the last page.
            let next = further.map(|place| Position::after(Some(place)));
            (next, position.place.is_some().then(|| Position::before(first)))
        }
    }
}

impl TableEngine {
    /// A page may end early, with a place to continue from, at the deadline or at its size limit.
    pub async fn query(&self, query: &PageQuery, deadline: Deadline) -> Result<Page, ReadError> {
        let job = self.inner.job(&query.partition_key, deadline);
        let Some(start) = query.start() else {
            return Ok(Page::default());
        };
        let page =
            job.until_correct(|under| PageRun::new(&job, query, start.clone()).run(under)).await?;
        job.end().await;
        Ok(page)
    }

    /// A page that ends before a sort key is read in reverse, and is empty only if there are no
    /// items before that.
    pub(crate) async fn page_at(
        &self,
        query: &PageQuery,
        position: &Position,
        deadline: Deadline,
    ) -> Result<Page, ReadError> {
        let Position { place: after, is_before } = position.clone();
        let order = if is_before { query.order.reversed() } else { query.order };
        let mut query = PageQuery { after, order, ..query.clone() };
        loop {
            let page = self.query(&query, deadline).await?;
            if !is_before || !page.items.is_empty() || page.next.is_none() {
                return Ok(page);
            }
            query.after = page.next;
        }
    }

    /// Reads the newest copy of an item, and its tag.
    pub async fn get_tagged(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        consistent: bool,
        deadline: Deadline,
    ) -> Result<Option<(Item, ETag)>, ReadError> {
        let job = &self.inner.job(key, deadline);
        let target = GetTarget { partition_key: key, sort_key, consistent };
        let (found, is_native) = job
            .until_correct(|under| async move {
                let is_native = under.is_some();
                let (found, view) = match under.or_else(|| job.leased_view()) {
                    Some(view) => {
                        let candidates = job.candidates(sort_key, &view);
                        (job.get_newest(target, &candidates).await?, view)
                    }
                    None => job.get_beside_a_look(target).await?,
                };
                let era = found.as_ref().map_or(0, |copy| copy.version.era());
                Ok(((found, is_native), era, view))
            })
            .await?;
        if !is_native && found.as_ref().is_some_and(|it| it.version == Version::NONE) {
            job.note_plain(sort_key, consistent);
        }
        job.end().await;
        Ok(found.and_then(|Stored { version, item, .. }| {
            let item = item?;
            let tag = ETag::of(version, &item.attributes);
            Some((item, tag))
        }))
    }
}

/// A page of a shard, and the read units that it cost.
type PageAnswer = Result<(ShardPage<Item>, f64), TableError>;

struct PageRun<'a> {
    job: &'a KeyJob<'a>,
    query: Arc<PageQuery>,
    merge: PageMerge<Item>,
    pages: JoinSet<(ShardNumber, PageAnswer)>,
    waiting: Vec<ShardPageRequest>,
    /// Read replicas may be used: a view shows that no items were moved recently.
    replicas: bool,
}

impl<'a> PageRun<'a> {
    fn new(job: &'a KeyJob<'a>, query: &PageQuery, start: Option<SortKey>) -> Self {
        let (item_bytes, spacing) = {
            let known = job.state.known();
            (known.item_bytes, known.spacing.clone())
        };
        let fitting = |bytes: f64| (PAGE_BYTES as f64 / bytes) as usize + 1;
        let mut merge = PageMerge::new(query.limit, query.order, start);
        merge.items_per_unit = READ_UNIT_BYTES / item_bytes.unwrap_or(ASSUMED_ITEM_BYTES);
        merge.most = item_bytes.map_or(MAX_ITEMS_OF_UNKNOWN_SIZE, fitting);
        merge.foresee(&spacing, query);
        Self {
            job,
            query: Arc::new(query.clone()),
            merge,
            pages: JoinSet::new(),
            waiting: Vec::new(),
            replicas: false,
        }
    }

    async fn run(mut self, under: Option<Arc<View>>) -> Result<(Page, u64, Arc<View>), ReadError> {
        let KeyJob { inner, state, deadline, .. } = self.job;
        let view = match under.or_else(|| self.job.leased_view()) {
            Some(view) => view,
            None => {
                // Queries the known shards and the metadata in parallel, then any further shards of
                // the new view.
                let known = self.job.known_view();
                self.ask(known.map_or(ShardCount::ONE, |view| view.layout.read_shards));
                self.job.view().await?
            }
        };
        let now = inner.environment.now().epoch_seconds();
        self.replicas = !view.layout.may_lag_in_indexes(now);
        self.ask(view.layout.read_shards);
        let own_bytes = inner.tables.own_bytes(&self.query.partition_key);
        let (mut read_units, mut bytes, mut era, mut failed) = (0.0, 0, 0, None);
        while !self.merge.is_complete() {
            match timeout_at(*deadline, self.pages.join_next()).await {
                Ok(Some(Ok((shard, Ok((mut page, consumed)))))) => {
                    read_units += consumed;
                    let eras = page.items.iter().map(|stored| stored.version.era());
                    era = eras.fold(era, u64::max);
                    // A copy at a shard that is not a place of the item was never acknowledged.
                    page.items.retain(|it| self.job.is_place(&it.sort_key, shard, &view));
                    self.merge.supply(shard, page);
                }
                Ok(Some(Ok((_, Err(error))))) => failed = Some(error),
                Ok(Some(Err(died))) => {
                    failed = Some(TableError::Transient(Cause::by("a task died", died)))
                }
                Ok(None) => break,
                Err(_) => {
                    counter!("ShardingDeadlineMisses").increment(1);
                    let why = "a shard did not respond in time";
                    failed = Some(TableError::Transient(why.into()));
                }
            }
            if failed.is_some() {
                break;
            }
            self.merge.advance(|item| {
                bytes += item.attributes.size() + own_bytes;
                bytes < PAGE_BYTES
            });
            self.launch();
        }
        let shards = self.merge.shard_count();
        // A page with items is a result. An empty one would look like the end.
        if let Some(error) = failed
            && (!self.merge.has_begun() || !error.is_retryable())
        {
            return Err(error.into());
        }
        let (merged, next) = self.merge.finish();
        let (items, versions): (Vec<Item>, Vec<Version>) = merged.into_iter().unzip();
        let plain = items.iter().zip(&versions).filter(|(_, version)| **version == Version::NONE);
        plain.for_each(|(item, _)| self.job.note_plain(&item.sort_key, self.query.consistent));
        if self.query.fields.is_none() {
            state.learn_page(bytes, self.query.after.as_ref(), &items);
        }
        histogram!("ShardingFanOut").record(shards as f64);
        histogram!("ShardingConsumedReadUnits").record(read_units);
        let page = Page { items, versions, next, shards, consumed_capacity: read_units };
        Ok((page, era, view))
    }

    fn ask(&mut self, width: ShardCount) {
        self.merge.add_shards(width.shards());
        self.launch();
    }

    /// Sends the merge's next requests, within the fan-out.
    fn launch(&mut self) {
        self.waiting.extend(self.merge.requests());
        while self.pages.len() < QUERY_CONCURRENCY {
            let Some(request) = self.waiting.pop() else { return };
            let (inner, query) = (Arc::clone(self.job.inner), Arc::clone(&self.query));
            let (replicas, deadline) = (self.replicas, self.job.deadline);
            self.pages.spawn(async move {
                (request.shard, inner.query_shard(&query, &request, replicas, deadline).await)
            });
        }
    }
}

impl Inner {
    /// On a read replica if the query and the key may lag and one is available. Also returns the
    /// read units.
    async fn query_shard(
        &self,
        query: &PageQuery,
        request: &ShardPageRequest,
        replicas: bool,
        deadline: Deadline,
    ) -> Result<(ShardPage<Item>, f64), TableError> {
        let mut failed = None;
        if replicas
            && !query.consistent
            && let Some(index) = self.replicas.choose(&self.environment)
        {
            let asked = self.tables.query_shard(query, request, Some(&index));
            match timeout_at(deadline, asked).await {
                Ok(Ok(page)) => return Ok(page),
                Ok(Err(error)) => failed = Some((index, error)),
                Err(_) => {
                    return Err(TableError::Transient("a replica did not respond in time".into()));
                }
            }
        }
        let ask = || self.tables.query_shard(query, request, None);
        let answer = self.retrying(deadline, ask).await;
        // If the table refuses the request, too, the replica is not at fault.
        if let Some((index, error)) = failed
            && (answer.is_ok() || error.is_retryable())
        {
            self.replicas.rest(&index, &error, &self.environment);
        }
        answer
    }
}

impl KeyJob<'_> {
    /// `read` gets the view of a key that no pattern arms, or none. It returns the result, the
    /// highest era that it read, and its view.
    async fn until_correct<T, F: Future<Output = Result<(T, u64, Arc<View>), ReadError>>>(
        &self,
        read: impl Fn(Option<Arc<View>>) -> F,
    ) -> Result<T, ReadError> {
        while let Some(view) = self.native_view().await? {
            let began = self.inner.environment.now();
            let (found, era, _) = read(Some(Arc::clone(&view))).await?;
            if era > FIRST_ERA {
                let why = "an item is of a later era, and no pattern of armed keys matches the key";
                return Err(TableError::Lost(why.to_owned()).into());
            }
            if self.inner.is_still_native(&view, began) {
                return Ok(found);
            }
        }
        let began = self.inner.environment.now();
        loop {
            let (found, era, view) = read(None).await?;
            if self.is_correct(began, era, &view).await? {
                return Ok(found);
            }
        }
    }

    /// Whether the result of a read, up to this era, is correct. If not, the read repeats.
    pub async fn is_correct(
        &self,
        began: Moment,
        era: u64,
        view: &View,
    ) -> Result<bool, ReadError> {
        let config = &self.inner.config;
        if !knows_era(view, era) {
            // The page is behind the key's item, or both are lost.
            let record = self.record_from_now().await?;
            if record.metadata.era < era {
                return Err(TableError::Lost("an item is of a later era".into()).into());
            }
            self.learn(self.view_of(&record));
            return Ok(false);
        }
        let (lease, longest) = (config.lease(), config.longest_read());
        let mut newer = None;
        loop {
            let now = self.inner.environment.now();
            match read_end((began, longest), (view, lease), newer.as_deref(), now) {
                ReadEnd::Correct => return Ok(true),
                ReadEnd::Again => return Ok(false),
                ReadEnd::TooLong => {
                    let why = "the read took longer than a drain waits for reads";
                    return Err(ReadError::Deadline(why.into()));
                }
                ReadEnd::Look => newer = Some(self.view_from_now().await?),
            }
        }
    }

    /// Without a valid view: reads the known places and the metadata in parallel, then any further
    /// places of the new view.
    async fn get_beside_a_look(
        &self,
        target: GetTarget<'_>,
    ) -> Result<(Option<Stored<Item>>, Arc<View>), ReadError> {
        let candidates_by = |view: &View| self.candidates(target.sort_key, view);
        let known = match self.known_view() {
            Some(view) => candidates_by(&view),
            None => BTreeSet::from([ShardNumber::FIRST]),
        };
        let (first, view) = tokio::join!(self.get_newest(target, &known), self.view());
        let (first, view) = (first?, view?);
        let candidates = candidates_by(&view);
        if !known.is_subset(&candidates) {
            return Ok((self.get_newest(target, &candidates).await?, view));
        }
        let added = candidates.difference(&known).copied().collect();
        let newest = first.into_iter().chain(self.get_newest(target, &added).await?);
        Ok((newest.max_by_key(|copy| copy.version), view))
    }

    async fn get_newest(
        &self,
        target: GetTarget<'_>,
        shards: &BTreeSet<ShardNumber>,
    ) -> Result<Option<Stored<Item>>, TableError> {
        let found = self.read_every(target, shards.iter().copied().collect()).await?;
        let items = found.into_iter().map(|(_, raw)| self.inner.tables.as_item(self.key, raw));
        let copies = items.collect::<Result<Vec<_>, TableError>>()?;
        Ok(copies.into_iter().max_by_key(|copy| copy.version))
    }

    /// Shards that were read are not read again.
    pub(crate) async fn read_every(
        &self,
        target: GetTarget<'_>,
        mut missing: Vec<ShardNumber>,
    ) -> Result<Vec<(ShardNumber, RawItem)>, TableError> {
        let KeyJob { inner, deadline, .. } = self;
        let (mut found, mut backoff) = (Vec::new(), Backoff::default());
        loop {
            let read = || inner.tables.get_copies(target, &missing);
            let (more, unprocessed) = inner.retrying(*deadline, read).await?;
            found.extend(more);
            if unprocessed.is_empty() {
                return Ok(found);
            }
            missing = unprocessed;
            if !backoff.pause(&inner.environment, *deadline).await {
                return Err(TableError::Capacity(CapacityScope::Unknown));
            }
        }
    }
}

/// Read replicas: indexes with the table's own keys, for its eventually consistent page queries. An
/// index has its own partitions, so every replica adds as much read capacity to a hot key as the
/// table has. One that is throttled or still building rests for a while.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    /// Each with the instant of the monotonic clock until which it rests.
    indexes: Mutex<Vec<(String, Duration)>>,
}

impl Replicas {
    pub(crate) fn new(names: &[String]) -> Self {
        let indexes = names.iter().map(|name| (name.clone(), Duration::ZERO)).collect();
        Self { indexes: Mutex::new(indexes) }
    }

    /// The index to query, or `None` for the table, each with the same probability.
    pub(crate) fn choose(&self, environment: &Environment) -> Option<String> {
        let indexes = locked(&self.indexes);
        if indexes.is_empty() {
            return None;
        }
        let now = environment.now().monotonic;
        let awake: Vec<&String> =
            indexes.iter().filter(|(_, rests)| *rests <= now).map(|(name, _)| name).collect();
        let all = u32::try_from(awake.len()).unwrap_or(u32::MAX).saturating_add(1);
        awake.get(environment.below(all) as usize).map(|name| (*name).clone())
    }

    pub(crate) fn rest(&self, index: &str, error: &TableError, environment: &Environment) {
        let rests = if matches!(error, TableError::Capacity(_) | TableError::Transient(_)) {
            THROTTLED_REST_PERIOD
        } else {
            tracing::warn!(index, %error, "a read replica cannot be read; the table answers for it");
            UNREADABLE_REST_PERIOD
        };
        let until = environment.now().monotonic + rests;
        let mut indexes = locked(&self.indexes);
        if let Some((_, resting)) = indexes.iter_mut().find(|(name, _)| name == index) {
            *resting = until;
        }
    }
}
