//! `Query` of an armed key: all shards, merged by sort key.
//!
//! DynamoDB evaluates the filter. Without one, each shard is asked for its part of the page. With
//! one, the keys come first: they say which items the page evaluates, and which copy of each is the
//! newest. Then the shards that have those copies are asked again, with the filter, up to the last
//! of them.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use sharding::internal::KeySession;
use sharding::internal::protocol::merge::{PageMerge, ShardPage, ShardPageRequest, Stored};
use sharding::internal::protocol::view::View;
use sharding::{Order, PartitionKey, ShardCount, ShardNumber, SortKey, Version};
use tokio::time::Instant;

use crate::expression::{self, Placeholders};
use crate::item;
use crate::read::{CHECKED_AFTER, Projection, repeated};
use crate::reply::{Failure, Members, Reply};
use crate::table::ServedTable;
use crate::upstream::{Upstream, answered};
use crate::write::check_members;

/// The largest number of shards that one request asks at once.
const CONCURRENCY: usize = 64;
/// The bytes at which a page ends. (DynamoDB developer guide, "Query".)
const PAGE_BYTES: usize = 1_024 * 1_024;
/// The read units at which a page ends that has hardly an item.
const MOST_UNITS: f64 = 4_096.0;
/// Fewer read units say little of the size of items, because they are rounded up.
const SURE_UNITS: f64 = 4.0;
/// The items that a page without a limit may have.
const UNLIMITED: usize = 1_000_000;
/// The most items that are asked of all shards together at a time.
const ASKED_AT_ONCE: usize = 1_000;

const MEMBERS: [&str; 12] = [
    "TableName",
    "KeyConditionExpression",
    "FilterExpression",
    "ProjectionExpression",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
    "Limit",
    "ExclusiveStartKey",
    "ScanIndexForward",
    "ConsistentRead",
    "Select",
    "ReturnConsumedCapacity",
];

/// The partition key that a query names.
pub(crate) fn partition_key(
    table: &ServedTable,
    body: &Members,
) -> Result<Option<String>, Failure> {
    let Some(text) = body.get("KeyConditionExpression").and_then(Value::as_str) else {
        // The old form.
        let value = body.get("KeyConditions").and_then(|it| it.get(table.partition_key_name()));
        let value = value.and_then(|it| it.get("AttributeValueList")?.get(0)?.get("S"));
        return Ok(value.and_then(Value::as_str).map(str::to_owned));
    };
    let placeholders = Placeholders::of(body);
    let (value, _) = expression::equals(text, table.partition_key_name(), &placeholders)?;
    let value = placeholders.values.get(&value).and_then(|value| value.get("S"));
    Ok(value.and_then(Value::as_str).map(str::to_owned))
}

/// An item on its way through the merge.
#[derive(Debug, Clone)]
struct Entry {
    item: Members,
    shard: ShardNumber,
    bytes: usize,
}

/// One query.
struct Query<'a> {
    table: &'a ServedTable,
    upstream: &'a Upstream,
    key: &'a PartitionKey,
    body: &'a Members,
    order: Order,
    start: Option<SortKey>,
    limit: Option<usize>,
    condition: String,
    /// The client's placeholder for the partition key, and where it stands.
    key_value: String,
    key_at: usize,
    has_filter: bool,
}

/// The merged part of a page.
struct Merged {
    entries: Vec<(Entry, Version)>,
    next: Option<SortKey>,
    units: f64,
    era: u64,
}

