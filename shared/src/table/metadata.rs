//! Requests to the metadata table: one read, and conditional updates that check and raise the generation.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};

use super::Tables;
use super::error::TableError;
use crate::core::history::ShardHistory;
use crate::core::key::{PartitionKey, ShardCount};
use crate::core::metadata::ShardMetadata;

const NUMBER_OF_SHARDS: &str = "number_of_shards";
const READ_SHARDS: &str = "read_shards";
const LAST_UPDATED: &str = "last_updated";
const SHARD_HISTORY: &str = "shard_history";
const GENERATION: &str = "generation";
const DRAINING: &str = "draining";
/// The most keys of one page of a list.
const LISTED_KEYS: i32 = 500;
/// Every attribute of a metadata item besides its key.
pub(crate) const ATTRIBUTES: [&str; 6] =
    [NUMBER_OF_SHARDS, READ_SHARDS, LAST_UPDATED, SHARD_HISTORY, GENERATION, DRAINING];

/// A step of the protocol that changes a key's widths: a compare-and-set on the generation that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetadataUpdate {
    /// Raise the read width. Writes the first history entry where the item was absent.
    Expand {
        /// The width to come.
        to: ShardCount,
    },
    /// Raise the write width to the read width, and write history.
    Activate {
        /// The width that was expanded to.
        to: ShardCount,
    },
}

impl Tables {
    /// Reads a key's metadata, strongly consistent. `None` where the key has no item.
    pub(crate) async fn get_metadata(&self, key: &PartitionKey) -> Result<Option<ShardMetadata>, TableError> {
        let answer = self
            .client
            .get_item()
            .table_name(&self.config.metadata_table_name)
            .key(&self.config.partition_key_name, AttributeValue::S(key.as_str().to_owned()))
            .consistent_read(true)
            .send()
            .await
            .map_err(TableError::from_sdk)?;
        answer.item.map(|item| parse(&item)).transpose()
    }

    /// A page of all metadata, and the key to go on after.
    pub(crate) async fn list_metadata(
        &self,
        after: Option<&PartitionKey>,
    ) -> Result<(Vec<(PartitionKey, ShardMetadata)>, Option<PartitionKey>), TableError> {
        let name = &self.config.partition_key_name;
        let start = after.map(|key| HashMap::from([(name.clone(), AttributeValue::S(key.as_str().to_owned()))]));
        let answer = self
            .client
            .scan()
            .table_name(&self.config.metadata_table_name)
            .limit(LISTED_KEYS)
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(TableError::from_sdk)?;
        let key = |item: &HashMap<String, AttributeValue>| {
            let text = item.get(name).and_then(|value| value.as_s().ok());
            let key = text.and_then(|text| PartitionKey::new(text).ok());
            key.ok_or_else(|| TableError::Damaged(format!("a metadata item has no usable {name}")))
        };
        let keys =
            answer.items().iter().map(|item| Ok((key(item)?, parse(item)?))).collect::<Result<_, TableError>>()?;
        Ok((keys, answer.last_evaluated_key.as_ref().map(key).transpose()?))
    }

    /// Registers a new key with one shard, unless somebody else has.
    ///
    /// # Errors
    /// [`TableError::ConditionFailed`] where the key has an item.
    pub(crate) async fn register(&self, key: &PartitionKey, now_seconds: u64) -> Result<ShardMetadata, TableError> {
        let metadata = ShardMetadata::registered(now_seconds);
        let number = |n: u64| AttributeValue::N(n.to_string());
        self.client
            .put_item()
            .table_name(&self.config.metadata_table_name)
            .item(&self.config.partition_key_name, AttributeValue::S(key.as_str().to_owned()))
            .item(NUMBER_OF_SHARDS, number(1))
            .item(LAST_UPDATED, number(now_seconds))
            .item(SHARD_HISTORY, AttributeValue::Ss(metadata.shard_history.to_strings()))
            .item(GENERATION, number(metadata.generation))
            .condition_expression("attribute_not_exists(#p)")
            .expression_attribute_names("#p", &self.config.partition_key_name)
            .send()
            .await
            .map_err(TableError::from_sdk)?;
        Ok(metadata)
    }

