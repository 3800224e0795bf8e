//! Writes of items: one conditional request, sent only while the lease is valid.
//!
//! On a shard whose stored key is not the key itself, only items with a logical key count. One that
//! another program has stored there is as if there were none.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};

use crate::protocol::applied::{Once, youngest_too_old};
use crate::protocol::copies::{Answer, Condition, Effect, Request};
use crate::protocol::merge::Stored;
use crate::protocol::names::{
    APPLIED, APPLIED_BEFORE, BEGAN, DELETED, IDS, KNOWN_SINCE, LATE_UNTIL, LOGICAL_KEY, VERSION,
    WRITE_ID,
};
use crate::protocol::version::Version;
use crate::table::attributes::{self, Content, SdkItem, number};
use crate::table::error::TableError;
use crate::table::items::GetTarget;
use crate::table::{Expression, Table, Tables, sending};
use crate::values::key::{PartitionKey, ShardCount, ShardKeys, ShardNumber, SortKey};
use crate::values::value::{Attributes, Item};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) partition_key: &'a PartitionKey,
    pub(crate) sort_key: &'a SortKey,
    pub(crate) shard: ShardNumber,
    /// The item is placed under it. Items and tombstones store it.
    pub(crate) width: ShardCount,
}

pub(crate) type LeaseLasts = Arc<dyn Fn() -> bool + Send + Sync>;

/// Checks the lease between signing and sending, because a process can be suspended at any time.
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

enum NotApplied {
    /// The lease ran out before it was sent.
    NotSent,
    /// This is stored, if the server returns it.
    Refused(Option<SdkItem>),
}

/// Sends a conditional request. Evaluates to its response or to [`NotApplied`], and returns from
/// the function with any other error. A macro, because the SDK's operations have no common trait.
macro_rules! send {
    ($tables:expr, $request:expr, $error:ident, $lasts:expr) => {{
        let request = $request
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let (sent, ran_out) = match $lasts {
            // An interceptor costs every warm write a few per cent.
            None => (sending(request.send()).await, false),
            Some(lasts) => {
                let check = CheckLease { lasts, ran_out: Arc::default() };
                let sent = sending(request.customize().interceptor(check.clone()).send()).await;
                (sent, check.ran_out.load(Ordering::Acquire))
            }
        };
        match sent {
            Ok(done) => Ok(done),
            Err(_) if ran_out => Err(NotApplied::NotSent),
            Err(error) => match error.as_service_error() {
                Some($error::ConditionalCheckFailedException(failed)) => {
                    Err(NotApplied::Refused(failed.item().cloned()))
                }
                _ => return Err($tables.failed(Table::Main, error)),
            },
        }
    }};
}

