//! One page over all shards, in the order of the table or of an index.
//!
//! In the table, all copies of an item have one position, and the newest is the item. In an index,
//! copies have the positions of their own attributes. So an entry that is not known to be the newest
//! copy is checked: the item is shown there if its newest copy has the same keys in the index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use serde_json::Value;
use sharding::internal::protocol::layout::Places;
use sharding::internal::protocol::merge::{PageMerge, ShardPage, ShardPageRequest, Stored};
use sharding::internal::protocol::names::VERSION;
use sharding::internal::protocol::view::View;
use sharding::{ShardNumber, Version};
use tokio::time::Instant;

use crate::entries::Standing;
use crate::item;
use crate::page::{PAGE_BYTES, UNLIMITED, consumed, objects};
use crate::position::Position;
use crate::query::{Query, What};
use crate::read::{copies, highest_era, newest, shard_key};
use crate::reply::{Failure, Members};
use crate::upstream::{CHECKED_AFTER, repeated};

/// The largest number of shards that one request asks at once.
const CONCURRENCY: usize = 64;
/// The entries that are checked at once, of all shards together.
const CHECKS: usize = 32;
/// The read units at which a page ends that has hardly an item.
const MOST_UNITS: f64 = 4_096.0;
/// The read units of a response are rounded up by less than this many bytes.
const ROUNDED_BYTES: f64 = 4_096.0;
/// The most items that are asked of all shards together at a time.
const ASKED_AT_ONCE: usize = 1_000;

/// An item on its way through the merge.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) item: Members,
    /// Where the newest copy is, and its version.
    shard: ShardNumber,
    version: Version,
    bytes: usize,
}

