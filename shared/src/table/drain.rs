//! Moving items: raw copies from one shard to another, and the deletion of what was copied.

use std::sync::atomic::Ordering;

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
};

use super::Tables;
use super::attributes::{self, LOGICAL_KEY, SdkItem, VERSION, WIDTH};
use super::condition::{Claim, Condition};
use super::error::TableError;
use super::point_writes::{CheckLease, LeaseLasts};
use crate::core::capacity::CapacityScope;
use crate::core::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::core::value::{value_size, write_units};
use crate::core::version::Version;

/// Seconds of five years: DynamoDB deletes nothing that expired longer ago. [DynamoDB time to live]
const LONGEST_EXPIRED: u64 = 5 * 365 * 86_400;

/// An item as it stands on a shard, with everything that is stored beside it.
#[derive(Debug, Clone)]
pub(crate) struct StoredCopy {
    pub(crate) sort_key: SortKey,
    pub(crate) version: Version,
    stored: SdkItem,
}

impl StoredCopy {
    /// Write units of storing it once.
    pub(crate) fn write_units(&self) -> u64 {
        let bytes = self.stored.iter().map(|(name, value)| {
            // An attribute that holds a value of a kind that is not known counts for its name.
            name.len() + attributes::from_sdk(value.clone()).map_or(0, |value| value_size(&value))
        });
        write_units(bytes.sum())
    }
}

/// What became of a step of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// It was applied.
    Done,
    /// What stands at home decides: a copy as new stands there already, or, for a deletion, none does.
    Home,
    /// The original is not what was read; read it again.
    Changed,
    /// Another write was at one of the two; try again.
    Conflict,
    /// Throttled; try again later.
    Throttled(CapacityScope),
    /// At home stands an item of another key.
    Occupied,
    /// The lease of what was known of the drain ran out before the request was sent: nothing was sent.
    LeaseOver,
}

impl Tables {
    /// A page of a shard's items, in order, strongly consistent; and the sort key to go on after.
    pub(crate) async fn scan_shard(
        &self,
        key: &PartitionKey,
        shard: ShardNumber,
        after: Option<&SortKey>,
        limit: u32,
    ) -> Result<(Vec<StoredCopy>, Option<SortKey>), TableError> {
        let shard_key = self.shard_key(key, shard)?;
        let answer = self
            .client
            .query()
            .table_name(&self.config.table_name)
            .key_condition_expression("#p = :p")
            .expression_attribute_names("#p", &self.config.partition_key_name)
            .expression_attribute_values(":p", AttributeValue::S(shard_key.clone()))
            .consistent_read(true)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .set_exclusive_start_key(after.map(|after| self.key(shard_key, after)))
            .send()
            .await
            .map_err(TableError::from_sdk)?;
        let sort_key =
            |item: &SdkItem| attributes::sort_key_from_sdk(&self.config, item.get(&self.config.sort_key_name));
        let next = answer.last_evaluated_key.as_ref().map(sort_key).transpose()?;
        let copy = |stored: SdkItem| self.stored_copy(stored);
        let ours = answer.items.unwrap_or_default().into_iter().filter(|item| self.is_ours(item, key, shard));
        let copies = ours.map(copy).collect::<Result<_, _>>()?;
        Ok((copies, next))
    }

    /// What stands of an item on a shard.
    pub(crate) async fn stored_on(
        &self,
        key: &PartitionKey,
        sort_key: &SortKey,
        shard: ShardNumber,
    ) -> Result<Option<StoredCopy>, TableError> {
        let target = super::GetTarget { partition_key: key, sort_key, consistent: true };
        self.get_one(target, shard).await?.map(|stored| self.stored_copy(stored)).transpose()
    }

