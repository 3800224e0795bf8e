//! Point writes: one conditional operation, or a transaction of several, sent only while the lease lasts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::{BoxError, SdkError};
use aws_sdk_dynamodb::operation::delete_item::builders::DeleteItemFluentBuilder;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, CancellationReason, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure,
    TransactWriteItem,
};

use super::Tables;
use super::attributes::{self, SdkItem, VERSION, WRITE_ID};
use super::condition::{Claim, Condition};
use super::error::TableError;
use super::items::GetTarget;
use crate::core::capacity::CapacityScope;
use crate::core::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::core::point_write::{Copy, Demand, Effect, Part, Refusal};
use crate::core::value::Item;
use crate::core::version::Version;

/// The most parts of one transaction. [DynamoDB limits]
const TRANSACTION_PARTS: usize = 100;

/// An item to put, with what the product stores beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewItem<'a> {
    pub(crate) item: &'a Item,
    pub(crate) version: Version,
    /// The write width in force.
    pub(crate) width: ShardCount,
    pub(crate) write_id: Option<&'a str>,
}

/// What a point write is about: the key, and what a put brings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointTarget<'a> {
    pub(crate) partition_key: &'a PartitionKey,
    pub(crate) sort_key: &'a SortKey,
    pub(crate) new: Option<NewItem<'a>>,
}

/// What became of a point write that had an answer, or was not sent.
#[derive(Debug)]
pub(crate) enum PointAnswer {
    Applied,
    /// A condition did not hold; nothing was changed.
    Refused(Refusal),
    /// Another transaction was at one of the items; nothing was changed.
    Conflict,
    /// Throttled on this shard, with the limit where it was told; nothing was changed.
    Throttled(ShardNumber, CapacityScope),
    /// The lease ran out while the request was signed; nothing was sent.
    NotSent,
}

/// Says whether the lease that a request stands under still lasts.
pub(crate) type LeaseLasts = Arc<dyn Fn() -> bool + Send + Sync>;

/// Looks at the lease between signing and sending: a process can be frozen at any time, also while it signs.
pub(super) struct CheckLease {
    lasts: LeaseLasts,
    ran_out: Arc<AtomicBool>,
}

impl CheckLease {
    /// With the flag that it raises where the lease has run out.
    pub(super) fn new(lasts: LeaseLasts) -> (Self, Arc<AtomicBool>) {
        let ran_out = Arc::new(AtomicBool::new(false));
        (Self { lasts, ran_out: Arc::clone(&ran_out) }, ran_out)
    }
}

impl fmt::Debug for CheckLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckLease").field("ran_out", &self.ran_out).finish_non_exhaustive()
    }
}

impl Intercept for CheckLease {
    fn name(&self) -> &'static str {
        "CheckLease"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if (self.lasts)() {
            return Ok(());
        }
        self.ran_out.store(true, Ordering::Release);
        Err("the lease of the view ran out before the request was sent".into())
    }
}

impl Tables {
    /// Carries out the parts of a point write, all or none.
    pub(crate) async fn write_point(
        &self,
        target: PointTarget<'_>,
        parts: &[Part],
        lasts: LeaseLasts,
    ) -> Result<PointAnswer, TableError> {
        let (check, ran_out) = CheckLease::new(lasts);
        let answer = match parts {
            [part] => self.write_single(target, *part, check).await,
            parts => self.write_transaction(target, parts, check).await,
        };
        if ran_out.load(Ordering::Acquire) { Ok(PointAnswer::NotSent) } else { answer }
    }

    /// Learns which limit throttled a transaction, by a single write that can change nothing: a deletion of what is absent. `None`
    /// where it was not throttled.
    pub(crate) async fn learn_limit(
        &self,
        target: PointTarget<'_>,
        shard: ShardNumber,
    ) -> Result<Option<CapacityScope>, TableError> {
        let answer = self
            .delete_builder(target, shard)?
            .condition_expression("attribute_not_exists(#p)")
            .expression_attribute_names("#p", &self.config.partition_key_name)
            .send()
            .await
            .map_err(TableError::from_sdk);
        match answer {
            Ok(_) | Err(TableError::ConditionFailed) => Ok(None),
            Err(TableError::Capacity(scope)) => Ok(Some(scope)),
            Err(error) => Err(error),
        }
    }

