//! Scans of the whole main table, checks of places that should be empty, and items as they are
//! without the product: for keys that are disarmed.

use aws_sdk_dynamodb::types::ReturnConsumedCapacity;

use crate::protocol::names::{
    APPLIED, APPLIED_BEFORE, DELETED, LATE_UNTIL, LOGICAL_KEY, VERSION, WIDTH, WRITE_ID,
};
use crate::protocol::version::Version;
use crate::table::attributes::{self, SdkItem, number};
use crate::table::condition::Expression;
use crate::table::error::TableError;
use crate::table::{Table, Tables};
use crate::values::key::{PartitionKey, ShardCount, ShardNumber, SortKey};

/// The largest number of items in one page of a scan. A page is also limited to one megabyte.
const MAX_SCANNED_ITEMS: i32 = 5_000;
/// The number of items that a check of one shard fetches at once. Items of other programs may come
/// first.
const PROBED_ITEMS: i32 = 10;
/// The attributes that the product adds to an item.
const OURS: [&str; 8] =
    [APPLIED, APPLIED_BEFORE, DELETED, LATE_UNTIL, LOGICAL_KEY, VERSION, WIDTH, WRITE_ID];

/// The stored keys of the item after which a scan continues.
#[derive(Debug)]
pub(crate) struct ScanPosition(SdkItem);

/// An item with the attributes that a scan fetches. It may be a tombstone.
#[derive(Debug)]
pub(crate) struct ScannedItem {
    pub(crate) stored_key: String,
    pub(crate) logical_key: Option<String>,
    pub(crate) sort_key: SortKey,
    pub(crate) version: Version,
    pub(crate) width: ShardCount,
    pub(crate) is_tombstone: bool,
}

#[derive(Debug)]
pub(crate) struct ScanPage {
    /// `None` for an item that cannot be parsed.
    pub(crate) items: Vec<Option<ScannedItem>>,
    pub(crate) next: Option<ScanPosition>,
    pub(crate) consumed: f64,
}

impl Tables {
    /// A page of the main table, strongly consistent.
    pub(crate) async fn scan(&self, after: Option<&ScanPosition>) -> Result<ScanPage, TableError> {
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
            .set_exclusive_start_key(after.map(|after| after.0.clone()));
        let answer = self.ask(Table::Main, scan.send()).await?;
        let consumed = answer.consumed_capacity.and_then(|consumed| consumed.capacity_units);
        let items = answer.items.unwrap_or_default();
        Ok(ScanPage {
            items: items.iter().map(|item| self.scanned(item).ok()).collect(),
            next: answer.last_evaluated_key.map(ScanPosition),
            consumed: consumed.unwrap_or_default(),
        })
    }

    /// Whether a shard has any item of the key.
    pub(crate) async fn has_items(
        &self,
        key: &PartitionKey,
        shard: ShardNumber,
    ) -> Result<bool, TableError> {
        let probe = self
            .query(self.shard_key(key, shard)?)
            .projection_expression("#p, #k")
            .expression_attribute_names("#k", LOGICAL_KEY)
            .limit(PROBED_ITEMS);
        let mut items = probe.into_paginator().items().send();
        while let Some(item) = items.next().await {
            let item = item.map_err(|error| self.failed(Table::Main, error))?;
            if self.counts(&item, key, shard) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the product's attributes from an item, or the item if it is a tombstone. It may be
    /// repeated. [`TableError::ConditionFailed`] if the item was changed since it was read.
    pub(crate) async fn make_plain(&self, item: &ScannedItem) -> Result<(), TableError> {
        let key = self.key(item.stored_key.clone(), &item.sort_key);
        let as_read = if item.is_tombstone {
            "attribute_not_exists(#p) OR #v = :v"
        } else {
            "attribute_exists(#p) AND (attribute_not_exists(#v) OR #v = :v)"
        };
        let as_read = Expression::of(as_read)
            .name("#p", &self.config.partition_key_name)
            .name("#v", VERSION)
            .value(":v", number(item.version));
        if item.is_tombstone {
            let (condition, names, values) = as_read.into_parts();
            let delete = self
                .client
                .delete_item()
                .table_name(&self.config.table_name)
                .set_key(Some(key))
                .condition_expression(condition)
                .set_expression_attribute_names(Some(names))
                .set_expression_attribute_values(values);
            return self.ask(Table::Main, delete.send()).await.map(drop);
        }
        let (update, as_read) = as_read.update(OURS.map(|name| (name, None)));
        let update = self.update(Table::Main, key, update, as_read);
        self.ask(Table::Main, update.send()).await.map(drop)
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
}