    /// Copies an item to its home under a width, its version kept, if the original is still as it was read and nothing as new stands at home.
    pub(crate) async fn copy_home(
        &self,
        key: &PartitionKey,
        copy: &StoredCopy,
        (from, home, width): (ShardNumber, ShardNumber, ShardCount),
        lasts: LeaseLasts,
    ) -> Result<Moved, TableError> {
        let mut stored = copy.stored.clone();
        stored.insert(self.config.partition_key_name.clone(), AttributeValue::S(self.shard_key(key, home)?));
        stored.insert(LOGICAL_KEY.into(), AttributeValue::S(key.as_str().to_owned()));
        attributes::set_width(&self.config, &mut stored, width);
        let condition = match (copy.version == Version::NONE, from == ShardNumber::UNSHARDED) {
            // What another program wrote has no version to compare. Of two such copies the bare one is what it goes on writing; of two on
            // shards either may be.
            (true, true) => Condition::absent_or_unversioned(),
            (true, false) => Condition::absent(&self.config.partition_key_name),
            (false, _) => Condition::absent_or_lower(copy.version),
        };
        let (condition, names, values) = self.claimed(condition, Claim::OursOrNone, (key, home)).into_parts();
        let put = Put::builder()
            .table_name(&self.config.table_name)
            .set_item(Some(stored))
            .set_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(wrong)?;
        let check = self.check(key, copy, from, self.unchanged(key, copy, from))?;
        self.move_by(
            TransactWriteItem::builder().put(put).build(),
            TransactWriteItem::builder().condition_check(check).build(),
            lasts,
            (key, home),
        )
        .await
    }

    /// Deletes an original, if it is still as it was read and its home has it in this version or a later one.
    pub(crate) async fn delete_old_copy(
        &self,
        key: &PartitionKey,
        copy: &StoredCopy,
        (from, home): (ShardNumber, ShardNumber),
        lasts: LeaseLasts,
    ) -> Result<Moved, TableError> {
        let name = &self.config.partition_key_name;
        let at_home = match (copy.version == Version::NONE, from == ShardNumber::UNSHARDED) {
            (true, true) => Condition::same_or_versioned(&copy.stored, &self.not_compared()).present(name),
            (true, false) => Condition::default().present(name),
            (false, _) => Condition::at_least(copy.version),
        };
        let check = self.check(key, copy, home, self.claimed(at_home, Claim::Ours, (key, home)))?;
        let (condition, names, values) = self.unchanged(key, copy, from).into_parts();
        let delete = Delete::builder()
            .table_name(&self.config.table_name)
            .set_key(Some(self.key(self.shard_key(key, from)?, &copy.sort_key)))
            .set_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .build()
            .map_err(wrong)?;
        self.move_by(
            TransactWriteItem::builder().condition_check(check).build(),
            TransactWriteItem::builder().delete(delete).build(),
            lasts,
            (key, home),
        )
        .await
    }

    /// When the item's time to live ends, in epoch seconds. What ended more than five years ago DynamoDB takes for no such time.
    pub(crate) fn expires_at(&self, copy: &StoredCopy, now_seconds: u64) -> Option<u64> {
        let value = copy.stored.get(self.config.ttl_attribute.as_ref()?)?;
        let at: u64 = value.as_n().ok()?.parse().ok()?;
        (at > now_seconds.saturating_sub(LONGEST_EXPIRED)).then_some(at)
    }

    /// Deletes an original that has expired, if it is still as it was read.
    pub(crate) async fn delete_expired(
        &self,
        key: &PartitionKey,
        copy: &StoredCopy,
        from: ShardNumber,
        lasts: LeaseLasts,
    ) -> Result<Moved, TableError> {
        let mut unchanged = self.unchanged(key, copy, from);
        if let Some(name) = &self.config.ttl_attribute
            && let Some(at) = copy.stored.get(name)
        {
            // Another program may have prolonged it, and left the version.
            unchanged = unchanged.with("#t", name, at.clone());
        }
        let (condition, names, values) = unchanged.into_parts();
        let (check, ran_out) = CheckLease::new(lasts);
        let delete = self
            .client
            .delete_item()
            .table_name(&self.config.table_name)
            .set_key(Some(self.key(self.shard_key(key, from)?, &copy.sort_key)))
            .set_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        let sent = delete.customize().interceptor(check).send().await;
        if ran_out.load(Ordering::Acquire) {
            return Ok(Moved::LeaseOver);
        }
        match sent.map_err(TableError::from_sdk) {
            Ok(_) => Ok(Moved::Done),
            Err(TableError::ConditionFailed) => Ok(Moved::Changed),
            Err(TableError::Conflict) => Ok(Moved::Conflict),
            Err(TableError::Capacity(scope)) => Ok(Moved::Throttled(scope)),
            Err(error) => Err(error),
        }
    }

