//! The pooled observations of many instances about a key, in an item of the metadata table under a
//! key that no caller can have. It also says until when the table counts as short of partitions for
//! the key, so that one instance reports this for all. It is evidence for a decision and no part of
//! the protocol: it may be lost, and it may be wrong.

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use sha2::{Digest, Sha256};

use crate::policy::pressure::{Pressure, ThrottledItems};
use crate::protocol::names::{
    ACCEPTED, ADDED_ITEMS, ATTEMPTS, BEGUN, FIRST_WRITES, GENERATION, ITEMS, RATE,
    SHORT_GENERATION, SHORT_UNTIL, THROTTLED, THROTTLES,
};
use crate::table::attributes::{SdkItem, number};
use crate::table::error::{TableError, unless_refused};
use crate::table::{Expression, Table, Tables};
use crate::values::content;
use crate::values::key::PartitionKey;

/// How often an instance tries to add to the pool and then to begin one: others do so meanwhile.
const MAX_ATTEMPTS: usize = 2;
/// A member that is no hash, because a set has at least one.
const NO_ITEM: &str = "-1";

/// Of a key under one generation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pool<'a> {
    pub(crate) key: &'a PartitionKey,
    pub(crate) generation: u64,
    pub(crate) partitions: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Together {
    /// The attempts on the key under one generation.
    pub(crate) seen: Pressure,
    /// Write units a second of the instances that have added to the pool.
    pub(crate) rate: u64,
    /// The items of the throttled attempts, if they are certainly few.
    pub(crate) hot_items: Option<u32>,
    /// In milliseconds since 1970.
    pub(crate) begun: u64,
    /// Until when the table counts as short of partitions for the key, in milliseconds since 1970.
    pub(crate) short_until: Option<u64>,
}

impl Pool<'_> {
    /// The key is hashed, because it may be as long as DynamoDB allows. Another number of
    /// partitions has an item of its own.
    fn item_key(&self) -> String {
        let (key, partitions) = (self.key.as_str(), self.partitions.unwrap_or_default());
        let hash = Sha256::new().chain_update(key).chain_update(partitions.to_be_bytes());
        let half = u128::from_be_bytes(content::first(&hash.finalize()));
        format!("_sharding:evidence:{half:032x}")
    }
}

fn together(item: &SdkItem, generation: u64) -> Together {
    let counted = |name: &str| item.get(name).and_then(|value| value.as_n().ok()?.parse().ok());
    let of = |name: &str| counted(name).unwrap_or_default();
    let short_until =
        counted(SHORT_UNTIL).filter(|_| counted(SHORT_GENERATION) == Some(generation));
    if counted(GENERATION) != Some(generation) {
        return Together { short_until, ..Together::default() };
    }
    let items = item.get(ITEMS).and_then(|value| value.as_ns().ok()).into_iter().flatten();
    let hashes = items.filter_map(|hash| hash.parse().ok());
    let hashes = hashes.filter_map(|hash| 1u64.checked_shl(hash)).fold(0, |all, bit| all | bit);
    Together {
        seen: Pressure {
            writes: of(FIRST_WRITES),
            attempts: of(ATTEMPTS),
            throttled: of(THROTTLED),
            accepted: of(ACCEPTED),
            throttles: of(THROTTLES),
        },
        rate: of(RATE),
        hot_items: ThrottledItems { hashes, attempts: of(ADDED_ITEMS) }.few(),
        begun: of(BEGUN),
        short_until,
    }
}

impl Tables {
    /// Adds to the other instances' observations of a key, or begins a new pool if theirs began
    /// before `oldest` or is of an earlier generation. `rate` is 0 if this instance has added its
    /// own to this pool before. Times are milliseconds since 1970.
    pub(crate) async fn add_evidence(
        &self,
        pool: Pool<'_>,
        (seen, items): (Pressure, ThrottledItems),
        rate: u64,
        (now, oldest): (u64, u64),
    ) -> Result<Together, TableError> {
        let hashes = (0..u64::BITS).filter(|hash| items.hashes >> hash & 1 == 1);
        let hashes = hashes.map(|hash| hash.to_string()).chain([NO_ITEM.to_owned()]);
        let observed = [
            (ATTEMPTS, number(seen.attempts)),
            (THROTTLED, number(seen.throttled)),
            (ACCEPTED, number(seen.accepted)),
            (FIRST_WRITES, number(seen.writes)),
            (THROTTLES, number(seen.throttles)),
            (RATE, number(rate)),
            (ITEMS, AttributeValue::Ns(hashes.collect())),
            (ADDED_ITEMS, number(items.attempts)),
        ];
        let stored = |condition: &str| {
            let stored = Expression::of(condition).names([("#g", GENERATION), ("#b", BEGUN)]);
            stored.numbers([(":g", pool.generation), (":o", oldest)])
        };
        let begun = [(GENERATION, number(pool.generation)), (BEGUN, number(now))];
        let begun = begun.into_iter().chain(observed.clone());
        let begun = stored("attribute_not_exists(#g) OR #g < :g OR #b < :o")
            .setting(begun.map(|(name, value)| (name, Some(value))));
        let changes = [stored("#g = :g AND #b >= :o").adding(observed), begun];
        for change in changes.iter().cycle().take(2 * MAX_ATTEMPTS) {
            let key = self.metadata_key(&pool.item_key());
            let update = self.update(Table::Metadata, key, change.clone());
            let update = update.return_values(ReturnValue::AllNew);
            let updated = self.ask(Table::Metadata, update.send()).await;
            if let Some(answer) = unless_refused(updated)? {
                return Ok(together(&answer.attributes.unwrap_or_default(), pool.generation));
            }
        }
        // Other instances know a later generation.
        Ok(Together { seen, rate, ..Together::default() })
    }

    /// `false` if another instance has reported the shortage already. A report that is valid beyond
    /// `latest` was written by a wrong clock, and does not count. Times are milliseconds since
    /// 1970.
    pub(crate) async fn claim_shortage(
        &self,
        pool: Pool<'_>,
        (now, until, latest): (u64, u64, u64),
    ) -> Result<bool, TableError> {
        let unclaimed = "attribute_not_exists(#s) OR #s <= :n OR #s > :l OR #h < :h";
        let claimed = Expression::of(unclaimed)
            .names([("#s", SHORT_UNTIL), ("#h", SHORT_GENERATION)])
            .numbers([(":n", now), (":l", latest), (":s", until), (":h", pool.generation)])
            .updating("SET #s = :s, #h = :h");
        let claimed = self.change_metadata(&pool.item_key(), claimed).await;
        Ok(unless_refused(claimed)?.is_some())
    }

    /// Strongly consistent.
    pub(crate) async fn get_evidence(&self, pool: Pool<'_>) -> Result<Together, TableError> {
        let item = self.get_metadata_item(&pool.item_key()).await?.unwrap_or_default();
        Ok(together(&item, pool.generation))
    }
}
