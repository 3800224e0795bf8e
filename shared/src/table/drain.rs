//! Moving items: the stored copies of a shard, copying them home, and deleting the originals; and
//! items as they are without the product, for keys that are disarmed.

use aws_sdk_dynamodb::types::AttributeValue;

use crate::protocol::copies::{Answer, Condition, Copy, Effect};
use crate::protocol::drain;
use crate::protocol::names::{
    APPLIED, APPLIED_BEFORE, DELETED, LATE_UNTIL, LOGICAL_KEY, VERSION, WIDTH, WRITE_ID,
};
use crate::protocol::version::Version;
use crate::table::attributes::{self, SdkItem, number};
use crate::table::error::TableError;
use crate::table::items::ScannedItem;
use crate::table::{Expression, LeaseLasts, Place, Table, Tables};
use crate::values::key::{PartitionKey, ShardNumber, SortKey};
use crate::values::value::{value_size, write_units};

/// In seconds. DynamoDB does not delete an item that expired five years ago. (DynamoDB developer
/// guide, "Using time to live (TTL)".)
const MAX_EXPIRED_SECONDS: u64 = 5 * 365 * 86_400;
/// Those that the product adds to an item.
const OURS: [&str; 8] =
    [APPLIED, APPLIED_BEFORE, DELETED, LATE_UNTIL, LOGICAL_KEY, VERSION, WIDTH, WRITE_ID];

/// As it is stored on a shard, with all its attributes.
#[derive(Debug, Clone)]
pub(crate) struct StoredCopy {
    pub(crate) sort_key: SortKey,
    pub(crate) copy: Copy,
    ttl: Option<AttributeValue>,
    /// Empty if only what a deletion needs is remembered.
    stored: SdkItem,
    pub(crate) units: u64,
}

impl StoredCopy {
    /// What a later deletion needs: the keys, the version and the time to live. A copy without a
    /// version is compared by its attributes, so it keeps them all.
    pub(crate) fn remembered(self) -> Self {
        if self.copy.version == Version::NONE {
            return self;
        }
        let copy = Copy { write_id: None, applied: None, ..self.copy };
        Self { copy, stored: SdkItem::new(), ..self }
    }
}

impl Tables {
    /// In order, strongly consistent, with the sort key to continue after.
    pub(crate) async fn scan_shard(
        &self,
        key: &PartitionKey,
        shard: ShardNumber,
        after: Option<&SortKey>,
        limit: usize,
    ) -> Result<(Vec<StoredCopy>, Option<SortKey>), TableError> {
        let query = self.page_of((key, shard), after, limit)?.consistent_read(true);
        let (items, next, _) = self.send_page(query, (key, shard)).await?;
        let copies = items.into_iter().map(|stored| {
            let (sort_key, copy) = (self.sort_key(&stored)?, attributes::copy_from_sdk(&stored)?);
            let ttl = self.config.ttl_attribute.as_ref().filter(|_| !copy.is_tombstone);
            let ttl = ttl.and_then(|name| stored.get(name)).cloned();
            // An attribute of an unknown type counts with its name only.
            let size = |value: &AttributeValue| {
                attributes::from_sdk(value.clone()).map_or(0, |value| value_size(&value))
            };
            let bytes = stored.iter().map(|(name, value)| name.len() + size(value)).sum();
            Ok(StoredCopy { sort_key, copy, ttl, stored, units: write_units(bytes) })
        });
        Ok((copies.collect::<Result<_, TableError>>()?, next))
    }

    /// When the item's time to live ends, in epoch seconds. A tombstone never expires.
    pub(crate) fn expires_at(&self, copy: &StoredCopy, now_seconds: u64) -> Option<u64> {
        let at: u64 = copy.ttl.as_ref()?.as_n().ok()?.parse().ok()?;
        (at > now_seconds.saturating_sub(MAX_EXPIRED_SECONDS)).then_some(at)
    }

    /// Copies an item from a shard to its home, unless home has a copy that is at least as new.
    /// Version and write id are kept. An item without a version gets the lowest one.
    pub(crate) async fn copy_home(
        &self,
        copy: &StoredCopy,
        home: Place<'_>,
        lasts: LeaseLasts,
    ) -> Result<Answer, TableError> {
        debug_assert!(!copy.stored.is_empty(), "only a deletion can do without the attributes");
        let mut stored = copy.stored.clone();
        let shard_key = self.shard_key(home.partition_key, home.shard)?;
        attributes::set_place(&self.config, &mut stored, home, shard_key);
        let request = drain::copy_home(&copy.copy);
        if let Effect::Put { version, .. } = request.effect {
            stored.insert(VERSION.into(), number(version));
        }
        let condition = self.expression(&request.condition, home.shard);
        self.put(home, stored, condition, Some(lasts)).await
    }

    /// Deletes a copy if it is unchanged: its version, or all its attributes if it has no version;
    /// and its time to live, because another program may have extended that without changing the
    /// version.
    pub(crate) async fn delete_copy(
        &self,
        copy: &StoredCopy,
        at: Place<'_>,
        lasts: LeaseLasts,
    ) -> Result<Answer, TableError> {
        // The attributes that the key gives a copy, or that a move changes.
        let not_compared: [&str; 4] =
            [&self.config.partition_key_name, &self.config.sort_key_name, LOGICAL_KEY, WIDTH];
        let has_version = copy.copy.version != Version::NONE;
        let unchanged = Condition::Unchanged(Some(copy.copy.version));
        let same = self.expression(&unchanged, at.shard);
        let is_compared = |name: &str| !has_version && !not_compared.contains(&name);
        let compared = copy.stored.iter().filter(|(name, _)| is_compared(name));
        let ttl = self.config.ttl_attribute.as_ref().zip(copy.ttl.as_ref());
        let all = ttl.into_iter().chain(compared).map(|(name, value)| (name.as_str(), Some(value)));
        let condition = same.and_same(all);
        self.delete(at, condition, Some(lasts)).await
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
            .names([("#p", self.config.partition_key_name.as_str()), ("#v", VERSION)])
            .value(":v", number(item.version));
        if item.is_tombstone {
            return self.ask(Table::Main, self.deletion(key, as_read).send()).await.map(drop);
        }
        let plain = as_read.setting(OURS.map(|name| (name, None)));
        self.ask(Table::Main, self.update(Table::Main, key, plain).send()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::text;

    #[test]
    fn what_is_remembered_of_a_copy_is_enough_to_delete_it() {
        let stored = SdkItem::from([("text".to_owned(), AttributeValue::S("x".repeat(2_000)))]);
        let (version, ttl) = (Version::new(1, 2, 3), Some(number(9)));
        let write_id = Some("id".into());
        let copy = Copy { version, is_tombstone: false, write_id, applied: None, late_until: None };
        let read = StoredCopy { sort_key: text("order-1"), copy, ttl, stored, units: 2 };
        let remembered = read.clone().remembered();
        assert_eq!((remembered.copy.version, &remembered.ttl), (read.copy.version, &read.ttl));
        assert_eq!((remembered.units, remembered.stored.len()), (read.units, 0));
        let copy = Copy { version: Version::NONE, ..read.copy.clone() };
        let unversioned = StoredCopy { copy, ..read.clone() };
        assert_eq!(unversioned.remembered().stored, read.stored, "its attributes are compared");
    }
}
