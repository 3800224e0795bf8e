//! Requests to the main table.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::{PutItemError, PutItemOutput};
use aws_sdk_dynamodb::types::{
    AttributeValue, KeysAndAttributes, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure,
};

use super::Tables;
use super::attributes::{self, LOGICAL_KEY, SdkItem, VERSION, WIDTH};
use super::condition::{Claim, Condition};
use super::error::TableError;
use super::point_writes::{CheckLease, LeaseLasts};
use crate::core::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::core::merge::{ShardPage, ShardPageRequest, Stored};
use crate::core::query::{Order, PageQuery};
use crate::core::value::Item;
use crate::core::version::Version;

/// The most keys of one BatchGetItem. [DynamoDB limits]
const BATCH_GET_KEYS: usize = 100;

/// One shard's answer to a page query, with what it cost.
#[derive(Debug)]
pub(crate) struct ShardQueryPage {
    pub(crate) page: ShardPage<Item>,
    pub(crate) consumed: f64,
}

/// An item to look for, on one or more shards.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GetTarget<'a> {
    pub(crate) partition_key: &'a PartitionKey,
    pub(crate) sort_key: &'a SortKey,
    pub(crate) consistent: bool,
}

/// A copy of an item that was looked for.
#[derive(Debug, Clone)]
pub(crate) struct FoundCopy {
    pub(crate) stored: Stored<Item>,
    is_bare: bool,
}

/// What was found of an item.
#[derive(Debug)]
pub(crate) struct FoundCopies {
    pub(crate) newest: Option<FoundCopy>,
    /// Shards that were not looked at, for lack of capacity.
    pub(crate) unprocessed: Vec<ShardNumber>,
}

/// The newer of two copies; of two copies of another program's item, the bare one is what that program goes on writing.
pub(crate) fn newer(one: Option<FoundCopy>, other: Option<FoundCopy>) -> Option<FoundCopy> {
    [one, other].into_iter().flatten().max_by_key(|copy| (copy.stored.version, copy.is_bare))
}

impl Tables {
    /// Stores an item on a shard unless a version as high or higher stands there. `false` where the lease that it was placed under ran
    /// out before it was sent: nothing was sent.
    ///
    /// # Errors
    /// [`TableError::ConditionFailed`] where one does: an earlier attempt of this write, or a later write. [`TableError::Occupied`] where an
    /// item of another key stands there.
    pub(crate) async fn put_item(
        &self,
        (shard, width): (ShardNumber, ShardCount),
        item: &Item,
        version: Version,
        lasts: Option<LeaseLasts>,
    ) -> Result<bool, TableError> {
        let shard_key = self.shard_key(&item.partition_key, shard)?;
        let place = (&item.partition_key, shard);
        let (condition, names, values) =
            self.claimed(Condition::absent_or_lower(version), Claim::OursOrNone, place).into_parts();
        let put = self
            .client
            .put_item()
            .table_name(&self.config.table_name)
            .set_item(Some(attributes::item_to_sdk(&self.config, shard_key, item, version, width)))
            .set_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .set_return_values_on_condition_check_failure(
                self.config.adopt_unsharded.then_some(ReturnValuesOnConditionCheckFailure::AllOld),
            );
        let Some(lasts) = lasts else { return self.append_outcome(put.send().await, item, shard).await };
        let (check, ran_out) = CheckLease::new(lasts);
        let sent = put.customize().interceptor(check).send().await;
        if ran_out.load(Ordering::Acquire) { Ok(false) } else { self.append_outcome(sent, item, shard).await }
    }

    /// A refusal says that the item is stored already, unless what stands is another key's.
    async fn append_outcome(
        &self,
        sent: Result<PutItemOutput, SdkError<PutItemError, HttpResponse>>,
        item: &Item,
        shard: ShardNumber,
    ) -> Result<bool, TableError> {
        let Err(error) = sent else { return Ok(true) };
        let key = &item.partition_key;
        if let Some(PutItemError::ConditionalCheckFailedException(failed)) = error.as_service_error()
            && self.config.adopt_unsharded
        {
            let is_ours = match failed.item() {
                Some(stands) => self.is_ours(stands, key, shard),
                // DynamoDB shows what stands; not every server that speaks its protocol does.
                None => {
                    let target = GetTarget { partition_key: key, sort_key: &item.sort_key, consistent: true };
                    self.get_one(target, shard).await?.is_some()
                }
            };
            return Err(if is_ours { TableError::ConditionFailed } else { TableError::Occupied });
        }
        Err(TableError::from_sdk(error))
    }

