//! Reads of the main table: one item at its places, pages of one shard, scans of the whole table.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConsumedCapacity, KeysAndAttributes, ReturnConsumedCapacity,
};

use crate::protocol::copies::Copy;
use crate::protocol::merge::{ShardPage, ShardPageRequest, Stored};
use crate::protocol::names::{DELETED, LOGICAL_KEY, VERSION, WIDTH};
use crate::protocol::survey::place_of;
use crate::protocol::version::Version;
use crate::table::attributes::{self, SdkItem};
use crate::table::error::{Cause, TableError};
use crate::table::{Table, Tables};
use crate::values::key::{PartitionKey, ShardCount, ShardKeys, ShardNumber, SortKey};
use crate::values::query::{Order, PageQuery};
use crate::values::value::Item;

/// The most keys of one BatchGetItem. (DynamoDB API reference, "BatchGetItem".)
const BATCH_GET_KEYS: usize = 100;
/// A page of a scan is also limited to one megabyte.
const MAX_SCANNED_ITEMS: i32 = 5_000;
/// What a check of one shard fetches at once. Items of other programs may come first.
const PROBED_ITEMS: usize = 10;

#[derive(Debug, Clone, Copy)]
pub(crate) struct GetTarget<'a> {
    pub(crate) partition_key: &'a PartitionKey,
    pub(crate) sort_key: &'a SortKey,
    pub(crate) consistent: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct RawItem(SdkItem);

impl RawItem {
    pub(crate) fn copy(&self) -> Result<Copy, TableError> {
        attributes::copy_from_sdk(&self.0)
    }
}

/// With the attributes that a scan fetches. It may be a tombstone.
#[derive(Debug)]
pub(crate) struct ScannedItem {
    pub(crate) stored_key: String,
    logical_key: Option<String>,
    pub(crate) sort_key: SortKey,
    pub(crate) version: Version,
    pub(crate) width: ShardCount,
    pub(crate) is_tombstone: bool,
}

impl ScannedItem {
    /// `None` if this product uses no such place.
    pub(crate) fn place(&self, keys: &ShardKeys) -> Option<(PartitionKey, ShardNumber)> {
        place_of(keys, &self.stored_key, self.logical_key.as_deref())
    }
}

#[derive(Debug)]
pub(crate) struct ScanPage {
    /// `None` for an item that cannot be parsed.
    pub(crate) items: Vec<Option<ScannedItem>>,
    /// Where the scan continues.
    pub(crate) next: Option<SdkItem>,
    pub(crate) consumed: f64,
}

impl Tables {
    /// On the table or on an index with the table's own keys. Also returns the read units that it
    /// cost.
    pub(crate) async fn query_shard(
        &self,
        query: &PageQuery,
        request: &ShardPageRequest,
        index: Option<&str>,
    ) -> Result<(ShardPage<Item>, f64), TableError> {
        let key = &query.partition_key;
        let (condition, bounds) = key_condition(query, request);
        let mut call = self
            .page_of((key, request.shard), request.after.as_ref(), request.limit)?
            .key_condition_expression(condition)
            .set_index_name(index.map(str::to_owned))
            .scan_index_forward(query.order == Order::Ascending)
            .consistent_read(query.consistent)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        if !bounds.is_empty() {
            call = call.expression_attribute_names("#s", &self.config.sort_key_name);
        }
        for (name, value) in bounds {
            call = call.expression_attribute_values(name, value);
        }
        if let Some(fields) = &query.fields {
            // The attributes that distinguish copies are read, too.
            let own = [LOGICAL_KEY, VERSION, DELETED, self.config.sort_key_name.as_str()];
            let mut terms = Vec::new();
            let names = own.into_iter().chain(fields.iter().map(String::as_str));
            for (index, name) in names.enumerate() {
                let placeholder = format!("#f{index}");
                call = call.expression_attribute_names(&placeholder, name);
                terms.push(placeholder);
            }
            call = call.projection_expression(terms.join(", "));
        }
        let (items, next, consumed) = self.send_page(call, (key, request.shard)).await?;
        let items = items.into_iter();
        let items = items.map(|item| attributes::item_from_sdk(&self.config, key, item));
        Ok((ShardPage { items: items.collect::<Result<_, _>>()?, next }, consumed))
    }

