//! Requests to the metadata table: one read, and conditional updates that check and raise the generation.

use std::collections::HashMap;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};

use super::Tables;
use super::error::TableError;
use crate::core::drain::{Drain, DrainGoal};
use crate::core::growth::GrowthRecord;
use crate::core::history::ShardHistory;
use crate::core::key::{PartitionKey, ShardCount};
use crate::core::load::Load;
use crate::core::metadata::ShardMetadata;

const NUMBER_OF_SHARDS: &str = "number_of_shards";
const READ_SHARDS: &str = "read_shards";
const LAST_UPDATED: &str = "last_updated";
const SHARD_HISTORY: &str = "shard_history";
const GENERATION: &str = "generation";
const DRAINING: &str = "draining";
const DRAIN: &str = "drain";
const SHRUNK_AT: &str = "shrunk_at";
const UNMOVABLE_AT: &str = "unmovable_at";
const SETTLED: &str = "settled";
const POINT_WRITTEN_AT: &str = "point_written_at";
const LOAD_MINUTE: &str = "load_minute";
const LOAD_UNITS: &str = "load_units";
const LOAD_PER_SHARD: &str = "load_per_shard";
const BUSY_AT: &str = "busy_at";
const DRAINED_AT: &str = "drained_at";
const REJECTED_PERCENT: &str = "rejected_percent";
const FRUITLESS_GROWTHS: &str = "fruitless_growths";
/// How often a note of the load is tried, where others note theirs.
const NOTE_ATTEMPTS: u32 = 4;
/// The most keys of one page of a list.
const LISTED_KEYS: i32 = 500;
/// Those that tell of the widths. A rebuild writes them anew, and removes all others.
const OF_WIDTHS: [&str; 5] = [NUMBER_OF_SHARDS, READ_SHARDS, LAST_UPDATED, SHARD_HISTORY, GENERATION];
/// Every attribute of a metadata item besides its key.
pub(crate) const ATTRIBUTES: [&str; 18] = [
    NUMBER_OF_SHARDS,
    READ_SHARDS,
    LAST_UPDATED,
    SHARD_HISTORY,
    GENERATION,
    DRAINING,
    DRAIN,
    SHRUNK_AT,
    UNMOVABLE_AT,
    SETTLED,
    POINT_WRITTEN_AT,
    LOAD_MINUTE,
    LOAD_UNITS,
    LOAD_PER_SHARD,
    BUSY_AT,
    DRAINED_AT,
    REJECTED_PERCENT,
    FRUITLESS_GROWTHS,
];

/// A step of the protocol that changes a key's widths: a compare-and-set on the generation that was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MetadataUpdate {
    /// Raise the read width. Writes the first history entry where the item was absent.
    Expand {
        /// The width to come.
        to: ShardCount,
        /// What the growths so far have brought.
        growth: GrowthRecord,
    },
    /// Raise the write width to the read width, and write history.
    Activate {
        /// The width that was expanded to.
        to: ShardCount,
    },
    /// Name a width to come among the candidates; nothing is placed by it yet.
    AnnounceWidth {
        /// The width to come.
        to: ShardCount,
    },
    /// Mark a drain; a shrink lowers the write width with it.
    BeginDrain {
        /// The write width from now on.
        to: ShardCount,
        /// What is begun.
        drain: Drain,
    },
    /// Note how far a drain is.
    Checkpoint(Drain),
    /// Raise the write width to the read width at once, which readers know already, and unmark the drain.
    StopDrain {
        /// Because of an item that cannot be moved.
        unmovable: bool,
    },
    /// Make readers look at this many shards, and name the widths under which items were found. Where there was no item, or a damaged one, it is
    /// made; writers use the shards once it is activated.
    Rebuild {
        /// The read width.
        to: ShardCount,
        /// Widths under which items stand.
        history: ShardHistory,
        /// What stands, where it cannot be read.
        damaged: Option<RawMetadata>,
    },
    /// Lower the read width to the write width, and unmark the drain.
    FinishDrain {
        /// What is left of the history.
        history: ShardHistory,
        /// Whether every item is at home under it.
        settled: bool,
    },
}

/// A metadata item as it is stored, perhaps damaged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawMetadata(HashMap<String, AttributeValue>);