    /// Queries one shard for its part of a page, on the table or on an index with the table's own keys.
    pub(crate) async fn query_shard(
        &self,
        query: &PageQuery,
        request: &ShardPageRequest,
        index: Option<&str>,
    ) -> Result<ShardQueryPage, TableError> {
        let shard_key = self.shard_key(&query.partition_key, request.shard)?;
        let (condition, bounds) = key_condition(query, request);
        let mut call = self
            .client
            .query()
            .table_name(&self.config.table_name)
            .set_index_name(index.map(str::to_owned))
            .key_condition_expression(condition)
            .expression_attribute_names("#p", &self.config.partition_key_name)
            .expression_attribute_values(":p", AttributeValue::S(shard_key.clone()))
            .scan_index_forward(query.order == Order::Ascending)
            .consistent_read(query.consistent)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .limit(i32::try_from(request.limit).unwrap_or(i32::MAX));
        if !bounds.is_empty() {
            call = call.expression_attribute_names("#s", &self.config.sort_key_name);
        }
        for (name, value) in bounds {
            call = call.expression_attribute_values(name, value);
        }
        if let Some(after) = &request.after {
            call = call.set_exclusive_start_key(Some(self.key(shard_key, after)));
        }
        let answer = call.send().await.map_err(TableError::from_sdk)?;
        let next = match answer.last_evaluated_key {
            None => None,
            Some(key) => Some(attributes::sort_key_from_sdk(&self.config, key.get(&self.config.sort_key_name))?),
        };
        let items = answer
            .items
            .unwrap_or_default()
            .into_iter()
            .filter(|item| self.is_ours(item, &query.partition_key, request.shard))
            .map(|item| attributes::item_from_sdk(&self.config, &query.partition_key, item))
            .collect::<Result<_, _>>()?;
        let consumed = answer.consumed_capacity.and_then(|consumed| consumed.capacity_units).unwrap_or_default();
        Ok(ShardQueryPage { page: ShardPage { items, next }, consumed })
    }

    /// Reads one item from one shard, or from several in one request.
    pub(crate) async fn get_copies(
        &self,
        target: GetTarget<'_>,
        shards: &[ShardNumber],
    ) -> Result<FoundCopies, TableError> {
        let (found, unprocessed) = match shards {
            [] => Default::default(),
            [shard] => (self.get_one(target, *shard).await?.into_iter().collect(), Vec::new()),
            many => self.get_many(target, many).await?,
        };
        let mut copies = FoundCopies { newest: None, unprocessed };
        for item in found {
            let is_bare = self.is_bare(&item, target.partition_key);
            let stored = attributes::item_from_sdk(&self.config, target.partition_key, item)?;
            copies.newest = newer(copies.newest, Some(FoundCopy { stored, is_bare }));
        }
        Ok(copies)
    }

    pub(super) async fn get_one(
        &self,
        target: GetTarget<'_>,
        shard: ShardNumber,
    ) -> Result<Option<SdkItem>, TableError> {
        let key = self.key(self.shard_key(target.partition_key, shard)?, target.sort_key);
        let answer = self
            .client
            .get_item()
            .table_name(&self.config.table_name)
            .set_key(Some(key))
            .consistent_read(target.consistent)
            .send()
            .await
            .map_err(TableError::from_sdk)?;
        Ok(answer.item.filter(|item| self.is_ours(item, target.partition_key, shard)))
    }

