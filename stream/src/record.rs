//! A delivered record: the item under a stored key, before and after.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_dynamo::AttributeValue;
use serde_json::{Value as Json, json};

use crate::error::StreamError;
use sharding_core::internal::ShardKeys;
use sharding_core::internal::dynamo::from_dynamo;
use sharding_core::internal::protocol::names::{DELETED, LATE_UNTIL, LOGICAL_KEY, VERSION};
use sharding_core::internal::protocol::survey::place_of;
use sharding_core::{Attributes, Item, KeyError, PartitionKey, ShardNumber, SortKey, SortKeyType};
use sharding_core::{TableConfig, Value, Version};

/// The principal that removes expired items: `userIdentity.principalId`. (DynamoDB developer guide,
/// "DynamoDB Streams and Time to Live".)
const TIME_TO_LIVE: &str = "dynamodb.amazonaws.com";
/// The stream view with both images.
const WHOLE_VIEW: &str = "NEW_AND_OLD_IMAGES";

/// An item in DynamoDB's JSON.
pub(crate) type DynamoItem = HashMap<String, AttributeValue>;

/// A record about an item, before its meaning is decided.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamRecord {
    /// The logical partition key. Its [`WidthHistory`](super::WidthHistory) determines the meaning.
    pub partition_key: PartitionKey,
    pub(crate) sort_key: SortKey,
    pub(crate) shard: ShardNumber,
    pub(crate) at: Duration,
    pub(crate) old: Option<Image>,
    /// `None` if the item was removed.
    pub(crate) new: Option<Image>,
    pub(crate) by_time_to_live: bool,
    /// From DynamoDB Streams. A Kinesis record has no sequence number that orders.
    pub(crate) sequence: Option<String>,
}

/// The item under a stored key, before or after the change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Image {
    /// `None` if another program stored the item.
    pub(crate) version: Option<Version>,
    pub(crate) is_tombstone: bool,
    /// Whether the item says until when a duplicate of its put may arrive.
    pub(crate) is_marked: bool,
    /// Epoch seconds.
    pub(crate) expires_at: Option<u64>,
    pub(crate) item: Item,
}

/// The identifier of a record for Lambda, in either format. A partial batch response lists it for a
/// record that failed.
pub fn item_identifier(record: &Json) -> Option<&str> {
    let of_kinesis = record.pointer("/kinesis/sequenceNumber");
    of_kinesis.or_else(|| record.pointer("/dynamodb/SequenceNumber")).and_then(Json::as_str)
}

/// A partial batch response: Lambda delivers again from the first of these records on, and treats
/// the records before it as done. Without any, the batch is done.
pub fn failed_items<'a>(identifiers: impl IntoIterator<Item = &'a str>) -> Json {
    let failures =
        identifiers.into_iter().map(|identifier| json!({ "itemIdentifier": identifier }));
    json!({ "batchItemFailures": failures.collect::<Vec<_>>() })
}

/// Parses a record or an item. The error has the path to the wrong value, and never the value.
pub(crate) fn parse<'a, T: Deserialize<'a>>(json: &'a Json) -> Result<T, StreamError> {
    serde_path_to_error::deserialize(json).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "it".to_owned() } else { path };
        StreamError::field(field, "is not in DynamoDB's JSON")
    })
}

/// The fields of a record that decoding needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delivered {
    event_name: Option<String>,
    /// In DynamoDB Streams.
    #[serde(rename = "eventSourceARN")]
    event_source_arn: Option<String>,
    /// In Kinesis.
    table_name: Option<String>,
    user_identity: Option<Json>,
    #[serde(default)]
    dynamodb: Dynamodb,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Dynamodb {
    approximate_creation_date_time: Option<f64>,
    keys: Option<DynamoItem>,
    old_image: Option<DynamoItem>,
    new_image: Option<DynamoItem>,
    sequence_number: Option<String>,
    stream_view_type: Option<String>,
}

