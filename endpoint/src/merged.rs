//! One page over all shards, in the order of the table or of an index.
//!
//! In the table, all copies of an item have one position, and the newest is the item. In an index,
//! copies have the positions of their own attributes. So an entry that is not known to be the newest
//! copy is checked: the item is shown there if its newest copy has the same keys in the index.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use serde_json::Value;
use sharding::internal::KeySession;
use sharding::internal::protocol::layout::Places;
use sharding::internal::protocol::merge::{PageMerge, ShardPage, ShardPageRequest, Stored};
use sharding::internal::protocol::names::VERSION;
use sharding::internal::protocol::view::View;
use sharding::{ShardNumber, Version};
use tokio::time::Instant;

use crate::entries::Standing;
use crate::item;
use crate::position::Position;
use crate::query::{Query, UNLIMITED, consumed, objects};
use crate::read::{CHECKED_AFTER, copies, highest_era, newest, repeated};
use crate::reply::{Failure, Members};
use crate::shard_query::What;

/// The largest number of shards that one request asks at once.
const CONCURRENCY: usize = 64;
/// The entries that are checked at once, of all shards together.
const CHECKS: usize = 32;
/// The bytes at which a page ends. (DynamoDB developer guide, "Query".)
const PAGE_BYTES: usize = 1_024 * 1_024;
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

/// The merged part of a page.
pub(crate) struct Merged {
    pub(crate) entries: Vec<(Position, Entry)>,
    pub(crate) next: Option<Position>,
    pub(crate) units: f64,
    /// The highest era of the copies that were read.
    pub(crate) era: u64,
}

/// The part of one shard.
struct Part {
    shard: ShardNumber,
    page: ShardPage<Entry, Position>,
    units: f64,
    era: u64,
}