/// `Query` of an armed key.
pub(crate) async fn query(
    (table, upstream): (&ServedTable, &Upstream),
    key: &PartitionKey,
    body: &Members,
    deadline: Instant,
) -> Result<Reply, Failure> {
    check_members("Query", body, &MEMBERS)?;
    let limit = match body.get("Limit") {
        None | Some(Value::Null) => None,
        Some(limit) => match limit.as_u64().filter(|limit| *limit > 0) {
            Some(limit) => Some(usize::try_from(limit).unwrap_or(UNLIMITED)),
            // DynamoDB says what is wrong.
            None => {
                let reply = answered(upstream.call("Query", body, &|| true).await)?;
                let why = "Value at 'limit' failed to satisfy constraint: at least 1";
                return if reply.is_ok() { Err(Failure::validation(why)) } else { Ok(reply) };
            }
        },
    };
    let placeholders = Placeholders::of(body);
    for expression in ["KeyConditionExpression", "FilterExpression"] {
        let text = body.get(expression).and_then(Value::as_str).unwrap_or_default();
        if text.is_empty() && body.contains_key(expression) {
            let why = format!("Invalid {expression}: The expression can not be empty;");
            return Err(Failure::validation(why));
        }
        item::check_names(expression::attributes(text, &placeholders))?;
    }
    let condition = body.get("KeyConditionExpression").and_then(Value::as_str);
    let condition = condition.unwrap_or_default().to_owned();
    let (key_value, key_at) =
        expression::equals(&condition, table.partition_key_name(), &placeholders)?;
    let start = match body.get("ExclusiveStartKey").and_then(Value::as_object) {
        None => None,
        Some(start) => {
            let of = start.get(table.partition_key_name());
            if of != Some(&item::string(key.as_str())) || start.len() != 2 {
                return Err(Failure::validation("The provided starting key is invalid"));
            }
            Some(item::sort_key(table, start)?)
        }
    };
    let is_forward = body.get("ScanIndexForward").and_then(Value::as_bool).unwrap_or(true);
    let order = if is_forward { Order::Ascending } else { Order::Descending };
    let has_filter = body.contains_key("FilterExpression");
    let query = Query {
        table,
        upstream,
        key,
        body,
        order,
        start,
        limit,
        condition,
        key_value,
        key_at,
        has_filter,
    };
    let engine = table.engine.clone();
    let session = engine.session(key, deadline);
    let began = engine.now();
    loop {
        let view = session.view().await?;
        let (reply, era) = if has_filter && view.layout.read_shards == ShardCount::ONE {
            query.on_one_shard(&session).await?
        } else {
            query.merged(&session, &view).await?
        };
        if session.is_correct(began, era, &view).await? {
            session.end().await;
            return Ok(reply);
        }
    }
}