    async fn write_single(
        &self,
        target: PointTarget<'_>,
        part: Part,
        check: CheckLease,
    ) -> Result<PointAnswer, TableError> {
        let sent = match (part.effect, target.new) {
            (Effect::Put, Some(new)) => {
                let put = self.put_builder(new, part, target)?.customize().interceptor(check).send().await;
                match put {
                    Ok(_) => Ok(()),
                    Err(error) => Err(self.refused_put(target, part, error).await),
                }
            }
            (Effect::Delete, _) => {
                let (condition, names, values) = self.condition(target, part).into_parts();
                let delete = self
                    .delete_builder(target, part.shard)?
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values);
                let deleted = delete.customize().interceptor(check).send().await;
                deleted.map(drop).map_err(|error| Err(TableError::from_sdk(error)))
            }
            (Effect::Put | Effect::Check, _) => {
                return Err(TableError::Rejected("a point write of one shard that writes nothing".into()));
            }
        };
        match sent {
            Ok(()) => Ok(PointAnswer::Applied),
            Err(Ok(refusal)) => Ok(PointAnswer::Refused(refusal)),
            Err(Err(TableError::Capacity(scope))) => Ok(PointAnswer::Throttled(part.shard, scope)),
            Err(Err(TableError::Conflict)) => Ok(PointAnswer::Conflict),
            Err(Err(error)) => Err(error),
        }
    }

    async fn refused_put(
        &self,
        target: PointTarget<'_>,
        part: Part,
        error: SdkError<PutItemError, HttpResponse>,
    ) -> Result<Refusal, TableError> {
        let Some(PutItemError::ConditionalCheckFailedException(failed)) = error.as_service_error() else {
            return Err(TableError::from_sdk(error));
        };
        let copy = |stored: &SdkItem| self.copy(stored, target.partition_key, part.shard);
        let mut found = failed.item().map(copy).transpose()?;
        // DynamoDB shows what stands; not every server that speaks its protocol does.
        if found.is_none() && part.demand != Demand::StandsLower {
            let target = GetTarget { partition_key: target.partition_key, sort_key: target.sort_key, consistent: true };
            found = self.get_one(target, part.shard).await?.as_ref().map(copy).transpose()?;
        }
        Ok(Refusal(vec![(part.shard, found)]))
    }

    async fn write_transaction(
        &self,
        target: PointTarget<'_>,
        parts: &[Part],
        check: CheckLease,
    ) -> Result<PointAnswer, TableError> {
        if parts.len() > TRANSACTION_PARTS {
            return Err(TableError::Rejected(format!(
                "the item may be on {} shards; a transaction takes {TRANSACTION_PARTS}: settle or shrink the key",
                parts.len()
            )));
        }
        let items = parts.iter().map(|part| self.transact_item(target, *part)).collect::<Result<Vec<_>, _>>()?;
        let sent = self
            .client
            .transact_write_items()
            .set_transact_items(Some(items))
            .customize()
            .interceptor(check)
            .send()
            .await;
        let error = match sent {
            Ok(_) => return Ok(PointAnswer::Applied),
            Err(error) => error,
        };
        let reasons = match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                cancelled.cancellation_reasons().to_vec()
            }
            _ => {
                return match (TableError::from_sdk(error), parts.first()) {
                    (TableError::Capacity(scope), Some(part)) => Ok(PointAnswer::Throttled(part.shard, scope)),
                    (TableError::Conflict, _) => Ok(PointAnswer::Conflict),
                    (TableError::Unsupported(_), _) => Err(TableError::Unsupported("TransactWriteItems".into())),
                    (error, _) => Err(error),
                };
            }
        };
        self.cancelled(target.partition_key, parts, &reasons)
    }

    fn transact_item(&self, target: PointTarget<'_>, part: Part) -> Result<TransactWriteItem, TableError> {
        let wrong = |error: aws_sdk_dynamodb::error::BuildError| TableError::Rejected(error.to_string());
        let table = &self.config.table_name;
        let built = TransactWriteItem::builder();
        let all_old = ReturnValuesOnConditionCheckFailure::AllOld;
        let (condition, names, values) = self.condition(target, part).into_parts();
        Ok(match (part.effect, target.new) {
            (Effect::Put, Some(new)) => {
                let put = Put::builder()
                    .table_name(table)
                    .set_item(Some(self.stored(new, part.shard)?))
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .return_values_on_condition_check_failure(all_old);
                built.put(put.build().map_err(wrong)?)
            }
            (Effect::Delete, _) => {
                let key = self.key(self.shard_key(target.partition_key, part.shard)?, target.sort_key);
                let delete = Delete::builder()
                    .table_name(table)
                    .set_key(Some(key))
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .return_values_on_condition_check_failure(all_old);
                built.delete(delete.build().map_err(wrong)?)
            }
            (Effect::Put | Effect::Check, _) => {
                let key = self.key(self.shard_key(target.partition_key, part.shard)?, target.sort_key);
                let check = ConditionCheck::builder()
                    .table_name(table)
                    .set_key(Some(key))
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .return_values_on_condition_check_failure(all_old);
                built.condition_check(check.build().map_err(wrong)?)
            }
        }
        .build())
    }

    fn put_builder(
        &self,
        new: NewItem<'_>,
        part: Part,
        target: PointTarget<'_>,
    ) -> Result<PutItemFluentBuilder, TableError> {
        debug_assert_eq!(target.sort_key, &new.item.sort_key, "a point write is about one item");
        let (condition, names, values) = self.condition(target, part).into_parts();
        Ok(self
            .client
            .put_item()
            .table_name(&self.config.table_name)
            .set_item(Some(self.stored(new, part.shard)?))
            .set_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld))
    }

    fn delete_builder(
        &self,
        target: PointTarget<'_>,
        shard: ShardNumber,
    ) -> Result<DeleteItemFluentBuilder, TableError> {
        let key = self.key(self.shard_key(target.partition_key, shard)?, target.sort_key);
        Ok(self.client.delete_item().table_name(&self.config.table_name).set_key(Some(key)))
    }

    fn stored(&self, new: NewItem<'_>, shard: ShardNumber) -> Result<SdkItem, TableError> {
        let shard_key = self.shard_key(&new.item.partition_key, shard)?;
        let mut stored = attributes::item_to_sdk(&self.config, shard_key, new.item, new.version, new.width);
        if let Some(id) = new.write_id {
            stored.insert(WRITE_ID.into(), AttributeValue::S(id.to_owned()));
        }
        Ok(stored)
    }

    /// What a part demands of its shard, as an expression.
    fn condition(&self, target: PointTarget<'_>, part: Part) -> Condition {
        let name = &self.config.partition_key_name;
        let place = (target.partition_key, part.shard);
        let version = target.new.map_or(Version::NONE, |new| new.version);
        match part.demand {
            Demand::Nothing => self.claimed(Condition::default(), Claim::OursOrNone, place),
            Demand::Absent if part.effect == Effect::Check => self.none_stands(target.partition_key, part.shard),
            Demand::Absent => Condition::absent(name),
            Demand::AbsentOrLower => self.claimed(Condition::absent_or_lower(version), Claim::OursOrNone, place),
            Demand::StandsLower => self.claimed(Condition::stands_lower(version, name), Claim::Ours, place),
        }
    }

    fn copy(&self, stored: &SdkItem, key: &PartitionKey, shard: ShardNumber) -> Result<Copy, TableError> {
        let version = attributes::version_from_sdk(stored.get(VERSION))?;
        let write_id = stored.get(WRITE_ID).and_then(|id| id.as_s().ok()).cloned();
        Ok(Copy { version, write_id, is_ours: self.is_ours(stored, key, shard) })
    }

    /// Why a transaction was cancelled. What stands matters most: another attempt would meet it again.
    fn cancelled(
        &self,
        key: &PartitionKey,
        parts: &[Part],
        reasons: &[CancellationReason],
    ) -> Result<PointAnswer, TableError> {
        let mut refusal = Refusal::default();
        let (mut conflict, mut throttled, mut other) = (false, None, None);
        for (part, reason) in parts.iter().zip(reasons) {
            match reason.code().unwrap_or_default() {
                "ConditionalCheckFailed" => {
                    let found = reason.item().map(|stored| self.copy(stored, key, part.shard)).transpose()?;
                    refusal.0.push((part.shard, found));
                }
                "TransactionConflict" => conflict = true,
                "ThrottlingError" | "ProvisionedThroughputExceeded" => throttled = throttled.or(Some(part.shard)),
                "None" | "" => {}
                code => other = Some(format!("{code}: {}", reason.message().unwrap_or("no message"))),
            }
        }
        match (other, throttled) {
            _ if !refusal.0.is_empty() => Ok(PointAnswer::Refused(refusal)),
            (Some(reason), _) => Err(TableError::Rejected(reason)),
            (None, Some(shard)) => Ok(PointAnswer::Throttled(shard, CapacityScope::Unknown)),
            (None, None) if conflict => Ok(PointAnswer::Conflict),
            (None, None) => Err(TableError::Transient("a transaction was cancelled without a reason".into())),
        }
    }
}