impl Tables {
    /// Sends one conditional request about an item. `content` is the content of a put. With a
    /// lease, the request is sent only if that is still valid once the request is signed; otherwise
    /// the result is [`Answer::Rejected`]. [`TableError::Transient`] if there was no response: the
    /// request may be applied, now or later. After all other errors it was not applied.
    pub(crate) async fn send(
        &self,
        place: Place<'_>,
        request: &Request,
        content: Option<Content<'_>>,
        lasts: Option<LeaseLasts>,
    ) -> Result<Answer, TableError> {
        let (version, write_id, content) = match (&request.effect, content) {
            (Effect::Put { .. }, None) | (Effect::Add { .. }, _) => {
                return Err(TableError::Rejected("a write without its content".into()));
            }
            (Effect::Put { version, write_id }, item) => (*version, write_id.as_deref(), item),
            (Effect::Bury { version, write_id, .. }, _) => (*version, write_id.as_deref(), None),
            (Effect::Remove, _) => {
                return self.delete(place, self.condition(request, place.shard), lasts).await;
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
        if let Some(late_until) = request.marks.late_until.map(number) {
            // A tombstone that hides nothing expires once no late duplicate may arrive.
            let ttl = self.config.ttl_attribute.as_ref();
            if let (Some(ttl), Effect::Bury { may_expire: true, .. }) = (ttl, &request.effect) {
                stored.insert(ttl.clone(), late_until.clone());
            }
            stored.insert(LATE_UNTIL.to_owned(), late_until);
        }
        self.put(place, stored, self.condition(request, place.shard), lasts).await
    }

    fn condition(&self, request: &Request, shard: ShardNumber) -> Expression {
        let condition = self.expression(&request.condition, shard);
        let lost_until = request.marks.lost_until;
        // Where nothing is stored, there is no mark that must stay.
        if lost_until == u64::MAX || request.condition == Condition::Unchanged(None) {
            return condition;
        }
        let allows = Expression::of("attribute_not_exists(#m) OR #m <= :m");
        condition.and(allows.name("#m", LATE_UNTIL).numbers([(":m", lost_until)]))
    }

    /// Returns the item after the addition, if it was applied.
    pub(crate) async fn add(
        &self,
        place: Place<'_>,
        request: &Request,
        additions: &Attributes,
    ) -> Result<(Answer, Option<Stored<Item>>), TableError> {
        let Place { partition_key, sort_key, shard, .. } = place;
        let once = if let Effect::Add { once } = request.effect { once } else { None };
        let condition = self.expression(&request.condition, shard);
        let key = self.key(self.shard_key(partition_key, shard)?, sort_key);
        let addition = self.update(Table::Main, key, condition.addition(once, additions));
        let addition = addition.return_values(ReturnValue::AllNew);
        match send!(self, addition, UpdateItemError, None) {
            Ok(done) => {
                let item = done.attributes.unwrap_or_default();
                let item = attributes::item_from_sdk(&self.config, partition_key, item)?;
                Ok((Answer::Applied, Some(item)))
            }
            // The caller reads all places of the item.
            Err(NotApplied::Refused(None)) => Ok((Answer::Refused(None), None)),
            Err(reason) => Ok((self.conclude(place, reason).await?, None)),
        }
    }

    pub(super) async fn put(
        &self,
        at: Place<'_>,
        stored: SdkItem,
        condition: Expression,
        lasts: Option<LeaseLasts>,
    ) -> Result<Answer, TableError> {
        let put = self
            .client
            .put_item()
            .table_name(&self.config.table_name)
            .set_item(Some(stored))
            .set_expression_attribute_values(Expression::some_values(condition.values))
            .set_expression_attribute_names(Some(condition.names))
            .condition_expression(condition.condition);
        match send!(self, put, PutItemError, lasts) {
            Ok(_) => Ok(Answer::Applied),
            Err(reason) => self.conclude(at, reason).await,
        }
    }

    pub(super) async fn delete(
        &self,
        at: Place<'_>,
        condition: Expression,
        lasts: Option<LeaseLasts>,
    ) -> Result<Answer, TableError> {
        let key = self.key(self.shard_key(at.partition_key, at.shard)?, at.sort_key);
        match send!(self, self.deletion(key, condition), DeleteItemError, lasts) {
            Ok(_) => Ok(Answer::Applied),
            Err(reason) => self.conclude(at, reason).await,
        }
    }

    /// DynamoDB returns the copy that refused a condition. If a server does not, this reads it.
    async fn conclude(&self, at: Place<'_>, reason: NotApplied) -> Result<Answer, TableError> {
        let Place { partition_key, sort_key, shard, .. } = at;
        let stored = match reason {
            NotApplied::NotSent => return Ok(Answer::Rejected),
            NotApplied::Refused(None) => {
                let target = GetTarget { partition_key, sort_key, consistent: true };
                self.get_one(target, shard).await?
            }
            NotApplied::Refused(stored) => stored,
        };
        let ours = stored.filter(|it| self.counts(it, partition_key, shard));
        Ok(Answer::Refused(ours.as_ref().map(attributes::copy_from_sdk).transpose()?))
    }

    /// An item that another program stored has no version, which is below all versions.
    pub(super) fn expression(&self, condition: &Condition, shard: ShardNumber) -> Expression {
        let proof = self.proof(shard);
        match condition {
            Condition::AbsentOrBelow(version) => {
                Expression::of("attribute_not_exists(#v) OR #v < :v").version(*version)
            }
            Condition::Buries { version, write_id: None } => {
                let text = "(attribute_not_exists(#v) OR #v < :v) AND attribute_not_exists(#w)";
                Expression::of(text).version(*version).name("#w", WRITE_ID)
            }
            Condition::Buries { version, write_id: Some(write_id) } => {
                let text = "attribute_not_exists(#p) OR ((attribute_not_exists(#v) OR #v < :v) AND #w = :w)";
                let buries = Expression::of(text).name("#p", proof).version(*version);
                buries.name("#w", WRITE_ID).value(":w", AttributeValue::S(write_id.clone()))
            }
            Condition::Unchanged(None) => Expression::absent(proof),
            Condition::Unchanged(Some(Version::NONE)) => {
                Expression::of("attribute_exists(#p) AND attribute_not_exists(#v)")
                    .names([("#p", proof), ("#v", VERSION)])
            }
            Condition::Unchanged(Some(version)) => Expression::of("#v = :v").version(*version),
            Condition::AtLeast { from, once } => Expression::at_least(*from, *once),
        }
    }

    /// Every item on a shard that counts has this attribute.
    fn proof(&self, shard: ShardNumber) -> &str {
        let has_logical_key =
            self.config.shard_keys == ShardKeys::KeyFirst && shard != ShardNumber::FIRST;
        if has_logical_key { LOGICAL_KEY } else { &self.config.partition_key_name }
    }

    pub(super) fn counts(&self, stored: &SdkItem, key: &PartitionKey, shard: ShardNumber) -> bool {
        let is_ours = self.proof(shard) != LOGICAL_KEY
            || stored.get(LOGICAL_KEY).and_then(|value| value.as_s().ok()).map(String::as_str)
                == Some(key.as_str());
        if !is_ours {
            metrics::counter!("ShardingForeignItems").increment(1);
        }
        is_ours
    }
}

impl Expression {
    fn version(self, version: Version) -> Self {
        self.name("#v", VERSION).value(":v", number(version))
    }

    fn and(mut self, other: Self) -> Self {
        self.condition = format!("({}) AND ({})", self.condition, other.condition);
        self.names.extend(other.names);
        self.values.extend(other.values);
        self
    }

    fn at_least(from: Version, once: Option<Once>) -> Self {
        let is_stored =
            Self::of("#v >= :v AND attribute_not_exists(#d)").version(from).name("#d", DELETED);
        let Some(once) = once else { return is_stored };
        let taken =
            "#o.#b > :b AND #o.#s <= :s AND NOT contains(#y, :id) AND NOT contains(#o.#i, :id)";
        let taken = Self::of(taken)
            .names([("#y", APPLIED), ("#o", APPLIED_BEFORE), ("#i", IDS)])
            .names([("#b", BEGAN), ("#s", KNOWN_SINCE)])
            .numbers([(":b", youngest_too_old(once)), (":s", once.sent_at)])
            .value(":id", AttributeValue::B(Blob::new(once.id.0)));
        is_stored.and(taken)
    }

    pub(super) fn absent(partition_key_name: &str) -> Self {
        Self::of("attribute_not_exists(#p)").name("#p", partition_key_name)
    }

    /// As [`adding`](Self::adding), for an item, whose version it raises. Call it on a condition on
    /// the version.
    fn addition(self, once: Option<Once>, additions: &Attributes) -> Self {
        let added = additions.iter();
        let added = added.map(|(name, value)| (name.as_str(), attributes::to_sdk(value.clone())));
        let mut addition = self.adding(added).value(":step", number(Version::STEP));
        addition.update = format!("SET #v = #v + :step {}", addition.update);
        let Some(once) = once else { return addition };
        addition.update += ", #y :ids";
        addition.value(":ids", AttributeValue::Bs(vec![Blob::new(once.id.0)]))
    }
}
