//! Looking at the whole main table, and for what stands where nothing should.

use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};

use super::Tables;
use super::attributes::{self, LOGICAL_KEY, SdkItem, VERSION, WIDTH};
use super::error::TableError;
use crate::core::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::core::version::Version;

/// The most items of one page of a scan. Their size bounds it, too: a megabyte.
const SCANNED_ITEMS: i32 = 5_000;
/// The most items that a look at one shard fetches. Where bare keys share the table, one of another key may come first.
const PROBED_ITEMS: i32 = 10;

/// Where a scan goes on: after this item, by its keys as they are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanPosition {
    /// The value of the partition-key attribute: a shard key or a bare one.
    pub stored_key: String,
    /// The sort key.
    pub sort_key: SortKey,
}

/// An item, as far as a scan fetches it.
#[derive(Debug)]
pub(crate) struct ScannedItem {
    pub(crate) stored_key: String,
    pub(crate) logical_key: Option<String>,
    pub(crate) sort_key: SortKey,
    pub(crate) version: Version,
    pub(crate) width: ShardCount,
}

/// A page of a scan.
#[derive(Debug)]
pub(crate) struct ScanPage {
    /// `None` for one that cannot be read.
    pub(crate) items: Vec<Option<ScannedItem>>,
    pub(crate) next: Option<ScanPosition>,
    pub(crate) consumed: f64,
}

impl Tables {
    /// A page of the main table, strongly consistent.
    pub(crate) async fn scan(&self, after: Option<&ScanPosition>) -> Result<ScanPage, TableError> {
        let start = after.map(|after| self.key(after.stored_key.clone(), &after.sort_key));
        let answer = self
            .client
            .scan()
            .table_name(&self.config.table_name)
            .projection_expression("#p, #s, #k, #v, #w")
            .expression_attribute_names("#p", &self.config.partition_key_name)
            .expression_attribute_names("#s", &self.config.sort_key_name)
            .expression_attribute_names("#k", LOGICAL_KEY)
            .expression_attribute_names("#v", VERSION)
            .expression_attribute_names("#w", WIDTH)
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .limit(SCANNED_ITEMS)
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(TableError::from_sdk)?;
        let next = match &answer.last_evaluated_key {
            None => None,
            Some(key) => Some(ScanPosition { stored_key: self.stored_key(key)?, sort_key: self.sort_key(key)? }),
        };
        let consumed = answer.consumed_capacity().and_then(|consumed| consumed.capacity_units).unwrap_or_default();
        let items = answer.items().iter().map(|item| self.scanned(item).ok()).collect();
        Ok(ScanPage { items, next, consumed })
    }

    /// Whether any item of the key stands on a shard.
    pub(crate) async fn has_items(&self, key: &PartitionKey, shard: ShardNumber) -> Result<bool, TableError> {
        let answer = self
            .client
            .query()
            .table_name(&self.config.table_name)
            .key_condition_expression("#p = :p")
            .projection_expression("#p, #k")
            .expression_attribute_names("#p", &self.config.partition_key_name)
            .expression_attribute_names("#k", LOGICAL_KEY)
            .expression_attribute_values(":p", AttributeValue::S(self.shard_key(key, shard)?))
            .limit(if self.config.adopt_unsharded { PROBED_ITEMS } else { 1 })
            .send()
            .await
            .map_err(TableError::from_sdk)?;
        Ok(answer.items().iter().any(|item| self.is_ours(item, key, shard)))
    }

    fn scanned(&self, item: &SdkItem) -> Result<ScannedItem, TableError> {
        let logical = item.get(LOGICAL_KEY).and_then(|value| value.as_s().ok()).cloned();
        Ok(ScannedItem {
            stored_key: self.stored_key(item)?,
            logical_key: logical,
            sort_key: self.sort_key(item)?,
            version: attributes::version_from_sdk(item.get(VERSION))?,
            width: attributes::width_from_sdk(&self.config, item.get(WIDTH))?,
        })
    }

    fn stored_key(&self, item: &SdkItem) -> Result<String, TableError> {
        let name = &self.config.partition_key_name;
        let stored = item.get(name).and_then(|value| value.as_s().ok()).cloned();
        stored.ok_or_else(|| TableError::Damaged(format!("an item's {name} is not a string")))
    }

    fn sort_key(&self, item: &SdkItem) -> Result<SortKey, TableError> {
        attributes::sort_key_from_sdk(&self.config, item.get(&self.config.sort_key_name))
    }
}
