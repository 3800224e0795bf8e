//! `Query` of an armed key: all shards, merged by sort key, or by the keys of an index.
//!
//! DynamoDB evaluates the filter. Without one, each shard is asked for its part of the page. With
//! one, the keys come first: they say which items the page evaluates, and which copy of each is the
//! newest. Then the shards that have those copies are asked again, with the filter, up to the last
//! of them.

use std::time::Duration;

use serde_json::{Value, json};
use sharding::internal::KeySession;
use sharding::internal::protocol::view::View;
use sharding::{Order, PartitionKey, ShardCount, ShardNumber};
use tokio::time::Instant;

use crate::expression::{self, Placeholders};
use crate::index::Index;
use crate::item;
use crate::position::Position;
use crate::read::{CHECKED_AFTER, repeated};
use crate::reply::{Failure, Members, Reply};
use crate::shard_query::What;
use crate::table::ServedTable;
use crate::upstream::{Upstream, answered};
use crate::write::check_members;

/// The items that a page without a limit may have.
pub(crate) const UNLIMITED: usize = 1_000_000;

/// How long before a query's deadline its page ends: the time for a filter.
pub(crate) const PAGE_MARGIN: Duration = Duration::from_secs(4);

const MEMBERS: [&str; 13] = [
    "TableName",
    "IndexName",
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

/// One query.
pub(crate) struct Query<'a> {
    pub(crate) table: &'a ServedTable,
    pub(crate) upstream: &'a Upstream,
    pub(crate) key: &'a PartitionKey,
    pub(crate) body: &'a Members,
    pub(crate) index: Option<&'a Index>,
    pub(crate) order: Order,
    pub(crate) start: Option<Position>,
    pub(crate) limit: Option<usize>,
    pub(crate) condition: String,
    /// The client's placeholder for the partition key, and where it stands.
    pub(crate) key_value: String,
    pub(crate) key_at: usize,
    has_filter: bool,
    /// Whether the filter names a key of the table, as that of a `Scan` may. DynamoDB refuses that in
    /// a query, so the shards are scanned.
    pub(crate) filters_keys: bool,
    /// When a page that has begun ends, so that the rest of the request is in time.
    pub(crate) page_ends: Instant,
}

/// The request that a page of an armed key is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartOf {
    Query,
    Scan,
}

/// A page of an armed key, in the table or in an index with the table's partition key.
pub(crate) async fn query(
    (table, upstream): (&ServedTable, &Upstream),
    index: Option<&Index>,
    (key, part_of): (&PartitionKey, PartOf),
    body: &Members,
    deadline: Instant,
) -> Result<Reply, Failure> {
    check_members("Query", body, &MEMBERS)?;
    let limit = match body.get("Limit") {
        None | Some(Value::Null) => None,
        Some(limit) => match limit.as_u64().filter(|limit| *limit > 0) {
            Some(limit) => Some(usize::try_from(limit).unwrap_or(UNLIMITED)),
            None => {
                let why = "Value at 'limit' failed to satisfy constraint: at least 1";
                return refused(upstream, body, why).await;
            }
        },
    };
    let is_count = body.get("Select").and_then(Value::as_str) == Some("COUNT");
    if is_count && body.contains_key("ProjectionExpression") {
        let why = "Cannot specify the ProjectionExpression when choosing to get only the Count";
        return refused(upstream, body, why).await;
    }
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
        Some(start) => Some(Position::of_start(table, index, key.as_str(), start)?),
    };
    let is_forward = body.get("ScanIndexForward").and_then(Value::as_bool).unwrap_or(true);
    let order = if is_forward { Order::Ascending } else { Order::Descending };
    let filter = body.get("FilterExpression").and_then(Value::as_str);
    let of_filter = filter.map(|text| expression::attributes(text, &placeholders));
    let is_key = |name: &&str| [table.partition_key_name(), table.sort_key_name()].contains(name);
    let filters_keys = part_of == PartOf::Scan && of_filter.iter().flatten().any(is_key);
    let has_filter = body.contains_key("FilterExpression");
    let query = Query {
        table,
        upstream,
        key,
        body,
        index,
        order,
        start,
        limit,
        condition,
        key_value,
        key_at,
        has_filter,
        filters_keys,
        page_ends: deadline - PAGE_MARGIN,
    };
    let engine = table.engine.clone();
    let session = engine.session(key, deadline);
    let began = engine.now();
    loop {
        let view = session.view().await?;
        let is_one_shard = index.is_none() && view.layout.read_shards == ShardCount::ONE;
        let (reply, era) = if has_filter && is_one_shard && !filters_keys {
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

/// The error of DynamoDB for a request that it refuses.
async fn refused(upstream: &Upstream, body: &Members, why: &str) -> Result<Reply, Failure> {
    let reply = answered(upstream.call("Query", body, CHECKED_AFTER).await)?;
    if reply.is_ok() { Err(Failure::validation(why)) } else { Ok(reply) }
}

impl Query<'_> {
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
        let found = items.len();
        items.retain(|item| !item::is_tombstone(item));
        let scanned = answer.get("ScannedCount").and_then(Value::as_u64).unwrap_or_default();
        let tombstones = (found - items.len()) as u64;
        answer.insert("ScannedCount".to_owned(), Value::from(scanned.saturating_sub(tombstones)));
        items.iter_mut().for_each(|item| projection.show(self.table, item, self.key));
        answer.insert("Count".to_owned(), Value::from(items.len()));
        if self.select() != Some("COUNT") {
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
        // DynamoDB does not look beyond the limit, so it does not know that there is no more.
        let is_full = self.limit.is_some_and(|limit| evaluated >= limit);
        let last = page.entries.last().map(|(position, _)| position.clone());
        let next = if is_full { last } else { page.next };
        let mut entries = page.entries;
        if self.has_filter {
            let hits = self.filtered(session, view, entries).await?;
            units += hits.units;
            era = era.max(hits.era);
            entries = hits.entries;
        }
        let mut items: Vec<Members> = entries.into_iter().map(|(_, entry)| entry.item).collect();
        let (_, projection) = self.request(session, ShardNumber::FIRST, &What::Filtered)?;
        items.iter_mut().for_each(|item| projection.show(self.table, item, self.key));
        let mut answer = Members::new();
        answer.insert("Count".to_owned(), Value::from(items.len()));
        answer.insert("ScannedCount".to_owned(), Value::from(evaluated));
        if self.select() != Some("COUNT") {
            answer.insert("Items".to_owned(), items.into_iter().map(Value::Object).collect());
        }
        if let Some(next) = next {
            let key = next.key(self.table, self.index, self.key.as_str());
            answer.insert("LastEvaluatedKey".to_owned(), key);
        }
        let wants = self.body.get("ReturnConsumedCapacity").and_then(Value::as_str);
        if wants.is_some_and(|wants| wants != "NONE") {
            let capacity = json!({ "TableName": self.table.name, "CapacityUnits": units });
            answer.insert("ConsumedCapacity".to_owned(), capacity);
        }
        Ok((Reply::ok(answer), era))
    }
}

pub(crate) fn objects(items: Option<Value>) -> Vec<Members> {
    let Some(Value::Array(items)) = items else { return Vec::new() };
    items.into_iter().filter_map(object).collect()
}

pub(crate) fn object(value: Value) -> Option<Members> {
    if let Value::Object(members) = value { Some(members) } else { None }
}

pub(crate) fn consumed(answer: &Members) -> f64 {
    let units = answer.get("ConsumedCapacity").and_then(|it| it.get("CapacityUnits"));
    units.and_then(Value::as_f64).unwrap_or_default()
}
