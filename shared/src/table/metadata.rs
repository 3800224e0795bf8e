//! Requests to the metadata table: reads, records of the load, and transitions as compare-and-sets
//! on the generation.

use std::collections::HashMap;

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};

use crate::protocol::load::Load;
use crate::protocol::metadata::ShardMetadata;
use crate::protocol::names::{GENERATION, LOAD_MINUTE, LOAD_UNITS, NUMBER_OF_SHARDS};
use crate::table::attributes::{SdkItem, number};
use crate::table::condition::Expression;
use crate::table::error::TableError;
use crate::table::metadata_item::{LOAD_ATTRIBUTES, RawMetadata, attributes};
use crate::table::{Table, Tables, sending};
use crate::values::key::{KeyError, PartitionKey};

const MAX_NOTE_ATTEMPTS: u32 = 4;
const MAX_LISTED_KEYS: i32 = 500;

impl Tables {
    /// Reads a key's metadata, strongly consistent. `None` where the key has no item.
    pub(crate) async fn get_metadata(
        &self,
        key: &PartitionKey,
    ) -> Result<Option<ShardMetadata>, TableError> {
        self.get_raw_metadata(key).await?.map(|raw| raw.parse()).transpose()
    }

    /// As [`get_metadata`](Self::get_metadata), as it is stored, valid or not.
    pub(crate) async fn get_raw_metadata(
        &self,
        key: &PartitionKey,
    ) -> Result<Option<RawMetadata>, TableError> {
        Ok(self.get_metadata_item(key.as_str()).await?.map(RawMetadata))
    }

    pub(super) async fn get_metadata_item(&self, key: &str) -> Result<Option<SdkItem>, TableError> {
        self.get_item(Table::Metadata, self.metadata_key(key), true).await
    }

    pub(super) fn metadata_key(&self, key: &str) -> SdkItem {
        HashMap::from([(self.config.partition_key_name.clone(), AttributeValue::S(key.to_owned()))])
    }

    /// A page of all metadata, strongly consistent, each item as it is stored, and the key to
    /// continue after.
    pub(crate) async fn list_metadata(
        &self,
        after: Option<&PartitionKey>,
    ) -> Result<(Vec<(PartitionKey, RawMetadata)>, Option<PartitionKey>), TableError> {
        let (mut keys, mut start) = (Vec::new(), after.map(|key| self.metadata_key(key.as_str())));
        loop {
            let scan = self
                .client
                .scan()
                .table_name(&self.config.metadata_table_name)
                .limit(MAX_LISTED_KEYS)
                .consistent_read(true);
            let scan = scan.set_exclusive_start_key(start);
            let answer = self.ask(Table::Metadata, scan.send()).await?;
            for item in answer.items.unwrap_or_default() {
                if let Some(key) = self.logical_key(&item)? {
                    keys.push((key, RawMetadata(item)));
                }
            }
            let Some(last) = answer.last_evaluated_key else { return Ok((keys, None)) };
            match self.logical_key(&last)? {
                // A caller cannot continue after the table item or a page of the directory.
                None => start = Some(last),
                next => return Ok((keys, next)),
            }
        }
    }

    /// The key of a metadata item. `None` for the table item and the pages of the directory.
    fn logical_key(&self, item: &SdkItem) -> Result<Option<PartitionKey>, TableError> {
        match PartitionKey::new(&self.stored_key(item)?) {
            Ok(key) => Ok(Some(key)),
            Err(KeyError::Reserved) => Ok(None),
            Err(error) => {
                Err(TableError::Damaged(format!("the key of a metadata item is unusable: {error}")))
            }
        }
    }