impl Query<'_> {
    /// The entries of a page, where the next one continues, and the read units that it cost.
    pub(crate) async fn page(
        &self,
        view: &View,
        what: What,
    ) -> Result<(Vec<(Position, Entry)>, Option<Position>, f64), Failure> {
        let limit = self.limit.unwrap_or(UNLIMITED);
        let mut merge = PageMerge::new(limit, self.order, self.start.clone());
        merge.most = ASKED_AT_ONCE;
        merge.add_shards(view.layout.read_shards.shards());
        let (mut units, mut bytes) = (0.0, 0);
        while !merge.is_complete() {
            let ask = |request| self.ask(view, request, what).boxed();
            let asked: Vec<_> = merge.requests().into_iter().map(ask).collect();
            let (is_stuck, mut failed) = (asked.is_empty(), None);
            let answers: Vec<_> = stream::iter(asked).buffer_unordered(CONCURRENCY).collect().await;
            for answer in answers {
                match answer {
                    Ok((shard, page, of_shard)) => {
                        units += of_shard;
                        merge.supply(shard, page);
                    }
                    Err(failure) => failed = Some(failure),
                }
            }
            merge.advance(|entry: &Entry| {
                bytes += entry.bytes;
                bytes < PAGE_BYTES
            });
            match failed {
                // A page that has begun may end early.
                Some(failure) if failure.is_throttled() && merge.has_begun() => break,
                Some(failure) => return Err(failure),
                None if is_stuck && !merge.is_complete() => {
                    let why = "sharding-endpoint: the page cannot be completed";
                    return Err(Failure::internal(why));
                }
                None => {}
            }
            // Tombstones are no items of the page.
            let is_long = units >= MOST_UNITS || Instant::now() >= self.page_ends;
            if is_long && merge.has_begun() {
                break;
            }
        }
        let (entries, next) = merge.finish();
        let entries =
            entries.into_iter().map(|(entry, _)| Ok((self.position(&entry.item)?, entry)));
        Ok((entries.collect::<Result<_, Failure>>()?, next, units))
    }

    /// Asks one shard for its part, and what that costs.
    async fn ask(
        &self,
        view: &View,
        request: ShardPageRequest<Position>,
        what: What,
    ) -> Result<(ShardNumber, ShardPage<Entry, Position>, f64), Failure> {
        let shard = request.shard;
        let (mut body, _) = self.request(shard, what)?;
        body.insert("Limit".to_owned(), Value::from(request.limit));
        if let Some(after) = &request.after {
            body.insert("ExclusiveStartKey".to_owned(), self.start(shard, after));
        }
        let reply = repeated(&self.table.upstream, "Query", &body, CHECKED_AFTER).await?;
        let (bytes, mut answer) = (reply.body.len(), reply.members());
        let found = objects(answer.remove("Items"));
        // What DynamoDB has evaluated, also of items of which it shows little.
        let is_consistent = self.body.get("ConsistentRead").and_then(Value::as_bool);
        let unit_bytes = if is_consistent == Some(true) { 4_096.0 } else { 8_192.0 };
        let units = consumed(&answer);
        let evaluated = (units * unit_bytes - ROUNDED_BYTES).max(0.0) as usize;
        let bytes = evaluated.max(bytes) / found.len().max(1);
        self.note_era(&found);
        let mut found = self.in_order(request.after.as_ref(), found)?;
        let next = answer.get("LastEvaluatedKey").and_then(Value::as_object);
        let mut next = next.map(|last| self.position(last)).transpose()?;
        // The shard may have more than the page needs.
        if let Some(until) = &request.until {
            let is_beyond = |place: &Position| self.order.compare(place, until).is_gt();
            found.retain(|(position, _)| !is_beyond(position));
            if next.as_ref().is_none_or(is_beyond) {
                next = None;
            }
        }
        let how = self.copies(what)?;
        let checks: Vec<_> = found
            .into_iter()
            .map(|(position, stored)| {
                let version = item::version(&stored);
                let entry = Entry { item: stored, shard, version, bytes };
                self.checked(view, position, entry, &how).boxed()
            })
            .collect();
        let at_once = CHECKS.div_ceil(view.layout.read_shards.get() as usize);
        let items = stream::iter(checks).buffered(at_once).try_collect().await?;
        Ok((shard, ShardPage { items, next }, units))
    }

    /// What one shard returned, by position. The merge relies on its order.
    fn in_order(
        &self,
        after: Option<&Position>,
        found: Vec<Members>,
    ) -> Result<Vec<(Position, Members)>, Failure> {
        let positions = found.into_iter().map(|stored| Ok((self.position(&stored)?, stored)));
        let positions = positions.collect::<Result<Vec<_>, Failure>>()?;
        let all = after.into_iter().chain(positions.iter().map(|(position, _)| position));
        if all.is_sorted_by(|one, other| self.order.compare(one, other).is_lt()) {
            return Ok(positions);
        }
        Err(Failure::unsupported(
            "Query on an index in which entries of one index key are not in the order of the \
             table's sort key",
        ))
    }

    /// An entry on its way into the merge. Of entries at one position, the merge takes the one with
    /// the highest version. In an index, what does not count has the lowest, and an entry that shows
    /// its item goes before the item as a copy has it.
    async fn checked(
        &self,
        view: &View,
        position: Position,
        mut entry: Entry,
        how: &Members,
    ) -> Result<Stored<Entry, Position>, Failure> {
        let (shard, version) = (entry.shard, entry.version);
        let places = self.session.places(&position.sort_key, view);
        let stored = |sort_key, version, item| Stored { sort_key, version, item };
        if self.index.is_none() {
            let counts = self.table.counts(&entry.item, self.key, shard) && places.contains(shard);
            let is_item = counts && !item::is_tombstone(&entry.item);
            let version = if counts { version } else { Version::NONE };
            return Ok(stored(position, version, is_item.then_some(entry)));
        }
        let is_seen = self.shows_version(&entry.item);
        match Standing::of(&entry.item, is_seen, shard, (&places, view)) {
            Standing::Newest => return Ok(stored(position, version, Some(entry))),
            Standing::Hidden => return Ok(stored(position, Version::NONE, None)),
            Standing::Unknown => {}
        }
        let Some((at, copy)) = self.newest(&places, &position, how).await? else {
            return Ok(stored(position, Version::NONE, None));
        };
        let of_copy = item::version(&copy);
        let is_same = at == shard && (!is_seen || of_copy == version);
        let rank = if is_same { of_copy.max(Version::LOWEST.stepped()) } else { Version::LOWEST };
        if !is_same {
            entry.item = copy;
        }
        (entry.shard, entry.version) = (at, of_copy);
        Ok(stored(position, rank, Some(entry)))
    }

    /// The newest copy of an item, with its place, if it is no tombstone and has this position.
    async fn newest(
        &self,
        places: &Places,
        position: &Position,
        how: &Members,
    ) -> Result<Option<(ShardNumber, Members)>, Failure> {
        let of = (self.key, &position.sort_key);
        let found = copies(self.table, &self.session, of, places, how).await?;
        self.note_era(found.iter().map(|(_, copy)| copy));
        let newest = newest(found).filter(|(_, copy)| !item::is_tombstone(copy));
        Ok(newest.filter(|(_, copy)| position.is_of(self.table, self.index, copy)))
    }

    /// Notes the eras of copies that were read.
    pub(crate) fn note_era<'a>(&self, copies: impl IntoIterator<Item = &'a Members>) {
        self.era.fetch_max(highest_era(copies), Ordering::Relaxed);
    }

    /// Whether an entry shows what decides which copy is the newest.
    fn shows_version(&self, stored: &Members) -> bool {
        self.index.is_none_or(|index| {
            let has_ours = index.shows_ours() || self.select() == Some("ALL_ATTRIBUTES");
            has_ours && stored.contains_key(VERSION)
        })
    }

    /// The items of the page that the filter lets through, and what that costs.
    pub(crate) async fn filtered(
        &self,
        view: &View,
        page: Vec<(Position, Entry)>,
    ) -> Result<(Vec<(Position, Entry)>, f64), Failure> {
        let (most, last) = (page.len() + 1, page.last().map(|(position, _)| position.clone()));
        // A drain may remove a copy at an old place once the item's home has it.
        let home = |position: &Position| self.session.places(&position.sort_key, view).home;
        let mut shards: BTreeSet<ShardNumber> =
            page.iter().flat_map(|(position, it)| [it.shard, home(position)]).collect();
        if last.is_none() {
            // DynamoDB refuses a wrong filter of no items, too.
            shards.insert(ShardNumber::FIRST);
        }
        let lowest = self.lowest()?;
        if self.filters_keys && page.first().is_some_and(|(first, _)| *first == lowest) {
            let what = "a filter that names the keys, over an item with the lowest sort key";
            return Err(Failure::unsupported(what));
        }
        let wanted: BTreeMap<Position, Entry> = page.into_iter().collect();
        let how = self.copies(What::Items)?;
        let hits = |shard| self.hits(shard, (most, last.as_ref())).boxed();
        let asked: Vec<_> = shards.into_iter().map(hits).collect();
        let answers: Vec<_> =
            stream::iter(asked).buffer_unordered(CONCURRENCY).try_collect().await?;
        let (mut hits, mut units) = (Vec::new(), 0.0);
        for (shard, found, of_shard) in answers {
            units += of_shard;
            for stored in found {
                let position = self.position(&stored)?;
                let Some(entry) = wanted.get(&position) else { continue };
                if self.index.is_none() && !self.table.counts(&stored, self.key, shard) {
                    continue;
                }
                let version = item::version(&stored);
                self.note_era([&stored]);
                let places = self.session.places(&position.sort_key, view);
                let is_seen = self.shows_version(&stored);
                let is_newest = match Standing::of(&stored, is_seen, shard, (&places, view)) {
                    Standing::Newest => true,
                    Standing::Hidden => false,
                    Standing::Unknown if is_seen => {
                        version >= entry.version && !item::is_tombstone(&stored)
                    }
                    Standing::Unknown if entry.shard == shard => true,
                    Standing::Unknown => {
                        let newest = self.newest(&places, &position, &how).await?;
                        newest.is_some_and(|(at, _)| at == shard)
                    }
                };
                if is_newest {
                    hits.push((position, Entry { item: stored, shard, version, bytes: 0 }));
                }
            }
        }
        // An item that was pulled home meanwhile is there twice.
        hits.sort_by(|(one, hit), (other, of_other)| {
            self.order.compare(one, other).then(of_other.version.cmp(&hit.version))
        });
        hits.dedup_by(|(later, _), (first, _)| later == first);
        Ok((hits, units))
    }

    /// What the filter lets through on one shard, up to a position, asked for so many items at a
    /// time. Without a position, only whether DynamoDB accepts the request.
    async fn hits(
        &self,
        shard: ShardNumber,
        (most, last): (usize, Option<&Position>),
    ) -> Result<(ShardNumber, Vec<Members>, f64), Failure> {
        let (mut body, _) = self.request(shard, What::Items)?;
        body.insert("Limit".to_owned(), Value::from(most));
        let (mut found, mut units) = (Vec::new(), 0.0);
        let (mut after, mut operation) = (self.start.clone(), "Query");
        if self.filters_keys {
            (after, operation) = (Some(after.map_or_else(|| self.lowest(), Ok)?), "Scan");
        }
        let stored_key = shard_key(&self.session, shard);
        let is_here = |key: &Members| self.table.key_text(key) == Some(stored_key.as_str());
        loop {
            if let Some(after) = &after {
                body.insert("ExclusiveStartKey".to_owned(), self.start(shard, after));
            }
            let reply = repeated(&self.table.upstream, operation, &body, CHECKED_AFTER).await?;
            let mut answer = reply.members();
            units += consumed(&answer);
            // A scan goes on to the next key.
            found.extend(objects(answer.remove("Items")).into_iter().filter(is_here));
            let next = answer.get("LastEvaluatedKey").and_then(Value::as_object);
            let next = next.filter(|next| is_here(next));
            let (Some(next), Some(last)) = (next, last) else { return Ok((shard, found, units)) };
            let next = self.position(next)?;
            if self.order.compare(&next, last).is_ge() {
                return Ok((shard, found, units));
            }
            after = Some(next);
        }
    }

    fn position(&self, entry: &Members) -> Result<Position, Failure> {
        Position::of(self.table, self.index, entry)
    }

    /// The lowest position in the table, after which a shard is scanned.
    fn lowest(&self) -> Result<Position, Failure> {
        let key = self.table.key("", self.table.outermost_sort_key(false));
        Position::of(self.table, None, &key)
    }
}