    async fn get_many(
        &self,
        target: GetTarget<'_>,
        shards: &[ShardNumber],
    ) -> Result<(Vec<SdkItem>, Vec<ShardNumber>), TableError> {
        let (mut found, mut unprocessed) = (Vec::new(), Vec::new());
        for chunk in shards.chunks(BATCH_GET_KEYS) {
            let keys = chunk
                .iter()
                .map(|shard| Ok(self.key(self.shard_key(target.partition_key, *shard)?, target.sort_key)))
                .collect::<Result<Vec<_>, TableError>>()?;
            let wanted = KeysAndAttributes::builder()
                .set_keys(Some(keys))
                .consistent_read(target.consistent)
                .build()
                .map_err(|error| TableError::Rejected(error.to_string()))?;
            let answer = self
                .client
                .batch_get_item()
                .request_items(&self.config.table_name, wanted)
                .send()
                .await
                .map_err(TableError::from_sdk)?;
            let left = answer.unprocessed_keys.unwrap_or_default();
            let left: Vec<&SdkItem> = left.values().flat_map(KeysAndAttributes::keys).collect();
            for shard in chunk {
                let key = AttributeValue::S(self.shard_key(target.partition_key, *shard)?);
                if left.iter().any(|left| left.get(&self.config.partition_key_name) == Some(&key)) {
                    unprocessed.push(*shard);
                }
            }
            found.extend(answer.responses.unwrap_or_default().into_values().flatten().filter(|item| {
                let shard =
                    if self.is_bare(item, target.partition_key) { ShardNumber::UNSHARDED } else { ShardNumber::FIRST };
                self.is_ours(item, target.partition_key, shard)
            }));
        }
        Ok((found, unprocessed))
    }

    fn is_bare(&self, item: &SdkItem, key: &PartitionKey) -> bool {
        let stored = item.get(&self.config.partition_key_name).and_then(|value| value.as_s().ok());
        stored.is_some_and(|stored| stored == key.as_str())
    }

    /// Bytes of an item besides its attributes and its sort key.
    pub(crate) fn own_bytes(&self, key: &PartitionKey) -> usize {
        let names =
            self.config.partition_key_name.len() + self.config.sort_key_name.len() + LOGICAL_KEY.len() + VERSION.len();
        // The suffix of the shard key is about two bytes, a version of 25 digits 14, a width 3.
        names + 2 * key.as_str().len() + 16 + WIDTH.len() + 3
    }

    pub(crate) fn shard_key(&self, key: &PartitionKey, shard: ShardNumber) -> Result<String, TableError> {
        self.config
            .shard_keys
            .build(key, shard)
            .map_err(|error| TableError::Rejected(format!("the partition key with its shard suffix: {error}")))
    }

    pub(super) fn key(&self, shard_key: String, sort_key: &SortKey) -> SdkItem {
        HashMap::from([
            (self.config.partition_key_name.clone(), AttributeValue::S(shard_key)),
            (self.config.sort_key_name.clone(), attributes::sort_key_to_sdk(sort_key)),
        ])
    }
}

/// The key condition of a page query, and the values that it names besides the partition key.
///
/// Where the request has a place to start after and one to stop at, these lie within the query's own range, so the latter replaces its bound.
fn key_condition(query: &PageQuery, request: &ShardPageRequest) -> (&'static str, Vec<(&'static str, AttributeValue)>) {
    let value = attributes::sort_key_to_sdk;
    let until = request.after.as_ref().and(request.until.as_ref());
    let (prefix, from, to) = match (until, query.order) {
        (None, _) => (query.prefix.as_ref(), query.from.as_ref(), query.to.as_ref()),
        (Some(until), Order::Ascending) => (None, query.from.as_ref(), Some(until)),
        (Some(until), Order::Descending) => (None, Some(until), query.to.as_ref()),
    };
    match (prefix, from, to) {
        (Some(prefix), _, _) => ("#p = :p AND begins_with(#s, :x)", vec![(":x", AttributeValue::S(prefix.clone()))]),
        (None, Some(from), Some(to)) => {
            ("#p = :p AND #s BETWEEN :f AND :t", vec![(":f", value(from)), (":t", value(to))])
        }
        (None, Some(from), None) => ("#p = :p AND #s >= :f", vec![(":f", value(from))]),
        (None, None, Some(to)) => ("#p = :p AND #s <= :t", vec![(":t", value(to))]),
        (None, None, None) => ("#p = :p", Vec::new()),
    }
}
