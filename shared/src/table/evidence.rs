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
    /// On so many partitions of the table, where that is known.
    pub(crate) partitions: Option<u32>,
    /// Milliseconds since 1970.
    pub(crate) now: u64,
    /// What was begun before is forgotten.
    pub(crate) oldest: u64,
}

/// What an instance reports. Times are milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shortage {
    /// Under this generation of the key.
    pub(crate) generation: u64,
    /// On so many partitions of the table, where that is known.
    pub(crate) partitions: Option<u32>,
    /// It is found now...
    pub(crate) now: u64,
    /// ...and stands until then.
    pub(crate) until: u64,
    /// What stands until after this was written by a clock that is wrong, and does not count.
    pub(crate) latest: u64,
}

/// What all instances have seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Together {
    /// Of the key's attempts, under one generation.
    pub(crate) seen: Pressure,
    /// Until when the table is known to be short of partitions for the key, in milliseconds since 1970.
    pub(crate) short_until: Option<u64>,
}

/// Hashed, because a key may be as long as DynamoDB allows. What was seen on other partitions is no evidence: it has an item of its own.
fn item_key(key: &PartitionKey, partitions: Option<u32>) -> String {
    let of_partitions = partitions.unwrap_or_default().to_be_bytes();
    let digest = Sha256::new().chain_update(key.as_str()).chain_update(of_partitions).finalize();
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
        let Evidence { seen, generation, partitions, now, oldest } = evidence;
        let item = item_key(key, partitions);
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
            match self.update_evidence(&item, generation, "ADD #a :a, #t :t, #c :c", same).await {
                Err(TableError::ConditionFailed) => {}
                told => return told,
            }
            let other = counted(Expression::of("attribute_not_exists(#g) OR #g < :g OR #b < :o"));
            let begin = "SET #g = :g, #b = :n, #a = :a, #t = :t, #c = :c";
            match self.update_evidence(&item, generation, begin, other.value(":n", number(now))).await {
                Err(TableError::ConditionFailed) => {}
                told => return told,
            }
        }
        // Others know of a later generation.
        Ok(Together { seen, short_until: None })
    }

    /// Reports for all instances that the table is short of partitions for a key; `false` where another instance has done so.
    pub(crate) async fn claim_shortage(&self, key: &PartitionKey, shortage: Shortage) -> Result<bool, TableError> {
        let Shortage { generation, partitions, now, until, latest } = shortage;
        let item = item_key(key, partitions);
        let unclaimed = Expression::of("attribute_not_exists(#s) OR #s <= :n OR #s > :l OR #h < :h")
            .name("#s", SHORT_UNTIL)
            .name("#h", SHORT_GENERATION)
            .value(":n", number(now))
            .value(":l", number(latest))
            .value(":s", number(until))
            .value(":h", number(generation));
        match self.update_evidence(&item, generation, "SET #s = :s, #h = :h", unclaimed).await {
            Ok(_) => Ok(true),
            Err(TableError::ConditionFailed) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads what instances have seen of a key under a generation, strongly consistent.
    pub(crate) async fn get_evidence(
        &self,
        key: &PartitionKey,
        generation: u64,
        partitions: Option<u32>,
    ) -> Result<Together, TableError> {
        let item = self.get_metadata_item(&item_key(key, partitions)).await?.unwrap_or_default();
        Ok(together(&item, generation))
    }

    async fn update_evidence(
        &self,
        item: &str,
        generation: u64,
        update: &str,
        condition: Expression,
    ) -> Result<Together, TableError> {
        let (condition, names, values) = condition.into_parts();
        let request = self
            .client
            .update_item()
            .table_name(&self.config.metadata_table_name)
            .set_key(Some(self.metadata_key(item)))
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