impl RawMetadata {
    /// What it says.
    pub(crate) fn parse(&self) -> Result<ShardMetadata, TableError> {
        parse(&self.0)
    }

    /// The widest of the widths that can be read.
    pub(crate) fn widest(&self) -> Option<ShardCount> {
        let width = |name: &str| self.0.get(name)?.as_n().ok()?.parse().ok().and_then(ShardCount::new);
        width(NUMBER_OF_SHARDS).max(width(READ_SHARDS))
    }

    /// The entries that can be read.
    fn history(&self) -> ShardHistory {
        let entries = self.0.get(SHARD_HISTORY).and_then(|value| value.as_ss().ok());
        let readable = entries.into_iter().flatten().filter_map(|entry| ShardHistory::parse([entry.as_str()]).ok());
        readable.fold(ShardHistory::default(), |history, one| {
            one.entries().fold(history, |history, entry| history.with(entry.at, entry.count))
        })
    }

    fn generation(&self) -> Option<u64> {
        self.0.get(GENERATION)?.as_n().ok()?.parse().ok()
    }
}

impl Tables {
    /// Reads a key's metadata, strongly consistent. `None` where the key has no item.
    pub(crate) async fn get_metadata(&self, key: &PartitionKey) -> Result<Option<ShardMetadata>, TableError> {
        self.get_raw_metadata(key).await?.map(|raw| raw.parse()).transpose()
    }

    /// As [`get_metadata`](Self::get_metadata), whatever it says.
    pub(crate) async fn get_raw_metadata(&self, key: &PartitionKey) -> Result<Option<RawMetadata>, TableError> {
        let answer = self
            .client
            .get_item()
            .table_name(&self.config.metadata_table_name)
            .key(&self.config.partition_key_name, AttributeValue::S(key.as_str().to_owned()))
            .consistent_read(true)
            .send()
            .await
            .map_err(TableError::from_sdk)?;
        Ok(answer.item.map(RawMetadata))
    }

    /// A page of all metadata, each as it is stored, and the key to go on after.
    pub(crate) async fn list_metadata(
        &self,
        after: Option<&PartitionKey>,
    ) -> Result<(Vec<(PartitionKey, RawMetadata)>, Option<PartitionKey>), TableError> {
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
        let next = answer.last_evaluated_key.as_ref().map(key).transpose()?;
        let items = answer.items.unwrap_or_default().into_iter();
        let keys = items.map(|item| Ok((key(&item)?, RawMetadata(item)))).collect::<Result<_, TableError>>()?;
        Ok((keys, next))
    }