impl Delivered {
    pub(crate) fn read(
        self,
        config: &TableConfig,
        is_kinesis: bool,
    ) -> Result<Option<StreamRecord>, StreamError> {
        if self.is_of_metadata_table(config)? {
            return Ok(None);
        }
        let keys = self.dynamodb.keys.as_ref().ok_or_else(|| missing("dynamodb.Keys"))?;
        let stored_key = key_text(keys, &config.partition_key_name, SortKeyType::String)?;
        if PartitionKey::new(stored_key) == Err(KeyError::Reserved) {
            return Ok(None);
        }
        let sort_key = key_text(keys, &config.sort_key_name, config.sort_key_type)?;
        let sort_key = SortKey::parse(config.sort_key_type, sort_key)
            .map_err(|error| in_keys(&config.sort_key_name, format!("is no sort key: {error}")))?;
        self.check_images()?;
        let Some((partition_key, shard)) = self.place(config, stored_key)? else {
            return Ok(None);
        };
        let at = created_at(self.dynamodb.approximate_creation_date_time)?;
        let identity = self.user_identity.unwrap_or_default();
        // `PrincipalId` in GetRecords, `principalId` in the event of Lambda.
        let mut principals = ["principalId", "PrincipalId"].into_iter();
        let by_time_to_live = principals.any(|name| identity[name] == TIME_TO_LIVE);
        let Dynamodb { old_image, new_image, sequence_number, .. } = self.dynamodb;
        let of = (&partition_key, &sort_key);
        let old = image(config, "OldImage", old_image, of)?;
        let new = image(config, "NewImage", new_image, of)?;
        if new.is_none() && old.as_ref().is_some_and(|old| old.is_tombstone) {
            return Ok(None);
        }
        let sequence = if is_kinesis { None } else { Some(checked_sequence(sequence_number)?) };
        Ok(Some(StreamRecord {
            partition_key,
            sort_key,
            shard,
            at,
            old,
            new,
            by_time_to_live,
            sequence,
        }))
    }

    /// The record names its table: itself in Kinesis, by its source in DynamoDB Streams.
    fn is_of_metadata_table(&self, config: &TableConfig) -> Result<bool, StreamError> {
        let (field, text) = match (&self.table_name, &self.event_source_arn) {
            (Some(name), _) => ("tableName", name),
            (None, Some(arn)) => ("eventSourceARN", arn),
            (None, None) => return Ok(false),
        };
        let of_arn = text.split_once(":table/").and_then(|(_, rest)| rest.split('/').next());
        let table = of_arn.unwrap_or(text);
        let configured = [&config.table_name, &config.metadata_table_name];
        let [main, metadata] = configured.map(|name| name.rsplit("table/").next());
        if Some(table) != main && Some(table) != metadata {
            let main = main.unwrap_or_default();
            let why = format!("names the table {table:?}; this decoder is for {main:?}");
            return Err(StreamError::field(field, why));
        }
        Ok(Some(table) == metadata)
    }

    /// Checks that the record has the old and the new image, as far as its event has them.
    fn check_images(&self) -> Result<(), StreamError> {
        let Dynamodb { old_image, new_image, stream_view_type, .. } = &self.dynamodb;
        if let Some(view) = stream_view_type.as_ref().filter(|view| *view != WHOLE_VIEW) {
            let why = format!("is {view:?}; the stream must have {WHOLE_VIEW}");
            return Err(StreamError::field("dynamodb.StreamViewType", why));
        }
        let event = self.event_name.as_deref().ok_or_else(|| missing("eventName"))?;
        match (event, old_image.is_some(), new_image.is_some()) {
            ("INSERT", false, true) | ("MODIFY", true, true) | ("REMOVE", true, false) => Ok(()),
            ("INSERT" | "MODIFY" | "REMOVE", ..) => {
                let why = format!("does not have the images of the event {event}");
                Err(StreamError::field("dynamodb", why))
            }
            _ => {
                let why = format!("is {event:?}; expected INSERT, MODIFY or REMOVE");
                Err(StreamError::field("eventName", why))
            }
        }
    }