    /// The caller can add to it.
    pub(super) fn page_of(
        &self,
        (key, shard): (&PartitionKey, ShardNumber),
        after: Option<&SortKey>,
        limit: usize,
    ) -> Result<QueryFluentBuilder, TableError> {
        let shard_key = self.shard_key(key, shard)?;
        let start = after.map(|after| self.key(shard_key.clone(), after));
        Ok(self
            .client
            .query()
            .table_name(&self.config.table_name)
            .key_condition_expression("#p = :p")
            .expression_attribute_names("#p", &self.config.partition_key_name)
            .expression_attribute_values(":p", AttributeValue::S(shard_key))
            .set_exclusive_start_key(start)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX)))
    }

    /// The items of the page that belong to the key, the sort key to continue after, and the
    /// consumed read units if they were asked for.
    pub(super) async fn send_page(
        &self,
        query: QueryFluentBuilder,
        (key, shard): (&PartitionKey, ShardNumber),
    ) -> Result<(Vec<SdkItem>, Option<SortKey>, f64), TableError> {
        let page = self.ask(Table::Main, query.send()).await?;
        let next = page.last_evaluated_key.as_ref().map(|key| self.sort_key(key)).transpose()?;
        let ours = page.items.unwrap_or_default().into_iter();
        let ours = ours.filter(|item| self.counts(item, key, shard));
        Ok((ours.collect(), next, units(page.consumed_capacity)))
    }

    pub(crate) fn as_item(
        &self,
        key: &PartitionKey,
        raw: RawItem,
    ) -> Result<Stored<Item>, TableError> {
        attributes::item_from_sdk(&self.config, key, raw.0)
    }

    /// Reads one item from one shard, or from several in one request. Returns what is stored there,
    /// also tombstones, and the shards that were not read because capacity was missing.
    pub(crate) async fn get_copies(
        &self,
        target: GetTarget<'_>,
        shards: &[ShardNumber],
    ) -> Result<(Vec<(ShardNumber, RawItem)>, Vec<ShardNumber>), TableError> {
        if let [shard] = shards {
            let found = self.get_one(target, *shard).await?;
            let found = found.into_iter().map(|item| (*shard, RawItem(item)));
            return Ok((found.collect(), Vec::new()));
        }
        let name = &self.config.partition_key_name;
        let (mut found, mut unprocessed) = (Vec::new(), Vec::new());
        for chunk in shards.chunks(BATCH_GET_KEYS) {
            // Sorted, so that a run can be replayed.
            let mut places = BTreeMap::new();
            for shard in chunk {
                places.insert(self.shard_key(target.partition_key, *shard)?, *shard);
            }
            let keys = places.keys().map(|key| self.key(key.clone(), target.sort_key)).collect();
            let wanted = KeysAndAttributes::builder().set_keys(Some(keys));
            let wanted = wanted.consistent_read(target.consistent).build().map_err(|error| {
                TableError::Rejected(Cause::by("the request could not be made", error))
            })?;
            let call = self.client.batch_get_item().request_items(&self.config.table_name, wanted);
            let answer = self.ask(Table::Main, call.send()).await?;
            let shard_of = |item: &SdkItem| places.get(item.get(name)?.as_s().ok()?).copied();
            let left = answer.unprocessed_keys.unwrap_or_default();
            unprocessed
                .extend(left.values().flat_map(KeysAndAttributes::keys).filter_map(shard_of));
            let items = answer.responses.unwrap_or_default().into_values().flatten();
            let placed = items.filter_map(|item| Some((shard_of(&item)?, item)));
            let ours =
                placed.filter(|(shard, item)| self.counts(item, target.partition_key, *shard));
            found.extend(ours.map(|(shard, item)| (shard, RawItem(item))));
        }
        Ok((found, unprocessed))
    }

    pub(super) async fn get_one(
        &self,
        target: GetTarget<'_>,
        shard: ShardNumber,
    ) -> Result<Option<SdkItem>, TableError> {
        let key = self.key(self.shard_key(target.partition_key, shard)?, target.sort_key);
        let found = self.get_item(Table::Main, key, target.consistent).await?;
        Ok(found.filter(|item| self.counts(item, target.partition_key, shard)))
    }

    /// Strongly consistent.
    pub(crate) async fn scan(&self, after: Option<&SdkItem>) -> Result<ScanPage, TableError> {
        let scan = self
            .client
            .scan()
            .table_name(&self.config.table_name)
            .projection_expression("#p, #s, #k, #v, #w, #d")
            .expression_attribute_names("#p", &self.config.partition_key_name)
            .expression_attribute_names("#s", &self.config.sort_key_name)
            .expression_attribute_names("#k", LOGICAL_KEY)
            .expression_attribute_names("#v", VERSION)
            .expression_attribute_names("#w", WIDTH)
            .expression_attribute_names("#d", DELETED)
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .limit(MAX_SCANNED_ITEMS)
            .set_exclusive_start_key(after.cloned());
        let answer = self.ask(Table::Main, scan.send()).await?;
        let items = answer.items.unwrap_or_default();
        Ok(ScanPage {
            items: items.iter().map(|item| self.scanned(item).ok()).collect(),
            next: answer.last_evaluated_key,
            consumed: units(answer.consumed_capacity),
        })
    }

    pub(crate) async fn has_items(
        &self,
        key: &PartitionKey,
        shard: ShardNumber,
    ) -> Result<bool, TableError> {
        let probe = self
            .page_of((key, shard), None, PROBED_ITEMS)?
            .projection_expression("#p, #k")
            .expression_attribute_names("#k", LOGICAL_KEY);
        let mut items = probe.into_paginator().items().send();
        while let Some(item) = items.next().await {
            let item = item.map_err(|error| self.failed(Table::Main, error))?;
            if self.counts(&item, key, shard) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn scanned(&self, item: &SdkItem) -> Result<ScannedItem, TableError> {
        Ok(ScannedItem {
            stored_key: self.stored_key(item)?,
            logical_key: item.get(LOGICAL_KEY).and_then(|value| value.as_s().ok()).cloned(),
            sort_key: self.sort_key(item)?,
            version: attributes::version_from_sdk(item.get(VERSION))?,
            width: attributes::width_from_sdk(&self.config, item.get(WIDTH))?,
            is_tombstone: attributes::is_tombstone(item),
        })
    }

    pub(super) fn stored_key(&self, item: &SdkItem) -> Result<String, TableError> {
        let name = &self.config.partition_key_name;
        let stored = item.get(name).and_then(|value| value.as_s().ok()).cloned();
        stored.ok_or_else(|| TableError::Damaged(format!("an item's {name} is not a string")))
    }

    pub(super) fn sort_key(&self, item: &SdkItem) -> Result<SortKey, TableError> {
        attributes::sort_key_from_sdk(&self.config, item.get(&self.config.sort_key_name))
    }

    /// Without its attributes and its sort key.
    pub(crate) fn own_bytes(&self, key: &PartitionKey) -> usize {
        let keys = self.config.partition_key_name.len()
            + self.config.sort_key_name.len()
            + 2 * key.as_str().len();
        // The suffix of the shard key takes about two bytes, a version of 28 digits 15, a width 3.
        keys + LOGICAL_KEY.len() + VERSION.len() + WIDTH.len() + 2 + 15 + 3
    }
}

fn units(consumed: Option<ConsumedCapacity>) -> f64 {
    consumed.and_then(|consumed| consumed.capacity_units).unwrap_or_default()
}

/// The key condition of a page query, and its values besides the partition key.
///
/// A start and an end of the request lie within the query's own range, so the end replaces the
/// query's bound.
fn key_condition(
    query: &PageQuery,
    request: &ShardPageRequest,
) -> (&'static str, Vec<(&'static str, AttributeValue)>) {
    let value = attributes::sort_key_to_sdk;
    let until = request.after.as_ref().and(request.until.as_ref());
    let (prefix, from, to) = match (until, query.order) {
        (None, _) => (query.prefix.as_ref(), query.from.as_ref(), query.to.as_ref()),
        (Some(until), Order::Ascending) => (None, query.from.as_ref(), Some(until)),
        (Some(until), Order::Descending) => (None, Some(until), query.to.as_ref()),
    };
    match (prefix, from, to) {
        (Some(prefix), _, _) => {
            ("#p = :p AND begins_with(#s, :x)", vec![(":x", AttributeValue::S(prefix.clone()))])
        }
        (None, Some(from), Some(to)) => {
            ("#p = :p AND #s BETWEEN :f AND :t", vec![(":f", value(from)), (":t", value(to))])
        }
        (None, Some(from), None) => ("#p = :p AND #s >= :f", vec![(":f", value(from))]),
        (None, None, Some(to)) => ("#p = :p AND #s <= :t", vec![(":t", value(to))]),
        (None, None, None) => ("#p = :p", Vec::new()),
    }
}
