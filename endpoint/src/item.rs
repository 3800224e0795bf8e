//! Items as DynamoDB's JSON has them: the product's attributes in them, and the typed form that the
//! crate stores. And the members of requests and answers.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sharding::internal::protocol::copies::Copy;
use sharding::internal::protocol::names::{
    DELETED, LATE_UNTIL, RESERVED_PREFIX, VERSION, WRITE_ID,
};
use sharding::{SortKey, Version};

use crate::reply::{Failure, Members};

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

pub(crate) fn object(value: Value) -> Option<Members> {
    if let Value::Object(members) = value { Some(members) } else { None }
}

/// Refuses members that are on none of these lists.
pub(crate) fn check_members(
    operation: &str,
    body: &Members,
    lists: &[&[&str]],
) -> Result<(), Failure> {
    let is_known = |name: &str| lists.iter().any(|known| known.contains(&name));
    match body.keys().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::unsupported(&format!("{name} of {operation}"))),
    }
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

pub(crate) fn sort_key_value(sort_key: &SortKey) -> Value {
    match sort_key {
        SortKey::String(text) => string(text),
        SortKey::Number(written) => number(written),
    }
}

/// A named attribute in the crate's types. `None` if DynamoDB must judge it.
pub(crate) fn named((name, value): (&String, &Value)) -> Option<(String, sharding::Value)> {
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
