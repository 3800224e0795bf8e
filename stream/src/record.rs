//! A delivered record: the item under a stored key, before and after.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

use crate::change::Internal;
use crate::error::StreamError;
use crate::json::Field;
use sharding_core::internal::ShardKeys;
use sharding_core::internal::protocol::names::{DELETED, LATE_UNTIL, LOGICAL_KEY, VERSION};
use sharding_core::{Item, KeyError, PartitionKey, ShardNumber, SortKey, SortKeyType, Value};
use sharding_core::{TableConfig, Version};

/// The principal that removes expired items: `userIdentity.principalId`. (DynamoDB developer guide,
/// "DynamoDB Streams and Time to Live".)
const TIME_TO_LIVE: &str = "dynamodb.amazonaws.com";
/// The stream view with both images.
const WHOLE_VIEW: &str = "NEW_AND_OLD_IMAGES";

/// A parsed record.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, and never kept")]
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reading {
    /// An operation of the product itself, whatever the widths of its key are.
    Internal(Internal),
    /// The record is about an item. The widths of its key determine its meaning.
    Item(StreamRecord),
}

/// A record about an item, before its meaning is decided.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamRecord {
    pub(crate) partition_key: PartitionKey,
    pub(crate) sort_key: SortKey,
    pub(crate) shard: ShardNumber,
    pub(crate) at: Duration,
    pub(crate) event: Event,
    /// From DynamoDB Streams. A Kinesis record has no sequence number that orders.
    pub(crate) sequence: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Put { old: Option<Image>, new: Image },
    Remove { old: Image, by_time_to_live: bool },
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

impl StreamRecord {
    /// The logical partition key. Its [`WidthHistory`](super::WidthHistory) determine the meaning.
    pub const fn partition_key(&self) -> &PartitionKey {
        &self.partition_key
    }

    /// The sort key.
    pub const fn sort_key(&self) -> &SortKey {
        &self.sort_key
    }

    /// When the record was made, since the Unix epoch.
    pub const fn at(&self) -> Duration {
        self.at
    }
}

/// The identifier of a record for Lambda, in either format. A partial batch response lists it for a
/// record that failed.
///
/// ```
/// use serde_json::json;
/// use dynamodb_write_sharding_stream::item_identifier;
/// assert_eq!(item_identifier(&json!({"dynamodb": {"SequenceNumber": "111"}})), Some("111"));
/// assert_eq!(item_identifier(&json!({"kinesis": {"sequenceNumber": "495"}})), Some("495"));
/// assert_eq!(item_identifier(&json!({})), None);
/// ```
pub fn item_identifier(record: &Json) -> Option<&str> {
    let of_kinesis = record.pointer("/kinesis/sequenceNumber");
    of_kinesis.or_else(|| record.pointer("/dynamodb/SequenceNumber")).and_then(Json::as_str)
}

/// A partial batch response: Lambda delivers again from the first of these records on, and treats
/// the records before it as done. Without any, the batch is done.
///
/// ```
/// use dynamodb_write_sharding_stream::failed_items;
/// assert_eq!(failed_items([]).to_string(), r#"{"batchItemFailures":[]}"#);
/// assert_eq!(
///     failed_items(["111"]).to_string(),
///     r#"{"batchItemFailures":[{"itemIdentifier":"111"}]}"#,
/// );
/// ```
pub fn failed_items<'a>(identifiers: impl IntoIterator<Item = &'a str>) -> Json {
    let failures =
        identifiers.into_iter().map(|identifier| json!({ "itemIdentifier": identifier }));
    json!({ "batchItemFailures": failures.collect::<Vec<_>>() })
}

/// Parses a record of either format.
pub(crate) fn read(config: &TableConfig, record: &Json) -> Result<Reading, StreamError> {
    let outer = Field::root(record, "");
    let kinesis = outer.get("kinesis");
    if kinesis.value.is_none() {
        return Reader { config, record: outer, is_kinesis: false }.read();
    }
    let data = kinesis.get("data");
    let bytes = STANDARD.decode(data.text()?).map_err(|_| data.is("is not base64"))?;
    let inner =
        serde_json::from_slice(&bytes).map_err(|error| data.is(format!("is not JSON: {error}")))?;
    Reader { config, record: Field::root(&inner, "kinesis.data"), is_kinesis: true }.read()
}