impl Query<'_> {
    /// One page over all shards.
    pub(crate) async fn page(
        &self,
        session: &KeySession<'_>,
        view: &View,
        what: &What,
    ) -> Result<Merged, Failure> {
        let limit = self.limit.unwrap_or(UNLIMITED);
        let mut merge =
            PageMerge::new(limit, self.order, self.start.clone()).sharing_at_most(ASKED_AT_ONCE);
        merge.add_shards(view.layout.read_shards.shards());
        let (mut units, mut era, mut bytes) = (0.0, 0, 0);
        while !merge.is_complete() {
            let requests = merge.requests();
            let asked: Vec<_> = requests
                .into_iter()
                .map(|request| self.ask(session, view, request, what).boxed())
                .collect();
            let mut answers = stream::iter(asked).buffer_unordered(CONCURRENCY);
            let (mut is_stuck, mut failed) = (true, None);
            while let Some(answer) = answers.next().await {
                match answer {
                    Ok(part) => {
                        units += part.units;
                        era = era.max(part.era);
                        merge.supply(part.shard, part.page);
                        is_stuck = false;
                    }
                    Err(failure) => failed = Some(failure),
                }
            }
            drop(answers);
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
        let entries = entries
            .into_iter()
            .map(|(entry, _)| Ok((Position::of(self.table, self.index, &entry.item)?, entry)));
        Ok(Merged { entries: entries.collect::<Result<_, Failure>>()?, next, units, era })
    }

    /// Asks one shard for its part.
    async fn ask(
        &self,
        session: &KeySession<'_>,
        view: &View,
        request: ShardPageRequest<Position>,
        what: &What,
    ) -> Result<Part, Failure> {
        let shard = request.shard;
        let (mut body, _) = self.request(session, shard, what)?;
        body.insert("Limit".to_owned(), Value::from(request.limit));
        if let Some(after) = &request.after {
            body.insert("ExclusiveStartKey".to_owned(), self.start(session, shard, after));
        }
        let reply = repeated(self.upstream, "Query", &body, CHECKED_AFTER).await?;
        let (bytes, mut answer) = (reply.body.len(), reply.members());
        let found: Vec<Members> = objects(answer.remove("Items"));
        // What DynamoDB has evaluated, also of items of which it shows little.
        let is_consistent = self.body.get("ConsistentRead").and_then(Value::as_bool);
        let unit_bytes = if is_consistent == Some(true) { 4_096.0 } else { 8_192.0 };
        let units = consumed(&answer);
        let evaluated = (units * unit_bytes - ROUNDED_BYTES).max(0.0) as usize;
        let bytes = evaluated.max(bytes) / found.len().max(1);
        let mut era = highest_era(&found);
        let mut found = self.in_order(request.after.clone(), found)?;
        let mut next = match answer.get("LastEvaluatedKey").and_then(Value::as_object) {
            Some(last) => Some(Position::of(self.table, self.index, last)?),
            None => None,
        };
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
                self.checked((session, view), position, entry, &how).boxed()
            })
            .collect();
        let at_once = CHECKS.div_ceil(view.layout.read_shards.get() as usize);
        let mut checks = stream::iter(checks).buffered(at_once);
        let mut items = Vec::new();
        while let Some((stored, of_copies)) = checks.try_next().await? {
            items.push(stored);
            era = era.max(of_copies);
        }
        Ok(Part { shard, page: ShardPage { items, next }, units, era })
    }

    /// What one shard returned, by position. The merge relies on its order.
    fn in_order(
        &self,
        after: Option<Position>,
        found: Vec<Members>,
    ) -> Result<Vec<(Position, Members)>, Failure> {
        let mut last = after;
        let mut positions = Vec::with_capacity(found.len());
        for stored in found {
            let position = Position::of(self.table, self.index, &stored)?;
            if last.as_ref().is_some_and(|last| self.order.compare(last, &position).is_ge()) {
                return Err(Failure::unsupported(
                    "Query on an index in which entries of one index key are not in the order of \
                     the table's sort key",
                ));
            }
            last = Some(position.clone());
            positions.push((position, stored));
        }
        Ok(positions)
    }

    /// An entry on its way into the merge, and the highest era of the copies that were read for it.
    /// Of entries at one position, the merge takes the one with the highest version. In an index,
    /// what does not count has the lowest, and an entry that shows its item goes before the item as
    /// a copy has it.
    async fn checked(
        &self,
        (session, view): (&KeySession<'_>, &View),
        position: Position,
        mut entry: Entry,
        how: &Value,
    ) -> Result<(Stored<Entry, Position>, u64), Failure> {
        let (shard, version) = (entry.shard, entry.version);
        let places = session.places(&position.sort_key, view);
        let stored = |sort_key, version, item| Stored { sort_key, version, item };
        if self.index.is_none() {
            let counts =
                item::counts(self.table, &entry.item, self.key, shard) && places.contains(shard);
            let is_item = counts && !item::is_tombstone(&entry.item);
            let version = if counts { version } else { Version::NONE };
            return Ok((stored(position, version, is_item.then_some(entry)), 0));
        }
        let is_seen = self.shows_version(&entry.item);
        match Standing::of(&entry.item, is_seen, shard, (&places, view)) {
            Standing::OnlyCopy | Standing::AtHome => {
                return Ok((stored(position, version, Some(entry)), 0));
            }
            Standing::Hidden => return Ok((stored(position, Version::NONE, None), 0)),
            Standing::Unknown => {}
        }
        let (newest, era) = self.newest(session, &places, &position, how).await?;
        let Some((at, copy)) = newest else {
            return Ok((stored(position, Version::NONE, None), era));
        };
        let of_copy = item::version(&copy);
        let is_same = at == shard && (!is_seen || of_copy == version);
        let rank = if is_same { of_copy.max(Version::LOWEST.stepped()) } else { Version::LOWEST };
        if !is_same {
            entry.item = copy;
        }
        (entry.shard, entry.version) = (at, of_copy);
        Ok((stored(position, rank, Some(entry)), era))
    }

    /// The newest copy of an item, with its place, if it is no tombstone and has this position. And
    /// the highest era of the copies.
    async fn newest(
        &self,
        session: &KeySession<'_>,
        places: &Places,
        position: &Position,
        how: &Value,
    ) -> Result<(Option<(ShardNumber, Members)>, u64), Failure> {
        let all: Vec<ShardNumber> = places.all().into_iter().collect();
        let of = (self.table, self.upstream, session);
        let found = copies(of, (self.key, &position.sort_key), &all, how).await?;
        let era = highest_era(found.iter().map(|(_, copy)| copy));
        let newest = newest(found).filter(|(_, copy)| !item::is_tombstone(copy));
        Ok((newest.filter(|(_, copy)| position.is_of(self.table, self.index, copy)), era))
    }

    /// Whether an entry shows what decides which copy is the newest.
    fn shows_version(&self, stored: &Members) -> bool {
        self.index.is_none_or(|index| {
            let has_ours = index.shows_ours() || self.select() == Some("ALL_ATTRIBUTES");
            has_ours && stored.contains_key(VERSION)
        })
    }

    /// The items of the page that the filter lets through.
    pub(crate) async fn filtered(
        &self,
        session: &KeySession<'_>,
        view: &View,
        page: Vec<(Position, Entry)>,
    ) -> Result<Merged, Failure> {
        let mut merged = Merged { entries: Vec::new(), next: None, units: 0.0, era: 0 };
        let (most, last) = (page.len() + 1, page.last().map(|(position, _)| position.clone()));
        // A drain may remove a copy at an old place once the item's home has it.
        let home = |position: &Position| session.places(&position.sort_key, view).home;
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
        let (wanted, how): (BTreeMap<Position, Entry>, _) =
            (page.into_iter().collect(), self.copies(&What::Filtered)?);
        let asked: Vec<_> = shards
            .into_iter()
            .map(|shard| self.hits(session, shard, (most, last.as_ref())).boxed())
            .collect();
        let answers: Vec<_> =
            stream::iter(asked).buffer_unordered(CONCURRENCY).try_collect().await?;
        let mut hits = Vec::new();
        for (shard, found, units) in answers {
            merged.units += units;
            for stored in found {
                let position = Position::of(self.table, self.index, &stored)?;
                let Some(entry) = wanted.get(&position) else { continue };
                if self.index.is_none() && !item::counts(self.table, &stored, self.key, shard) {
                    continue;
                }
                let version = item::version(&stored);
                merged.era = merged.era.max(version.era());
                let places = session.places(&position.sort_key, view);
                let is_seen = self.shows_version(&stored);
                let is_newest = match Standing::of(&stored, is_seen, shard, (&places, view)) {
                    Standing::OnlyCopy | Standing::AtHome => true,
                    Standing::Hidden => false,
                    Standing::Unknown if is_seen => {
                        version >= entry.version && !item::is_tombstone(&stored)
                    }
                    Standing::Unknown if entry.shard == shard => true,
                    Standing::Unknown => {
                        let newest = self.newest(session, &places, &position, &how).await?;
                        merged.era = merged.era.max(newest.1);
                        newest.0.is_some_and(|(at, _)| at == shard)
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
        merged.entries = hits;
        Ok(merged)
    }

    /// What the filter lets through on one shard, up to a position, asked for so many items at a
    /// time. Without a position, only whether DynamoDB accepts the request.
    async fn hits(
        &self,
        session: &KeySession<'_>,
        shard: ShardNumber,
        (most, last): (usize, Option<&Position>),
    ) -> Result<(ShardNumber, Vec<Members>, f64), Failure> {
        let (mut body, _) = self.request(session, shard, &What::Filtered)?;
        body.insert("Limit".to_owned(), Value::from(most));
        let (mut found, mut units) = (Vec::new(), 0.0);
        let (mut after, mut operation) = (self.start.clone(), "Query");
        if self.filters_keys {
            (after, operation) = (Some(after.map_or_else(|| self.lowest(), Ok)?), "Scan");
        }
        let stored_key = session.shard_key(shard).ok().map(|key| item::string(&key));
        let is_here =
            |key: &Members| key.get(self.table.partition_key_name()) == stored_key.as_ref();
        loop {
            if let Some(after) = &after {
                body.insert("ExclusiveStartKey".to_owned(), self.start(session, shard, after));
            }
            let mut answer =
                repeated(self.upstream, operation, &body, CHECKED_AFTER).await?.members();
            units += consumed(&answer);
            // A scan goes on to the next key.
            found.extend(objects(answer.remove("Items")).into_iter().filter(is_here));
            let next = answer.get("LastEvaluatedKey").and_then(Value::as_object);
            let next = next.filter(|next| is_here(next));
            let (Some(next), Some(last)) = (next, last) else { return Ok((shard, found, units)) };
            let next = Position::of(self.table, self.index, next)?;
            if self.order.compare(&next, last).is_ge() {
                return Ok((shard, found, units));
            }
            after = Some(next);
        }
    }

    /// The lowest position in the table, after which a shard is scanned.
    fn lowest(&self) -> Result<Position, Failure> {
        let mut key = Members::new();
        let lowest = item::outermost_sort_key(self.table, false);
        key.insert(self.table.sort_key_name().to_owned(), lowest);
        Position::of(self.table, None, &key)
    }
}
