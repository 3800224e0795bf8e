//! `Query` of an armed key: all shards, merged by sort key, or by the keys of an index.
//!
//! DynamoDB evaluates the filter. Without one, each shard is asked for its part of the page. With
//! one, the keys come first: they say which items the page evaluates, and which copy of each is the
//! newest. Then the shards that have those copies are asked again, with the filter, up to the last
//! of them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use sharding::internal::KeyJob;
use sharding::internal::protocol::names::LOGICAL_KEY;
use sharding::internal::protocol::view::View;
use sharding::{Order, PartitionKey, ShardCount, ShardNumber};
use tokio::time::Instant;

use crate::expression::{self, Placeholders};
use crate::item::{self, check_members};
use crate::page::{PAGE_MARGIN, UNLIMITED, objects, page_reply};
use crate::position::Position;
use crate::read::{Projection, shard_key};
use crate::reply::{Failure, Members, Reply};
use crate::table::{Index, ServedTable};
use crate::upstream::{CHECKED_AFTER, answered, repeated};

/// A query of an armed key.
pub(crate) struct Query<'a> {
    pub(crate) table: &'a ServedTable,
    pub(crate) session: KeyJob<'a>,
    /// The highest era of the copies that were read.
    pub(crate) era: AtomicU64,
    pub(crate) key: &'a PartitionKey,
    pub(crate) body: &'a Members,
    pub(crate) index: Option<&'a Index>,
    pub(crate) order: Order,
    pub(crate) start: Option<Position>,
    pub(crate) limit: Option<usize>,
    /// The key condition, before and after the client's placeholder for the partition key.
    pub(crate) condition: [&'a str; 2],
    /// Whether the filter names a key of the table, as that of a `Scan` may. DynamoDB refuses that in
    /// a query, so the shards are scanned.
    pub(crate) filters_keys: bool,
    /// When a page that has begun ends, so that the rest of the request is in time.
    pub(crate) page_ends: Instant,
}

/// What is asked of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The keys, and what decides which copy is the newest.
    Keys,
    /// The items as the client wants them, with its filter.
    Items,
}

/// The partition key that a query names.
pub(crate) fn partition_key(
    table: &ServedTable,
    body: &Members,
) -> Result<Option<String>, Failure> {
    let Some(text) = item::text(body, "KeyConditionExpression") else {
        // The old form.
        let value = body.get("KeyConditions").and_then(|it| it.get(table.partition_key_name()));
        let value = value.and_then(|it| it.get("AttributeValueList")?.get(0)?.get("S"));
        return Ok(value.and_then(Value::as_str).map(str::to_owned));
    };
    let placeholders = Placeholders::of(body);
    let (value, _) = expression::equals(text, table.partition_key_name(), &placeholders)?;
    let value = placeholders.values.get(value).and_then(|value| value.get("S"));
    Ok(value.and_then(Value::as_str).map(str::to_owned))
}

