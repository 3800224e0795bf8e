//! Between the core's values and the SDK's.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use super::error::TableError;
use crate::config::TableConfig;
use crate::core::key::{PartitionKey, ShardCount, SortKey, SortKeyType};
use crate::core::merge::Stored;
use crate::core::value::{Item, Value};
use crate::core::version::Version;

/// The caller's logical key, which streams and indexes need.
pub(crate) const LOGICAL_KEY: &str = "_partition_key";
/// The item's version.
pub(crate) const VERSION: &str = "_version";
/// The write that created the item, by which a create-only write knows its own earlier attempt.
pub(crate) const WRITE_ID: &str = "_write_id";
/// The write width that the item was placed under, unless it is that of a key without metadata. Lost metadata is rebuilt from it.
pub(crate) const WIDTH: &str = "_width";
/// Attributes that belong to the product; a caller's item cannot carry them.
pub const RESERVED: [&str; 4] = [LOGICAL_KEY, VERSION, WRITE_ID, WIDTH];

pub(crate) type SdkItem = HashMap<String, AttributeValue>;

pub(crate) fn to_sdk(value: Value) -> AttributeValue {
    match value {
        Value::S(text) => AttributeValue::S(text),
        Value::N(number) => AttributeValue::N(number),
        Value::B(bytes) => AttributeValue::B(Blob::new(bytes)),
        Value::Bool(value) => AttributeValue::Bool(value),
        Value::Null => AttributeValue::Null(true),
        Value::L(list) => AttributeValue::L(list.into_iter().map(to_sdk).collect()),
        Value::M(map) => AttributeValue::M(map.into_iter().map(|(name, value)| (name, to_sdk(value))).collect()),
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
        AttributeValue::L(list) => Value::L(list.into_iter().map(from_sdk).collect::<Result<_, _>>()?),
        AttributeValue::M(map) => Value::M(
            map.into_iter().map(|(name, value)| Ok((name, from_sdk(value)?))).collect::<Result<_, TableError>>()?,
        ),
        AttributeValue::Ss(set) => Value::Ss(set),
        AttributeValue::Ns(set) => Value::Ns(set),
        AttributeValue::Bs(set) => Value::Bs(set.into_iter().map(Blob::into_inner).collect()),
        _ => return Err(TableError::Damaged("an attribute has a type that this release does not know".into())),
    })
}

pub(crate) fn sort_key_to_sdk(sort_key: &SortKey) -> AttributeValue {
    match sort_key {
        SortKey::String(text) => AttributeValue::S(text.to_string()),
        SortKey::Number(number) => AttributeValue::N(number.to_string()),
    }
}

pub(crate) fn sort_key_from_sdk(config: &TableConfig, value: Option<&AttributeValue>) -> Result<SortKey, TableError> {
    let text = match (config.sort_key_type, value) {
        (SortKeyType::String, Some(AttributeValue::S(text))) | (SortKeyType::Number, Some(AttributeValue::N(text))) => {
            text
        }
        _ => {
            let name = &config.sort_key_name;
            return Err(TableError::Damaged(format!("the sort key {name} is absent or not of the configured type")));
        }
    };
    SortKey::parse(config.sort_key_type, text)
        .map_err(|error| TableError::Damaged(format!("a sort key is unusable: {error}")))
}

/// An item as it is stored on a shard, under this write width.
pub(crate) fn item_to_sdk(
    config: &TableConfig,
    shard_key: String,
    item: &Item,
    version: Version,
    width: ShardCount,
) -> SdkItem {
    let mut stored: SdkItem = HashMap::with_capacity(item.attributes.len() + 6);
    stored.extend(item.attributes.iter().map(|(name, value)| (name.clone(), to_sdk(value.clone()))));
    stored.insert(config.partition_key_name.clone(), AttributeValue::S(shard_key));
    stored.insert(config.sort_key_name.clone(), sort_key_to_sdk(&item.sort_key));
    stored.insert(LOGICAL_KEY.into(), AttributeValue::S(item.partition_key.as_str().to_owned()));
    stored.insert(VERSION.into(), AttributeValue::N(version.to_string()));
    set_width(config, &mut stored, width);
    stored
}

/// Notes the width that an item is placed under.
pub(crate) fn set_width(config: &TableConfig, stored: &mut SdkItem, width: ShardCount) {
    if width == config.adopt_shards {
        stored.remove(WIDTH);
    } else {
        stored.insert(WIDTH.into(), AttributeValue::N(width.to_string()));
    }
}

/// The width that an item was placed under.
pub(crate) fn width_from_sdk(config: &TableConfig, stored: Option<&AttributeValue>) -> Result<ShardCount, TableError> {
    let Some(value) = stored else { return Ok(config.adopt_shards) };
    let width = value.as_n().ok().and_then(|text| text.parse().ok()).and_then(ShardCount::new);
    width.ok_or_else(|| TableError::Damaged(format!("an item's {WIDTH} is not a width")))
}

/// A stored version; an item that another program stored has none.
pub(crate) fn version_from_sdk(stored: Option<&AttributeValue>) -> Result<Version, TableError> {
    let Some(value) = stored else { return Ok(Version::NONE) };
    let version = value.as_n().ok().and_then(|text| Version::parse(text));
    version.ok_or_else(|| TableError::Damaged(format!("an item's {VERSION} is not a version")))
}

/// An item as the caller sees it, with its version.
pub(crate) fn item_from_sdk(
    config: &TableConfig,
    partition_key: &PartitionKey,
    mut stored: SdkItem,
) -> Result<Stored<Item>, TableError> {
    let sort_key = sort_key_from_sdk(config, stored.remove(&config.sort_key_name).as_ref())?;
    let version = version_from_sdk(stored.remove(VERSION).as_ref())?;
    for name in [config.partition_key_name.as_str(), LOGICAL_KEY, WRITE_ID, WIDTH] {
        stored.remove(name);
    }
    let attributes =
        stored.into_iter().map(|(name, value)| Ok((name, from_sdk(value)?))).collect::<Result<_, TableError>>()?;
    let item = Item { partition_key: partition_key.clone(), sort_key: sort_key.clone(), attributes };
    Ok(Stored { sort_key, version, item })
}