    /// The item's key, and its shard. `None` if another program has stored the item under the stored
    /// key of a further shard, where only the product stores items, or under a key that the product
    /// never writes: no read returns it.
    fn place(
        &self,
        config: &TableConfig,
        stored_key: &str,
    ) -> Result<Option<(PartitionKey, ShardNumber)>, StreamError> {
        let Dynamodb { old_image, new_image, .. } = &self.dynamodb;
        let logical = [new_image, old_image].into_iter().find_map(|image| {
            let named = image.as_ref()?.get(LOGICAL_KEY)?;
            if let AttributeValue::S(key) = named { Some(key.as_str()) } else { None }
        });
        let is = |problem: String| Err(in_keys(&config.partition_key_name, problem));
        match (place_of(&config.shard_keys, stored_key, logical), logical) {
            (Some(place), _) => Ok(Some(place)),
            (None, Some(logical)) => {
                is(format!("is no shard of {logical:?}, which {LOGICAL_KEY} names"))
            }
            (None, None) if config.shard_keys == ShardKeys::KeyFirst => Ok(None),
            (None, None) => is("is no shard key of the table".to_owned()),
        }
    }
}

fn missing(field: &str) -> StreamError {
    StreamError::field(field, "is missing")
}

fn in_keys(name: &str, problem: impl Into<String>) -> StreamError {
    StreamError::field(format!("dynamodb.Keys.{name}"), problem)
}

/// The text of a key attribute, which has this type.
fn key_text<'a>(
    keys: &'a DynamoItem,
    name: &str,
    kind: SortKeyType,
) -> Result<&'a str, StreamError> {
    match (keys.get(name), kind) {
        (Some(AttributeValue::S(text)), SortKeyType::String)
        | (Some(AttributeValue::N(text)), SortKeyType::Number) => Ok(text),
        (_, SortKeyType::String) => Err(in_keys(name, "is missing or is not a string")),
        (_, SortKeyType::Number) => Err(in_keys(name, "is missing or is not a number")),
    }
}

fn image(
    config: &TableConfig,
    name: &str,
    stored: Option<DynamoItem>,
    (partition_key, sort_key): (&PartitionKey, &SortKey),
) -> Result<Option<Image>, StreamError> {
    let Some(stored) = stored else { return Ok(None) };
    let mut attributes: Attributes =
        stored.into_iter().map(|(name, value)| (name, from_dynamo(value))).collect();
    let version = match attributes.get(VERSION) {
        None => None,
        Some(Value::N(text)) if let Some(version) = Version::parse(text) => Some(version),
        Some(_) => {
            let why = "is not a version: a whole number of at most 38 digits";
            return Err(StreamError::field(format!("dynamodb.{name}.{VERSION}"), why));
        }
    };
    // As for reads of items: without a version, the attribute belongs to another program.
    let is_tombstone = version.is_some() && attributes.get(DELETED) == Some(&Value::Bool(true));
    let is_marked = attributes.contains_key(LATE_UNTIL);
    let ends = config.ttl_attribute.as_ref().and_then(|name| attributes.get(name));
    let expires_at = if let Some(Value::N(text)) = ends { text.parse().ok() } else { None };
    attributes.retain(|name, _| !config.is_reserved(name));
    let item =
        Item { partition_key: partition_key.clone(), sort_key: sort_key.clone(), attributes };
    Ok(Some(Image { version, is_tombstone, is_marked, expires_at, item }))
}

fn checked_sequence(number: Option<String>) -> Result<String, StreamError> {
    const FIELD: &str = "dynamodb.SequenceNumber";
    let number = number.ok_or_else(|| missing(FIELD))?;
    let is_number =
        (1..=40).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    let why = "is not a number of 1 to 40 digits";
    if is_number { Ok(number) } else { Err(StreamError::field(FIELD, why)) }
}

/// In seconds from DynamoDB Streams, in milliseconds or microseconds from Kinesis. The magnitude shows
/// the unit: in these three, all instants from 1973 to the year 5000 have different magnitudes.
fn created_at(number: Option<f64>) -> Result<Duration, StreamError> {
    const FIELD: &str = "dynamodb.ApproximateCreationDateTime";
    let number = number.ok_or_else(|| missing(FIELD))?;
    if !(0.0..1e17).contains(&number) {
        let why = "is not a time: a number of seconds, milliseconds or microseconds since 1970";
        return Err(StreamError::field(FIELD, why));
    }
    let micros_per_unit = match number {
        seconds if seconds < 1e11 => 1e6,
        millis if millis < 1e14 => 1e3,
        _ => 1.0,
    };
    // Rounded to whole microseconds. A JSON number has these exactly, but not as seconds.
    Ok(Duration::from_micros((number * micros_per_unit).round() as u64))
}