    /// Registers a new key with the shards of one that has no item, unless somebody else has.
    ///
    /// # Errors
    /// [`TableError::ConditionFailed`] where the key has an item.
    pub(crate) async fn register(&self, key: &PartitionKey, now_seconds: u64) -> Result<ShardMetadata, TableError> {
        let shards = self.config.adopt_shards;
        let metadata = ShardMetadata::registered_with(now_seconds, shards);
        self.client
            .put_item()
            .table_name(&self.config.metadata_table_name)
            .item(&self.config.partition_key_name, AttributeValue::S(key.as_str().to_owned()))
            .item(NUMBER_OF_SHARDS, count(shards))
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

    /// Notes that the key takes point writes. No width depends on it, so the generation stays.
    pub(crate) async fn note_point_write(&self, key: &PartitionKey, now_seconds: u64) -> Result<(), TableError> {
        let noted = self
            .client
            .update_item()
            .table_name(&self.config.metadata_table_name)
            .key(&self.config.partition_key_name, AttributeValue::S(key.as_str().to_owned()))
            .update_expression("SET #w = :now")
            .condition_expression("attribute_exists(#p)")
            .expression_attribute_names("#w", POINT_WRITTEN_AT)
            .expression_attribute_names("#p", &self.config.partition_key_name)
            .expression_attribute_values(":now", number(now_seconds))
            .send()
            .await;
        noted.map(drop).map_err(TableError::from_sdk)
    }

    /// Adds write units to those that the key has taken in this minute, and judges the one before. No width depends on it alone, so the
    /// generation stays; where others are always first, it is left out.
    pub(crate) async fn note_load(&self, key: &PartitionKey, minute: u64, units: u64) -> Result<(), TableError> {
        let note = || {
            self.client
                .update_item()
                .table_name(&self.config.metadata_table_name)
                .key(&self.config.partition_key_name, AttributeValue::S(key.as_str().to_owned()))
                .expression_attribute_names("#m", LOAD_MINUTE)
                .expression_attribute_names("#u", LOAD_UNITS)
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        };
        // As far as is known: the minute that is noted.
        let mut noted = minute;
        for _ in 0..NOTE_ATTEMPTS {
            let added = note()
                .update_expression("SET #u = #u + :units")
                .condition_expression("#m = :noted")
                .expression_attribute_values(":noted", number(noted))
                .expression_attribute_values(":units", number(units));
            let Err(error) = added.send().await else { return Ok(()) };
            let Some(before) = stood(&error)? else { return Err(TableError::from_sdk(error)) };
            if before.load.takes(minute) {
                noted = before.load.minute;
                continue;
            }
            let next = before.load.next(before.number_of_shards, minute, units);
            let same = if before.load == Load::default() {
                "attribute_exists(#n) AND attribute_not_exists(#m)"
            } else {
                "#m = :noted AND attribute_exists(#n)"
            };
            let mut begun = note()
                .update_expression("SET #m = :minute, #u = :units, #s = :per_shard, #b = :busy_at")
                .condition_expression(same)
                .expression_attribute_names("#n", NUMBER_OF_SHARDS)
                .expression_attribute_names("#s", LOAD_PER_SHARD)
                .expression_attribute_names("#b", BUSY_AT)
                .expression_attribute_values(":minute", number(next.minute))
                .expression_attribute_values(":units", number(next.units))
                .expression_attribute_values(":per_shard", number(next.per_shard))
                .expression_attribute_values(":busy_at", number(next.busy_at));
            if before.load != Load::default() {
                begun = begun.expression_attribute_values(":noted", number(before.load.minute));
            }
            let Err(error) = begun.send().await else { return Ok(()) };
            if stood(&error)?.is_none() {
                return Err(TableError::from_sdk(error));
            }
        }
        Ok(())
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
        let unregistered = self.config.adopt_shards;
        let before = seen.cloned().unwrap_or_else(|| ShardMetadata::unregistered_with(unregistered));
        let mut change = Change::default();
        let (mut generation, mut replaced) = (before.generation + 1, None);
        match update {
            MetadataUpdate::Rebuild { to, history, damaged } => {
                let known = damaged.as_ref().and_then(RawMetadata::generation).unwrap_or_default();
                (generation, replaced) = (generation.max(known.saturating_add(1)).max(now_seconds), damaged);
                change.set(READ_SHARDS, count(to));
                if seen.is_some() {
                    change.add = Some(set(&history)).filter(|_| history.entries().len() > 0);
                } else {
                    change.set(NUMBER_OF_SHARDS, count(unregistered));
                    change.set(LAST_UPDATED, number(now_seconds));
                    let told = replaced.as_ref().map(RawMetadata::history).unwrap_or_default();
                    let all = told.entries().fold(history, |history, entry| history.with(entry.at, entry.count));
                    change.set(SHARD_HISTORY, set(&all.with(0, unregistered)));
                    change.remove = ATTRIBUTES.into_iter().filter(|name| !OF_WIDTHS.contains(name)).collect();
                }
            }
            MetadataUpdate::Expand { to, growth } => {
                change.set(READ_SHARDS, count(to));
                if growth == GrowthRecord::default() {
                    change.remove = vec![REJECTED_PERCENT, FRUITLESS_GROWTHS];
                } else {
                    change.set(REJECTED_PERCENT, number(growth.rejected_percent.into()));
                    change.set(FRUITLESS_GROWTHS, number(growth.fruitless.into()));
                }
                if seen.is_none() {
                    change.set(NUMBER_OF_SHARDS, count(unregistered));
                    change.set(LAST_UPDATED, number(now_seconds));
                    change.set(SHARD_HISTORY, set(&ShardHistory::default().with(now_seconds, unregistered)));
                }
            }
            MetadataUpdate::Activate { to } => change.widths(&before, to, to, now_seconds),
            MetadataUpdate::AnnounceWidth { to } => {
                change.add = Some(set(&ShardHistory::default().with(now_seconds, to)));
            }
            MetadataUpdate::BeginDrain { to, drain } => {
                // A settling changes no width, and must not look like a growth.
                if drain.goal == DrainGoal::Shrink {
                    change.widths(&before, to, before.read_shards, now_seconds);
                    change.set(SHRUNK_AT, number(now_seconds));
                }
                change.set(DRAINING, AttributeValue::Bool(true));
                change.set(DRAIN, AttributeValue::S(drain.to_string()));
            }
            MetadataUpdate::Checkpoint(drain) => change.set(DRAIN, AttributeValue::S(drain.to_string())),
            MetadataUpdate::StopDrain { unmovable } => {
                if unmovable {
                    change.set(UNMOVABLE_AT, number(now_seconds));
                }
                if before.read_shards > before.number_of_shards {
                    change.widths(&before, before.read_shards, before.read_shards, now_seconds);
                }
                change.set(DRAINED_AT, number(now_seconds));
                change.remove = vec![DRAINING, DRAIN];
            }
            MetadataUpdate::FinishDrain { history, settled } => {
                change.set(READ_SHARDS, count(before.number_of_shards));
                change.set(SHARD_HISTORY, set(&history));
                if settled {
                    change.set(SETTLED, AttributeValue::Bool(true));
                }
                change.set(DRAINED_AT, number(now_seconds));
                change.remove = vec![DRAINING, DRAIN, UNMOVABLE_AT];
            }
        }
        change.set(GENERATION, number(generation));
        let condition = match seen {
            None if let Some(raw) = replaced => change.as_it_is(&raw),
            None => change
                .condition("attribute_not_exists(#p)", &[("#p", &self.config.partition_key_name)], None)
                .to_owned(),
            // Written by another program, without a generation: hold on to the widths instead.
            Some(seen) if seen.generation == 0 => change
                .condition(
                    "attribute_not_exists(#g) AND #n = :seen",
                    &[("#g", GENERATION), ("#n", NUMBER_OF_SHARDS)],
                    Some(count(seen.number_of_shards)),
                )
                .to_owned(),
            Some(seen) => {
                change.condition("#g = :seen", &[("#g", GENERATION)], Some(number(seen.generation))).to_owned()
            }
        };
        let (expression, names, values) = change.expression();
        let call = self
            .client
            .update_item()
            .table_name(&self.config.metadata_table_name)
            .key(&self.config.partition_key_name, AttributeValue::S(key.as_str().to_owned()))
            .update_expression(expression)
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(values))
            .return_values(ReturnValue::AllNew);
        let answer = call.send().await.map_err(TableError::from_sdk)?;
        parse(&answer.attributes.unwrap_or_default())
    }
}