    /// Adds write units to the key's units of this minute, and judges the minute before. No width
    /// depends on it alone, so the generation does not change. If other instances always win, the
    /// units are dropped.
    pub(crate) async fn note_load(
        &self,
        key: &PartitionKey,
        minute: u64,
        units: u64,
    ) -> Result<(), TableError> {
        // The recorded minute, as far as it is known.
        let mut noted = minute;
        for _ in 0..MAX_NOTE_ATTEMPTS {
            let same = Expression::of("#m = :noted")
                .name("#m", LOAD_MINUTE)
                .value(":noted", number(noted));
            let same = same.name("#u", LOAD_UNITS).value(":units", number(units));
            let added =
                self.update_metadata(key.as_str(), "SET #u = #u + :units".to_owned(), same).await?;
            let Err(stored) = added else { return Ok(()) };
            let before = RawMetadata(stored).parse()?;
            if before.load.takes(minute) {
                noted = before.load.minute;
                continue;
            }
            let minute_before =
                (before.load != Load::default()).then(|| number(before.load.minute));
            let exists = Expression::of("attribute_exists(#n)").name("#n", NUMBER_OF_SHARDS);
            let same = exists.and_same([(LOAD_MINUTE, minute_before.as_ref())]);
            let next = before.load.next(before.number_of_shards, minute, units);
            let values =
                [next.minute, next.units, next.per_shard, next.busy_at].map(|n| Some(number(n)));
            let (begin, same) = same.update(LOAD_ATTRIBUTES.into_iter().zip(values));
            if self.update_metadata(key.as_str(), begin, same).await?.is_ok() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes a transition as one compare-and-set. The stored item must still have the generation
    /// of `seen`; without `seen` there must be no item; or it must be the given damaged item. The
    /// recorded load is kept, unless the whole item is written anew.
    /// [`TableError::ConditionFailed`] if another actor was first. After [`TableError::Transient`]
    /// the transition may have been applied.
    pub(crate) async fn write_metadata(
        &self,
        key: &PartitionKey,
        seen: Option<&ShardMetadata>,
        damaged: Option<&RawMetadata>,
        next: &ShardMetadata,
    ) -> Result<(), TableError> {
        let mut stored = attributes(next);
        if seen.is_none() || damaged.is_some() {
            stored.extend(LOAD_ATTRIBUTES.map(|name| (name, None)));
        }
        let key_name = &self.config.partition_key_name;
        let condition = match (damaged, seen) {
            (Some(raw), _) => {
                Expression::of("attribute_exists(#p)").name("#p", key_name).and_same(raw.compared())
            }
            (None, None) => Expression::absent(key_name),
            // Another program wrote it without a generation, so the condition uses the width.
            (None, Some(seen)) if seen.generation == 0 => {
                let same = Expression::of("attribute_not_exists(#g) AND #n = :seen");
                same.name("#g", GENERATION)
                    .name("#n", NUMBER_OF_SHARDS)
                    .value(":seen", number(seen.number_of_shards))
            }
            (None, Some(seen)) => Expression::of("#g = :seen")
                .name("#g", GENERATION)
                .value(":seen", number(seen.generation)),
        };
        self.change_metadata(key.as_str(), condition.update(stored)).await
    }

    /// Changes an item if the condition holds. [`TableError::ConditionFailed`] if it does not.
    pub(super) async fn change_metadata(
        &self,
        key: &str,
        (update, condition): (String, Expression),
    ) -> Result<(), TableError> {
        let changed = self.update_metadata(key, update, condition).await?;
        changed.map_err(|_| TableError::ConditionFailed)
    }

    /// As [`change_metadata`](Self::change_metadata), but returns the stored item if the condition
    /// does not hold, unless the server does not return it, or there is none.
    async fn update_metadata(
        &self,
        key: &str,
        update: String,
        condition: Expression,
    ) -> Result<Result<(), SdkItem>, TableError> {
        let request = self
            .update(Table::Metadata, self.metadata_key(key), update, condition)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let Err(error) = sending(request.send()).await else { return Ok(Ok(())) };
        let stored = match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                failed.item().cloned()
            }
            _ => None,
        };
        stored.map(Err).ok_or_else(|| self.failed(Table::Metadata, error))
    }
}