/// A page of an armed key, in the table or in an index with the table's partition key. It may be a
/// part of a `Scan`.
pub(crate) async fn query(
    table: &ServedTable,
    index: Option<&Index>,
    (key, is_scan): (&PartitionKey, bool),
    body: &Members,
    deadline: Instant,
) -> Result<Reply, Failure> {
    check_members("Query", body)?;
    let limit = body.get("Limit").filter(|limit| !limit.is_null());
    let is_wrong = |limit: &Value| limit.as_u64().is_none_or(|limit| limit == 0);
    let counts = item::text(body, "Select") == Some("COUNT");
    if limit.is_some_and(is_wrong) || counts && body.contains_key("ProjectionExpression") {
        // DynamoDB refuses it, and says why.
        let reply = answered(table.upstream.call("Query", body, CHECKED_AFTER).await)?;
        let wrong = || Failure::unsupported("this Limit, or a projection of a COUNT,");
        return if reply.is_ok() { Err(wrong()) } else { Ok(reply) };
    }
    let limit = limit.and_then(Value::as_u64);
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(UNLIMITED));
    let placeholders = Placeholders::of(body);
    for member in ["KeyConditionExpression", "FilterExpression"] {
        expression::check(body, member, &placeholders)?;
    }
    let condition = item::text(body, "KeyConditionExpression").unwrap_or_default();
    let (_, condition) = expression::equals(condition, table.partition_key_name(), &placeholders)?;
    let start = body.get("ExclusiveStartKey").and_then(Value::as_object);
    let start = start.map(|start| Position::of_start(table, index, key.as_str(), start));
    let start = start.transpose()?;
    let is_forward = body.get("ScanIndexForward").and_then(Value::as_bool).unwrap_or(true);
    let order = if is_forward { Order::Ascending } else { Order::Descending };
    let filter = item::text(body, "FilterExpression").unwrap_or_default();
    let mut of_filter = expression::attributes(filter, &placeholders).into_iter();
    let keys = [table.partition_key_name(), table.sort_key_name()];
    let filters_keys = is_scan && of_filter.any(|name| keys.contains(&name));
    let has_filter = body.contains_key("FilterExpression");
    let query = Query {
        table,
        session: table.engine.job(key, deadline),
        era: AtomicU64::new(0),
        key,
        body,
        index,
        order,
        start,
        limit,
        condition,
        filters_keys,
        page_ends: deadline - PAGE_MARGIN,
    };
    let began = table.engine.now();
    loop {
        let view = query.session.view().await?;
        let is_one_shard = index.is_none() && view.layout.read_shards == ShardCount::ONE;
        let reply = if has_filter && is_one_shard && !filters_keys {
            query.on_one_shard().await?
        } else {
            query.merged(&view).await?
        };
        let era = query.era.swap(0, Ordering::Relaxed);
        if query.session.is_correct(began, era, &view).await? {
            query.session.end().await;
            return Ok(reply);
        }
    }
}