/// The metadata that a condition was refused by; `None` for any other error, and where there is none.
fn stood(error: &SdkError<UpdateItemError, HttpResponse>) -> Result<Option<ShardMetadata>, TableError> {
    match error.as_service_error() {
        Some(UpdateItemError::ConditionalCheckFailedException(refused)) => refused.item().map(parse).transpose(),
        _ => Ok(None),
    }
}

fn number(n: u64) -> AttributeValue {
    AttributeValue::N(n.to_string())
}

fn count(count: ShardCount) -> AttributeValue {
    AttributeValue::N(count.to_string())
}

fn set(history: &ShardHistory) -> AttributeValue {
    AttributeValue::Ss(history.to_strings())
}

/// An update expression that grows.
#[derive(Debug, Default)]
struct Change {
    set: Vec<(&'static str, AttributeValue)>,
    add: Option<AttributeValue>,
    remove: Vec<&'static str>,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

impl Change {
    fn set(&mut self, attribute: &'static str, value: AttributeValue) {
        self.set.push((attribute, value));
    }

    /// Another write width, with its entry in the history.
    fn widths(&mut self, before: &ShardMetadata, write: ShardCount, read: ShardCount, now_seconds: u64) {
        self.set(NUMBER_OF_SHARDS, count(write));
        self.set(READ_SHARDS, count(read));
        self.set(LAST_UPDATED, number(now_seconds));
        let mut entry = ShardHistory::default().with(now_seconds, write);
        // Metadata of another program may lack its own width, under which items lie.
        if !before.shard_history.entries().any(|known| known.count == before.number_of_shards) {
            entry = entry.with(before.last_updated, before.number_of_shards);
        }
        self.add = Some(set(&entry));
    }

    fn condition(
        &mut self,
        condition: &'static str,
        names: &[(&str, &str)],
        seen: Option<AttributeValue>,
    ) -> &'static str {
        self.names.extend(names.iter().map(|(placeholder, name)| ((*placeholder).to_owned(), (*name).to_owned())));
        self.values.extend(seen.map(|seen| (":seen".to_owned(), seen)));
        condition
    }

    /// That these attributes still are as they were found: what is damaged has no generation to go by.
    fn as_it_is(&mut self, raw: &RawMetadata) -> String {
        let names = [("#w", NUMBER_OF_SHARDS), ("#x", READ_SHARDS), ("#y", GENERATION), ("#z", DRAIN)];
        let terms = names.map(|(placeholder, name)| {
            self.names.insert(placeholder.to_owned(), name.to_owned());
            match raw.0.get(name) {
                None => format!("attribute_not_exists({placeholder})"),
                Some(value) => {
                    let named = placeholder.replace('#', ":");
                    self.values.insert(named.clone(), value.clone());
                    format!("{placeholder} = {named}")
                }
            }
        });
        terms.join(" AND ")
    }

    fn expression(self) -> (String, HashMap<String, String>, HashMap<String, AttributeValue>) {
        let (mut names, mut values) = (self.names, self.values);
        let mut clauses = Vec::new();
        for (index, (attribute, value)) in self.set.into_iter().enumerate() {
            names.insert(format!("#s{index}"), attribute.to_owned());
            values.insert(format!(":s{index}"), value);
            clauses.push(format!("#s{index} = :s{index}"));
        }
        let mut expression = format!("SET {}", clauses.join(", "));
        if let Some(entries) = self.add {
            names.insert("#h".to_owned(), SHARD_HISTORY.to_owned());
            values.insert(":h".to_owned(), entries);
            expression += " ADD #h :h";
        }
        if !self.remove.is_empty() {
            let placeholders: Vec<String> = (0..self.remove.len()).map(|index| format!("#r{index}")).collect();
            expression += &format!(" REMOVE {}", placeholders.join(", "));
            names.extend(placeholders.into_iter().zip(self.remove.into_iter().map(str::to_owned)));
        }
        (expression, names, values)
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
    let small = |name: &str| -> Result<u32, TableError> {
        u32::try_from(number(name)?.unwrap_or_default()).map_err(|_| damaged(name))
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
    let flag = |name: &str| match item.get(name) {
        None => Ok(false),
        Some(value) => value.as_bool().copied().map_err(|_| damaged(name)),
    };
    let drain = match item.get(DRAIN) {
        None => None,
        Some(value) => {
            let text = value.as_s().map_err(|_| damaged(DRAIN))?;
            Some(text.parse::<Drain>().map_err(|error| TableError::Damaged(error.to_string()))?)
        }
    };
    Ok(ShardMetadata {
        number_of_shards,
        read_shards,
        last_updated: number(LAST_UPDATED)?.unwrap_or_default(),
        shard_history: ShardHistory::parse(entries.iter().map(String::as_str))?,
        generation: number(GENERATION)?.unwrap_or_default(),
        draining: flag(DRAINING)?,
        drain,
        shrunk_at: number(SHRUNK_AT)?.unwrap_or_default(),
        unmovable_at: number(UNMOVABLE_AT)?.unwrap_or_default(),
        settled: flag(SETTLED)?,
        point_written_at: number(POINT_WRITTEN_AT)?.unwrap_or_default(),
        load: Load {
            minute: number(LOAD_MINUTE)?.unwrap_or_default(),
            units: number(LOAD_UNITS)?.unwrap_or_default(),
            per_shard: number(LOAD_PER_SHARD)?.unwrap_or_default(),
            busy_at: number(BUSY_AT)?.unwrap_or_default(),
        },
        drained_at: number(DRAINED_AT)?.unwrap_or_default(),
        growth: GrowthRecord { rejected_percent: small(REJECTED_PERCENT)?, fruitless: small(FRUITLESS_GROWTHS)? },
    })
}