impl Query<'_> {
    /// The request to one shard. With `keys_only`, for the keys and what decides which copy is the
    /// newest.
    fn request(
        &self,
        session: &KeySession<'_>,
        shard: ShardNumber,
        what: &What,
    ) -> Result<(Members, Projection), Failure> {
        let stored = session
            .shard_key(shard)
            .map_err(|error| Failure::validation(format!("the partition key: {error}")))?;
        let mut placeholders = Placeholders::of(self.body);
        let own = placeholders.value(item::string(&stored));
        let (before, after) = self.condition.split_at(self.key_at);
        let condition = format!("{before}{own}{}", &after[self.key_value.len()..]);
        let select = self.body.get("Select").and_then(Value::as_str);
        let of_client = self.body.get("ProjectionExpression").and_then(Value::as_str);
        let keys;
        let projection = match (what, select) {
            (What::Keys, _) | (What::Items, Some("COUNT")) => {
                keys = placeholders.name(self.table.sort_key_name());
                Some(keys.as_str())
            }
            (What::Items | What::Filtered, _) => of_client,
        };
        let projection = Projection::of(self.table, projection, &mut placeholders)?;
        let mut body = Members::new();
        body.insert("TableName".to_owned(), Value::from(self.table.name.as_str()));
        for name in ["ConsistentRead", "ScanIndexForward"] {
            body.extend(self.body.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        body.extend(projection.members.clone());
        let filter = self.body.get("FilterExpression").filter(|_| *what == What::Filtered);
        body.extend(filter.map(|text| ("FilterExpression".to_owned(), text.clone())));
        let text =
            |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (projected, filtered) = (text("ProjectionExpression"), text("FilterExpression"));
        let used = [condition.as_str(), projected.as_str(), filtered.as_str()];
        // The other expressions of the client use the rest. DynamoDB has no part in those here.
        let mut left_out: Vec<String> = vec![self.key_value.clone()];
        let whole = [self.condition.as_str(), of_client.unwrap_or_default()];
        let of_filter = self.body.get("FilterExpression").and_then(Value::as_str);
        left_out.extend(expression::placeholders(
            whole.into_iter().chain(of_filter).collect::<Vec<_>>().as_slice(),
        ));
        placeholders.into_body(&mut body, &left_out, &used);
        body.insert("KeyConditionExpression".to_owned(), Value::from(condition));
        body.insert("ReturnConsumedCapacity".to_owned(), Value::from("TOTAL"));
        Ok((body, projection))
    }

    fn position(&self, session: &KeySession<'_>, shard: ShardNumber, at: &SortKey) -> Value {
        let stored = session.shard_key(shard).unwrap_or_default();
        json!({
            self.table.partition_key_name(): item::string(&stored),
            self.table.sort_key_name(): item::sort_key_value(at),
        })
    }

    /// The client's query of a key that has one shard, with its filter.
    async fn on_one_shard(&self, session: &KeySession<'_>) -> Result<(Reply, u64), Failure> {
        let (mut body, projection) = self.request(session, ShardNumber::FIRST, &What::Filtered)?;
        for name in ["Limit", "ExclusiveStartKey", "ReturnConsumedCapacity"] {
            body.remove(name);
            body.extend(self.body.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        let mut answer = repeated(self.upstream, "Query", &body, CHECKED_AFTER).await?.members();
        let items = answer.remove("Items");
        let mut items: Vec<Members> = objects(items);
        let era = crate::read::highest_era(&items);
        items.retain(|item| !item::is_tombstone(item));
        items.iter_mut().for_each(|item| projection.show(self.table, item, self.key));
        answer.insert("Count".to_owned(), Value::from(items.len()));
        if self.body.get("Select").and_then(Value::as_str) != Some("COUNT") {
            answer.insert("Items".to_owned(), items.into_iter().map(Value::Object).collect());
        }
        Ok((Reply::ok(answer), era))
    }

    /// The client's query of a key with several shards, or without a filter.
    async fn merged(&self, session: &KeySession<'_>, view: &View) -> Result<(Reply, u64), Failure> {
        let what = if self.has_filter { What::Keys } else { What::Items };
        let page = self.page(session, view, &what).await?;
        let (mut units, mut era) = (page.units, page.era);
        let evaluated = page.entries.len();
        let keys: Vec<SortKey> = page
            .entries
            .iter()
            .map(|(entry, _)| item::sort_key(self.table, &entry.item))
            .collect::<Result<_, _>>()?;
        // DynamoDB does not look beyond the limit, so it does not know that there is no more.
        let is_full = self.limit.is_some_and(|limit| evaluated >= limit);
        let next = if is_full { keys.last().cloned() } else { page.next };
        let mut items: Vec<Members> = if self.has_filter {
            let newest = keys.iter().cloned().zip(page.entries).collect();
            let hits = self.filtered(session, view, newest, keys.last()).await?;
            units += hits.units;
            era = era.max(hits.era);
            hits.entries.into_iter().map(|(entry, _)| entry.item).collect()
        } else {
            page.entries.into_iter().map(|(entry, _)| entry.item).collect()
        };
        let (_, projection) = self.request(session, ShardNumber::FIRST, &What::Filtered)?;
        items.iter_mut().for_each(|item| projection.show(self.table, item, self.key));
        let mut answer = Members::new();
        answer.insert("Count".to_owned(), Value::from(items.len()));
        answer.insert("ScannedCount".to_owned(), Value::from(evaluated));
        if self.body.get("Select").and_then(Value::as_str) != Some("COUNT") {
            answer.insert("Items".to_owned(), items.into_iter().map(Value::Object).collect());
        }
        if let Some(next) = next {
            let key = json!({
                self.table.partition_key_name(): item::string(self.key.as_str()),
                self.table.sort_key_name(): item::sort_key_value(&next),
            });
            answer.insert("LastEvaluatedKey".to_owned(), key);
        }
        let wants = self.body.get("ReturnConsumedCapacity").and_then(Value::as_str);
        if wants.is_some_and(|wants| wants != "NONE") {
            let capacity = json!({ "TableName": self.table.name, "CapacityUnits": units });
            answer.insert("ConsumedCapacity".to_owned(), capacity);
        }
        Ok((Reply::ok(answer), era))
    }

    /// One page over all shards.
    async fn page(
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
                    Ok((shard, page, consumed, of_page)) => {
                        units += consumed;
                        era = era.max(of_page);
                        merge.supply(shard, page);
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
            if units >= MOST_UNITS && merge.has_begun() {
                break;
            }
        }
        let (entries, next) = merge.finish();
        Ok(Merged { entries, next, units, era })
    }

    /// Asks one shard for its part.
    async fn ask(
        &self,
        session: &KeySession<'_>,
        view: &View,
        request: ShardPageRequest,
        what: &What,
    ) -> Result<(ShardNumber, ShardPage<Entry>, f64, u64), Failure> {
        let shard = request.shard;
        let (mut body, _) = self.request(session, shard, what)?;
        body.insert("Limit".to_owned(), Value::from(request.limit));
        if let Some(after) = &request.after {
            let position = self.position(session, shard, after);
            body.insert("ExclusiveStartKey".to_owned(), position);
        }
        let reply = repeated(self.upstream, "Query", &body, CHECKED_AFTER).await?;
        let (bytes, mut answer) = (reply.body.len(), reply.members());
        let found: Vec<Members> = objects(answer.remove("Items"));
        let era = crate::read::highest_era(&found);
        // What DynamoDB has evaluated, also of items of which it shows little.
        let is_consistent = self.body.get("ConsistentRead").and_then(Value::as_bool);
        let unit_bytes = if is_consistent == Some(true) { 4_096.0 } else { 8_192.0 };
        let units = consumed(&answer);
        let evaluated = if units > SURE_UNITS { (units * unit_bytes) as usize } else { bytes };
        let bytes = evaluated.max(bytes) / found.len().max(1);
        let mut items = Vec::with_capacity(found.len());
        for stored in found {
            let sort_key = item::sort_key(self.table, &stored)?;
            let counts = item::counts(self.table, &stored, self.key, shard)
                && session.places(&sort_key, view).contains(shard);
            if counts {
                let (version, is_tombstone) = (item::version(&stored), item::is_tombstone(&stored));
                let entry = (!is_tombstone).then_some(Entry { item: stored, shard, bytes });
                items.push(Stored { sort_key, version, item: entry });
            }
        }
        let mut next = match answer.get("LastEvaluatedKey").and_then(Value::as_object) {
            Some(last) => Some(item::sort_key(self.table, last)?),
            None => None,
        };
        // The shard may have more than the page needs.
        if let Some(until) = &request.until {
            let is_beyond = |place: &SortKey| self.order.compare(place, until).is_gt();
            items.retain(|stored| !is_beyond(&stored.sort_key));
            if next.as_ref().is_none_or(is_beyond) {
                next = None;
            }
        }
        Ok((shard, ShardPage { items, next }, units, era))
    }

    /// The items of the page that the filter lets through.
    async fn filtered(
        &self,
        session: &KeySession<'_>,
        view: &View,
        newest: BTreeMap<SortKey, (Entry, Version)>,
        last: Option<&SortKey>,
    ) -> Result<Merged, Failure> {
        let mut merged = Merged { entries: Vec::new(), next: None, units: 0.0, era: 0 };
        let Some(last) = last else { return Ok(merged) };
        // A drain may remove a copy at an old place once the item's home has it.
        let homes = newest.keys().map(|sort_key| session.places(sort_key, view).home);
        let shards: BTreeSet<ShardNumber> =
            newest.values().map(|(entry, _)| entry.shard).chain(homes).collect();
        let asked: Vec<_> =
            shards.into_iter().map(|shard| self.hits(session, shard, last).boxed()).collect();
        let mut answers = stream::iter(asked).buffer_unordered(CONCURRENCY);
        let mut hits = Vec::new();
        while let Some((shard, found, units)) = answers.try_next().await? {
            merged.units += units;
            for stored in found {
                let sort_key = item::sort_key(self.table, &stored)?;
                let Some((_, seen)) = newest.get(&sort_key) else { continue };
                let version = item::version(&stored);
                merged.era = merged.era.max(version.era());
                let places = session.places(&sort_key, view);
                if !places.contains(shard) || !item::counts(self.table, &stored, self.key, shard) {
                    continue;
                }
                // An item of this era at home is the newest copy, whatever its version.
                let is_at_home = shard == places.home
                    && (places.old.is_empty() || version.era() == view.layout.era);
                let is_newest = !item::is_tombstone(&stored) && (is_at_home || version >= *seen);
                if is_newest {
                    let entry = Entry { item: stored, shard, bytes: 0 };
                    hits.push((sort_key, (entry, version)));
                }
            }
        }
        // An item that was pulled home meanwhile is there twice.
        hits.sort_by(|(one, (_, version)), (other, (_, of_other))| {
            self.order.compare(one, other).then(of_other.cmp(version))
        });
        hits.dedup_by(|(later, _), (first, _)| later == first);
        merged.entries = hits.into_iter().map(|(_, hit)| hit).collect();
        Ok(merged)
    }

    /// What the filter lets through on one shard, up to a sort key.
    async fn hits(
        &self,
        session: &KeySession<'_>,
        shard: ShardNumber,
        last: &SortKey,
    ) -> Result<(ShardNumber, Vec<Members>, f64), Failure> {
        let (mut body, _) = self.request(session, shard, &What::Filtered)?;
        if self.body.get("Select").and_then(Value::as_str) == Some("COUNT") {
            body.remove("Select");
        }
        let (mut found, mut units) = (Vec::new(), 0.0);
        let mut after = self.start.clone();
        loop {
            if let Some(after) = &after {
                body.insert("ExclusiveStartKey".to_owned(), self.position(session, shard, after));
            }
            let mut answer =
                repeated(self.upstream, "Query", &body, CHECKED_AFTER).await?.members();
            units += consumed(&answer);
            found.extend(objects(answer.remove("Items")));
            after = match answer.get("LastEvaluatedKey").and_then(Value::as_object) {
                Some(next) => Some(item::sort_key(self.table, next)?),
                None => None,
            };
            if after.as_ref().is_none_or(|after| self.order.compare(after, last).is_ge()) {
                return Ok((shard, found, units));
            }
        }
    }
}

/// What is asked of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// The keys, and what decides which copy is the newest.
    Keys,
    /// The items as the client wants them.
    Items,
    /// The same with the client's filter.
    Filtered,
}

pub(crate) fn objects(items: Option<Value>) -> Vec<Members> {
    let Some(Value::Array(items)) = items else { return Vec::new() };
    items.into_iter().filter_map(object).collect()
}

pub(crate) fn object(value: Value) -> Option<Members> {
    if let Value::Object(members) = value { Some(members) } else { None }
}

fn consumed(answer: &Members) -> f64 {
    let units = answer.get("ConsumedCapacity").and_then(|it| it.get("CapacityUnits"));
    units.and_then(Value::as_f64).unwrap_or_default()
}
