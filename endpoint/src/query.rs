//! `Query` of an armed key: all shards, merged by sort key, or by the keys of an index.
//!
//! DynamoDB evaluates the filter. Without one, each shard is asked for its part of the page. With
//! one, the keys come first: they say which items the page evaluates, and which copy of each is the
//! newest. Then the shards that have those copies are asked again, with the filter, up to the last
//! of them.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use sharding::internal::protocol::view::View;
use sharding::{Order, PartitionKey, ShardCount, ShardNumber};
use tokio::time::Instant;

use crate::expression::{self, Placeholders};
use crate::index::Index;
use crate::item::{self, check_members};
use crate::page::{PAGE_MARGIN, PAGE_MEMBERS, QUERY_MEMBERS, UNLIMITED, objects, page_reply};
use crate::position::Position;
use crate::reply::{Failure, Members, Reply};
use crate::shard_query::{Query, What};
use crate::table::ServedTable;
use crate::upstream::{CHECKED_AFTER, answered, repeated};

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
    check_members("Query", body, &[&PAGE_MEMBERS, &QUERY_MEMBERS])?;
    let limit = body.get("Limit").filter(|limit| !limit.is_null());
    let is_wrong = |limit: &Value| limit.as_u64().is_none_or(|limit| limit == 0);
    if limit.is_some_and(is_wrong) {
        let why = "Value at 'limit' failed to satisfy constraint: at least 1";
        return refused(table, body, why).await;
    }
    let limit = limit.and_then(Value::as_u64);
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(UNLIMITED));
    if item::text(body, "Select") == Some("COUNT") && body.contains_key("ProjectionExpression") {
        let why = "Cannot specify the ProjectionExpression when choosing to get only the Count";
        return refused(table, body, why).await;
    }
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
        session: table.engine.session(key, deadline),
        era: AtomicU64::new(0),
        key,
        body,
        index,
        order,
        start,
        limit,
        condition,
        has_filter,
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

/// The error of DynamoDB for a request that it refuses.
async fn refused(table: &ServedTable, body: &Members, why: &str) -> Result<Reply, Failure> {
    let reply = answered(table.upstream.call("Query", body, CHECKED_AFTER).await)?;
    if reply.is_ok() { Err(Failure::validation(why)) } else { Ok(reply) }
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
        let what = if self.has_filter { What::Keys } else { What::Items };
        let (mut entries, next, mut units) = self.page(view, what).await?;
        let evaluated = entries.len();
        // DynamoDB does not look beyond the limit, so it does not know that there is no more.
        let is_full = self.limit.is_some_and(|limit| evaluated >= limit);
        let last = entries.last().map(|(position, _)| position.clone());
        let next = if is_full { last } else { next };
        if self.has_filter {
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
        let capacity = self.table.capacity(self.body, units);
        answer.extend(capacity.map(|capacity| ("ConsumedCapacity".to_owned(), capacity)));
        Ok(page_reply(self.body, answer, items, 0))
    }
}