impl Query<'_> {
    /// The client's query of a key that has one shard, with its filter.
    async fn on_one_shard(&self) -> Result<Reply, Failure> {
        let (mut body, projection) = self.request(ShardNumber::FIRST, What::Items)?;
        for name in ["Limit", "ExclusiveStartKey", "ReturnConsumedCapacity"] {
            body.remove(name);
            body.extend(self.body.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        let reply = repeated(&self.table.upstream, "Query", &body, CHECKED_AFTER).await?;
        let mut answer = reply.members();
        let mut items = objects(answer.remove("Items"));
        self.note_era(&items);
        let found = items.len();
        items.retain(|item| !item::is_tombstone(item));
        let tombstones = found - items.len();
        items.iter_mut().for_each(|item| projection.show(self.table, item, self.key));
        Ok(page_reply(self.body, answer, items, tombstones))
    }

    /// The client's query of a key with several shards, or without a filter.
    async fn merged(&self, view: &View) -> Result<Reply, Failure> {
        let has_filter = self.body.contains_key("FilterExpression");
        let what = if has_filter { What::Keys } else { What::Items };
        let (mut entries, next, mut units) = self.page(view, what).await?;
        let evaluated = entries.len();
        // DynamoDB does not look beyond the limit, so it does not know that there is no more.
        let is_full = self.limit.is_some_and(|limit| evaluated >= limit);
        let last = entries.last().map(|(position, _)| position.clone());
        let next = if is_full { last } else { next };
        if has_filter {
            let (hits, of_filter) = self.filtered(view, entries).await?;
            (entries, units) = (hits, units + of_filter);
        }
        let mut items: Vec<Members> = entries.into_iter().map(|(_, entry)| entry.item).collect();
        let (_, projection) = self.request(ShardNumber::FIRST, What::Items)?;
        items.iter_mut().for_each(|item| projection.show(self.table, item, self.key));
        let mut answer = Members::from_iter([("ScannedCount".to_owned(), Value::from(evaluated))]);
        if let Some(next) = next {
            let key = next.key(self.table, self.index, self.key.as_str());
            answer.insert("LastEvaluatedKey".to_owned(), Value::Object(key));
        }
        self.table.add_capacity(&mut answer, self.body, units);
        Ok(page_reply(self.body, answer, items, 0))
    }

    /// The request to one shard.
    pub(crate) fn request(
        &self,
        shard: ShardNumber,
        what: What,
    ) -> Result<(Members, Projection), Failure> {
        let mut placeholders = Placeholders::of(self.body);
        let scans = self.filters_keys && what == What::Items;
        let mut body = Members::new();
        if !scans {
            let own = placeholders.value(item::string(&shard_key(&self.session, shard)));
            let condition = self.condition.join(own.as_str());
            body.insert("KeyConditionExpression".to_owned(), Value::from(condition));
        }
        let shown = self.shown(what, &mut placeholders);
        let of = (self.index, self.index.is_none_or(Index::shows_ours));
        let projection = Projection::of(self.table, of, shown.as_deref(), &mut placeholders)?;
        body.insert("TableName".to_owned(), Value::from(self.table.name.as_str()));
        let select = (what != What::Keys && self.select() != Some("COUNT")).then_some("Select");
        for name in ["IndexName", "ConsistentRead", "ScanIndexForward"].into_iter().chain(select) {
            body.extend(self.body.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        body.extend(projection.members.clone());
        let of_filter = item::text(self.body, "FilterExpression");
        if let Some(text) = of_filter.filter(|_| what == What::Items) {
            let key = self.table.partition_key_name();
            let is_elsewhere = scans && !self.table.is_key_itself(shard);
            let logical = |name: &str, _| (is_elsewhere && name == key).then_some(LOGICAL_KEY);
            let text = expression::renamed(text, &mut placeholders, logical);
            body.insert("FilterExpression".to_owned(), Value::from(text));
        }
        placeholders.into_body(&mut body, self.body);
        body.insert("ReturnConsumedCapacity".to_owned(), Value::from("TOTAL"));
        Ok((body, projection))
    }

    pub(crate) fn select(&self) -> Option<&str> {
        item::text(self.body, "Select")
    }

    /// The projection without what the endpoint adds; `None` for all that there is.
    fn shown(&self, what: What, placeholders: &mut Placeholders) -> Option<String> {
        if what == What::Keys || self.select() == Some("COUNT") {
            return Some(placeholders.name(self.table.sort_key_name()));
        }
        item::text(self.body, "ProjectionExpression").map(str::to_owned)
    }

    /// How the copies of an item are read: as the index shows it, with what decides which copy is
    /// the newest.
    pub(crate) fn copies(&self, what: What) -> Result<Members, Failure> {
        let mut placeholders = Placeholders::of(self.body);
        let mut shown = self.shown(what, &mut placeholders);
        if let (None, Some(index)) = (&shown, self.index)
            && self.select() != Some("ALL_ATTRIBUTES")
            && let Some(included) = &index.included
        {
            let names = [self.table.partition_key_name(), self.table.sort_key_name()]
                .into_iter()
                .chain(index.keys.iter().map(|(name, _)| name.as_str()))
                .chain(included.iter().map(String::as_str).filter(|name| !item::is_ours(name)));
            let names: BTreeSet<String> = names.map(|name| placeholders.name(name)).collect();
            shown = Some(names.into_iter().collect::<Vec<_>>().join(", "));
        }
        let (of, shown) = ((self.index, true), shown.as_deref());
        Ok(Projection::of(self.table, of, shown, &mut placeholders)?.whole)
    }

    /// Where a shard continues after a position.
    pub(crate) fn start(&self, shard: ShardNumber, after: &Position) -> Value {
        let stored = shard_key(&self.session, shard);
        Value::Object(after.key(self.table, self.index, &stored))
    }
}
