//! Items as DynamoDB's JSON has them: their keys, the product's attributes in them, and the typed
//! form that the crate stores. And the members of requests and answers.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sharding::internal::MAX_SORT_KEY_BYTES;
use sharding::internal::protocol::copies::Copy;
use sharding::internal::protocol::names::{
    DELETED, LATE_UNTIL, LOGICAL_KEY, RESERVED_PREFIX, VERSION, WRITE_ID,
};
use sharding::{Attributes, PartitionKey, ShardNumber, SortKey, SortKeyType, Version};

use crate::reply::{Failure, Members};
use crate::table::ServedTable;

/// A value of DynamoDB's JSON with one member.
pub(crate) fn string(text: &str) -> Value {
    json!({ "S": text })
}

pub(crate) fn number(number: impl ToString) -> Value {
    json!({ "N": number.to_string() })
}

/// A member that is a text.
pub(crate) fn text<'a>(members: &'a Members, name: &str) -> Option<&'a str> {
    members.get(name)?.as_str()
}

/// A member that is an object; an empty one if there is none.
pub(crate) fn map(members: &Members, name: &str) -> Members {
    members.get(name).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// A member that is a list; an empty one if there is none.
pub(crate) fn list(members: &Members, name: &str) -> Vec<Value> {
    members.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The text of an attribute that has this type.
pub(crate) fn attribute<'a>(item: &'a Members, name: &str, letter: &str) -> Option<&'a str> {
    item.get(name)?.as_object()?.get(letter)?.as_str()
}

/// The version of a stored item. An item of another program has none.
pub(crate) fn version(stored: &Members) -> Version {
    attribute(stored, VERSION, "N").and_then(Version::parse).unwrap_or(Version::NONE)
}

pub(crate) fn is_tombstone(stored: &Members) -> bool {
    stored.contains_key(VERSION) && stored.contains_key(DELETED)
}

/// A stored copy, as far as the protocol needs it.
pub(crate) fn copy(stored: &Members) -> Copy {
    Copy {
        version: version(stored),
        is_tombstone: is_tombstone(stored),
        write_id: attribute(stored, WRITE_ID, "S").map(str::to_owned),
        applied: None,
        late_until: attribute(stored, LATE_UNTIL, "N")
            .filter(|_| stored.contains_key(VERSION))
            .and_then(|until| until.parse().ok()),
    }
}

/// Whether a stored item counts as one of the key: on a shard whose stored key is not the key
/// itself, only items with our logical key do.
pub(crate) fn counts(
    table: &ServedTable,
    stored: &Members,
    key: &PartitionKey,
    shard: ShardNumber,
) -> bool {
    table.is_key_itself(shard) || attribute(stored, LOGICAL_KEY, "S") == Some(key.as_str())
}

/// Leaves the product's attributes out of an answer, and shows the client's key.
pub(crate) fn strip(table: &ServedTable, item: &mut Members, key: &PartitionKey) {
    item.retain(|name, _| !is_ours(name));
    if let Some(stored) = item.get_mut(table.partition_key_name()) {
        *stored = string(key.as_str());
    }
}

pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

/// Refuses attributes with the product's prefix.
pub(crate) fn check_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Failure> {
    match names.into_iter().find(|name| is_ours(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::validation(format!(
            "the attribute {name} is not allowed: names that begin with {RESERVED_PREFIX} are the \
             product's own (sharding-endpoint)"
        ))),
    }
}

const NO_KEY: &str = "The provided key element does not match the schema";

/// The sort key of a key, or of a stored item.
pub(crate) fn sort_key(table: &ServedTable, key: &Members) -> Result<SortKey, Failure> {
    let text = key_text(table, key)?.ok_or_else(|| Failure::validation(NO_KEY))?;
    parsed(table, text)
}

/// Refuses a key that has more than its two parts.
pub(crate) fn check_is_key(key: &Members) -> Result<(), Failure> {
    if key.len() == 2 { Ok(()) } else { Err(Failure::validation(NO_KEY)) }
}

