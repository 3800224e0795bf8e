//! What instances have seen of a key together: an item of the metadata table for each key that slow instances find throttled, under a key
//! that no caller can have. It also says until when the table is known to be short of partitions for the key, so that one instance reports
//! it for all. It is evidence for a decision, and no part of the protocol: it may be lost, and it may be wrong.

use std::fmt::Write as _;

use aws_sdk_dynamodb::types::ReturnValue;
use sha2::{Digest, Sha256};

use super::Tables;
use super::attributes::SdkItem;
use super::condition::Expression;
use super::error::TableError;
use super::metadata_item::{ACCEPTED, ATTEMPTS, BEGUN, GENERATION, SHORT_GENERATION, SHORT_UNTIL, THROTTLED, number};
use crate::core::key::PartitionKey;
use crate::core::pressure::Pressure;

/// An instance that would begin anew while another does adds to that one's.
const TRIES: u32 = 2;

/// What an instance adds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence {
    /// What it has seen.
    pub(crate) seen: Pressure,
    /// Under this generation of the key.
    pub(crate) generation: u64,
    /// Milliseconds since 1970.
    pub(crate) now: u64,
    /// What was begun before is forgotten.
    pub(crate) oldest: u64,
}

/// What all instances have seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Together {
    /// Of the key's attempts, under one generation.
    pub(crate) seen: Pressure,
    /// Until when the table is known to be short of partitions for the key, in milliseconds since 1970.
    pub(crate) short_until: Option<u64>,
}

/// Hashed, because a key may be as long as DynamoDB allows.
fn item_key(key: &PartitionKey) -> String {
    let digest = Sha256::digest(key.as_str());
    digest.iter().take(16).fold("_sharding:evidence:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn together(item: &SdkItem, generation: u64) -> Together {
    let counted = |name: &str| item.get(name).and_then(|value| value.as_n().ok()?.parse().ok());
    let of = |name: &str| counted(name).unwrap_or_default();
    let seen = Pressure { attempts: of(ATTEMPTS), throttled: of(THROTTLED), accepted: of(ACCEPTED) };
    Together {
        seen: if counted(GENERATION) == Some(generation) { seen } else { Pressure::default() },
        short_until: counted(SHORT_UNTIL).filter(|_| counted(SHORT_GENERATION) == Some(generation)),
    }
}

impl Tables {
    /// Adds to what others have seen of a key, or begins anew where that is old or about an earlier generation. Returns all of it.
    pub(crate) async fn add_evidence(&self, key: &PartitionKey, evidence: Evidence) -> Result<Together, TableError> {
        let Evidence { seen, generation, now, oldest } = evidence;
        for _ in 0..TRIES {
            let counted = |expression: Expression| {
                expression
                    .name("#g", GENERATION)
                    .name("#b", BEGUN)
                    .name("#a", ATTEMPTS)
                    .name("#t", THROTTLED)
                    .name("#c", ACCEPTED)
                    .value(":g", number(generation))
                    .value(":o", number(oldest))
                    .value(":a", number(seen.attempts))
                    .value(":t", number(seen.throttled))
                    .value(":c", number(seen.accepted))
            };
            let same = counted(Expression::of("#g = :g AND #b >= :o"));
            match self.update_evidence(key, generation, "ADD #a :a, #t :t, #c :c", same).await {
                Err(TableError::ConditionFailed) => {}
                told => return told,
            }
            let other = counted(Expression::of("attribute_not_exists(#g) OR #g < :g OR #b < :o"));
            let begin = "SET #g = :g, #b = :n, #a = :a, #t = :t, #c = :c";
            match self.update_evidence(key, generation, begin, other.value(":n", number(now))).await {
                Err(TableError::ConditionFailed) => {}
                told => return told,
            }
        }
        // Others know of a later generation.
        Ok(Together { seen, short_until: None })
    }

    /// Reports for all instances, until that millisecond since 1970, that the table is short of partitions for a key; `false` where another
    /// instance has done so. What stands until after `latest` was written by a clock that is wrong, and does not count.
    pub(crate) async fn claim_shortage(
        &self,
        key: &PartitionKey,
        generation: u64,
        now: u64,
        until: u64,
        latest: u64,
    ) -> Result<bool, TableError> {
        let unclaimed = Expression::of("attribute_not_exists(#s) OR #s <= :n OR #s > :l OR #h < :h")
            .name("#s", SHORT_UNTIL)
            .name("#h", SHORT_GENERATION)
            .value(":n", number(now))
            .value(":l", number(latest))
            .value(":s", number(until))
            .value(":h", number(generation));
        match self.update_evidence(key, generation, "SET #s = :s, #h = :h", unclaimed).await {
            Ok(_) => Ok(true),
            Err(TableError::ConditionFailed) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads what instances have seen of a key under a generation, strongly consistent.
    pub(crate) async fn get_evidence(&self, key: &PartitionKey, generation: u64) -> Result<Together, TableError> {
        let item = self.get_metadata_item(&item_key(key)).await?.unwrap_or_default();
        Ok(together(&item, generation))
    }

    async fn update_evidence(
        &self,
        key: &PartitionKey,
        generation: u64,
        update: &str,
        condition: Expression,
    ) -> Result<Together, TableError> {
        let (condition, names, values) = condition.into_parts();
        let request = self
            .client
            .update_item()
            .table_name(&self.config.metadata_table_name)
            .set_key(Some(self.metadata_key(&item_key(key))))
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(values)
            .return_values(ReturnValue::AllNew);
        // Boxed: the SDK's futures nest deeply.
        let answer = Box::pin(request.send()).await.map_err(TableError::from_sdk)?;
        Ok(together(&answer.attributes.unwrap_or_default(), generation))
    }
}