struct Reader<'a> {
    config: &'a TableConfig,
    record: Field<'a, 'a>,
    is_kinesis: bool,
}

impl Reader<'_> {
    fn read(&self) -> Result<Reading, StreamError> {
        let dynamodb = self.record.get("dynamodb");
        if self.is_of_metadata_table()? {
            return Ok(Reading::Internal(Internal::Metadata));
        }
        let keys = dynamodb.get("Keys");
        keys.object()?;
        let stored_key = keys.get(&self.config.partition_key_name);
        let stored_key = stored_key.get("S");
        if PartitionKey::new(stored_key.text()?) == Err(KeyError::Reserved) {
            return Ok(Reading::Internal(Internal::Metadata));
        }
        let sort_key = self.sort_key(&keys)?;
        let (old, new) = self.images(&dynamodb)?;
        let Some((partition_key, shard)) = self.key(&stored_key, [&new, &old])? else {
            return Ok(Reading::Internal(Internal::Foreign));
        };
        let image = |field: &Field<'_, '_>| self.image(field, &partition_key, &sort_key);
        let event = match new.value {
            Some(_) => {
                Event::Put { old: old.value.map(|_| image(&old)).transpose()?, new: image(&new)? }
            }
            None => Event::Remove { old: image(&old)?, by_time_to_live: self.is_by_time_to_live() },
        };
        if matches!(&event, Event::Remove { old, .. } if old.is_tombstone) {
            return Ok(Reading::Internal(Internal::TombstoneRemoved));
        }
        let sequence = dynamodb.get("SequenceNumber");
        let sequence = if self.is_kinesis { None } else { Some(sequence_number(&sequence)?) };
        let at = created_at(&dynamodb)?;
        Ok(Reading::Item(StreamRecord { partition_key, sort_key, shard, at, event, sequence }))
    }

    /// The record names its table: itself in Kinesis, by its source in DynamoDB Streams.
    fn is_of_metadata_table(&self) -> Result<bool, StreamError> {
        let name =
            |configured: &str| configured.rsplit("table/").next().unwrap_or(configured).to_owned();
        let field = self.record.get(if self.is_kinesis { "tableName" } else { "eventSourceARN" });
        let Some(text) = field.value.and_then(Json::as_str) else { return Ok(false) };
        let of_arn = text.split_once(":table/").and_then(|(_, rest)| rest.split('/').next());
        let table = of_arn.unwrap_or(text);
        let (main, metadata) =
            (name(&self.config.table_name), name(&self.config.metadata_table_name));
        if table != main && table != metadata {
            let why = format!("names the table {table:?}; this decoder is for {main:?}");
            return Err(field.is(why));
        }
        Ok(table == metadata)
    }

    fn sort_key(&self, keys: &Field<'_, '_>) -> Result<SortKey, StreamError> {
        let kind = match self.config.sort_key_type {
            SortKeyType::String => "S",
            SortKeyType::Number => "N",
        };
        let stored = keys.get(&self.config.sort_key_name);
        let stored = stored.get(kind);
        SortKey::parse(self.config.sort_key_type, stored.text()?)
            .map_err(|error| stored.is(format!("is no sort key: {error}")))
    }

    /// The old and the new image, as far as the event has them.
    fn images<'b>(
        &'b self,
        dynamodb: &'b Field<'b, 'b>,
    ) -> Result<(Field<'b, 'b>, Field<'b, 'b>), StreamError> {
        let view = dynamodb.get("StreamViewType");
        if let Some(other) = view.value.and_then(Json::as_str).filter(|view| *view != WHOLE_VIEW) {
            let missing = match other {
                "NEW_IMAGE" => "OldImage",
                "OLD_IMAGE" => "NewImage",
                "KEYS_ONLY" => "NewImage and no OldImage",
                _ => return Err(view.is(format!("is {other:?}; expected {WHOLE_VIEW}"))),
            };
            return Err(StreamError::View { view: other.to_owned(), missing });
        }
        let (old, new) = (dynamodb.get("OldImage"), dynamodb.get("NewImage"));
        let event = self.record.get("eventName");
        match (event.text()?, old.value.is_some(), new.value.is_some()) {
            ("INSERT", false, true) | ("MODIFY", true, true) | ("REMOVE", true, false) => {
                Ok((old, new))
            }
            (known @ ("INSERT" | "MODIFY" | "REMOVE"), ..) => {
                Err(dynamodb.is(format!("does not have the images of the event {known}")))
            }
            (other, ..) => {
                Err(event.is(format!("is {other:?}; expected INSERT, MODIFY or REMOVE")))
            }
        }
    }

    /// The item's key, and its shard. `None` for an item of another program where reads ignore it.
    fn key(
        &self,
        stored: &Field<'_, '_>,
        images: [&Field<'_, '_>; 2],
    ) -> Result<Option<(PartitionKey, ShardNumber)>, StreamError> {
        let keys = &self.config.shard_keys;
        let parsed = keys.parse(stored.text()?);
        let named = images.iter().find_map(|image| image.get(LOGICAL_KEY).of_type("S"));
        let is_key_first = *keys == ShardKeys::KeyFirst;
        match (named, parsed) {
            (Some(logical), Some((key, shard))) if key.as_str() == logical => {
                Ok(Some((key, shard)))
            }
            (Some(logical), _) => {
                Err(stored.is(format!("is no shard of {logical:?}, which {LOGICAL_KEY} names")))
            }
            (None, Some((_, shard))) if is_key_first && shard != ShardNumber::FIRST => Ok(None),
            (None, Some(parsed)) => Ok(Some(parsed)),
            // A key that no shard can have, and the product never writes.
            (None, None) if is_key_first => Ok(None),
            (None, None) => Err(stored.is("is no shard key of the table")),
        }
    }

    fn image(
        &self,
        field: &Field<'_, '_>,
        partition_key: &PartitionKey,
        sort_key: &SortKey,
    ) -> Result<Image, StreamError> {
        let mut attributes = field.attributes()?;
        let version = match attributes.get(VERSION) {
            None => None,
            Some(Value::N(text)) if let Some(version) = Version::parse(text) => Some(version),
            Some(_) => {
                let why = "is not a version: a whole number of at most 38 digits";
                return Err(field.get(VERSION).is(why));
            }
        };
        // As for reads of items: without a version, the attribute belongs to another program.
        let is_tombstone = version.is_some() && attributes.get(DELETED) == Some(&Value::Bool(true));
        let is_marked = attributes.contains_key(LATE_UNTIL);
        let ends = self.config.ttl_attribute.as_ref().and_then(|name| attributes.get(name));
        let expires_at = match ends {
            Some(Value::N(text)) => text.parse().ok(),
            Some(_) | None => None,
        };
        attributes.retain(|name, _| !self.config.is_reserved(name));
        let item =
            Item { partition_key: partition_key.clone(), sort_key: sort_key.clone(), attributes };
        Ok(Image { version, is_tombstone, is_marked, expires_at, item })
    }

    fn is_by_time_to_live(&self) -> bool {
        let identity = self.record.get("userIdentity");
        // `PrincipalId` in GetRecords, `principalId` in the event of Lambda.
        let names = ["principalId", "PrincipalId"];
        let principal = names.into_iter().find_map(|name| identity.get(name).value?.as_str());
        principal == Some(TIME_TO_LIVE)
    }
}

fn sequence_number(field: &Field<'_, '_>) -> Result<String, StreamError> {
    let text = field.text()?;
    let is_number =
        (1..=40).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { Ok(text.to_owned()) } else { Err(field.is("is not a number of 1 to 40 digits")) }
}

/// In seconds from DynamoDB Streams, in milliseconds or microseconds from Kinesis. The magnitude shows
/// the unit: in these three, all instants from 1973 to the year 5000 have different magnitudes.
fn created_at(dynamodb: &Field<'_, '_>) -> Result<Duration, StreamError> {
    let field = dynamodb.get("ApproximateCreationDateTime");
    let number = field.needed()?.as_f64().filter(|number| (0.0..1e17).contains(number));
    let number = number.ok_or_else(|| {
        field.is("is not a time: a number of seconds, milliseconds or microseconds since 1970")
    })?;
    let micros_per_unit = match number {
        seconds if seconds < 1e11 => 1e6,
        millis if millis < 1e14 => 1e3,
        _ => 1.0,
    };
    // Rounded to whole microseconds. A JSON number has these exactly, but not as seconds.
    Ok(Duration::from_micros((number * micros_per_unit).round() as u64))
}