/// The sort key of an item to put.
pub(crate) fn sort_key_to_put(table: &ServedTable, item: &Members) -> Result<SortKey, Failure> {
    let name = table.sort_key_name();
    let Some(text) = key_text(table, item)? else {
        let stored = item.get(name).and_then(Value::as_object);
        let why = match stored.and_then(|value| value.keys().next()) {
            None => format!("Missing the key {name} in the item"),
            Some(actual) => {
                let expected = table.sort_key_letter();
                format!("Type mismatch for key {name} expected: {expected} actual: {actual}")
            }
        };
        let why = format!("One or more parameter values were invalid: {why}");
        return Err(Failure::validation(why));
    };
    parsed(table, text)
}

/// The text of the sort key; `None` if it is absent or has another type.
fn key_text<'a>(table: &ServedTable, key: &'a Members) -> Result<Option<&'a str>, Failure> {
    check_one_type(key.get(table.sort_key_name()))?;
    Ok(attribute(key, table.sort_key_name(), table.sort_key_letter()))
}

fn parsed(table: &ServedTable, text: &str) -> Result<SortKey, Failure> {
    let name = table.sort_key_name();
    SortKey::parse(table.sort_key_type(), text).map_err(|error| {
        Failure::validation(if text.is_empty() {
            format!(
                "One or more parameter values are not valid. The AttributeValue for a key \
                 attribute cannot contain an empty string value. Key: {name}"
            )
        } else if text.len() > MAX_SORT_KEY_BYTES {
            format!(
                "One or more parameter values were invalid: Aggregated size of all range keys has \
                 exceeded the size limit of {MAX_SORT_KEY_BYTES} bytes"
            )
        } else {
            format!("One or more parameter values were invalid: the key {name}: {error}")
        })
    })
}

/// Refuses a value that has several types.
pub(crate) fn check_one_type(value: Option<&Value>) -> Result<(), Failure> {
    if value.and_then(Value::as_object).is_none_or(|types| types.len() == 1) {
        return Ok(());
    }
    Err(Failure::validation(
        "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the \
         supported datatypes",
    ))
}

/// The lowest sort key that DynamoDB takes, or the highest.
pub(crate) fn outermost_sort_key(table: &ServedTable, is_highest: bool) -> Value {
    match (table.sort_key_type(), is_highest) {
        (SortKeyType::String, false) => string("\0"),
        (SortKeyType::String, true) => {
            string(&char::MAX.to_string().repeat(MAX_SORT_KEY_BYTES / char::MAX.len_utf8()))
        }
        (SortKeyType::Number, is_highest) => {
            let sign = if is_highest { "" } else { "-" };
            number(format!("{sign}9.{}E+125", "9".repeat(37)))
        }
    }
}

pub(crate) fn sort_key_value(sort_key: &SortKey) -> Value {
    match sort_key {
        SortKey::String(text) => string(text),
        SortKey::Number(written) => number(written),
    }
}

/// The attributes of an item without its keys, in the crate's types. `None` if DynamoDB must judge
/// them.
pub(crate) fn attributes(table: &ServedTable, item: &Members) -> Option<Attributes> {
    let is_key = |name: &str| name == table.partition_key_name() || name == table.sort_key_name();
    item.iter().filter(|(name, _)| !is_key(name)).map(named).collect()
}

fn named((name, value): (&String, &Value)) -> Option<(String, sharding::Value)> {
    Some((name.clone(), typed(value)?))
}

fn typed(value: &Value) -> Option<sharding::Value> {
    use sharding::Value as Typed;
    let members = value.as_object().filter(|members| members.len() == 1)?;
    let (kind, value) = members.iter().next()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let bytes = |value: &Value| BASE64_STANDARD.decode(value.as_str()?).ok();
    let texts = || value.as_array()?.iter().map(text).collect::<Option<Vec<String>>>();
    Some(match kind.as_str() {
        "S" => Typed::S(text(value)?),
        "N" => Typed::N(text(value)?),
        "B" => Typed::B(bytes(value)?),
        "BOOL" => Typed::Bool(value.as_bool()?),
        "NULL" => value.as_bool().filter(|is_null| *is_null).map(|_| Typed::Null)?,
        "L" => Typed::L(value.as_array()?.iter().map(typed).collect::<Option<_>>()?),
        "M" => Typed::M(value.as_object()?.iter().map(named).collect::<Option<_>>()?),
        "SS" => Typed::Ss(texts()?),
        "NS" => Typed::Ns(texts()?),
        "BS" => Typed::Bs(value.as_array()?.iter().map(bytes).collect::<Option<_>>()?),
        _ => return None,
    })
}
