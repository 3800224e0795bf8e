//! Conversion between the core's values and the SDK's.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use crate::config::TableConfig;
use crate::protocol::applied::{Applied, UpdateId};
use crate::protocol::copies::Copy;
use crate::protocol::merge::Stored;
use crate::protocol::names::{
    APPLIED, APPLIED_BEFORE, BEGAN, DELETED, IDS, KNOWN_SINCE, LATE_UNTIL, LOGICAL_KEY,
    RESERVED_PREFIX, VERSION, WIDTH, WRITE_ID,
};
use crate::protocol::version::Version;
use crate::table::Place;
use crate::table::error::TableError;
use crate::values::key::{PartitionKey, ShardCount, SortKey, SortKeyType};
use crate::values::value::{Item, Value};

pub(crate) type SdkItem = HashMap<String, AttributeValue>;

pub(super) fn number(n: impl ToString) -> AttributeValue {
    AttributeValue::N(n.to_string())
}

pub(crate) fn to_sdk(value: Value) -> AttributeValue {
    match value {
        Value::S(text) => AttributeValue::S(text),
        Value::N(number) => AttributeValue::N(number),
        Value::B(bytes) => AttributeValue::B(Blob::new(bytes)),
        Value::Bool(value) => AttributeValue::Bool(value),
        Value::Null => AttributeValue::Null(true),
        Value::L(list) => AttributeValue::L(list.into_iter().map(to_sdk).collect()),
        Value::M(map) => {
            AttributeValue::M(map.into_iter().map(|(name, value)| (name, to_sdk(value))).collect())
        }
        Value::Ss(set) => AttributeValue::Ss(set),
        Value::Ns(set) => AttributeValue::Ns(set),
        Value::Bs(set) => AttributeValue::Bs(set.into_iter().map(Blob::new).collect()),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum is open")]
pub(crate) fn from_sdk(value: AttributeValue) -> Result<Value, TableError> {
    Ok(match value {
        AttributeValue::S(text) => Value::S(text),
        AttributeValue::N(number) => Value::N(number),
        AttributeValue::B(bytes) => Value::B(bytes.into_inner()),
        AttributeValue::Bool(value) => Value::Bool(value),
        AttributeValue::Null(_) => Value::Null,
        AttributeValue::L(list) => {
            Value::L(list.into_iter().map(from_sdk).collect::<Result<_, _>>()?)
        }
        AttributeValue::M(map) => Value::M(
            map.into_iter()
                .map(|(name, value)| Ok((name, from_sdk(value)?)))
                .collect::<Result<_, TableError>>()?,
        ),
        AttributeValue::Ss(set) => Value::Ss(set),
        AttributeValue::Ns(set) => Value::Ns(set),
        AttributeValue::Bs(set) => Value::Bs(set.into_iter().map(Blob::into_inner).collect()),
        _ => {
            let why = "an attribute has a type that this release does not know";
            return Err(TableError::Damaged(why.to_owned()));
        }
    })
}

pub(crate) fn sort_key_to_sdk(sort_key: &SortKey) -> AttributeValue {
    match sort_key {
        SortKey::String(text) => AttributeValue::S(text.to_string()),
        SortKey::Number(of) => number(of),
    }
}

pub(crate) fn sort_key_from_sdk(
    config: &TableConfig,
    value: Option<&AttributeValue>,
) -> Result<SortKey, TableError> {
    let text = match config.sort_key_type {
        SortKeyType::String => value.and_then(|value| value.as_s().ok()),
        SortKeyType::Number => value.and_then(|value| value.as_n().ok()),
    };
    let why =
        |why: String| TableError::Damaged(format!("the sort key {} {why}", config.sort_key_name));
    let text = text.ok_or_else(|| why("is absent or not of the configured type".to_owned()))?;
    SortKey::parse(config.sort_key_type, text).map_err(|error| why(format!("is unusable: {error}")))
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Content<'a> {
    pub(crate) item: &'a Item,
    pub(crate) applied: Option<&'a Applied>,
}

/// `None` makes a tombstone: the item's keys only, and never a time to live.
pub(super) fn item_to_sdk(
    config: &TableConfig,
    content: Option<Content<'_>>,
    (place, shard_key): (Place<'_>, String),
    (version, write_id): (Version, Option<&str>),
) -> SdkItem {
    let mut stored =
        SdkItem::with_capacity(content.map_or(1, |content| content.item.attributes.len()) + 6);
    match content {
        Some(Content { item, applied }) => {
            let own = item.attributes.iter();
            stored.extend(own.map(|(name, value)| (name.clone(), to_sdk(value.clone()))));
            applied.into_iter().for_each(|applied| set_applied(&mut stored, applied));
        }
        None => drop(stored.insert(DELETED.to_owned(), AttributeValue::Bool(true))),
    }
    stored.insert(config.sort_key_name.clone(), sort_key_to_sdk(place.sort_key));
    set_place(config, &mut stored, place, shard_key);
    stored.insert(VERSION.into(), number(version));
    if let Some(write_id) = write_id {
        stored.insert(WRITE_ID.into(), AttributeValue::S(write_id.to_owned()));
    }
    stored
}

/// Stores the key of the shard, the logical key unless it is the same, and the width.
pub(super) fn set_place(
    config: &TableConfig,
    stored: &mut SdkItem,
    place: Place<'_>,
    shard_key: String,
) {
    stored.insert(config.partition_key_name.clone(), AttributeValue::S(shard_key));
    if config.shard_keys.is_key_itself(place.shard) {
        stored.remove(LOGICAL_KEY);
    } else {
        let key = place.partition_key.as_str().to_owned();
        stored.insert(LOGICAL_KEY.into(), AttributeValue::S(key));
    }
    if place.width == config.adopt_shards {
        stored.remove(WIDTH);
    } else {
        stored.insert(WIDTH.into(), number(place.width));
    }
}

pub(crate) fn width_from_sdk(
    config: &TableConfig,
    stored: Option<&AttributeValue>,
) -> Result<ShardCount, TableError> {
    let Some(value) = stored else { return Ok(config.adopt_shards) };
    let width = value.as_n().ok().and_then(|text| text.parse().ok()).and_then(ShardCount::new);
    width.ok_or_else(|| TableError::Damaged(format!("an item's {WIDTH} is not a width")))
}

/// [`Version::NONE`] for an item that another program stored.
pub(crate) fn version_from_sdk(stored: Option<&AttributeValue>) -> Result<Version, TableError> {
    let Some(value) = stored else { return Ok(Version::NONE) };
    let version = value.as_n().ok().and_then(|text| Version::parse(text));
    version.ok_or_else(|| TableError::Damaged(format!("an item's {VERSION} is not a version")))
}

/// An item without a version belongs to another program, which may use the attribute differently.
pub(super) fn is_tombstone(stored: &SdkItem) -> bool {
    stored.contains_key(VERSION) && matches!(stored.get(DELETED), Some(AttributeValue::Bool(true)))
}

pub(super) fn copy_from_sdk(stored: &SdkItem) -> Result<Copy, TableError> {
    // An item without a version belongs to another program, and has no mark of ours.
    let mark = stored.get(LATE_UNTIL).filter(|_| stored.contains_key(VERSION));
    Ok(Copy {
        version: version_from_sdk(stored.get(VERSION))?,
        is_tombstone: is_tombstone(stored),
        write_id: stored.get(WRITE_ID).and_then(|id| id.as_s().ok()).cloned(),
        applied: applied_from_sdk(stored)?.map(Box::new),
        late_until: mark.and_then(|mark| mark.as_n().ok()?.parse().ok()),
    })
}

fn set_applied(stored: &mut SdkItem, applied: &Applied) {
    let ids = |ids: &BTreeSet<UpdateId>| {
        AttributeValue::Bs(ids.iter().map(|id| Blob::new(id.0)).collect())
    };
    let mut before = HashMap::from([
        (BEGAN.to_owned(), number(applied.began)),
        (KNOWN_SINCE.to_owned(), number(applied.known_since)),
    ]);
    // A set in DynamoDB has at least one member.
    if !applied.old.is_empty() {
        before.insert(IDS.to_owned(), ids(&applied.old));
    }
    stored.insert(APPLIED_BEFORE.to_owned(), AttributeValue::M(before));
    if !applied.young.is_empty() {
        stored.insert(APPLIED.to_owned(), ids(&applied.young));
    }
}

/// An item without a version belongs to another program, as in [`is_tombstone`].
fn applied_from_sdk(stored: &SdkItem) -> Result<Option<Applied>, TableError> {
    let Some(before) = stored.get(APPLIED_BEFORE).filter(|_| stored.contains_key(VERSION)) else {
        return Ok(None);
    };
    let member = |name: &str| before.as_m().ok()?.get(name);
    let number = |name: &str| member(name)?.as_n().ok()?.parse().ok();
    let ids = |value: Option<&AttributeValue>| match value {
        None => Some(BTreeSet::new()),
        Some(value) => {
            let id = |id: &Blob| Some(UpdateId(id.as_ref().try_into().ok()?));
            value.as_bs().ok()?.iter().map(id).collect()
        }
    };
    let parts = (number(BEGAN), number(KNOWN_SINCE), ids(stored.get(APPLIED)), ids(member(IDS)));
    let (Some(began), Some(known_since), Some(young), Some(old)) = parts else {
        let why = format!("an item's {APPLIED} is not what this product stores");
        return Err(TableError::Damaged(why));
    };
    Ok(Some(Applied { began, known_since, young, old }))
}

/// An item as the caller sees it, with its version. A tombstone has none.
pub(crate) fn item_from_sdk(
    config: &TableConfig,
    partition_key: &PartitionKey,
    mut stored: SdkItem,
) -> Result<Stored<Item>, TableError> {
    let is_tombstone = is_tombstone(&stored);
    let sort_key = sort_key_from_sdk(config, stored.remove(&config.sort_key_name).as_ref())?;
    let version = version_from_sdk(stored.remove(VERSION).as_ref())?;
    if is_tombstone {
        return Ok(Stored { sort_key, version, item: None });
    }
    stored.remove(&config.partition_key_name);
    stored.retain(|name, _| !name.starts_with(RESERVED_PREFIX));
    let attributes = stored
        .into_iter()
        .map(|(name, value)| Ok((name, from_sdk(value)?)))
        .collect::<Result<_, TableError>>()?;
    let item =
        Item { partition_key: partition_key.clone(), sort_key: sort_key.clone(), attributes };
    Ok(Stored { sort_key, version, item: Some(item) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::key::tests::{count, key, shard, text};

    #[test]
    fn a_tombstone_has_keys_and_no_attributes() {
        let config = TableConfig::new("items", "metadata");
        let (partition_key, sort_key) = (&key("orders"), &text("order-1"));
        let place = Place { partition_key, sort_key, shard: shard(2), width: count(4) };
        let written = (Version::new(3, 7, 9), Some("id"));
        let tombstone = item_to_sdk(&config, None, (place, "orders\u{1f}s2".to_owned()), written);
        let mut names: Vec<&str> = tombstone.keys().map(String::as_str).collect();
        names.sort_unstable();
        let expected = ["_sh:d", "_sh:i", "_sh:k", "_sh:v", "_sh:w", "partition_key", "sort_key"];
        assert_eq!(names, expected);
        assert!(copy_from_sdk(&tombstone).unwrap().is_tombstone);
        assert_eq!(item_from_sdk(&config, &key("orders"), tombstone.clone()).unwrap().item, None);

        let without_version = tombstone.into_iter().filter(|(name, _)| name != VERSION).collect();
        assert!(
            !copy_from_sdk(&without_version).unwrap().is_tombstone,
            "the attribute is another program's"
        );
        assert!(item_from_sdk(&config, &key("orders"), without_version).unwrap().item.is_some());
    }
}