    /// Applies a step, on the condition that the metadata is still as `seen`; returns what it is then.
    ///
    /// # Errors
    /// [`TableError::ConditionFailed`] where another actor was first.
    pub(crate) async fn update_metadata(
        &self,
        key: &PartitionKey,
        seen: Option<&ShardMetadata>,
        update: MetadataUpdate,
        now_seconds: u64,
    ) -> Result<ShardMetadata, TableError> {
        let before = seen.cloned().unwrap_or_else(ShardMetadata::unregistered);
        let number = |n: u64| AttributeValue::N(n.to_string());
        let mut names = HashMap::from([("#g", GENERATION), ("#r", READ_SHARDS)]);
        let mut values = HashMap::from([(":next", number(before.generation + 1))]);
        let mut set = vec!["#g = :next", "#r = :to"];
        let mut add = None;
        match update {
            MetadataUpdate::Expand { to } => {
                values.insert(":to", number(u64::from(to.get())));
                if seen.is_none() {
                    set.extend(["#n = :n", "#u = :now", "#h = :h"]);
                    names.extend([("#n", NUMBER_OF_SHARDS), ("#u", LAST_UPDATED), ("#h", SHARD_HISTORY)]);
                    let first = ShardHistory::default().with(now_seconds, ShardCount::ONE);
                    values.extend([
                        (":n", number(1)),
                        (":now", number(now_seconds)),
                        (":h", AttributeValue::Ss(first.to_strings())),
                    ]);
                }
            }
            MetadataUpdate::Activate { to } => {
                set.extend(["#n = :to", "#u = :now"]);
                names.extend([("#n", NUMBER_OF_SHARDS), ("#u", LAST_UPDATED), ("#h", SHARD_HISTORY)]);
                add = Some(" ADD #h :h");
                let mut entry = ShardHistory::default().with(now_seconds, to);
                // Metadata of another program may lack its own width, under which items lie.
                if !before.shard_history.entries().any(|known| known.count == before.number_of_shards) {
                    entry = entry.with(before.last_updated, before.number_of_shards);
                }
                values.extend([
                    (":to", number(u64::from(to.get()))),
                    (":now", number(now_seconds)),
                    (":h", AttributeValue::Ss(entry.to_strings())),
                ]);
            }
        }
        let condition = match seen {
            None => {
                names.insert("#p", &self.config.partition_key_name);
                "attribute_not_exists(#p)"
            }
            // Written by another program, without a generation: hold on to the widths instead.
            Some(seen) if seen.generation == 0 => {
                names.insert("#n", NUMBER_OF_SHARDS);
                values.insert(":seen", number(u64::from(seen.number_of_shards.get())));
                "attribute_not_exists(#g) AND #n = :seen"
            }
            Some(seen) => {
                values.insert(":seen", number(seen.generation));
                "#g = :seen"
            }
        };
        let mut call = self
            .client
            .update_item()
            .table_name(&self.config.metadata_table_name)
            .key(&self.config.partition_key_name, AttributeValue::S(key.as_str().to_owned()))
            .update_expression(format!("SET {}{}", set.join(", "), add.unwrap_or_default()))
            .condition_expression(condition)
            .return_values(ReturnValue::AllNew);
        for (placeholder, name) in names {
            call = call.expression_attribute_names(placeholder, name);
        }
        for (placeholder, value) in values {
            call = call.expression_attribute_values(placeholder, value);
        }
        let answer = call.send().await.map_err(TableError::from_sdk)?;
        parse(&answer.attributes.unwrap_or_default())
    }
}

fn parse(item: &HashMap<String, AttributeValue>) -> Result<ShardMetadata, TableError> {
    let damaged = |name: &str| TableError::Damaged(format!("the metadata attribute {name} is missing or unusable"));
    let number = |name: &str| -> Result<Option<u64>, TableError> {
        item.get(name)
            .map(|value| value.as_n().ok().and_then(|text| text.parse().ok()).ok_or_else(|| damaged(name)))
            .transpose()
    };
    let count = |name: &str| -> Result<Option<ShardCount>, TableError> {
        number(name)?.map(|n| u32::try_from(n).ok().and_then(ShardCount::new).ok_or_else(|| damaged(name))).transpose()
    };
    let number_of_shards = count(NUMBER_OF_SHARDS)?.ok_or_else(|| damaged(NUMBER_OF_SHARDS))?;
    let read_shards = count(READ_SHARDS)?.unwrap_or(number_of_shards);
    if read_shards < number_of_shards {
        return Err(TableError::Damaged(format!(
            "read_shards {read_shards} is below number_of_shards {number_of_shards}"
        )));
    }
    let entries = match item.get(SHARD_HISTORY) {
        None => &[][..],
        Some(value) => value.as_ss().map_err(|_| damaged(SHARD_HISTORY))?,
    };
    let draining = match item.get(DRAINING) {
        None => false,
        Some(value) => *value.as_bool().map_err(|_| damaged(DRAINING))?,
    };
    Ok(ShardMetadata {
        number_of_shards,
        read_shards,
        last_updated: number(LAST_UPDATED)?.unwrap_or_default(),
        shard_history: ShardHistory::parse(entries.iter().map(String::as_str))?,
        generation: number(GENERATION)?.unwrap_or_default(),
        draining,
    })
}
