//! Writes: one conditional request about an item, sent only while the lease is valid.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure};

use crate::protocol::copies::{Answer, Effect, Request};
use crate::protocol::merge::Stored;
use crate::table::attributes::{self, Content, SdkItem};
use crate::table::condition::Expression;
use crate::table::error::TableError;
use crate::table::items::GetTarget;
use crate::table::{Table, Tables, sending};
use crate::values::key::{PartitionKey, ShardCount, ShardNumber, SortKey};
use crate::values::value::{Attributes, Item};

/// Where a write finds or puts an item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) partition_key: &'a PartitionKey,
    pub(crate) sort_key: &'a SortKey,
    pub(crate) shard: ShardNumber,
    /// The write width under which the item is placed. Items and tombstones store it.
    pub(crate) width: ShardCount,
}

pub(crate) type LeaseLasts = Arc<dyn Fn() -> bool + Send + Sync>;

/// Checks the lease between signing and sending, because a process can be suspended at any time,
/// even while it signs.
#[derive(Clone)]
struct CheckLease {
    lasts: LeaseLasts,
    ran_out: Arc<AtomicBool>,
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

/// Completes and sends a request. Returns from the function if the request was applied, or not
/// sent, or failed. Otherwise evaluates to the copy that refused it, if the server returns it. This
/// is a macro because the SDK's operations have no common trait.
macro_rules! send {
    ($tables:expr, $request:expr, $error:ident, $condition:expr, $lasts:expr) => {{
        let (condition, names, values) = $condition.into_parts();
        let request = $request
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let sent = match $lasts {
            None => sending(request.send()).await,
            Some(lasts) => {
                let check = CheckLease { lasts, ran_out: Arc::default() };
                let sent = sending(request.customize().interceptor(check.clone()).send()).await;
                if check.ran_out.load(Ordering::Acquire) {
                    return Ok(Answer::Rejected);
                }
                sent
            }
        };
        let Err(error) = sent else { return Ok(Answer::Applied) };
        match error.as_service_error() {
            Some($error::ConditionalCheckFailedException(failed)) => failed.item().cloned(),
            _ => return Err($tables.failed(Table::Main, error)),
        }
    }};
}

impl Tables {
    /// Sends one conditional request about an item. `content` is the content of a put. With a
    /// lease, the request is sent only if the lease is still valid once the request is signed;
    /// otherwise the result is [`Answer::Rejected`]. [`TableError::Transient`] if there was no
    /// response: the request may have been applied, or may be applied later. After all other errors
    /// it was not applied.
    pub(crate) async fn send(
        &self,
        place: Place<'_>,
        request: &Request,
        content: Option<Content<'_>>,
        lasts: Option<LeaseLasts>,
    ) -> Result<Answer, TableError> {
        let condition = self.expression_of(request, place.shard);
        let (version, write_id, content) = match (&request.effect, content) {
            (Effect::Put { .. }, None) => {
                return Err(TableError::Rejected("a put without an item".into()));
            }
            (Effect::Put { version, write_id }, item) => (*version, write_id.as_deref(), item),
            (Effect::Bury { version, write_id, .. }, _) => (*version, write_id.as_deref(), None),
            (Effect::Remove, _) => return self.delete(place, condition, lasts).await,
            (Effect::Add { .. }, _) => {
                return Err(TableError::Rejected("an addition without what is added".into()));
            }
        };
        debug_assert!(
            content.is_none_or(|it| it.item.sort_key == *place.sort_key),
            "a request is about one item"
        );
        let shard_key = self.shard_key(place.partition_key, place.shard)?;
        #[cfg(feature = "test-switches")]
        if let (Some(model), Some(content)) = (&self.model, content) {
            let is_open = model.write(shard_key, content.item.write_units()).await;
            let full = TableError::Capacity(crate::policy::capacity::CapacityScope::KeyRange);
            return if is_open { Ok(Answer::Applied) } else { Err(full) };
        }
        let at = (place, shard_key);
        let mut stored = attributes::item_to_sdk(&self.config, content, at, (version, write_id));
        if let Some(late_until) = request.marks.late_until {
            attributes::set_mark(&self.config, &mut stored, late_until, &request.effect);
        }
        self.put(place, stored, condition, lasts).await
    }

    /// Adds to an item in place. Returns the item after the addition, if it was applied.
    pub(crate) async fn add(
        &self,
        place: Place<'_>,
        request: &Request,
        additions: &Attributes,
    ) -> Result<(Answer, Option<Stored<Item>>), TableError> {
        let Place { partition_key, sort_key, shard, .. } = place;
        let once = if let Effect::Add { once } = request.effect { once } else { None };
        let condition = self.expression(&request.condition, shard);
        let (update, condition) = condition.addition(once, additions);
        let key = self.key(self.shard_key(partition_key, shard)?, sort_key);
        let request = self
            .update(Table::Main, key, update, condition)
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let refused = match sending(request.send()).await {
            Ok(done) => {
                let item = done.attributes.unwrap_or_default();
                let item = attributes::item_from_sdk(&self.config, partition_key, item)?;
                return Ok((Answer::Applied, Some(item)));
            }
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                    failed.item().cloned()
                }
                _ => return Err(self.failed(Table::Main, error)),
            },
        };
        // If the server returns nothing, the caller reads all places of the item.
        if refused.is_none() {
            return Ok((Answer::Refused(None), None));
        }
        Ok((self.conclude(place, refused).await?, None))
    }

    pub(super) async fn put(
        &self,
        at: Place<'_>,
        stored: SdkItem,
        condition: Expression,
        lasts: Option<LeaseLasts>,
    ) -> Result<Answer, TableError> {
        let put = self.client.put_item().table_name(&self.config.table_name).set_item(Some(stored));
        let refused = send!(self, put, PutItemError, condition, lasts);
        self.conclude(at, refused).await
    }

    pub(super) async fn delete(
        &self,
        at: Place<'_>,
        condition: Expression,
        lasts: Option<LeaseLasts>,
    ) -> Result<Answer, TableError> {
        let key = self.key(self.shard_key(at.partition_key, at.shard)?, at.sort_key);
        let delete =
            self.client.delete_item().table_name(&self.config.table_name).set_key(Some(key));
        let refused = send!(self, delete, DeleteItemError, condition, lasts);
        self.conclude(at, refused).await
    }

    /// DynamoDB returns the copy that refused a condition. Not every server that implements its
    /// protocol does, so this reads the copy if necessary.
    async fn conclude(
        &self,
        at: Place<'_>,
        refused: Option<SdkItem>,
    ) -> Result<Answer, TableError> {
        let Place { partition_key, sort_key, shard, .. } = at;
        let stored = if refused.is_none() {
            let target = GetTarget { partition_key, sort_key, consistent: true };
            self.get_one(target, shard).await?
        } else {
            refused
        };
        let ours = stored.filter(|it| self.counts(it, partition_key, shard));
        Ok(Answer::Refused(ours.as_ref().map(attributes::copy_from_sdk).transpose()?))
    }
}