    /// A condition on what stands of the item on a shard.
    fn check(
        &self,
        key: &PartitionKey,
        copy: &StoredCopy,
        shard: ShardNumber,
        condition: Condition,
    ) -> Result<ConditionCheck, TableError> {
        let (condition, names, values) = condition.into_parts();
        ConditionCheck::builder()
            .table_name(&self.config.table_name)
            .set_key(Some(self.key(self.shard_key(key, shard)?, &copy.sort_key)))
            .set_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(wrong)
    }

    fn stored_copy(&self, stored: SdkItem) -> Result<StoredCopy, TableError> {
        let sort_key = attributes::sort_key_from_sdk(&self.config, stored.get(&self.config.sort_key_name))?;
        let version = attributes::version_from_sdk(stored.get(VERSION))?;
        Ok(StoredCopy { sort_key, version, stored })
    }

    fn unchanged(&self, key: &PartitionKey, copy: &StoredCopy, shard: ShardNumber) -> Condition {
        let same = if copy.version == Version::NONE {
            Condition::same_unversioned(&copy.stored, &self.not_compared()).present(&self.config.partition_key_name)
        } else {
            Condition::exactly(copy.version)
        };
        self.claimed(same, Claim::Ours, (key, shard))
    }

    /// Attributes that an original and its copy need not have in common, or have by their key.
    fn not_compared(&self) -> [&str; 4] {
        [&self.config.partition_key_name, &self.config.sort_key_name, LOGICAL_KEY, WIDTH]
    }

    /// One transaction: what concerns the home first, then what concerns the original.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other errors are the caller's")]
    async fn move_by(
        &self,
        home: TransactWriteItem,
        original: TransactWriteItem,
        lasts: LeaseLasts,
        place: (&PartitionKey, ShardNumber),
    ) -> Result<Moved, TableError> {
        let (check, ran_out) = CheckLease::new(lasts);
        let transaction = self.client.transact_write_items().transact_items(home).transact_items(original);
        let sent = transaction.customize().interceptor(check).send().await;
        if ran_out.load(Ordering::Acquire) {
            return Ok(Moved::LeaseOver);
        }
        let Err(error) = sent else { return Ok(Moved::Done) };
        let (reasons, foreign) = match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                let stands = cancelled.cancellation_reasons().first().and_then(|reason| reason.item());
                let foreign = stands.is_some_and(|item| !self.is_ours(item, place.0, place.1));
                let reason =
                    |index: usize| cancelled.cancellation_reasons().get(index).and_then(|reason| reason.code());
                ([reason(0).unwrap_or_default().to_owned(), reason(1).unwrap_or_default().to_owned()], foreign)
            }
            _ => {
                return match TableError::from_sdk(error) {
                    TableError::Capacity(scope) => Ok(Moved::Throttled(scope)),
                    TableError::Conflict => Ok(Moved::Conflict),
                    other => Err(other),
                };
            }
        };
        let is = |code: &str| reasons.iter().any(|reason| reason == code);
        let [at_home, at_original] = &reasons;
        if at_original == "ConditionalCheckFailed" {
            Ok(Moved::Changed)
        } else if at_home == "ConditionalCheckFailed" {
            Ok(if foreign { Moved::Occupied } else { Moved::Home })
        } else if is("ThrottlingError") || is("ProvisionedThroughputExceeded") {
            Ok(Moved::Throttled(CapacityScope::Unknown))
        } else if is("TransactionConflict") {
            Ok(Moved::Conflict)
        } else {
            Err(TableError::Rejected(format!("a transaction of a drain was cancelled: {}", reasons.join(", "))))
        }
    }
}

fn wrong(error: aws_sdk_dynamodb::error::BuildError) -> TableError {
    TableError::Rejected(error.to_string())
}
